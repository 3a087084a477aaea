"""A raw star as people with rows, and the reports that their devices would send if the rows had stayed with them.

For planning, for tests and for the demo: whoever holds a raw star needs no local collection, but wants to know what one
would bring. Rows that the catalog leaves out (out of domain, no owner) are left out here too.

**Privacy**: nothing made here protects anybody; a simulated collection is marked as such.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dpsql.axis.model import KeyRule, leaf_sql
from dpsql.catalog import Catalog, load_catalog
from dpsql.catalog.derived import derived_sql
from dpsql.catalog.graph import KeyPath
from dpsql.client.device import MAGIC
from dpsql.client.plan import Plan, read_plan
from dpsql.engines.duck import RawSide, private_connection
from dpsql.engines.registry import open_star
from dpsql.errors import OperationalError
from dpsql.ledger.files import PRIVATE_FILE
from dpsql.local import ahead
from dpsql.local.collector import decode_reports
from dpsql.local.estimate import one_row_each
from dpsql.local.files import check_folder, unwritable, write_plan_file
from dpsql.local.forecast import asks_rows_alone, first_plan, row_reports, second_plan
from dpsql.local.services import Sheet, make_sheet, write_sheet
from dpsql.local.survey import Survey, design_of, public_axis_maker, survey_of
from dpsql.local.tallies import IntArray, RespondentRows, kind_of, oracle_of
from dpsql.progress import Progress, Stage, silent
from dpsql.release.write import registered
from dpsql.row_expressions import identifier


def chosen(people: RespondentRows, who: IntArray) -> RespondentRows:
    """Some of the people, in the order of `who`, with all their rows."""
    counts = people.first[who + 1] - people.first[who]
    first = np.concatenate([[0], np.cumsum(counts)])
    rows = np.repeat(people.first[who] - first[:-1], counts) + np.arange(first[-1])
    return RespondentRows(first, people.leaves[rows], people.measures[rows])


def simulate_reports(
    plan: Plan, people: RespondentRows, rng: np.random.Generator, progress: Progress = silent
) -> list[bytes]:
    """Draw everybody's report as bytes, in the order of people."""
    share = np.array([v.share for v in plan.views], dtype=np.float64)
    drawn = rng.choice(share.size, size=people.count, p=share / share.sum())
    reports: list[bytes] = [b""] * people.count
    for number, view in enumerate(plan.views):
        progress(Stage("view", done=number + 1, total=len(plan.views)))
        who = np.nonzero(drawn == number)[0]
        head = MAGIC + plan.hash + number.to_bytes(2, "big") + bytes([view.perturbs.code])
        items = kind_of(view).draw(plan, view, people, who, rng)
        for person, payload in zip(who.tolist(), oracle_of(plan, view).payloads(items, rng), strict=True):
            reports[person] = head + payload
    return reports


SIMULATION = 0xC011EC7
"""Keeps a simulation's draws apart from those that generated its rows with the same seed."""


class SimulatedRound(NamedTuple):
    """One round of a simulated collection: its plan's bytes and the reports of those who belong to it."""

    plan: bytes
    reports: list[bytes]


def simulated_collection(
    catalog: Catalog, rng: np.random.Generator, progress: Progress = silent, label: str = ""
) -> list[SimulatedRound]:
    """Plan a collection and let everybody of a raw star report.

    Args:
        catalog: a catalog with `collection:` and a source.
        rng: source of pseudo-random numbers.
        progress: told each step.
        label: tells repeated collections of one catalog apart.

    Returns:
        One round, two with `estimate`, several with `kind: ahead`; one report per person. Plans say that
        they are simulated, and so their reports, which name a plan's hash, can never be counted with real ones.

    **Privacy**: none; the reports come from one machine that sees all rows.
    """
    survey = survey_of(catalog, public_axis_maker(catalog))
    people = _read_people(survey, progress)
    if catalog.collection is not None and catalog.collection.way.followed:
        return _adaptive_rounds(survey, people, rng, label)
    design = design_of(survey, people.count, label)
    design = replace(design, simulated=True)
    first = read_plan(first_plan(design))
    progress(Stage("reporting", counts={"people": people.count}))
    if not asks_rows_alone(first):
        return [SimulatedRound(first.raw, simulate_reports(first, people, rng, progress))]
    shares = np.array(first.round_shares, dtype=np.float64)
    drawn = rng.choice(shares.size, size=people.count, p=shares / shares.sum())
    round_people = [chosen(people, np.nonzero(drawn == number)[0]) for number in range(2)]
    counted = simulate_reports(first, round_people[0], rng, progress)
    folds = np.zeros(len(counted), dtype=np.uint8)
    rows = row_reports(decode_reports(first, counted, folds).collection)
    second = read_plan(second_plan(design, first, rows))
    return [
        SimulatedRound(first.raw, counted),
        SimulatedRound(second.raw, simulate_reports(second, round_people[1], rng, progress)),
    ]


