"""Conditions on a measure's own axis that tell its bound from values beyond, which lie in the bound's leaf.

`amount: {lower: 0, upper: 500, measure: true}` counts 612 as 500 on the axis `amount` too: `amount > 500` finds no row,
and `amount <= 500` all of them. Both are off by as many rows as lie beyond. Columns whose values beyond the bounds have
a leaf of their own (`out_of_domain: other`) are off by the rows that a condition would find there.

**Privacy**: functions of the statement and the catalog.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import NamedTuple

from dpsql.answer.leafsets import AxisQuery
from dpsql.answer.plan import ViewPlan
from dpsql.answer.terms import Predicate
from dpsql.release import Release


class PastBound(NamedTuple):
    """A measure whose bound a condition tells from values beyond it.

    Args:
        measure: `table.column`.
        above: whether the upper bound is meant; the lower one otherwise.
        bound: its value as the catalog writes it.
    """

    measure: str
    above: bool
    bound: str


def past_bounds(plan: ViewPlan, release: Release) -> tuple[PastBound, ...]:
    """The bounds that conditions of a plan tell from values beyond them."""
    return tuple(dict.fromkeys(found for question in plan.questions for found in _of_axis(question, release)))


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
    if axis.path or spec is None or measure not in measures:
        return
    lower, upper = (Decimal(end).scaleb(-spec.digits) for end in spec.bounds)
    own = {number for number, name in question.columns if name == column.name}
    for predicate in (*question.filters, *question.classes):
        if not predicate.expression.comparisons or not predicate.expression.columns <= own:
            continue
        for above, bound in ((True, upper), (False, lower)):
            at_bound = spec.out_of_domain.nearest and _holds(predicate, bound)
            if any(_holds(predicate, value) != at_bound for value in _beyond(predicate, bound, above=above)):
                yield PastBound(measure, above, f"{bound:f}")


def _holds(predicate: Predicate, value: Decimal) -> bool:
    comparisons = predicate.expression.comparisons
    return all(c.operator(value, Decimal(str(c.constant))) for c in comparisons) != predicate.negated


def _beyond(predicate: Predicate, bound: Decimal, *, above: bool) -> Iterator[Decimal]:
    """Values beyond a bound, one of each kind that the predicate's constants tell apart."""
    way = 1 if above else -1
    constants = [Decimal(str(c.constant)) for c in predicate.expression.comparisons]
    edges = sorted({bound, *(c for c in constants if (c - bound) * way > 0)}, reverse=not above)
    yield from edges[1:]
    for edge, following in zip(edges, [*edges[1:], edges[-1] + 2 * way], strict=True):
        yield (edge + following) / 2
