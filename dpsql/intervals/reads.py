"""Reads of stored statistics under boxes, with their covariances, and bounds on answers that cut bins.

| here | there | unit |
|---|---|---|
| read | (statistic, box, factor): one recombined number | stored units |
| `relative` | r, standard error of E r over E r | 1 |
| `rows` | W, the view's COUNT(*) | rows |

COUNT and the centred SUM of one view have independent noise, and so SUM = y + mid c has Var = Var(y) + mid^2 Var(c).

Bounds on answers of which a part lies in cut bins:

| here | there | unit |
|---|---|---|
| N | published mass of a cut cell | rows, or the sum of their measure |
| w | the part of a cut cell that is taken: that of its atoms which the predicate keeps | 1 |
| `below` | sum over cut cells of N w | the same as N |
| `above` | sum over cut cells of N (1 - w) | the same |

A cut cell's N rows are taken as spread evenly, so w N of them count; they may lie all on one side. A COUNT is too large
by at most `below` rows and too small by at most `above`. So is a SUM of values of one sign, by its own mass; one of
values of both signs by the rows times what one may have. Both ends of an interval move by that, and have the larger
noise of the cut cells taken whole and of none of them: variances are convex in the part that is taken.

An average of whole bins F and cut ones C is largest where of C those rows are taken that have the largest value, and
none of the others: with values in [low, high], n = (sum of C - low rows of C) / (high - low) of them, and
(sum of F + high n) / (rows of F + n) is the end. The smallest likewise. Any other quotient lies between its corners.

Where rows are multiplied by an expression of an axis (SUM of the axis's column), w is its mean over the atoms that are
taken, and each row counts for a value between the least and the largest of them, or for 0 where the cell is cut.

Masses are the published ones, so a bound has their noise; it is cut at 0 once they are added up.

**Privacy**: public facts and published numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.catalog.base import COUNT, MeasureName
from dpsql.executor.run import run
from dpsql.matrices.kronecker import on_runs
from dpsql.matrices.model import TABLE, Covariance
from dpsql.planner.axis_query import FloatArray, IntArray
from dpsql.planner.block import Noisy
from dpsql.planner.plan import Box, ReleaseView, ViewPlan, presence
from dpsql.planner.schema import Term
from dpsql.release import Release, StatisticMeta
from dpsql.release.request import blocks, take


def value_bounds(statistic: StatisticMeta, release: Release) -> tuple[float, float]:
    """The smallest and largest value of a measure, as the catalog declares it; (1, 1) for counts."""
    if statistic.measure.is_count:
        return 1.0, 1.0
    star_table, column = release.catalog.tables[statistic.measure.table], statistic.measure.column
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
    statistic: StatisticMeta, masses: Mapping[MeasureName, tuple[FloatArray, FloatArray]], release: Release
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
    counts = next((mass for measure, mass in masses.items() if measure.is_count), None)
    if statistic.measure.is_count:
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
    if term.factor is not None or term.measure.is_count:
        return None
    count = presence(term.measure, view)
    same = count is not None and count.measure.is_count and rows == Term(count.measure, term.condition)
    return (term, factor / of) if form.mean or same else None


def average_limits(form: Noisy, view: ReleaseView, release: Release) -> tuple[float, float] | None:
    """The limits of an average, by the bounds that the catalog declares; None for any other form."""
    average = average_of(form, view)
    if average is None:
        return None
    term, factor = average
    ends = value_bounds(view.statistics[term.measure], release)
    return min(factor * end for end in ends), max(factor * end for end in ends)


EstimatedWeight = tuple[float, float, float]
"""An estimated weight, as the answers of one view see it: relative standard error of the rows a person has, the view's
COUNT(*), and its variance without the weight's error."""


def weight_error(release: Release) -> float:
    """Relative standard error of the weight of rows; 0 where rows have none."""
    return 0.0 if release.meta.local is None else release.meta.local.weight_error


def weight_of(release: Release, count: StatisticMeta) -> EstimatedWeight | None:
    """The weight that a view's answers share.

    Args:
        release: an open release.
        count: the view's count.

    Returns:
        None where rows have no estimated weight, or where the view counts no rows.
    """
    relative = weight_error(release)
    if not relative:
        return None
    rows = total_rows(release, count)
    all_leaves = [np.ones((1, release.axes[axis].leaves)) for axis in count.axes]
    noise = release.reading(count.id).covariance(all_leaves).noise
    return (relative, rows, float(noise[0])) if rows > 0 else None


def total_rows(release: Release, count: StatisticMeta) -> float:
    """All rows by one count."""
    roots = " AND ".join(f"n{i + 1} = 0" for i in range(len(count.axes)))
    text = f"SELECT {release.estimate(count.id)} FROM node_combination_{count.id} WHERE {roots or 'true'}"
    root_rows = release.kept(text, lambda: run(release, text).rows)
    return float(count.in_units(root_rows[0][0])) if root_rows else 0.0


