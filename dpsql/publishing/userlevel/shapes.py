"""How the people of a table are weighted, each law its way, and what is measured of what one factor leaves out.

| class | weight of a unit | what one factor leaves out of groups |
|---|---|---|
| `Whitened` (Gaussian) | min(1, K / nu), nu the norm of all that she adds to all views | of norm K_D at most |
| `Bounded` (Laplace) | min(1, tau / n, T / sum of sizes for each measure) | t_D rows and T_D of each measure at most |

A shape answers for all that depends on the law: shares, noise, weights, differences. Nobody asks which one it is.

**Privacy**: docs/privacy/user_level.md, sections 3 (weights under a delta), 4 (pure) and 5 (differences).
**Source**: docs/method/user_level.md, "One weight a person", "Differences".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt, prod, sqrt
from typing import ClassVar, NamedTuple, Protocol

from dpsql.mechanisms.axis.strategy import axis_budgets, draw_view, measure_view
from dpsql.mechanisms.family.people import cleaned, doubling_edges, quantile, rounded, spread
from dpsql.mechanisms.family.whitened import (
    LARGEST_FACTOR,
    LARGEST_NORM,
    LARGEST_PURE_DIFFERENCE,
    UNIT,
    WhitenedStatistic,
    Whitening,
    pure_bound,
    whiten,
)
from dpsql.mechanisms.law import GAUSSIAN, LAPLACE, NoiseLaw, NoisyView
from dpsql.publishing.cells import row_value
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.publishing.userlevel.choose import (
    DIFFERENCES,
    NORMS,
    RecipeChoices,
    RecipeTable,
    StepShares,
    people_histogram,
    typical_size,
    view_shares,
)
from dpsql.publishing.userlevel.sql import (
    DIFFERENCE,
    WEIGHT,
    NormView,
    WeightedRows,
    make_differences,
    make_norms,
    make_pure_differences,
    make_pure_weights,
    make_weights,
    weighted_cells,
)
from dpsql.tree import Exact

NORM_BINS, NORM_START = 20, 8
"""Bins of squared norms: from 2^-8 of the typical one, doubling."""

CLIP = {0.5: 0.4}
"""Which quantile of the norms K is, by that of tau where it is another: a little below the middle is as good for counts
on FoodMart and Online Retail, and better for ranges and averages."""

HIGH = 0.95
"""The quantile of norms, or of rows, up to which differences reach; q.9 makes intervals a quarter shorter, but groups
then hold 86 to 91%."""

LEAST_DIFFERENCE = 20
"""Differences reach at least a 20th of K."""


class Reached(NamedTuple):
    """A drawn view, and the most that one unit changes it, in the measure's own units."""

    view: NoisyView
    reach: int


Draw = Callable[[int, Exact], Reached]
"""(index in the plan, exact weighted cells) -> the statistic's one draw."""


class Differences(NamedTuple):
    """What one factor leaves out, drawn.

    Args:
        factor: R0, the factor that it is left out by.
        views: by index in the plan.
        few: H, about how many people own what no difference shows.
    """

    factor: float
    views: Mapping[int, NoisyView]
    few: float


Differ = Callable[[float], Differences]
"""R_N -> what it leaves out; draws once."""


class Shaped(NamedTuple):
    """The low views of a table.

    Args:
        views: by index in the plan.
        differ: draws what one factor leaves out.
    """

    views: Mapping[int, Reached]
    differ: Differ


