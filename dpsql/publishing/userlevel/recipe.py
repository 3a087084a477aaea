"""The recipe for `max_ids: auto`: shape with a low bound and one weight per person, scale from one high total.

Read `settle_table` from the top. Every number that leaves the engine is noised at once, by the draw whose
ledger line is the step of the same name; what a step decides is computed from released numbers alone.

    bounds and centres          choose.py           tau, N_hi, mid
    norms per unit (zCDP)       noisy histogram     K
    views                       weighted cells      shapes; R = N_hi / their total
    rows by group               weighted cells      R_g, for `calibrate: per_group`

On an axis where all rows of a person share one leaf (her store, her country), groups whose people own more
rows than others are weighted down more, and one common R leaves them off. A one-way view with the bound
q.9(n) tells each group's own factor; it is noisy, so it is shrunk to R by as much as the factors vary beyond
their noise. On other axes this mostly adds noise. A calibrated view is not reconciled with the others, since
its totals differ from theirs.

**Privacy**: docs/privacy/user_level.md; the rows by group are one draw of weighted cells, a person's rows
weighted to at most q.9(n) (section 5).
**Source**: docs/method/user_level.md, "Shape and scale", "A factor for each group".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, hypot, isqrt, prod, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.strategy import axis_budgets, draw_view, leaf_estimates, measure_view
from dpsql.mechanisms.family.people import (
    SEEN,
    Estimate,
    Ratio,
    doubling_edges,
    pooled,
    quantile,
    ratio,
    rounded,
)
from dpsql.mechanisms.family.whitened import UNIT, Part, Whitening, whiten
from dpsql.mechanisms.law import GAUSSIAN, NoisyView
from dpsql.publishing.cells import exact_sums, row_value
from dpsql.publishing.planned import Groups, PlannedStatistic, ReleasePlan, Step
from dpsql.publishing.userlevel.choose import (
    GROUP_ROWS,
    NORMS,
    Choices,
    Table,
    choose_bounds,
    counts_of,
    is_sticky,
    people_histogram,
    pure_reach,
    typical_size,
    view_shares,
)
from dpsql.publishing.userlevel.sql import (
    WEIGHT,
    Shape,
    make_norms,
    make_pure_weights,
    make_weights,
    weighted,
    weighted_cells,
)

IntArray = npt.NDArray[np.int64]

NORM_BINS, NORM_START = 20, 8
"""Bins of squared norms: from 2^-8 of the typical one, doubling."""


CLIP = {0.5: 0.4, 0.9: 0.9}
"""Which quantile of the norms K is, by that of tau: a little below the middle is as good for counts on FoodMart and
Online Retail, and better for ranges and averages."""


FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True)
class TableScale:
    """What a release says about the scale of one table.

    Args:
        of: the counted table.
        choices: what was chosen.
        ratio: R.
        sticky: names of the axes on which all rows of a unit share one leaf.
        public_rows: whether the number of rows was told.
    """

    of: str
    choices: Choices
    ratio: Ratio
    sticky: tuple[str, ...]
    public_rows: bool


@dataclass(frozen=True)
class Drawn:
    """One table's statistics, drawn: index in the plan -> the settled statistic and its noisy view."""

    statistics: Mapping[int, PlannedStatistic]
    views: Mapping[int, NoisyView]
    scale: TableScale


def settle_table(table: Table) -> Drawn:
    """Choose the bounds of one table and draw its views.

    Args:
        table: the table; its rows are placed.

    Returns:
        Settled statistics, their noisy views and the table's scale.

    **Privacy**: spends the table's steps and the shares of its views, each once.
    """
    choices = choose_bounds(table)
    table = table.centred(choices.mids)
    statistics = table.statistics
    draw_views = _whitened_views if table.law == GAUSSIAN else _pure_views
    drawn = draw_views(table, choices)
    views = {i: each.view for i, each in drawn.items()}
    found = _ratio(table, choices, views)
    groups = calibrate_groups(table, choices, found, views)
    settled = {
        i: replace(
            s, tau=choices.tau, sensitivity=drawn[i].reach, unit=UNIT, factor=found.value / UNIT,
            groups=groups.get(s.view, ()),
        )
        for i, s in statistics.items()
    }  # fmt: skip
    sticky = tuple(
        table.plan.axes[a].axis.name
        for a in sorted({a for s in statistics.values() for a in s.axes})
        if is_sticky(table.plan, table.of, a)
    )
    return Drawn(settled, views, TableScale(table.of, choices, found, sticky, table.public_rows))


