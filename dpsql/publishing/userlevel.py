"""The recipe for `max_ids: auto`: shape with a low bound and one weight per person, scale from one high total.

Read `settle_table` from the top. Every number that leaves the engine is noised at once, by the draw whose ledger
line is the step of the same name; what a step decides is computed from released numbers alone.

    bounds and centres          userlevel_choose    tau, N_hi, mid
    norms per unit (zCDP)       noisy histogram     K
    views                       weighted cells      shapes; R = N_hi / their total

**Privacy**: docs/privacy/user_level.md.
**Source**: docs/method/user_level.md, "Shape and scale".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil, hypot, isqrt, prod, sqrt

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.axis.strategy import axis_budgets, draw_view, leaf_estimates, measure_view
from dpsql.mechanisms.central.scale import Estimate, Ratio, pooled, ratio, spread
from dpsql.mechanisms.central.selection import doubling_edges, quantile, rounded
from dpsql.mechanisms.central.whitened import UNIT, Part, Whitening, pure_bound, whiten
from dpsql.mechanisms.law import GAUSSIAN, NoisyView
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan, Settled
from dpsql.publishing.userlevel_choose import (
    Choices,
    Table,
    choose_bounds,
    is_sticky,
    people_histogram,
    typical,
)
from dpsql.publishing.userlevel_groups import calibrate_groups
from dpsql.publishing.userlevel_plan import NORMS
from dpsql.publishing.userlevel_sql import Shape, make_norms, make_pure_weights, make_weights, weighted_cells

IntArray = npt.NDArray[np.int64]

NORM_BINS, NORM_START = 20, 8
"""Bins of squared norms: from 2^-8 of the typical one, doubling."""


CLIP = {0.5: 0.4, 0.9: 0.9}
"""Which quantile of the norms K is, by that of tau: a little below the middle is as good for counts on FoodMart and
Online Retail, and better for ranges and averages."""


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
    statistics = table.statistics
    draw_views = _whitened_views if table.law == GAUSSIAN else _pure_views
    views = draw_views(table, choices)
    found = _ratio(table, choices, {i: view for i, (view, _) in views.items()})
    groups = calibrate_groups(table, choices, found, {i: view for i, (view, _) in views.items()})
    settled = {
        i: replace(
            s,
            tau=choices.tau,
            settled=Settled(_mid(s, choices), views[i][1], found.value / UNIT, groups.get(s.view)),
        )
        for i, s in statistics.items()
    }
    public = table.plan.catalog.privacy.rows == "public"
    sticky = tuple(
        table.plan.axes[a].axis.name
        for a in sorted({a for s in statistics.values() for a in s.axes})
        if is_sticky(table.plan, table.of, a)
    )
    scale = TableScale(table.of, choices, found, sticky, public)
    return Drawn(settled, {i: view for i, (view, _) in views.items()}, scale)


def _whitened_views(table: Table, choices: Choices) -> dict[int, tuple[NoisyView, int]]:
    """Step 4 under zCDP: norms, K, weights, and the one draw of each statistic."""
    order = list(table.statistics)
    whitening = whiten([_part(table, table.statistics[i], choices) for i in order])
    norms = make_norms(table.connection, table.rows, table.of, view_shapes(table, choices), whitening)
    edges = doubling_edges(1 << max(0, whitening.point - NORM_START), NORM_BINS)
    histogram = people_histogram(table, norms, "norm", edges, table.step(NORMS))
    rho = sum((s.spend for s in table.statistics.values()), Fraction(0))
    wanted = rounded(quantile(histogram, CLIP[choices.quantile], unseen=1 << whitening.point))
    clip = min(wanted, whitening.largest_clip(rho))
    weights = make_weights(table.connection, norms, table.of, clip)

    def draw(i: int, cells: IntArray) -> tuple[NoisyView, int]:
        strategies = table.plan.strategies(table.plan.statistics[i])
        variance = whitening.variance(order.index(i), clip, rho)
        reach = _reach(whitening, order.index(i), clip)
        exact = measure_view(cells, strategies)
        return GAUSSIAN.draw_at(exact, axis_budgets(strategies), variance, UNIT * reach, table.noise), reach

    return _draw_each(table, weights, choices, draw)


def view_shapes(table: Table, choices: Choices) -> list[Shape]:
    """Every view of a table as the norm sees it, statistics numbered in the table's order."""
    order = list(table.statistics)
    return [
        Shape(
            {axis: table.plan.axes[axis].strategy for axis in table.plan.statistics[group[0]].axes},
            {order.index(i): _value(table, i, choices) for i in group},
        )
        for group in _by_view(table)
    ]


