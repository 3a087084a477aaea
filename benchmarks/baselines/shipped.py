"""The mechanisms that dpsql ships, behind the baselines' signature, each also with the non-negative step.

Strategies are cached by the number of cells: they are made from public facts, so a benchmark may reuse them.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache

from benchmarks.baselines.common import FloatArray, IntArray, Publish
from dpsql.matrices.reconcile import nonnegative, signal_tree
from dpsql.matrices.strategy import Strategy
from dpsql.mechanisms.axis import auto_strategy
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.tents import half_widths
from dpsql.mechanisms.axis.tents import tents as tents_over
from dpsql.mechanisms.axis.tree import best_struct_construct, equal_strategy
from dpsql.mechanisms.designs import adaptive
from dpsql.mechanisms.designs.adaptive import tapered_strategy
from dpsql.mechanisms.designs.diffhr import cell_estimates, draw_diffhr
from dpsql.mechanisms.offers import draw_view, leaf_estimates
from dpsql.noise import Noise
from dpsql.tree import Tree, kary_tree
from tests.strategies import adaptive_cells, by_word

ARITY = 16  # of the tree that the non-negative step goes down; 2 and 4 lose up to 50% on sparse data


@lru_cache(maxsize=256)
def _tree(n: int) -> Tree:
    return kary_tree(n, ARITY)


@lru_cache(maxsize=256)
def lue_strategy(n: int) -> Strategy:
    """LUE-DPTree with the k of least expected error."""
    return by_word(n, "lue_dptree").strategy


@lru_cache(maxsize=256)
def sc_strategy(n: int) -> Strategy:
    """SC with equal budgets, estimated by BLUE."""
    return equal_strategy(best_struct_construct(n))


@lru_cache(maxsize=4096)
def tents_strategy(n: int) -> Strategy:
    """Tents by the share rule with the level count of its table; tiny axes measure each cell."""
    if n <= 24:
        return leaf_strategy(n)
    levels = 1 + sum(n > limit for limit in (560, 11_000, 200_000))
    return tents_over(n, half_widths(n, levels, 1.25))


@lru_cache(maxsize=256)
def unbiased_strategy(n: int) -> Strategy:
    """What `auto` measures where answers must be unbiased."""
    return auto_strategy(n).strategy


def equal_tree(n: int) -> Strategy:
    """HB without its root, at the arity of the signal rule."""
    return tapered_strategy(signal_tree(n), 1.0)


def linear(strategy_for: Callable[[int], Strategy]) -> Publish:
    """A mechanism that measures a public strategy and returns its BLUE."""

    def publish(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
        strategy = strategy_for(len(counts))
        return leaf_estimates(draw_view(counts, [strategy], epsilon, 1, noise), [strategy])

    return publish


def with_nonnegative(publish: Publish) -> Publish:
    """The same mechanism, then the top-down non-negative step."""

    def projected(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
        return nonnegative(_tree(len(counts)), publish(counts, epsilon, noise))

    return projected


def diffhr(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """Shipped, private DiffHR."""
    return cell_estimates(draw_diffhr(counts, epsilon, 1, noise))


STRATEGIES: dict[str, Callable[[int], Strategy]] = {
    "auto, unbiased": unbiased_strategy,
    "tents": tents_strategy,
    "LUE-DPTree": lue_strategy,
    "SC + BLUE": sc_strategy,
    "HB": equal_tree,
    "identity": leaf_strategy,
}
"""Unbiased mechanisms by name."""
RIVALS: dict[str, Publish] = (
    {name: linear(strategy) for name, strategy in STRATEGIES.items()}
    | {
        f"{name}, non-negative": with_nonnegative(linear(strategy))
        for name, strategy in STRATEGIES.items()
        if name != "auto, unbiased"
    }
    | {"DiffHR, private": diffhr}
)
"""What a curator can ask for instead of `auto`."""


def auto(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """What `auto` publishes where the catalog allows biased, non-negative answers."""
    return adaptive_cells(adaptive.draw_adaptive(counts, epsilon, 1, noise, unbiased_strategy))
