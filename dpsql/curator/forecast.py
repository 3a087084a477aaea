"""`dpsql plan` as values: what a catalog's release will cost and answer, before anything is spent.

Publishing plans and a dry release is written: the axes and the variance models of the planned release and no estimates
at all, so that the answering side can say every statement's standard error. It is made of the catalog and of public
tables; private tables are not even opened.

**Privacy**: reads no private table and spends nothing; of the ledger it reads amounts alone. A dry release is marked
as not private, so nothing opens it by mistake.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, replace
from fractions import Fraction
from math import isfinite, prod, sqrt
from statistics import fmean
from typing import NamedTuple

from dpsql.budget import currency_at
from dpsql.budget.curve import people_at
from dpsql.catalog import Catalog
from dpsql.catalog.base import MeasureName
from dpsql.catalog.graph import ledger_path
from dpsql.catalog.model import Privacy
from dpsql.catalog.private_columns import has_private_keys, reported_columns
from dpsql.catalog.summaries import summed_words
from dpsql.central.axes import AxisMaker, open_public
from dpsql.central.hybrid import counted_catalog
from dpsql.central.plan import EVEN, SURE, key_plans
from dpsql.central.planned import PlannedStatistic, ReleasePlan, charged, currency_of
from dpsql.central.selection import NO_SIZES, planning_lists, planning_maker
from dpsql.contributions.rehearsal import Guess, crowds, stated_guess
from dpsql.curator import dry_release
from dpsql.curator.beyond import BoundForecast, ExcessForecast, bound_forecasts, excess_forecasts
from dpsql.curator.rehearsal import (
    ClassForecast,
    Foresight,
    Prediction,
    UnderpoweredTable,
    UninformativeView,
    foresee,
    hopeless,
)
from dpsql.errors import CatalogError, Error, PrivacyError
from dpsql.executor.engine import PredictedColumn, predict
from dpsql.ledger.store import budget_report
from dpsql.mechanisms.designs.measurement import AxisWorkload
from dpsql.mechanisms.offers import Refusal


@dataclass(frozen=True)
class Refreshes:
    """Shares of a catalog's releases; amounts are epsilons at the lineage's delta, fractions in text.

    Args:
        planned: how many share the cap.
        left: how many of them still fit.
        epsilon: what each is charged.
        cap: what all are charged together, at most.
        spent: what the lineage has spent so far.
        at_delta: what follows an epsilon in a sentence.
    """

    planned: int
    left: int
    epsilon: str
    cap: str
    spent: str
    at_delta: str


def refreshes(catalog: Catalog) -> Refreshes | None:
    """Budget left for a catalog's `releases`.

    Args:
        catalog: a loaded catalog.

    Returns:
        None where the catalog says an `epsilon` alone.

    Raises:
        IntegrityError, OperationalError: the ledger is damaged, or cannot be opened.
    """
    privacy = catalog.privacy
    if privacy.releases is None:
        return None
    currency, charge = currency_of(privacy), charged(privacy)
    lineages = {report.lineage.name: report for report in budget_report(ledger_path(catalog)).lineages}
    spent = lineages[privacy.lineage].spent if privacy.lineage in lineages else Fraction(0)
    remaining = max(0, (currency.counted(privacy.cap) - spent) // charge)
    used = currency.epsilon(spent) if spent else spent
    epsilon, cap = str(currency.epsilon(charge)), str(privacy.cap)
    return Refreshes(privacy.releases, remaining, epsilon, cap, str(used), currency.at_delta)


class AxisForecast(NamedTuple):
    """Forecast of the measurement of one axis.

    Args:
        axis, strategy: their names.
        expected: the strategy's mean squared error over the axis's workload, at unit noise.
        runners_up: (strategy, expected error) of the others, best first.
    """

    axis: str
    strategy: str
    expected: float
    runners_up: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class StatisticForecast:
    """One view and measure, before it is published.

    Args:
        view, of, measure: what is counted or summed.
        axes: the names of its axes.
        strategies: what will be measured on each axis.
        both: ways to measure its two axes, together or one by one, with expected errors over ranges on both, the
            chosen one first; empty where there is one way.
        axis_forecasts: what is known of each axis that is measured by itself; none where both are measured together.
        noise: Laplace or Gaussian.
        charge: what the ledger will be charged, in `currency`.
        currency: epsilon or mu2.
        tau: rows of one unit that count; 0 where publishing chooses them (then figures are for units of one row).
        cells: leaf combinations.
        nodes: stored node combinations.
        typical: standard error of the answer to a random range on every axis, in the measure's own unit.
        scale: digits after the point of the measure.
    """

    view: str
    of: str
    measure: MeasureName
    axes: tuple[str, ...]
    strategies: tuple[str, ...]
    both: tuple[tuple[str, float], ...]
    axis_forecasts: tuple[AxisForecast, ...]
    noise: str
    charge: str
    currency: str
    tau: int
    cells: int
    nodes: int
    typical: float
    scale: int = 0


@dataclass(frozen=True)
class NotTaken:
    """Reasons why other mechanisms do not measure an axis, or some views together.

    Args:
        what: the axis, or the views.
        taken: what does.
        expected_error: of the views together by the questions that they were compared by; None where there was one way.
        lost: (mechanism, expected error) of the views together, best first; an axis has them in its forecast.
        refused: (mechanism, why it does not answer).
        asked: the questions by which views of several axes were compared.
    """

    what: str
    taken: str
    expected_error: float | None
    lost: tuple[tuple[str, float], ...]
    refused: tuple[Refusal, ...]
    asked: str = ""


def not_taken(plan: ReleasePlan) -> tuple[NotTaken, ...]:
    """Mechanisms not taken: for views that are measured together, then for each axis that had a choice."""
    families = [
        NotTaken(
            ", ".join(view.name for view in question.views), choice.name,
            choice.expected_error if isfinite(choice.expected_error) else None, choice.runners_up, choice.refused,
            "; ".join(filter(None, dict.fromkeys(map(question.asks, question.views)))),
        )
        for question, choice in plan.chosen
    ]  # fmt: skip
    axes = {
        (planned.axis.name, planned.choice.name): NotTaken(
            planned.axis.name, planned.choice.name, None, (), planned.choice.refused
        )
        for planned in plan.axes
        if planned.choice.refused
    }
    return (*families, *axes.values())


def forecast(priced: dry_release.Priced) -> tuple[StatisticForecast, ...]:
    """Forecast the cost and noise of each statistic of a plan."""
    plan = priced.plan
    pairs = zip(priced.models, plan.axes, strict=True)
    axis_workloads = {i: AxisWorkload(model, planned.workload) for i, (model, planned) in enumerate(pairs)}
    typical: dict[int, float] = {}
    for members in plan.families:
        family = [(plan.statistics[i].axes, priced.units[i]) for i in members]
        for i, (axes, unit) in zip(members, family, strict=True):
            typical[i] = plan.statistics[i].measurement.mean_variance(axes, unit, family, axis_workloads)
    return tuple(_forecast(plan, statistic, typical[i]) for i, statistic in enumerate(plan.statistics))


def _forecast(plan: ReleasePlan, statistic: PlannedStatistic, variance: float) -> StatisticForecast:
    axes = [plan.axes[i] for i in statistic.axes]
    facts, compared = statistic.measurement.facts, plan.compared(statistic.view)
    scale = statistic.bounds.scale if statistic.bounds else 0
    axis_forecasts = tuple(
        AxisForecast(each.axis.name, each.choice.name, each.choice.expected_error, each.choice.runners_up)
        for each in axes
    )
    return StatisticForecast(
        view=statistic.view, of=statistic.of, measure=statistic.measure.name,
        axes=tuple(each.axis for each in axis_forecasts),
        strategies=tuple(statistic.measurement.words(()) if facts.listed else each.strategy for each in axis_forecasts),
        both=() if compared is None else ((compared.name, compared.expected_error), *compared.runners_up),
        axis_forecasts=axis_forecasts if facts.model is None else (),
        noise=statistic.law.name, charge=str(statistic.charge),
        currency=plan.currency.name, tau=statistic.tau,
        cells=prod(plan.shape(statistic)), nodes=dry_release.stored_nodes(plan, statistic),
        typical=sqrt(variance) * 10.0**-scale, scale=scale,
    )  # fmt: skip


MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""Mean absolute error over standard error of normal noise."""


