"""The two steps of a collection: write the plan, and turn the reports that came back into a release.

Both run their linear algebra on one thread. Numpy's BLAS starts a thread a core for every product and factorisation.
Local estimates solve thousands of systems of tens to hundreds of unknowns; there the threads cost far more in waiting
for each other than they bring, above all while other programs use the cores. A user should not have to know of
`OPENBLAS_NUM_THREADS`.

| work (2 cores; a machine in use, and with two busy programs besides) | a thread a core | one thread |
|----------------------------------------------------------------------|-----------------|------------|
| release of one axis of 100 leaves, by the stack                      | 4.7-7.1, 14 s   | 0.5, 1.5 s |
| release of two views of two axes, by joint fits                      | 34 s            | 1.8, 5.2 s |

Planning a central release takes the same time either way, so publishing leaves the threads alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import duckdb
from threadpoolctl import threadpool_limits

from dpsql.axis.build import needed_tables
from dpsql.catalog import catalog_from_json, load_catalog
from dpsql.catalog.graph import ledger_path
from dpsql.catalog.model import DEFAULT_LEDGER
from dpsql.catalog.source import Source, server_tables
from dpsql.client.plan import Plan, read_plan
from dpsql.engines.registry import open_session
from dpsql.errors import DataError, IntegrityError, InterfaceError, OperationalError
from dpsql.faults import FAULTS, machine
from dpsql.ledger.files import signing_seed
from dpsql.local import ahead, files, forecast
from dpsql.local.collector import CollectionManifest, add_spool, close_collection, tally_tables
from dpsql.local.content import release_content
from dpsql.local.files import spool_files
from dpsql.local.joined import joined_content
from dpsql.local.oracles.oracle import spread
from dpsql.local.plan import CollectionDesign, RowReports, plan_body
from dpsql.local.services import Sheet, make_sheet, predict_services, read_sheet, write_sheet
from dpsql.local.smooth import SLOW, joint_seconds
from dpsql.local.survey import Survey, design_of, public_axis_maker, survey_of
from dpsql.local.tallies import CountedCollection
from dpsql.progress import Progress, Stage, silent
from dpsql.release.write import ReleaseBuilder

_turn = threading.RLock()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Run BLAS on one thread inside a `with` block or a decorated function; the number before comes back after it.

    Blocks may be nested; another Python thread waits until the first one has left.
    """
    with _turn, threadpool_limits(limits=1, user_api="blas"):
        yield


class Collected(NamedTuple):
    """Outcome of a collection: the release, and how many reports were accepted and rejected."""

    path: Path
    manifest: CollectionManifest


Named: TypeAlias = str | PathLike[str]


class Reports(NamedTuple):
    """Reports returned, with their metadata.

    Args:
        plan: the plan that was answered.
        spools: Parquet, CSV and JSON-lines files of reports, and folders of them.
        key: secret bytes under which one-time tokens are hashed, unless the state has its own.
        catalog: the YAML file; needed only where an axis is a public dimension's rows.
        state: where to keep what was counted, for later runs.
        server: tables of reports that a server counts, in the place of spools.
    """

    plan: Path
    spools: Sequence[Path]
    key: bytes
    catalog: Path | None = None
    state: Path | None = None
    server: Source | None = None


def came_back(
    plan: Named, reports: Named | Sequence[Named], key: bytes, engine: str | None, root: str
) -> Reports:
    """The reports to a plan: in files, or in tables of a server.

    Args:
        plan: the plan that was answered.
        reports: files or folders; with `engine`, tables; one may stand alone.
        key: as in `Reports`.
        engine, root: the server and its address.
    """
    named = [reports] if isinstance(reports, str | PathLike) else reports
    if engine is None:
        return Reports(Path(plan), [Path(spool) for spool in named], key)
    return Reports(Path(plan), [], key, server=server_tables(engine, root, [str(place) for place in named]))


