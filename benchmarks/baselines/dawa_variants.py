"""NOT SHIPPED: DAWA with several first and second stages, to show what each choice costs.

dawa_tapered   the partition of `dawa`, a tapered tree over the buckets, the non-negative step on their sums
dawa_tree      the same partition, an equal 16-ary tree over the buckets
dawa_cells     the same partition, every bucket measured once (DAWA's first paper)
dawa_copied    NOT PRIVATE at its epsilon: stage 1 as in widely copied code, 1.71 times less noise and a
               surcharge of 1 / epsilon_2
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np

from benchmarks.baselines import dawa
from benchmarks.baselines.common import FloatArray, IntArray, Publish
from benchmarks.baselines.linear import hb
from benchmarks.baselines.shipped import linear
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.strategy import AxisStrategy
from dpsql.mechanisms.family.adaptive import tapered_strategy
from dpsql.noise import Noise
from dpsql.tree import Exact
from dpsql.variance.nonnegative import nonnegative, signal_tree

UNDER_NOISED = Fraction(171, 100)


def _with(strategy_for: Callable[[int], AxisStrategy]) -> Publish:
    def publish(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
        release = dawa.draw_dawa(Exact(counts), epsilon, 1, noise, strategy_for)
        return dawa.spread(release.edges, dawa.bucket_estimates(release))

    return publish


def _equal_tree(n: int) -> AxisStrategy:
    return tapered_strategy(signal_tree(n), 1.0)


def dawa_tapered(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """A tree over the buckets whose budgets fall by 1.2 a level, then the non-negative step on bucket sums."""
    release = dawa.draw_dawa(
        Exact(counts), epsilon, 1, noise, lambda n: tapered_strategy(signal_tree(n), 1.2)
    )
    buckets = nonnegative(signal_tree(len(release.edges) - 1), dawa.bucket_estimates(release))
    return dawa.spread(release.edges, buckets)


dawa_tree = _with(_equal_tree)
dawa_cells = _with(LeafStrategy)


def dawa_aligned(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """Private. Only every other candidate, and merged more eagerly: best on a few sparse traces, erratic elsewhere."""
    first = epsilon * dawa.PARTITION_SHARE
    top = min(len(counts).bit_length() - 1, dawa.MAX_LEVEL)
    costs = []
    for level, exact in enumerate(dawa.deviations(counts, top)):
        moved = max(dawa.change_bound(level, top), 1)
        units = int(first * (1 << 30))
        cost = (
            exact + noise.laplace(np.full(len(exact), units, np.int64), moved << 30) + int(2 * moved / first)
        )
        if level:
            cost[1::2] = 1 << 60  # never chosen
        costs.append(cost)
    edges = dawa.least_partition(len(counts), costs)
    sums = np.add.reduceat(counts, edges[:-1])
    buckets = nonnegative(signal_tree(len(sums)), linear(_equal_tree)(sums, epsilon - first, noise))
    return dawa.spread(edges, buckets)


def dawa_copied(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """NOT PRIVATE at epsilon: under-noised costs, surcharge 1 / epsilon_2, then HB over the buckets."""
    first = epsilon * dawa.PARTITION_SHARE
    second = epsilon - first
    top = min(len(counts).bit_length() - 1, dawa.MAX_LEVEL)
    costs = []
    for level, exact in enumerate(dawa.deviations(counts, top)):
        moved = max(dawa.change_bound(level, top), 1)
        units = max(int(first * UNDER_NOISED * (1 << 30)), 1)
        drawn = noise.laplace(np.full(len(exact), units, np.int64), moved << 30)
        costs.append(exact + drawn + int((1 << top) / second))
    edges = dawa.least_partition(len(counts), costs)
    sums = np.add.reduceat(counts, edges[:-1])
    return dawa.spread(edges, hb(sums, second, noise))
