"""The sine-transform strategy V^(1/4): its rows as a fast transform, and what float arithmetic may add.

The rows are real, so they are released as rint(D fl(A x)) plus integer noise: the only float before a
stored number. Two bounds make this safe. The float error fl(A x) - A x has an L2 norm of at most
`float_error` times that of x, and rounding moves each of n coordinates by at most 1/2. Two neighbours that
differ by u in one leaf therefore differ by at most

    D u maxcol  +  sqrt(n)  +  2 D float_error |x|        with |x| <= largest_count u, checked.
"""

from __future__ import annotations

from math import ceil, log2, sqrt

import numpy as np

from dpsql.errors import InternalError
from dpsql.tree import FloatArray, IntArray
from dpsql.variance.sine import cosine_sums, half_angles, sine_transform

FLOAT_PART = 1e-3  # what the float bound may add to the sensitivity; it says how large cells may be


def column_norm(n: int) -> float:
    """The largest squared column norm of V^(1/4): the largest diagonal entry of V^(1/2)."""
    root = np.sqrt(n + 1) / (2 * half_angles(n))
    return float((root.sum() - cosine_sums(root)[2 : 2 * n + 1 : 2].min()) / (n + 1))


def transform(x: FloatArray, power: float) -> FloatArray:
    """V^(power) x for each column of x, divided by maxcol^(4 power), shape (n, m).

    With power 1/4 the rows have columns of norm at most 1; with -1/4 it is their inverse.
    """
    n = len(x)
    root = sqrt(n + 1) / (2 * half_angles(n))  # eigenvalues of V^(1/2)
    weight = (root / column_norm(n)) ** (2 * power)
    return sine_transform(weight[:, None] * sine_transform(x))


def float_error(n: int) -> float:
    """A bound on |fl(A x) - A x| / |x| in the L2 norm.

    A fast Fourier transform of length m errs by at most c log2(m) units in the last place, relative to its
    input's norm, with c near 4 for radix 2 to 5; lengths with large primes go through three transforms of
    up to 4 m. c = 16 holds both. A stretches by at most its largest weight, and is two transforms.
    """
    weight = sqrt(sqrt(n + 1) / (2 * float(half_angles(n)[0])) / column_norm(n))
    return 2 * 16 * log2(8 * (n + 1)) * 2.0**-53 * weight


def l2_bound(n: int, scale: int) -> int:
    """An integer that the L2 sensitivity of rint(scale fl(A x)) never passes, per unit of one leaf.

    **Privacy** Columns of A have norm at most 1; 1e-9 covers the rounding of `column_norm`.
    """
    return ceil(scale * (1 + 1e-9 + FLOAT_PART) + sqrt(n))


def largest_count(n: int) -> int:
    """The largest sum of |x| that `l2_bound` holds for: 4 10^8 rows at 4,096 leaves, 2 10^7 at a million."""
    return int(FLOAT_PART / (2 * float_error(n)))


def measure_sine(x: IntArray, scale: int, unit: int) -> IntArray:
    """rint(scale A x) for each column of x, shape (n, m).

    Args:
        x: integers, shape (n, m).
        scale: D.
        unit: how much one record may move a leaf.

    Raises:
        InternalError: if the cells are larger than the float bound is proven for. That says no more than
            that a column holds more rows than `largest_count`, a public number.
    """
    if np.any(np.abs(x).astype(np.float64).sum(axis=0) > float(largest_count(len(x))) * unit):
        raise InternalError("too many rows for a real-valued strategy", hint="use an integer strategy")
    return np.rint(scale * transform(x.astype(np.float64), 0.25)).astype(np.int64)


def estimate_sine(y: FloatArray, scale: int) -> FloatArray:
    """The leaf estimates: A is square and invertible, so they are A^-1 y / scale, shape (n, m)."""
    return transform(y, -0.25) / scale
