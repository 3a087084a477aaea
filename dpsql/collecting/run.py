"""The two steps of a collection: write the plan, and turn the reports that came back into a release."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from dpsql.blas import one_blas_thread
from dpsql.catalog import Catalog, catalog_from_json, load_catalog
from dpsql.client.plan import Plan, read_plan
from dpsql.collecting.collector import Manifest, add_spool, close_collection
from dpsql.collecting.content import release_content
from dpsql.collecting.files import check_folder, plan_file, write_plan_file, write_release_file
from dpsql.collecting.plan import Design, facts_of
from dpsql.collecting.predict import Prediction, predict
from dpsql.collecting.product import joined_content
from dpsql.collecting.pseudonyms import join_spools
from dpsql.collecting.services import Sheet, make_sheet, predict_services, read_sheet, write_sheet
from dpsql.collecting.state import Kept, check_state, open_state, token_key
from dpsql.collecting.survey import design_of, needs_rows, public_axis_maker, survey_of
from dpsql.collecting.tau import asks_rows_alone, first_plan, row_reports, second_plan
from dpsql.errors import DataError, InterfaceError, OperationalError

Progress = Callable[[str], None]


class Collected(NamedTuple):
    """What a collection brought: the release, and how many reports were accepted and rejected."""

    path: Path
    manifest: Manifest


class FirstRound(NamedTuple):
    """A first round that asked how many rows people have.

    Args:
        plan: its plan.
        spools: Parquet and JSON-lines files of the reports that came back.
        key: secret bytes under which one-time tokens are hashed.
    """

    plan: Path
    spools: Sequence[Path]
    key: bytes


def write_plan(
    catalog: Path, target: Path, people: int, label: str = "", after: FirstRound | None = None
) -> list[Prediction]:
    """Write the collection plan of a catalog.

    Args:
        catalog: the YAML file, with `collection:`.
        target: the plan to write.
        people: how many are expected to report.
        label: tells repeated collections of one catalog apart; a second round keeps the first one's.
        after: the first round of `tau: estimate`; without it, such a catalog's plan asks for row counts alone.

    Returns:
        Predicted errors, before anyone reports.

    Raises:
        CatalogError: the catalog cannot be collected.
        InterfaceError: fewer than one person.
        DataError: `after` is no first round of this catalog, or none of its reports was accepted.
        OperationalError: a file cannot be read or written, or the target holds another plan.

    **Privacy**: public facts, and reports that are private already.
    """
    if people < 1:
        raise InterfaceError("a collection needs at least one person", hint="say how many will report")
    check_folder(target)
    loaded = load_catalog(catalog)
    survey = survey_of(loaded, public_axis_maker(loaded))
    if loaded.collection is not None and loaded.collection.services:
        if after is not None:
            raise InterfaceError("services are asked in one round", hint="leave the first round out")
        sheet = make_sheet(survey, label)
        write_sheet(sheet, target)
        return predict_services(survey, sheet, people)
    design = design_of(survey, people, label)
    raw = first_plan(design) if after is None else _second_plan(design, after)
    plan = read_plan(raw)
    with one_blas_thread():
        predictions = predict(plan, max(round(people * _part(plan)), 1))
    write_plan_file(target, raw)
    return predictions


def _part(plan: Plan) -> float:
    """The part of the people who belong to the plan's round."""
    return plan.round_shares[plan.round] / sum(plan.round_shares) if plan.round_shares else 1.0


def _second_plan(design: Design, after: FirstRound) -> bytes:
    """Count the first round's reports and plan the second."""
    first = plan_file(after.plan)
    state = open_state(first)
    try:
        for spool in after.spools:
            add_spool(state, first, spool, after.key)
        tallies, _ = close_collection(state, first)
    finally:
        state.close()
    return second_plan(design, first, row_reports(first, tallies))


