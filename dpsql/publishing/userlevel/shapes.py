"""How the people of a table are weighted, each law its way, and what is measured of what one factor leaves out.

| class | weight of a unit | what one factor leaves out of groups |
|---|---|---|
| `Whitened` (Gaussian) | min(1, K / nu), nu the norm of all that she adds to all views | differences, drawn with 6% |
| `Bounded` (Laplace) | min(1, tau / n, T / sum of sizes for each measure) | an allowance |

A shape answers for all that depends on the law: shares, noise, weights, differences. Nobody asks which one it is.

**Privacy**: docs/privacy/user_level.md, sections 3 (weights under a delta), 4 (pure) and 5 (differences).
**Source**: docs/method/user_level.md, "One weight a person", "Differences".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, isqrt, prod, sqrt
from typing import ClassVar, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.axis.strategy import AxisStrategy, axis_budgets, draw_view, measure, measure_view
from dpsql.mechanisms.family.people import cleaned, doubling_edges, quantile, rounded, spread
from dpsql.mechanisms.family.whitened import (
    LARGEST_FACTOR,
    LARGEST_NORM,
    UNIT,
    Part,
    Whitening,
    even_square,
    pure_bound,
    whiten,
)
from dpsql.mechanisms.law import GAUSSIAN, LAPLACE, NoiseLaw, NoisyView
from dpsql.publishing.cells import row_value
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.publishing.userlevel.choose import (
    DIFFERENCES,
    NORMS,
    Choices,
    StepShares,
    Table,
    is_sticky,
    people_histogram,
    typical_size,
    view_shares,
)
from dpsql.publishing.userlevel.guess import Units
from dpsql.publishing.userlevel.sql import (
    View,
    make_differences,
    make_norms,
    make_pure_weights,
    make_weights,
    weighted_cells,
)

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

NORM_BINS, NORM_START = 20, 8
"""Bins of squared norms: from 2^-8 of the typical one, doubling."""

CLIP = {0.5: 0.4, 0.9: 0.9}
"""Which quantile of the norms K is, by that of tau: a little below the middle is as good for counts on FoodMart and
Online Retail, and better for ranges and averages."""

HIGH_NORM = 0.95
"""The quantile K_H of the norms up to which differences reach; q.9 makes intervals a quarter shorter, but groups then
hold 86 to 91%."""

LEAST_DIFFERENCE = 20
"""Differences reach at least a 20th of K."""


class Reached(NamedTuple):
    """A drawn view, and the most that one unit changes it, in the measure's own units."""

    view: NoisyView
    reach: int


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
        differ: draws what one factor leaves out; None where nothing is measured of it.
    """

    views: Mapping[int, Reached]
    differ: Differ | None


class Shape(Protocol):
    """What depends on the law of a table's noise."""

    @property
    def shares(self) -> StepShares:
        """What the recipe pays for its steps."""

    @property
    def least_gap(self) -> float:
        """How far factors of one table are taken to differ at least, in intervals."""

    @property
    def most_grouped(self) -> int:
        """How many views may be calibrated by group."""

    def cell_variance(self, plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> float:
        """Predicted variance of one cell at a given tau and typical weights, in stored units of weight 1."""

    def expected(self, plan: ReleasePlan, of: str, tau: int, low: float, units: Units) -> Expectation:
        """What the weights of units are before more is known of them than was stated in public.

        Args:
            plan, of: the table.
            tau, low: rows of a typical unit, and which quantile that is.
            units: what was stated.
        """

    def draw(self, table: Table, choices: Choices) -> Shaped:
        """Weigh everybody and draw the views.

        **Privacy**: the shares of the views, and the steps of the shape, each once.
        """


class Expectation(NamedTuple):
    """Expected weights of units, and what their noise is multiplied by against that of a typical one."""

    weights: FloatArray
    variance: float


@dataclass(frozen=True)
class Bounded:
    """Rows and absolute sums of a unit are bounded, Laplace noise."""

    shares: ClassVar[StepShares] = StepShares(
        Fraction(3, 100), Fraction(0), Fraction(5, 100), Fraction(9, 100), Fraction(0)
    )
    least_gap: ClassVar[float] = 0.04
    most_grouped: ClassVar[int] = 4

    def cell_variance(self, plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> float:
        """See `Shape`."""
        return float(2 * (pure_reach(statistic, tau) / statistic.spend) ** 2)

    def expected(self, plan: ReleasePlan, of: str, tau: int, low: float, units: Units) -> Expectation:
        """See `Shape`."""
        return Expectation(np.minimum(1.0, tau / units.amounts), 1.0)

    def draw(self, table: Table, choices: Choices) -> Shaped:
        """See `Shape`."""
        limits = [(row_value(s, table.columns), pure_reach(s, choices.tau)) for s in table.sums.values()]
        weights = make_pure_weights(table.connection, table.rows, table.of, choices.tau, limits)

        def draw(i: int, cells: IntArray) -> Reached:
            statistic = table.plan.statistics[i]
            reach = pure_reach(statistic, choices.tau)
            strategies = table.plan.strategies(statistic)
            return Reached(draw_view(cells, strategies, statistic.spend, UNIT * reach, table.noise), reach)

        return Shaped(draw_each(table, weights, draw), None)


@dataclass(frozen=True)
class Whitened:
    """The joint whitened norm of a unit is bounded, Gaussian noise."""

    shares: ClassVar[StepShares] = StepShares(
        Fraction(25, 1000), Fraction(2, 100), Fraction(5, 100), Fraction(9, 100), Fraction(6, 100)
    )
    least_gap: ClassVar[float] = 0.025
    most_grouped: ClassVar[int] = 0

    def cell_variance(self, plan: ReleasePlan, statistic: PlannedStatistic, tau: int) -> float:
        """See `Shape`."""
        return float(typical_size(plan, statistic, tau) / statistic.spend)

    def expected(self, plan: ReleasePlan, of: str, tau: int, low: float, units: Units) -> Expectation:
        """See `Shape`."""
        squares = _expected_squares(plan, plan.mine(of), tau, units)
        clip = float(np.interp(CLIP[low], (np.arange(len(squares)) + 0.5) / len(squares), squares))
        return Expectation(np.sqrt(np.minimum(1.0, clip / squares)), clip)

    def draw(self, table: Table, choices: Choices) -> Shaped:
        """See `Shape`: norms, K, weights, and the one draw of each statistic."""
        whitening = whiten(whitened_parts(table, choices.tau))
        norms = make_norms(table.connection, table.rows, table.of, norm_views(table), whitening)
        edges = doubling_edges(1 << max(0, whitening.point - NORM_START), NORM_BINS)
        histogram = people_histogram(table, norms, "norm", edges, table.step(NORMS))
        mu2 = sum((s.spend for s in table.statistics.values()), Fraction(0))
        typical = 1 << whitening.point
        wanted = rounded(quantile(histogram, CLIP[choices.quantile], unseen=typical))
        clip = min(wanted, whitening.largest_clip(mu2))
        weights = make_weights(table.connection, norms, table.of, clip)
        views = draw_each(table, weights, whitened_draw(table, whitening, clip, mu2))

        def differ(factor: float) -> Differences:
            """R0 and K_D follow from released numbers; then the one draw of each difference."""
            fixed = min(max(round(factor * UNIT), UNIT), LARGEST_FACTOR)
            own, spend = fixed / UNIT, table.step(DIFFERENCES).spend
            most = quantile(histogram, HIGH_NORM, unseen=typical)
            far = max((own - 1) * sqrt(clip), sqrt(most) - own * sqrt(clip), sqrt(clip) / LEAST_DIFFERENCE)
            reach = min(rounded(far**2), whitening.largest_clip(spend), LARGEST_NORM)
            left = make_differences(table.connection, norms, weights, table.of, fixed, reach)
            drawn = draw_each(table, left, whitened_draw(table, whitening, reach, spend))
            few = (1 - HIGH_NORM) * float(cleaned(histogram).sum())
            return Differences(own, {i: each.view for i, each in drawn.items()}, max(few, 1.0))

        return Shaped(views, differ)


SHAPES: dict[NoiseLaw, Shape] = {LAPLACE: Bounded(), GAUSSIAN: Whitened()}
"""By the law that a table's views are drawn with."""


def pure_reach(statistic: PlannedStatistic, tau: int) -> int:
    """The most that a weighted unit adds under pure epsilon: tau for counts, T for sums."""
    bounds, mid = statistic.bounds, statistic.mid
    if bounds is None:
        return tau
    reach = max(bounds.upper - mid, mid - bounds.lower, 1)
    return pure_bound(tau, reach, spread(mid, bounds.lower, bounds.upper))


def whitened_parts(table: Table, tau: int) -> list[Part]:
    """Every statistic of a table as the norm weighs it, in the table's order."""
    shares = view_shares(table.statistics)
    return [
        Part(
            shares[i],
            typical_size(table.plan, s, tau),
            prod(strategy.total for strategy in table.plan.strategies(s)),
        )
        for i, s in table.statistics.items()
    ]


def norm_views(table: Table) -> list[View]:
    """Every view of a table as the norm sees it, statistics numbered in the table's order."""
    order, plan = list(table.statistics), table.plan
    return [
        View(
            {axis: plan.axes[axis].strategy for axis in plan.statistics[group[0]].axes},
            {order.index(i): row_value(plan.statistics[i], table.columns) for i in group},
        )
        for group in plan.by_view(table.of)
    ]


Draw = Callable[[int, IntArray], Reached]
"""(index in the plan, exact weighted cells) -> the statistic's one draw."""


def whitened_draw(table: Table, whitening: Whitening, clip: int, mu2: Fraction) -> Draw:
    """Draws of statistics that together spend mu2, of units whose joint norm is clipped."""
    order = list(table.statistics)

    def draw(i: int, cells: IntArray) -> Reached:
        strategies = table.plan.strategies(table.plan.statistics[i])
        variance = whitening.variance(order.index(i), clip, mu2)
        reach = _reach(whitening, order.index(i), clip)
        exact = measure_view(cells, strategies)
        view = GAUSSIAN.draw_at(exact, axis_budgets(strategies), variance, UNIT * reach, table.noise)
        return Reached(view, reach)

    return draw


def _reach(whitening: Whitening, index: int, clip: int) -> int:
    """The most that one unit changes one statistic, in L2 and stored units, rounded up."""
    squared = Fraction(clip << whitening.parts[index].shift, whitening.coefficient[index])
    return isqrt(ceil(squared / whitening.parts[index].total ** 2)) + 1


def draw_each(table: Table, weights: str, draw: Draw) -> dict[int, Reached]:
    """Weighted cells of every view, each drawn as soon as it is fetched."""
    cells = weighted_cells(table.connection, table.plan, table.rows, weights, table.columns)
    return {
        i: draw(i, exact)
        for group in table.plan.by_view(table.of)
        for i, exact in zip(group, cells.of(*(table.plan.statistics[i] for i in group)), strict=True)
    }


def _expected_squares(
    plan: ReleasePlan, mine: Mapping[int, PlannedStatistic], tau: int, units: Units
) -> FloatArray:
    """nu^2 of units by their rows, whose centred values have random signs."""
    found, shares, amounts = np.zeros(len(units.amounts)), view_shares(mine), units.amounts
    for i, s in mine.items():
        gathered = float(typical_size(plan, replace(s, bounds=None), 1) - 1)
        # by how much two rows of one unit meet in a view's rows; their values have random signs, so sums meet less
        meeting = prod(
            _meeting(plan.axes[a].strategy, units.crowds.get(a))
            for a in s.axes
            if not is_sticky(plan, s.of, a)
        )
        size = amounts + meeting ** ((1 - units.alike) if s.bounds is None else 1) * amounts * (amounts - 1)
        found += float(shares[i]) * size / (tau + gathered * tau**2)
    return found


def _meeting(strategy: AxisStrategy, crowd: FloatArray | None) -> float:
    """||H p||^2 of leaves that are crowded alike, or as stated: 1 / n and more."""
    if crowd is None:
        return float(even_square(strategy))
    placed = measure(strategy, np.rint(crowd * UNIT).astype(np.int64)) * strategy.budget
    return float((placed.astype(np.float64) ** 2).sum()) / (UNIT * strategy.total) ** 2
