"""The dry release: axes and variance models of a planned release, for the answering side to state standard errors.

It has no estimates, with two exceptions. A table with `max_ids: auto` is rehearsed: the recipe runs on made-up rows,
and the dry release holds what it would publish. For a reported column people are supposed to lie evenly over the
attribute and over all other leaves, and all to report; their channel then adds h of a question times the rows that it
asks for, times how rows of one person add up.

**Privacy**: made of the catalog, of public tables and of public guesses; the noise of a rehearsal is test entropy. A
dry release is marked as not private, so nothing opens it by mistake.
**Source**: docs/method/local.md, "Error bars".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from math import prod, sqrt
from time import process_time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.axis.model import KeyListRule
from dpsql.catalog import Catalog
from dpsql.central.axes import AxisMaker
from dpsql.central.bounding import DrawnRelease
from dpsql.central.content import descriptions, notes, planned_release, release_content
from dpsql.central.hybrid import ChannelInputs, invert_channel, reported_at, supplemented
from dpsql.central.plan import key_plans, plan_release
from dpsql.central.planned import PlannedStatistic, ReleasePlan
from dpsql.central.row_pairs import hybrid_statistics
from dpsql.central.selection import ListedKeys, fixed_list, list_part
from dpsql.contributions.rehearsal import Crowds, Guess, RehearsedTable, chosen_tables, make_up
from dpsql.curator.beyond import expected_beyond, no_excess
from dpsql.executor.engine import ReleaseEngine
from dpsql.local.mechanisms.channel import channel_of
from dpsql.matrices import AxisVariance
from dpsql.matrices.channel import COUNTED, Deviations, Squares
from dpsql.matrices.estimated import Estimated, Integers
from dpsql.matrices.kronecker import AxisSplit
from dpsql.matrices.reading import Together
from dpsql.matrices.reconcile import node_sums
from dpsql.matrices.strategy import axis_budgets
from dpsql.mechanisms.axis.joint_tree import tree_moments
from dpsql.mechanisms.designs.measurement import own_components
from dpsql.mechanisms.designs.product import PRODUCT
from dpsql.mechanisms.designs.question import MOST_TRIES, drawn_bounds, mean_tries
from dpsql.mechanisms.distribution import as_laplace, nothing_drawn
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.noise.knorm import MOST_DRAWN
from dpsql.release import Release, write
from dpsql.release.format import UNIT, ScaleMeta
from dpsql.release.read import filled_release
from dpsql.release.reports import SquareMeta
from dpsql.streams.plan import whole_stream
from dpsql.tree import kary_tree, random_boxes

FloatArray = npt.NDArray[np.float64]


class GuessedSquares:
    """Guess of how one person's rows add up; without one, the largest possible."""

    stored: tuple[SquareMeta, ...] = ()

    def __init__(self, plan: ReleasePlan, guess: Guess | None) -> None:
        self.plan, self.guess = plan, guess

    def rows(self, index: int, counts: FloatArray) -> Squares:
        """As of `DrawnSquares`: as many rows a person as she has on average, as alike as the guess says."""
        if self.guess is None:
            return Squares(float(self.plan.statistics[index].tau), 0.0, (0.0,) * counts.ndim)
        mean = min(self.guess.mean, self.plan.statistics[index].tau)
        return Squares(1.0, mean - 1.0, (self.guess.alike,) * counts.ndim)

    def deviations(self, index: int, counts: FloatArray) -> Deviations:
        """As of `DrawnSquares`: values even over the measure's bounds, a person's independent."""
        bounds = self.plan.statistics[index].bounds
        if bounds is None:
            return COUNTED
        return Deviations((bounds.upper - bounds.lower) ** 2 / 12, 0.0, float(bounds.reach))