def collect(
    plan: Path,
    spools: Sequence[Path],
    target: Path,
    *,
    key: bytes,
    release_id: str,
    catalog: Path | None = None,
    state: Path | None = None,
    progress: Progress = lambda step: None,
) -> Collected:
    """Count reports and write a release.

    Args:
        plan: the plan file.
        spools: Parquet and JSON-lines files of reports.
        target: the release file to make.
        key: secret bytes under which one-time tokens are hashed, unless the state has its own.
        release_id: the release's id.
        catalog: the YAML file; needed only where an axis is a public dimension's rows.
        state: where to keep what was counted, for later runs.
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
    check_folder(target)
    if state is not None:
        check_state(state)
    sheet = read_sheet(plan)
    if sheet is not None:
        if state is not None:
            raise InterfaceError(
                "reports of services are joined in one run", hint="name all files, and no state"
            )
        return _collect_services(sheet, spools, target, key, release_id, catalog, progress)
    loaded = plan_file(plan)
    if asks_rows_alone(loaded):
        raise DataError(
            "this plan asks for row counts alone; no release can be made of them",
            hint="make the second plan: dpsql collection-plan CATALOG REPORTS --after PLAN -o NEXT",
        )
    facts = facts_of(loaded)
    if facts.service is not None:
        raise InterfaceError(
            f"this plan is that of the service {facts.service} alone",
            hint="name the plan that was written beside it, and the reports of all services",
        )
    described = _catalog(facts.catalog, catalog)
    survey = survey_of(described, public_axis_maker(described))
    secret = token_key(state, key)
    connection = open_state(loaded, None if state is None else Kept(state, secret))
    try:
        for spool in spools:
            count = add_spool(connection, loaded, spool, secret)
            progress(
                f"{spool.name}: {count.accepted} of {count.reports} reports"
                + (" (known)" if count.known else "")
            )
        tallies, manifest = close_collection(connection, loaded)
    finally:
        connection.close()
    if manifest.accepted == 0:
        raise _nothing(manifest)
    progress("estimating and writing")
    with one_blas_thread():
        content = release_content(survey, loaded, tallies, manifest, release_id)
    write_release_file(target, content)
    return Collected(target, manifest)


def _collect_services(
    sheet: Sheet,
    spools: Sequence[Path],
    target: Path,
    key: bytes,
    release_id: str,
    catalog: Path | None,
    progress: Progress,
) -> Collected:
    """Join the reports of several services by pseudonym and write a release."""
    described = _catalog(sheet.catalog, catalog)
    survey = survey_of(described, public_axis_maker(described))
    joined = join_spools(sheet, spools, key, progress)
    if joined.people < 2:
        why = ", ".join(f"{count} {reason}" for reason, count in joined.manifest.rejected.items())
        raise DataError(
            f"no two people have a sound report of every service under one pseudonym: {why}",
            hint="give the reports of all services, each with the person's pseudonym as its token",
        )
    progress(f"joining {joined.people} people and writing")
    with one_blas_thread():
        content = joined_content(survey, sheet, joined, release_id)
    write_release_file(target, content)
    return Collected(target, joined.manifest)


def _nothing(manifest: Manifest) -> DataError:
    """Why no release can be made, by reason."""
    if not manifest.reports:
        return DataError("no report was accepted: the files hold none", hint="check the paths")
    why = ", ".join(f"{count} {reason}" for reason, count in manifest.rejected.items())
    return DataError(f"no report was accepted: {why}", hint="check that the reports belong to this plan")


def _catalog(held: Any, path: Path | None) -> Catalog:
    """The plan's catalog; from the file where public rows are needed, which the plan does not hold."""
    if held is None:
        raise DataError("this plan carries no catalog", hint="make it with `dpsql collection-plan`")
    if path is None:
        described = catalog_from_json(json.dumps(held))
        if needs_rows(described):
            raise InterfaceError(
                "an axis of this plan is a public dimension's rows",
                hint="say where they are: --catalog CATALOG",
            )
        return described
    described = load_catalog(path)
    if json.loads(described.to_json()) != held:
        raise InterfaceError(
            f"{path.name} is not the catalog that this plan was made from",
            hint="bring that one back, or leave --catalog out",
        )
    return described