def _reach(whitening: Whitening, index: int, clip: int) -> int:
    """The most that one unit changes one statistic, in L2 and stored units, rounded up."""
    squared = Fraction(clip << whitening.parts[index].shift, whitening.coefficient[index])
    return isqrt(ceil(squared / whitening.parts[index].total ** 2)) + 1


def _pure_views(table: Table, choices: Choices) -> dict[int, tuple[NoisyView, int]]:
    """Step 4 under pure epsilon: weights from rows and absolute sums, Laplace noise at tau and T."""
    bounds = {}
    for name, statistic in table.sums.items():
        assert statistic.bounds is not None
        lower, upper, mid = statistic.bounds.lower, statistic.bounds.upper, choices.mids[name]
        reach = max(upper - mid, mid - lower, 1)
        bounds[name] = pure_bound(choices.tau, reach, spread(mid, lower, upper))
    limits = [(f"{table.columns[name]} - ({choices.mids[name]})", bound) for name, bound in bounds.items()]
    weights = make_pure_weights(table.connection, table.rows, table.of, choices.tau, limits)

    def draw(i: int, cells: IntArray) -> tuple[NoisyView, int]:
        statistic = table.plan.statistics[i]
        reach = bounds.get(statistic.measure.name, choices.tau)
        strategies = table.plan.strategies(statistic)
        return draw_view(cells, strategies, statistic.spend, UNIT * reach, table.noise), reach

    return _draw_each(table, weights, choices, draw)


def _draw_each(
    table: Table,
    weights: str,
    choices: Choices,
    draw: Callable[[int, IntArray], tuple[NoisyView, int]],
) -> dict[int, tuple[NoisyView, int]]:
    """Weighted cells of every view, each drawn as soon as it is fetched."""
    found = {}
    for group in _by_view(table):
        first = table.plan.statistics[group[0]]
        values = [_value(table, i, choices) for i in group]
        cells = weighted_cells(
            table.connection, table.rows, weights, first.axes, table.plan.shape(first), values
        )
        for i, each in zip(group, cells, strict=True):
            found[i] = draw(i, each)
    return found


def _part(table: Table, statistic: PlannedStatistic, choices: Choices) -> Part:
    size = typical(table, statistic, choices.tau)
    if statistic.bounds is not None:
        mid = choices.mids[statistic.measure.name]
        size *= spread(mid, statistic.bounds.lower, statistic.bounds.upper) ** 2
    total = prod(strategy.total for strategy in table.plan.strategies(statistic))
    return Part(statistic.shape, size, total)


def _value(table: Table, index: int, choices: Choices) -> str:
    """What a statistic sums per row: 1, a centred measure, or 1 where the measure is not NULL."""
    statistic = table.plan.statistics[index]
    if not statistic.measure.column:
        return "1"
    column = table.columns[f"{statistic.measure.table}.{statistic.measure.column}"]
    if statistic.bounds is None:
        return f"CASE WHEN {column} IS NOT NULL THEN 1 END"
    return f"{column} - ({choices.mids[statistic.measure.name]})"


def _by_view(table: Table) -> list[list[int]]:
    """Indices of the table's statistics, view by view."""
    views: dict[str, list[int]] = {}
    for i, statistic in table.statistics.items():
        views.setdefault(statistic.view, []).append(i)
    return list(views.values())


def _mid(statistic: PlannedStatistic, choices: Choices) -> int:
    return choices.mids[statistic.measure.name] if statistic.bounds is not None else 0


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