def foreseen(
    builder: write.ReleaseBuilder, catalog: Catalog, plan: ReleasePlan, guess: Guess | None
) -> write.ReleaseBuilder:
    """A planned release of items as one of values, with the people of a guess; nobody without one.

    Args:
        builder: the planned release, without estimates.
        catalog: as it was written.
        plan: of what is counted.
        guess: what is publicly known.
    """
    statistics = list(builder.statistics)
    for i, number in hybrid_statistics(plan, catalog).items():
        statistic = statistics[i]
        leaves = [plan.axes[axis].axis.leaves for axis in statistic.meta.axes]
        rows = guess.rows if guess is not None and statistic.meta.measure.counts_rows else 0
        column = reported_at(catalog, plan.axes[number].resolved)
        if column is None:
            continue
        items = channel_of(*column.asked).law.mean(axis=1)
        place = statistic.meta.axes.index(number)
        shape = [1] * len(leaves)
        shape[place] = leaves[place]
        along = np.concatenate([items, np.zeros(leaves[place] - len(items))]).reshape(shape)
        even = np.broadcast_to(rows * leaves[place] / prod(leaves) * along, leaves)
        trees = [builder.axes[axis].tree for axis in statistic.meta.axes]
        nodes = node_sums(np.rint(even * UNIT).astype(np.int64), trees)
        empty = statistic.content.value
        statistics[i] = write.StatisticPart(statistic.meta, write.StatisticContent(empty, empty, nodes))
    channel_inputs = ChannelInputs(catalog, plan, GuessedSquares(plan, guess), ())
    return invert_channel(replace(builder, statistics=statistics), channel_inputs)


def typical_errors(release: Release, plan: ReleasePlan, catalog: Catalog) -> Mapping[int, float]:
    """Standard error of a random range on every axis, in stored units, of statistics with a reported column.

    Args:
        release: of what `foreseen` made.
        plan, catalog: as there.
    """
    errors = {}
    for i in hybrid_statistics(plan, catalog):
        masks = random_boxes([release.axes[axis].leaves for axis in release.statistics[i].axes])
        errors[i] = sqrt(float(np.mean(release.reading(i).covariance(masks).noise)))
    return errors


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """One rehearsal of all tables with `max_ids: auto`.

    Args:
        parts: what the release holds of each of their statistics, by index in the plan, and its leaves in stored units.
        spreads: how far shares may be off, the last model of each statistic.
        scales: of each table.
        stands_for: how many units each made-up unit stands for, by table: counts and sums, and their errors, are that
            many times as large.
    """

    parts: Mapping[int, tuple[write.StatisticPart, FloatArray]]
    spreads: Mapping[int, AxisVariance | Together]
    scales: tuple[ScaleMeta, ...]
    stands_for: Mapping[str, int]

    def put_into(self, builder: write.ReleaseBuilder) -> write.ReleaseBuilder:
        """A dry release with these statistics in the place of its own."""
        models, statistics = list(builder.models), list(builder.statistics)
        for i, (part, _) in self.parts.items():
            numbers = part.meta.models
            if i in self.spreads:
                numbers = (*numbers[:-1], len(models))
                models.append(self.spreads[i])
            statistics[i] = write.StatisticPart(replace(part.meta, id=i, models=numbers), part.content)
        return replace(builder, models=models, statistics=statistics, scales=self.scales)

    @property
    def blind(self) -> dict[str, tuple[str, ...]]:
        """Table -> what has no upper end of it: the empty name for its rows, else names of measures."""
        open_ends = ((s.of, [m.measure for m in s.measures if m.error.up is None]) for s in self.scales)
        found = {of: tuple(name for name in names if not name.is_count) for of, names in open_ends}
        return {of: names for of, names in found.items() if names}


