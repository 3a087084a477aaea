"""Figures of collecting at scale: processor time and memory for ten million reports, and texts read alike.

Reports answer the plan of a star of five axes (21 views, most of them unary encoding), each with a one-time token of
32 digits; one token of 200 comes again in another file. Every count runs in a process of its own, whose peak memory is
told. The floor is one GROUP BY over the same Parquet files that keeps one report a token, by DuckDB with as many
threads and as much memory as the collector has; the best of three of each, taken in turns.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.figures import Figures, main
from benchmarks.local import star
from benchmarks.local.simulated import one_row_each
from benchmarks.local.wild import read_alike
from benchmarks.processes import alone, cpu_of, peak_mib
from dpsql.client import read_plan
from dpsql.local.collector import add_spool, close_collection
from dpsql.local.files import MEMORY, MOST_THREADS, open_state, spool_files
from dpsql.local.plan import build_plan
from dpsql.local.simulate import simulate_reports

FILE = 1_000_000
AGAIN = 200
RUNS = 3
WILD, SEED = 10_000, 20261122


def write_reports(folder: Path, reports: int, formats: Sequence[str]) -> Path:
    """Write the plan and spools, a folder a format; returns the plan's path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    plan = read_plan(build_plan(star.design(1.0, measure=False)))
    (folder / "plan.json").write_bytes(plan.raw)
    for name in formats:
        (folder / name).mkdir()
    (folder / "parquet").mkdir(exist_ok=True)
    again: list[str] = []
    for number, start in enumerate(range(0, reports, FILE)):
        rng, count = np.random.default_rng(number), min(FILE, reports - start)
        said = simulate_reports(
            plan, one_row_each(rng.integers(0, star.LEAVES, size=(count, star.AXES))), rng
        )
        digits = rng.bytes(16 * count).hex()
        tokens = again + [digits[32 * i : 32 * i + 32] for i in range(count - len(again))]
        again = tokens[-(count // AGAIN) :]
        path = folder / "parquet" / f"{number:03d}.parquet"
        pq.write_table(pa.table({"report": pa.array(said, pa.binary()), "token": tokens}), path)
        for name in set(formats) - {"parquet"}:
            _write_text(path, folder / name / f"{number:03d}.{name}", [view.oracle for view in plan.views])
    return folder / "plan.json"


def _write_text(parquet: Path, text: Path, oracles: list[str]) -> None:
    """The same rows as CSV, or as the JSON twin."""
    if text.suffix == ".csv":
        rows = "SELECT lower(hex(report)) AS report, token"
        options = "FORMAT csv, HEADER"
    else:
        view = "CAST('0x' || hex(report[11:12]) AS INTEGER)"
        names = "[" + ", ".join(f"'{oracle}'" for oracle in oracles) + "]"
        rows = (
            f"""SELECT '{{"report":1,"plan":"' || lower(hex(report[3:10])) || '","view":' || {view} || """
            f"""',"oracle":"' || {names}[{view} + 1] || '","payload":"' || lower(hex(report[14:])) || """
            """'","token":"' || token || '"}' AS line"""
        )
        options = "FORMAT csv, HEADER false, QUOTE '', ESCAPE '', DELIMITER '\x01'"
    duckdb.execute(f"COPY ({rows} FROM read_parquet('{parquet}')) TO '{text}' ({options})")


def collect_once(plan: Path, folder: Path) -> int:
    """Count a folder of spools; the reports that are accepted."""
    checked = read_plan(plan.read_bytes())
    state = open_state(checked)
    for spool in spool_files([folder]):
        add_spool(state, checked, spool, b"k" * 32)
    return close_collection(state, checked)[1].accepted


def group_by_once(folder: Path) -> int:
    """One report a token, by one statement; how many there are."""
    connection = duckdb.connect()
    connection.execute(f"SET threads = {min(os.cpu_count() or 1, MOST_THREADS)}")
    connection.execute(f"SET memory_limit = '{MEMORY}'")
    connection.execute("SET preserve_insertion_order = false")
    connection.execute(f"SET temp_directory = '{folder.parent / 'spill'}'")
    grouped = f"SELECT token, min(report) AS report FROM read_parquet('{folder}/*.parquet') GROUP BY token"
    return int(connection.execute(f"SELECT count(*), max(report) FROM ({grouped})").fetchall()[0][0])


STEPS = {"collect": collect_once, "group": group_by_once}


def step(name: str, *places: str) -> dict[str, float]:
    """One of the two in this process: its CPU seconds, what it counts, and its peak memory."""
    counts = list[int]()
    seconds = cpu_of(lambda: counts.append(STEPS[name](*map(Path, places))))
    return {"seconds": seconds, "accepted": counts[0], "peak": peak_mib()}


def measure(
    figures: Figures,
    folder: Path,
    *,
    reports: int = 10_000_000,
    formats: Sequence[str] = ("parquet", "csv", "jsonl"),
) -> None:
    """Count so many reports from files of each format."""
    figures.at_least(f"wild texts of {WILD} that both clients read alike", read_alike(WILD, SEED), WILD)

    def child(*words: object) -> dict[str, float]:
        found: dict[str, float] = alone("benchmarks.local.collect", *words)
        return found

    plan = write_reports(folder, reports, formats)
    counts, floors = [], []
    for _ in range(RUNS):
        floors.append(child("group", folder / "parquet"))
        counts.append(child("collect", plan, folder / "parquet"))
    ours, floor = (min(each["seconds"] for each in runs) for runs in (counts, floors))
    told, people = f"{reports} reports with tokens", floors[0]["accepted"]
    print(f"{told}: {ours:.2f} processor seconds, one GROUP BY {floor:.2f}", flush=True)
    figures.at_most(f"{told} from Parquet, processor time by one GROUP BY", ours / floor, 3)
    figures.table(f"{told}, peak MiB, Parquet", max(run["peak"] for run in counts))
    figures.at_least("reports accepted, of one a token", counts[0]["accepted"] / people, 1, "Parquet")
    for name in (name for name in formats if name != "parquet"):
        found = child("collect", plan, folder / name)
        print(f"{name}: {found['seconds']:.2f} processor seconds", flush=True)
        figures.at_most(f"{told}, peak MiB", found["peak"], 2048, name)
        figures.at_least("reports accepted, of one a token", found["accepted"] / people, 1, name)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in STEPS:
        print(json.dumps(step(*sys.argv[1:])))
    else:
        main(measure)
