"""`dpsql plan` as values: what a catalog's release will cost and answer, before anything is spent.

Publishing plans and writes a dry release (no estimates, public facts only); answering says each statement's
standard error on it. Neither sees a private row.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dpsql.answer.answerer import Answerer
from dpsql.answer.plan import is_declared
from dpsql.answer.predict import PredictedColumn, predict
from dpsql.catalog import Catalog
from dpsql.catalog.model import Privacy
from dpsql.errors import CatalogError, Error, PrivacyError
from dpsql.publishing.axes import AxisMaker, axis_maker
from dpsql.publishing.predict import StatisticForecast, forecast, open_public, priced_plan, write_dry_release
from dpsql.publishing.userlevel_expect import Blind, Guess, blind_tables
from dpsql.publishing.userlevel_predict import ClassForecast, Hopeless, hopeless, predict_classes
from dpsql.release import open_release
from dpsql.sources import RawSide

ALTERNATIVES = {
    "flat": "identity", "tree": "lue_dptree", "tents": "tents", "Gaussian": "gaussian", "residual": "residual"
}  # fmt: skip
"""What `--compare` shows, and the catalog's word for it."""

MEAN_ABSOLUTE = math.sqrt(2 / math.pi)
"""Mean absolute error over standard error of normal noise."""


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
        comparison: mechanism -> for each row of `compared` its standard error, None where it does not fit.
        compared: what is compared: columns of the workload, or the views' random ranges without one.
        break_even: over all COUNT columns of the workload (or all counts of views) together.
        classes: relative errors of typical questions on tables with `max_ids: auto`; empty without a guess.
        hopeless: views of such tables that say nothing.
        blind: such tables with too few units for the guess to hold.
    """

    statistics: tuple[StatisticForecast, ...]
    queries: tuple[QueryForecast, ...]
    comparison: dict[str, tuple[float | None, ...]]
    compared: tuple[str, ...]
    break_even: int | None
    classes: tuple[ClassForecast, ...] = ()
    hopeless: tuple[Hopeless, ...] = ()
    blind: tuple[Blind, ...] = ()


@dataclass(frozen=True)
class _Dry:
    """One planned release: its statistics and its predictions for the workload."""

    statistics: tuple[StatisticForecast, ...]
    predictions: tuple[tuple[PredictedColumn, ...] | str, ...]
    classes: tuple[ClassForecast, ...] = ()
    hopeless: tuple[Hopeless, ...] = ()
    blind: tuple[Blind, ...] = ()


def plan_catalog(
    catalog: Catalog, workload: Sequence[str], *, compare: bool, guess: Guess | None = None
) -> PlanReport:
    """Plan a catalog's release.

    Args:
        catalog: a loaded catalog; of its source only public tables are opened.
        workload: statements.
        compare: also plan the same views with each mechanism of `ALTERNATIVES`.
        guess: what is publicly known about tables with `max_ids: auto`, for their relative errors.

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
    public = open_public(catalog)
    try:
        make = axis_maker(catalog, public)
        planned = _dry(catalog, public, make, workload, guess)
        others = {"auto": planned} if compare else {}
        for name, word in ALTERNATIVES.items() if compare else ():
            try:
                others[name] = _dry(_with_mechanism(catalog, word), public, make, workload)
            except (CatalogError, PrivacyError):
                others[name] = _Dry((), tuple("does not fit" for _ in workload))
    finally:
        public.close()
    taus = {s.of: max(s.tau, 1) for s in planned.statistics}
    views = {s.view: taus[s.of] for s in planned.statistics}
    queries = tuple(_query(catalog.privacy, sql, found, views)
                    for sql, found in zip(workload, planned.predictions, strict=True))  # fmt: skip
    rows = _rows(planned, workload)
    comparison = {name: tuple(_rows(dry, workload).get(row) for row in rows) for name, dry in others.items()}
    return PlanReport(
        planned.statistics, queries, comparison, tuple(rows), _overall(catalog, planned, queries, views),
        planned.classes, planned.hopeless, planned.blind,
    )  # fmt: skip


def _dry(
    catalog: Catalog, public: RawSide, make: AxisMaker, workload: Sequence[str], guess: Guess | None = None
) -> _Dry:
    priced = priced_plan(catalog, make)
    classes = predict_classes(priced.plan, guess) if guess else ()
    with tempfile.TemporaryDirectory(prefix="dpsql-plan-") as folder:
        path = Path(folder) / "dry.dpsql"
        write_dry_release(priced, public.connection, path)
        release = open_release(path, insecure=True)
        try:
            answerer = Answerer(release)
            predicted = tuple(_predicted(answerer, sql) for sql in workload)
            blind = blind_tables(priced.plan, guess) if guess else ()
            return _Dry(forecast(priced), predicted, classes, hopeless(priced.plan, classes), blind)
        finally:
            release.close()


def _predicted(answerer: Answerer, sql: str) -> tuple[PredictedColumn, ...] | str:
    """A statement's noisy columns, or why it is refused."""
    try:
        return predict(answerer, sql)
    except Error as error:
        return str(error)


def _with_mechanism(catalog: Catalog, word: str) -> Catalog:
    views = {name: view.model_copy(update={"mechanism": word}) for name, view in catalog.views.items()}
    return catalog.model_copy(update={"views": views})


def _query(
    privacy: Privacy, sql: str, found: tuple[PredictedColumn, ...] | str, taus: dict[str, int]
) -> QueryForecast:
    if isinstance(found, str):
        return QueryForecast(sql, (), found, None)
    counts = [
        column.median / taus[column.view] for column in found if column.counts and column.median is not None
    ]
    return QueryForecast(sql, found, None, break_even(counts[0], privacy) if counts else None)


def _overall(
    catalog: Catalog, planned: _Dry, queries: Sequence[QueryForecast], taus: dict[str, int]
) -> int | None:
    """Break-even of the mean error over all COUNT columns, or over the views' counts without a workload."""
    errors = [
        c.median / taus[c.view] for q in queries for c in q.columns if c.counts and c.median is not None
    ]
    if not queries:
        counts = [s for s in planned.statistics if s.measure == "count" and is_declared(s.view)]
        errors = [s.typical / max(s.tau, 1) for s in counts]
    return break_even(sum(errors) / len(errors), catalog.privacy) if errors else None


def _rows(dry: _Dry, workload: Sequence[str]) -> dict[str, float | None]:
    """What is compared: name -> standard error."""
    if not workload:
        named = [s for s in dry.statistics if is_declared(s.view)]
        return {f"{s.view}: {s.measure}, a random range of each axis": s.typical for s in named}
    return {
        f"{number}. {column.name}": column.median
        for number, found in enumerate(dry.predictions, 1)
        if not isinstance(found, str)
        for column in found
    }


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

    **Source**: docs/method/noise.md, "How budgets add up"; the pure form is what such engines reach.
    """
    ours, epsilon = MEAN_ABSOLUTE * stderr, float(privacy.epsilon)
    if privacy.delta == 0:
        return math.floor(ours * epsilon / 2) + 1
    depth = math.log(1 / float(privacy.delta))
    rho = (math.sqrt(depth + epsilon) - math.sqrt(depth)) ** 2
    return math.floor(rho * (ours / MEAN_ABSOLUTE) ** 2) + 1
