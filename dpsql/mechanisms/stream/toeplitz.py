"""Square-root Toeplitz under zCDP: every batch publishes one noisy weighted sum of all batches so far.

The matrix of all prefixes is the square of the lower triangular Toeplitz matrix C with entries
f_j = binom(2j, j) / 4^j, so publishing C x + Gaussian noise and multiplying by C again gives all prefixes
with nearly the least possible error. What is published are exact integers: entries round(2^bits f_j) on
integer counts, plus integer noise; the decoder uses those integers' own inverse, so rounding costs accuracy
(under 1e-6), never privacy.

The norm of a column grows with the horizon, so the budget is planned for N batches and the strategy refuses
past them. A batch needs all increments before it: O(t) work and private storage at batch t.
"""

from __future__ import annotations

import numpy as np

from dpsql.mechanisms.laminar import FloatArray, IntArray

BITS = 20
"""Fraction bits of the integer coefficients: f_j >= 5e-4 up to a million batches, so each keeps 9 bits."""


def root_coefficients(n: int) -> FloatArray:
    """f_0..f_{n-1} of the square root of the prefix matrix (float64[n]): f_j = f_{j-1} (2j - 1) / (2j).

    >>> root_coefficients(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    step = np.arange(1, n, dtype=np.float64)
    return np.concatenate(([1.0], np.cumprod((2 * step - 1) / (2 * step))))[:n]


def integer_coefficients(n: int, bits: int = BITS) -> IntArray:
    """The published matrix's first column, round(2^bits f_j) (int64[n])."""
    return np.rint(np.ldexp(root_coefficients(n), bits)).astype(np.int64)


def squared_sensitivity(n: int, bits: int = BITS) -> int:
    """L2 sensitivity squared of n batches, one row added or removed: the first column's squared norm, exact.

    **Privacy**: the largest column is the first one, in Python integers; noise of variance
    squared_sensitivity / (2 rho) per published number is rho-zCDP.
    """
    return sum(int(c) * int(c) for c in integer_coefficients(n, bits))


def toeplitz_row(increments: IntArray, coefficients: IntArray) -> int:
    """The exact number that batch t publishes (before noise): sum of coefficient[t - j] * increment[j].

    Args:
        increments: int64[t], all batches so far, the newest last.
        coefficients: from `integer_coefficients`, at least t of them.

    Raises:
        ValueError: when there are more batches than coefficients: the planned horizon is reached.

    >>> toeplitz_row(np.array([3, 1]), np.array([8, 4, 3]))
    20
    """
    if increments.size > coefficients.size:
        raise ValueError("the planned horizon is reached; start a new release for the batches after it")
    return int(increments[::-1] @ coefficients[: increments.size])


def decode_increments(noisy: IntArray | FloatArray, coefficients: IntArray) -> FloatArray:
    """Unbiased estimates of the increments from the published numbers, by forward substitution (float64[t, ...]).

    Their running sums are the prefixes. O(t^2); t is a number of batches, and readers keep the result.
    """
    value = np.asarray(noisy, dtype=np.float64).copy()
    scale = coefficients[: len(value)] / float(coefficients[0])
    for place in range(len(value) - 1):
        value[place + 1 :] -= np.multiply.outer(scale[1 : len(value) - place], value[place])
    return value / float(coefficients[0])


def prefix_variance(n: int) -> FloatArray:
    """Variance of the prefixes 1..n at rho = 1/2, horizon n (float64[n])."""
    norms = np.cumsum(root_coefficients(n) ** 2)
    return np.asarray(norms * norms[-1])


def prefix_error(n: int) -> float:
    """Mean variance of the prefixes 1..n at rho = 1/2.

    >>> round(prefix_error(1023), 2)
    9.67
    """
    return float(prefix_variance(n).mean())


def range_error(n: int) -> float:
    """Mean variance of all ranges at rho = 1/2: per noise entry, (n + 1) sum c^2 - (sum c)^2."""
    root = root_coefficients(n)
    first, second = np.cumsum(root), np.cumsum(root**2)
    pairs = float(((n + 1) * second - first**2).sum())
    return pairs * float(second[-1]) / (n * (n + 1) / 2)


def window_error(n: int, length: int) -> float:
    """Mean variance of all windows of `length` batches at rho = 1/2.

    A window that ends at t reads the `length` newest noise entries with f_i and the older ones with
    f_{i + length} - f_i.

    Raises:
        ValueError: when no window of that length fits.
    """
    if not 1 <= length <= n:
        raise ValueError("a window must hold at least one batch and fit into the horizon")
    root = root_coefficients(n)
    fresh = float((root[:length] ** 2).sum())
    old = (root[length:] - root[:-length]) ** 2 if length < n else np.zeros(0)
    mean = fresh + float(np.cumsum(old).sum()) / (n - length + 1)
    return mean * float((root**2).sum())


def lower_bound(n: int) -> float:
    """No linear mechanism has a smaller mean prefix error at rho = 1/2: (sum of singular values)^2 / n^2.

    The prefix matrix has the singular values 1 / (2 sin((2k - 1) pi / (4n + 2))).
    """
    k = np.arange(1, n + 1)
    singular = 0.5 / np.sin((2 * k - 1) * np.pi / (4 * n + 2))
    return float((singular.sum() / n) ** 2)