def rehearse(plan: ReleasePlan, guess: Guess, crowds: Crowds, seed: int) -> Rehearsal:
    """Make every table with `max_ids: auto` up and run the recipe on it.

    Args:
        plan: the planned release.
        guess: what is publicly known about these tables.
        crowds: how crowded the leaves of axes are expected to be.
        seed: of made-up rows and noise.
    """
    made = {of: make_up(plan, of, guess.tables.get(of, guess), crowds, seed) for of in chosen_tables(plan)}
    content = release_content(_drawn(plan, made), "rehearsal", insecure=True)
    parts, spreads = {}, {}
    numbers = [i for each in made.values() for i in each.drawn.statistics]
    for i, part in zip(numbers, content.statistics, strict=True):
        where = np.ix_(*(content.axes[axis].tree.leaves for axis in part.meta.axes))
        nodes = part.content.nodes
        parts[i] = part, part.meta.in_units(nodes[where] if part.meta.axes else nodes)
        if part.meta.models and part.meta.models[-1] >= len(plan.axes):
            spreads[i] = content.models[part.meta.models[-1]]
    stands_for = {of: table.stands_for for of, table in made.items()}
    return Rehearsal(parts, spreads, tuple(content.scales), stands_for)


def _drawn(plan: ReleasePlan, made: Mapping[str, RehearsedTable]) -> DrawnRelease:
    """The rehearsed tables as one release, without the others."""
    mine = [(i, each.drawn) for each in made.values() for i in each.drawn.statistics]
    return DrawnRelease(
        replace(plan, statistics=tuple(drawn.statistics[i] for i, drawn in mine)),
        tuple(drawn.views[i] for i, drawn in mine),
        tuple(each.drawn.scale for each in made.values()),
        (),
        {place: drawn.corrected[i] for place, (i, drawn) in enumerate(mine) if i in drawn.corrected},
    )


@dataclass(frozen=True)
class Priced:
    """A plan with what decides its errors.

    Args:
        plan: the plan.
        models: the variance model of each axis.
        units: row variance of each statistic at full axis budgets.
    """

    plan: ReleasePlan
    models: list[AxisVariance]
    units: list[float]


def priced_plan(catalog: Catalog, make_axis: AxisMaker) -> Priced:
    """Plan a catalog; a stream is planned as it will be at its horizon.

    Args:
        catalog: a checked catalog.
        make_axis: builds an axis from public facts.
    """
    if catalog.stream is not None:
        return Priced(*whole_stream(catalog, make_axis))
    plan = supplemented(plan_release(catalog, make_axis), catalog)
    models: list[AxisVariance] = [planned.strategy.solver for planned in plan.axes]
    return Priced(plan, models, [one_row(s).variance_at_unit_budget(plan.axes) for s in plan.statistics])


def dry_release(
    priced: Priced,
    catalog: Catalog | None = None,
    guess: Guess | None = None,
    rehearsal: Rehearsal | None = None,
) -> write.ReleaseBuilder:
    """The planned release without estimates: axes and variance models alone.

    Args:
        priced: what would be measured.
        catalog: as it was written, where that is not the plan's: with the values of reported columns.
        guess: of the people who report, and of rows beyond declared bounds; nobody, and none, without one.
        rehearsal: of tables with `max_ids: auto`, on made-up rows.

    **Privacy**: no private row goes into it, and it is marked so that `connect` refuses a file of it.
    """
    plan = priced.plan
    known = replace(plan, statistics=tuple(one_row(s) for s in plan.statistics))
    statistics = list(map(write.Statistic, descriptions(known), _foreseen(priced, known)))
    builder = planned_release(known, "dry", write.without_numbers(statistics, priced.models), insecure=True)
    builder = replace(
        builder, bounding=[*builder.bounding, *expected_beyond(plan, guess)], keys=tuple(_fixed_lists(plan)),
        excess=list(no_excess(plan, guess)),
    )  # fmt: skip
    if rehearsal is not None:
        builder = rehearsal.put_into(builder)
    return foreseen(builder, catalog or plan.catalog, plan, guess)


def _fixed_lists(plan: ReleasePlan) -> Iterator[write.KeyListPart]:
    """The lists that are there before a release is made: what they do not hold is refused or noted as it will be."""
    rules = {(axis.resolved.table, axis.resolved.column): axis.axis.rule for axis in plan.axes}
    for key_plan in key_plans(plan.catalog):
        rule = rules[key_plan.column.table, key_plan.column.column]
        if not key_plan.rounds and isinstance(rule, KeyListRule):
            listed = fixed_list(key_plan.column, ListedKeys(rule.keys))
            yield list_part(key_plan, listed, max(1, len(rule.keys)), None)


