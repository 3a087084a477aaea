"""Values beyond a measure's bounds: how far they may move sums and averages, which count them as the nearest bound.

A release with `excess_share` holds, for each measure, noisy numbers of units with values above its bounds and below
them, near and far, each with the standard error s. With n the near ones of a side, the excess of all rows is E = n m,
of which a group with the share F of the rows has about F E:

    m          |bound - mean of the measure|, at least LEAST widths of the bounds
    s_E^2      m^2 (s^2 + n+^2)                          n+ = max(n, s): m is known up to its own size
    shift      F E
    variance   F^2 (s_E^2 + (TASTE (1 - F))^2 (E^2 + s_E^2)) + F (1 - F) SQUARES n+ m^2

towards more for values above the upper bound, towards less for those below the lower one. Where far units, or units
beyond both bounds, stand out of their noise, nothing bounds that side.

| here | there | unit |
|---|---|---|
| `ValuesBeyondBounds.above`, `below`, `width` | n, W | units, measure |
| `Excess.total`, `error` | E, s_E | measure |

**Privacy**: published values alone.
**Source**: docs/method/rows.md, "Values beyond the bounds".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import hypot, inf
from typing import NamedTuple

import numpy as np

from dpsql.catalog.graph import is_count
from dpsql.executor.recombine import rows_term
from dpsql.intervals.estimated import ErrorComponents
from dpsql.intervals.excess_rows import TASTE
from dpsql.intervals.linear import MeasuredTerm, Weights
from dpsql.planner.axis_query import FloatArray, IntArray
from dpsql.planner.past_bounds import past_bounds
from dpsql.release.format import UnitsBeyondBound, ValuesBeyondBounds

LEAST = 0.1
"""Of the width: values below 0 of a measure from 0 on are refunds, as large as the payments before them."""

SEEN = 3.0
"""Standard errors above which far units open an end."""

SQUARES = 4.0
"""Mean square of excesses over their squared mean: 2 if exponential, 4 if log-normal with a deviation of 1.2."""


class Excess(NamedTuple):
    """Sum of the values beyond one bound, in the measure's own unit.

    Args:
        total, error: E and s_E.
        squares: sum of the squared excesses, about.
        open: whether nothing bounds it.
    """

    total: float
    error: float
    squares: float
    open: bool


def excess(beyond: ValuesBeyondBounds, units: UnitsBeyondBound, bound: float) -> Excess:
    """The excess beyond one bound.

    >>> counted = UnitsBeyondBound(40, 1), UnitsBeyondBound(0, 0)
    >>> beyond = ValuesBeyondBounds("s", "s.x", "0", "10", 10.0, 1.0, *counted, mean=2.0)
    >>> above = excess(beyond, beyond.above, 10.0)
    >>> round(above.total), round(above.error), above.open
    (320, 320, False)
    """
    far = beyond.width if beyond.mean is None else abs(bound - beyond.mean)
    mean, likely = max(far, LEAST * beyond.width), max(float(units.near), beyond.stderr)
    return Excess(
        units.near * mean, hypot(beyond.stderr, likely) * mean, SQUARES * likely * mean**2,
        max(units.far, beyond.both or 0) > SEEN * beyond.stderr,
    )  # fmt: skip


class ExcessLines(NamedTuple):
    """Derivatives of numbers by the sums of one measure; arrays of shape (lines,).

    Args:
        number: which number.
        slope: its derivative by the sum.
        share: the part of the table's rows that the sum is over.
    """

    number: IntArray
    slope: FloatArray
    share: FloatArray


def excess_lines(key: MeasuredTerm, weights: Weights, beyond: ValuesBeyondBounds) -> ExcessLines:
    """The lines of one term; where its view counts no rows, all of the excess may be in each group."""
    counting = rows_term(key.answered.plan, key.term)
    scale = key.answered.errors.release.scales.get(beyond.of)
    counted = beyond.counted if scale is None else float(scale.rows)
    share = np.ones(len(weights.cell))
    if counting is not None and counted is not None:
        rows = np.maximum(key.answered.totals[counting][weights.cell], 1.0)
        share = np.minimum(rows / max(1.0, counted), 1.0)
    return ExcessLines(weights.number, weights.weight, share)


def excess_reach(lines: Sequence[ExcessLines], numbers: int, beyond: ValuesBeyondBounds) -> ErrorComponents:
    """Bias bound of numbers from values beyond a measure's bounds.

    Args:
        lines: of every term of the measure that they follow.
        numbers: how many there are.
        beyond: what the release measured.
    """
    number, slope, share = (np.concatenate(column) for column in zip(*lines, strict=True))
    none = np.zeros(numbers)
    shifts, errors = {-1: none, 1: none}, {-1: none, 1: none}
    ends = (1, beyond.above, float(beyond.upper)), (-1, beyond.below, float(beyond.lower))
    for way, units, bound in ends:
        side_excess = excess(beyond, units, bound)
        for sign in (1, -1):
            of_sign = sign * slope > 0
            moved = np.bincount(number[of_sign], np.abs(slope * share)[of_sign], numbers)
            part = np.minimum(np.bincount(number[of_sign], share[of_sign], numbers), 1.0)
            slopes = np.divide(moved, part, out=np.zeros(numbers), where=part > 0)
            taste = (TASTE * (1 - part)) ** 2 * (side_excess.total**2 + side_excess.error**2)
            variance = (
                moved**2 * (side_excess.error**2 + taste)
                + slopes**2 * part * (1 - part) * side_excess.squares
            )
            side = way * sign
            shifts[side] = shifts[side] + side * moved * side_excess.total
            errors[side] = errors[side] + np.sqrt(variance)
            if side_excess.open:
                errors[side] = np.where(moved > 0, inf, errors[side])
    return ErrorComponents(none, none, errors[-1] ** 2, errors[1] ** 2, shifts[-1], shifts[1])


def rows_past_bounds(key: MeasuredTerm, weights: Weights, numbers: int) -> Iterator[ErrorComponents]:
    """Bias bound of counts under a condition on a measure's axis from rows beyond its bounds, where rows are the
    units.

    All of them may meet the condition, or none.
    """
    release, view = key.answered.errors.release, key.answered.plan.view
    for measure, above, _ in past_bounds(key.answered.plan, release) if is_count(key.term.measure) else ():
        beyond = release.meta.excess_of(view.of, measure)
        if beyond is None or beyond.both is not None:
            continue
        rows = max(0, sum(beyond.above if above else beyond.below))
        none, variance = np.zeros(numbers), 2 * (weights.weight * beyond.stderr) ** 2
        for way, side in ((1, weights.weight > 0), (-1, weights.weight < 0)):
            moved = weights.totals(np.where(side, weights.weight, 0.0), numbers) * rows
            error = weights.totals(np.where(side, variance, 0.0), numbers)
            ends = (none, error, none, moved) if way > 0 else (error, none, moved, none)
            yield ErrorComponents(none, none, *ends)


def by_measure(
    terms: Mapping[MeasuredTerm, Weights],
) -> Iterator[tuple[ValuesBeyondBounds, list[ExcessLines]]]:
    """The lines of every measure of a release whose values beyond the bounds were measured."""
    measures: dict[str, tuple[ValuesBeyondBounds, list[ExcessLines]]] = {}
    for key, weights in terms.items():
        beyond = key.answered.errors.release.meta.excess_of(key.answered.plan.view.of, key.term.measure)
        if beyond is not None and len(weights.cell):
            measures.setdefault(key.term.measure, (beyond, []))[1].append(excess_lines(key, weights, beyond))
    yield from measures.values()
