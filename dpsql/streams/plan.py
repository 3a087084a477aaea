"""Plan and time axis of a stream, from the catalog and public tables alone: time first, then the other axes.

A view of a stream is the product of the time axis, whose strategy is the stream's, and the view's other axes, which
are planned as in any release. Two plans share it:

    batch plan    the time axis is the arriving batch, one leaf: how its rows become integers
    whole plan    the time axis is all batches so far: how the published numbers become a release file

| here | there | unit |
|---|---|---|
| `max_ids` of the table | c | rows of one unit kept of one batch |
| `stream.max_batches` | D | batches in which one unit may be, ever |
| `PlannedStatistic.tau` of the whole plan | c D | rows of one unit, ever |

Strategies are found by optimisation, and another version or machine may find slightly others. Rows of one block would
then be sums of different rows, and neither estimates nor budgets would hold. So the first append writes them into the
promise (`frozen`), which the ledger seals, and every later append takes them from there (`thawed`). So do the leaves
of axes over public tables, as a digest of their labels: a row added to such a table could move every later leaf by one.

A batch is one grain of the time column: an hour, a day, a week from Monday, or a month. Number 0 holds the origin,
the declared lower bound of the column, so numbers follow from the catalog and the label alone. On the axis each batch
is one leaf.

**Privacy**: budgets and strategies are the same at every append, so the whole budget is charged once. Without D the
promise is for a unit's rows of one batch, and the ledger keeps such lineages apart from those of whole units. The time
axis is a function of the catalog alone.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import cached_property, partial
from math import prod
from typing import Any, Literal

import numpy as np

from dpsql.axis.build import build_axis
from dpsql.axis.model import Axis, CategoryRule, KeyRule
from dpsql.catalog import Catalog
from dpsql.catalog.base import GRAIN_MICROSECONDS
from dpsql.catalog.columns import DROP, Column, Cuts
from dpsql.catalog.graph import ResolvedAxis
from dpsql.catalog.model import Stream
from dpsql.central.axes import AxisMaker
from dpsql.central.plan import STREAM_ROW_BITS, plan_release
from dpsql.central.planned import PlannedAxis, PlannedStatistic, ReleasePlan
from dpsql.errors import BatchOrderError, CatalogError, IntegrityError, InterfaceError
from dpsql.matrices import AxisVariance
from dpsql.matrices.strategy import axis_budgets
from dpsql.mechanisms.axis import thaw
from dpsql.mechanisms.continual import ALIKE, words
from dpsql.mechanisms.continual import thaw as thaw_time
from dpsql.mechanisms.continual.time_tree import StreamProblem, TimeChoice, TimeStrategy, question_of
from dpsql.mechanisms.designs import DATA_DEPENDENT
from dpsql.mechanisms.designs.question import MOST_NUMBERS
from dpsql.mechanisms.distribution import LAPLACE, LAWS, NoiseDistribution
from dpsql.mechanisms.offers import AxisChoice, JointCells
from dpsql.streams.append import StreamSpec, StreamStatistic

Grain = Literal["hour", "day", "week", "month"]

_SPAN = {"hour": timedelta(hours=1), "day": timedelta(days=1), "week": timedelta(weeks=1)}


def batch_number(label: str, origin: str, grain: Grain) -> int:
    """The number of the batch that a label names.

    Args:
        label: ISO date or time inside the batch, for instance 2026-11-21, 2026-11-21T13 or 2026-11.
        origin: ISO date or time inside batch 0.
        grain: the length of a batch.

    Raises:
        BatchOrderError: not a date, or before the origin.

    >>> batch_number("2026-01-31", "2026-01-01", "day"), batch_number("2026-03", "2025-12-15", "month")
    (30, 3)
    """
    start, first = _start(label, grain), _start(origin, grain)
    if start < first:
        raise BatchOrderError(f"batch {label} lies before the first batch {origin}", hint="check the label")
    if grain == "month":
        return (start.year - first.year) * 12 + start.month - first.month
    return (start - first) // _SPAN[grain]


def batch_bounds(number: int, origin: str, grain: Grain) -> tuple[datetime, datetime]:
    """The time that a batch covers, half-open.

    >>> [str(t) for t in batch_bounds(1, "2026-01-01", "month")]
    ['2026-02-01 00:00:00', '2026-03-01 00:00:00']
    """
    start = _start(origin, grain)
    if grain != "month":
        return start + number * _SPAN[grain], start + (number + 1) * _SPAN[grain]
    month = start.year * 12 + start.month - 1 + number
    first, following = (start.replace(year=m // 12, month=m % 12 + 1) for m in (month, month + 1))
    return first, following


def _start(label: str, grain: Grain) -> datetime:
    """The beginning of the batch that a label lies in.

    Raises:
        BatchOrderError: not a date.
    """
    text = label.strip()
    try:
        if len(text) == 7:
            text += "-01"
        moment = datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError as error:
        raise BatchOrderError("a batch label is not a date", hint="write for instance 2026-11-21") from error
    if grain == "hour":
        return moment.replace(minute=0, second=0, microsecond=0)
    day = moment.date()
    if grain == "week":
        day -= timedelta(days=day.weekday())
    if grain == "month":
        day = day.replace(day=1)
    return datetime(day.year, day.month, day.day)


MECHANISMS = ("auto", "lue_dptree", "struct_construct", "tree", "identity", "gaussian")
"""Mechanisms that measure integer rows, whose sums over batches are rows again."""

LOOKING = frozenset({"allow", *(word for mechanism in DATA_DEPENDENT for word in mechanism.NAMED)})
"""What a view says, as its mechanism or under `data_dependent`, that wants a look at the data before it measures."""


def stream_column(catalog: Catalog) -> tuple[Stream, str, Column]:
    """The stream, the table whose rows arrive, and its time column.

    Raises:
        CatalogError: the catalog has no stream, or its column no bounds, or a grain finer than the column.
    """
    if catalog.stream is None:
        raise CatalogError(
            "stream: missing", hint="write stream: {column, grain, horizon}, or use `dpsql publish`"
        )
    of, _, name = catalog.stream.column.rpartition(".")
    column = catalog.tables[of].columns[name]
    if column.lower is None or column.upper is None:
        raise CatalogError(
            f"tables.{of}.columns.{name}: a stream's time column needs lower (its first batch) and upper"
        )
    if catalog.stream.grain == "hour" and column.type == "date":
        raise CatalogError("stream.grain: a date has no hours", hint="write grain: day")
    return catalog.stream, of, column


def time_axis(
    catalog: Catalog, resolved: ResolvedAxis, column: Column, stream: Stream, first: int, stop: int
) -> Axis:
    """The axis over the batches [first, stop), one leaf each.

    Raises:
        BatchOrderError: they run past the column's upper bound.
    """
    low, high = str(column.lower), str(column.upper)
    start = max(batch_bounds(first, low, stream.grain)[0], datetime.fromisoformat(low))
    last, end = batch_bounds(stop - 1, low, stream.grain)
    if last > datetime.fromisoformat(high):
        raise BatchOrderError(
            f"batch {last.date()} lies past the upper bound {high} of {stream.column}",
            hint="start a new release for later batches",
        )
    step = timedelta(microseconds=GRAIN_MICROSECONDS["day" if column.type == "date" else column.grain])
    bounds = (start.date(), (end - step).date()) if column.type == "date" else (start, end - step)
    spec = column.model_copy(
        update={
            "lower": str(bounds[0]), "upper": str(bounds[1]), "out_of_domain": DROP, "nullable": False,
            "cuts": Cuts(width=stream.grain, at=()),
        }
    )  # fmt: skip
    return build_axis(catalog, replace(resolved, spec=spec, cuts=None), {})


def is_time(resolved: ResolvedAxis, stream: Stream) -> bool:
    """True if an axis of a view is the stream's time axis."""
    return resolved.path == () and f"{resolved.table}.{resolved.column}" == stream.column


