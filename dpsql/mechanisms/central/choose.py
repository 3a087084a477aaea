"""Which strategy an axis gets: what the catalog names, or the one with the least exact expected error.

An axis that stands alone in its views is asked for ranges. An axis that shares its views with others is
asked for its total as often as for ranges, because a query that uses only the other axes needs it; a
strategy without a root would answer those worst.

**Privacy**: a function of the number of leaves and of public facts alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dpsql.errors import CatalogError
from dpsql.mechanisms.central.auto import auto_strategy, expected_error
from dpsql.mechanisms.central.lue_dptree import best_lue_dptree, identity_strategy, split, tree_strategy
from dpsql.mechanisms.central.strategy import Strategy, variance_model
from dpsql.mechanisms.central.struct_construct import best_struct_construct, equal_strategy
from dpsql.mechanisms.central.tents import half_widths, tents
from dpsql.tree import Workload, coverage, kary_tree

TINY = 2
"""Up to this many leaves nothing beats measuring each leaf."""

LISTED = 300
"""Up to this many leaves the ranges of a Gaussian axis are listed (45,150) so that the total can be weighed in."""

TOTAL_WEIGHT = 0.5
"""How often a query on an axis that shares its views asks for the axis's total."""

FLAT = 64
"""Up to this many leaves a root over all leaves is tried too."""

ARITIES = (2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32)

CRUMB = 1 / 128
"""Inner nodes of a shared axis with less of the budget than this are left out: their precision is under
1/16,384 of the axis's, and a product of such shares over three axes would round to no budget at all."""


class AxisChoice(NamedTuple):
    """A strategy with what it is in words, its expected error and those of the runners-up."""

    strategy: Strategy
    name: str
    expected_error: float
    runners_up: tuple[tuple[str, float], ...]


def axis_strategy(n: int, mechanism: str, *, shared: bool, norm: int = 1) -> AxisChoice:
    """The strategy of one axis.

    Args:
        n: number of leaves.
        mechanism: the catalog's word, or `auto`.
        shared: whether the axis stands in views with other axes.
        norm: 1 for Laplace noise (pure epsilon), 2 for Gaussian noise (zCDP).

    Returns:
        The choice.

    Raises:
        CatalogError: the mechanism is not one that measures an axis on its own.
    """
    if n <= TINY or mechanism == "identity":
        return _named(identity_strategy(n, norm), "identity", shared)
    if mechanism in ("lue_dptree", "tree"):
        strategy, k = best_lue_dptree(n, norm=norm)
        return _named(strategy, f"LUE-DPTree k={k}", shared)
    if mechanism == "struct_construct" and norm == 1:
        return _named(equal_strategy(best_struct_construct(n)), "Struct-Construct", shared)
    if mechanism == "tents" and norm == 1:
        widths = half_widths(n, 1, 1.25)
        return _named(tents(n, widths), f"tents of half-width {', '.join(map(str, widths))}", shared)
    if mechanism not in ("auto", "gaussian"):
        raise CatalogError(
            f"mechanism `{mechanism}` does not fit this release", hint="write `mechanism: auto`"
        )
    if not shared or norm == 2:
        choice = auto_strategy(n, _with_total(n) if shared and n <= LISTED else None, norm)
        return AxisChoice(choice.strategy, choice.name, choice.expected_error, choice.runners_up)
    return _best_shared(n)


def _best_shared(n: int) -> AxisChoice:
    """The best of identity, tents and trees that keep a root, by exact error on ranges and totals."""
    alone = auto_strategy(n)
    candidates = [_named(identity_strategy(n), "identity", True), _named(alone.strategy, alone.name, True)]
    for k in sorted({k for k in ARITIES if k <= n} | ({n} if n <= FLAT else set())):
        tree = kary_tree(n, k)
        use = (1 - TOTAL_WEIGHT) * coverage(tree)
        use[0] += TOTAL_WEIGHT
        candidates.append(_named(tree_strategy(tree, split(tree, use)), f"LUE-DPTree k={k}", True))
    best, *others = sorted(candidates, key=lambda choice: choice.expected_error)
    runners_up = tuple((choice.name, choice.expected_error) for choice in others)
    return best._replace(strategy=_without_crumbs(best.strategy), runners_up=runners_up)


def _with_total(n: int) -> Workload:
    """All ranges and, as often as all of them together, the total."""
    lo, stop = np.triu_indices(n + 1, 1)
    weight = np.append(np.full(len(lo), (1 - TOTAL_WEIGHT) / len(lo)), TOTAL_WEIGHT)
    return Workload(np.append(lo, 0), np.append(stop, n), weight)


def _without_crumbs(strategy: Strategy) -> Strategy:
    """The same tree with negligible inner budgets left to the leaves below them."""
    if strategy.tree is None:
        return strategy
    share = np.zeros(strategy.tree.size)
    share[strategy.node] = strategy.budget / strategy.total
    return tree_strategy(strategy.tree, np.where(share < CRUMB, 0.0, share), strategy.total)


def _named(strategy: Strategy, name: str, shared: bool) -> AxisChoice:
    """A choice with its exact expected error: on all ranges, and on the total where the axis is shared."""
    error = expected_error(strategy)
    if shared:
        factor = 2.0 if strategy.norm == 1 else 1.0
        total = factor * float(variance_model(strategy).ranges([0], [strategy.n])[0])
        error = (1 - TOTAL_WEIGHT) * error + TOTAL_WEIGHT * total
    return AxisChoice(strategy, name, error, ())
