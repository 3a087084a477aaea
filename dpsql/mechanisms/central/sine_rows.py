"""The sine-transform strategy V^(1/4), its rows rounded to integers and measured exactly.

A matrix that the sine transform makes diagonal is a Toeplitz matrix less a Hankel one, so n numbers hold all n^2
entries, and measuring is a convolution:

    A_ij = t(|i - j|) - t(i + j),  i, j = 1..n,    t(d) = 1/(n + 1) sum_k w_k cos(pi k d / (n + 1))

| here | there | unit |
|---|---|---|
| `weight` | w_k, eigenvalues of V^(1/4) over the largest column norm | 1 |
| `table` | T(d) = rint(D t(d)), d = 0..2n + 1 | 1 / D |
| `scale` | D | - |

**Privacy** The table is a public matrix of integers, B_ij = T(|i - j|) - T(i + j), and B x is computed without a float.
Columns of D A have norm at most D; two roundings an entry and the float error of the table, 1/100 at most, move n
entries by at most 1.01 each. So a column of B has norm at most D + 1.01 sqrt(n), which `l2_bound` says.
**Source** central.md section 2.
"""

from __future__ import annotations

from math import ceil, sqrt

import numpy as np

from dpsql.errors import InternalError
from dpsql.mechanisms.central.convolve import convolve
from dpsql.tree import FloatArray, IntArray
from dpsql.variance.sine import cosine_sums, half_angles, sine_transform

_LIMIT = 1 << 62
_LIMB = 16  # bits of a part of numbers that are too large to be multiplied at once


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


def l2_bound(n: int, scale: int) -> int:
    """An integer that no column norm of the integer rows passes.

    **Privacy** 1e-9 covers the rounding of `column_norm`, 1.01 that of the entries.
    """
    return ceil(scale * (1 + 1e-9) + 1.01 * sqrt(n))


def table(n: int, scale: int) -> IntArray:
    """T(d) for d = 0..2n + 1, int64."""
    return np.rint(scale / (n + 1) * cosine_sums(weight(n, 0.25))).astype(np.int64)


def measure_sine(x: IntArray, scale: int) -> IntArray:
    """B x for each column of x in exact integers modulo 2^64, shape (n, m).

    Args:
        x: integers, shape (n, m).
        scale: D.

    Raises:
        InternalError: the rows are too large, whatever x is.

    **Privacy** Raw: never leaves publishing without noise.
    """
    n = len(x)
    entries = table(n, scale)
    most = 2 * int(np.abs(entries).max())
    if most * n << _LIMB >= _LIMIT:
        raise InternalError(f"sine rows of {n} leaves have too large entries")
    largest = most * max(1, int(np.abs(x).astype(object).sum(axis=0).max()))
    if largest >= _LIMIT:
        return (measure_sine(x >> _LIMB, scale) << _LIMB) + measure_sine(x & (1 << _LIMB) - 1, scale)
    period = 2 * (n + 1)
    rows = np.empty_like(x)
    for column in range(x.shape[1]):
        odd = np.zeros(period, np.int64)
        odd[1 : n + 1] = x[:, column]
        odd[n + 2 :] = -x[::-1, column]
        sums = convolve(odd, entries, largest)
        sums[: len(sums) - period] += sums[period:]
        rows[:, column] = sums[1 : n + 1]
    return rows


def estimate_sine(y: FloatArray, scale: int) -> FloatArray:
    """A^-1 y / scale, shape (n, m): the leaves up to what rounding the rows changed, which a second pass takes out."""
    return transform(y, -0.25) / scale