def check_views(catalog: Catalog, stream: Stream, of: str, column: Column) -> None:
    """Refuse views that cannot be measured batch by batch.

    Raises:
        CatalogError: a view of another table, without the time axis, cut otherwise, or of another mechanism.
    """
    if not catalog.views:
        raise CatalogError("views: none are declared", hint="declare at least one view")
    if column.cuts is not None:
        raise CatalogError(
            f"{stream.column}: a stream's time axis has the stream's grain", hint="remove its cuts"
        )
    for name, view in catalog.star.views.items():
        where = f"views.{name}"
        time = [(written, axis) for written, axis in view.axes if is_time(axis, stream)]
        if view.of != of or not time:
            raise CatalogError(
                f"{where}: a view of a stream counts `{of}` along `{stream.column}`",
                hint="add that axis, or move the view to a catalog of its own",
            )
        if time[0][1].cuts is not None or time[0][0].workload:
            raise CatalogError(
                f"{where}: a stream's time axis has the stream's grain and questions",
                hint="remove its cuts; write what is asked of time under `stream.workload`",
            )
        if LOOKING & {view.spec.word, view.spec.data_dependent}:
            raise CatalogError(
                f"{where}: a stream measures the same rows in every batch, so no view may choose them by "
                "data-dependent selection, which each batch would pay for again",
                hint="write `mechanism: auto` and `data_dependent: refuse`",
            )
        if view.spec.word not in MECHANISMS:
            raise CatalogError(
                f"{where}.mechanism: `{view.spec.word}` does not measure batch by batch", hint="write auto"
            )