class KeyForecast(NamedTuple):
    """Forecast of the keys of a column that will be shown.

    Args:
        column: `table.column`.
        supposed: keys that the plan supposes.
        share: of the budget that finds them, in percent.
        people: at which a key is shown with chance .5 and .98, by the last round alone; none where all keys were
            listed before.
    """

    column: str
    supposed: int
    share: float
    people: tuple[int, ...]


def key_forecasts(catalog: Catalog, lists: Mapping[str, int]) -> tuple[KeyForecast, ...]:
    """The forecast of each list: from the catalog's budget alone.

    Args:
        catalog: a checked catalog.
        lists: `table.column` -> keys that the plan supposes.
    """
    forecasts = []
    for plan in key_plans(catalog):
        column = plan.column
        if not plan.rounds:
            forecasts.append(KeyForecast(column.name, lists[column.name], 0.0, ()))
            continue
        people = tuple(people_at(plan.rounds[-1].table, chance) for chance in (EVEN, SURE))
        forecasts.append(KeyForecast(column.name, lists[column.name], 100 * float(column.share), people))
    return tuple(forecasts)


@dataclass(frozen=True)
class QueryForecast:
    """One statement of the workload.

    Args:
        sql: the statement.
        columns: its noisy columns.
        refusal: why no view can answer it, or None.
        break_even: from how many statements on a pay-per-query engine with the same budget does worse on the
            first COUNT; None without one.
    """

    sql: str
    columns: tuple[PredictedColumn, ...]
    refusal: str | None
    break_even: int | None


