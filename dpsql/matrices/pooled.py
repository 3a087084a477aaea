"""Errors of tables pooled from several releases: a sum of pieces, kept in memory and never stored.

| here | unit |
|---|---|
| piece | a bilinear form of two leaf masks, one of each side: Cov(u . x, v . z) |
| `StoredCovariance` | a stored statistic's own reading; axes that the table lacks are added up |
| `Diagonal` | sum over cells of d u v: what a sample of independent people adds |
| `SharedError` | (a . u) (b . v): an error that all cells share, such as that of the number of people |
| `TotalInfluence` | Cov(u . x, total of x) (b . v): the same error in the release that the number came from |
| `Matrix` | covariances cell by cell |

**Privacy**: published values alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

import numpy as np

from dpsql.matrices.model import CHUNK, Columns, Covariance, Masks, Reading, crossed, outer_products
from dpsql.tree import FloatArray


class BilinearForm(Protocol):
    """A bilinear form of masks."""

    def between(self, left: Masks, right: Masks) -> FloatArray:
        """Its value for each pair of masks, shape (g,)."""

    def matrix(self) -> FloatArray:
        """Its value for all pairs of cells in row-major order, shape (cells, cells)."""


class Piece(NamedTuple):
    """A bilinear form times a weight, with its sides exchanged where `turned`."""

    form: BilinearForm
    weight: float = 1.0
    turned: bool = False

    def between(self, left: Masks, right: Masks) -> FloatArray:
        """Its value for each pair of masks, shape (g,)."""
        return self.weight * (
            self.form.between(right, left) if self.turned else self.form.between(left, right)
        )

    def matrix(self) -> FloatArray:
        """Its value for all pairs of cells in row-major order, shape (cells, cells)."""
        return self.weight * (self.form.matrix().T if self.turned else self.form.matrix())

    def times(self, factor: float) -> Piece:
        return self._replace(weight=self.weight * factor)

    def transposed(self) -> Piece:
        return self._replace(turned=not self.turned)


def weigh(tensor: FloatArray, masks: Masks) -> FloatArray:
    """Sum of a table's cells under the outer product of each row of masks, shape (g,)."""
    if not masks:
        return tensor.reshape(1)
    rows = len(masks[0])
    sums, step = np.zeros(rows), max(1, CHUNK // max(tensor.size // tensor.shape[-1], 1))
    for a in range(0, rows, step):
        contracted = np.tensordot(masks[-1][a : a + step], tensor, axes=(1, tensor.ndim - 1))
        for mask in reversed(masks[:-1]):
            contracted = np.einsum("g...n,gn->g...", contracted, mask[a : a + step])
        sums[a : a + step] = contracted
    return sums


@dataclass(frozen=True, eq=False)
class StoredCovariance:
    """A stored statistic's covariances.

    Args:
        reading: how it answers, in squared stored units.
        places: for each of its own axes the table's axis, or None where the table adds it up.
        sizes: leaves of its own axes.
        groups: by axis of the table, which leaves each of its cells adds up, shape (cells, leaves); None where the
            cells of the table are leaves.
    """

    reading: Reading
    places: tuple[int | None, ...]
    sizes: tuple[int, ...]
    groups: tuple[FloatArray, ...] | None = None

    def _own(self, masks: Masks) -> list[FloatArray]:
        rows = len(masks[0]) if masks else 1
        if self.groups is not None:
            masks = [mask @ group for mask, group in zip(masks, self.groups, strict=True)]
        pairs = zip(self.places, self.sizes, strict=True)
        return [np.ones((rows, n)) if place is None else masks[place] for place, n in pairs]

    def between(self, left: Masks, right: Masks) -> FloatArray:
        second = None if left is right else self._own(right)
        covariance = self.reading.covariance(self._own(left), second)
        return np.asarray(covariance.noise + covariance.within_leaf)

    def matrix(self) -> FloatArray:
        """As the reading says, its axes in the table's order."""
        pairs = list(zip(self.places, self.sizes, strict=True))
        masks = [np.ones((1, n)) if place is None else self._cells(place, n) for place, n in pairs]
        covariance, shape = self.reading.matrix(masks), [len(mask) for mask in masks]
        order = sorted(range(len(pairs)), key=lambda i: -1 if pairs[i][0] is None else pairs[i][0] or 0)
        moved = covariance.reshape(shape * 2).transpose([*order, *(len(shape) + i for i in order)])
        return np.asarray(moved.reshape(covariance.shape))

    def _cells(self, place: int, leaves: int) -> FloatArray:
        return np.eye(leaves) if self.groups is None else self.groups[place]


@dataclass(frozen=True, eq=False)
class Diagonal:
    """Cells that err independently: `values` holds their variances, shape of the table."""

    values: FloatArray

    def between(self, left: Masks, right: Masks) -> FloatArray:
        return weigh(self.values, [u * v for u, v in zip(left, right, strict=True)])

    def matrix(self) -> FloatArray:
        """A diagonal one."""
        return np.diag(self.values.ravel())


@dataclass(frozen=True, eq=False)
class SharedError:
    """One error that all cells share: the left side's cells by `left`, the right side's by `right`."""

    left: FloatArray
    right: FloatArray

    def between(self, left: Masks, right: Masks) -> FloatArray:
        """The product of both sums."""
        return weigh(self.left, left) * weigh(self.right, right)

    def matrix(self) -> FloatArray:
        return np.outer(self.left, self.right)


@dataclass(frozen=True, eq=False)
class TotalInfluence:
    """Covariance of a table, the left side, with its own total, times the derivative of the right side by that total.

    Args:
        pieces: the table's covariances with its counts.
        values: how much each cell of the right side moves with the total.
    """

    pieces: tuple[Piece, ...]
    values: FloatArray

    def between(self, left: Masks, right: Masks) -> FloatArray:
        """Cov(table, its total) times the other side's sum."""
        total_masks = [np.ones_like(mask) for mask in left]
        influence = np.asarray(sum(piece.between(left, total_masks) for piece in self.pieces))
        return influence * weigh(self.values, right)

    def matrix(self) -> FloatArray:
        return np.outer(sum(piece.matrix().sum(axis=1) for piece in self.pieces), self.values.ravel())


@dataclass(frozen=True, eq=False)
class Matrix:
    """Covariances cell by cell, shape (cells, cells) in row-major order, of a table of `shape`."""

    values: FloatArray
    shape: tuple[int, ...]

    def between(self, left: Masks, right: Masks) -> FloatArray:
        """u' C v of each pair."""
        rows = len(left[0]) if left else 1
        covariance, step = np.zeros(rows), max(1, CHUNK // max(len(self.values), 1))
        for a in range(0, rows, step):
            u, v = (outer_products([mask[a : a + step] for mask in masks]) for masks in (left, right))
            covariance[a : a + step] = np.sum((u @ self.values) * v, axis=1)
        return covariance

    def matrix(self) -> FloatArray:
        return self.values


@dataclass(frozen=True, eq=False)
class PooledReading(Reading):
    """Reading of a statistic pooled from several releases, or of two of them together.

    Args:
        pieces: what its covariances are the sum of.
        shape: leaves of its axes.
    """

    pieces: tuple[Piece, ...]
    shape: tuple[int, ...]

    def covariance(self, masks: Masks, other: Masks | None = None) -> Covariance:
        """Covariances under `masks` and `other`, as `Reading` says."""
        right = masks if other is None else other
        covariance = np.asarray(sum((piece.between(masks, right) for piece in self.pieces), np.zeros(1)))
        return Covariance(np.maximum(covariance, 0.0) if other is None else covariance)

    @cached_property
    def whole(self) -> FloatArray:
        """Covariances of all cells, shape (cells, cells)."""
        return np.asarray(sum(piece.matrix() for piece in self.pieces))

    def matrix(self, masks: Masks) -> FloatArray:
        """Covariances of all combinations of rows of `masks`, as `Reading` says."""
        cells = outer_products(crossed(masks))
        return np.asarray(cells @ self.whole @ cells.T)

    def columns(self) -> tuple[Columns, ...]:
        """Nothing: it is made when releases are opened together, and never stored."""
        return ()
