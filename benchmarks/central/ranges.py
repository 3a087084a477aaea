"""Errors of an estimate over all ranges, exactly and in O(n).

With prefix errors c_0 .. c_n, a range [i, j) errs by c_j - c_i, and the sum of squares over all i < j is
(n + 1) sum c^2 - (sum c)^2. So "uniform ranges" are all of them here, not a sample.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import numpy.typing as npt

FIRST_SEED = 1_000_000  # constants were tuned on seeds below 1,000; nothing was tuned on these

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def prefix_errors(counts: IntArray, estimate: FloatArray) -> FloatArray:
    """c_0 .. c_n, shape (n + 1,)."""
    return np.concatenate([[0.0], np.cumsum(counts - estimate)])


def all_ranges(prefix: FloatArray) -> float:
    """Mean squared error over all n(n + 1)/2 ranges."""
    size = len(prefix)
    centred = prefix - prefix.mean()  # the formula does not see a shift; centring keeps its digits
    return float(size * np.square(centred).sum() / (size * (size - 1) / 2))


def drawn_error(counts: IntArray, estimate: FloatArray, epsilon: Fraction) -> float:
    """Mean squared error of an estimate over all ranges, times epsilon squared."""
    return all_ranges(prefix_errors(counts, estimate)) * float(epsilon) ** 2
