"""Longitudinal path reports, corrected: a public draw of a level combination, then an oracle inside it.

The printed mechanism answers with a node of the person's own path, so its support betrays the value and the
ratio is infinite at every epsilon. Here the output ranges over the global node set: exactly one node of
each level combination lies above any value, so the normaliser is the same for all and the ratio is
exactly e^eps.

| here           | there  | unit |
|----------------|--------|------|
| depth          | j      | level of an axis, 0 is the root |
| nodes          | D_l    | node combinations of a level combination |
| share          | pi_l   | probability of the level draw |
**Source**: docs/method/local.md, "Levels and paths".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.oracles.oracle import FloatArray

IntArray = NDArray[np.int64]


def level_edges(leaves: int, branching: int) -> list[IntArray]:
    """Cell boundaries of each level below the root of a near-balanced tree, finest last.

    Args:
        leaves: number of leaves, at least 2.
        branching: children a node.

    Returns:
        One increasing array of boundaries a level, from 0 to `leaves`; each refines the one before.

    Example:
        >>> [e.tolist() for e in level_edges(6, 3)]
        [[0, 2, 4, 6], [0, 1, 2, 3, 4, 5, 6]]
    """
    levels: list[IntArray] = []
    cells = branching
    while not levels or levels[-1].size - 1 < leaves:
        levels.append(np.unique(np.arange(cells + 1, dtype=np.int64) * leaves // cells))
        cells *= branching
    return levels


def level_combinations(depths: Sequence[int]) -> list[tuple[int, ...]]:
    """All combinations of levels, the all-root one left out; it says nothing and would waste its users."""
    combos = itertools.product(*(range(d + 1) for d in depths))
    return [c for c in combos if any(c)]


def path_shares(nodes: Sequence[int], epsilon: float, weights: Sequence[float] | None = None) -> FloatArray:
    """Share of each level combination when one report ranges over all nodes: w (e^eps + D - 1), scaled.

    Args:
        nodes: node combinations of each level combination.
        epsilon: privacy of one report.
        weights: w_l; equal if None.

    Returns:
        Shares that sum to 1.
    """
    spoken = np.ones(len(nodes)) if weights is None else np.asarray(weights, dtype=np.float64)
    raw = spoken * (math.exp(epsilon) + np.asarray(nodes, dtype=np.float64) - 1)
    return np.asarray(raw / raw.sum())


def depth_shares(combinations: Sequence[Sequence[int]]) -> FloatArray:
    """Shares proportional to the sum of depths, within 1% of the optimum for ranges."""
    depth = np.array([sum(c) for c in combinations], dtype=np.float64)
    return np.asarray(depth / depth.sum())


def optimised_shares(
    information: Sequence[FloatArray],
    workload: FloatArray,
    invert: Callable[[FloatArray], FloatArray],
    steps: int = 60,
) -> FloatArray:
    """Shares that minimise the total variance of a workload, by multiplicative steps.

    Args:
        information: per group, the precision matrix of the leaves for share 1, each (m, m).
        workload: (m, m), the sum of w w' over the workload's queries.
        invert: maps a precision to the covariance of the estimate (with its constraint).
        steps: number of multiplicative steps.

    Returns:
        Shares that sum to 1.
    """
    shares = np.full(len(information), 1 / len(information))
    for _ in range(steps):
        covariance = invert(np.asarray(sum(s * i for s, i in zip(shares, information, strict=True))))
        inner = covariance @ workload @ covariance
        gain = np.array([float(np.sum(inner * i)) for i in information])
        shares = shares * np.sqrt(np.maximum(gain, 0))
        shares /= shares.sum()
    return shares
