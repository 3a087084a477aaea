"""Which views are measured by data-dependent mechanisms, and what the plan says of them.

A view opts in by naming `diffhr` or `dawa`, or by `data_dependent: allow` beside `mechanism: auto`. Such a view has
one axis, counts rows, and is never reconciled with other views: its noise is not known beforehand, and DiffHR's and
DAWA's estimates are biased.

**Privacy**: a function of the catalog. Each part of a mechanism has a ledger line of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from dpsql.catalog.graph import ResolvedAxis, max_ids
from dpsql.catalog.model import Catalog
from dpsql.errors import CatalogError
from dpsql.mechanisms.axis.choose import auto_strategy
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.question import AxisChoice, expected_error
from dpsql.mechanisms.central.adapted import ADAPTIVE, DAWA, DIFFHR, MOST_LEAVES

BIASED = (DIFFHR, DAWA)


def method_of(catalog: Catalog, name: str, axes: Sequence[ResolvedAxis], leaves: int) -> str:
    """The data-dependent mechanism of a view, or an empty string.

    Args:
        catalog: the catalog.
        name: the view.
        axes: its axes.
        leaves: of its first axis.

    Returns:
        `diffhr`, `dawa`, `adaptive` or "". A view that only allows `adaptive` gets it where it fits.

    Raises:
        CatalogError: the view names a mechanism that does not fit it.
    """
    view = catalog.views[name]
    named = view.mechanism in BIASED
    if not named and (view.mechanism != "auto" or view.data_dependent != "allow"):
        return ""
    reasons = {
        "measures one axis": len(axes) == 1,
        "measures counts": set(view.measures) == {"count"},
        f"takes at most {MOST_LEAVES} leaves": leaves <= MOST_LEAVES,
        "needs a declared max_ids": max_ids(catalog, view.of) != "auto",
    }
    short = [reason for reason, met in reasons.items() if not met]
    if short and named:
        raise CatalogError(
            f"views.{name}.mechanism: {view.mechanism} {short[0]}", hint="write `mechanism: auto`"
        )
    if short:
        return ""
    return view.mechanism if named else ADAPTIVE


def adapted_choice(method: str, leaves: int) -> AxisChoice:
    """What a plan says of a data-dependent axis: the unbiased optimum, or leaves where nothing is known before.

    Args:
        method: from `method_of`.
        leaves: of the axis.
    """
    if method == ADAPTIVE:
        best = auto_strategy(leaves)
        return AxisChoice(
            best.strategy, f"by noisy signal, {best.name} if full", best.expected_error, best.runners_up
        )
    leaf = LeafStrategy(leaves)
    return AxisChoice(leaf, {DIFFHR: "DiffHR", DAWA: "DAWA"}[method], expected_error(leaf), ())
