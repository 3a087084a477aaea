"""Figures of counting raw rows: CPU against the plain GROUP BYs of the same views, best of three, and memory.

Counting is everything between open tables and exact integers. The whole publish is measured from its plan on: counting,
real noise, estimates, digests for the ledger, the file and the ledger's commit. Every measurement is a process of its
own, so that memory is its own too; rounds take turns, so that other work on the machine falls on all alike.

A hospital: 10 statistics of six views. Values come from DuckDB's hash of the row number, so a size always gives the
same star. Patients are skewed (the square of a uniform number: 13 visits on average), 1% of the costs are NULL, 1% of
the keys lead nowhere, and a few sexes, regions and kinds are unknown.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import duckdb

from benchmarks.figures import Figures, main
from benchmarks.processes import alone, cpu_of, peak_mib
from dpsql.api import publish
from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker
from dpsql.central.bounding import OpenSource, draw_release
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.plan import plan_release
from dpsql.engines.registry import open_star
from dpsql.noise import ZeroNoise
from dpsql.progress import Stage
from tests.releases import write_tables

CATALOG = """
dpsql: 1
name: scale
source: {{kind: parquet, root: "{root}", tables: {{
  visit: visit.parquet, patient: patient.parquet, ward: ward.parquet}}}}
privacy: {{lineage: scale, cap: 100, unit: {unit}, epsilon: 1, delta: {delta}}}
tables:
  patient: {{role: dimension, key: patient_id, private: true, columns: {{
    age: {{type: int, lower: 0, upper: 99, cuts: {{width: 5}}}},
    sex: {{type: string, categories: [f, m]}},
    region: {{type: string, categories: [north, south, east, west, abroad]}}}}}}
  ward: {{role: dimension, key: ward_id, private: false, columns: {{
    beds: {{type: int, lower: 0, upper: 99, cuts: {{width: 10}}}},
    department: {{type: string}}}}}}
  visit: {{role: fact, foreign_keys: {{patient_id: patient, ward_id: ward}}, {bounds} columns: {{
    cost: {{type: int, lower: 0, upper: 5000, measure: true}},
    days: {{type: int, lower: 0, upper: 30, measure: true}},
    came_on: {{type: date, lower: 2025-01-01, upper: 2025-12-31, cuts: {{width: week}}}},
    kind: {{type: string, categories: [planned, emergency, transfer]}}}}}}
views:
  people: {{of: visit, axes: [patient.age, patient.sex], measures: {{count: 0.5, visit.cost: 0.5}}}}
  weeks: {{of: visit, axes: [visit.came_on, patient.region], measures: {{count: 0.5, visit.cost: 0.5}}}}
  wards: {{of: visit, axes: [ward.department, visit.kind], measures: {{count: 0.5, visit.days: 0.5}}}}
  kinds: {{of: visit, axes: [visit.came_on, visit.kind], measures: [count]}}
  regions: {{of: visit, axes: [patient.region, ward.department], measures: {{count: 0.5, visit.cost: 0.5}}}}
  sizes: {{of: visit, axes: [ward.beds, patient.age], measures: [count]}}
