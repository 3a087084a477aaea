"""Estimates that are proper histograms: NormSub for one level, and least squares over the simplex.

Both are biased upwards where little is, so neither replaces the unbiased estimate; they start the smooth
fits and maximum entropy.
"""

from __future__ import annotations

import numpy as np

from dpsql.mechanisms.oracles.oracle import FloatArray

TOLERANCE = 1e-12


def normsub(shares: FloatArray, total: float = 1.0) -> FloatArray:
    """Subtract one constant and cut at zero, so that the shares sum to `total`.

    Args:
        shares: one level's estimates.
        total: what they must sum to, positive.

    Returns:
        Non-negative shares: the Euclidean projection onto the simplex.

    **Source**: docs/method/local.md, "NormSub".

    Example:
        >>> normsub(np.array([0.5, -0.25, 0.625, 0.125])).round(4).tolist()
        [0.4167, 0.0, 0.5417, 0.0417]
    """
    ordered = np.sort(shares)[::-1]
    shift = (np.cumsum(ordered) - total) / np.arange(1, shares.size + 1)
    last = int(np.nonzero(ordered > shift)[0][-1])
    return np.asarray(np.maximum(shares - shift[last], 0.0))


def simplex_fit(precision: FloatArray, pull: FloatArray) -> FloatArray:
    """Minimise x'Qx/2 - g'x over x >= 0 with sum 1, by block principal pivoting.

    Args:
        precision: Q, symmetric positive semidefinite, (m, m).
        pull: g, (m,).

    Returns:
        The minimiser, (m,).
    """
    size = pull.size
    scale = max(float(np.trace(precision)) / size, TOLERANCE)
    quadratic = precision / scale + TOLERANCE * np.eye(size)
    linear = pull / scale
    free = np.ones(size, dtype=bool)
    fewest, patience = size + 1, 10
    for _ in range(20 * size + 50):
        shares, price = _equality(quadratic, linear, free)
        slack = quadratic @ shares - linear - price
        wrong = np.where(free, shares < -1e-14, slack < -1e-10)
        count = int(wrong.sum())
        if count == 0:
            break
        if count < fewest:
            fewest, patience = count, 10
        elif patience > 0:
            patience -= 1
        else:  # one at a time cannot cycle
            last = int(np.nonzero(wrong)[0][-1])
            wrong = np.arange(size) == last
        free = np.where(wrong, ~free, free)
        if not free.any():
            free[int(np.argmax(linear))] = True
    shares = np.maximum(shares, 0.0)
    return np.asarray(shares / shares.sum())


def _equality(quadratic: FloatArray, linear: FloatArray, free: np.ndarray) -> tuple[FloatArray, float]:
    """Solve on the free coordinates with sum 1; returns the point and the price of the constraint."""
    at = np.nonzero(free)[0]
    both = np.stack([linear[at], np.ones(at.size)], axis=1)
    solved = np.linalg.solve(quadratic[np.ix_(at, at)], both)
    price = (1 - solved[:, 0].sum()) / solved[:, 1].sum()
    point = np.zeros(linear.size)
    point[at] = solved[:, 0] + price * solved[:, 1]
    return point, float(price)
