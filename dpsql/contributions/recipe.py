"""The recipe for `max_ids: auto`: views with a low bound and one weight per person, scaled to totals with a high bound.

Read `settle_table` from the top. Every number that leaves the engine is noised at once, by the draw whose
ledger line is the step of the same name; what a step decides is computed from released numbers alone.

    bounds, totals and centres  selection.py        tau, N and S of each measure, mid
    norms per unit (zCDP)       here                K
    views                       here                weighted cells
    factors                     factors.py          R = N over the total of the views, one for each measure
    groups                      here                deviation of a group's share; post-processing

Views are reconciled family by family, as the release will be (`ReconciledViews`), before anything is scaled.

COUNT = R_N c and SUM = R_S (y + mid c). A release stores counts, and sums around mid, so beside R_S y the stored sum
has (R_S - R_N) mid c.

The people of a table are weighted by a clipping of contributions, one class for each noise distribution:

| class | weight of a unit |
|---|---|
| `Whitened` (Gaussian) | min(1, K / nu), nu the norm of all that the unit adds to all views |
| `Bounded` (Laplace) | min(1, tau / n, T / sum of sizes for each measure) |

A clipping answers for all that depends on the distribution: shares, noise, weights.

**Privacy**: docs/privacy/people.md, above all "3. The whitened clip (under a delta)" and "4. The pure twin".
**Source**: docs/method/rows.md, "One weight a person", "Shape and scale", "Intervals that cover the exact answer";
docs/method/views.md, "Views that share axes".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import partial
from math import ceil, hypot, isqrt, prod, sqrt
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from dpsql.catalog.base import MeasureName
from dpsql.central.placed_rows import row_value
from dpsql.central.planned import PlannedStatistic, ReleasePlan
from dpsql.contributions import selection, statements
from dpsql.contributions.constants import NORM_BINS, NORM_QUANTILE, NORM_START, TASTE
from dpsql.contributions.factors import Scaled, TotalsFactor, factors
from dpsql.contributions.histogram import PeopleEstimate, doubling_edges, pooled, quantile, spread
from dpsql.matrices.kronecker import ProductReading, Spread, parts_of
from dpsql.matrices.strategy import axis_budgets, measure_view
from dpsql.mechanisms.designs.measurement import DrawnMember
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution, NoisyView
from dpsql.mechanisms.offers import draw_view
from dpsql.tree import Exact, FloatArray


class ClippedView(NamedTuple):
    """A drawn view, and the most that one unit changes it, in the measure's own units."""

    view: NoisyView
    reach: int


Draw = Callable[[int, Exact], ClippedView]
"""(index in the plan, exact weighted cells) -> the statistic's one draw."""


ClippedViews = dict[int, ClippedView]
"""The low views of a table by index in the plan."""