class NoiseShape(Protocol):
    """What depends on the law of a table's noise."""

    @property
    def shares(self) -> StepShares:
        """What the recipe pays for its steps."""

    @property
    def order(self) -> int:
        """The power of k that what is spent grows by where noise is to be a k-th."""

    @property
    def fear(self) -> float:
        """How much a part of the rows that is left out counts where tau is chosen, against relative noise."""

    @property
    def wide(self) -> float:
        """How many times as far off groups may be as if nothing that is left out was theirs."""

    def cell_variance(self, plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> float:
        """Predicted variance of one cell at a given tau and typical weights, in stored units of weight 1."""

    def draw(self, table: RecipeTable, choices: RecipeChoices) -> Shaped:
        """Weigh everybody and draw the views.

        **Privacy**: the shares of the views, and the steps of the shape, each once.
        """


@dataclass(frozen=True)
class Bounded:
    """Rows and absolute sums of a unit are bounded, Laplace noise."""

    shares: ClassVar[StepShares] = StepShares(
        Fraction(3, 100), Fraction(0), Fraction(5, 100), Fraction(9, 100), Fraction(8, 100)
    )
    order: ClassVar[int] = 1
    fear: ClassVar[float] = 1.0
    wide: ClassVar[float] = 2.0

    def cell_variance(self, plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> float:
        return float(2 * (pure_reach(statistic, tau) / statistic.spend) ** 2)

    def draw(self, table: RecipeTable, choices: RecipeChoices) -> Shaped:
        reaches = [pure_reach(s, choices.tau) for s in table.sums.values()]
        values = [row_value(s, table.columns) for s in table.sums.values()]
        weights = make_pure_weights(
            table.relations, table.rows, table.of, choices.tau, list(zip(values, reaches, strict=True))
        )
        views = draw_each(table, weights, _bounded_draw(table, choices.tau, {}))

        def differ(factor: float) -> Differences:
            """R0, t_D and T_D follow from released numbers; then the one draw of each difference."""
            fixed, spend = fixed_factor(factor), table.step(DIFFERENCES).spend
            most = choices.owned.quantile(HIGH)
            far = max(1, ceil((fixed / UNIT - 1) * choices.tau), ceil(most - fixed / UNIT * choices.tau))
            names = [(s.measure.name, s) for s in table.sums.values()]
            bounds = {name: difference_reach(s, choices.tau, far) for name, s in names}
            left = make_pure_differences(
                table.relations, weights, table.of, fixed, far, list(bounds.values())
            )
            shares = view_shares(table.statistics)
            spends = {i: spend * share for i, share in shares.items()}
            drawn = draw_each(table, left, _bounded_draw(table, far, spends, bounds), DIFFERENCE)
            few = (1 - HIGH) * choices.owned.people
            return Differences(fixed / UNIT, {i: each.view for i, each in drawn.items()}, max(few, 1.0))

        return Shaped(views, differ)


def _bounded_draw(
    table: RecipeTable, tau: int, spends: Mapping[int, Fraction], bounds: Mapping[str, int] | None = None
) -> Draw:
    """Draws of statistics of units whose rows and absolute sums are bounded.

    Args:
        table: the table.
        tau: the most rows.
        spends: what each statistic's noise is drawn for; its own spend where none is said.
        bounds: the most of each measure, by name; what follows from tau where none is said.
    """

    def draw(i: int, cells: Exact) -> Reached:
        statistic = table.plan.statistics[i]
        reach = pure_reach(statistic, tau)
        if bounds is not None:
            reach = bounds.get(statistic.measure.name, tau) if statistic.bounds is not None else tau
        spend, strategies = spends.get(i, statistic.spend), table.plan.strategies(statistic)
        return Reached(draw_view(cells, strategies, spend, UNIT * reach, table.noise), reach)

    return draw


def fixed_factor(factor: float) -> int:
    """R0 in units of 2^-20: R_N within 1 and 8."""
    return min(max(round(factor * UNIT), UNIT), LARGEST_FACTOR)


def difference_reach(statistic: PlannedStatistic, tau: int, far: int) -> int:
    """T_D = T t_D / tau, rounded up, at most `LARGEST_PURE_DIFFERENCE`."""
    return min(-(-pure_reach(statistic, tau) * far // tau), LARGEST_PURE_DIFFERENCE)


@dataclass(frozen=True)
class Whitened:
    """The joint whitened norm of a unit is bounded, Gaussian noise."""

    shares: ClassVar[StepShares] = StepShares(
        Fraction(25, 1000), Fraction(2, 100), Fraction(5, 100), Fraction(9, 100), Fraction(8, 100)
    )
    order: ClassVar[int] = 2
    fear: ClassVar[float] = 0.6
    wide: ClassVar[float] = 3.0

    def cell_variance(self, plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> float:
        return float(typical_size(plan, statistic, tau) / statistic.spend)

    def draw(self, table: RecipeTable, choices: RecipeChoices) -> Shaped:
        """See `NoiseShape`: norms, K, weights, and the one draw of each statistic."""
        whitening = whiten(whitened_parts(table, choices.tau))
        norms = make_norms(table.relations, table.rows, table.of, norm_views(table), whitening)
        edges = doubling_edges(1 << max(0, whitening.point - NORM_START), NORM_BINS)
        histogram = people_histogram(table, norms, "norm", edges, table.step(NORMS))
        mu2 = sum((s.spend for s in table.statistics.values()), Fraction(0))
        typical = 1 << whitening.point
        wanted = rounded(quantile(histogram, CLIP.get(choices.quantile, choices.quantile), unseen=typical))
        clip = min(wanted, whitening.largest_clip(mu2))
        weights = make_weights(table.relations, norms, table.of, clip)
        views = draw_each(table, weights, whitened_draw(table, whitening, clip, mu2))

        def differ(factor: float) -> Differences:
            """R0 and K_D follow from released numbers; then the one draw of each difference."""
            fixed = fixed_factor(factor)
            own, spend = fixed / UNIT, table.step(DIFFERENCES).spend
            most = quantile(histogram, HIGH, unseen=typical)
            far = max((own - 1) * sqrt(clip), sqrt(most) - own * sqrt(clip), sqrt(clip) / LEAST_DIFFERENCE)
            reach = min(rounded(far**2), whitening.largest_clip(spend), LARGEST_NORM)
            left = make_differences(table.relations, weights, table.of, fixed, reach)
            drawn = draw_each(table, left, whitened_draw(table, whitening, reach, spend), DIFFERENCE)
            few = (1 - HIGH) * float(cleaned(histogram).sum())
            return Differences(own, {i: each.view for i, each in drawn.items()}, max(few, 1.0))

        return Shaped(views, differ)


SHAPES: dict[NoiseLaw, NoiseShape] = {LAPLACE: Bounded(), GAUSSIAN: Whitened()}
"""By the law that a table's views are drawn with."""


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

    def draw(i: int, cells: Exact) -> Reached:
        strategies = table.plan.strategies(table.plan.statistics[i])
        variance = whitening.variance(order.index(i), clip, mu2)
        reach = _reach(whitening, order.index(i), clip)
        exact = Exact(measure_view(cells, strategies))
        view = GAUSSIAN.draw_at(exact, axis_budgets(strategies), variance, UNIT * reach, table.noise)
        return Reached(view, reach)

    return draw


def _reach(whitening: Whitening, index: int, clip: int) -> int:
    """The most that one unit changes one statistic, in L2 and stored units, rounded up."""
    squared = Fraction(clip << whitening.parts[index].shift, whitening.coefficient[index])
    return isqrt(ceil(squared / whitening.parts[index].total ** 2)) + 1


def draw_each(table: RecipeTable, weights: str, draw: Draw, weight: str = WEIGHT) -> dict[int, Reached]:
    """Weighted cells of every view, each drawn as soon as it is fetched.

    Args:
        table: the table.
        weights: what the rows of units count.
        draw: the draw of each statistic.
        weight: the column of `weights`.
    """
    bound = WeightedRows(table.rows, weights, weight)
    cells = weighted_cells(table.relations, table.plan, table.of, bound, table.columns)
    return {
        i: draw(i, exact)
        for group in table.plan.by_view(table.of)
        for i, exact in zip(group, cells.of(*(table.plan.statistics[i] for i in group)), strict=True)
    }