@dataclass(frozen=True)
class PlanReport:
    """Everything that `dpsql plan` says.

    Args:
        statistics: views and measures.
        queries: the workload.
        break_even: over all COUNT columns of the workload (or all counts of views) together.
        classes: relative errors of typical questions on tables with `max_ids: auto`; empty without a guess.
        hopeless: views of such tables that say nothing.
        blind: such tables with too few people for the noise.
        stands_for: how many units each made-up unit stood for; 1 where none was sampled.
        not_taken: why other mechanisms were not taken.
        unforeseen: reported columns whose channel adds an error that nothing is known of without a guess.
        refreshes: how many releases the cap still holds, where they share it (`privacy: {releases: N}`).
        bounds: what will be known of the rows beyond declared bounds.
        excess: what will be known of the values beyond the bounds of measures.
        keys: which keys will be shown of columns that list none.
        sums: what one person counts for in the sums of her summaries.
        draws: tries of the draws that several numbers share.
        cap_share: part of the lineage's cap that the release spends.
        other_delta, other_errors: delta of the other currency, and the errors of all statistics there over those here,
            in the geometric mean; None where it is not compared.
        bytes, seconds: of the release, about, on this machine; counting raw rows comes on top.
        other_at: what both spend the same of: `share` of their cap, or `epsilon` of a purchase.
    """

    statistics: tuple[StatisticForecast, ...]
    queries: tuple[QueryForecast, ...]
    break_even: int | None
    classes: tuple[ClassForecast, ...] = ()
    hopeless: tuple[UninformativeView, ...] = ()
    blind: tuple[UnderpoweredTable, ...] = ()
    stands_for: int = 1
    not_taken: tuple[NotTaken, ...] = ()
    unforeseen: tuple[str, ...] = ()
    refreshes: Refreshes | None = None
    bounds: tuple[BoundForecast, ...] = ()
    excess: tuple[ExcessForecast, ...] = ()
    keys: tuple[KeyForecast, ...] = ()
    sums: tuple[str, ...] = ()
    draws: tuple[dry_release.DrawForecast, ...] = ()
    cap_share: float = 0.0
    other_delta: str | None = None
    other_errors: float | None = None
    other_at: str = "share"
    bytes: int = 0
    seconds: float = 0.0

    @property
    def wants_guess(self) -> bool:
        """True if a guess would say more: publishing chooses the rows of a unit, and none was stated."""
        return not (self.classes or all(statistic.tau for statistic in self.statistics))


