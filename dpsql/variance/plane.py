"""Variance after least squares on two axes measured by product hats and an identity.

The rows are one kernel, moved over the plane, and every cell by itself. With q = 1 / leaf^2 the covariance
is diag(q) - diag(q) B' M^-1 B diag(q), M = I + B diag(q) B': a diagonal and a low rank of at most a few
hundred rows, which is kept dense.

**Source** docs/method/views.md, "Product hats"; Woodbury (1950).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.tree import FloatArray, IntArray
from dpsql.variance.model import Columns, Components, Covariance, Sum, zeros


def kernel_starts(n: int, length: int) -> IntArray:
    """First leaves of the kernels of an odd length, half a length apart, centred on the axis."""
    half = (length + 1) // 2
    count = max(0, (n - length) // half + 1)
    offset = (n - length - (count - 1) * half) // 2
    return offset + half * np.arange(count)


@dataclass(frozen=True, eq=False)
class PlaneVariance:
    """The variance model of product hats and an identity.

    Args:
        leaf: weight of each cell's own measurement, shape (n1, n2), positive.
        kernel: weights of one product hat, shape (2 h1 - 1, 2 h2 - 1).
    """

    leaf: FloatArray
    kernel: FloatArray
    kind: ClassVar[str] = "diagonal_low_rank"

    @property
    def shape(self) -> tuple[int, int]:
        """Leaves of the two axes."""
        return self.leaf.shape[0], self.leaf.shape[1]

    @cached_property
    def starts(self) -> tuple[IntArray, IntArray]:
        """First leaves of the kernels along each axis."""
        (n1, n2), (height, width) = self.leaf.shape, self.kernel.shape
        return kernel_starts(n1, height), kernel_starts(n2, width)

    def _windows(self, plane: FloatArray) -> FloatArray:
        """What of a plane lies under each kernel, shape (kernels along the axes, height, width)."""
        under = np.lib.stride_tricks.sliding_window_view(plane, self.kernel.shape)
        return np.asarray(under[np.ix_(*self.starts)], np.float64)

    @cached_property
    def _weighted(self) -> FloatArray:
        """B diag(q), each kernel alone, as `_windows` orders them."""
        return self.kernel * self._windows(self.leaf**-2)

    @cached_property
    def rows(self) -> FloatArray:
        """B, shape (hats, n1, n2)."""
        first, second = self.starts
        rows = np.zeros((len(first) * len(second), *self.leaf.shape))
        height, width = self.kernel.shape
        for row, (a, b) in enumerate((a, b) for a in first for b in second):
            rows[row, a : a + height, b : b + width] = self.kernel
        return rows

    @cached_property
    def core(self) -> FloatArray:
        """M^-1, shape (hats, hats)."""
        flat = (self.rows / self.leaf).reshape(len(self.rows), -1)
        return np.asarray(np.linalg.inv(np.eye(len(flat)) + flat @ flat.T), np.float64)

    def quadratic(self, first: npt.ArrayLike, second: npt.ArrayLike) -> FloatArray:
        """Variance of the products of masks.

        Args:
            first: masks on the first axis, shape (g, n1).
            second: masks on the second axis, shape (g, n2).

        Returns:
            u' C u for u = first x second, shape (g,), for noise of unit strength.
        """
        u, v = np.asarray(first, np.float64), np.asarray(second, np.float64)
        seen = self._seen(u, v)
        explained: FloatArray = np.sum((seen @ self.core) * seen, axis=1)
        return self._alone(u**2, v**2) - explained

    def bilinear(
        self, left: tuple[FloatArray, FloatArray], right: tuple[FloatArray, FloatArray]
    ) -> FloatArray:
        """Covariance of two products of masks.

        Args:
            left, right: (first, second) as `quadratic` takes them.

        Returns:
            u' C w for u = left[0] x left[1] and w = right[0] x right[1], shape (g,), for noise of unit strength.
        """
        explained: FloatArray = np.sum((self._seen(*left) @ self.core) * self._seen(*right), axis=1)
        return self._alone(left[0] * right[0], left[1] * right[1]) - explained

    def _alone(self, u: FloatArray, v: FloatArray) -> FloatArray:
        """Sums of u_a q_ab v_b, shape (g,)."""
        return np.asarray(np.sum((u @ self.leaf**-2) * v, axis=1), np.float64)

    def _seen(self, u: FloatArray, v: FloatArray) -> FloatArray:
        """B diag(q) (u x v) of each pair of masks, shape (g, hats); kernel by kernel, as most of B is 0."""
        (height, width), (tops, lefts) = self.kernel.shape, self.starts
        seen = np.zeros((len(u), len(tops) * len(lefts)))
        for row, (i, j) in enumerate(np.ndindex(len(tops), len(lefts))):
            a, b = tops[i], lefts[j]
            seen[:, row] = np.sum((u[:, a : a + height] @ self._weighted[i, j]) * v[:, b : b + width], axis=1)
        return seen

    def mean_variance(self, first: FloatArray, second: FloatArray) -> float:
        """Mean variance of random rectangles, for noise of unit strength.

        Args:
            first: V of the ranges on the first axis, shape (n1, n1).
            second: V of the ranges on the second axis, shape (n2, n2).
        """
        (height, width), (tops, lefts) = self.kernel.shape, self.starts
        weighted = self._weighted.reshape(-1, height, width)
        gained = 0.0
        for row, (a, b) in enumerate((a, b) for a in tops for b in lefts):
            spread = first[:, a : a + height] @ weighted[row] @ second[b : b + width]
            seen = np.einsum("abhw,abhw->ab", self._windows(spread), self._weighted)
            gained += float(self.core[row] @ seen.ravel())
        return float(np.diag(first) @ self.leaf**-2 @ np.diag(second)) - gained

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line per cell (part 0) and per kernel entry (part 1): (part, a, b, value)."""
        tables = [self.leaf, self.kernel]
        places = [np.indices(table.shape).reshape(2, -1) for table in tables]
        return {
            "part": np.repeat([0, 1], [table.size for table in tables]),
            "a": np.concatenate([place[0] for place in places]),
            "b": np.concatenate([place[1] for place in places]),
            "value": np.concatenate([table.ravel() for table in tables]),
        }


