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
from dpsql.mechanisms.central.auto import Choice, auto_strategy, expected_error
from dpsql.mechanisms.central.lue_dptree import best_lue_dptree, identity_strategy
from dpsql.mechanisms.central.strategy import Strategy
from dpsql.mechanisms.central.struct_construct import best_struct_construct, equal_strategy
from dpsql.mechanisms.central.tents import half_widths, tents
from dpsql.tree import Workload

TINY = 2
"""Up to this many leaves nothing beats measuring each leaf."""

EVERY_RANGE = 300
"""Up to this many leaves all ranges are listed (45,150); beyond, evenly spaced ones stand for them."""

SPACED = 64
"""Starts and stops of the ranges that stand for all on a long axis: 2,080 ranges."""


class AxisChoice(NamedTuple):
    """A strategy with what it is in words, its expected error and those of the runners-up."""

    strategy: Strategy
    name: str
    expected_error: float
    runners_up: tuple[tuple[str, float], ...]


def shared_workload(n: int) -> Workload:
    """Ranges of an axis that shares its views: half the weight on the total, half on all ranges.

    Args:
        n: number of leaves.

    Returns:
        The ranges with weights that add up to 1.
    """
    cuts = np.arange(n + 1) if n <= EVERY_RANGE else np.unique(np.linspace(0, n, SPACED + 1).astype(np.int64))
    i, j = np.triu_indices(len(cuts), 1)
    lo, hi = np.append(cuts[i], 0), np.append(cuts[j], n)
    weight = np.append(np.full(len(i), 0.5 / len(i)), 0.5)
    return Workload(lo.astype(np.int64), hi.astype(np.int64), weight)


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
    workload = shared_workload(n) if shared and n > 1 else None
    if n <= TINY or mechanism == "identity":
        return _named(identity_strategy(n, norm), "identity", workload)
    if mechanism in ("auto", "gaussian"):
        return _chosen(auto_strategy(n, workload, norm))
    if mechanism in ("lue_dptree", "tree"):
        strategy, k = best_lue_dptree(n, workload, norm=norm)
        return _named(strategy, f"LUE-DPTree k={k}", workload)
    if mechanism == "struct_construct" and norm == 1:
        return _named(equal_strategy(best_struct_construct(n)), "Struct-Construct", workload)
    if mechanism == "tents" and norm == 1:
        widths = half_widths(n, 1, 1.25)
        return _named(tents(n, widths), f"tents of half-width {', '.join(map(str, widths))}", workload)
    raise CatalogError(f"mechanism `{mechanism}` does not fit this release", hint="write `mechanism: auto`")


def _chosen(choice: Choice) -> AxisChoice:
    return AxisChoice(choice.strategy, choice.name, choice.expected_error, choice.runners_up)


def _named(strategy: Strategy, name: str, workload: Workload | None) -> AxisChoice:
    return AxisChoice(strategy, name, expected_error(strategy, workload), ())
