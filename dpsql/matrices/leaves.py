"""Variance of ranges from the covariance of the leaves themselves: independent, dense, or of groups of cells.

Independent leaves of equal variance need one number. Any covariance of about a thousand leaves at most is kept dense,
as that of prefix sums. Cells that share the noisy sum of their group evenly, as data-dependent mechanisms leave them,
are read through their group: an answer reads of each group the mean of its mask over the group's cells, and what the
groups' sums are uncertain by is another model, over groups in place of leaves. Bias (cells of one group that differ)
is not in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.matrices import model
from dpsql.matrices.model import AxisVariance, Columns, range_variances
from dpsql.tree import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class IdentityVariance:
    """Independent leaves of equal variance.

    Args:
        n: number of leaves.
        leaf: variance of one leaf for noise of unit strength.

    >>> IdentityVariance(4, 1.0).ranges([0, 1], [4, 1]).tolist()
    [4.0, 0.0]
    """

    n: int
    leaf: float
    kind: ClassVar[str] = "identity"

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,)."""
        return np.atleast_1d(self.leaf * (np.asarray(hi, np.float64) - np.asarray(lo, np.float64)))

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        squares: FloatArray = np.sum(np.asarray(masks, np.float64) ** 2, axis=1)
        return self.leaf * squares

    def blue(self, y: FloatArray) -> FloatArray:
        """Estimates from each leaf's own row of unit noise, (n, m) -> (n, m)."""
        return np.asarray(y * np.sqrt(self.leaf), np.float64)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line: the variance of a leaf."""
        return {"leaf": np.array([self.leaf])}


def identity_measured(n: int, columns: Columns) -> set[tuple[int, int]]:
    """The half-open intervals that independent leaves measure: each leaf."""
    return {(leaf, leaf + 1) for leaf in range(n)}


def identity_from_columns(n: int, columns: Columns) -> IdentityVariance:
    """The model that `columns` were read from."""
    return IdentityVariance(n, float(columns["leaf"].astype(np.float64)[0]))


@dataclass(frozen=True, eq=False)
class PrefixVariance:
    """Any covariance of the leaves.

    Args:
        leaves: covariance of the leaf estimates for noise of unit strength, symmetric, shape (n, n).
        rows: what they were estimated from, rows of unit noise, shape (p, n); None of a stored model.

    >>> PrefixVariance(np.eye(3)).ranges([0, 1], [3, 2]).tolist()
    [3.0, 1.0]
    """

    leaves: FloatArray
    rows: FloatArray | None = None
    kind: ClassVar[str] = "prefix"

    @property
    def n(self) -> int:
        return len(self.leaves)

    @cached_property
    def prefix(self) -> FloatArray:
        """Covariance of the prefix sums, shape (n + 1, n + 1)."""
        out = np.zeros((self.n + 1, self.n + 1))
        out[1:, 1:] = np.cumsum(np.cumsum(self.leaves, axis=0), axis=1)
        return out

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,)."""
        lo, hi = np.atleast_1d(np.asarray(lo, np.int64)), np.atleast_1d(np.asarray(hi, np.int64))
        variance: FloatArray = self.prefix[lo, lo] + self.prefix[hi, hi] - 2 * self.prefix[lo, hi]
        return variance

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        u = np.asarray(masks, np.float64)
        variance: FloatArray = np.sum((u @ self.leaves) * u, axis=1)
        return variance

    def blue(self, y: FloatArray) -> FloatArray:
        """Estimates from the rows, by the normal equations: C R' y."""
        assert self.rows is not None
        return np.asarray(self.leaves @ (self.rows.T @ y), np.float64)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """The upper triangle of the covariance."""
        return model.table(model.upper(self.leaves))


def dense_from_columns(n: int, columns: Columns) -> PrefixVariance:
    """The model that `columns` were read from."""
    (leaves,) = model.arrays_of(columns)
    return PrefixVariance(model.symmetric(leaves, n))


GROUPED = "grouped"
"""What the kind of a grouped model begins with; the kind of the model over groups follows."""


@dataclass(frozen=True, eq=False)
class GroupedVariance:
    """The variance model of cells in groups.

    Args:
        group: group of each cell, from 0 without gaps, shape (n,).
        inner: the model of the groups' sums.

    >>> from dpsql.matrices.leaves import IdentityVariance
    >>> model = GroupedVariance(np.array([0, 0, 1]), IdentityVariance(2, 4.0))
    >>> model.ranges([0, 0, 0], [1, 2, 3]).tolist()
    [1.0, 4.0, 8.0]
    """

    group: IntArray
    inner: AxisVariance

    @property
    def kind(self) -> str:
        """The kind, with that of the model over groups."""
        return f"{GROUPED} {self.inner.kind}"

    @property
    def n(self) -> int:
        return len(self.group)

    @cached_property
    def _order(self) -> IntArray:
        return np.argsort(self.group, kind="stable")

    @cached_property
    def _size(self) -> IntArray:
        return np.bincount(self.group)

    ranges = range_variances

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        sorted_masks = np.asarray(masks, np.float64)[:, self._order]
        first = np.cumsum(self._size) - self._size
        return self.inner.quadratic(np.add.reduceat(sorted_masks, first, axis=1) / self._size)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """The inner model's columns and `group`, the shorter ones filled up; `held` lines are the inner model's."""
        inner = self.inner.columns()
        lines = len(next(iter(inner.values())))
        rows = max(lines, self.n)
        filled = {name: np.resize(values, rows) for name, values in inner.items()}
        group = np.concatenate([self.group, np.full(rows - self.n, -1)])
        return {"group": group, "held": np.full(rows, lines), **filled}


def grouped_from_columns(
    n: int, columns: Columns, inner: Callable[[int, Columns], AxisVariance]
) -> GroupedVariance:
    """The model that `columns` were read from, in the order they were written.

    Args:
        n: number of leaves.
        columns: the arrays that `columns()` gave.
        inner: reads the model over groups.
    """
    group = columns["group"].astype(np.int64)[:n]
    lines = int(columns["held"].astype(np.int64)[0])
    inner_columns = {
        name: values[:lines] for name, values in columns.items() if name not in ("group", "held")
    }
    return GroupedVariance(group, inner(int(group.max()) + 1, inner_columns))
