"""What an aggregate block asks, as plain values: the language between the SQL side and the planner.

A block is one SELECT over a fact table and the dimensions joined to it. Its conditions and group
expressions are kept as DuckDB text over placeholder columns `dp_c0, dp_c1, ..`; which axis a placeholder
lives on is decided per view, by the planner.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

INNER, LEFT = "inner", "left"


@dataclass(frozen=True)
class ColumnRef:
    """A column of the star: foreign-key path from the block's root table, table, column."""

    path: tuple[str, ...]
    table: str
    column: str

    def __str__(self) -> str:
        """Path and name, as plans and refusals say it."""
        return f"{'.'.join((*self.path, ''))}{self.table}.{self.column}"


@dataclass(frozen=True)
class Expression:
    """A scalar expression over placeholder columns.

    Args:
        sql: DuckDB text that names columns `dp_c<i>`.
        columns: the i that occur.
        monotone: built of comparisons and monotone functions alone: what an axis without single values takes.
        span: first and last character of it in the statement, or None.
        words: the same for people, without guards against NaN; empty if there are none.
    """

    sql: str
    columns: frozenset[int]
    monotone: bool = field(default=True, compare=False)
    span: tuple[int, int] | None = field(default=None, compare=False)
    words: str = field(default="", compare=False)


PLACEHOLDER = re.compile(r"\bdp_c(\d+)\b")


def in_words(expression: Expression, columns: Sequence[ColumnRef]) -> str:
    """An expression with the star's names in place of placeholders."""
    text = PLACEHOLDER.sub(lambda m: str(columns[int(m.group(1))]), expression.words or expression.sql)
    return text.replace(" AND dp_kind <> 3", "")


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
    for part in parts:
        for each in part.parts if isinstance(part, Every) else (part,):
            flat[each] = None
    if FALSE in flat:
        return FALSE
    kept = tuple(part for part in flat if part != TRUE)
    return TRUE if not kept else kept[0] if len(kept) == 1 else Every(kept)


def some(parts: list[Condition]) -> Condition:
    """The disjunction, flattened and shortened."""
    return complement(every([complement(part) for part in parts]))


def complement(condition: Condition) -> Condition:
    """True exactly where the condition is not true (two-valued: unknown counts as not true)."""
    if isinstance(condition, Always):
        return Always(not condition.value)
    if isinstance(condition, Predicate):
        return Predicate(condition.expression, not condition.negated)
    parts = tuple(complement(part) for part in condition.parts)
    return Some(parts) if isinstance(condition, Every) else every(list(parts))


def predicates(condition: Condition) -> Iterator[Predicate]:
    """All predicates in a condition, from left to right."""
    if isinstance(condition, Predicate):
        yield condition
    elif not isinstance(condition, Always):
        for part in condition.parts:
            yield from predicates(part)


@dataclass(frozen=True)
class Term:
    """COUNT or SUM of one measure over the rows of a group that meet a condition.

    Args:
        measure: `count`, `table.column` or `count(table.column)`.
        condition: which rows, besides the block's WHERE.
    """

    measure: str
    condition: Condition = TRUE


@dataclass(frozen=True)
class Linear:
    """constant + sum of coefficient * term."""

    weights: tuple[tuple[Term, float], ...]
    constant: float = 0.0


@dataclass(frozen=True)
class Ratio:
    """above / below; `mean` marks an AVG, which is NULL when below's interval holds 0."""

    above: Linear
    below: Linear
    mean: bool = False


@dataclass(frozen=True)
class Known:
    """A value that follows from the catalog: MIN, MAX or COUNT(DISTINCT) of an axis expression.

    Args:
        function: `min`, `max`, `count`, `median` or `quantile`.
        expression: over the columns of one axis.
        at: the quantile asked, for `quantile`.
    """

    function: str
    expression: Expression
    at: float = 0.5


Noisy: TypeAlias = Linear | Ratio
"""A value made of counts and sums."""

Form: TypeAlias = Noisy | Known
"""How a value depends on the noisy terms; what error bars are computed from. Known: a quantile."""


@dataclass(frozen=True)
class ErrorOf:
    """DP_STDERR, DP_INTERVAL_LOW, DP_INTERVAL_HIGH, DP_BIAS_HINT or DP_MODEL_BOUND of another value.

    Args:
        what: `stderr`, `low`, `high`, `bias` or `model`.
        form: the value's form; None gives NULL.
        level: of the interval.
    """

    what: str
    form: Form | None
    level: float = 0.95


Value: TypeAlias = Linear | Ratio | Known | ErrorOf


@dataclass(frozen=True)
class Block:
    """One aggregate block.

    Args:
        root: the table whose rows are counted.
        joins: foreign-key path -> inner or left, one entry for each joined dimension.
        columns: what the placeholders dp_c0, dp_c1, .. stand for.
        where: which rows count.
        groups: GROUP BY expressions, in order; keys are named k0, k1, ..
        values: aggregates, in order; named v0, v1, ..
        span: where it stands in the statement.
        listing: True for a domain list (no aggregate at all): answered from the catalog.
    """

    root: str
    joins: tuple[tuple[tuple[str, ...], str], ...]
    columns: tuple[ColumnRef, ...]
    where: Condition
    groups: tuple[Expression, ...]
    values: tuple[Value, ...]
    span: tuple[int, int] | None = None
    listing: bool = False
    tables: tuple[str, ...] = field(default=())

    def inner(self, path: tuple[str, ...]) -> bool:
        """Whether rows without a partner along the path are left out."""
        return any(kind == INNER and joined[: len(path)] == path for joined, kind in self.joins)