def cell_variance(release: Release, statistic: int) -> float:
    """Noise variance of one cell in the middle of a statistic's axes: about that of one draw.

    Where leaves were measured as wholes (`blocks`) the noise of a leaf is a small part of a draw's: there it is the
    noise of all leaves over the number of wholes.
    """
    meta = release.statistics[statistic]

    def variance() -> float:
        sizes = [release.axes[axis].leaves for axis in meta.axes]
        reading = release.reading(statistic)
        edges = [np.array([0, n // 2, n // 2 + 1, n]) if n > TABLE else None for n in sizes]
        cells = [np.eye(1, n, n // 2) if n <= TABLE else np.eye(1, 3, 1) for n in sizes]
        covariance = on_runs(reading, edges).covariance(cells)
        if not np.any(covariance.within_leaf):
            return float(np.max(covariance.noise))
        wholes = len(next(iter(reading.columns()[0].values())))
        return float(reading.covariance([np.ones((1, leaves)) for leaves in sizes]).noise[0]) / wholes

    return release.kept(("cell_variance", statistic), variance)


@dataclass(frozen=True)
class WeightedBox:
    """One recombined number with its factor in an answer."""

    statistic: int
    box: Box
    factor: float


def reads(plan: ViewPlan, term: Term) -> list[WeightedBox]:
    """Statistics that a term reads: its own, and the count that its centre is multiplied by."""
    statistic = plan.view.statistics[term.measure]
    scale = 10.0**-statistic.scale
    term_reads = [WeightedBox(statistic.id, box, scale) for box in plan.boxes_for(term)]
    if statistic.mid:
        count = presence(term.measure, plan.view)
        assert count is not None
        mid = statistic.mid if statistic.noise_mid is None else statistic.noise_mid
        term_reads += [WeightedBox(count.id, box, mid * scale) for box in plan.boxes_for(term)]
    return term_reads


@dataclass(frozen=True, eq=False)
class PlanVariances:
    """Covariances of the numbers that the groups of one plan read.

    Args:
        plan: the plan.
        release: an open release.
        index: for each axis the group of each row, shape (rows,).
    """

    plan: ViewPlan
    release: Release
    index: tuple[np.ndarray, ...]
    _products: dict[tuple[int, Box, Box | None, int | None], Covariance] = field(
        default_factory=dict, repr=False
    )

    @property
    def rows(self) -> int:
        """Number of groups shown."""
        return len(self.index[0]) if self.index else 1

    def spread(self, rows: npt.NDArray[np.int64], weights: FloatArray, boxes: Sequence[Box]) -> float:
        """Standard error of a weighted sum of COUNTs of groups that differ along one axis.

        Args:
            rows: rows of the relation.
            weights: one for each of them.
            boxes: the boxes of the count; NaN is returned for more than one.
        """
        if len(boxes) != 1 or not len(rows):
            return math.nan
        masks = []
        for mask, index in zip(self.plan.box_masks(boxes[0]), self.index, strict=True):
            group = index[rows]
            same = bool(np.all(group == group[0]))
            masks.append(mask[group[:1]] if same else np.bincount(group, weights, len(mask))[None] @ mask)
        count = self.plan.view.statistics[COUNT].id
        scale = 1.0 if len(rows) > 1 else float(weights[0] ** 2)
        covariance = on_runs(self.release.reading(count), self.plan.edges).covariance(masks)
        return math.sqrt(scale * max(0.0, float(np.sum(covariance.noise + covariance.within_leaf))))

    @cached_property
    def weight(self) -> EstimatedWeight | None:
        """The weight that counts and sums share, where it is estimated."""
        count = self.plan.view.statistics.get(COUNT)
        return None if count is None else weight_of(self.release, count)

    def product(self, statistic: int, left: Box, right: Box | None, other: int | None = None) -> Covariance:
        """Covariances of two boxes by part, each of shape (rows,), of one statistic or of two; None is all rows.

        Kept, since a standard error, both ends of an interval and its parts ask for the same.
        """
        key = statistic, left, right, other
        if key not in self._products:
            covariance = self._product(statistic, left, right, other)
            take(sum(component.nbytes for component in covariance if isinstance(component, np.ndarray)))
            self._products[key] = covariance
        return self._products[key]

    def _product(
        self, statistic: int, left: Box, right: Box | None, right_statistic: int | None
    ) -> Covariance:
        second = statistic if right_statistic is None else right_statistic
        if second < statistic and right is not None:
            return self.product(second, right, left, statistic)
        reading = self.release.shared(statistic, second)
        if reading is None:
            return Covariance(np.zeros(len(self.index[0]) if self.index else 1))
        reading, left_masks = on_runs(reading, self.plan.edges), self.plan.box_masks(left)
        if right is None:
            right_masks = [np.ones_like(mask) for mask in left_masks]
        else:
            right_masks = left_masks if left == right else self.plan.box_masks(right)
        if not left_masks:
            return reading.covariance([])
        covariances = []
        for block in blocks(len(self.index[0]), max(mask.shape[1] for mask in left_masks)):
            rows = [index[block] for index in self.index]
            u, v = (
                [_of_rows(mask, i) for mask, i in zip(masks, rows, strict=True)]
                for masks in (left_masks, right_masks)
            )
            alone = left == right and second == statistic
            covariances.append(reading.covariance(u, None if alone else v))
        if not covariances:
            return Covariance(np.zeros(0))
        return Covariance(*(_joined(pieces, len(self.index[0])) for pieces in zip(*covariances, strict=True)))


def _of_rows(mask: FloatArray, rows: npt.NDArray[np.int64]) -> FloatArray:
    """The mask of each row; the one mask of an axis without groups is not copied."""
    return np.broadcast_to(mask, (len(rows), mask.shape[1])) if len(mask) == 1 else mask[rows]


def _joined(pieces: Sequence[FloatArray | float], rows: int) -> FloatArray:
    """Pieces one after the other; a part that a reading does not have is 0 everywhere."""
    arrays = [piece for piece in pieces if isinstance(piece, np.ndarray)]
    return np.concatenate(arrays) if arrays else np.zeros(rows)
