"""An error that no strategy of an axis passes below, found without searching for one.

Rows whose columns have L1 norms of at most 1 have columns of L2 norms of at most 1 too: the entries are at most 1, so
their squares add up to no more than they do. So what holds for every Gaussian strategy holds for every Laplace strategy
at the same noise variance, and `auto` may leave out a law without looking at its strategies.

**Source** docs/method/axis.md, "Dense rows for Gaussian noise"; Li and Miklau (2013).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from dpsql.mechanisms.axis.dense import DENSE_LEAVES, workload_gram
from dpsql.tree import FloatArray, Workload
from dpsql.variance.sine import half_angles, sine_transform


def least_variance(n: int, workload: Workload | None = None, whole: float = 0.0) -> float:
    """A lower bound on the mean variance of a workload, for unit noise on rows of columns of L2 norm 1 or L1 norm 1.

    The SVD bound; on axes too long for it, what every single question needs.

    Args:
        n: number of leaves.
        workload: the ranges asked; None means all ranges.
        whole: the part of the questions that asks for the total instead, in [0, 1).

    >>> round(least_variance(256), 2)
    8.27
    """
    if workload is None:
        return _for_all_ranges(n, whole)
    if n > DENSE_LEAVES:
        return 1.0
    return max(1.0, _svd(_eigenvalues(workload_gram(n, workload, 0.0, whole))))


@lru_cache(maxsize=64)
def _for_all_ranges(n: int, total_share: float) -> float:
    ranges = (n + 1) / (4 * half_angles(n) ** 2) / (n * (n + 1) / 2)
    if not total_share or n > DENSE_LEAVES:  # roots grow with their matrices, so the total may be left out
        return max(1.0, (1 - total_share) * _svd(ranges))
    # In the sines that make V diagonal, ones are a vector on every other sine; the total touches no other.
    ones = sine_transform(np.ones((n, 1)))[::2, 0]
    touched = np.diag((1 - total_share) * ranges[::2]) + total_share * np.outer(ones, ones)
    return max(1.0, _svd(np.append(_eigenvalues(touched), (1 - total_share) * ranges[1::2])))


def _eigenvalues(s: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.eigvalsh(s), np.float64)


def _svd(eigenvalues: FloatArray) -> float:
    """(sum of the square roots of V's eigenvalues)^2 / n."""
    return float(np.sqrt(np.maximum(eigenvalues, 0.0)).sum() ** 2 / len(eigenvalues))
