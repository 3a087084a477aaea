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

from dpsql.axis import Axis
from dpsql.budget import DENOMINATOR, rho_of
from dpsql.catalog.graph import ResolvedAxis, max_ids, view_axes
from dpsql.catalog.measures import ResolvedMeasure, view_measures
from dpsql.catalog.model import Catalog
from dpsql.errors import CatalogError
from dpsql.mechanisms.central.adapted import PARTS
from dpsql.mechanisms.central.choose import AxisChoice, axis_strategy
from dpsql.mechanisms.central.shape import shape_strategy
from dpsql.mechanisms.central.strategy import Strategy
from dpsql.publishing.adapted import adapted_choice, method_of
from dpsql.publishing.axes import AxisMaker
from dpsql.publishing.measures import Bounds
from dpsql.publishing.userlevel_plan import Step, divide

SHAPE = "shape"
"""How axes of `max_ids: auto` views are measured, whatever mechanism the view names."""


@dataclass(frozen=True)
class PlannedAxis:
    """An axis together with what will be measured on it."""

    resolved: ResolvedAxis
    axis: Axis
    choice: AxisChoice

    @property
    def strategy(self) -> Strategy:
        """What is measured on the axis."""
        return self.choice.strategy


@dataclass(frozen=True)
class Settled:
    """What the recipe for `max_ids: auto` chose for a statistic, from released values alone.

    Args:
        mid: the centre of the measure; 0 for counts.
        sensitivity: the most that one unit changes the statistic, in its mechanism's norm, rounded up.
        factor: what the drawn integers are multiplied by: the ratio R over the units of a weight.
    """

    mid: int
    sensitivity: int
    factor: float


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

    @property
    def mid(self) -> int:
        """The centre that a sum is published around; 0 for counts."""
        if self.settled is not None:
            return self.settled.mid
        return self.bounds.mid if self.bounds else 0

    @property
    def factor(self) -> float:
        """What the drawn integers are multiplied by to estimate the answer."""
        return self.settled.factor if self.settled is not None else 1.0

    @property
    def sensitivity(self) -> int:
        """The most that one unit changes the cells, in L1."""
        if self.settled is not None:
            return self.settled.sensitivity
        return self.tau * (self.bounds.reach if self.bounds else 1)

    @property
    def family(self) -> tuple[str, str]:
        """Statistics of one family estimate the same margins; a data-dependent one stays alone."""
        return self.of, self.measure.name + (f" in {self.view}" if self.method else "")

    @property
    def lines(self) -> list[tuple[str, Fraction]]:
        """Purpose and charge of its draws."""
        purpose = f"view {self.view}: {self.measure.name}"
        parts = PARTS.get(self.method, ())
        return [(f"{purpose}, {what}", self.charge * share) for what, share in parts] or [(purpose, self.charge)]


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
    axes = _Axes(make_axis)
    statistics: list[PlannedStatistic] = []
    for name, view in catalog.views.items():
        resolved = view_axes(catalog, view)
        _check_cells(name, view.cells, [axes.axis(entry) for entry in resolved])
        method = method_of(catalog, name, resolved, axes.axis(resolved[0]).leaves)
        if max_ids(catalog, view.of) == "auto":
            norm = 2 if catalog.privacy.delta else 1
            ids = [axes.planned(entry, SHAPE, False, norm) for entry in resolved]
        elif method:
            norm, ids = 1, [axes.adapted(resolved[0], method)]
        else:
            norm = _norm(catalog, name, resolved, axes)
            ids = [axes.planned(entry, view.mechanism, len(resolved) > 1, norm) for entry in resolved]
        statistics += [replace(s, method=method) for s in _statistics(catalog, name, tuple(sorted(ids)), norm)]
    steps: list[Step] = []
    for of in dict.fromkeys(s.of for s in statistics if max_ids(catalog, s.of) == "auto"):
        made, statistics = divide(catalog, of, statistics, lambda part, norm: _spend(catalog, part, norm))
        steps += made
    return ReleasePlan(catalog, tuple(axes.entries), tuple(statistics), tuple(steps))


class _Axes:
    """The axes planned so far; equal axes with equal strategies are one."""

    def __init__(self, make_axis: AxisMaker) -> None:
        self._make = make_axis
        self._made: dict[ResolvedAxis, Axis] = {}
        self._choices: dict[tuple[int, str, bool, int], AxisChoice] = {}
        self._ids: dict[tuple[ResolvedAxis, str, bool, int], int] = {}
        self.entries: list[PlannedAxis] = []

    def axis(self, resolved: ResolvedAxis) -> Axis:
        if resolved not in self._made:
            self._made[resolved] = self._make(resolved)
        return self._made[resolved]

    def choice(self, resolved: ResolvedAxis, mechanism: str, shared: bool, norm: int) -> AxisChoice:
        key = (self.axis(resolved).leaves, mechanism, shared, norm)
        if key not in self._choices and mechanism == SHAPE:
            self._choices[key] = shape_strategy(key[0], norm)
        elif key not in self._choices:
            self._choices[key] = axis_strategy(key[0], mechanism, shared=shared, norm=norm)
        return self._choices[key]

    def adapted(self, resolved: ResolvedAxis, method: str) -> int:
        """An axis of its own: its variance model will be known when it is drawn."""
        axis = self.axis(resolved)
        self.entries.append(PlannedAxis(resolved, axis, adapted_choice(method, axis.leaves)))
        return len(self.entries) - 1

    def planned(self, resolved: ResolvedAxis, mechanism: str, shared: bool, norm: int) -> int:
        key = (resolved, mechanism, shared, norm)
        if key not in self._ids:
            self._ids[key] = len(self.entries)
            choice = self.choice(resolved, mechanism, shared, norm)
            self.entries.append(PlannedAxis(resolved, self.axis(resolved), choice))
        return self._ids[key]


def _norm(catalog: Catalog, name: str, resolved: Sequence[ResolvedAxis], axes: _Axes) -> int:
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
    shared = len(resolved) > 1
    laplace, gaussian = (
        [axes.choice(entry, mechanism, shared, norm).expected_error for entry in resolved] for norm in (1, 2)
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
        found.append(PlannedStatistic(name, view.of, measure, axes, norm, spend, charge, tau, bounds))
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