def write_plan(
    catalog: Path,
    target: Path,
    people: int,
    label: str = "",
    after: Reports | None = None,
    largest_error: float | None = None,
) -> forecast.CollectionForecast:
    """Write the collection plan of a catalog.

    Args:
        catalog: the YAML file, with `collection:`.
        target: the plan to write.
        people: how many are expected to report; not read with `largest_error`.
        label: tells repeated collections of one catalog apart; a second round keeps the first one's.
        after: the first round of `tau: estimate`; without it, such a catalog's plan asks for row counts alone.
        largest_error: plan for as many people as bring every predicted error down to this share of them.

    Returns:
        What to expect, before anyone reports.

    Raises:
        CatalogError: the catalog cannot be collected.
        InterfaceError: fewer than one person, or a target that cannot be reached.
        DataError: `after` is no first round of this catalog, or none of its reports was accepted.
        OperationalError: a file cannot be read or written, or the target holds another plan.

    **Privacy**: public facts, and reports that are private already.
    """
    if people < 1:
        raise InterfaceError("a collection needs at least one person", hint="state how many will report")
    files.check_folder(target)
    loaded = load_catalog(catalog)
    survey = survey_of(loaded, public_axis_maker(loaded))
    with one_blas_thread():
        if loaded.collection is not None and loaded.collection.services:
            if after is not None:
                raise InterfaceError("services are asked in one round", hint="leave the first round out")
            sheet = make_sheet(survey, label)
            expected = _service_forecast(survey, sheet, people, largest_error)
            write_sheet(sheet, target)
            return expected
        if loaded.collection is not None and loaded.collection.way.followed:
            if largest_error is not None:
                raise InterfaceError("adaptive rounds have no target", hint="give a number of people")
            expected = _round_forecast(survey, people, label, after)
        else:
            first = None
            if after is not None:
                collection, _ = _tallied(files.plan_file(after.plan), after, silent)
                first = collection.plan, forecast.row_reports(collection)
            expected = _device_forecast(survey, people, label, first, largest_error)
    if expected.plan is not None:
        files.write_plan_file(target, expected.plan.raw)
    return expected


def _device_forecast(
    survey: Survey,
    people: int,
    label: str,
    first: tuple[Plan, RowReports] | None,
    largest_error: float | None,
) -> forecast.CollectionForecast:
    """The plan that goes out next, for as many people as the largest error needs, and all that can be said of it."""

    def planned(design: CollectionDesign) -> Plan:
        if first is None:
            return read_plan(forecast.first_plan(design))
        return read_plan(forecast.second_plan(design, *first))

    def predictions_of(design: CollectionDesign) -> list[forecast.Prediction]:
        return forecast.predict(planned(design), design.people, design.row_guess)

    def worst(people: int) -> float:
        """The largest error, in rows a person."""
        design = design_of(survey, people, label)
        if forecast.asks_rows_alone(planned(design)):
            raise InterfaceError(
                "the first round of `tau: estimate` asks for row counts alone, which have no target",
                hint="give the target with --after, or a number as tau",
            )
        return max(prediction.error for prediction in predictions_of(design))

    if largest_error is not None:
        people = forecast.people_needed(worst, largest_error)
    design = design_of(survey, people, label)
    plan, predictions = planned(design), predictions_of(design)
    views = {name: axes for name, (axes, _) in survey.views.items()}
    seconds = 0.0 if forecast.asks_rows_alone(plan) else joint_seconds(plan, survey.tables)
    costs = forecast.view_costs(plan, views, predictions)
    return forecast.CollectionForecast(plan, people, predictions, costs, {}, seconds)


def _service_forecast(
    survey: Survey, sheet: Sheet, people: int, largest_error: float | None
) -> forecast.CollectionForecast:
    """Forecast for services, whose plans do not depend on the number of people."""
    if largest_error is not None:
        people = forecast.people_needed(
            lambda n: max(prediction.error for prediction in predict_services(survey, sheet, n)),
            largest_error,
        )
    services = {name: str(plan.epsilon) for name, plan in sheet.plans.items()}
    return forecast.CollectionForecast(None, people, predict_services(survey, sheet, people), [], services)


