"""DAWA with a safe first stage: a private partition into near-uniform buckets, then measured buckets.

Sparse or flat histograms need few numbers. Stage 1 spends a share of epsilon to choose buckets whose cells
are nearly alike; stage 2 measures the bucket sums with any strategy and spreads each sum evenly.

    here           there (DAWA)      unit
    deviation      dev(B)            sum over cells of |x_j - mean|, kept times 2^K as an exact integer
    surcharge      1 / eps_2         what one more bucket costs, same unit; a public number
    edges                            bucket b is [edges[b], edges[b+1])

Two things differ from the code that is widely copied. The noise of stage 1 is what the proof needs: the
chosen bucket's own change and the largest change of its rivals, (2(1-1/L) + 2(1-1/L_max)) M / eps_1; the
copied code draws up to 1.71 times less. And the surcharge is two noise scales instead of 1 / eps_2, because
the least of many noisy costs is far below the true least: with 1 / eps_2 a trace of 4,096 cells, 3% of them
occupied, falls into 2,200 buckets, with two scales into 40, at a tenth of the error.

Buckets are aligned dyadic intervals, so that the best partition is a bottom-up pass over a binary tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsql.budget import cap_units, scaled_denominator
from dpsql.errors import InterfaceError
from dpsql.mechanisms.central.strategy import Strategy
from dpsql.mechanisms.central.view import NoisyView, draw_laplace, leaf_estimates
from dpsql.noise import Noise

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

PARTITION_SHARE = Fraction(1, 4)
SURCHARGE = 2  # noise scales per bucket; 1 leaves 700 buckets on the sparsest trace, 3 merges its peaks
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
    """Exact deviation of every aligned dyadic bucket, times 2^top.

    Args:
        counts: cells, shape (n,), each below 2^(61 - 2 top) in size.
        top: the largest level; level k has buckets of 2^k cells.

    Returns:
        For each level 0..top an array of floor(n / 2^k) costs: 2^(top - k) * sum |2^k x_j - bucket sum|.
    """
    costs = [np.zeros(len(counts), np.int64)]
    for level in range(1, top + 1):
        block = counts[: len(counts) >> level << level].reshape(-1, 1 << level)
        apart = np.abs((block << level) - block.sum(axis=1, keepdims=True)).sum(axis=1)
        costs.append(apart << (top - level))
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

    **Privacy** epsilon-DP; the proof is in docs/privacy/data_dependent.md, section 2. Costs are exact
    integers, and clipping a cell moves it no further than its record did.

    **Source** Li, Hay, Miklau and Wang (2014), section 4; scale as in the module's first lines.
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
        drawn = noise.laplace(np.full(len(cost), units, np.int64), moved * t)
        noisy.append(cost + drawn + SURCHARGE * moved * t // units)
    return noisy


def least_partition(n: int, costs: list[IntArray]) -> IntArray:
    """Edges of the cheapest partition into aligned dyadic buckets; a short tail keeps its largest buckets."""
    best = costs[0]
    whole = [np.ones(n, bool)]
    for cost in costs[1:]:
        pair = best[: len(cost) * 2].reshape(-1, 2).sum(axis=1)
        whole.append(cost <= pair)
        best = np.minimum(cost, pair)
    starts = []
    free = np.ones(n, bool)  # cells that no chosen bucket holds yet
    for level in range(len(costs) - 1, -1, -1):
        first = np.flatnonzero(whole[level]) << level
        first = first[free[first]]
        starts.append(first)
        if level:
            taken = np.add.outer(first, np.arange(1 << level)).ravel()
            free[taken] = False
    return np.append(np.sort(np.concatenate(starts)), n).astype(np.int64)


def draw_dawa(
    counts: IntArray,
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
    sums = np.add.reduceat(counts, edges[:-1])
    strategy = strategy_for(len(sums))
    return DawaRelease(edges, draw_laplace(sums, [strategy], epsilon - first, sensitivity, noise), strategy)


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
