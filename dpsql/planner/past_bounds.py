"""Conditions on a measure's own axis that values beyond its bounds would meet, which lie in the leaf of no value.

`amount: {lower: 0, upper: 500, measure: true}` has 612 in no leaf of the axis `amount` but that of values outside of
the domain, so `amount > 100` counts the rows up to 500 alone, and `amount > 500` none.

**Privacy**: functions of the statement and the catalog.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from dpsql.planner.leaf_values import AxisQuery
from dpsql.planner.plan import ViewPlan
from dpsql.planner.terms import Predicate
from dpsql.release import Release


class PastBound(NamedTuple):
    """A measure of which a condition would take values beyond one bound.

    Args:
        measure: `table.column`.
        above: whether the upper bound is meant; the lower one otherwise.
        bound: its value as the catalog writes it.
    """

    measure: str
    above: bool
    bound: str


def past_bounds(plan: ViewPlan, release: Release) -> tuple[PastBound, ...]:
    """The bounds beyond which values would meet conditions of a plan."""
    return tuple(dict.fromkeys(past for question in plan.questions for past in _of_axis(question, release)))


def _of_axis(question: AxisQuery, release: Release) -> Iterator[PastBound]:
    axis = release.axes[question.axis]
    column = axis.columns[0]
    spec = (
        release.catalog.tables[axis.table].columns.get(column.column)
        if axis.table in release.catalog.tables
        else None
    )
    measures = {statistic.measure for statistic in release.statistics}
    measure = f"{axis.table}.{column.column}"
    if axis.path or spec is None or spec.out_of_domain.nearest or measure not in measures:
        return
    lower, upper = (Decimal(end).scaleb(-spec.digits) for end in spec.bounds)
    own = {number for number, name in question.columns if name == column.name}
    compared = [p for p in question.filters if p.expression.comparisons and p.expression.columns <= own]
    branches = [
        [*compared, p] for p in question.classes if p.expression.comparisons and p.expression.columns <= own
    ]
    for predicates in [*([compared] if compared else []), *branches]:
        for above, bound in ((True, upper), (False, lower)):
            if any(_hold(predicates, value) for value in _beyond(predicates, bound, above=above)):
                yield PastBound(measure, above, f"{bound:f}")


def _hold(predicates: Sequence[Predicate], value: Decimal) -> bool:
    """True if a value meets all of them."""
    return all(
        all(c.operator(value, Decimal(str(c.constant))) for c in p.expression.comparisons) != p.negated
        for p in predicates
    )


def _beyond(predicates: Sequence[Predicate], bound: Decimal, *, above: bool) -> Iterator[Decimal]:
    """Values beyond a bound, one of each kind that the constants tell apart."""
    way = 1 if above else -1
    constants = [Decimal(str(c.constant)) for p in predicates for c in p.expression.comparisons]
    edges = sorted({bound, *(c for c in constants if (c - bound) * way > 0)}, reverse=not above)
    yield from edges[1:]
    for edge, following in zip(edges, [*edges[1:], edges[-1] + 2 * way], strict=True):
        yield (edge + following) / 2
