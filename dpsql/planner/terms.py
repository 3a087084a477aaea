"""Columns, conditions and noisy terms of an aggregate block: plain values between the SQL side and the planner.

Conditions and group expressions are DuckDB text over placeholder columns `dp_c0, dp_c1, ..`; the planner decides for
each view which axis a placeholder lives on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from typing import Any, NamedTuple, TypeAlias


@dataclass(frozen=True)
class ColumnRef:
    """A column of the star: foreign-key path from the block's root table, table, column.

    Args:
        path, table, column: where it is.
        partner: stands for whether a row has a partner at the end of the path, whose key the column is.
    """

    path: tuple[str, ...]
    table: str
    column: str
    partner: bool = False

    def __str__(self) -> str:
        """Path and name, as plans and refusals say it."""
        if self.partner:
            return f"the join along {'.'.join(self.path)}"
        return f"{'.'.join((*self.path, ''))}{self.table}.{self.column}"


Bound: TypeAlias = int | Decimal | date
"""What a column is compared with."""


class Comparison(NamedTuple):
    """A column compared with a constant.

    Args:
        column: number of the column's placeholder.
        operator: `<`, `<=`, `=` and so on, as a function of two values.
        constant: a number without an exponent, or a day.
    """

    column: int
    operator: Callable[[Any, Any], Any]
    constant: Bound


@dataclass(frozen=True)
class Expression:
    """A scalar expression over placeholder columns.

    Args:
        sql: DuckDB text that names columns `dp_c<i>`.
        columns: the i that occur.
        monotone: built of comparisons and monotone functions alone: what an axis without single values takes.
        span: first and last character of it in the statement, or None.
        words: gives the same for people: without guards, with the star's names in place of placeholders.
        comparisons: comparisons that must all be true, if the expression is nothing more.
        starts: first characters in the statement of the constants that it was written with.
        exchanged: other texts by these places -> the expression over them.
        choices: number of constants of which a column is one, as 2 in `column IN (3, 4)` and 1 in `column = 3`; 0 for
            any other expression.
        barred: the same of constants of which it is none, as 1 in `column <> 3`.
        of_null: whether it is `column IS NULL` or `column IS NOT NULL`, or says which leaves are of the domain.
    """

    sql: str
    columns: frozenset[int]
    monotone: bool = field(default=True, compare=False)
    span: tuple[int, int] | None = field(default=None, compare=False)
    words: Callable[[], str] = field(default=str, compare=False, repr=False)
    comparisons: tuple[Comparison, ...] = field(default=(), compare=False, repr=False)
    starts: tuple[int, ...] = field(default=(), compare=False, repr=False)
    exchanged: Callable[[Mapping[int, str]], Expression] | None = field(
        default=None, compare=False, repr=False
    )
    choices: int = field(default=0, compare=False, repr=False)
    barred: int = field(default=0, compare=False, repr=False)
    of_null: bool = field(default=False, compare=False, repr=False)


@dataclass(frozen=True)
class Predicate:
    """True where the expression is true; with `negated`, true where it is false or unknown."""

    expression: Expression
    negated: bool = False


@dataclass(frozen=True)
class Always:
    """A condition that is the same for every row."""

    value: bool


@dataclass(frozen=True)
class Every:
    """True where all parts are."""

    parts: tuple[Condition, ...]


@dataclass(frozen=True)
class Some:
    """True where at least one part is."""

    parts: tuple[Condition, ...]


Condition: TypeAlias = "Predicate | Always | Every | Some"
TRUE, FALSE = Always(True), Always(False)


def every(parts: list[Condition]) -> Condition:
    """The conjunction, flattened and shortened.

    >>> every([TRUE, FALSE])
    Always(value=False)
    """
    flat: dict[Condition, None] = {}
    for operand in parts:
        flat |= dict.fromkeys(conjuncts(operand))
    if FALSE in flat:
        return FALSE
    open_parts = tuple(operand for operand in flat if operand != TRUE)
    return TRUE if not open_parts else open_parts[0] if len(open_parts) == 1 else Every(open_parts)


def some(parts: list[Condition]) -> Condition:
    """The disjunction, flattened and shortened."""
    return complement(every([complement(operand) for operand in parts]))


def complement(condition: Condition) -> Condition:
    """True exactly where the condition is not true (two-valued: unknown counts as not true)."""
    if isinstance(condition, Always):
        return Always(not condition.value)
    if isinstance(condition, Predicate):
        return Predicate(condition.expression, not condition.negated)
    operands = tuple(complement(operand) for operand in condition.parts)
    return Some(operands) if isinstance(condition, Every) else every(list(operands))


def conjuncts(condition: Condition) -> tuple[Condition, ...]:
    """Conditions that must all be true."""
    return condition.parts if isinstance(condition, Every) else (condition,)


def of_leaves(expression: Expression, test: str) -> Predicate:
    """A test of an axis's leaves, with `{}` for an expression of the axis, by whether that has a value there."""
    sql = test.format(f"({expression.sql})")
    return Predicate(replace(expression, sql=sql, comparisons=(), starts=(), exchanged=None, of_null=True))


def in_domain(factor: Expression) -> Predicate:
    """Leaves at which an expression of an axis has a value that the catalog knows."""
    return of_leaves(factor, "{} IS NOT NULL AND dp_kind <> 3")


def predicates(condition: Condition) -> Iterator[Predicate]:
    """All predicates in a condition, from left to right."""
    if isinstance(condition, Predicate):
        yield condition
    elif not isinstance(condition, Always):
        for operand in condition.parts:
            yield from predicates(operand)


@dataclass(frozen=True)
class Term:
    """COUNT or SUM of one measure over the rows of a group that meet a condition.

    Args:
        measure: `count`, `people`, `table.column` or `count(table.column)`.
        condition: which rows, besides the block's WHERE.
        factor: an expression over one axis that each row's 1, or value, is multiplied by; NULL counts as 0.
    """

    measure: str
    condition: Condition = TRUE
    factor: Expression | None = None

    def __str__(self) -> str:
        """As notes and refusals call it."""
        return self.measure if self.factor is None else f"{self.measure} times {self.factor.words()}"
