"""Bounds on answers of which a part lies in cut bins.

| here | there | unit |
|---|---|---|
| N | published mass of a cut cell | rows, or the sum of their measure |
| w | the part of a cut cell that is taken: that of its atoms which the predicate keeps | 1 |
| `below` | sum over cut cells of N w | the same as N |
| `above` | sum over cut cells of N (1 - w) | the same |

A cut cell's N rows are taken as spread evenly, so w N of them count; they may lie all on one side. A COUNT is too large
by at most `below` rows and too small by at most `above`. So is a SUM of values of one sign, by its own mass; one of
values of both signs by the rows times what one may have. Both ends of an interval move by that, and have the noise
of the cut cells taken whole, which is not less than that of a part of them.

An average of whole bins F and cut ones C is largest where of C those rows are taken that have the largest value, and
none of the others: with values in [low, high], n = (sum of C - low rows of C) / (high - low) of them, and
(sum of F + high n) / (rows of F + n) is the end. The smallest likewise. Any other quotient lies between its corners.

Where rows are multiplied by an expression of an axis (SUM of the axis's column), w is its mean over the atoms that are
taken, and each row counts for a value between the least and the largest of them, or for 0 where the cell is cut.

Masses are the published ones, so a bound has their noise; it is cut at 0 once they are added up.

**Privacy**: public facts and released numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from dpsql.catalog.graph import is_count
from dpsql.planner.axis_query import FloatArray, IntArray
from dpsql.planner.block import Noisy
from dpsql.planner.plan import ReleaseView, presence
from dpsql.planner.terms import Term
from dpsql.release import Release, StatisticMeta


def value_bounds(statistic: StatisticMeta, release: Release) -> tuple[float, float]:
    """The smallest and largest value of a measure, as the catalog declares it; (1, 1) for counts."""
    if is_count(statistic.measure):
        return 1.0, 1.0
    table, _, column = statistic.measure.rpartition(".")
    star_table = release.catalog.tables[table]
    lower, upper = (
        star_table.measures[column].bounds
        if column in star_table.measures
        else star_table.columns[column].bounds
    )
    return lower / 10.0**statistic.scale, upper / 10.0**statistic.scale


class CutMass(NamedTuple):
    """Part of a count or sum in cut bins; arrays of shape (rows,), NaN where nothing bounds them.

    Args:
        below, above: by how much the interpolated number may be too large, and too small, at least 0.
        taken: what the number has of cut bins.
        total: all that lies in them.
    """

    below: FloatArray
    above: FloatArray
    taken: FloatArray
    total: FloatArray

    @property
    def most(self) -> FloatArray:
        """The larger side."""
        return np.maximum(self.below, self.above)

    @property
    def none(self) -> CutMass:
        """Of as many numbers, where no bin is cut."""
        zeros = np.zeros(len(self.below))
        return CutMass(zeros, zeros, zeros, zeros)

    def at(self, groups: IntArray) -> CutMass:
        """The same for some of the groups, by their rows."""
        return CutMass(*(values[groups] for values in self))


def cut_mass(
    statistic: StatisticMeta, masses: Mapping[str, tuple[FloatArray, FloatArray]], release: Release
) -> CutMass:
    """Part of a count or sum in cut bins.

    Args:
        statistic: what is counted or summed.
        masses: measure -> (N w, N (1 - w)) as stored; of the statistic and of its rows.
        release: says which values a measure may have.

    Returns:
        For each group; bounds are NaN for a measure of both signs without a count of its rows.
    """
    taken, others = masses[statistic.measure]
    counts = next((mass for measure, mass in masses.items() if is_count(measure)), None)
    if is_count(statistic.measure):
        return CutMass(np.maximum(taken, 0.0), np.maximum(others, 0.0), taken, taken + others)
    if counts is not None and statistic.mid:
        taken, others = (
            mass + statistic.mid * count for mass, count in zip((taken, others), counts, strict=True)
        )
    taken, others = taken / 10.0**statistic.scale, others / 10.0**statistic.scale
    low, high = value_bounds(statistic, release)
    if low >= 0:
        return CutMass(np.maximum(taken, 0.0), np.maximum(others, 0.0), taken, taken + others)
    if high <= 0:  # too many values below 0 make a sum too small
        return CutMass(np.maximum(-others, 0.0), np.maximum(-taken, 0.0), taken, taken + others)
    if counts is None:
        bound = np.where((taken == 0) & (others == 0), 0.0, np.nan)
        return CutMass(bound, bound, taken, taken + others)
    total, rows = taken + others, np.maximum(counts[0] + counts[1], 0.0)
    largest = rows_of_largest(total, rows, (low, high))
    below, above = taken - low * (rows - largest), high * largest - taken
    return CutMass(np.maximum(below, 0.0), np.maximum(above, 0.0), taken, total)


def rows_of_largest(total: FloatArray, rows: FloatArray, bounds: tuple[float, float]) -> FloatArray:
    """Number of rows with the largest value, if all others have the smallest and they add up to a total."""
    low, high = bounds
    return np.clip((total - low * rows) / (high - low), 0.0, rows)


Parts = tuple[FloatArray, FloatArray]
"""Numerators and denominators of quotients."""

ROUNDING = 1e-9
"""Of what was subtracted: a difference up to it is taken for 0."""


def average_ends(
    values: Parts, sums: CutMass, counts: CutMass, bounds: tuple[float, float], factor: float
) -> tuple[Parts, Parts]:
    """Sums and rows of the least and of the largest average of rows that a cut may take.

    Args:
        values: sums and rows of each group.
        sums: what of the sums lies in cut bins.
        counts: the same of rows.
        bounds: smallest and largest value of the measure.
        factor: what the average is multiplied by, not 0.

    Returns:
        Both ends; where no rows may be taken, that of the bounds.
    """
    low, high = bounds
    whole_sum, whole_rows = values[0] - sums.taken, values[1] - counts.taken
    cut_rows = np.maximum(counts.total, 0.0)
    largest = rows_of_largest(sums.total, cut_rows, bounds)
    ends: list[Parts] = []
    for value, rows in ((low, cut_rows - largest), (high, largest)):
        rows_at_end = whole_rows + rows
        # where every row is of a cut bin the difference is 0 by algebra, and its last bit decides nothing
        known = rows_at_end > ROUNDING * (np.abs(values[1]) + cut_rows)
        average = np.divide(whole_sum + value * rows, rows_at_end, out=np.full(len(rows), value), where=known)
        at_end = np.where(known, rows_at_end, values[1])
        ends.append((factor * np.clip(average, low, high) * at_end, at_end))
    return (ends[0], ends[1]) if factor > 0 else (ends[1], ends[0])


def quotient_ends(
    above: FloatArray,
    below: FloatArray,
    above_moved: tuple[FloatArray, FloatArray],
    below_moved: tuple[FloatArray, FloatArray],
) -> tuple[Parts, Parts]:
    """Numerators and denominators of the least and the largest quotients that rows of cut bins may make.

    Args:
        above, below: the quotients' parts.
        above_moved, below_moved: by how much each may be too large, and too small.

    Returns:
        (numerator, denominator) of both ends; NaN denominators where one may be 0.
    """
    least, most = below - below_moved[0], below + below_moved[1]
    slack = ROUNDING * (np.abs(below) + np.maximum(*below_moved))
    apart = (least > slack) | (most < -slack)
    corners = [
        (a, np.where(apart, b, np.nan))
        for a in (above - above_moved[0], above + above_moved[1])
        for b in (least, most)
    ]
    ratios = np.stack([a / np.where(b == 0, np.nan, b) for a, b in corners])
    ratios = np.where(np.isnan(ratios), 0.0, ratios)
    picks = np.argmin(ratios, axis=0), np.argmax(ratios, axis=0)
    return tuple(
        (np.choose(pick, [a for a, _ in corners]), np.choose(pick, [b for _, b in corners])) for pick in picks
    )  # type: ignore[return-value]


def average_of(form: Noisy, view: ReleaseView) -> tuple[Term, float] | None:
    """The one measure that a ratio is the average of, with its factor; None for any other ratio.

    SUM(x) / COUNT(x) is one too, where the view tells by its counts that both are over the same rows.
    """
    if len(form.sides) != 2 or any(len(side.weights) != 1 or side.constant for side in form.sides):
        return None
    (term, factor), (rows, of) = (side.weights[0] for side in form.sides)
    if term.factor is not None or is_count(term.measure):
        return None
    count = presence(term.measure, view)
    same = count is not None and is_count(count.measure) and rows == Term(count.measure, term.condition)
    return (term, factor / of) if form.mean or same else None


def average_limits(form: Noisy, view: ReleaseView, release: Release) -> tuple[float, float] | None:
    """The limits of an average, by the bounds that the catalog declares; None for any other form."""
    average = average_of(form, view)
    if average is None:
        return None
    term, factor = average
    ends = value_bounds(view.statistics[term.measure], release)
    return min(factor * end for end in ends), max(factor * end for end in ends)
