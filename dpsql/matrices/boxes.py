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

from dpsql.matrices.model import Columns, Components, Reading, arrays_of, symmetric, table, upper
from dpsql.tree import FloatArray, IntArray


def box_sums(bounds: IntArray, masks: Sequence[FloatArray]) -> FloatArray:
    """Sum of each product of masks over each box, shape (g, boxes)."""
    sums = np.ones((len(masks[0]), len(bounds)))
    for axis, mask in enumerate(masks):
        low, high = bounds[:, axis].T
        prefix = np.concatenate([np.zeros((len(mask), 1)), np.cumsum(mask, axis=1)], axis=1)
        sums *= prefix[:, high] - prefix[:, low]
    return sums


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
        cells = np.prod(self.bounds[:, :, 1] - self.bounds[:, :, 0], axis=1)
        return np.asarray(box_sums(self.bounds, masks) / cells)

    def covariance(
        self, masks: Sequence[FloatArray], other: Sequence[FloatArray] | None = None
    ) -> FloatArray:
        """Covariances of the answers under products of masks, shape (g,)."""
        right = masks if other is None else other
        left_means, right_means = self.means(masks), self.means(right)
        joint = self.means([u * w for u, w in zip(masks, right, strict=True)])
        inside = (joint - left_means * right_means) @ self.within
        return np.asarray(np.sum((left_means @ self.sums) * right_means, axis=1) + inside)

    def columns(self) -> Columns:
        """The bounds, the upper triangle of the sums' covariance, and the variances inside of boxes."""
        return table(self.bounds, upper(self.sums), self.within)


def from_columns(columns: Columns) -> BoxVariance:
    """The model that `columns` were read from."""
    bounds, sums, within = arrays_of(columns)
    return BoxVariance(bounds.astype(np.int64), symmetric(sums, len(bounds)), within)


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