DEFAULT_WINDOWS = {
    "hour": ("1", "24", "168"), "day": ("1", "7", "30"), "week": ("1", "4", "13"), "month": ("1", "3", "12")
}  # fmt: skip
"""Windows that are asked as often as running totals and ranges, where the catalog does not say what is asked."""

MOST_BITS = 28
"""Bits of whole weights above which nothing is gained."""


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
    strategy: TimeStrategy
    batch: ReleasePlan

    @property
    def origin(self) -> str:
        """A date or time in batch 0: the column's lower bound."""
        return str(self.column.lower)

    @property
    def lifetime(self) -> int | None:
        """D, or None where no unit can be in two batches or each batch is promised on its own."""
        return None if self.catalog.privacy.unit.table is None else self.stream.max_batches

    @property
    def unit(self) -> str:
        """Protected rows, in words."""
        unit = self.catalog.privacy.unit
        return unit.name if self.lifetime else unit.per(self.stream.grain)

    @cached_property
    def price(self) -> Fraction:
        """Price of a unit for all its batches, relative to one batch."""
        return self.strategy.price(self.lifetime or 1)

    def refined_noise(self) -> StreamPlan:
        """The same with sums as fine as noise nodes need; those with large weights are fine already."""
        largest_share, statistics = max(self.strategy.shares) / self.price, list(self.batch.statistics)
        for members in self.batch.families:
            coarse = [replace(statistics[i], noise_refinement=1) for i in members]
            needed = []
            for s in coarse:
                others = axis_budgets(self.batch.strategies(s)[1:])
                needed.append(s.law.noise_refinement(others, s.spend * largest_share, s.drawn_sensitivity))
            noise_refinement = max(needed)
            for i in members:
                factor = statistics[i].factor * statistics[i].noise_refinement / noise_refinement
                statistics[i] = replace(statistics[i], noise_refinement=noise_refinement, factor=factor)
        return replace(self, batch=replace(self.batch, statistics=tuple(statistics)))

    def whole(self, batches: int) -> ReleasePlan:
        """The plan of the release file after so many batches."""
        axis = time_axis(self.catalog, self.batch.axes[0].resolved, self.column, self.stream, 0, batches)
        planned = replace(self.batch.axes[0], resolved=axis.resolved, axis=axis)
        rows = self.batch.statistics[0].tau * (self.lifetime or 1)
        statistics = tuple(s.bounded_to(rows) for s in self.batch.statistics)
        return replace(self.batch, axes=(planned, *self.batch.axes[1:]), statistics=statistics)

    def spec(self) -> StreamSpec:
        """Part of the plan that stays fixed for the life of the stream."""
        grains = tuple(s.noise_refinement for s in self.batch.statistics)
        together = tuple(tuple(draw) for draw in self.batch.draws if len(draw) > 1)
        cells = tuple(s.cells for s in self._statistics())
        return StreamSpec(self.strategy, cells, self.lifetime, grains, together)

    def statistics(self) -> tuple[StreamStatistic, ...]:
        """The statistics with their budgets.

        Raises:
            PrivacyError: a budget is too small to be shared out.
        """
        statistics, smallest_share = self._statistics(), min(self.strategy.shares)
        for statistic in statistics:
            statistic.budgets(smallest_share)
        return statistics

    def _statistics(self) -> tuple[StreamStatistic, ...]:
        found = []
        for s in self.batch.statistics:
            others = tuple(axis_budgets(self.batch.strategies(s)[1:]))
            found.append(StreamStatistic(s.law, others, s.spend / self.price, s.drawn_sensitivity))
        return tuple(found)

    def models(self, batches: int) -> list[AxisVariance]:
        """The variance model of each axis after so many batches, time first."""
        others = (planned.strategy.solver for planned in self.batch.axes[1:])
        return [self.strategy.variance(batches), *others]

    def unit_variances(self) -> list[float]:
        """Variance of a number of each statistic that would spend all, for the model of time to multiply.

        Discrete noise and floored budgets cost two small factors, which differ from share to share; the larger stands
        for all, so errors are never understated by them.
        """
        time, shares = self.strategy.ahead, self.strategy.shares
        worst = [
            max(s.variance_at_unit_budget(share) for share in shares)
            if time is None
            else s.law.variance_at_unit_budget((time, *s.axes), s.spend, s.sensitivity)
            for s in self.statistics()
        ]
        return [variance * s.factor**2 for variance, s in zip(worst, self.batch.statistics, strict=True)]


