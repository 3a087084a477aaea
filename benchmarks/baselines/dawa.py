"""NOT SHIPPED: DAWA with a safe first stage, a private partition into near-uniform buckets that are then measured.

Sparse or flat histograms need few numbers. Stage 1 spends a share of epsilon to choose buckets whose cells
are nearly alike; stage 2 measures the bucket sums with any strategy and spreads each sum evenly.

    here           there (DAWA)      unit
    deviation      dev(B)            sum over cells of |x_j - mean|, kept times 2^K as an exact integer
    surcharge      1 / eps_2         what one more bucket costs, same unit; a public number
    edges                            bucket b is [edges[b], edges[b+1])

Two things differ from the code that is widely copied. The noise of stage 1 is what the proof needs: the
chosen bucket's own change and the largest change of its rivals, (2(1-1/L) + 2(1-1/L_max)) M / eps_1; the
copied code draws up to 1.71 times less. And the surcharge is a noise scale and a half more than 1 / eps_2,
because the least of many noisy costs lies far below the true least (2,200 buckets for a trace of 4,096 cells).

Buckets have 2^k cells and start at multiples of 2^(k-1): half-overlapping, so that a step in the data is never
far from a border of some large bucket, and still only 2n candidates a level to draw noise for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dpsql.budget import cap_units, scaled_denominator
from dpsql.errors import InterfaceError
from dpsql.matrices.reconcile import nonnegative, signal_tree
from dpsql.matrices.strategy import Strategy
from dpsql.mechanisms.designs.adaptive import tapered_strategy
from dpsql.mechanisms.distribution import LAPLACE, NoisyView
from dpsql.mechanisms.offers import draw_view, leaf_estimates
from dpsql.noise import Noise
from dpsql.tree import Exact, FloatArray, IntArray

PARTITION_SHARE = Fraction(1, 4)
BUCKET_NOISE = PARTITION_SHARE / (1 - PARTITION_SHARE)  # 1 / epsilon_2 in units of 1 / epsilon_1
SURCHARGE = Fraction(3, 2)
# Noise scales per bucket. Of 1, 3/2 and 2 the one without a bad case on four sparse DPBench histograms and
# three epsilons: 2 is up to 6 times worse where narrow peaks are merged, 1 keeps noise for structure.
MAX_LEVEL = 14  # buckets of at most 16,384 cells: costs below then fit int64 for every cell up to 2^33


@dataclass(frozen=True, eq=False)
class DawaRelease:
    """What DAWA publishes: the partition and the noisy rows over its buckets.

    Args:
        edges: bucket b is cells [edges[b], edges[b + 1]), shape (m + 1,).
        view: the noisy rows as drawn.
        strategy: the strategy over the m buckets.
    """

    edges: IntArray
    view: NoisyView
    strategy: Strategy


def deviations(counts: IntArray, top: int) -> list[IntArray]:
    """Exact deviation of every candidate bucket, times 2^top.

    Args:
        counts: cells, shape (n,), each at most 2^(61 - 2 top) in size.
        top: the largest level; buckets of level k have 2^k cells and start at multiples of 2^(k-1).

    Returns:
        For each level 0..top the costs 2^(top - k) * sum |2^k x_j - bucket sum|, in order of their starts.
    """
    costs = [np.zeros(len(counts), np.int64)]
    for level in range(1, top + 1):
        width = 1 << level
        cost = np.zeros(2 * (len(counts) // width), np.int64)
        for side, start in enumerate((0, width // 2)):
            blocks = counts[start : start + (len(counts) - start) // width * width].reshape(-1, width)
            apart = np.abs((blocks << level) - blocks.sum(axis=1, keepdims=True)).sum(axis=1)
            cost[side::2][: len(apart)] = apart << (top - level)
        costs.append(cost[: (len(counts) - width) // (width // 2) + 1])
    return costs


def change_bound(level: int, top: int) -> int:
    """How far one record can move a bucket's cost against a rival's, in units of 2^-top.

    A record moves the deviation of a bucket of L cells by at most 2(1 - 1/L); the chosen bucket and the
    best rival partition may move in opposite directions, so both bounds add up.
    """
    largest = 2 * ((1 << top) - 1)
    return 2 * ((1 << top) - (1 << (top - level))) + largest


def partition(counts: IntArray, epsilon: Fraction, sensitivity: int, noise: Noise) -> IntArray:
    """Choose buckets of near-equal cells, privately.

    Args:
        counts: exact cells, shape (n,).
        epsilon: what the choice may spend.
        sensitivity: the most that one privacy unit changes the sum of |cells|.
        noise: where noise comes from.

    Returns:
        Bucket edges, shape (m + 1,), from 0 to n.

    Raises:
        InterfaceError: if there is no cell.
        PrivacyError: if epsilon leaves no room for integer budgets.

    **Privacy** epsilon-DP. A record moves the cost of the chosen bucket by at most 2(1 - 1/L) and that of its best
    rival by at most 2(1 - 1/L_max) the other way; costs are exact integers, and clipping a cell moves it no further
    than its record did.

    **Source** Li, Hay, Miklau and Wang (2014), A data- and workload-aware algorithm for range queries under
    differential privacy; scale as in the module's first lines.
    """
    n = len(counts)
    if n < 1:
        raise InterfaceError("a partition needs at least one cell")
    top = min(n.bit_length() - 1, MAX_LEVEL)
    if top == 0:
        return np.array([0, n], np.int64)
    limit = 1 << (61 - 2 * top)
    costs = deviations(np.clip(counts, -limit, limit), top)
    return least_partition(n, _noisy(costs, epsilon, sensitivity, noise))


def _noisy(costs: list[IntArray], epsilon: Fraction, sensitivity: int, noise: Noise) -> list[IntArray]:
    """Every level's costs with noise and surcharge, integers in units of 2^-top."""
    top = len(costs) - 1
    noisy = []
    for level, cost in enumerate(costs):
        moved = change_bound(level, top) * sensitivity
        t = scaled_denominator(moved)
        units = cap_units(epsilon, t)
        drawn = LAPLACE.draw_units(Exact(cost), np.full(len(cost), units, np.int64), moved * t, noise)
        surcharge = (SURCHARGE * moved + BUCKET_NOISE * (sensitivity << top)) * t / units
        noisy.append(drawn + int(surcharge))
    return noisy