def from_columns(columns: Columns) -> PlaneVariance:
    """The model that `columns` were read from; lines may come in any order."""
    section, a, b = (columns[name].astype(np.int64) for name in ("part", "a", "b"))
    value, tables = columns["value"].astype(np.float64), []
    for number in (0, 1):
        lines = section == number
        shape = (int(a[lines].max(initial=-1)) + 1, int(b[lines].max(initial=-1)) + 1)
        table = zeros(shape, len(value))
        table[a[lines], b[lines]] = value[lines]
        tables.append(table)
    return PlaneVariance(*tables)


@dataclass(frozen=True)
class PlaneReading:
    """How a statistic of a view whose two axes were measured together answers.

    Args:
        pieces: the one model of the view's cells, at unit noise.
        components: the one part, of all axes, with what the model is multiplied by.
    """

    pieces: tuple[PlaneVariance]
    components: Components
    name: ClassVar[str] = "plane"
    listed: ClassVar[Mapping[int, int]] = {}

    @property
    def indices(self) -> int:
        """One: all rows in a line."""
        return 1

    @property
    def sigma2(self) -> float:
        """Variance of a row at unit strength, in squared stored units."""
        (sigma2,) = self.components.values()
        return sigma2

    def takes(self, boxes: Iterable[Sequence[FloatArray]]) -> bool:
        """Cells add up."""
        return True

    def terms(self, masks: Sequence[FloatArray]) -> tuple[Sum, ...]:
        """Its own node combinations."""
        return (Sum("node_combination", tuple(masks)),)

    def covariance(
        self, masks: Sequence[FloatArray], other: Sequence[FloatArray] | None = None
    ) -> Covariance:
        """Covariances under `masks` and `other`, as `Reading` says."""
        (model,), (first, second) = self.pieces, masks
        if other is None:
            return Covariance(np.maximum(self.sigma2 * model.quadratic(first, second), 0.0))
        return Covariance(self.sigma2 * model.bilinear((first, second), (other[0], other[1])))

    def matrix(self, masks: Sequence[FloatArray]) -> FloatArray:
        """Covariances of all combinations of rows, as `Reading` says."""
        (model,), (first, second) = self.pieces, masks
        i, j = (grid.ravel() for grid in np.indices((len(first), len(second))))
        u, v = first[i], second[j]
        rows = [model.bilinear((np.broadcast_to(a, u.shape), np.broadcast_to(b, v.shape)), (u, v))
                for a, b in zip(u, v, strict=True)]  # fmt: skip
        return self.sigma2 * np.array(rows)

    def columns(self) -> tuple[Columns, ...]:
        """The one table of the cells' model."""
        return tuple(model.columns() for model in self.pieces)

    def page(self) -> Mapping[str, Any]:
        """Variances of single cells, the kernel with its places along both axes, and M^-1."""
        (model,) = self.pieces
        return {"alone": model.leaf**-2, "kernel": model.kernel, "starts": model.starts, "core": model.core}
