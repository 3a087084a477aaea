"""Clipping of contributions: how the people of a table are weighted, one class for each noise distribution.

| class | weight of a unit |
|---|---|
| `Whitened` (Gaussian) | min(1, K / nu), nu the norm of all that the unit adds to all views |
| `Bounded` (Laplace) | min(1, tau / n, T / sum of sizes for each measure) |

A clipping answers for all that depends on the distribution: shares, noise, weights.

**Privacy**: docs/privacy/people.md, "3. The whitened clip (under a delta)" and "4. The pure twin".
**Source**: docs/method/rows.md, "One weight a person".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt, prod
from typing import ClassVar, NamedTuple, Protocol

from dpsql.central.cells import row_value
from dpsql.central.planned import PlannedStatistic, ReleasePlan
from dpsql.contributions.constants import NORM_BINS, NORM_QUANTILE, NORM_START
from dpsql.contributions.histogram import doubling_edges, quantile, spread
from dpsql.contributions.norm_clipping import UNIT, WhitenedStatistic, Whitening, pure_bound, whiten
from dpsql.contributions.selection import (
    NORMS,
    RecipeChoices,
    RecipeTable,
    StepShares,
    people_histogram,
    typical_size,
    view_shares,
)
from dpsql.contributions.statements import (
    NormView,
    WeightedRows,
    make_norms,
    make_pure_weights,
    make_weights,
    weighted_cells,
)
from dpsql.matrices.strategy import axis_budgets, measure_view
from dpsql.mechanisms.axis.strategy import draw_view
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution, NoisyView
from dpsql.tree import Exact


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
    def shares(self) -> StepShares:
        """Shares of the recipe's steps."""

    @property
    def order(self) -> int:
        """The power of k that a budget grows by where noise is to be a k-th."""

    def cell_variance(self, plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> float:
        """Predicted variance of one cell at a given tau and typical weights, in stored units of weight 1."""

    def draw(self, table: RecipeTable, choices: RecipeChoices) -> ClippedViews:
        """Weigh everybody and draw the views.

        **Privacy**: the shares of the views, and the steps of the clipping, each once.
        """


@dataclass(frozen=True)
class Bounded:
    """Rows and absolute sums of a unit are bounded, Laplace noise."""

    shares: ClassVar[StepShares] = StepShares(
        Fraction(3, 100), Fraction(0), Fraction(5, 100), Fraction(9, 100)
    )
    order: ClassVar[int] = 1

    def cell_variance(self, plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> float:
        return float(2 * (pure_reach(statistic, tau) / statistic.spend) ** 2)

    def draw(self, table: RecipeTable, choices: RecipeChoices) -> ClippedViews:
        reaches = [pure_reach(s, choices.tau) for s in table.sums.values()]
        values = [row_value(s, table.columns) for s in table.sums.values()]
        weights = make_pure_weights(
            table.relations, table.rows, table.of, choices.tau, list(zip(values, reaches, strict=True))
        )

        def draw(i: int, cells: Exact) -> ClippedView:
            statistic, strategies = table.plan.statistics[i], table.plan.strategies(table.plan.statistics[i])
            reach = pure_reach(statistic, choices.tau)
            view = draw_view(cells, strategies, statistic.spend, UNIT * reach, table.noise)
            return ClippedView(view, reach)

        return draw_each(table, weights, draw)


@dataclass(frozen=True)
class Whitened:
    """The joint whitened norm of a unit is bounded, Gaussian noise."""

    shares: ClassVar[StepShares] = StepShares(
        Fraction(25, 1000), Fraction(2, 100), Fraction(5, 100), Fraction(9, 100)
    )
    order: ClassVar[int] = 2

    def cell_variance(self, plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> float:
        return float(typical_size(plan, statistic, tau) / statistic.spend)

    def draw(self, table: RecipeTable, choices: RecipeChoices) -> ClippedViews:
        """Norms, K, weights, and the one draw of each statistic; see `Clipping`."""
        whitening = whiten(whitened_parts(table, choices.tau))
        norms = make_norms(table.relations, table.rows, table.of, norm_views(table), whitening)
        edges = doubling_edges(1 << max(0, whitening.point - NORM_START), NORM_BINS)
        histogram = people_histogram(table, norms, "norm", edges, table.step(NORMS))
        mu2 = sum((s.spend for s in table.statistics.values()), Fraction(0))
        share = NORM_QUANTILE.get(choices.quantile, choices.quantile)
        typical = round(quantile(histogram, share, 1 << whitening.point))
        clip = min(max(typical, 1), whitening.largest_clip(mu2))
        weights = make_weights(table.relations, norms, table.of, clip)
        return draw_each(table, weights, whitened_draw(table, whitening, clip, mu2))


CLIPPINGS: dict[NoiseDistribution, Clipping] = {LAPLACE: Bounded(), GAUSSIAN: Whitened()}
"""By the distribution that a table's views are drawn with."""


def pure_reach(statistic: PlannedStatistic, tau: int) -> int:
    """The most that a weighted unit adds under pure epsilon: tau for counts, T for sums."""
    bounds, mid = statistic.bounds, statistic.mid
    if bounds is None:
        return tau
    reach = max(bounds.upper - mid, mid - bounds.lower, 1)
    return pure_bound(tau, reach, spread(mid, bounds.lower, bounds.upper))


def whitened_parts(table: RecipeTable, tau: int) -> list[WhitenedStatistic]:
    """Every statistic of a table as the norm weighs it, in the table's order."""
    shares = view_shares(table.statistics)
    return [
        WhitenedStatistic(
            shares[i],
            typical_size(table.plan, s, tau),
            prod(strategy.total for strategy in table.plan.strategies(s)),
        )
        for i, s in table.statistics.items()
    ]


def norm_views(table: RecipeTable) -> list[NormView]:
    """Every view of a table as the norm sees it, statistics numbered in the table's order."""
    order, plan = list(table.statistics), table.plan
    return [
        NormView(
            {axis: plan.axes[axis].strategy for axis in plan.statistics[group[0]].axes},
            {order.index(i): row_value(plan.statistics[i], table.columns) for i in group},
        )
        for group in plan.by_view(table.of)
    ]


def whitened_draw(table: RecipeTable, whitening: Whitening, clip: int, mu2: Fraction) -> Draw:
    """Draws of statistics that together spend mu2, of units whose joint norm is clipped."""
    order = list(table.statistics)

    def draw(i: int, cells: Exact) -> ClippedView:
        strategies = table.plan.strategies(table.plan.statistics[i])
        variance = whitening.variance(order.index(i), clip, mu2)
        reach = _reach(whitening, order.index(i), clip)
        exact = Exact(measure_view(cells, strategies))
        view = GAUSSIAN.draw_at(exact, axis_budgets(strategies), variance, UNIT * reach, table.noise)
        return ClippedView(view, reach)

    return draw


def _reach(whitening: Whitening, index: int, clip: int) -> int:
    """The most that one unit changes one statistic, in L2 and stored units, rounded up."""
    squared = Fraction(clip << whitening.parts[index].shift, whitening.coefficient[index])
    return isqrt(ceil(squared / whitening.parts[index].total ** 2)) + 1


def draw_each(table: RecipeTable, weights: str, draw: Draw) -> ClippedViews:
    """Weighted cells of every view, each drawn as soon as it is fetched.

    Args:
        table: the table.
        weights: those of the units.
        draw: the draw of each statistic.
    """
    bound = WeightedRows(table.rows, weights)
    cells = weighted_cells(table.relations, table.plan, table.of, bound, table.columns)
    return {
        i: draw(i, exact)
        for group in table.plan.by_view(table.of)
        for i, exact in zip(group, cells.of(*(table.plan.statistics[i] for i in group)), strict=True)
    }
