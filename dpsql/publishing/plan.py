"""What a release will measure, decided before anything private is read: axes, strategies, budgets.

The plan follows from the catalog and from public tables alone. It fixes the node set, every noise scale
and so every predicted error; publishing then only fills in numbers.

| here | there | unit |
|---|---|---|
| `PlannedStatistic.charge` | share of the view times share of the measure | epsilon, or rho where delta > 0 |
| `PlannedStatistic.spend` | what the noise is drawn for, in its own currency | epsilon (norm 1), rho (norm 2) |
| `PlannedStatistic.sensitivity` | M: what one unit changes, tau times the measure's reach | stored integers |
| `family` | statistics of one table and one measure, which are reconciled | - |
| `shape` | part of the views' budget of a `max_ids: auto` table; its noise scale is chosen at publish | - |

**Privacy**: the statistics' charges add up to at most the catalog's epsilon (or the rho of its epsilon and
delta), in exact fractions. Under replace-one neighbours noise is drawn for half the epsilon or a quarter of
the rho that is charged. A pure draw on a rho ledger gets the largest epsilon with epsilon^2 / 2 <= rho.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isqrt, prod
from typing import NamedTuple

from dpsql.axis import Axis
from dpsql.budget import DENOMINATOR, rho_of
from dpsql.catalog.graph import ResolvedAxis, max_ids, view_axes
from dpsql.catalog.measures import ResolvedMeasure, view_measures
from dpsql.catalog.model import Catalog
from dpsql.catalog.tables import AxisSpec
from dpsql.errors import CatalogError
from dpsql.mechanisms.central.adapted import PARTS
from dpsql.mechanisms.central.strategy import Strategy
from dpsql.mechanisms.central.whitened import UNIT
from dpsql.publishing.adapted import method_of
from dpsql.publishing.axes import AxisMaker
from dpsql.publishing.bounding import is_weighted, set_aside
from dpsql.publishing.measures import Bounds
from dpsql.publishing.planned_axes import SHAPE, AxisPlanner, PlannedAxis
from dpsql.publishing.userlevel_plan import Step, divide


class Groups(NamedTuple):
    """Factors of the groups along one axis of a view, relative to its table's ratio.

    Args:
        axis: id of the axis.
        factors: one for each leaf.
    """

    axis: int
    factors: tuple[float, ...]


@dataclass(frozen=True)
class Settled:
    """What the recipe for `max_ids: auto` chose for a statistic, from released values alone.

    Args:
        mid: the centre of the measure; 0 for counts.
        sensitivity: the most that one unit changes the statistic, in its mechanism's norm, rounded up.
        factor: what the drawn integers are multiplied by: the ratio R over the units of a weight.
        groups: further factors by group, for `calibrate: per_group`.
    """

    mid: int
    sensitivity: int
    factor: float
    groups: Groups | None = None


@dataclass(frozen=True)
class PlannedStatistic:
    """A statistic before it is drawn.

    Args:
        view, of: the view and the table whose rows it counts.
        measure: what is counted or summed.
        axes: axis ids, increasing.
        norm: 1 for Laplace, 2 for Gaussian noise.
        spend: what the noise is drawn for: epsilon (norm 1) or rho (norm 2).
        charge: what the ledger is charged, in the release's currency.
        tau: rows kept of one unit; 0 where `max_ids: auto` has not chosen yet.
        bounds: the measure's bounds, or None for counts.
        shape: for `max_ids: auto`, the statistic's part of what all views of the table spend, else 0.
        settled: for `max_ids: auto`, what was chosen at publish.
        method: the data-dependent mechanism, or an empty string.
        calibrated: for `calibrate: per_group`, which has factors of its own.
        weighted: whether rows are drawn with weights, in units of 2^-20.
    """

    view: str
    of: str
    measure: ResolvedMeasure
    axes: tuple[int, ...]
    norm: int
    spend: Fraction
    charge: Fraction
    tau: int
    bounds: Bounds | None
    shape: Fraction = Fraction(0)
    settled: Settled | None = None
    method: str = ""
    calibrated: bool = False
    weighted: bool = False

    @property
    def mid(self) -> int:
        """The centre that a sum is published around; 0 for counts."""
        if self.settled is not None:
            return self.settled.mid
        return self.bounds.mid if self.bounds else 0

    @property
    def factor(self) -> float:
        """What the drawn integers are multiplied by to estimate the answer."""
        if self.settled is not None:
            return self.settled.factor
        return 1.0 / UNIT if self.weighted else 1.0

    @property
    def drawn_sensitivity(self) -> int:
        """The sensitivity in the integers that are drawn."""
        return self.sensitivity * (UNIT if self.weighted else 1)

    @property
    def sensitivity(self) -> int:
        """The most that one unit changes the cells, in L1."""
        if self.settled is not None:
            return self.settled.sensitivity
        return self.tau * (self.bounds.reach if self.bounds else 1)

    @property
    def family(self) -> tuple[str, str]:
        """Statistics of one family estimate the same margins; data-dependent and calibrated ones stay alone."""
        return self.of, self.measure.name + (f" in {self.view}" if self.method or self.calibrated else "")

    @property
    def lines(self) -> list[tuple[str, Fraction]]:
        """Purpose and charge of its draws."""
        purpose = f"view {self.view}: {self.measure.name}"
        parts = PARTS.get(self.method, ())
        return [(f"{purpose}, {what}", self.charge * share) for what, share in parts] or [
            (purpose, self.charge)
        ]


@dataclass(frozen=True)
class ReleasePlan:
    """All that a release will measure."""

    catalog: Catalog
    axes: tuple[PlannedAxis, ...]
    statistics: tuple[PlannedStatistic, ...]
    steps: tuple[Step, ...] = ()

    @property
    def lines(self) -> list[tuple[str, Fraction]]:
        """Purpose and charge of everything that is drawn, in the release's currency."""
        return [
            *((step.purpose, step.charge) for step in self.steps),
            *(line for s in self.statistics for line in s.lines),
        ]

    def shape(self, statistic: PlannedStatistic) -> tuple[int, ...]:
        """Leaves of each of the statistic's axes."""
        return tuple(self.axes[axis].axis.leaves for axis in statistic.axes)

    def strategies(self, statistic: PlannedStatistic) -> list[Strategy]:
        """What is measured on each of the statistic's axes."""
        return [self.axes[axis].strategy for axis in statistic.axes]


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
    axes = AxisPlanner(make_axis)
    statistics: list[PlannedStatistic] = []
    for name, view in catalog.views.items():
        resolved = view_axes(catalog, view)
        _check_cells(name, view.cells, [axes.axis(entry) for entry in resolved])
        recipe = max_ids(catalog, view.of) == "auto"
        calibrated = _is_calibrated(catalog, name, recipe)
        method = "" if recipe else method_of(catalog, name, resolved, axes.axis(resolved[0]).leaves)
        if recipe:
            norm, own = 2 if catalog.privacy.delta else 1, name if calibrated else ""
            ids = [axes.planned(entry, SHAPE, False, norm, own=own) for entry in resolved]
        elif method:
            norm, ids = 1, [axes.adapted(resolved[0], method)]
        else:
            wanted = list(zip(resolved, view.axes, strict=True))
            norm = _norm(catalog, name, wanted, axes)
            ids = [axes.planned(entry, view.mechanism, len(wanted) > 1, norm, spec) for entry, spec in wanted]
        statistics += [
            replace(s, method=method, calibrated=calibrated)
            for s in _statistics(catalog, name, tuple(sorted(ids)), norm)
        ]
    steps: list[Step] = []
    for of in dict.fromkeys(s.of for s in statistics if max_ids(catalog, s.of) == "auto"):
        made, statistics = divide(catalog, of, statistics, lambda part, norm: _spend(catalog, part, norm))
        steps += made
    for of in dict.fromkeys(s.of for s in statistics):
        made, statistics = set_aside(catalog, of, statistics, lambda part, norm: _spend(catalog, part, norm))
        steps += made
    return ReleasePlan(catalog, tuple(axes.entries), tuple(statistics), tuple(steps))


