"""Baselines that group cells by their noisy count, wherever they lie: GS and AHP.

gs     Kellaris and Papadopoulos (2013): sorted by a noisy view, groups of one fixed size
ahp    Zhang, Chen, Xu, Meng, Xie (2014): small noisy counts set to 0, sorted, clustered greedily
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.baselines.common import FloatArray, IntArray, T, units
from dpsql.mechanisms.family.diffhr import cluster
from dpsql.noise import Noise

AHP_VIEW_SHARE = 0.85  # the two constants of AHP as benchmarks set them
AHP_THRESHOLD = 0.35


def _group_means(
    counts: IntArray, group: IntArray, share: float, epsilon: Fraction, noise: Noise
) -> FloatArray:
    """Noisy sum of each group, divided by its size, for every cell."""
    size = np.bincount(group)
    exact = np.zeros(len(size), np.int64)
    np.add.at(exact, group, counts)
    noisy = exact + noise.laplace(units(np.full(len(exact), share), epsilon), T)
    return np.asarray((noisy / size)[group], np.float64)


def _view(counts: IntArray, share: float, epsilon: Fraction, noise: Noise) -> IntArray:
    return np.asarray(counts + noise.laplace(units(np.full(len(counts), share), epsilon), T))


def gs(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """Groups of one size in order of a noisy view; the size of least estimated error on that view."""
    view = _view(counts, 0.5, epsilon, noise)
    variance = 2.0 / (float(epsilon) / 2) ** 2
    order = np.argsort(view, kind="stable")
    place = np.empty(len(view), np.int64)
    place[order] = np.arange(len(view))

    def estimated(width: int) -> float:
        group = place // width
        size = np.bincount(group)
        mean = np.bincount(group, weights=view) / size
        spread = float(((view - mean[group]) ** 2).sum())
        return max(spread - (len(view) - len(size)) * variance, 0.0) + variance * float((1 / size).sum())

    width = min((1 << i for i in range(len(view).bit_length())), key=estimated)
    return _group_means(counts, place // width, 0.5, epsilon, noise)


def ahp(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """Noisy view, small counts to zero, greedy clusters, noisy sums."""
    view = _view(counts, AHP_VIEW_SHARE, epsilon, noise)
    first = float(epsilon) * AHP_VIEW_SHARE
    small = AHP_THRESHOLD * np.log(max(len(counts), 2)) / first
    view = np.where(view < small, 0, view)
    second = 2.0 / (float(epsilon) * (1 - AHP_VIEW_SHARE)) ** 2
    return _group_means(counts, cluster(view, 0.0, second), 1 - AHP_VIEW_SHARE, epsilon, noise)