def _foreseen(priced: Priced, plan: ReleasePlan) -> list[Estimated]:
    """Every statistic as it will be once views are reconciled, with estimates of 0.

    Args:
        priced: what would be measured.
        plan: the same, where publishing chooses tau for units with one row.
    """
    totals = {i: AxisSplit(model).total for i, model in enumerate(priced.models)}
    estimated, joint = {}, plan.joint
    for members in plan.families:
        family = [(plan.statistics[i].axes, priced.units[i]) for i in members]
        factors = plan.statistics[members[0]].measurement.components(family, totals)
        for i, (axes, _) in zip(members, family, strict=True):
            statistic = plan.statistics[i]
            empty = nothing_drawn(len(axes))
            estimated[i] = Estimated(
                np.broadcast_to(0.0, plan.shape(statistic)),
                statistic.measurement.facts.reading,
                own_components(factors, axes),
                Integers(empty, empty),
                notes(plan, statistic),
                statistic.measurement.facts.biased,
                joint.get(statistic.joint),
            )
    return [estimated[i] for i in range(len(plan.statistics))]


def one_row(statistic: PlannedStatistic) -> PlannedStatistic:
    """The statistic as it stands; where publishing chooses tau, that of units with one row."""
    return statistic.bounded_to(statistic.tau or 1)


@contextmanager
def dry_answerer(
    priced: Priced,
    catalog: Catalog | None = None,
    guess: Guess | None = None,
    rehearsal: Rehearsal | None = None,
) -> Iterator[ReleaseEngine]:
    """An answerer of the planned release, which knows standard errors and no estimate but made-up ones.

    It is gone after the block.

    Args:
        priced, catalog, guess, rehearsal: as for `dry_release`.
    """
    fill = dry_release(priced, catalog, guess, rehearsal).fill
    with closing(filled_release(fill, "the planned release")) as release:
        yield ReleaseEngine(release)


class DrawForecast(NamedTuple):
    """The joint draw of a view's numbers, or that they are too many for one.

    Args:
        view: whose.
        statistics: their positions in the plan.
        cells: leaf combinations of the view.
        vectors: noisy vectors, one for each combination of rows.
        tries: mean number of tries of a vector; None where each number has a draw of its own.
    """

    view: str
    statistics: tuple[int, ...]
    cells: int
    vectors: int
    tries: float | None

    @property
    def line(self) -> str:
        """As `dpsql plan` prints it."""
        number = len(self.statistics)
        if self.tries is None:
            return (
                f"{self.view}: its {number} numbers have a draw each and share its epsilon: one draw holds at most "
                f"{MOST_DRAWN} numbers and is made where it takes up to {MOST_TRIES} tries a cell; ask fewer "
                "measures of one view"
            )
        unit = "cells" if self.vectors == self.cells else "nodes"
        return f"{self.view}: {number} numbers by one draw, {self.vectors:,} {unit} x {self.tries:.3g} tries"


def draw_forecasts(plan: ReleasePlan) -> tuple[DrawForecast, ...]:
    """Every view of a pure plan whose numbers the same rows move, but those whose leaves are drawn as trees."""
    views: dict[tuple[str, tuple[int, ...]], list[int]] = {}
    for i, statistic in enumerate(plan.statistics):
        if statistic.tau and statistic.measurement is PRODUCT and as_laplace(statistic.law):
            views.setdefault((statistic.view, statistic.axes), []).append(i)
    forecasts = []
    for (view, _), places in views.items():
        members = [plan.statistics[i] for i in places]
        law, terms = as_laplace(members[0].law), members[0].terms(plan.axes)
        if plan.catalog.privacy.delta or law is None or len(members) == 1:
            continue
        sensitivities, axes = [s.drawn_sensitivity for s in members], axis_budgets(terms.strategies)
        if law.tree_noise(axes, terms.spend, sensitivities) is not None:
            continue
        budget, tries = law.budgets(axes, terms.spend, max(sensitivities)), None
        if law.numbers > 1:
            bounds = max(drawn_bounds([s.law for s in members], sensitivities), key=len)
            tries = mean_tries(budget, law.denominator(max(sensitivities)), bounds)
        cells = prod(plan.shape(members[0]))
        forecasts.append(DrawForecast(view, tuple(places), cells, budget.size, tries))
    return tuple(forecasts)