def _norm(
    catalog: Catalog, name: str, wanted: Sequence[tuple[ResolvedAxis, AxisSpec]], axes: AxisPlanner
) -> int:
    """Which noise a view gets: Laplace under pure epsilon, else the one with the least exact error.

    Both errors are at rho 1/2: there a pure draw may spend epsilon 1 and a Gaussian one sigma 1.
    """
    mechanism = catalog.views[name].mechanism
    if catalog.privacy.delta == 0:
        if mechanism == "gaussian":
            raise CatalogError(
                f"views.{name}.mechanism: gaussian needs delta above 0", hint="write privacy.delta, or auto"
            )
        return 1
    if mechanism in ("gaussian", "tents", "struct_construct"):
        return 2 if mechanism == "gaussian" else 1
    shared = len(wanted) > 1
    laplace, gaussian = (
        [axes.choice(entry, mechanism, shared, norm, spec).expected_error for entry, spec in wanted]
        for norm in (1, 2)
    )
    return 1 if 2 * prod(error / 2 for error in laplace) <= prod(gaussian) else 2


def _statistics(catalog: Catalog, name: str, axes: tuple[int, ...], norm: int) -> list[PlannedStatistic]:
    """What one view measures, each with its exact budget."""
    view, privacy = catalog.views[name], catalog.privacy
    whole = rho_of(privacy.epsilon, privacy.delta) if privacy.delta else privacy.epsilon
    tau = _tau(catalog, view.of)
    found = []
    for measure in view_measures(catalog, view):
        bounds = None if measure.is_count else Bounds(*measure.bounds, measure.scale)
        charge = whole * catalog.shares[name] * measure.share
        spend = _spend(catalog, charge, norm)
        found.append(
            PlannedStatistic(
                name, view.of, measure, axes, norm, spend, charge, tau, bounds, weighted=is_weighted(catalog, view.of)
            )
        )
    return found


def _spend(catalog: Catalog, charge: Fraction, norm: int) -> Fraction:
    """What a charge buys under the catalog's neighbours, in the noise's own currency."""
    replace = catalog.privacy.neighbours == "replace_one"
    if catalog.privacy.delta == 0:
        return charge / 2 if replace else charge
    rho = charge / 4 if replace else charge
    if norm == 2:
        return rho
    return Fraction(isqrt(2 * rho.numerator * DENOMINATOR**2 // rho.denominator), DENOMINATOR)


def _is_calibrated(catalog: Catalog, name: str, recipe: bool) -> bool:
    """Whether a view gets factors by group; only shapes with a scale can have them."""
    asked = catalog.views[name].calibrate == "per_group"
    if asked and not recipe:
        raise CatalogError(
            f"views.{name}.calibrate: per_group goes with `max_ids: auto`", hint="remove it, or write max_ids: auto"
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
