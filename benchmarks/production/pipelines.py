"""Do tables reach dbt, does a scheduler's month survive its kills, do snapshots of lakes equal the rows in DuckDB?

dbt is installed into an environment of its own, from where pip takes packages. Kills fall anywhere between
a command's start and its end, by the clock of the days before.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from datetime import date, timedelta
from functools import partial
from pathlib import Path

import duckdb

from benchmarks.figures import Figures, main, sections
from dpsql.examples.retail import CUSTOMERS, PRODUCTS, make_star, write_star
from tests.engines.test_frames import published
from tests.engines.test_lakes import LAKES, lake_catalog, tables
from tests.stream_shop import CATALOG as STREAM

ROOT = Path(__file__).resolve().parents[2]
DBT = ("dbt-duckdb>=1.10", "dbt-core<1.12")
DAYS = 30


def dpsql(folder: Path, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "dpsql", *map(str, words)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=world())


def world() -> dict[str, str]:
    return {**os.environ, "DPSQL_STATE": "/dev/null", "PYTHONPATH": str(ROOT), "DO_NOT_TRACK": "1"}


def bare(folder: Path, *packages: str) -> Path:
    """A new environment with some packages; its programs."""
    venv.create(folder, with_pip=True)
    subprocess.run(
        [folder / "bin" / "pip", "install", "--quiet", *packages], check=True, stderr=subprocess.DEVNULL
    )
    return folder / "bin"


def dbt(figures: Figures, folder: Path) -> None:
    """Ten models over an export; the same build where an interval may not be as wide as it is."""
    write_star(folder / "data", make_star(20250101, CUSTOMERS, PRODUCTS))
    (folder / "retail.yaml").write_text((ROOT / "catalog" / "retail.yaml").read_text())
    published = dpsql(folder, "publish", "retail.yaml", "-o", "retail.dpsql")
    assert published.returncode == 0, published.stderr
    project = folder / "project"
    subprocess.run(["cp", "-r", ROOT / "examples" / "dbt", project], check=True)
    exported = dpsql(project, "export", "../retail.dpsql", "-o", "tables", "--dbt")
    assert exported.returncode == 0, exported.stderr
    programs = bare(folder / "env", *DBT)

    def build() -> list[str]:
        command = [programs / "dbt", "build", "--profiles-dir", "."]
        subprocess.run(command, cwd=project, capture_output=True, check=False, env=world())
        ended = json.loads((project / "target" / "run_results.json").read_text())["results"]
        return [f"{result['unique_id'].split('.')[0]} {result['status']}" for result in ended]

    results = build()
    figures.table("production: dbt models built from an export", results.count("model success"))
    bad = [result for result in results if result not in ("model success", "test pass")]
    figures.table("production: dbt models and tests that are not green", len(bad))
    schema = project / "models" / "schema.yml"
    schema.write_text(schema.read_text().replace("width: 1000", "width: 10"))
    stopped = [result for result in build() if result not in ("model success", "test pass")]
    figures.table("production: dbt steps stopped by intervals wider than stated", len(stopped))


def days(figures: Figures, folder: Path) -> None:
    """A scheduler's thirty days: each append is killed once somewhere, and run again until it ends with 0."""
    write_star(folder / "data", make_star(20250101, 2000, 40))
    (folder / "days.yaml").write_text(STREAM.replace("EPSILON", "1").replace("DELTA", "0"))
    took, killed, tries, chance = 2.0, 0, 0, random.Random()
    for number in range(DAYS):
        batch = (date(2025, 1, 1) + timedelta(number)).isoformat()
        words = ["append", "days.dpsql", "--catalog", "days.yaml", "--batch", batch, "--json"]
        child = subprocess.Popen(
            [sys.executable, "-m", "dpsql", *words], cwd=folder, env=world(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            child.wait(chance.uniform(0.3, 1.0) * took)
        except subprocess.TimeoutExpired:
            child.kill()
            killed += 1
        child.communicate()
        for _ in range(5):
            tries += 1
            begun = time.monotonic()
            if dpsql(folder, *words).returncode == 0:
                took = time.monotonic() - begun
                break
    by_day = "SELECT sold_on, COUNT(*) AS n FROM sales GROUP BY sold_on"
    answer = dpsql(folder, "query", "days.dpsql", by_day, "--format", "csv")
    dated = [line for line in answer.stdout.splitlines()[1:] if line]
    budget = json.loads(dpsql(folder, "budget", "days.yaml", "--json").stdout)
    (lineage,) = budget["lineages"]
    print(f"{killed} of {DAYS} appends killed, {tries} tries after them")
    figures.table("production: appends that were killed, of 30 days", killed)
    figures.table("production: batches of thirty days with a kill a day", len(dated))
    figures.at_most("production: charges of thirty days with a kill a day", len(lineage["releases"]), 1)


def lakes(figures: Figures, folder: Path) -> None:
    """Cells of pinned Delta and Iceberg snapshots against those of a DuckDB database that holds the pinned rows."""
    with duckdb.connect(str(folder / "rows.duckdb")) as database:
        for name, rows in tables().items():
            database.register("rows", rows)
            database.execute(f"CREATE TABLE {name} AS FROM rows")
    written = {name: name for name in tables()}
    plain = lake_catalog("duckdb", folder, written)
    plain = plain.model_copy(
        update={"source": plain.source.model_copy(update={"root": str(folder / "rows.duckdb")})}  # type: ignore[union-attr]
    )
    expected = published(plain, folder / "duckdb.dpsql")
    for kind, make in LAKES.items():
        place = folder / kind
        place.mkdir()
        release = published(lake_catalog(kind, place, make(place)), place / "lake.dpsql")
        unequal = sum(
            len(set(map(repr, expected[name])) ^ set(map(repr, release[name]))) for name in expected
        )
        cells = sum(map(len, release.values()))
        print(f"{kind}: {cells} rows of {len(release)} tables compared")
        title = "production: rows of a pinned snapshot's release that differ from DuckDB's"
        figures.at_most(title, unequal, 0, kind)


def measure(figures: Figures, folder: Path, parts: Sequence[str] = ()) -> None:
    """Measure the named parts, or all."""
    for part in (lakes, days, dbt):
        (folder / part.__name__).mkdir()
    sections(
        parts, {part.__name__: partial(part, figures, folder / part.__name__) for part in (lakes, days, dbt)}
    )


if __name__ == "__main__":
    main(measure)
