"""What an aggregate block asks, as plain values: the language between the SQL side and the planner.

A block is one SELECT over a fact table and the dimensions joined to it. Its conditions and group
expressions are kept as DuckDB text over placeholder columns `dp_c0, dp_c1, ..`; which axis a placeholder
lives on is decided per view, by the planner.

Arithmetic on values is kept as forms: linear combinations of noisy terms, and ratios. What cannot be kept (a product of
two noisy values, a window, a CASE on one) is None, and its standard error is NULL: never a wrong number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeGuard

if TYPE_CHECKING:
    from dpsql.answer.errorfunctions import ErrorFunction


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


class Constants(NamedTuple):
    """The constants of an expression.

    Args:
        starts: first characters of them in the statement.
        exchanged: other texts by these places -> the expression over them.
    """

    starts: tuple[int, ...]
    exchanged: Callable[[Mapping[int, str]], Expression]


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
        constants: those that it was written with.
    """

    sql: str
    columns: frozenset[int]
    monotone: bool = field(default=True, compare=False)
    span: tuple[int, int] | None = field(default=None, compare=False)
    words: Callable[[], str] = field(default=str, compare=False, repr=False)
    comparisons: tuple[Comparison, ...] = field(default=(), compare=False, repr=False)
    constants: Constants | None = field(default=None, compare=False, repr=False)


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
        for conjunct in operand.parts if isinstance(operand, Every) else (operand,):
            flat[conjunct] = None
    if FALSE in flat:
        return FALSE
    conjuncts = tuple(operand for operand in flat if operand != TRUE)
    return TRUE if not conjuncts else conjuncts[0] if len(conjuncts) == 1 else Every(conjuncts)


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


@dataclass(frozen=True)
class Linear:
    """constant + sum of coefficient * term."""

    weights: tuple[tuple[Term, float], ...]
    constant: float = 0.0

    def scaled(self, factor: float) -> Linear:
        """factor * self.

        >>> Linear(((Term("count"), 2.0),), 1.0).scaled(3.0).constant
        3.0
        """
        weights = tuple((term, weight * factor) for term, weight in self.weights)
        return Linear(weights, self.constant * factor)

    def plus(self, other: Linear, sign: float = 1.0) -> Linear:
        """self + sign * other."""
        weights = dict(self.weights)
        for term, weight in other.weights:
            weights[term] = weights.get(term, 0.0) + sign * weight
        nonzero = tuple((term, weight) for term, weight in weights.items() if weight)
        return Linear(nonzero, self.constant + sign * other.constant)


@dataclass(frozen=True)
class Ratio:
    """above / below; `mean` marks an AVG, which is NULL when below's interval holds 0."""

    above: Linear
    below: Linear
    mean: bool = False

    def scaled(self, factor: float) -> Ratio:
        """factor * self."""
        return Ratio(self.above.scaled(factor), self.below, self.mean)

    def shifted(self, by: float) -> Ratio:
        """self + by."""
        return Ratio(self.above.plus(self.below.scaled(by)), self.below, self.mean)


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
    """DP_STDERR, DP_INTERVAL_LOW or another error of a value.

    Args:
        error: which one.
        form: the value's form; None gives NULL.
        level: of the interval.
    """

    error: ErrorFunction
    form: Form | None
    level: float


Value: TypeAlias = Linear | Ratio | Known | ErrorOf


def terms_of(value: object) -> list[Term]:
    """The noisy terms of a value."""
    if isinstance(value, Linear):
        return [term for term, _ in value.weights]
    if isinstance(value, Ratio):
        return [*terms_of(value.above), *terms_of(value.below)]
    if isinstance(value, ErrorOf):
        return terms_of(value.form)
    return []


@dataclass(frozen=True)
class Block:
    """One aggregate block.

    Args:
        root: the table whose rows are counted.
        joins: the path of each joined dimension; an inner join is a condition of `where`.
        columns: what the placeholders dp_c0, dp_c1, .. stand for.
        where: which rows count.
        groups: GROUP BY expressions, in order; keys are named k0, k1, ..
        values: aggregates, in order; named v0, v1, ..
        span: where it stands in the statement.
        listing: True for a domain list (no aggregate at all): answered from the catalog.
        tables: what it reads.
        release: the release that the statement names for it, in lower case; empty where any may answer.
    """

    root: str
    joins: tuple[tuple[str, ...], ...]
    columns: tuple[ColumnRef, ...]
    where: Condition
    groups: tuple[Expression, ...]
    values: tuple[Value, ...]
    span: tuple[int, int] | None = field(default=None, compare=False)
    listing: bool = False
    tables: tuple[str, ...] = field(default=())
    release: str = ""


def one(term: Term) -> Linear:
    """A single term."""
    return Linear(((term, 1.0),))


def is_constant(form: Form | None) -> TypeGuard[Linear]:
    """Whether the form has no noise at all."""
    return isinstance(form, Linear) and not form.weights


def added(left: Form | None, right: Form | None, sign: float = 1.0) -> Form | None:
    """left + sign * right, or None."""
    if isinstance(left, Linear) and isinstance(right, Linear):
        return left.plus(right, sign)
    if isinstance(left, Ratio) and is_constant(right):
        return left.shifted(sign * right.constant)
    if isinstance(right, Ratio) and is_constant(left):
        return right.scaled(sign).shifted(left.constant)
    if isinstance(left, Ratio) and isinstance(right, Ratio) and left.below == right.below:
        return Ratio(left.above.plus(right.above, sign), left.below, left.mean)
    return None


def multiplied(left: Form | None, right: Form | None) -> Form | None:
    """left * right where one of them is a constant, else None."""
    for form, factor in ((left, right), (right, left)):
        if isinstance(form, (Linear, Ratio)) and is_constant(factor):
            return form.scaled(factor.constant)
    return None


def divided(left: Form | None, right: Form | None) -> Form | None:
    """left / right: by a constant, or linear by linear."""
    if is_constant(right):
        divisible = isinstance(left, (Linear, Ratio)) and right.constant
        return left.scaled(1.0 / right.constant) if divisible else None  # type: ignore[union-attr]
    return Ratio(left, right) if isinstance(left, Linear) and isinstance(right, Linear) else None
