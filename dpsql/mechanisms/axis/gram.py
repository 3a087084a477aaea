"""Gram matrices for Gaussian noise: the best rows under a bound on column norms.

With Gram matrix X = A' A, noise of variance 1 per row and all diagonal entries of X at most 1, the mean
variance of a workload with Gram matrix V is tr(V X^-1). Up to about a thousand leaves the minimum is found
by a fixed point of dense matrices and A = X^(1/2) is rounded to integers; above, the sine transform of
V^(1/2) / max diag is within 11% of the bound and takes O(n log n).

    SVD bound    (sum of the square roots of V's eigenvalues)^2 / n, below every strategy
"""

from __future__ import annotations

import numpy as np

from dpsql.tree import FloatArray, Workload
from dpsql.variance.sine import half_angles


def workload_gram(
    n: int, workload: Workload | None = None, uniform: float = 0.15, whole: float = 0.0
) -> FloatArray:
    """V_ij: the probability that a range holds both leaf i and leaf j, shape (n, n).

    Args:
        n: number of leaves.
        workload: the ranges asked; None means all ranges, equally often.
        uniform: the part of all ranges mixed into a workload, so that no range is left without rows.
        whole: the part of the questions that asks for the total instead.
    """
    leaf = np.arange(n)
    all_ranges = (
        np.minimum.outer(leaf + 1, leaf + 1) * np.minimum.outer(n - leaf, n - leaf) / (n * (n + 1) / 2)
    )
    if workload is None:
        return (1 - whole) * all_ranges + whole
    weight = np.asarray(workload.weight, np.float64) / np.sum(workload.weight)
    corners = np.zeros((n + 1, n + 1))
    for rows, columns, sign in ((0, 0, 1), (0, 1, -1), (1, 0, -1), (1, 1, 1)):
        ends = (workload.lo, workload.hi)
        np.add.at(corners, (ends[rows], ends[columns]), sign * weight)
    asked = np.cumsum(np.cumsum(corners, axis=0), axis=1)[:n, :n]
    mixed: FloatArray = (1 - uniform) * asked + uniform * all_ranges
    return (1 - whole) * mixed + whole


def svd_bound(n: int) -> float:
    """A lower bound on the mean variance of all ranges under any strategy of column norm 1.

    **Source** docs/method/axis.md, "Dense rows for Gaussian noise"; singular values of all ranges in closed form.
    """
    return float((np.sqrt(n + 1) / (2 * half_angles(n))).sum() ** 2 / n / (n * (n + 1) / 2))


def matrix_root(s: FloatArray) -> FloatArray:
    """The square root of a symmetric, positive semidefinite matrix, shape (n, n).

    A matrix that a half turn leaves alone (all ranges have one) falls into two of half the size, which is
    four times faster.
    """
    half = len(s) // 2
    if len(s) % 2 or not np.allclose(s, s[::-1, ::-1], rtol=1e-9, atol=0.0):
        values, vectors = np.linalg.eigh(s)
        return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T, np.float64)
    near, far = s[:half, :half], s[:half, : half - 1 : -1]
    even, odd = matrix_root(near + far), matrix_root(near - far)
    top = np.hstack([(even + odd) / 2, (even - odd)[:, ::-1] / 2])
    return np.vstack([top, top[::-1, ::-1]])


def optimal_gram(gram: FloatArray, gap: float = 3e-4, steps: int = 40) -> FloatArray:
    """The X of unit diagonal that minimises tr(V X^-1), to a proven gap.

    With R = (v^1/2 V v^1/2)^1/2, X = v^-1/2 R v^-1/2 is the best X for column prices v; it costs
    tr(R) max diag X, and tr(R)^2 / sum(v) is below every strategy. At the optimum diag X is flat. The step
    v <- v diag(X)^2 needs half the rounds of v <- v diag(X), as published, or fewer.

    Args:
        gram: V, positive definite, shape (n, n).
        gap: stop when the cost is within this fraction of the lower bound.
        steps: most rounds, each one matrix root.

    Returns:
        X with largest diagonal entry 1, shape (n, n).

    **Source** docs/method/axis.md, "Dense rows for Gaussian noise"; Denisov et al. (2022).
    """
    price, x = np.diag(matrix_root(gram)).copy(), gram
    for _ in range(steps):
        side = np.sqrt(price)
        root = matrix_root(side[:, None] * gram * side)
        x = root / side[:, None] / side
        flat = np.diag(x)
        if flat.max() * price.sum() <= (1 + gap) * np.trace(root):
            break
        price = price * flat**2
    return np.asarray(x / np.diag(x).max(), np.float64)
