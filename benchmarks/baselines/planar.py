"""Two-axis mechanisms: `publish(counts, epsilon, noise)` with counts of shape (n1, n2)."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

import numpy as np

from benchmarks.baselines import spatial
from benchmarks.baselines.common import FloatArray, IntArray, Publish, T, units
from benchmarks.baselines.shipped import equal_tree, lue_strategy, tents_strategy, unbiased_strategy
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.strategy import AxisStrategy, draw_view, leaf_estimates
from dpsql.mechanisms.family.adaptive import (
    SIGNAL_SHARE,
    noisy_signal,
    signal_tree,
    strength,
    taper,
    tapered_strategy,
)
from dpsql.noise import Noise
from dpsql.tree import Tree
from dpsql.variance.nonnegative import nonnegative, product_tree


@lru_cache(maxsize=8)
def _both(rows: int, columns: int) -> Tree:
    return product_tree(signal_tree(rows), signal_tree(columns))


def kronecker(strategy_for: Callable[[int], AxisStrategy], project: bool = False) -> Publish:
    """The product of one strategy per axis, optionally with the non-negative step."""

    def publish(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
        strategies = [strategy_for(n) for n in counts.shape]
        cells = leaf_estimates(draw_view(counts, strategies, epsilon, 1, noise), strategies)
        return nonnegative(_both(*counts.shape), cells.ravel()).reshape(counts.shape) if project else cells

    return publish


def flat(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """The noisy total, spread evenly."""
    total = int(counts.sum()) + int(noise.laplace(units(np.ones(1), epsilon), T)[0])
    return np.full(counts.shape, total / counts.size)


def by_signal(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """The signal rule on both axes: one taper, product trees, the non-negative step."""
    signal = noisy_signal(counts, epsilon, 1, noise)
    ratio = taper(strength(signal.rows, epsilon, counts.size))
    tapered = kronecker(lambda n: tapered_strategy(signal_tree(n), ratio), project=True)
    return tapered(counts, epsilon * (1 - SIGNAL_SHARE), noise)


ALL: dict[str, Publish] = {
    "signal rule, non-negative": by_signal,
    "Dwork": kronecker(LeafStrategy),
    "flat": flat,
    "quadtree": spatial.quadtree,
    "UG": spatial.ug,
    "AG": spatial.ag,
    "DAWA along the Hilbert curve": spatial.hilbert_dawa,
    "LUE-DPTree x LUE-DPTree": kronecker(lue_strategy),
    "HB x HB": kronecker(equal_tree),
    "HB x HB, non-negative": kronecker(equal_tree, project=True),
    "auto x auto, unbiased": kronecker(unbiased_strategy),
    "tents x tents": kronecker(tents_strategy),
    "tents x tents, non-negative": kronecker(tents_strategy, project=True),
}
