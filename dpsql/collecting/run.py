"""The two steps of a collection: write the plan, and turn the reports that came back into a release."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from dpsql.blas import one_blas_thread
from dpsql.catalog import Catalog, catalog_from_json, load_catalog
from dpsql.client.plan import Plan, read_plan
from dpsql.collecting.collector import Manifest, add_spool, close_collection, open_state
from dpsql.collecting.content import release_content
from dpsql.collecting.plan import Design, plan_body
from dpsql.collecting.predict import Prediction, predict
from dpsql.collecting.survey import design_of, public_axis_maker, survey_of
from dpsql.collecting.tau import asks_rows_alone, first_plan, row_reports, second_plan
from dpsql.errors import DataError, InterfaceError, OperationalError
from dpsql.release.write import write_release

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

    **Privacy**: public facts, and reports that are private already.
    """
    if people < 1:
        raise InterfaceError("a collection needs at least one person", hint="say how many will report")
    loaded = load_catalog(catalog)
    survey = survey_of(loaded, public_axis_maker(loaded))
    design = design_of(survey, people, label)
    raw = first_plan(design) if after is None else _second_plan(design, after)
    target.write_bytes(raw)
    plan = read_plan(raw)
    with one_blas_thread():
        return predict(plan, max(round(people * _part(plan)), 1))


def _part(plan: Plan) -> float:
    """The part of the people who belong to the plan's round."""
    return plan.round_shares[plan.round] / sum(plan.round_shares) if plan.round_shares else 1.0


def _second_plan(design: Design, after: FirstRound) -> bytes:
    """Count the first round's reports and plan the second."""
    first = read_plan(_read(after.plan))
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
        key: secret bytes under which one-time tokens are hashed.
        release_id: the release's id.
        catalog: the YAML file; needed only where an axis is a public dimension's rows.
        state: where to keep what was counted, for later runs.
        progress: told each file.

    Returns:
        The release and the manifest.

    Raises:
        OperationalError: a file cannot be opened, or the target exists.
        DataError: no accepted report, or a plan that asks for row counts alone.

    **Privacy**: reports are private already; this is post-processing.
    """
    if target.exists():
        raise OperationalError(
            f"{target.name} exists", hint="a release is never overwritten; name another file"
        )
    loaded = read_plan(_read(plan))
    if asks_rows_alone(loaded):
        raise DataError(
            "this plan asks for row counts alone; no release can be made of them",
            hint="make the second plan: dpsql collection-plan CATALOG REPORTS --after PLAN -o NEXT",
        )
    described = _catalog(loaded, catalog)
    survey = survey_of(described, public_axis_maker(described))
    connection = open_state(loaded, state)
    try:
        for spool in spools:
            count = add_spool(connection, loaded, spool, key)
            progress(
                f"{spool.name}: {count.accepted} of {count.reports} reports"
                + (" (known)" if count.known else "")
            )
        tallies, manifest = close_collection(connection, loaded)
    finally:
        connection.close()
    if manifest.accepted == 0:
        raise DataError("no report was accepted", hint="check that the reports belong to this plan")
    progress("estimating and writing")
    with one_blas_thread():
        content = release_content(survey, loaded, tallies, manifest, release_id)
    fresh = target.with_name(target.name + ".new")
    fresh.unlink(missing_ok=True)  # what a killed run left
    write_release(fresh, content)
    fresh.chmod(0o444)
    with fresh.open("rb") as file:
        os.fsync(file.fileno())
    fresh.replace(target)
    return Collected(target, manifest)


def token_key(state: Path | None, fresh: bytes) -> bytes:
    """The secret under which a kept state hashes tokens: made once, beside it, readable by its owner alone.

    Args:
        state: the state file; without one nothing is kept.
        fresh: secret bytes, used if there is no key yet.
    """
    if state is None:
        return fresh
    file = state.with_name(state.name + ".key")
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return file.read_bytes()
    with os.fdopen(handle, "wb") as key:
        key.write(fresh)
        key.flush()
        os.fsync(key.fileno())
    return fresh


def _read(plan: Path) -> bytes:
    try:
        return plan.read_bytes()
    except OSError as error:
        raise OperationalError(f"cannot read the plan {plan.name}", hint="check the path") from error


def _catalog(plan: Plan, path: Path | None) -> Catalog:
    if path is not None:
        return load_catalog(path)
    return catalog_from_json(json.dumps(plan_body(plan)["catalog"]))
