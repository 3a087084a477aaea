"""The variance of a table that is known box by box, and even inside each box for want of better knowledge.

An answer reads of each box the mean of its mask over the box's cells. Two things are uncertain: the boxes' sums, by a
covariance, and how each sum lies inside its box. For that a box holds one number, the variance of a sum that takes the
cells with a mask of variance 1: `within` x (mean of u^2 - (mean of u)^2). A whole box does not see it.

| here     | there | unit |
|----------|-------|------|
| `bounds` | half-open bounds of each box along each axis | leaves |
| `sums`   | covariance of the boxes' sums | (measure unit)^2 |
| `within` | s^2/12 for a box of sum s in adaptive collections of one axis | (measure unit)^2 |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.matrices.model import Columns, Components, Reading, zeros
from dpsql.tree import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class BoxVariance:
    """Variance model of a table in boxes.

    Args:
        bounds: shape (boxes, axes, 2); the boxes do not overlap and cover everything.
        sums: covariance of the boxes' sums, shape (boxes, boxes).
        within: shape (boxes,).

    >>> model = BoxVariance(np.array([[[0, 2]], [[2, 3]]]), np.eye(2), np.array([0.5, 0.0]))
    >>> model.covariance([np.array([[1.0, 1, 0], [1, 0, 0]])]).tolist()
    [1.0, 0.375]
    """

    bounds: IntArray
    sums: FloatArray
    within: FloatArray
    kind: ClassVar[str] = "boxes"

    def means(self, masks: Sequence[FloatArray]) -> FloatArray:
        """Mean of each product of masks over each box, shape (g, boxes)."""
        means = np.ones((len(masks[0]), len(self.bounds)))
        for axis, mask in enumerate(masks):
            low, high = self.bounds[:, axis].T
            prefix = np.concatenate([np.zeros((len(mask), 1)), np.cumsum(mask, axis=1)], axis=1)
            means *= (prefix[:, high] - prefix[:, low]) / (high - low)
        return means

    def covariance(
        self, masks: Sequence[FloatArray], other: Sequence[FloatArray] | None = None
    ) -> FloatArray:
        """Covariances of the answers under products of masks, shape (g,)."""
        right = masks if other is None else other
        left_means, right_means = self.means(masks), self.means(right)
        joint = self.means([u * w for u, w in zip(masks, right, strict=True)])
        inside = (joint - left_means * right_means) @ self.within
        return np.asarray(np.sum((left_means @ self.sums) * right_means, axis=1) + inside)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line per pair of boxes i <= j (part 0), per bound (part 1) and per box (part 2): (part, a, b, value)."""
        i, j = np.triu_indices(len(self.bounds))
        sides = self.bounds.reshape(len(self.bounds), -1)
        a, b = np.indices(sides.shape).reshape(2, -1)
        boxes = np.arange(len(self.bounds))
        return {
            "part": np.repeat([0, 1, 2], [i.size, a.size, boxes.size]),
            "a": np.concatenate([i, a, boxes]),
            "b": np.concatenate([j, b, np.zeros_like(boxes)]),
            "value": np.concatenate([self.sums[i, j], sides.ravel().astype(np.float64), self.within]),
        }


def from_columns(columns: Columns) -> BoxVariance:
    """The model that `columns` were read from; lines may come in any order."""
    section, a, b = (columns[name].astype(np.int64) for name in ("part", "a", "b"))
    value, boxes = columns["value"].astype(np.float64), int(a.max()) + 1
    sums, within = zeros((boxes, boxes), 2 * len(value)), zeros((boxes,), len(value))
    pairs, side, alone = section == 0, section == 1, section == 2
    sums[a[pairs], b[pairs]] = sums[b[pairs], a[pairs]] = value[pairs]
    within[a[alone]] = value[alone]
    bounds = zeros((boxes, int(b[side].max()) + 1), len(value)).astype(np.int64)
    bounds[a[side], b[side]] = np.rint(value[side]).astype(np.int64)
    return BoxVariance(bounds.reshape(boxes, -1, 2), sums, within)


@dataclass(frozen=True)
class BoxReading(Reading):
    """Reading of a statistic that is known box by box.

    Args:
        pieces: the one model.
        components: the one part, of all axes, with what the model is multiplied by.
    """

    pieces: tuple[BoxVariance]
    components: Components
    name: ClassVar[str] = "boxes"