class Reached(NamedTuple):
    """A drawn view, and the most that one unit changes it, in the measure's own units."""

    view: NoisyView
    reach: int


def _whitened_views(table: Table, choices: Choices) -> dict[int, Reached]:
    """Step 4 under zCDP: norms, K, weights, and the one draw of each statistic."""
    order = list(table.statistics)
    whitening = whiten(whitened_parts(table, choices.tau))
    norms = make_norms(table.connection, table.rows, table.of, view_shapes(table), whitening)
    edges = doubling_edges(1 << max(0, whitening.point - NORM_START), NORM_BINS)
    histogram = people_histogram(table, norms, "norm", edges, table.step(NORMS))
    rho = sum((s.spend for s in table.statistics.values()), Fraction(0))
    wanted = rounded(quantile(histogram, CLIP[choices.quantile], unseen=1 << whitening.point))
    clip = min(wanted, whitening.largest_clip(rho))
    weights = make_weights(table.connection, norms, table.of, clip)

    def draw(i: int, cells: IntArray) -> Reached:
        strategies = table.plan.strategies(table.plan.statistics[i])
        variance = whitening.variance(order.index(i), clip, rho)
        reach = _reach(whitening, order.index(i), clip)
        exact = measure_view(cells, strategies)
        view = GAUSSIAN.draw_at(exact, axis_budgets(strategies), variance, UNIT * reach, table.noise)
        return Reached(view, reach)

    return _draw_each(table, weights, draw)


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


def view_shapes(table: Table) -> list[Shape]:
    """Every view of a table as the norm sees it, statistics numbered in the table's order."""
    order, plan = list(table.statistics), table.plan
    return [
        Shape(
            {axis: plan.axes[axis].strategy for axis in plan.statistics[group[0]].axes},
            {order.index(i): row_value(plan.statistics[i], table.columns) for i in group},
        )
        for group in plan.by_view(table.of)
    ]


def _reach(whitening: Whitening, index: int, clip: int) -> int:
    """The most that one unit changes one statistic, in L2 and stored units, rounded up."""
    squared = Fraction(clip << whitening.parts[index].shift, whitening.coefficient[index])
    return isqrt(ceil(squared / whitening.parts[index].total ** 2)) + 1


def _pure_views(table: Table, choices: Choices) -> dict[int, Reached]:
    """Step 4 under pure epsilon: weights from rows and absolute sums, Laplace noise at tau and T."""
    limits = [(row_value(s, table.columns), pure_reach(s, choices.tau)) for s in table.sums.values()]
    weights = make_pure_weights(table.connection, table.rows, table.of, choices.tau, limits)

    def draw(i: int, cells: IntArray) -> Reached:
        statistic = table.plan.statistics[i]
        reach = pure_reach(statistic, choices.tau)
        strategies = table.plan.strategies(statistic)
        return Reached(draw_view(cells, strategies, statistic.spend, UNIT * reach, table.noise), reach)

    return _draw_each(table, weights, draw)


def _draw_each(table: Table, weights: str, draw: Callable[[int, IntArray], Reached]) -> dict[int, Reached]:
    """Weighted cells of every view, each drawn as soon as it is fetched."""
    cells = weighted_cells(table.connection, table.plan, table.rows, weights, table.columns)
    return {
        i: draw(i, exact)
        for group in table.plan.by_view(table.of)
        for i, exact in zip(group, cells.of(*(table.plan.statistics[i] for i in group)), strict=True)
    }


def _ratio(table: Table, choices: Choices, views: Mapping[int, NoisyView]) -> Ratio:
    """Step 5: R from the totals with a high bound and the same totals of the views."""

    def low(measure: str) -> Estimate:
        same = [i for i, s in table.statistics.items() if s.measure.name == measure]
        return pooled([_total(table.plan, table.plan.statistics[i], views[i]) for i in same])

    rows, sums = low("count"), []
    present = {s.measure.name for s in table.statistics.values()}
    for name, total in choices.sums.items():
        own = low(f"count({name})") if f"count({name})" in present else rows
        centred, mid = low(name), choices.mids[name]
        sums.append((total, Estimate(centred.value + mid * own.value, hypot(centred.sd, mid * own.sd))))
    return ratio(choices.rows, rows, sums)