class Clipping(Protocol):
    """Whatever depends on the distribution of a table's noise."""

    @property
    def shares(self) -> selection.StepShares:
        """Shares of the recipe's steps."""

    @property
    def order(self) -> int:
        """The power of k that a budget grows by where noise is to be a k-th."""

    def cell_variance(self, plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> float:
        """Predicted variance of one cell at a given tau and typical weights, in stored units of weight 1."""

    def draw(self, table: selection.RecipeTable, choices: selection.RecipeChoices) -> ClippedViews:
        """Weigh everybody and draw the views.

        **Privacy**: the shares of the views, and the steps of the clipping, each once.
        """


@dataclass(frozen=True)
class Bounded:
    """Rows and absolute sums of a unit are bounded, Laplace noise."""

    shares: ClassVar[selection.StepShares] = selection.StepShares(
        Fraction(3, 100), Fraction(0), Fraction(5, 100), Fraction(9, 100)
    )
    order: ClassVar[int] = 1

    def cell_variance(self, plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> float:
        return float(2 * (pure_reach(statistic, tau) / statistic.spend) ** 2)

    def draw(self, table: selection.RecipeTable, choices: selection.RecipeChoices) -> ClippedViews:
        reaches = [pure_reach(s, choices.tau) for s in table.sums.values()]
        values = [row_value(s, table.columns) for s in table.sums.values()]
        weights = statements.make_pure_weights(
            table.relations, table.rows, table.of, choices.tau, list(zip(values, reaches, strict=True))
        )

        def draw(i: int, cells: Exact) -> ClippedView:
            statistic, strategies = table.plan.statistics[i], table.plan.strategies(table.plan.statistics[i])
            reach = pure_reach(statistic, choices.tau)
            view = draw_view(cells, strategies, statistic.spend, statements.UNIT * reach, table.noise)
            return ClippedView(view, reach)

        return draw_each(table, weights, draw)


@dataclass(frozen=True)
class Whitened:
    """The joint whitened norm of a unit is bounded, Gaussian noise."""

    shares: ClassVar[selection.StepShares] = selection.StepShares(
        Fraction(25, 1000), Fraction(2, 100), Fraction(5, 100), Fraction(9, 100)
    )
    order: ClassVar[int] = 2

    def cell_variance(self, plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> float:
        return float(selection.typical_size(plan, statistic, tau) / statistic.spend)

    def draw(self, table: selection.RecipeTable, choices: selection.RecipeChoices) -> ClippedViews:
        """Norms, K, weights, and the one draw of each statistic; see `Clipping`."""
        whitening = statements.whiten(whitened_parts(table, choices.tau))
        norms = statements.make_norms(table.relations, table.rows, table.of, norm_views(table), whitening)
        edges = doubling_edges(1 << max(0, whitening.point - NORM_START), NORM_BINS)
        histogram = selection.people_histogram(table, norms, "norm", edges, table.step(selection.NORMS))
        mu2 = sum((s.spend for s in table.statistics.values()), Fraction(0))
        share = NORM_QUANTILE.get(choices.quantile, choices.quantile)
        typical = round(quantile(histogram, share, 1 << whitening.point))
        clip = min(max(typical, 1), whitening.largest_clip(mu2))
        weights = statements.make_weights(table.relations, norms, table.of, clip)
        return draw_each(table, weights, whitened_draw(table, whitening, clip, mu2))


CLIPPINGS: dict[NoiseDistribution, Clipping] = {LAPLACE: Bounded(), GAUSSIAN: Whitened()}
"""By the distribution that a table's views are drawn with."""


def pure_reach(statistic: PlannedStatistic, tau: int) -> int:
    """The most that a weighted unit adds under pure epsilon: tau for counts, T for sums."""
    bounds, mid = statistic.bounds, statistic.mid
    if bounds is None:
        return tau
    reach = max(bounds.upper - mid, mid - bounds.lower, 1)
    return statements.pure_bound(tau, reach, spread(mid, bounds.lower, bounds.upper))


def whitened_parts(table: selection.RecipeTable, tau: int) -> list[statements.WhitenedStatistic]:
    """Every statistic of a table as the norm weighs it, in the table's order."""
    shares = selection.view_shares(table.statistics)
    return [
        statements.WhitenedStatistic(
            shares[i],
            selection.typical_size(table.plan, s, tau),
            prod(strategy.total for strategy in table.plan.strategies(s)),
        )
        for i, s in table.statistics.items()
    ]


def norm_views(table: selection.RecipeTable) -> list[statements.NormView]:
    """Every view of a table as the norm sees it, statistics numbered in the table's order."""
    order, plan = list(table.statistics), table.plan
    return [
        statements.NormView(
            {axis: plan.axes[axis].strategy for axis in plan.statistics[group[0]].axes},
            {order.index(i): row_value(plan.statistics[i], table.columns) for i in group},
        )
        for group in plan.by_view(table.of)
    ]


def whitened_draw(
    table: selection.RecipeTable, whitening: statements.Whitening, clip: int, mu2: Fraction
) -> Draw:
    """Draws of statistics that together spend mu2, of units whose joint norm is clipped."""
    order = list(table.statistics)

    def draw(i: int, cells: Exact) -> ClippedView:
        strategies = table.plan.strategies(table.plan.statistics[i])
        variance = whitening.variance(order.index(i), clip, mu2)
        reach = _reach(whitening, order.index(i), clip)
        exact = Exact(measure_view(cells, strategies))
        view = GAUSSIAN.draw_at(
            exact, axis_budgets(strategies), variance, statements.UNIT * reach, table.noise
        )
        return ClippedView(view, reach)

    return draw


def _reach(whitening: statements.Whitening, index: int, clip: int) -> int:
    """The most that one unit changes one statistic, in L2 and stored units, rounded up."""
    squared = Fraction(clip << whitening.parts[index].shift, whitening.coefficient[index])
    return isqrt(ceil(squared / whitening.parts[index].total ** 2)) + 1


def draw_each(table: selection.RecipeTable, weights: str, draw: Draw) -> ClippedViews:
    """Weighted cells of every view, each drawn as soon as it is fetched.

    Args:
        table: the table.
        weights: those of the units.
        draw: the draw of each statistic.
    """
    bound = statements.WeightedRows(table.rows, weights)
    cells = statements.weighted_cells(table.relations, table.plan, table.of, bound, table.columns)
    return {
        i: draw(i, exact)
        for group in table.plan.by_view(table.of)
        for i, exact in zip(group, cells.of(*(table.plan.statistics[i] for i in group)), strict=True)
    }


@dataclass(frozen=True)
class TableScale:
    """The scale of one table, as a release states it.

    Args:
        of: the counted table.
        choices: the recipe's choices.
        factors: R of each measure by name; of rows under the empty name.
        public_rows: whether the exact number of rows was used.
    """

    of: str
    choices: selection.RecipeChoices
    factors: Mapping[str, TotalsFactor]
    public_rows: bool


class Corrected(NamedTuple):
    """Numbers stored of one statistic beside its scaled leaf estimates.

    Args:
        leaves: what is added to them, in the statistic's shape.
        spread: deviations of shares of the whole.
    """

    leaves: FloatArray
    spread: Spread


@dataclass(frozen=True)
class DrawnRecipe:
    """One table's statistics, drawn, each by its index in the plan.

    Args:
        statistics: as they were settled.
        views: their noisy integers.
        corrected: what is added to the scaled estimates, and deviations of shares.
        scale: the table's scale.
    """

    statistics: Mapping[int, PlannedStatistic]
    views: Mapping[int, NoisyView]
    corrected: Mapping[int, Corrected]
    scale: TableScale


def settle_table(table: selection.RecipeTable) -> DrawnRecipe:
    """Choose the bounds of one table and draw its views.

    Args:
        table: the table; its rows are placed.

    Returns:
        Settled statistics, their noisy views and the table's scale.

    **Privacy**: spends the table's steps and the shares of its views, each once.
    """
    clipping = CLIPPINGS[table.law]
    choices = selection.choose_bounds(table, partial(clipping.cell_variance, table.plan))
    table = table.centred(choices.mids)
    clipped = clipping.draw(table, choices)
    views = {i: each.view for i, each in clipped.items()}
    reconciled = reconcile_views(table.plan, views)
    scaled = ScaledViews(reconciled, scale_factors(table, choices, reconciled))
    settled = {
        i: replace(
            s, tau=choices.tau, sensitivity=clipped[i].reach,
            unit=statements.UNIT, factor=scaled.factor(s).value / statements.UNIT,
            noise_mid=s.mid * scaled.factor(s).value / scaled.factors[""].value,
        )
        for i, s in table.statistics.items()
    }  # fmt: skip
    few = max(1.0, (1 - choices.quantile) * choices.owned.people * table.stands_for / 2)
    corrected = {i: scaled.corrected(i, few) for i in views}
    scale = TableScale(table.of, choices, scaled.factors, table.public_rows)
    return DrawnRecipe(settled, views, corrected, scale)


def scale_factors(
    table: selection.RecipeTable, choices: selection.RecipeChoices, views: ReconciledViews
) -> Mapping[str, TotalsFactor]:
    """R of rows and of each measure.

    Args:
        table: the table, around its centres.
        choices: its totals with a high bound.
        views: its views with a low bound.
    """
    rows = Scaled(choices.rows, views.total("count"))
    measures = {}
    for name, high in choices.sums.items():
        known = MeasureName(name).counted
        counted, centred = views.total(known if views.of(known) else "count"), views.total(name)
        mid = choices.mids[name]
        low = PeopleEstimate(centred.value + mid * counted.value, hypot(centred.sd, mid * counted.sd))
        mean = low.value / counted.value if counted.value else 0.0
        apart = hypot(centred.sd, (mean - mid) * counted.sd)
        measures[name] = Scaled(high, low, apart / abs(low.value) if low.value else 1.0, choices.uneven[name])
    scaled = dict(factors(rows, measures, public_rows=table.public_rows))
    statistics = {s.measure.name for s in table.statistics.values()}
    nullable = sorted(name for name in statistics if name.counts_values and name.summed in measures)
    return scaled | {name: scaled[""].of_known(views.total(name), rows.low) for name in nullable}


@dataclass(frozen=True, eq=False)
class ReconciledViews:
    """The views of one table, in units of a weight of 1 and of the measure.

    Args:
        plan: the release.
        leaves: leaf estimates of each statistic, by index in the plan.
        readings: the variance model of each, without factors.
    """

    plan: ReleasePlan
    leaves: Mapping[int, FloatArray]
    readings: Mapping[int, ProductReading]
    _totals: dict[str, PeopleEstimate] = field(default_factory=dict, repr=False)

    def of(self, measure: str) -> dict[int, PlannedStatistic]:
        """The statistics of a measure by index."""
        return {
            i: self.plan.statistics[i] for i in self.leaves if self.plan.statistics[i].measure.name == measure
        }

    def total(self, measure: str) -> PeopleEstimate:
        """The total of a measure; views that stand alone have totals of their own, which are pooled."""
        if measure not in self._totals:
            families = {s.family: i for i, s in self.of(measure).items()}
            self._totals[measure] = pooled(
                [
                    PeopleEstimate(float(self.leaves[i].sum()), sqrt(self.readings[i].components[()]))
                    for i in families.values()
                ]
            )
        return self._totals[measure]


def reconcile_views(plan: ReleasePlan, views: Mapping[int, NoisyView]) -> ReconciledViews:
    """Estimate and reconcile drawn views.

    Args:
        plan: the release.
        views: noisy integers of one table, by index in the plan.
    """
    axes = {a: planned.measured(planned.strategy.solver) for a, planned in enumerate(plan.axes)}
    leaves: dict[int, FloatArray] = {}
    readings: dict[int, ProductReading] = {}
    for members in plan.families:
        if members[0] not in views:
            continue
        family = [DrawnMember(plan.statistics[i].axes, views[i], 1 / statements.UNIT) for i in members]
        estimates = plan.statistics[members[0]].measurement.estimate(family, axes)
        for i, estimated in zip(members, estimates, strict=True):
            leaves[i] = estimated.leaves
            splits = tuple(axes[a].split for a in plan.statistics[i].axes)
            readings[i] = ProductReading(splits, estimated.components)
    return ReconciledViews(plan, leaves, readings)


@dataclass(frozen=True)
class ScaledViews:
    """The views of one table with their factors.

    Args:
        views: reconciled.
        factors: by measure; of rows under the empty name.
    """

    views: ReconciledViews
    factors: Mapping[str, TotalsFactor]

    def factor(self, statistic: PlannedStatistic) -> TotalsFactor:
        """The one that a statistic is multiplied by."""
        return self.factors["" if statistic.bounds is None else statistic.measure.name]

    def rows_of(self, statistic: PlannedStatistic) -> str:
        """The measure that counts the rows of a statistic: of a sum that may be NULL, where it is known."""
        if statistic.bounds is None:
            return statistic.measure.name
        known = statistic.measure.name.counted
        return known if self.views.of(known) else "count"

    def corrected(self, index: int, few: float) -> Corrected:
        """Leaves and deviations of one statistic.

        Of the rows beyond the low bound, U, a group may hold none or more than twice its share; none of this is noise.

        Args:
            index: of the statistic.
            few: H, about the number of people who own these rows.
        """
        statistic, rows_of = (
            self.views.plan.statistics[index],
            self.rows_of(self.views.plan.statistics[index]),
        )
        rows = next(
            self.views.leaves[i] for i, s in self.views.of(rows_of).items() if s.view == statistic.view
        )
        of_rows, bounds = self.factors[""].value, statistic.bounds
        size = 1.0 if bounds is None else float(spread(statistic.mid, bounds.lower, bounds.upper))
        beyond = max(0.0, 1 - 1 / of_rows) * of_rows * self.views.total(rows_of).value * size
        added = np.zeros_like(rows)
        if bounds is not None:
            added = (self.factor(statistic).value - of_rows) * statistic.mid * rows
        return Corrected(added, Spread(parts_of(rows), beyond**2 / few, (TASTE * beyond) ** 2))