# DuckDB fills blocks; an axis and its model take two, a statistic's drawn integers and its nodes one each.
_BLOCK, _FILE_BLOCKS = 1 << 16, 4
_NUMBER_BYTES, _NODE_BYTES, _INDEX_BYTES, _ENTRY_BYTES = 4.0, 6.2, 0.7, 8.1
# On a machine where a `_REFERENCE` draw takes so long. A solver takes each of a model's entries for each line of cells;
# long axes are worse than linear.
_RELEASE_SECONDS, _CHOICE_SECONDS, _STATISTIC_SECONDS, _NODE_SECONDS = 0.25, 0.3, 0.02, 9e-7
_ENTRY_SECONDS, _LINE_SECONDS, _CELL_SECONDS, _SINE_SECONDS = 4e-7, 5e-8, 1.5e-8, 2.2e-5
_REFERENCE = 7.3e-7


@cache
def _slowness() -> float:
    """Processor seconds here over those of the machine on which the constants above were measured."""
    noise, units, taken = ExactNoise(insecure_test_entropy(0)), np.ones(1 << 14, np.int64), list[float]()
    for _ in range(3):
        start = process_time()
        noise.laplace(units, 1000)
        taken.append(process_time() - start)
    return min(taken) / (units.size * _REFERENCE)


def size_and_seconds(priced: Priced) -> tuple[int, float]:
    """About the bytes of a plan's release, and the processor seconds that drawing, estimating and writing it take.

    Bytes are a function of the catalog; seconds follow how fast this machine draws. Counting raw rows comes on top.
    """
    plan, models = priced.plan, [_entries(model) for model in priced.models]
    size = _BLOCK * (_FILE_BLOCKS + 2 * (len(plan.axes) + len(plan.statistics))) + _ENTRY_BYTES * sum(models)
    seconds = _RELEASE_SECONDS + _CHOICE_SECONDS * len(chosen_tables(plan))
    seconds += _STATISTIC_SECONDS * len(plan.statistics) + _ENTRY_SECONDS * sum(models)
    tries = {i: draw.tries or 1.0 for draw in draw_forecasts(plan) for i in draw.statistics}
    for i, statistic in enumerate(plan.statistics):
        strategies, law = plan.strategies(statistic), statistic.law
        rows, nodes, cells = (
            statistic.measurement.row_count(strategies),
            stored_nodes(plan, statistic),
            prod(plan.shape(statistic)),
        )
        index = _INDEX_BYTES * len(statistic.axes)
        size += rows * (_NUMBER_BYTES + index) + nodes * (_NODE_BYTES + index)
        trees = prod(tree_moments(s.levels).draws for s in strategies if s.levels is not None)
        seconds += law.seconds * rows * tries.get(i, 1.0) * trees + _NODE_SECONDS * nodes
        for axis, strategy in zip(statistic.axes, strategies, strict=True):
            leaves, sine = plan.axes[axis].axis.leaves, strategy.kind == "sine"
            seconds += _LINE_SECONDS * models[axis] * cells / leaves
            seconds += cells * (_SINE_SECONDS if sine else _CELL_SECONDS * sqrt(leaves))
    return int(size), seconds * _slowness()


def _entries(model: AxisVariance) -> int:
    """Floats that a variance model holds."""
    return sum(len(column) for column in model.columns().values() if np.issubdtype(column.dtype, np.floating))


def stored_nodes(plan: ReleasePlan, statistic: PlannedStatistic) -> int:
    """Stored node combinations."""
    return prod(kary_tree(plan.axes[i].axis.leaves, write.LOOKUP_ARITY).size for i in statistic.axes)
