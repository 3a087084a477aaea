"""Variance along time where each batch is read through a causal filter of independent noise.

A batch's estimate is factor_j * sum over i <= j of kernel_(j-i) z_i, z of variance 1. So two arrays of one number a
leaf hold the covariance of every pair, however long the axis is: C_ij = factor_i factor_j sum over k <= min(i, j) of
kernel_k kernel_(k + |i - j|).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.matrices.model import Columns
from dpsql.tree import FloatArray

TABLE = 4096
"""Leaves up to which ranges are looked up in a table of all pairs of prefixes."""
_CHUNK = 1 << 22  # mask entries at once


@dataclass(frozen=True, eq=False)
class FilterVariance:
    """The covariance of filtered noise.

    Args:
        kernel: what a batch reads of its own noise, of that before it, and so on, shape (n,).
        factor: what each batch's reading is multiplied by, shape (n,).

    >>> model = FilterVariance(np.array([1.0, -0.5]), np.ones(2))
    >>> model.ranges([0, 1, 0], [1, 2, 2]).tolist()
    [1.0, 1.25, 1.25]
    """

    kernel: FloatArray
    factor: FloatArray
    kind: ClassVar[str] = "filter"

    @property
    def n(self) -> int:
        return len(self.kernel)

    def lags(self, reach: int) -> Iterator[FloatArray]:
        """Covariances of the leaves i and i + lag, for each lag below `reach`."""
        for lag in range(min(reach, self.n)):
            apart = self.n - lag
            shared = np.cumsum(self.kernel[:apart] * self.kernel[lag:])
            yield shared * self.factor[:apart] * self.factor[lag:]

    @cached_property
    def prefix(self) -> FloatArray:
        """Covariance of the prefix sums, shape (n + 1, n + 1)."""
        out, place = np.zeros((self.n + 1, self.n + 1)), np.arange(1, self.n + 1)
        for lag, pairs in enumerate(self.lags(self.n)):
            out[place[: self.n - lag], place[lag:]] = out[place[lag:], place[: self.n - lag]] = pairs
        np.cumsum(out, axis=0, out=out)
        return np.asarray(np.cumsum(out, axis=1, out=out))

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,)."""
        lo, hi = np.broadcast_arrays(*(np.atleast_1d(np.asarray(end, np.int64)) for end in (lo, hi)))
        if self.n <= TABLE:
            return np.asarray(self.prefix[lo, lo] + self.prefix[hi, hi] - 2 * self.prefix[lo, hi])
        leaf, step = np.arange(self.n), max(1, _CHUNK // self.n)
        variances = [
            self.quadratic((leaf >= lo[a : a + step, None]) & (leaf < hi[a : a + step, None]))
            for a in range(0, len(lo), step)
        ]
        return np.concatenate(variances) if variances else np.zeros(0)

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,): what they read of each noise, squared."""
        size = 1 << (2 * self.n - 1).bit_length()
        through = np.conj(np.fft.rfft(self.kernel, size))
        coverages, step = np.asarray(masks), max(1, _CHUNK // size)
        variances = []
        for a in range(0, len(coverages), step):
            read = np.fft.rfft(coverages[a : a + step] * self.factor, size, axis=1) * through
            variances.append(np.sum(np.fft.irfft(read, size, axis=1)[:, : self.n] ** 2, axis=1))
        return np.concatenate(variances) if variances else np.zeros(0)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line a leaf: its factor, and the kernel at its place."""
        return {"kernel": self.kernel, "factor": self.factor}


def from_columns(n: int, columns: Columns) -> FilterVariance:
    """The model that `columns` were read from, in the order they were written."""
    kernel, factor = (columns[name].astype(np.float64) for name in ("kernel", "factor"))
    return FilterVariance(kernel, factor)
