"""Variance models that Fourier transforms make diagonal: sine rows of an axis, and causal filters along time.

**Sine rows**: one table of cosine sums, O(1) per range.

All ranges weigh leaf i against leaf j as V_ij = (number of ranges that hold both), up to scale the inverse
of a second difference matrix; its eigenvectors are sines and its eigenvalues are
lambda_k = (n + 1) / (4 sin^2(pi k / (2 (n + 1)))). The strategy measures V^(1/4), so C is scale V^(-1/2), and

    V(a, b) = scale / (2 (n + 1)) [psi(0) + psi(2a - 1)/2 + psi(2b + 1)/2 - psi(a + b) - psi(b - a + 1)]

for leaves a..b, 1-based and inclusive in this formula alone, with psi(t) = sum_k q_k cos(pi k t / (n + 1))
and q_k = lambda_k^(-1/2) / sin^2(pi k / (2 (n + 1))).

**Filters**: each batch is read through a causal filter of independent noise. A batch's estimate is factor_j * sum over
i <= j of kernel_(j-i) z_i, z of variance 1. So two arrays of one number a leaf hold the covariance of every pair,
however long the axis is: C_ij = factor_i factor_j sum over k <= min(i, j) of kernel_k kernel_(k + |i - j|).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dpsql.matrices.model import CHUNK, TABLE, Columns, by_steps, range_variances
from dpsql.tree import FloatArray


def half_angles(n: int) -> FloatArray:
    """sin(pi k / (2 (n + 1))) for k = 1..n, shape (n,)."""
    sines: FloatArray = np.sin(np.pi * np.arange(1, n + 1) / (2 * (n + 1)))
    return sines


def sine_transform(x: FloatArray) -> FloatArray:
    """The orthonormal sine transform (DST-I) of each column, shape (n, m); it is its own inverse."""
    n = len(x)
    odd = np.zeros((2 * (n + 1), x.shape[1]))
    odd[1 : n + 1] = x
    odd[n + 2 :] = -x[::-1]
    waves: FloatArray = -np.fft.rfft(odd, axis=0).imag[1 : n + 1]
    return waves / float(np.sqrt(2 * (n + 1)))


def cosine_sums(weight: FloatArray) -> FloatArray:
    """sum_k weight_k cos(pi k t / (n + 1)) for t = 0..2n + 1, from weights of k = 1..n."""
    n = len(weight)
    spectrum = np.zeros(n + 2)
    spectrum[1 : n + 1] = weight
    sums: FloatArray = np.fft.irfft(spectrum, 2 * (n + 1)) * (n + 1)
    return sums


def column_norm(n: int) -> float:
    """The largest squared column norm of V^(1/4): the largest diagonal entry of V^(1/2)."""
    root = np.sqrt(n + 1) / (2 * half_angles(n))
    return float((root.sum() - cosine_sums(root)[2 : 2 * n + 1 : 2].min()) / (n + 1))


def weight(n: int, power: float) -> FloatArray:
    """Eigenvalues of V^(power) divided by maxcol^(4 power), shape (n,)."""
    root = np.sqrt(n + 1) / (2 * half_angles(n))  # eigenvalues of V^(1/2)
    values: FloatArray = (root / column_norm(n)) ** (2 * power)
    return values


def transform(x: FloatArray, power: float) -> FloatArray:
    """V^(power) x for each column of x, divided by maxcol^(4 power), shape (n, m).

    With power 1/4 the rows have columns of norm at most 1; with -1/4 it is their inverse.
    """
    return sine_transform(weight(len(x), power)[:, None] * sine_transform(x))


@dataclass(frozen=True, eq=False)
class SineVariance:
    """Leaf covariance scale * V^(-1/2).

    Args:
        n: number of leaves.
        scale: what the strategy's sensitivity multiplies the covariance by.
    """

    n: int
    scale: float
    kind: ClassVar[str] = "sine"

    @cached_property
    def _psi(self) -> FloatArray:
        """The table psi(0..2n + 1)."""
        return cosine_sums(2 / (np.sqrt(self.n + 1) * half_angles(self.n)))

    def ranges(self, lo: npt.ArrayLike, hi: npt.ArrayLike) -> FloatArray:
        """Variance of each half-open range, shape (q,)."""
        lo, hi = np.atleast_1d(np.asarray(lo, np.int64)), np.atleast_1d(np.asarray(hi, np.int64))
        a, b, psi = lo + 1, hi, self._psi
        sums = psi[0] + psi[2 * a - 1] / 2 + psi[2 * b + 1] / 2 - psi[a + b] - psi[b - a + 1]
        return np.where(lo < hi, self.scale / (2 * (self.n + 1)) * sums, 0.0)

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,)."""
        coverages = np.asarray(masks, np.float64)
        if (stepwise := by_steps(self, coverages)) is not None:
            return stepwise
        waves = sine_transform(coverages.T)
        root = 2 * half_angles(self.n) / np.sqrt(self.n + 1)
        energy: FloatArray = np.sum(root[:, None] * waves**2, axis=0)
        return self.scale * energy

    def blue(self, y: FloatArray) -> FloatArray:
        """Estimates from rows of unit noise, up to what rounding the rows changed, which a second pass takes out."""
        return transform(y, -0.25) * float(np.sqrt(self.scale / column_norm(self.n)))

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line: the scale; the rest follows from n."""
        return {"scale": np.array([self.scale])}


def sine_from_columns(n: int, columns: Columns) -> SineVariance:
    """The model that `columns` were read from."""
    return SineVariance(n, float(columns["scale"].astype(np.float64)[0]))


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
        return range_variances(self, lo, hi)

    def quadratic(self, masks: npt.ArrayLike) -> FloatArray:
        """u' C u for each row of masks, shape (g, n) -> (g,): what they read of each noise, squared."""
        size = 1 << (2 * self.n - 1).bit_length()
        through = np.conj(np.fft.rfft(self.kernel, size))
        coverages, step = np.asarray(masks), max(1, CHUNK // size)
        variances = []
        for a in range(0, len(coverages), step):
            read = np.fft.rfft(coverages[a : a + step] * self.factor, size, axis=1) * through
            variances.append(np.sum(np.fft.irfft(read, size, axis=1)[:, : self.n] ** 2, axis=1))
        return np.concatenate(variances) if variances else np.zeros(0)

    def columns(self) -> dict[str, npt.NDArray[np.generic]]:
        """One line a leaf: its factor, and the kernel at its place."""
        return {"kernel": self.kernel, "factor": self.factor}


def filter_from_columns(n: int, columns: Columns) -> FilterVariance:
    """The model that `columns` were read from, in the order they were written."""
    kernel, factor = (columns[name].astype(np.float64) for name in ("kernel", "factor"))
    return FilterVariance(kernel, factor)