def _round_forecast(
    survey: Survey, people: int, label: str, reports: Reports | None
) -> forecast.CollectionForecast:
    """The plan of the first round, or of the one after another whose reports are counted."""
    design = ahead.rounds_design(survey, people, label)
    if reports is None:
        raw = ahead.first_plan(design)
    else:
        done = files.plan_file(reports.plan)
        if not ahead.is_adaptive(done) or plan_body(done).get("catalog") != design.catalog:
            raise DataError(
                "the plan is not a round of this catalog's collection",
                hint="bring its catalog back, or start under another --label",
            )
        collection, _ = _tallied(done, reports, silent)
        raw = ahead.after_round(collection)
    plan = read_plan(raw)
    # the standard error of one box, in rows a person, where nobody is
    error = math.sqrt(spread(plan.own) * plan.rounds / people)
    box = forecast.Prediction("a box of this round; the last one will forecast the errors of answers", error)
    return forecast.CollectionForecast(plan, people, [box], [], {})


@machine("no release was written", files.UNCOUNTED)
def collect(reports: Reports, target: Path, release_id: str, progress: Progress = silent) -> Collected:
    """Count reports and write a release.

    Where fitting axes together takes long, a release of the grids alone is written first, under an id of its own, and
    the smoothed one takes its place. Whoever stops the fit keeps the first.

    Args:
        reports: what came back.
        target: the release file to make.
        release_id: the id of the release that stays at the end.
        progress: told each file.

    Returns:
        The release and the manifest.

    Raises:
        OperationalError: a file cannot be opened or written, or the target exists.
        InterfaceError: the catalog is needed, or is not the plan's.
        DataError: no accepted report, or a plan that asks for row counts alone.

    **Privacy**: reports are private already; this is post-processing.
    """
    if target.exists():
        raise OperationalError(
            f"{target.name} exists", hint="a release is never overwritten; name another file"
        )
    files.check_folder(target)
    if reports.state is not None:
        files.check_state(reports.state)
    sheet = read_sheet(reports.plan)
    if sheet is not None:
        joined, manifest = _joined(sheet, reports, release_id, progress)
        files.write_release_file(target, joined, signing_seed(_beside(reports)))
        return Collected(target, manifest)
    content, manifest, fit_seconds = _counted(files.plan_file(reports.plan), reports, progress)
    seed = signing_seed(_beside(reports))  # made where there is none, so not before reports were counted
    progress(Stage("estimating and writing"))
    if fit_seconds < SLOW:
        files.write_release_file(target, content(release_id, True), seed)
        return Collected(target, manifest)
    # an id of its own: its answers differ from the smoothed ones
    first_id = hashlib.blake2b(release_id.encode(), digest_size=16, person=b"dpsql grids").hexdigest()
    files.write_release_file(target, content(first_id, False), seed)
    with machine("the release of the grids alone is whole", KEPT):
        progress(Stage("written; fitting axes together", counts={"seconds": round(fit_seconds)}))
        files.write_release_file(target, content(release_id, True), seed, KEPT)
    return Collected(target, manifest)


KEPT = "the release is whole, without smoothing; to smooth it, remove it and run the same command again"


def _beside(reports: Reports) -> Path:
    """The ledger beside which the signing key lies: the catalog's, or the one that is usual beside the plan."""
    if reports.catalog is not None:
        return ledger_path(load_catalog(reports.catalog))
    return reports.plan.absolute().parent / DEFAULT_LEDGER


Content: TypeAlias = Callable[[str, bool], ReleaseBuilder]
"""All that a release will hold, from its id; without smoothing over several axes unless the second is true."""