def plan_stream(
    catalog: Catalog, make_axis: AxisMaker, number: int, choose_time: ChooseTime | None = None
) -> StreamPlan:
    """Plan a stream and the batch that arrives.

    Args:
        catalog: a checked catalog with `stream`.
        make_axis: builds the other axes, reading public tables where it needs them.
        number: the arriving batch, 0-based.
        choose_time: the strategy of time, once its noise is known and how far its sums reach; chosen if None.

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

    plan = plan_release(catalog, make)
    law = LAWS[plan.statistics[0].law.norm]
    reach = max(_reach(plan, s) for s in plan.statistics)
    time = (choose_time or partial(chosen, catalog))(law, reach, _drawn_ahead(plan, stream, law))
    first = _time_first(plan, stream, time)
    return StreamPlan(catalog, stream, of, column, time.strategy, first).refined_noise()


ChooseTime = Callable[[NoiseDistribution, int, JointCells | None], TimeChoice]
"""(noise, what a row changes a sum by at most, what is drawn where all batches may be drawn at once)."""


def _drawn_ahead(plan: ReleasePlan, stream: Stream, law: NoiseDistribution) -> JointCells | None:
    """Noise drawn ahead for a stream whose batches may be drawn at once: pure noise, an end, and other axes that
    are measured leaf by leaf; None where they may not."""
    numbers = max(len(draw) for draw in plan.draws)
    if law is not LAPLACE or not stream.ends or numbers > MOST_NUMBERS:
        return None
    rooms, cells = [], []
    for s in plan.statistics:
        others = [plan.axes[axis] for axis in s.axes if not is_time(plan.axes[axis].resolved, stream)]
        budgets = axis_budgets([planned.strategy for planned in others])
        # rows that add leaves have a part of it
        if any(np.any(axis.budget != axis.total) for axis in budgets):
            return None
        cells.append(prod(planned.axis.leaves for planned in others))
        rooms.append(s.law.column_cap(budgets, s.spend / (stream.max_batches or 1), s.drawn_sensitivity))
    return JointCells(numbers, max(cells), min(rooms))


def _reach(plan: ReleasePlan, statistic: PlannedStatistic) -> int:
    """The most that a row changes a measured sum by, in stored units: the product of the axes' largest entries.

    Entries that are not written down are below total / b on a row of budget b, which bounds their column sums.
    """
    reach = statistic.unit * (statistic.bounds.reach if statistic.bounds else 1)
    for strategy in plan.strategies(statistic):
        entries = strategy.entries()
        # Four categories of one total: 1 by their entries, 4097 by their budgets, 12 bits that whole weights lacked.
        reach *= strategy.total // int(strategy.budget.min()) if entries is None else entries.largest
    return reach


def chosen(
    catalog: Catalog, law: NoiseDistribution, reach: int = 1, joint: JointCells | None = None
) -> TimeChoice:
    """The strategy of time that a catalog asks for, with what it was compared with.

    Args:
        catalog: the catalog.
        law: the noise.
        reach: the most that one row changes a measured sum by, in stored units. A declared bound: whole weights are as
            fine as leaves 2^`STREAM_ROW_BITS` rows of it room in 64 bits.
        joint: what is drawn where all batches may be drawn at once.

    Raises:
        CatalogError: nothing is measured as the catalog wants it.
    """
    stream, _, _ = stream_column(catalog)
    usual = ("running", "range", *(w for w in DEFAULT_WINDOWS[stream.grain] if int(w) <= stream.horizon))
    weights = stream.workload or dict.fromkeys(usual, Fraction(1))
    names = dict.fromkeys((*usual, *weights))
    questions = tuple(question_of(name, float(weights.get(name, 0))) for name in names)
    bits = max(1, min(61 - STREAM_ROW_BITS - (reach - 1).bit_length(), MOST_BITS))
    batches = stream.max_batches or 1
    question = StreamProblem(law, stream.horizon, questions, batches, stream.ends, bits, joint)
    if stream.workload and stream.strategy in ALIKE:
        raise CatalogError(
            f"stream.workload: `{stream.strategy}` measures the same whatever is asked",
            hint="remove `workload`, or write `strategy: auto`",
        )
    try:
        return words()[stream.strategy](question)
    except InterfaceError as error:
        raise CatalogError(f"stream.strategy: {error.reason}", hint=error.hint) from error


def _time_first(plan: ReleasePlan, stream: Stream, time: TimeChoice) -> ReleasePlan:
    """The same plan with one time axis, axis 0 of every statistic."""
    times = [i for i, planned in enumerate(plan.axes) if is_time(planned.resolved, stream)]
    other_axes = [i for i in range(len(plan.axes)) if i not in times]
    moved = {old: new for new, old in enumerate(other_axes, start=1)}
    first = plan.axes[times[0]]
    choice = AxisChoice(first.strategy, *time[1:])
    axes = (PlannedAxis(first.resolved, first.axis, choice), *(plan.axes[i] for i in other_axes))
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


def whole_stream(
    catalog: Catalog, make_axis: AxisMaker
) -> tuple[ReleasePlan, list[AxisVariance], list[float]]:
    """A stream once all batches up to its horizon, or to its column's upper bound, are public.

    Args:
        catalog: a catalog with `stream`.
        make_axis: builds the other axes from public tables.

    Returns:
        Its plan as a release, the variance model of each axis, time first, and the variance of a number of each
        statistic that would spend its whole budget.

    Raises:
        CatalogError: the catalog cannot be streamed.
    """
    stream = plan_stream(catalog, make_axis, 0)
    bound = batch_number(str(stream.column.upper), stream.origin, stream.stream.grain) + 1
    batches = min(stream.stream.horizon, bound)
    return stream.whole(batches), stream.models(batches), stream.unit_variances()


def frozen(plan: StreamPlan) -> dict[str, Any]:
    """The strategies of a plan: of time, and of every other axis in the plan's order.

    **Privacy**: public facts; they follow from the catalog and public tables.
    """
    time = {"kind": plan.strategy.kind, "strategy": plan.strategy.frozen()}
    axes = []
    for axis, choice in ((planned.axis, planned.choice) for planned in plan.batch.axes[1:]):
        axes.append({
            "axis": axis.name, "name": choice.name, "error": choice.expected_error, "runners_up": choice.runners_up,
            "kind": choice.strategy.kind, "strategy": choice.strategy.frozen(), "leaves": leaf_digest(axis),
        })  # fmt: skip
    return {"time": time, "axes": axes}


def thawed(catalog: Catalog, make_axis: AxisMaker, number: int, kept: dict[str, Any]) -> StreamPlan:
    """A plan with the strategies that the stream was made with; nothing is chosen anew.

    Args:
        catalog, make_axis, number: as for `plan_stream`.
        kept: what `frozen` gave.

    Raises:
        CatalogError, BatchOrderError: as for `plan_stream`.
        IntegrityError: they do not fit the plan's axes: a public table or the catalog has changed.
    """

    def restored(law: NoiseDistribution, reach: int, joint: JointCells | None) -> TimeChoice:
        time = thaw_time(str(kept["time"]["kind"]), law, kept["time"]["strategy"])
        return TimeChoice(time, time.name, 0.0)

    try:
        plan = plan_stream(catalog, make_axis, number, restored)
        choices = [_from_json(frozen_axis) for frozen_axis in kept["axes"]]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IntegrityError("the stream's promise is damaged", hint="restore it from a backup") from error
    first, *others = plan.batch.axes
    fits = [(planned.axis.name, planned.axis.leaves) for planned in others]
    if [(name, choice.strategy.leaves) for name, choice in choices] != fits:
        raise _other_axes()
    pairs = zip(others, choices, strict=True)
    axes = (first, *(replace(planned, choice=choice) for planned, (_, choice) in pairs))
    return replace(plan, batch=replace(plan.batch, axes=axes))


def check_leaves(plan: StreamPlan, kept: dict[str, Any]) -> None:
    """Refuse to append along axes whose leaves stand for other values than they did.

    Args:
        plan: planned anew from the public tables as they are.
        kept: what `frozen` gave.

    Raises:
        IntegrityError: a public table has changed what leaves stand for, or the promise is damaged.
    """
    known = [frozen_axis.get("leaves") for frozen_axis in kept["axes"]]
    if known != [leaf_digest(planned.axis) for planned in plan.batch.axes[1:]]:
        raise _other_axes()


def _other_axes() -> IntegrityError:
    return IntegrityError(
        "the axes are not those that the stream was made with",
        hint="restore the catalog and its public tables, or make a new release",
    )


def leaf_digest(axis: Axis) -> str:
    """A digest of what each leaf stands for, where that follows from public rows; empty where the catalog fixes it."""
    if isinstance(axis.rule, CategoryRule):
        labels: list[list[str]] = [list(axis.rule.values)]
    elif isinstance(axis.rule, KeyRule):
        grain = {(member.path, member.column) for member in axis.resolved.by}
        named = [column.sql_name for column in axis.columns if (column.path, column.column) in grain]
        labels = [[_label(value) for value in axis.values[name].tolist()] for name in named]
    else:
        return ""
    return hashlib.sha256(json.dumps(labels).encode()).hexdigest()


def _label(value: object) -> str:
    """A public value as text, numbers by value: 7, 7.0 and 7.00 are one."""
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return str(value)
    return str(Fraction(value)) if math.isfinite(value) else str(value)


def _from_json(frozen_axis: dict[str, Any]) -> tuple[str, AxisChoice]:
    strategy = thaw(str(frozen_axis["kind"]), frozen_axis["strategy"])
    runners = tuple((str(name), float(error)) for name, error in frozen_axis["runners_up"])
    choice = AxisChoice(strategy, str(frozen_axis["name"]), float(frozen_axis["error"]), runners)
    return str(frozen_axis["axis"]), choice
