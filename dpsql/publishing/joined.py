"""Which views are measured together: those that say `mechanism: residual`, and `auto` views where it errs less.

**Privacy**: a function of the catalog and of numbers of leaves, all public.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dpsql.catalog.graph import max_ids, view_axes
from dpsql.catalog.model import Catalog
from dpsql.errors import CatalogError
from dpsql.mechanisms.axis.choose import COARSEST
from dpsql.mechanisms.axis.dense import DENSE_LEAVES
from dpsql.publishing.planned import PlannedStatistic
from dpsql.publishing.planned_axes import AxisPlanner
from dpsql.publishing.residual import Buy, asked_sets, families, mean_error, spread_out

MOST_LEAVES = 512
"""Zero-sum rows of this many leaves take a second to find; longer axes have to ask for them."""

MOST_AXES = 4
"""A view of d axes brings 2^d statistics."""

PlanView = Callable[[str, AxisPlanner, bool], list[PlannedStatistic]]
"""(view, planner, whether it is joined) -> its statistics."""


def joined_views(catalog: Catalog, axes: AxisPlanner, plan_view: PlanView, buy: Buy) -> frozenset[str]:
    """The views that the residual design measures.

    Args:
        catalog: a checked catalog.
        axes: makes axes and strategies.
        plan_view: plans one view.
        buy: (charge, law) -> what it buys.

    Raises:
        CatalogError: a view asks for the design and cannot have it.
    """
    named = {name for name, view in catalog.views.items() if view.mechanism == "residual"}
    for name in sorted(named):
        _check(catalog, name, axes)
    for of in dict.fromkeys(view.of for view in catalog.views.values()):
        names = [name for name, view in catalog.views.items() if view.of == of]
        if all(_may(catalog, name, axes) for name in names) and _gains(names, axes, plan_view, buy):
            named |= set(names)
    return frozenset(named)


def _check(catalog: Catalog, name: str, axes: AxisPlanner) -> None:
    """Refuse the design where it has no meaning."""
    where, of = f"views.{name}.mechanism: residual", catalog.views[name].of
    if catalog.privacy.delta == 0:
        raise CatalogError(f"{where} needs delta above 0", hint="write privacy.delta, or `mechanism: auto`")
    if max_ids(catalog, of) == "auto":
        raise CatalogError(
            f"{where} needs a declared number in max_ids of {of}", hint="write it, or `auto` here"
        )
    if catalog.stream is not None:
        raise CatalogError(f"{where} is not made batch by batch", hint="write `mechanism: auto` in a stream")
    for entry in view_axes(catalog, catalog.views[name]):
        n = axes.axis(entry).leaves
        if not 2 <= n <= DENSE_LEAVES:
            raise CatalogError(
                f"{where} takes axes of 2 to {DENSE_LEAVES} leaves and {axes.axis(entry).name} has {n}",
                hint="cut it wider (`cuts`, `coarsen`), leave it out, or write `mechanism: auto`",
            )


def _may(catalog: Catalog, name: str, axes: AxisPlanner) -> bool:
    """Whether `auto` may join a view: the curator left its mechanism and its share open, and it is not too large."""
    view = catalog.views[name]
    if catalog.privacy.delta == 0 or catalog.stream is not None or max_ids(catalog, view.of) == "auto":
        return False
    if view.mechanism != "auto" or view.share is not None or view.data_dependent == "allow":
        return False
    leaves = [axes.axis(entry).leaves for entry in view_axes(catalog, view)]
    return (
        axes.scales[1] >= COARSEST and len(leaves) <= MOST_AXES and all(2 <= n <= MOST_LEAVES for n in leaves)
    )


def _gains(names: Sequence[str], axes: AxisPlanner, plan_view: PlanView, buy: Buy) -> bool:
    """Whether the mean error, relative to that of views measured one by one, is below 1."""
    apart, together = axes.trial(), axes.trial()
    alone = [s for name in names for s in plan_view(name, apart, False)]
    joined = [s for name in names for s in plan_view(name, together, True)]
    kinds = families(alone)
    if all(len(s.axes) == 1 for s in alone) and len(names) == 1:
        return False
    if any(len({s.axes for s in kind}) < len(kind) for kind in kinds):
        return False
    spread = {kind[0].measure.name: kind for kind in families(spread_out(together.entries, joined, buy))}
    ratios = []
    for kind, declared in zip(kinds, families(joined), strict=True):
        before = mean_error(apart.entries, kind, asked_sets(kind))
        after = mean_error(together.entries, spread[declared[0].measure.name], asked_sets(declared))
        ratios.append(after / before)
    return sum(ratios) / len(ratios) < 1