def _adaptive_rounds(
    survey: Survey, people: RespondentRows, rng: np.random.Generator, label: str
) -> list[SimulatedRound]:
    """Every round of an adaptive collection; a device draws its round before it knows of any."""
    raw: bytes | None = ahead.first_plan(ahead.rounds_design(survey, people.count, label, simulated=True))
    played: list[SimulatedRound] = []
    drawn = rng.integers(0, read_plan(raw or b"").rounds, size=people.count)
    while raw is not None:
        plan = read_plan(raw)
        reports = simulate_reports(plan, chosen(people, np.nonzero(drawn == plan.round)[0]), rng)
        played.append(SimulatedRound(raw, reports))
        counted = decode_reports(plan, reports, np.zeros(len(reports), dtype=np.uint8)).collection
        raw = ahead.after_round(counted) if plan.round + 1 < plan.rounds else None
    return played


def simulate_to_files(
    catalog: Path, output: Path, plan: Path, seed: int | None, label: str, progress: Progress
) -> int:
    """Simulate a collection into a plan and a spool.

    Args:
        catalog: the YAML file.
        output: the spool to make.
        plan: the plan to write; a first round that asks for row counts goes beside both, as `<name>.rows.<ending>`, the
            rounds of `kind: ahead` before the last as `<name>.round1.<ending>` and so on.
        seed: for repeatable draws; fresh ones if None.
        label: tells repeated collections of one catalog apart.
        progress: told each step.

    Returns:
        How many people reported.

    Raises:
        OperationalError: a file is there already, or cannot be written.
    """
    for file in (output, plan):
        check_folder(file)
    _check_fresh(output)
    # A stream of its own: drawn from the seed that made the rows, views would go by the people's own values.
    rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(SIMULATION,)))
    loaded = load_catalog(catalog)
    if loaded.collection is not None and loaded.collection.services:
        return _services_to_files(loaded, output, plan, rng, label, progress)
    *early_rounds, last = simulated_collection(loaded, rng, progress, label)
    names = ["rows"] if len(early_rounds) == 1 else [f"round{n + 1}" for n in range(len(early_rounds))]
    for simulated_round, spool, file in [
        (early_round, _beside(output, name), _beside(plan, name))
        for name, early_round in zip(names, early_rounds, strict=False)
    ] + [(last, output, plan)]:
        progress(Stage("writing", spool.name))
        write_plan_file(file, simulated_round.plan)
        write_spool(spool, simulated_round.reports)
    return sum(len(simulated_round.reports) for simulated_round in (*early_rounds, last))


def _services_to_files(
    catalog: Catalog, output: Path, target: Path, rng: np.random.Generator, label: str, progress: Progress
) -> int:
    """Let every service report about everybody, into one spool: in a shuffled order, under random pseudonyms."""
    survey = survey_of(catalog, public_axis_maker(catalog))
    sheet = make_sheet(survey, label, simulated=True)
    people = _read_people(survey, progress)
    reports, tokens = [], []
    names = [rng.bytes(16).hex() for _ in range(people.count)]
    for name, plan in sheet.plans.items():
        progress(Stage("reporting to", name, {"people": people.count}))
        reports += simulate_reports(plan, known_to(sheet, name, people), rng)
        tokens += names
    order = rng.permutation(len(reports)).tolist()
    progress(Stage("writing", output.name))
    write_sheet(sheet, target)
    write_spool(output, [reports[i] for i in order], [tokens[i] for i in order])
    return people.count


def known_to(sheet: Sheet, name: str, people: RespondentRows) -> RespondentRows:
    """Values that one service knows of everybody: all rows where it holds them, else those that a person's rows
    share.

    Args:
        sheet: the collection.
        name: the service.
        people: rows over all axes and measures.
    """
    plan, measure = sheet.plans[name], sheet.measures.get(name)
    leaves = people.leaves[:, list(sheet.axes[name])]
    values = people.measures[:, [] if measure is None else [measure]]
    if one_row_each(plan):
        return RespondentRows(people.first, leaves, values)
    first = people.first[:-1]
    return RespondentRows(np.arange(people.count + 1), leaves[first], values[first])


def _check_fresh(spool: Path) -> None:
    if spool.exists():
        raise OperationalError(f"{spool.name} exists", hint="spools are never overwritten; name another file")


def _beside(path: Path, name: str) -> Path:
    return path.with_name(f"{path.stem}.{name}{path.suffix}")


