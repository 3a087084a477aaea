"""What a release will measure, decided before anything private is read: axes, strategies, budgets.

The plan follows from the catalog and from public tables alone. It fixes the node set, every noise scale
and so every predicted error; publishing then only fills in numbers.

| here | there | unit |
|---|---|---|
| `PlannedStatistic.epsilon` | share of the view times share of the measure | epsilon |
| `PlannedStatistic.sensitivity` | M: what one unit changes, tau times the measure's reach | stored integers |
| `family` | statistics of one table and one measure, which are reconciled | - |

**Privacy**: the statistics' epsilons add up to at most the catalog's epsilon, in exact fractions.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import prod

from dpsql.axis import Axis
from dpsql.catalog.graph import ResolvedAxis, max_ids, view_axes
from dpsql.catalog.measures import ResolvedMeasure, view_measures
from dpsql.catalog.model import Catalog
from dpsql.errors import CatalogError
from dpsql.mechanisms.central.choose import AxisChoice, axis_strategy
from dpsql.mechanisms.central.strategy import Strategy
from dpsql.publishing.axes import AxisMaker
from dpsql.publishing.measures import Bounds


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
class PlannedStatistic:
    """A statistic before it is drawn.

    Args:
        view, of: the view and the table whose rows it counts.
        measure: what is counted or summed.
        axes: axis ids, increasing.
        epsilon: what the noise is drawn for; half of `charge` under replace-one neighbours.
        charge: what the ledger is charged.
        tau: rows kept of one unit.
        bounds: the measure's bounds, or None for counts.
    """

    view: str
    of: str
    measure: ResolvedMeasure
    axes: tuple[int, ...]
    epsilon: Fraction
    charge: Fraction
    tau: int
    bounds: Bounds | None

    @property
    def sensitivity(self) -> int:
        """The most that one unit changes the cells, in L1."""
        return self.tau * (self.bounds.reach if self.bounds else 1)

    @property
    def family(self) -> tuple[str, str]:
        """Statistics of one family estimate the same margins."""
        return self.of, self.measure.name


@dataclass(frozen=True)
class ReleasePlan:
    """All that a release will measure."""

    catalog: Catalog
    axes: tuple[PlannedAxis, ...]
    statistics: tuple[PlannedStatistic, ...]

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
    planned: dict[tuple[ResolvedAxis, str, bool], tuple[int, PlannedAxis]] = {}
    statistics: list[PlannedStatistic] = []
    for name, view in catalog.views.items():
        ids = []
        for resolved in view_axes(catalog, view):
            key = (resolved, view.mechanism, len(view.axes) > 1)
            if key not in planned:
                axis = make_axis(resolved)
                choice = axis_strategy(axis.leaves, view.mechanism, shared=key[2])
                planned[key] = (len(planned), PlannedAxis(resolved, axis, choice))
            ids.append(planned[key])
        _check_cells(name, view.cells, [entry.axis for _, entry in ids])
        statistics += _statistics(catalog, name, tuple(sorted(i for i, _ in ids)))
    return ReleasePlan(catalog, tuple(entry for _, entry in planned.values()), tuple(statistics))


def _statistics(catalog: Catalog, name: str, axes: tuple[int, ...]) -> list[PlannedStatistic]:
    """What one view measures, each with its exact budget."""
    view = catalog.views[name]
    factor = Fraction(1, 2) if catalog.privacy.neighbours == "replace_one" else Fraction(1)
    share, tau = catalog.shares[name] * catalog.privacy.epsilon, _tau(catalog, view.of)
    found = []
    for measure in view_measures(catalog, view):
        bounds = None if measure.is_count else Bounds(*measure.bounds, measure.scale)
        charge = share * measure.share
        found.append(PlannedStatistic(name, view.of, measure, axes, charge * factor, charge, tau, bounds))
    return found


def _check_cells(view: str, cap: int, axes: list[Axis]) -> None:
    cells = prod(axis.leaves for axis in axes)
    if cells > cap:
        sizes = " x ".join(f"{axis.leaves} ({axis.name})" for axis in axes)
        raise CatalogError(
            f"views.{view}: {sizes} = {cells} cells are over the cap of {cap}",
            hint="cut the axes wider (`cuts`, `coarsen`), drop an axis, or raise `cells`",
        )


def _tau(catalog: Catalog, of: str) -> int:
    declared = max_ids(catalog, of)
    if isinstance(declared, str):
        raise CatalogError(
            f"tables.{of}.max_ids: auto is not available for this kind of release",
            hint="write how many rows of one unit may count",
        )
    return declared
