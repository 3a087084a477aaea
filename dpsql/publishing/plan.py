"""What a release will measure, decided before anything private is read: axes, strategies, budgets.

The plan follows from the catalog and from public tables alone. It fixes the node set, every noise scale
and so every predicted error; publishing then only fills in numbers.

**Privacy**: the statistics' charges add up to at most the catalog's epsilon (or the rho of its epsilon and
delta), in exact fractions. Under replace-one neighbours noise is drawn for half the epsilon or a quarter of
the rho that is charged. A pure draw on a rho ledger gets the largest epsilon with epsilon^2 / 2 <= rho.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from math import prod

from dpsql.axis import Axis
from dpsql.budget import rho_of
from dpsql.catalog.graph import ResolvedAxis, max_ids, view_axes
from dpsql.catalog.measures import view_measures
from dpsql.catalog.model import Catalog
from dpsql.catalog.tables import AxisSpec
from dpsql.errors import CatalogError
from dpsql.mechanisms.axis.dense import DENSE_SCALE
from dpsql.mechanisms.central.whitened import UNIT
from dpsql.mechanisms.family.residual import RESIDUAL as BY_SETS
from dpsql.mechanisms.law import GAUSSIAN, LAPLACE, NoiseLaw
from dpsql.publishing.adapted import method_of
from dpsql.publishing.axes import AxisMaker
from dpsql.publishing.bounding import is_weighted, set_aside
from dpsql.publishing.hats import compare_together
from dpsql.publishing.joined import joined_views
from dpsql.publishing.measures import Bounds
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.publishing.planned_axes import RESIDUAL, SHAPE, AxisPlanner
from dpsql.publishing.residual import spread_out
from dpsql.publishing.userlevel_plan import Step, divide

ROW_BITS = 24
"""Rows that dense strategies leave room for: sixteen million in one cell, each at its bound."""


ROOM = 16
"""Noise is hardly ever wider than sixteen times its scale."""


def plan_release(catalog: Catalog, make_axis: AxisMaker) -> ReleasePlan:
    """Plan a release.

    Args:
        catalog: a checked catalog.
        make_axis: builds an axis, reading public tables where it needs them.

    Returns:
        The plan.

    Raises:
        CatalogError: a view is over its cell cap, no views, or a bound is missing.
    """
    if not catalog.views:
        raise CatalogError("views: there are none", hint="declare at least one view")
    axes = AxisPlanner(make_axis, _scales(catalog))

    def plan_view(name: str, planner: AxisPlanner, joined: bool) -> list[PlannedStatistic]:
        return _plan_view(catalog, name, planner, joined)

    def buy(charge: Fraction, law: NoiseLaw) -> Fraction:
        return _spend(catalog, charge, law)

    together = joined_views(catalog, axes, plan_view, buy)
    declared = [s for name in catalog.views for s in plan_view(name, axes, name in together)]
    joined = [s for s in declared if s.view in together]
    statistics = [s for s in declared if s.view not in together]
    statistics += spread_out(axes.entries, joined, buy)
    steps: list[Step] = []
    for of in dict.fromkeys(s.of for s in statistics if max_ids(catalog, s.of) == "auto"):
        made, statistics = divide(catalog, of, statistics, buy)
        steps += made
    for of in dict.fromkeys(s.of for s in statistics):
        made, statistics = set_aside(catalog, of, statistics, buy)
        steps += made
    return ReleasePlan(catalog, tuple(axes.entries), tuple(statistics), tuple(steps))


def _plan_view(catalog: Catalog, name: str, axes: AxisPlanner, joined: bool) -> list[PlannedStatistic]:
    """The statistics of one view; `joined` if the residual design will measure it together with others."""
    view = catalog.views[name]
    resolved = view_axes(catalog, view)
    _check_cells(name, view.cells, [axes.axis(entry) for entry in resolved])
    wanted = list(zip(resolved, view.axes, strict=True))
    recipe = max_ids(catalog, view.of) == "auto"
    calibrated = _is_calibrated(catalog, name, recipe)
    method = None if recipe else method_of(catalog, name, resolved, axes.axis(resolved[0]).leaves)
    measurement = BY_SETS if joined else method or compare_together(catalog, name, axes)
    choices = measurement.axis_choices([axes.axis(entry).leaves for entry in resolved])
    if recipe:
        law = _open_law(catalog)
        own = name if calibrated else ""
        ids = [axes.planned(entry, SHAPE, False, law, own=own) for entry in resolved]
    elif choices is not None:
        law, ids = LAPLACE, [axes.apart(*own) for own in zip(resolved, choices, strict=True)]
    elif joined:
        law, ids = GAUSSIAN, [axes.planned(entry, RESIDUAL, True, GAUSSIAN, spec) for entry, spec in wanted]
    else:
        law = _law(catalog, name, wanted, axes)
        ids = [axes.planned(entry, view.mechanism, len(wanted) > 1, law, spec) for entry, spec in wanted]
    found = _statistics(catalog, name, tuple(sorted(ids)), law)
    return [replace(s, measurement=measurement, calibrated=calibrated) for s in found]


def _scales(catalog: Catalog) -> tuple[int, int]:
    """The grain of dense rows on axes of their own and on shared ones.

    Products of as many rows as a view has axes, summed over all of a table's rows, must fit in 62 bits.
    """
    widest = max(len(view.axes) for view in catalog.views.values())
    largest = 1
    for view in catalog.views.values():
        unit = UNIT if is_weighted(catalog, view.of) else 1
        largest = max(
            [largest, *(unit * Bounds(*m.bounds, m.scale).reach for m in view_measures(catalog, view))]
        )
    room = max(0, 62 - ROW_BITS - largest.bit_length())
    return min(DENSE_SCALE, 1 << room), min(DENSE_SCALE, 1 << room // widest)


def _open_law(catalog: Catalog) -> NoiseLaw:
    """The noise of views that have no choice."""
    return GAUSSIAN if catalog.privacy.delta else LAPLACE


def _law(
    catalog: Catalog, name: str, wanted: Sequence[tuple[ResolvedAxis, AxisSpec]], axes: AxisPlanner
) -> NoiseLaw:
    """Which noise a view gets: Laplace under pure epsilon, else the one with the least exact error.

    Both errors are at rho 1/2: there a pure draw may spend epsilon 1 and a Gaussian one sigma 1.
    """
    mechanism = catalog.views[name].mechanism
    if catalog.privacy.delta == 0:
        if mechanism == "gaussian":
            raise CatalogError(
                f"views.{name}.mechanism: gaussian needs delta above 0", hint="write privacy.delta, or auto"
            )
        return LAPLACE
    if mechanism in ("gaussian", "tents", "struct_construct"):
        return GAUSSIAN if mechanism == "gaussian" else LAPLACE
    shared = len(wanted) > 1
    laplace, gaussian = (
        [axes.choice(entry, mechanism, shared, law, spec).expected_error for entry, spec in wanted]
        for law in (LAPLACE, GAUSSIAN)
    )
    return LAPLACE if 2 * prod(error / 2 for error in laplace) <= prod(gaussian) else GAUSSIAN


def _statistics(catalog: Catalog, name: str, axes: tuple[int, ...], law: NoiseLaw) -> list[PlannedStatistic]:
    """What one view measures, each with its exact budget."""
    view, privacy = catalog.views[name], catalog.privacy
    whole = rho_of(privacy.epsilon, privacy.delta) if privacy.delta else privacy.epsilon
    tau = _tau(catalog, view.of)
    found = []
    for measure in view_measures(catalog, view):
        bounds = None if measure.is_count else Bounds(*measure.bounds, measure.scale)
        charge = whole * catalog.shares[name] * measure.share
        spend = _spend(catalog, charge, law)
        if bounds is not None:
            _check_fits(name, measure.name, bounds.reach * max(tau, 1), charge)
        found.append(
            PlannedStatistic(
                name,
                view.of,
                measure,
                axes,
                law,
                spend,
                charge,
                tau,
                bounds,
                weighted=is_weighted(catalog, view.of),
            )
        )
    return found


def _check_fits(view: str, measure: str, most: int, charge: Fraction) -> None:
    """Estimates are 64-bit integers of 2^-20; a unit's part and its noise must leave room for other people's.

    Args:
        view, measure: for the error.
        most: the most that a unit changes a sum, in units of the measure's scale.
        charge: what the statistic spends, epsilon or rho.
    """
    if most * max(Fraction(1), 1 / charge) * ROOM >= 1 << 43:
        raise CatalogError(
            f"views.{view}.measures: sums of {measure} and their noise may not fit 64 bits",
            hint="narrow its bounds, lower its scale or max_ids, or give it a larger share",
        )


def _spend(catalog: Catalog, charge: Fraction, law: NoiseLaw) -> Fraction:
    """What a charge buys under the catalog's neighbours, in the noise's own currency."""
    replace = catalog.privacy.neighbours == "replace_one"
    if catalog.privacy.delta == 0:
        return charge / 2 if replace else charge
    return law.bought(charge / 4 if replace else charge)


def _is_calibrated(catalog: Catalog, name: str, recipe: bool) -> bool:
    """Whether a view gets factors by group; only shapes with a scale can have them."""
    asked = catalog.views[name].calibrate == "per_group"
    if asked and not recipe:
        raise CatalogError(
            f"views.{name}.calibrate: per_group goes with `max_ids: auto`",
            hint="remove it, or write max_ids: auto",
        )
    return asked


def _check_cells(view: str, cap: int, axes: list[Axis]) -> None:
    cells = prod(axis.leaves for axis in axes)
    if cells > cap:
        sizes = " x ".join(f"{axis.leaves} ({axis.name})" for axis in axes)
        raise CatalogError(
            f"views.{view}: {sizes} = {cells} cells are over the cap of {cap}",
            hint="cut the axes wider (`cuts`, `coarsen`), drop an axis, or raise `cells`",
        )


def _tau(catalog: Catalog, of: str) -> int:
    """The declared rows of one unit; 0 for auto, which is chosen at publish."""
    declared = max_ids(catalog, of)
    return 0 if isinstance(declared, str) else declared
