"""Which strategy an axis gets: what the catalog names, or the one with the least exact expected error.

An axis that stands alone in its views is asked for ranges. An axis that shares its views with others is
asked for its total as often as for ranges, because a query that uses only the other axes needs it; a
strategy without a root would answer those worst.

**Privacy**: a function of the number of leaves and of public facts alone.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpsql.errors import CatalogError
from dpsql.mechanisms.central.auto import auto_strategy, expected_error
from dpsql.mechanisms.central.gaussian import DENSE_SCALE
from dpsql.mechanisms.central.lue_dptree import best_lue_dptree, identity_strategy, tree_strategy
from dpsql.mechanisms.central.strategy import Strategy
from dpsql.mechanisms.central.struct_construct import best_struct_construct, equal_strategy
from dpsql.mechanisms.central.tents import half_widths, tents
from dpsql.mechanisms.central.zero_sum import zero_sum_strategy
from dpsql.tree import Workload

TINY = 2
"""Up to this many leaves nothing beats measuring each leaf."""

WHOLE = 0.5
"""How often a query on an axis that shares its views asks for the axis's total."""

CRUMB = 1 / 128
"""Inner nodes of a shared axis with less of the budget than this are left out: their precision is under
1/16,384 of the axis's, and a product of such shares over three axes would round to no budget at all."""


COARSEST = 1 << 6
"""Dense rows rounded to 1/64 cost a few percent of the variance; coarser ones are not worth measuring."""


class AxisChoice(NamedTuple):
    """A strategy with what it is in words, its expected error and those of the runners-up."""

    strategy: Strategy
    name: str
    expected_error: float
    runners_up: tuple[tuple[str, float], ...]


def axis_strategy(
    n: int,
    mechanism: str,
    *,
    shared: bool,
    norm: int = 1,
    workload: Workload | None = None,
    scale: int = DENSE_SCALE,
) -> AxisChoice:
    """The strategy of one axis.

    Args:
        n: number of leaves.
        mechanism: the catalog's word, or `auto`.
        shared: whether the axis stands in views with other axes.
        norm: 1 for Laplace noise (pure epsilon), 2 for Gaussian noise (zCDP).
        workload: the ranges asked; None means all ranges, equally often.
        scale: dense rows are rounded to multiples of 1 / scale; below `COARSEST` there are none.

    Returns:
        The choice.

    Raises:
        CatalogError: the mechanism is not one that measures an axis on its own.
    """
    if workload is None:
        return _for_all_ranges(n, mechanism, shared, norm, scale)
    return _for_workload(n, mechanism, shared, norm, scale, workload)


@lru_cache(maxsize=64)  # a stream plans the same axes at every append
def _for_all_ranges(n: int, mechanism: str, shared: bool, norm: int, scale: int) -> AxisChoice:
    return _for_workload(n, mechanism, shared, norm, scale, None)


def _for_workload(
    n: int, mechanism: str, shared: bool, norm: int, scale: int, workload: Workload | None
) -> AxisChoice:
    choice = _choose(n, mechanism, WHOLE if shared else 0.0, norm, max(scale, COARSEST), workload)
    kind = choice.strategy.kind
    if (shared and kind == "sine") or (scale < COARSEST and kind in ("sine", "dense")):
        # Sine rows have large entries: products with those of other axes would not fit in 64 bits.
        choice = _choose(n, "lue_dptree", WHOLE if shared else 0.0, norm, scale, workload)
    return choice._replace(strategy=_without_crumbs(choice.strategy)) if shared else choice


def _choose(
    n: int, mechanism: str, whole: float, norm: int, scale: int, workload: Workload | None
) -> AxisChoice:
    if mechanism == "residual":
        return _named(zero_sum_strategy(n, workload, scale), "residual rows", 0.0, workload)
    if n <= TINY or mechanism == "identity":
        return _named(identity_strategy(n, norm), "identity", whole, workload)
    if mechanism in ("auto", "gaussian"):
        choice = auto_strategy(n, workload, norm, whole, scale)
        return AxisChoice(choice.strategy, choice.name, choice.expected_error, choice.runners_up)
    if mechanism in ("lue_dptree", "tree"):
        strategy, k = best_lue_dptree(n, workload, norm=norm, whole=whole)
        return _named(strategy, f"LUE-DPTree k={k}", whole, workload)
    if mechanism == "struct_construct" and norm == 1:
        return _named(equal_strategy(best_struct_construct(n)), "Struct-Construct", whole, workload)
    if mechanism == "tents" and norm == 1:
        levels = 1 + sum(n >= limit for limit in (560, 11_000, 200_000))
        widths = half_widths(n, levels, 1.25)
        name = f"graded tents of half-width {', '.join(map(str, widths))}"
        return _named(tents(n, widths, graded=True), name, whole, workload)
    raise CatalogError(f"mechanism `{mechanism}` does not fit this release", hint="write `mechanism: auto`")


def _without_crumbs(strategy: Strategy) -> Strategy:
    """The same tree with negligible inner budgets left to the leaves below them."""
    if strategy.tree is None:
        return strategy
    share = np.zeros(strategy.tree.size)
    share[strategy.node] = strategy.budget / strategy.total
    return tree_strategy(strategy.tree, np.where(share < CRUMB, 0.0, share), strategy.total, strategy.norm)


def _named(strategy: Strategy, name: str, whole: float, workload: Workload | None) -> AxisChoice:
    """A choice with its exact expected error."""
    return AxisChoice(strategy, name, expected_error(strategy, workload, whole), ())
