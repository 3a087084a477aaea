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
from dpsql.mechanisms.family.data_dependent import ADAPTIVE, MOST_LEAVES, NAMED, DataDependent


def method_of(catalog: Catalog, name: str, axes: Sequence[ResolvedAxis], leaves: int) -> DataDependent | None:
    """The data-dependent mechanism of a view, or None.

    Args:
        catalog: the catalog.
        name: the view.
        axes: its axes.
        leaves: of its first axis.

    Returns:
        What the view names. A view that only allows `ADAPTIVE` gets it where it fits.

    Raises:
        CatalogError: the view names a mechanism that does not fit it.
    """
    view = catalog.views[name]
    named = NAMED.get(view.mechanism)
    if named is None and (view.mechanism != "auto" or view.data_dependent != "allow"):
        return None
    reasons = {
        "measures one axis": len(axes) == 1,
        "measures counts": set(view.measures) == {"count"},
        f"takes at most {MOST_LEAVES} leaves": leaves <= MOST_LEAVES,
        "needs a declared max_ids": max_ids(catalog, view.of) != "auto",
    }
    short = [reason for reason, met in reasons.items() if not met]
    if short and named is not None:
        raise CatalogError(
            f"views.{name}.mechanism: {view.mechanism} {short[0]}", hint="write `mechanism: auto`"
        )
    if short:
        return None
    return named or ADAPTIVE
