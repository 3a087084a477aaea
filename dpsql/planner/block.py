"""An aggregate block: one SELECT over a fact table and the dimensions joined to it, free of parser types.

Its values are forms, which say how each follows from counts, sums and the catalog:

| form | SQL | value |
|---|---|---|
| `Linear` | COUNT, SUM, differences, multiples | constant + sum of weight x term |
| `Ratio` | AVG, shares | above / below |
| `CatalogValue` | MIN, MAX, COUNT(DISTINCT), quantiles | by the catalog; quantiles by counts along an axis |
| `ErrorOf` | DP_STDERR(x) | an error of another form |

Arithmetic keeps a form where it can. What has none (a product of two noisy values, a window, a CASE on one) is None,
and its standard error is NULL: never a wrong number.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias, TypeGuard, TypeVar, cast

from dpsql.catalog.base import COUNT
from dpsql.intervals.errorfunctions import ErrorFunction
from dpsql.planner.schema import ColumnRef, Condition, Expression, Term
from dpsql.release import Release
from dpsql.release.request import current

QUANTILES = ("median", "quantile")


@dataclass(frozen=True)
class Linear:
    """constant + sum of coefficient * term."""

    weights: tuple[tuple[Term, float], ...]
    constant: float = 0.0

    has_error: ClassVar[bool] = True
    scale_free: ClassVar[bool] = False
    mean: ClassVar[bool] = False

    @property
    def terms(self) -> tuple[Term, ...]:
        return tuple(term for term, _ in self.weights)

    @property
    def is_noisy(self) -> bool:
        """True if it is made of people's rows."""
        return bool(self.weights)

    @property
    def counts(self) -> bool:
        """True if it is a whole number but for noise: it adds counts up."""
        sums = any(term.factor is not None or not term.measure.is_count for term in self.terms)
        return (
            self.is_noisy
            and not sums
            and all(n % 1 == 0 for n in (self.constant, *dict(self.weights).values()))
        )

    @property
    def subject(self) -> Linear:
        """The form whose error is meant."""
        return self

    @property
    def sides(self) -> tuple[Linear, ...]:
        """The linear forms that it is made of: itself."""
        return (self,)

    def mapped(self, change: Callable[[Linear], Linear]) -> Linear:
        """The form with its linear sides changed."""
        return change(self)

    def scaled(self, factor: float) -> Linear:
        """factor * self.

        >>> ROWS.scaled(3.0).weights[0][1]
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

    has_error: ClassVar[bool] = True
    counts: ClassVar[bool] = False

    @property
    def terms(self) -> tuple[Term, ...]:
        """The noisy terms of both sides."""
        return (*self.above.terms, *self.below.terms)

    @property
    def is_noisy(self) -> bool:
        """True if it is made of people's rows."""
        return bool(self.terms)

    @property
    def subject(self) -> Ratio:
        """The form whose error is meant."""
        return self

    @property
    def sides(self) -> tuple[Linear, ...]:
        return self.above, self.below

    @property
    def scale_free(self) -> bool:
        """True if it stays as it is when every row counts twice."""
        return self.above.constant == 0 == self.below.constant

    def mapped(self, change: Callable[[Linear], Linear]) -> Ratio:
        """The form with its linear sides changed."""
        return Ratio(change(self.above), change(self.below), self.mean)

    def scaled(self, factor: float) -> Ratio:
        """factor * self."""
        return Ratio(self.above.scaled(factor), self.below, self.mean)

    def shifted(self, by: float) -> Ratio:
        """self + by."""
        return Ratio(self.above.plus(self.below.scaled(by)), self.below, self.mean)


