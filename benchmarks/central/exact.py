"""Expected errors over all ranges, computed, beside the mechanisms that they belong to."""

from __future__ import annotations

from collections.abc import Callable

from benchmarks.baselines import linear, shipped
from benchmarks.baselines.common import Publish
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.lue_dptree import lue_dptree
from dpsql.mechanisms.axis.strategy import AxisStrategy, expected_error
from dpsql.mechanisms.axis.struct_construct import equal_strategy
from dpsql.mechanisms.axis.tree import tree_strategy
from dpsql.tree import kary_tree


def _level_tree(n: int) -> AxisStrategy:
    tree = kary_tree(n, 2)
    return tree_strategy(tree, linear.level_shares(tree))


def _hb(n: int) -> AxisStrategy:
    tree = kary_tree(n, linear.hb_arity(n))
    return tree_strategy(tree, linear.hb_shares(tree))


def _binary(n: int) -> AxisStrategy:
    return equal_strategy(kary_tree(n, 2))


def exact_errors(n: int) -> dict[str, tuple[Publish, float]]:
    """Mechanism and exact expected error at epsilon 1, for every linear mechanism with a variance model.

    Args:
        n: number of cells.

    Returns:
        name -> (publish, mean squared error over all ranges).
    """
    made: dict[str, Callable[[int], AxisStrategy]] = {
        "Dwork identity": LeafStrategy,
        "Boost k=2": _binary,
        "Boost-UN k=2": _level_tree,
        "SC + BLUE": shipped.sc_strategy,
        "LUE-DPTree k=2": lambda cells: lue_dptree(kary_tree(cells, 2)),
        "LUE-DPTree, best k": shipped.lue_strategy,
        "HB, root dropped": _hb,
        "auto (unbiased)": shipped.unbiased_strategy,
    }
    out: dict[str, tuple[Publish, float]] = {}
    for name, strategy_for in made.items():
        strategy = strategy_for(n)
        out[name] = (shipped.linear(lambda _, held=strategy: held), expected_error(strategy))
    return out


def shipped_errors(n: int) -> dict[str, float]:
    """Exact expected error over all ranges, times epsilon squared, of the unbiased mechanisms that ship.

    It does not depend on the data, nor for continuous noise on epsilon, so no release of them needs to be drawn.

    Args:
        n: number of cells.

    Returns:
        name in `registry.SHIPPED` -> mean squared error.
    """
    strategies: dict[str, Callable[[int], AxisStrategy]] = {
        "auto, unbiased": shipped.unbiased_strategy,
        "tents": shipped.tents_strategy,
        "LUE-DPTree": shipped.lue_strategy,
        "SC + BLUE": shipped.sc_strategy,
        "HB": shipped.equal_tree,
        "identity": LeafStrategy,
    }
    return {name: expected_error(strategy_for(n)) for name, strategy_for in strategies.items()}
