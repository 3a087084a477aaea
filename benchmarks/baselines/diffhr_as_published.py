"""NOT PRIVATE. DiffHR as its authors wrote it, kept to show what it gives away and to redraw its figures.

Sorting and clustering read the true counts. The sort is the one that their sampler converges to. Cells of one
group are released with one value, so equal values tell that true counts are alike, with probability 1 on one
data set and 0 on its neighbour: no epsilon covers that (`tests/privacy/test_diffhr.py`).

    publish(counts, epsilon, noise)      DiffHR, algorithm 1, epsilon_1 = epsilon_2 = epsilon / 2
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.baselines.common import FloatArray, IntArray, T, units
from dpsql.noise import Noise

PRIVATE = False


def true_groups(counts: IntArray, noise_variance: float) -> IntArray:
    """Greedy clustering of the sorted true counts (algorithm 3), shape (n,). Reads the data for free."""
    order = np.argsort(counts, kind="stable")
    group = np.empty(len(counts), np.int64)
    number, size, mean, square, error = -1, 0, 0.0, 0.0, 0.0
    for rank, cell in enumerate(order):
        value = float(counts[cell])
        joined_mean = mean + (value - mean) / (size + 1)
        joined_square = square + (value - mean) * (value - joined_mean)
        joined = joined_square + noise_variance / (size + 1)
        if number < 0 or joined > error + noise_variance / (len(counts) - rank):
            number, size, joined_mean, joined_square, joined = number + 1, 0, value, 0.0, noise_variance
        size, mean, square, error = size + 1, joined_mean, joined_square, joined
        group[cell] = number
    return group


def publish(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """NOT PRIVATE: group means of the true counts plus noise, one value per group, shape (n,)."""
    half = epsilon / 2
    group = true_groups(counts, 2.0 / float(half) ** 2)
    total = np.zeros(int(group.max()) + 1, np.int64)
    np.add.at(total, group, counts)
    noisy = total + noise.laplace(units(np.ones(len(total)), half), T)
    return np.asarray((noisy / np.bincount(group))[group], np.float64)