@dataclass(frozen=True)
class CatalogValue:
    """A value that follows from the catalog: MIN, MAX or COUNT(DISTINCT) of an axis expression; or a quantile.

    Args:
        function: `min`, `max`, `count`, `median` or `quantile`.
        expression: over the columns of one axis.
        at: the share of a `quantile`.
        extreme: `MIN` or `MAX`, which a quantile stands for.
    """

    function: str
    expression: Expression
    at: float = 0.5
    extreme: str = ""

    scale_free: ClassVar[bool] = True
    counts: ClassVar[bool] = False
    terms: ClassVar[tuple[Term, ...]] = ()
    sides: ClassVar[tuple[Linear, ...]] = ()

    @property
    def is_noisy(self) -> bool:
        """True if it is made of people's rows: a quantile is, of counts along the axis."""
        return self.function in QUANTILES

    @property
    def has_error(self) -> bool:
        """True if it is a quantile of noisy counts."""
        return self.function == "quantile"

    @property
    def subject(self) -> CatalogValue:
        """The form whose error is meant."""
        return self


Noisy: TypeAlias = Linear | Ratio
"""A value made of counts and sums."""

Form: TypeAlias = Noisy | CatalogValue
"""How a value depends on the noisy terms; what error bars are computed from. Known: a quantile."""


@dataclass(frozen=True)
class ErrorOf:
    """DP_STDERR, DP_INTERVAL_LOW or another error of a value.

    Args:
        error: which one.
        subject: the form whose error is meant; None gives NULL.
        level: of the interval.
    """

    error: ErrorFunction
    subject: Form | None
    level: float

    has_error: ClassVar[bool] = False
    sides: ClassVar[tuple[Linear, ...]] = ()

    @property
    def terms(self) -> tuple[Term, ...]:
        """The noisy terms of its subject."""
        return () if self.subject is None else self.subject.terms


Value: TypeAlias = Linear | Ratio | CatalogValue | ErrorOf


def one(term: Term) -> Linear:
    """A single term."""
    return Linear(((term, 1.0),))


ROWS = one(Term(COUNT))
"""COUNT(*) of a block's rows."""


def is_form(value: Value) -> TypeGuard[Form]:
    """True if a value has an error that arithmetic keeps: counts, sums and quantiles have."""
    return value.has_error


def is_summed(value: Value | None) -> TypeGuard[Noisy]:
    """True if a value is made of counts and sums."""
    return value is not None and bool(value.sides)


def is_constant(form: Form | None) -> TypeGuard[Linear]:
    """True if the form has no noise at all."""
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
        if isinstance(form, Linear | Ratio) and is_constant(factor):
            return form.scaled(factor.constant)
    return None


def divided(left: Form | None, right: Form | None) -> Form | None:
    """left / right: by a constant, or linear by linear."""
    if is_constant(right):
        return multiplied(left, Linear((), 1.0 / right.constant)) if right.constant else None
    return Ratio(left, right) if isinstance(left, Linear) and isinstance(right, Linear) else None


T = TypeVar("T")


class ShapePlans:
    """Cached plans of blocks of one shape; two threads may compute the same entry twice."""

    def __init__(self) -> None:
        self._worked_out: dict[Hashable, Any] = {}

    def once(self, question: Hashable, release: Release, rule: str | None, make: Callable[[], T]) -> T:
        """Return the cached result for a key, computing it on first use under the same settings and role.

        Args:
            question: which part of the plan.
            release: an open release.
            rule: what the session does with bins that are cut.
            make: works it out.
        """
        request = current()
        role = "" if request is None else request.role
        key = (question, id(release), release.meta.release_id, release.nonnegative, rule, role)
        if key not in self._worked_out:
            self._worked_out[key] = make()
        return cast(T, self._worked_out[key])


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
        never_null: columns whose COUNT is that of all rows, since the catalog calls them never NULL.
        ties: comparisons of columns of two axes, whose pairs of values are among its groups: column, word, column.
        plans: what it shares with other blocks of its shape; None where its statement was read and not filled.
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
    never_null: tuple[str, ...] = ()
    ties: tuple[tuple[ColumnRef, str, ColumnRef], ...] = ()
    plans: ShapePlans | None = field(default=None, compare=False, repr=False)
