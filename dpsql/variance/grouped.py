"""Variance of cells that share the noisy sum of their group evenly, as data-dependent mechanisms leave them.

An answer reads of each group the mean of its mask over the group's cells; what the groups' sums are uncertain by
is another model, over groups in place of leaves. Bias (cells of one group that differ) is not in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dpsql.tree import FloatArray, IntArray
from dpsql.variance.model import AxisVariance

GROUPED = "grouped "
"""What the kind of a grouped model begins with; the kind of the model over groups follows."""

_CHUNK = 1 << 22  # mask entries at once


@dataclass(frozen=True, eq=False)
class GroupedVariance:
    """The variance model of cells in groups.

    Args:
        group: group of each cell, from 0 without gaps, shape (n,).
        inner: the model of the groups' sums.

    >>> from dpsql.variance.identity import IdentityVariance
    >>> model = GroupedVariance(np.array([0, 0, 1]), IdentityVariance(2, 4.0))
    >>> model.ranges([0, 0, 0], [1, 2, 3]).tolist()
    [1.0, 4.0, 8.0]
    """

    group: IntArray
    inner: AxisVariance

    @property
    def kind(self) -> str:
        """The kind, with that of the model over groups."""
        return GROUPED + self.inner.kind

    @property
    def n(self) -> int:
        """Number of leaves."""
        return len(self.group)

    @cached_property
    def _order(self) -> IntArray:
        return np.argsort(self.group, kind="stable")

    @cached_property
    def _size(self) -> IntArray:
        return np.bincount(self.group)

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,)."""
        lo, hi = np.broadcast_arrays(*(np.atleast_1d(np.asarray(end, np.int64)) for end in (lo, hi)))
        leaf, step = np.arange(self.n), max(1, _CHUNK // self.n)
        parts = [
            self.quadratic((leaf >= lo[a : a + step, None]) & (leaf < hi[a : a + step, None]))
            for a in range(0, len(lo), step)
        ]
        return np.concatenate(parts) if parts else np.zeros(0)

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        sorted_masks = np.asarray(masks, np.float64)[:, self._order]
        first = np.cumsum(self._size) - self._size
        return self.inner.quadratic(np.add.reduceat(sorted_masks, first, axis=1) / self._size)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """The inner model's columns and `group`, the shorter ones filled up; `held` lines are the inner model's."""
        inner = self.inner.columns()
        held = len(next(iter(inner.values())))
        rows = max(held, self.n)
        filled = {name: np.resize(values, rows) for name, values in inner.items()}
        group = np.concatenate([self.group, np.full(rows - self.n, -1)])
        return {"group": group, "held": np.full(rows, held), **filled}


def from_columns(kind: str, n: int, columns: Mapping[str, npt.NDArray[np.generic]]) -> GroupedVariance:
    """The model that `columns` were read from, in the order they were written.

    Args:
        kind: the whole kind.
        n: number of leaves.
        columns: the arrays that `columns()` gave.
    """
    from dpsql.variance.model import from_columns as inner_from_columns

    group = columns["group"].astype(np.int64)[:n]
    held = int(columns["held"].astype(np.int64)[0])
    inner = {name: values[:held] for name, values in columns.items() if name not in ("group", "held")}
    return GroupedVariance(group, inner_from_columns(kind.removeprefix(GROUPED), int(group.max()) + 1, inner))