def least_partition(n: int, costs: list[IntArray]) -> IntArray:
    """Edges of the cheapest partition: the best way to reach each cell border, from left to right.

    Args:
        n: number of cells.
        costs: for each level the candidates' costs in order of their starts (see `deviations`).

    Returns:
        Edges, shape (m + 1,); among equal costs the shorter last bucket wins.
    """
    steps = [(1 << level, max(1, 1 << level >> 1), cost.tolist()) for level, cost in enumerate(costs)]
    best, back = [0] * (n + 1), [0] * (n + 1)
    for end in range(1, n + 1):
        best[end] = best[end - 1] + steps[0][2][end - 1]
        back[end] = end - 1
        for width, step, cost in steps[1:]:
            start = end - width
            if start < 0 or end % step:
                break  # a border that is no multiple of this step is none of a longer one
            total = best[start] + cost[start // step]
            if total < best[end]:
                best[end], back[end] = total, start
    edges = [n]
    while edges[-1]:
        edges.append(back[edges[-1]])
    return np.array(edges[::-1], np.int64)


def draw_dawa(
    counts: Exact,
    epsilon: Fraction,
    sensitivity: int,
    noise: Noise,
    strategy_for: Callable[[int], Strategy],
) -> DawaRelease:
    """Choose buckets, then measure their sums.

    Args:
        counts: exact cells, shape (n,).
        epsilon: what both stages may spend together.
        sensitivity: the most that one privacy unit changes the sum of |cells|.
        noise: where noise comes from.
        strategy_for: gives the strategy over m buckets; reads m alone.

    Returns:
        Edges and noisy rows.

    Raises:
        PrivacyError: if epsilon leaves no room for integer budgets.

    **Privacy** epsilon-DP: `partition` spends PARTITION_SHARE of it, the rows over fixed buckets the rest.
    """
    first = epsilon * PARTITION_SHARE
    edges = partition(counts, first, sensitivity, noise)
    sums = Exact(np.add.reduceat(counts, edges[:-1]))
    strategy = strategy_for(len(sums))
    return DawaRelease(edges, draw_view(sums, [strategy], epsilon - first, sensitivity, noise), strategy)


def bucket_estimates(release: DawaRelease) -> FloatArray:
    """Best linear unbiased estimate of every bucket sum, shape (m,)."""
    return leaf_estimates(release.view, [release.strategy])


def spread(edges: IntArray, buckets: FloatArray) -> FloatArray:
    """Every bucket's value shared evenly by its cells, shape (n,).

    >>> spread(np.array([0, 2, 3]), np.array([4.0, 1.0])).tolist()
    [2.0, 2.0, 1.0]
    """
    width = np.diff(edges)
    return np.repeat(buckets / width, width)


def dawa_tapered(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """A tree over the buckets whose budgets fall by 1.2 a level, then the non-negative step on bucket sums."""
    release = draw_dawa(Exact(counts), epsilon, 1, noise, lambda n: tapered_strategy(signal_tree(n), 1.2))
    buckets = nonnegative(signal_tree(len(release.edges) - 1), bucket_estimates(release))
    return spread(release.edges, buckets)