"""

PATIENT, WARD = "JOIN patient USING (patient_id)", "JOIN ward USING (ward_id)"
PLAIN = tuple(
    f"SELECT {columns} FROM visit {joins} GROUP BY ALL"
    for columns, joins in (
        ("age // 5 AS age, sex, count(*), sum(cost)", PATIENT),
        ("week(came_on) AS week, region, count(*), sum(cost)", PATIENT),
        ("department, kind, count(*), sum(days)", WARD),
        ("week(came_on) AS week, kind, count(*)", ""),
        ("region, department, count(*), sum(cost)", f"{PATIENT} {WARD}"),
        ("beds // 10 AS beds, age // 5 AS age, count(*)", f"{PATIENT} {WARD}"),
    )
)
"""The same six views as anybody would write them, without a promise."""

BOUNDS = {
    "row": "",
    "truncate": "max_ids: 30,",
    "weight": "max_ids: 30, bounding: weight,",
    "auto": "max_ids: auto,",
    "delta": "max_ids: auto,",
}


def make_star(folder: Path, facts: int, patients: int = 750_000, wards: int = 500) -> None:
    """Write the three tables.

    Args:
        folder: where they go.
        facts, patients, wards: rows of each.
    """
    tables = {
        "patient": "SELECT i AS patient_id, (hash(i) % 102)::INTEGER AS age, "
        "['f', 'm', 'x'][(1 + hash(i, 3) % 3)::INTEGER] AS sex, "
        f"['north', 'south', 'east', 'west', 'abroad', 'moon'][(1 + hash(i, 1) % 6)::INTEGER] AS region "
        f"FROM range({patients}) t(i)",
        "ward": f"SELECT i AS ward_id, (hash(i, 2) % 100)::INTEGER AS beds, 'd' || i % 12 AS department "
        f"FROM range({wards}) t(i)",
        "visit": f"SELECT CASE WHEN hash(i, 4) % 100 = 0 THEN -1 ELSE "
        f"floor({patients} * pow(hash(i, 5)::DOUBLE / 18446744073709551616.0, 2))::BIGINT END AS patient_id, "
        f"(hash(i, 6) % {wards})::BIGINT AS ward_id, "
        "CASE WHEN hash(i, 7) % 100 > 0 THEN (hash(i, 8) % 6000)::INTEGER END AS cost, "
        "(hash(i, 9) % 32)::INTEGER AS days, DATE '2025-01-01' + (hash(i, 10) % 370)::INTEGER AS came_on, "
        "['planned', 'emergency', 'transfer', 'lost'][(1 + hash(i, 11) % 4)::INTEGER] AS kind "
        f"FROM range({facts}) t(i)",
    }
    write_tables(folder, tables)


def write_catalog(folder: Path, bounding: str) -> Path:
    """A catalog over the star.

    Args:
        folder: where the tables are.
        bounding: `row`, `truncate`, `weight` or `auto`; `delta` is `auto` with a delta.
    """
    file = folder / f"{bounding}.yaml"
    unit = "row" if bounding == "row" else "patient.patient_id"
    delta = "1e-6" if bounding == "delta" else "0"
    file.write_text(CATALOG.format(root=folder, unit=unit, bounds=BOUNDS[bounding], delta=delta))
    return file


TO_REACH = {"row": 2.8, "weight": 3.1, "truncate": 3.4, "auto": 4.0, "delta": 8.0}
"""CPU of counting over that of the plain statements; `delta` is `auto` with a delta."""


def plain(folder: Path) -> float:
    """Processor seconds of the plain statements."""
    with duckdb.connect() as db:
        for table in ("visit", "patient", "ward"):
            db.execute(f"CREATE VIEW {table} AS FROM '{folder / table}.parquet'")
        return cpu_of(lambda: [db.execute(statement).fetchall() for statement in PLAIN])


def counting(folder: Path, bounding: str) -> float:
    """Processor seconds from open tables to exact integers, under a bound."""
    catalog = load_catalog(write_catalog(folder, bounding))
    with closing(open_star(catalog)) as raw:
        plan = plan_release(catalog, axis_maker(catalog, raw))
        start = time.process_time()
        prepare_tables(catalog, raw, plan)
        draw_release(OpenSource(catalog, raw, plan, ZeroNoise(), bytes(32)), lambda step: None)
        return time.process_time() - start


def publishing(folder: Path, bounding: str) -> float:
    """Processor seconds of a whole publish after its plan."""
    planned: list[float] = []

    def note(stage: Stage) -> None:
        if stage.doing == "planned":
            planned.append(time.process_time())

    with tempfile.TemporaryDirectory() as name:
        catalog = Path(name) / "scale.yaml"
        catalog.write_text(write_catalog(folder, bounding).read_text())
        publish(catalog, Path(name) / "scale.dpsql", progress=note)
        return time.process_time() - planned[0]


def one(folder: Path, what: str) -> tuple[float, float]:
    """CPU seconds of one thing in this process, and the most that the process held, in MB."""
    step, _, bounding = what.partition(" ")
    cpu = (
        plain(folder)
        if step == "plain"
        else {"counting": counting, "publishing": publishing}[step](folder, bounding)
    )
    return cpu, peak_mib()


def measure(
    figures: Figures,
    folder: Path,
    bounding: Sequence[str] = tuple(TO_REACH),
    *,
    facts: int = 10_000_000,
    runs: int = 3,
) -> None:
    """Count so many facts under each bound, so often."""
    make_star(folder, facts)
    steps = ["plain", *(f"{step} {bound}" for bound in bounding for step in ("counting", "publishing"))]
    taken: dict[str, list[list[float]]] = {what: [] for what in steps}
    for what in steps * runs:
        taken[what].append(alone("benchmarks.scale.measure", "--one", folder, what))
    least = {what: min(cpu for cpu, _ in costs) for what, costs in taken.items()}
    largest = {what: max(megabytes for _, megabytes in costs) for what, costs in taken.items()}
    floor = least["plain"]
    print(f"plain GROUP BYs of {facts:,} facts: {floor:.2f} s, {largest['plain']:.0f} MB", flush=True)
    for bound in bounding:
        count, whole = (f"{step} {bound}" for step in ("counting", "publishing"))
        title = f"counting by {bound}, CPU over the plain GROUP BYs"
        figures.at_most(title, least[count] / floor, TO_REACH[bound])
        figures.table(f"publishing by {bound} after the plan, CPU over counting", least[whole] / least[count])
        most = max(largest[count], largest[whole])
        figures.at_most(f"publishing by {bound}, resident MB", most, 1200)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(Path(sys.argv[2]), sys.argv[3])))
    else:
        main(measure)
