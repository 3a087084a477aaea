"""The variance of a view of which only what a few questions need was measured.

Cells that the same questions hold are one class; cells that no question holds were not measured. The rows are over the
classes, and there may be fewer of them than classes: an answer is a sum of what is stored if it takes whole classes,
and if its weights on them are a mean of rows. All others are refused.

| here | there | unit |
|---|---|---|
| `classes` | class of every cell, -1: not measured | - |
| `rows` | H at unit noise, over the classes | rows x classes |
| `covariance` | (H'H)^+ | 1 at unit noise |

**Source** docs/method/views.md, "A few questions"; Li et al. (2015).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from dpsql.matrices.model import CHUNK, Columns, Components, Masks, Reading, arrays_of, crossed, table
from dpsql.tree import FloatArray, IntArray

NEAR = 1e-6
"""Weights that lie this near to a mean of rows are one; what is known and what is not are far apart."""

MOST_CELLS = 1 << 25
"""Entries of the rows over the cells of a view that a file may name."""


@dataclass(frozen=True, eq=False)
class AskedVariance:
    """Variance model of a table's cells from the asked sums.

    Args:
        classes: shape (n_1, .., n_d), 0 to K - 1, or -1.
        rows: shape (p, K).

    >>> model = AskedVariance(np.array([0, 0, 1, -1]), np.array([[1.0, 1.0]]))
    >>> both, first = np.array([[1.0, 1, 1, 0]]), np.array([[1.0, 1, 0, 0]])
    >>> model.knows([both]), model.knows([first]), model.covariance([both]).round(6).tolist()
    (True, False, [1.0])
    """

    classes: IntArray
    rows: FloatArray
    kind: ClassVar[str] = "asked"

    @cached_property
    def _seen(self) -> tuple[FloatArray, FloatArray]:
        """Directions that rows see, shape (K, rank), and how precisely, shape (rank,)."""
        values, vectors = np.linalg.eigh(self.rows.T @ self.rows)
        seen = values > 1e-10 * max(float(values[-1]), 1e-300)
        return vectors[:, seen], values[seen]

    @property
    def rank(self) -> int:
        """Number of independent sums known."""
        return len(self._seen[1])

    @cached_property
    def covariance_of_classes(self) -> FloatArray:
        """(H'H)^+, shape (K, K)."""
        vectors, values = self._seen
        return np.asarray((vectors / values) @ vectors.T, np.float64)

    @cached_property
    def sizes(self) -> FloatArray:
        """Cells of each class, shape (K,)."""
        measured = self.classes[self.classes >= 0]
        return np.bincount(measured, minlength=self.rows.shape[1]).astype(np.float64)

    @cached_property
    def _place(self) -> tuple[IntArray, IntArray]:
        """Cells in the order of their classes, and where each class begins; what was not measured comes first."""
        flat = self.classes.ravel()
        order = np.argsort(flat, kind="stable")
        return order, np.searchsorted(flat[order], np.arange(self.rows.shape[1]))

    def _cells(self, masks: Masks) -> FloatArray:
        """Products of masks over the cells, shape (g, cells)."""
        weights = np.ones((len(masks[0]), 1))
        for mask in masks:
            weights = (weights[:, :, None] * mask[:, None, :]).reshape(len(mask), -1)
        return weights

    def means(self, masks: Masks) -> FloatArray:
        """Mean weight of each class under products of masks, shape (g, K)."""
        order, first = self._place
        step = max(1, CHUNK // max(1, self.classes.size))
        chunks = [
            np.add.reduceat(self._cells([mask[i : i + step] for mask in masks])[:, order], first, axis=1)
            for i in range(0, len(masks[0]), step)
        ]
        return np.concatenate(chunks) / self.sizes

    def covariance(self, masks: Masks, other: Masks | None = None) -> FloatArray:
        """Covariances of the answers under products of masks, at unit noise, shape (g,)."""
        left = self.means(masks)
        right = left if other is None else self.means(other)
        return np.asarray(np.sum((left @ self.covariance_of_classes) * right, axis=1), np.float64)

    def knows(self, *boxes: Masks) -> bool:
        """True if the answers under some products of masks, added up, follow from the rows.

        Args:
            boxes: for each box one array (g, n_i) an axis.
        """
        step = max(1, CHUNK // max(1, self.classes.size))
        order, _ = self._place
        flat, vectors = self.classes.ravel()[order], self._seen[0]
        for i in range(0, len(boxes[0][0]) if boxes else 0, step):
            cells = sum(self._cells([mask[i : i + step] for mask in box])[:, order] for box in boxes)
            means = sum(self.means([mask[i : i + step] for mask in box]) for box in boxes)
            even = np.where(flat >= 0, np.take(means, np.maximum(flat, 0), axis=1), 0.0)
            unseen = means - (means @ vectors) @ vectors.T
            if np.abs(cells - even).max(initial=0.0) > NEAR or np.abs(unseen).max(initial=0.0) > NEAR:
                return False
        return True

    def columns(self) -> dict[str, np.typing.NDArray[np.generic]]:
        """The classes, and the entries of the rows that are not 0: their places and values."""
        return table(self.classes, np.argwhere(self.rows), self.rows[self.rows != 0])


def from_columns(columns: Columns) -> AskedVariance:
    """The model that `columns` were read from.

    Raises:
        ValueError: rows of more than `MOST_CELLS` entries: a file that says so could ask for any amount of memory.
    """
    classes, entry, value = arrays_of(columns)
    row, column = entry.astype(np.int64).T
    size = int(row.max(initial=-1)) + 1, int(classes.max(initial=-1)) + 1
    if min(size) < 0 or size[0] * size[1] > MOST_CELLS:
        raise ValueError("rows over the cells of a view are larger than any")
    rows = np.zeros(size)
    rows[row, column] = value
    return AskedVariance(classes.astype(np.int64), rows)


@dataclass(frozen=True)
class AskedReading(Reading):
    """Reading of a statistic that was measured for a few questions.

    Args:
        pieces: the one model, at unit noise.
        components: the one part, of all axes, with what the model is multiplied by.
    """

    pieces: tuple[AskedVariance]
    components: Components
    name: ClassVar[str] = "asked"

    def takes(self, boxes: Iterable[Masks]) -> bool:
        """True if the questions that were measured tell the sums."""
        return self.pieces[0].knows(*(crossed(box) for box in boxes))

    def matrix(self, masks: Masks) -> FloatArray:
        """Covariances of all combinations of rows, as `Reading` says."""
        (model,), (factor,) = self.pieces, self.components.values()
        means = model.means(crossed(masks))
        return np.asarray(factor * means @ model.covariance_of_classes @ means.T, np.float64)