Answered = tuple[tuple[StatisticForecast, ...], tuple[Prediction, ...]]
"""The statistics of one planned release, and its predictions for the workload."""


def plan_catalog(
    catalog: Catalog, workload: Sequence[str], *, guess: Guess | None = None,
    keys: Mapping[str, int] = NO_SIZES,
) -> PlanReport:  # fmt: skip
    """Plan a catalog's release.

    Args:
        catalog: a loaded catalog; of its source only public tables are opened.
        workload: statements.
        guess: what is publicly known about tables with `max_ids: auto`, in the place of what the catalog states.
        keys: `table.column` -> keys that may be found of a column that lists none; some hundreds unless it is said.

    Returns:
        The report.

    Raises:
        CatalogError, SourceError: the catalog or a public table is wrong.

    **Privacy**: spends nothing, reads no private table.
    """
    if catalog.collection is not None and catalog.source is None:
        raise CatalogError(
            "people report for themselves here, nothing is published", hint="run dpsql collection-plan"
        )
    inside = counted_catalog(catalog)
    guess = stated_guess(inside) if guess is None else guess
    with closing(open_public(inside)) as public:
        make = planning_maker(inside, public, keys)
        priced = dry_release.priced_plan(inside, make)
        plan, seen = priced.plan, Foresight()
        if guess is not None:
            seen = foresee(priced, catalog, crowds(catalog, public, plan), workload, guess)
        planned = _answered(catalog, priced, workload, guess)
        statistics, predictions = planned
    size, seconds = dry_release.size_and_seconds(priced)
    cap_share = charged(catalog.privacy) / plan.currency.counted(catalog.privacy.cap)
    # a purchase is ordered by its epsilon
    bought = any(view.word == "asked" for view in catalog.views.values())
    taus = {s.of: max(s.tau, 1) for s in statistics}
    views = {s.view: taus[s.of] for s in statistics}
    shown = _shown(predictions, seen.predictions, {s.view for s in statistics if not s.tau})
    queries = tuple(
        _query(catalog.privacy, sql, dry, prediction, views)
        for sql, dry, prediction in zip(workload, predictions, shown, strict=True)
    )
    return PlanReport(
        statistics, queries, _overall(catalog, planned, views),
        seen.classes, hopeless(plan, seen.classes), seen.blind, seen.stands_for, not_taken(plan),
        tuple(str(column) for column in reported_columns(catalog)) if guess is None else (),
        refreshes(catalog), bound_forecasts(plan), excess_forecasts(plan),
        key_forecasts(inside, {name: len(made.keys) for name, made in planning_lists(inside, keys).items()}),
        tuple(summed_words(catalog)),
        dry_release.draw_forecasts(plan),
        float(cap_share),
        *_other_currency(catalog, make, priced, None if bought else cap_share),
        other_at="epsilon" if bought else "share",
        bytes=size, seconds=seconds,
    )  # fmt: skip


COMPARED_DELTA = Fraction(1, 10**6)
"""Delta with which a pure catalog is compared."""


def _other_currency(
    catalog: Catalog, make: AxisMaker, priced: dry_release.Priced, cap_share: Fraction | None
) -> tuple[str | None, float | None]:
    """The other currency's delta, and its errors over those here at the same part of the cap, or without one at the
    same epsilon; None where it cannot be had."""
    privacy, delta = catalog.privacy, Fraction(0) if catalog.privacy.delta else COMPARED_DELTA
    changed = {"delta": delta, "key_delta": Fraction(0)}
    if privacy.epsilon is not None and cap_share is not None:
        there = currency_at(delta, Fraction(0))
        changed["epsilon"] = there.payable(cap_share * there.counted(privacy.cap))
    other = counted_catalog(catalog.model_copy(update={"privacy": privacy.model_copy(update=changed)}))
    # need a delta, or are priced over their batches
    if has_private_keys(catalog) or catalog.stream is not None:
        return None, None
    try:
        errors = {(s.view, s.measure): s.typical for s in forecast(dry_release.priced_plan(other, make))}
    except (CatalogError, PrivacyError):
        return None, None
    here = {(s.view, s.measure): s.typical for s in forecast(priced)}
    ratios = [errors[name] / error for name, error in here.items() if error and errors.get(name)]
    return (f"{float(delta):g}", math.exp(fmean(map(math.log, ratios)))) if ratios else (None, None)