def _counted(plan: Plan, reports: Reports, progress: Progress) -> tuple[Content, CollectionManifest, float]:
    """Count the reports to one plan.

    Returns:
        What a release of them will hold, what was collected, and about how long fitting axes together takes.
    """
    if forecast.asks_rows_alone(plan):
        raise DataError(
            "this plan asks for row counts alone; no release can be made of them",
            hint="make the second plan: dpsql collection-plan CATALOG REPORTS --after PLAN -o NEXT",
        )
    body = plan_body(plan)
    if (service := body.get("service")) is not None:
        raise InterfaceError(
            f"this plan is that of the service {service} alone",
            hint="name the plan that was written alongside it, and the reports of all services",
        )
    survey = _survey(body.get("catalog"), reports.catalog)
    collection, manifest = _tallied(plan, reports, progress)
    if manifest.accepted == 0:
        raise _nothing(manifest)
    adaptive = ahead.is_adaptive(plan)

    def content(release_id: str, joint: bool) -> ReleaseBuilder:
        with one_blas_thread():
            if adaptive:
                return ahead.adaptive_content(survey, collection, manifest, release_id)
            return release_content(survey, collection, manifest, release_id, joint=joint)

    return content, manifest, 0.0 if adaptive else joint_seconds(plan, survey.tables)


def _tallied(
    plan: Plan, reports: Reports, progress: Progress
) -> tuple[CountedCollection, CollectionManifest]:
    """Every spool once, into the state; or tables of a server, by the server."""
    if reports.server is not None:
        if reports.state is not None:
            raise InterfaceError(
                "tables of a server are counted whole", hint="name all of them, and no state"
            )
        session = open_session(reports.server)
        try:
            places = list(reports.server.expanded().values())
            # only counts leave the server
            collection, manifest = tally_tables(session, plan, places, reports.key)
        finally:
            session.close()
        counts = {"reports": manifest.reports, "accepted": manifest.accepted}
        progress(Stage("counted", session.name, counts))
        return collection, manifest
    key = files.token_key(reports.state, reports.key)
    state = files.open_state(plan, reports.state, key)
    try:
        for spool in spool_files(reports.spools):
            count = add_spool(state, plan, spool, key)
            counts = {"reports": count.reports, "accepted": count.accepted}
            progress(Stage("known" if count.known else "counted", spool.name, counts))
        return close_collection(state, plan)
    except FAULTS:
        raise
    except duckdb.Error as error:  # its root alone: a block whose checksum is another
        raise IntegrityError(
            f"the state {reports.state} is damaged", hint=f"bring back its last copy; {files.UNCOUNTED}"
        ) from error
    finally:
        state.close()


def _joined(
    sheet: Sheet, reports: Reports, release_id: str, progress: Progress
) -> tuple[ReleaseBuilder, CollectionManifest]:
    """Join the reports of several services by pseudonym."""
    if reports.server is not None:
        raise InterfaceError("reports of services are joined by pseudonym", hint="write them to files")
    if reports.state is not None:
        raise InterfaceError("reports of services are joined in one run", hint="name all files, and no state")
    survey = _survey(sheet.catalog, reports.catalog)
    with one_blas_thread():
        return joined_content(survey, sheet, spool_files(reports.spools), reports.key, release_id, progress)


def _nothing(manifest: CollectionManifest) -> DataError:
    """Reasons why no release can be made."""
    if not manifest.reports:
        return DataError("no report was accepted: the files contain none", hint="check the paths")
    why = ", ".join(f"{count} {reason}" for reason, count in manifest.rejected.items())
    return DataError(f"no report was accepted: {why}", hint="check that the reports belong to this plan")


def _survey(catalog_body: Any, path: Path | None) -> Survey:
    """The questions of the plan's catalog; from the file where public rows are needed, which the plan does not hold."""
    if catalog_body is None:
        raise DataError("this plan carries no catalog", hint="make it with `dpsql collection-plan`")
    if path is None:
        described = catalog_from_json(json.dumps(catalog_body))
        if any(
            needed_tables(described, axis) for view in described.star.views.values() for axis in view.meant
        ):
            raise InterfaceError(
                "an axis of this plan is a public dimension's rows",
                hint="pass --catalog CATALOG",
            )
    else:
        described = load_catalog(path)
        if json.loads(described.to_json()) != catalog_body:
            raise InterfaceError(
                f"{path.name} is not the catalog that this plan was made from",
                hint="bring that one back, or leave --catalog out",
            )
    return survey_of(described, public_axis_maker(described))
