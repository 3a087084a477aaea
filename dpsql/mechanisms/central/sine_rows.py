"""The sine-transform strategy V^(1/4): its rows as a fast transform, and what float arithmetic may add.

The rows are real, so they are released as rint(D fl(A x)) plus integer noise: the only float before a
stored number. Two bounds make this safe. |fl(A x) - A x| <= eta per coordinate, and rounding moves a
coordinate by at most 1/2; so two neighbours differ in L2 by at most D maxcol + sqrt(n) (1 + 2 D eta).
"""

from __future__ import annotations

from math import ceil, log2, sqrt

import numpy as np

from dpsql.errors import InternalError
from dpsql.tree import FloatArray, IntArray
from dpsql.variance.sine import cosine_sums, half_angles, sine_transform

LARGEST_COUNT = 1 << 40  # the sum of |x| that the float bound is proven for


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
    """eta: a bound on |fl(A x) - A x| per coordinate for counts of sum at most `LARGEST_COUNT`.

    Each transform of length 2(n + 1) errs by at most c log2(length) units in the last place of the input's
    L2 norm; Bluestein's three transforms of twice the length and the products are inside c = 64. The
    weights of A are at most maxweight, so the two transforms together err by twice that.
    """
    weight = sqrt(sqrt(n + 1) / (2 * float(half_angles(n)[0])) / column_norm(n))
    return 2 * 64 * log2(8 * (n + 1)) * 2.0**-53 * weight * LARGEST_COUNT


def l2_bound(n: int, scale: int) -> int:
    """An integer that the L2 sensitivity of rint(scale fl(A x)) never passes.

    **Privacy** Neighbours differ by one in one leaf; the columns of A have norm at most 1 (1 + 1e-9 with the
    rounding of `column_norm`).
    """
    return ceil(scale * (1 + 1e-9) + sqrt(n) * (1 + 2 * scale * float_error(n)))


def measure_sine(x: IntArray, scale: int) -> IntArray:
    """rint(scale A x) for each column of x, shape (n, m).

    Raises:
        InternalError: if the counts are larger than the float bound is proven for.
    """
    if np.any(np.abs(x).astype(np.float64).sum(axis=0) > LARGEST_COUNT):
        raise InternalError("counts are too large for a real-valued strategy", hint="use an integer strategy")
    return np.rint(scale * transform(x.astype(np.float64), 0.25)).astype(np.int64)


def estimate_sine(y: FloatArray, scale: int) -> FloatArray:
    """The leaf estimates: A is square and invertible, so they are A^-1 y / scale, shape (n, m)."""
    return transform(y, -0.25) / scale