def write_spool(path: Path, reports: Sequence[bytes], tokens: Sequence[str] | None = None) -> None:
    """Write simulated reports as a Parquet spool, for its maker alone: who has the seed has the rows.

    Args:
        path: the file to make.
        reports: report bytes.
        tokens: a token each, or none.

    Raises:
        OperationalError: it exists.
    """
    _check_fresh(path)
    columns = {"report": reports} | ({} if tokens is None else {"token": tokens})
    connection, spill = private_connection()
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE))
        target = str(path).replace("'", "''")
        with registered(connection, "incoming", columns):
            connection.execute(f"COPY incoming TO '{target}' (FORMAT parquet, USE_TMP_FILE false)")
    except OSError as error:
        raise unwritable(path, error) from error
    finally:
        connection.close()
        spill.cleanup()


def _read_people(survey: Survey, progress: Progress) -> RespondentRows:
    """Everybody's rows, from the catalog's source."""
    survey.catalog.whole_source()
    raw = open_star(survey.catalog)
    try:
        progress(Stage("reading the star"))
        return people_of(survey, raw)
    finally:
        raw.close()


def people_of(survey: Survey, raw: RawSide) -> RespondentRows:
    """Everybody's rows, joined as a device would join them.

    Args:
        survey: the catalog's questions.
        raw: the raw star.
    """
    catalog = survey.catalog
    leaves, joins = [], _joins(survey, raw)
    for i, axis in enumerate(survey.axes):
        place = _place(axis.path)
        if isinstance(axis.rule, KeyRule):
            name = f"leaf_of_{i}"
            with registered(raw.connection, "incoming", {"key": axis.rule.keys, "leaf": axis.rule.leaf}):
                raw.connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM incoming")
            key = f"{place}.{identifier(axis.rule.key)}"
            joins.append(f"LEFT JOIN {name} ON {key} = {name}.key")
            leaves.append(
                f"coalesce({name}.leaf, {'NULL' if axis.missing_leaf is None else axis.missing_leaf})"
            )
            continue
        present = (
            f"{place}.{identifier(str(catalog.tables[axis.table].key))} IS NOT NULL" if axis.path else None
        )
        leaves.append(leaf_sql(axis, f"{place}.{identifier(str(axis.resolved.column))}", present))
    owner = catalog.star.tables[survey.of].unit
    unit = "row_number() OVER ()" if owner is None else f"{_place(owner.path)}.{identifier(owner.column)}"
    values = [
        f"CAST(round(coalesce({_place(())}.{identifier(m.name.column)}, 0) * {10**m.scale}) AS BIGINT)"
        for m in survey.measures
    ]
    columns = [f"{e} AS l{i}" for i, e in enumerate(leaves)] + [f"{e} AS m{i}" for i, e in enumerate(values)]
    complete = " AND ".join(f"l{i} IS NOT NULL" for i in range(len(leaves)))
    rows = (
        f"SELECT {unit} AS owner, {', '.join(columns)} FROM {_table(catalog, raw, survey.of)} AS {_place(())}"
    )
    placed = f"{rows} {' '.join(joins)}"
    arrays = raw.connection.execute(
        f"SELECT * FROM ({placed}) WHERE owner IS NOT NULL AND {complete} ORDER BY owner"
    ).fetchnumpy()
    return _people(dict(arrays), len(leaves), len(values))


def _people(arrays: dict[str, object], axes: int, measures: int) -> RespondentRows:
    owner = np.asarray(arrays["owner"])
    starts = np.nonzero(np.append(True, owner[1:] != owner[:-1]))[0] if owner.size else np.zeros(0, np.int64)
    empty = np.zeros((owner.size, 0), dtype=np.int64)
    leaves = np.stack([np.asarray(arrays[f"l{i}"], dtype=np.int64) for i in range(axes)], axis=1)
    values = [np.asarray(arrays[f"m{i}"], dtype=np.int64) for i in range(measures)]
    return RespondentRows(
        np.append(starts, owner.size), leaves, np.stack(values, axis=1) if values else empty
    )


def _place(path: KeyPath) -> str:
    return identifier(".".join(("row", *path)))


def _table(catalog: Catalog, raw: RawSide, name: str) -> str:
    """A raw table with its derived columns and measures."""
    derived = derived_sql(catalog.tables[name], raw.columns[name], _place(()))
    extra = "".join(f", {expr} AS {identifier(column)}" for column, expr in derived.items())
    return f"(SELECT *{extra} FROM raw.{identifier(name)} AS {_place(())})"


def _joins(survey: Survey, raw: RawSide) -> list[str]:
    """Every hop of every path, parents before children."""
    catalog = survey.catalog
    joins = []
    for hop in catalog.star.tables[survey.of].ways([axis.path for axis in survey.axes]):
        path = hop.path
        match = f"{_place(path[:-1])}.{identifier(path[-1])} = {_place(path)}.{identifier(hop.key)}"
        joins.append(f"LEFT JOIN {_table(catalog, raw, hop.table)} AS {_place(path)} ON {match}")
    return joins
