"""Reads of stored statistics under boxes, with their covariances.

| here | there | unit |
|---|---|---|
| read | (statistic, box, factor): one recombined number | stored units |
| `relative` | r, standard error of E r over E r | 1 |
| `rows` | W, the view's COUNT(*) | rows |

COUNT and the centred SUM of one view have independent noise, and so SUM = y + mid c has Var = Var(y) + mid^2 Var(c).

**Privacy**: published values alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpsql.executor.run import run
from dpsql.matrices.model import Covariance
from dpsql.planner.axis_query import FloatArray
from dpsql.planner.plan import Box, ViewPlan, presence
from dpsql.planner.terms import Term
from dpsql.release import Release, StatisticMeta
from dpsql.release.request import blocks, take


@dataclass(frozen=True)
class EstimatedWeight:
    """An estimated weight, as the answers of one view see it.

    Args:
        relative: relative standard error of the rows a person has.
        rows: the view's COUNT(*).
        variance: its variance without the weight's error.
    """

    relative: float
    rows: float
    variance: float


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
    return (
        EstimatedWeight(relative, rows, float(release.reading(count.id).covariance(all_leaves).noise[0]))
        if rows > 0
        else None
    )


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
        covariance = reading.covariance([np.eye(1, leaves, leaves // 2) for leaves in sizes])
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
        count = self.plan.view.statistics["count"].id
        scale = 1.0 if len(rows) > 1 else float(weights[0] ** 2)
        covariance = self.release.reading(count).covariance(masks)
        return math.sqrt(scale * max(0.0, float(np.sum(covariance.noise + covariance.within_leaf))))

    @cached_property
    def weight(self) -> EstimatedWeight | None:
        """The weight that counts and sums share, where it is estimated."""
        count = self.plan.view.statistics.get("count")
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
        left_masks = self.plan.box_masks(left)
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
