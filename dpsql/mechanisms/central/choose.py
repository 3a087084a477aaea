"""Which strategy an axis gets: what the catalog names, or the one with the least exact expected error.

**Privacy**: a function of the number of leaves and of public facts alone.
"""

from __future__ import annotations

from dpsql.errors import CatalogError
from dpsql.mechanisms.central.lue_dptree import best_lue_dptree, identity_strategy
from dpsql.mechanisms.central.strategy import Strategy
from dpsql.mechanisms.central.struct_construct import best_struct_construct, equal_strategy

TINY = 2
"""Up to this many leaves nothing beats measuring each leaf."""


def axis_strategy(n: int, mechanism: str) -> tuple[Strategy, str]:
    """The strategy of one axis under pure epsilon.

    Args:
        n: number of leaves.
        mechanism: the catalog's word, or `auto`.

    Returns:
        (strategy, what it is in words).

    Raises:
        CatalogError: the mechanism is not one for a single axis under pure epsilon.
    """
    if mechanism == "identity" or n <= TINY:
        return identity_strategy(n), f"identity over {n} leaves"
    if mechanism in ("auto", "lue_dptree", "tree"):
        strategy, k = best_lue_dptree(n)
        return strategy, f"LUE-DPTree with {k} children per node over {n} leaves"
    if mechanism == "struct_construct":
        return equal_strategy(best_struct_construct(n)), f"Struct-Construct tree over {n} leaves"
    raise CatalogError(f"mechanism `{mechanism}` needs another kind of release", hint="write `mechanism: auto`")
