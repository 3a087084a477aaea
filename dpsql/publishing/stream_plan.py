"""What a stream will measure, from the catalog and public tables alone: time first, then the other axes.

A view of a stream is the product of the time axis, whose strategy is the stream's, and the view's other axes, which
are planned as in any release. Two plans share it:

    batch plan    the time axis is the arriving batch, one leaf: how its rows become integers
    whole plan    the time axis is all batches so far: how the published numbers become a release file

| here | there | unit |
|---|---|---|
| `max_ids` of the table | c | rows of one unit kept of one batch |
| `stream.max_batches` | D | batches in which one unit may be, ever |
| `PlannedStatistic.tau` of the whole plan | c D | rows of one unit, ever |

**Privacy**: budgets and strategies are the same at every append, so the whole budget is charged once. Without D the
promise is for a unit's rows of one batch, and the ledger keeps such lineages apart from those of whole units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from dpsql.axis import Axis
from dpsql.budget import cap_units, gaussian_sigma2, scaled_denominator
from dpsql.catalog import Catalog, ResolvedAxis
from dpsql.catalog.columns import Column
from dpsql.catalog.model import Stream
from dpsql.errors import CatalogError, PrivacyError
from dpsql.mechanisms.axis.question import AxisChoice
from dpsql.mechanisms.stream import toeplitz
from dpsql.mechanisms.stream.choose import StreamStrategy, named_strategy, predicted_error
from dpsql.mechanisms.stream.laminar import Currency
from dpsql.mechanisms.stream.schedule import Read, emissions
from dpsql.publishing.axes import AxisMaker
from dpsql.publishing.plan import plan_release
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.publishing.planned_axes import PlannedAxis
from dpsql.publishing.stream_spec import StreamSpec, StreamStatistic
from dpsql.publishing.stream_time import check_views, described, is_time, stream_column, time_axis

SAMPLED = 64
"""Batches whose noise nodes stand for all in the check that no budget is rounded to nothing."""


@dataclass(frozen=True)
class StreamPlan:
    """A stream's plan, with one batch as its time axis.

    Args:
        catalog: the catalog.
        stream: its `stream` part.
        of: the table whose rows arrive.
        column: its time column.
        strategy: of the time axis.
        batch: the plan for one batch; axis 0 is the batch.
    """

    catalog: Catalog
    stream: Stream
    of: str
    column: Column
    strategy: StreamStrategy
    batch: ReleasePlan

    @property
    def currency(self) -> Currency:
        """What the budgets are shares of."""
        return "zcdp" if self.catalog.privacy.delta else "pure"

    @property
    def origin(self) -> str:
        """A date or time in batch 0: the column's lower bound."""
        return str(self.column.lower)

    @property
    def lifetime(self) -> int | None:
        """D, or None where no unit can be in two batches or each batch is promised on its own."""
        return None if self.catalog.privacy.unit == "row" else self.stream.max_batches

    @property
    def unit(self) -> str:
        """Whose rows are protected, in words."""
        unit = self.catalog.privacy.unit
        return unit if unit == "row" or self.lifetime else f"{unit} per {self.stream.grain}"

    @property
    def rows_per_unit(self) -> int:
        """c D: rows that one protected unit adds to any sum, at most."""
        return self.batch.statistics[0].tau * (self.lifetime or 1)

    def whole(self, batches: int) -> ReleasePlan:
        """The plan of the release file after so many batches."""
        axis = time_axis(self.catalog, self.batch.axes[0].resolved, self.column, self.stream, 0, batches)
        planned = replace(self.batch.axes[0], resolved=axis.resolved, axis=axis)
        statistics = tuple(replace(s, tau=self.rows_per_unit) for s in self.batch.statistics)
        return replace(self.batch, axes=(planned, *self.batch.axes[1:]), statistics=statistics)

    def spec(self) -> StreamSpec:
        """What stays fixed for the life of the stream."""
        cells = tuple(
            prod(len(s.budget) for s in self.batch.strategies(statistic)[1:])
            for statistic in self.batch.statistics
        )
        return StreamSpec(self.strategy, self.currency, cells, self.lifetime)

    def reads(self) -> tuple[Read, ...]:
        """Noise nodes of the first batches, one for each budget that they spend."""
        first = range(min(SAMPLED, self.strategy.horizon))
        if self.strategy.plan is not None:
            first = range(self.strategy.plan.spans[-1] - 1, self.strategy.plan.spans[-1])
        found = [r for b in first for e in emissions(self.strategy, self.currency, b) for r in e.reads]
        return tuple({(read.budget, read.total): read for read in found}.values())

    def statistics(self) -> tuple[StreamStatistic, ...]:
        """The statistics with their budgets.

        Raises:
            PrivacyError: a budget is too small to be shared out.
        """
        found = tuple(self._statistic(s) for s in self.whole(1).statistics)
        if self.currency == "pure" and not all(s.units(read).all() for s in found for read in self.reads()):
            raise PrivacyError(
                "the stream's epsilon is too small to be shared out over these axes",
                hint="give views larger shares or fewer axes",
            )
        return found

    def _statistic(self, statistic: PlannedStatistic) -> StreamStatistic:
        others = [(s.budget, s.total) for s in self.batch.strategies(statistic)[1:]]
        name = f"{statistic.view}: {statistic.measure.name}"
        cells = prod(budget.size for budget, _ in others)
        if self.currency == "pure":
            t = scaled_denominator(statistic.sensitivity)
            cap = cap_units(statistic.spend, t)
            head, further = (others or [(np.ones(1, np.int64), 1)])[0], tuple(others[1:])
            return StreamStatistic(name, cells, cap, t * statistic.sensitivity, *head, None, further)
        square = statistic.sensitivity**2 * column_norm(self.strategy)
        budget = np.ones(1, np.int64)
        for each, _ in others:
            budget = np.multiply.outer(budget, each).reshape(-1)
        sigma2 = gaussian_sigma2(statistic.spend, square)
        return StreamStatistic(name, cells, budget=budget, total=prod(t for _, t in others), sigma2=sigma2)


