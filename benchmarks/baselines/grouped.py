"""Baselines that merge neighbouring cells: NoiseFirst and StructureFirst (Xu et al., 2013).

Both read off bucket errors from prefix sums, so a dynamic programme over bucket ends is vectorised over all
starts. They use floats inside, which is enough to measure errors and not enough to publish.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.baselines.common import FloatArray, IntArray, T, units
from dpsql.noise import Noise

WIDEST = 512  # cells in a bucket of NoiseFirst: keeps 65,536 cells within seconds
GRID = 256  # bucket ends of StructureFirst are multiples of n / GRID: its programme is cubic


def _means(edges: IntArray, sums: FloatArray) -> FloatArray:
    width = np.diff(edges)
    return np.repeat(sums / width, width)


def noise_first(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """Noise on every cell, then the partition of least estimated error.

    A bucket of c noisy cells with spread S has estimated error S - (c - 2) v, v the noise variance: the noise
    explains (c - 1) v of the spread, and the mean keeps v in sum.
    """
    noisy = (counts + noise.laplace(units(np.ones(len(counts)), epsilon), T)).astype(np.float64)
    variance = 2.0 / float(epsilon) ** 2
    first = np.concatenate([[0.0], np.cumsum(noisy)])
    second = np.concatenate([[0.0], np.cumsum(noisy**2)])
    n = len(counts)
    best, back = np.zeros(n + 1), np.zeros(n + 1, np.int64)
    for end in range(1, n + 1):
        start = np.arange(max(0, end - WIDEST), end)
        width = end - start
        spread = second[end] - second[start] - (first[end] - first[start]) ** 2 / width
        cost = best[start] + spread - (width - 2) * variance
        back[end] = start[np.argmin(cost)]
        best[end] = cost.min()
    edges = [n]
    while edges[-1]:
        edges.append(int(back[edges[-1]]))
    cut = np.array(edges[::-1], np.int64)
    return _means(cut, first[cut[1:]] - first[cut[:-1]])


def structure_first(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """Bucket ends by the exponential mechanism on squared error, then noisy bucket sums.

    Half of epsilon buys the ends (a twentieth of it a noisy largest count, from which the sensitivity 2F + 1
    of the squared error follows), half the sums. Sixteen buckets, as many as the budget can tell apart.
    """
    n = len(counts)
    ends = np.unique(np.linspace(0, n, min(n, GRID) + 1).astype(np.int64))
    buckets = min(16, len(ends) - 1)
    largest = int(counts.max()) + int(noise.laplace(units(np.full(1, 0.025), epsilon), T)[0])
    per_end = 0.475 * float(epsilon) / max(buckets - 1, 1)
    sharpness = per_end / (2 * (2 * max(largest, 1) + 1))
    error, best = _squared_errors(counts, ends, buckets)
    rng = np.random.default_rng(int(noise.laplace(np.ones(1, np.int64), 1 << 40)[0]) & (2**63 - 1))
    chosen, last = [len(ends) - 1], len(ends) - 1
    for left in range(buckets - 1, 0, -1):
        at = np.arange(left, last)
        if not len(at):
            break
        score = -sharpness * (best[left][at] + error[at, last])
        last = int(at[np.argmax(score + rng.gumbel(size=len(at)))])
        chosen.append(last)
    cut = ends[np.unique([0, *chosen])]
    sums = np.add.reduceat(counts, cut[:-1])
    return _means(cut, (sums + noise.laplace(units(np.full(len(sums), 0.5), epsilon), T)).astype(np.float64))


def _squared_errors(counts: IntArray, ends: IntArray, buckets: int) -> tuple[FloatArray, list[FloatArray]]:
    """Error of every bucket [ends[i], ends[j]), and of the best q buckets up to each end, q = 0..buckets."""
    first = np.concatenate([[0.0], np.cumsum(counts)])[ends]
    second = np.concatenate([[0.0], np.cumsum(counts.astype(np.float64) ** 2)])[ends]
    width = np.maximum(ends[None, :] - ends[:, None], 1)
    spread = second[None, :] - second[:, None] - (first[None, :] - first[:, None]) ** 2 / width
    error = np.where(ends[None, :] > ends[:, None], np.maximum(spread, 0.0), np.inf)
    best = [np.where(ends == 0, 0.0, np.inf)]
    for _ in range(buckets):
        best.append(np.min(best[-1][:, None] + error, axis=0))
    return error, best