def _total(plan: ReleasePlan, statistic: PlannedStatistic, view: NoisyView) -> Estimate:
    """A view's total of a statistic in stored units of weight 1."""
    strategies = plan.strategies(statistic)
    ends = np.array([0])
    factor = prod(float(s.variance().ranges(ends, np.array([s.leaves]))[0]) for s in strategies)
    value = float(leaf_estimates(view, strategies).sum()) / UNIT
    return Estimate(value, sqrt(view.unit_variance * factor) / UNIT)


def calibrate_groups(
    table: Table, choices: Choices, ratio: Ratio, views: Mapping[int, NoisyView]
) -> Mapping[str, tuple[Groups, ...]]:
    """Factors, relative to R, of the groups of each calibrated view.

    Args:
        table: the table.
        choices: its bounds.
        ratio: R.
        views: noisy views by index in the plan.

    Returns:
        View name -> its group axis and factors; views that are not calibrated are left out.
    """
    steps = {s.measure: s for s in table.plan.steps if (s.of, s.kind) == (table.of, GROUP_ROWS)}
    found = {}
    for i, statistic in counts_of(table.statistics).items():
        if statistic.view in steps:
            axis = group_axis(table, statistic)
            high = _high_rows(table, choices, axis, steps[statistic.view])
            low = _low_rows(table, statistic, axis, views[i])
            found[statistic.view] = (Groups(axis, tuple(shrunk(high, low, ratio).tolist())),)
    return found


def group_axis(table: Table, statistic: PlannedStatistic) -> int:
    """The view's first axis on which a person has one leaf, else its first axis."""
    sticky = [axis for axis in statistic.axes if is_sticky(table.plan, table.of, axis)]
    return (sticky or list(statistic.axes))[0]


def shrunk(
    high: tuple[FloatArray, FloatArray], low: tuple[FloatArray, FloatArray], ratio: Ratio
) -> FloatArray:
    """R_g / R, shrunk to 1.

    Args:
        high: rows with the higher bound and their variances, by group.
        low: weighted rows and their variances, by group.
        ratio: R.

    Returns:
        One factor for each group; 1 where a group is lost in noise, or R is not applied.
    """
    factors = np.ones(len(high[0]))
    seen = (high[0] > SEEN * np.sqrt(high[1])) & (low[0] > SEEN * np.sqrt(low[1]))
    if not ratio.applied or np.count_nonzero(seen) < 2:
        return factors
    own = high[0][seen] / low[0][seen]
    own = own * low[0][seen].sum() / high[0][seen].sum()
    noise = own**2 * (high[1][seen] / high[0][seen] ** 2 + low[1][seen] / low[0][seen] ** 2)
    excess = ((own - 1.0) ** 2 / noise).sum() - len(own)
    between = max(0.0, excess / (1.0 / noise).sum())
    factors[seen] = 1.0 + between / (between + noise) * (own - 1.0)
    return factors


def _high_rows(table: Table, choices: Choices, axis: int, step: Step) -> tuple[FloatArray, FloatArray]:
    """Noisy rows of each group, a person's rows weighted to at most q.9(n)."""
    leaves = table.plan.axes[axis].axis.leaves
    weights = make_pure_weights(table.connection, table.rows, f"{table.of} groups", choices.high, [])
    (cells,) = exact_sums(table.connection, weighted(table.rows, weights), (axis,), (leaves,), [WEIGHT])
    strategies = [LeafStrategy(leaves, table.law)]
    reach = UNIT * choices.high
    view = draw_view(cells, strategies, step.spend, reach, table.noise)
    return leaf_estimates(view, strategies) / UNIT, np.full(leaves, view.unit_variance / UNIT**2)


def _low_rows(
    table: Table, statistic: PlannedStatistic, axis: int, view: NoisyView
) -> tuple[FloatArray, FloatArray]:
    """The view's weighted rows of each group and their variances."""
    strategies = table.plan.strategies(statistic)
    place = statistic.axes.index(axis)
    others = tuple(i for i in range(len(strategies)) if i != place)
    rows = leaf_estimates(view, strategies).sum(axis=others) / UNIT
    variance = view.unit_variance / UNIT**2
    for i in others:
        variance *= float(strategies[i].variance().ranges(np.array([0]), np.array([strategies[i].leaves]))[0])
    leaf = np.arange(strategies[place].leaves)
    return rows, variance * strategies[place].variance().ranges(leaf, leaf + 1)