def column_norm(strategy: StreamStrategy) -> int:
    """Squared weight of one row over all noise nodes at full budget: 1 but for Toeplitz's integer weights."""
    return toeplitz.squared_sensitivity(strategy.horizon) if strategy.kind == "toeplitz" else 1


def plan_stream(catalog: Catalog, make_axis: AxisMaker, number: int) -> StreamPlan:
    """Plan a stream and the batch that arrives.

    Args:
        catalog: a checked catalog with `stream`.
        make_axis: builds the other axes, reading public tables where it needs them.
        number: the arriving batch, 0-based.

    Raises:
        CatalogError: the catalog cannot be streamed.
        BatchOrderError: the batch lies past the column's upper bound.
    """
    stream, of, column = stream_column(catalog)
    check_views(catalog, stream, of, column)

    def make(resolved: ResolvedAxis) -> Axis:
        if is_time(resolved, stream):
            return time_axis(catalog, resolved, column, stream, number, number + 1)
        return make_axis(resolved)

    private = _measurable(catalog)
    plan = replace(plan_release(private, make), catalog=catalog)
    try:
        currency: Currency = "zcdp" if catalog.privacy.delta else "pure"
        strategy = named_strategy(stream.strategy, stream.horizon, currency)
    except ValueError as error:
        raise CatalogError(f"stream.strategy: {error}", hint="write auto, or give privacy.delta") from error
    return StreamPlan(catalog, stream, of, column, strategy, _time_first(plan, stream, strategy, currency))


def _measurable(catalog: Catalog) -> Catalog:
    """Under zCDP all noise of a stream is Gaussian."""
    if not catalog.privacy.delta:
        return catalog
    views = {n: view.model_copy(update={"mechanism": "gaussian"}) for n, view in catalog.views.items()}
    return catalog.model_copy(update={"views": views})


def _time_first(
    plan: ReleasePlan, stream: Stream, strategy: StreamStrategy, currency: Currency
) -> ReleasePlan:
    """The same plan with one time axis, axis 0 of every statistic."""
    times = [i for i, planned in enumerate(plan.axes) if is_time(planned.resolved, stream)]
    others = [i for i in range(len(plan.axes)) if i not in times]
    moved = {old: new for new, old in enumerate(others, start=1)}
    first = plan.axes[times[0]]
    error = predicted_error(strategy, "range", currency)
    choice = AxisChoice(first.strategy, described(strategy), error, ())
    axes = (PlannedAxis(first.resolved, first.axis, choice), *(plan.axes[i] for i in others))
    statistics = []
    for s in plan.statistics:
        statistics.append(replace(s, axes=(0, *sorted(moved[axis] for axis in s.axes if axis in moved))))
        cells = stream.horizon * prod(axes[axis].axis.leaves for axis in statistics[-1].axes)
        if cells > plan.catalog.views[s.view].cells:
            raise CatalogError(
                f"views.{s.view}: {cells} cells over the horizon of {stream.horizon} batches are over the cap",
                hint="cut the axes wider, drop one, shorten the horizon, or raise `cells`",
            )
    return replace(plan, axes=axes, statistics=tuple(statistics))