def _answered(
    catalog: Catalog, priced: dry_release.Priced, workload: Sequence[str], guess: Guess | None = None
) -> Answered:
    """What a planned release says of its statistics, with what channels of reported columns add, and of a workload."""
    with dry_release.dry_answerer(priced, catalog, guess) as answerer:
        statistics, predictions = list(forecast(priced)), list[Prediction]()
        for i, error in dry_release.typical_errors(answerer.release, priced.plan, catalog).items():
            statistics[i] = replace(statistics[i], typical=error * 10.0 ** -statistics[i].scale)
        for sql in workload:
            try:
                predictions.append(predict(answerer, sql, means=None if guess is None else guess.means))
            except Error as error:
                predictions.append(str(error))
        return tuple(statistics), tuple(predictions)


def _shown(
    predictions: Sequence[Prediction], rehearsed: Sequence[Prediction], chosen: Set[str]
) -> tuple[Prediction, ...]:
    """Predictions with those of rehearsals in the place of figures for units of one row."""
    return tuple(
        found
        if isinstance(found, str) or isinstance(made, str)
        else tuple(other if other.view in chosen else own for own, other in zip(found, made, strict=True))
        for found, made in zip(predictions, rehearsed or predictions, strict=True)
    )


def _query(
    privacy: Privacy, sql: str, dry: Prediction, prediction: Prediction, taus: dict[str, int]
) -> QueryForecast:
    if isinstance(prediction, str) or isinstance(dry, str):
        return QueryForecast(sql, (), str(prediction), None)
    counts = [
        column.median / taus[column.view] for column in dry if column.counts and column.median is not None
    ]
    return QueryForecast(sql, prediction, None, break_even(counts[0], privacy) if counts else None)


def _overall(catalog: Catalog, planned: Answered, taus: dict[str, int]) -> int | None:
    """Break-even of the mean error over all COUNT columns, or over the views' counts without a workload."""
    statistics, predictions = planned
    columns = [column for found in predictions if not isinstance(found, str) for column in found]
    errors = [c.median / taus[c.view] for c in columns if c.counts and c.median is not None]
    if not predictions:
        counts = [s for s in statistics if s.measure.counts_rows and s.view in catalog.views]
        errors = [s.typical / max(s.tau, 1) for s in counts]
    return break_even(sum(errors) / len(errors), catalog.privacy) if errors else None


def break_even(stderr: float, privacy: Privacy) -> int:
    """From how many statements on this release beats an engine that pays for each of them.

    Such an engine asks COUNT and SUM for each of K statements and divides the same budget among them: a mean
    absolute error of 2 K / epsilon under pure DP; under (epsilon, delta), with the usual conversion, of
    sqrt(2 K / (pi rho)), which is 6.03 sqrt(K) at (1, 1e-6).

    Args:
        stderr: of a COUNT on this release, for a person with one row.
        privacy: the catalog's promise.

    Returns:
        The least K at which the other engine's error is larger.

    **Source**: docs/method/rows.md, "How budgets add up"; the pure form is what such engines reach.
    """
    ours = MEAN_ABSOLUTE * stderr
    epsilon = float(currency_of(privacy).epsilon(charged(privacy)))
    if privacy.delta == 0:
        return math.floor(ours * epsilon / 2) + 1
    depth = math.log(1 / float(privacy.delta))
    rho = (math.sqrt(depth + epsilon) - math.sqrt(depth)) ** 2
    return math.floor(rho * (ours / MEAN_ABSOLUTE) ** 2) + 1
