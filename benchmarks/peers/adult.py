"""Two-way ranges of the Adult census: a cube of dpsql beside synthetic rows, both at (1, 1e-9), a person a row.

Questions are random rectangles on every pair of eight columns. Synthetic rows err by what their model leaves out, in
proportion to the rows; a release errs by noise, which does not know how many rows there are. So the rows are also
drawn again, with replacement, to other sizes. What a fit or a release came to is kept in build/peers/jobs, so that a
run can be stopped and goes on.

**Privacy**: public data; without `DPSQL_DATA` nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np

import dpsql
from benchmarks.figures import Figures
from benchmarks.peers.environments import BUILD, commit, prepare, python_of

EPSILON, DELTA, SEED = 1.0, 1e-9, 1994
EACH, RUNS = 12, 3
"""Rectangles a pair; releases of dpsql at each size."""
SIZES = (10_000, 0, 200_000)
"""Rows; 0 is the census itself."""
JOBS, RESULTS = BUILD / "jobs", BUILD / "adult.json"


class Model(NamedTuple):
    """A model of synthetic rows, as dpmm sets it where a user sets nothing.

    Args:
        iterations: of inference.
        megabytes: the largest model; AIM's own source says 80 for comparisons, MST has no bound.
    """

    iterations: int
    megabytes: int | None


MODELS = {"mst": Model(5_000, None), "aim": Model(1_000, 80)}


class Column(NamedTuple):
    """A column's leaves: where each begins, or its categories in order."""

    name: str
    starts: tuple[int, ...] | tuple[str, ...]
    upper: int = 0

    @property
    def yaml(self) -> str:
        """As the catalog has it."""
        if isinstance(self.starts[0], str):
            return f"{self.name}: {{type: string, categories: [{', '.join(map(str, self.starts))}]}}"
        cuts = ", ".join(map(str, self.starts[1:]))
        return f"{self.name}: {{type: int, lower: {self.starts[0]}, upper: {self.upper}, cuts: [{cuts}]}}"

    @property
    def leaf(self) -> str:
        """The leaf of a row, in SQL."""
        if isinstance(self.starts[0], str):
            return f"list_position({list(self.starts)}, {self.name}) - 1"
        return " + ".join(f"({self.name} >= {start})::INTEGER" for start in self.starts[1:])

    def between(self, low: int, high: int) -> str:
        """The condition of leaves low to high, high included."""
        if isinstance(self.starts[0], str):
            return f"{self.name} IN ({', '.join(repr(each) for each in self.starts[low : high + 1])})"
        upper = f" AND {self.name} < {self.starts[high + 1]}" if high + 1 < len(self.starts) else ""
        return f"{self.name} >= {self.starts[low]}{upper}"


COLUMNS = (
    Column("age", tuple(range(17, 91, 2)), 90),
    Column("hours_per_week", tuple(range(1, 100, 4)), 99),
    Column("education_num", tuple(range(1, 17)), 16),
    Column("capital_gain", (0, 1, 1000, 3000, 5000, 8000, 20000), 99999),
    Column("capital_loss", (0, 1, 1500, 1800, 2000, 2500), 4999),
    Column("sex", ("Female", "Male")),
    Column("race", ("White", "Black", "Asian-Pac-Islander", "Amer-Indian-Eskimo", "Other")),
    Column("relationship", ("Husband", "Wife", "Own-child", "Not-in-family", "Other-relative", "Unmarried")),
)
PAIRS = tuple(combinations(range(len(COLUMNS)), 2))


class Rectangle(NamedTuple):
    """Leaves of a pair of columns, ends included."""

    pair: int
    first: tuple[int, int]
    second: tuple[int, int]

    @property
    def sql(self) -> str:
        """The question."""
        a, b = (COLUMNS[i] for i in PAIRS[self.pair])
        return f"SELECT COUNT(*) FROM person WHERE {a.between(*self.first)} AND {b.between(*self.second)}"

    def of(self, tables: Sequence[np.ndarray]) -> float:
        """Its count in the table of its pair."""
        rows, columns = (slice(low, high + 1) for low, high in (self.first, self.second))
        return float(np.asarray(tables[self.pair])[rows, columns].sum())


def rectangles() -> list[Rectangle]:
    """Random ones on every pair."""
    rng = np.random.default_rng(SEED)

    def ends(column: int) -> tuple[int, int]:
        low, high = np.sort(rng.integers(0, len(COLUMNS[column].starts), 2)).tolist()
        return low, high

    return [Rectangle(i, ends(a), ends(b)) for i, (a, b) in enumerate(PAIRS) for _ in range(EACH)]


def pair_tables(leaves: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Exact counts of every pair."""
    tables = []
    for a, b in PAIRS:
        sides = [np.arange(len(COLUMNS[i].starts) + 1) for i in (a, b)]
        tables.append(np.histogram2d(leaves[COLUMNS[a].name], leaves[COLUMNS[b].name], bins=sides)[0])
    return tables


def drawn(rows: Mapping[str, np.ndarray], size: int) -> dict[str, np.ndarray]:
    """The census, or so many of its people drawn with replacement; the same ones each time."""
    people = len(rows["age"])
    picked = np.random.default_rng((SEED, size)).integers(0, people, size) if size else np.arange(people)
    return {name: values[picked] for name, values in rows.items()}


def leaves_of(rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every value's leaf."""
    with duckdb.connect() as db:
        db.register("raw", dict(rows))
        codes = ", ".join(f"{column.leaf} AS {column.name}" for column in COLUMNS)
        return dict(db.execute(f"SELECT {codes} FROM raw").fetchnumpy())


def copied(table: Mapping[str, np.ndarray], file: str) -> None:
    """Write a table as its file's name says."""
    with duckdb.connect() as db:
        db.register("raw", dict(table))
        db.execute(f"COPY raw TO '{file}'")


def released(folder: Path, rows: Mapping[str, np.ndarray], asked: Sequence[Rectangle]) -> np.ndarray:
    """Answers of a fresh release and both ends of their intervals, one row each."""
    shown = ", ".join(column.yaml for column in COLUMNS)
    axes = ", ".join(f"person.{column.name}" for column in COLUMNS)
    copied(rows, f"{folder}/person.parquet")
    (folder / "adult.yaml").write_text(
        f'dpsql: 1\nname: adult\nsource: {{kind: parquet, root: "{folder}", tables: {{person: person.parquet}}}}\n'
        f"privacy: {{lineage: adult, cap: 1, unit: row, epsilon: {EPSILON}, delta: {DELTA}}}\n"
        f"tables: {{person: {{role: fact, columns: {{{shown}}}}}}}\n"
        f"views: {{pairs: {{of: person, axes: [{axes}], ways: 2}}}}\n"
    )
    dpsql.publish(folder / "adult.yaml", folder / "adult.dpsql")
    results = [dpsql.query(each.sql, release=folder / "adult.dpsql") for each in asked]
    ends = [result.interval_rows(0.95) for result in results]
    values = [
        [result.rows[0][0], low[0][0], high[0][0]] for result, (low, high) in zip(results, ends, strict=True)
    ]
    return np.array(values, dtype=float)


def ourselves(rows: Mapping[str, np.ndarray], asked: Sequence[Rectangle], size: int) -> dict[str, Any]:
    """dpsql's mean absolute error and how often its intervals hold, from their file where there is one."""
    file = JOBS / f"census-dpsql-{size}.json"
    if not file.exists():
        tables, errors, held, start = pair_tables(leaves_of(rows)), [], [], time.process_time()
        truth = np.array([each.of(tables) for each in asked])
        for _ in range(RUNS):
            with tempfile.TemporaryDirectory() as name:
                values, low, high = released(Path(name), rows, asked).T
            errors.append(float(np.abs(values - truth).mean()))
            held.append(float(((low <= truth) & (truth <= high)).mean()))
        spent = (time.process_time() - start) / RUNS
        JOBS.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"errors": errors, "held": held, "cpu": spent}))
    return dict(json.loads(file.read_text()))


def synthetic(
    rows: Mapping[str, np.ndarray], asked: Sequence[Rectangle], name: str, size: int, seconds: int
) -> dict[str, Any]:
    """What a model's rows err by, from its file where it has one."""
    file = JOBS / f"census-{name}-{size}.json"
    if not file.exists():
        sizes = {column.name: len(column.starts) for column in COLUMNS}
        found = fitted(leaves_of(rows), sizes, name, seconds)
        if "tables" in found:
            exact = pair_tables(leaves_of(rows))
            tables = found.pop("tables")
            found["error"] = float(np.mean([abs(each.of(tables) - each.of(exact)) for each in asked]))
        JOBS.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found))
    return dict(json.loads(file.read_text()))


def fitted(
    leaves: Mapping[str, np.ndarray], sizes: Mapping[str, int], name: str, seconds: int
) -> dict[str, Any]:
    """Counts of every pair in fresh synthetic rows, or why there are none.

    Args:
        leaves, sizes: the leaf of each row and the number of leaves, by column.
        name: of the model.
        seconds: of CPU that the fit may take.
    """
    model = MODELS[name]
    reason = prepare("dpmm")
    if reason:
        return {"failed": reason}
    with tempfile.TemporaryDirectory() as folder:
        copied(leaves, f"{folder}/rows.csv")
        job = {
            "rows": f"{folder}/rows.csv", "epsilon": EPSILON, "delta": DELTA, "model": name,
            "iterations": model.iterations, "megabytes": model.megabytes, "seconds": seconds,
            "leaves": sizes,
        }  # fmt: skip
        command = [python_of("dpmm"), "-m", "benchmarks.peers.with_dpmm"]
        done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True)
    if done.returncode < 0:
        return {"failed": f"no answer after {seconds:,} s of CPU"}
    if done.returncode:
        return {"failed": done.stderr.strip().splitlines()[-1][:200]}
    return dict(json.loads(done.stdout))


def crossing(sizes: Sequence[float], others: Sequence[float], ours: Sequence[float]) -> float:
    """From how many rows on one error passes another; between two sizes along straight lines of logs.

    Args:
        sizes: rows, growing.
        others: the other's error at each.
        ours: our error at each.

    Returns:
        The first size from which ours is less at all larger ones; infinite if it is not less at the last.
    """
    ahead = np.log(np.asarray(others) / np.asarray(ours))
    if ahead[-1] <= 0:
        return float("inf")
    behind = np.flatnonzero(ahead <= 0)
    if not behind.size:
        return float(sizes[0])
    last = int(behind[-1])
    share = -ahead[last] / (ahead[last + 1] - ahead[last])
    return float(np.exp(np.log(sizes[last]) + share * np.log(sizes[last + 1] / sizes[last])))


def told(kept: Mapping[str, Any], name: str) -> str:
    """From how many rows on dpsql is ahead of a model, in words."""
    both = [
        (row["rows"], row[name]["error"], float(np.mean(row["dpsql"]["errors"])))
        for row in kept["sizes"] if "error" in row.get(name, {})
    ]  # fmt: skip
    if not both:
        return f"{name.upper()} gave no answer"
    rows = crossing(*zip(*both, strict=True))
    if rows == both[0][0]:
        return f"dpsql is ahead of {name.upper()} from the fewest rows tried, {rows:,.0f}"
    return (
        f"dpsql is ahead of {name.upper()} from about {float(f'{rows:.2g}'):,.0f} rows on"
        if np.isfinite(rows)
        else f"dpsql is not ahead of {name.upper()} at {both[-1][0]:,} rows"
    )


def main() -> int:
    """Measure, keep, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="*", default=list(MODELS), choices=tuple(MODELS))
    parser.add_argument("--seconds", type=int, default=2400, help="of CPU that a fit may take")
    options = parser.parse_args()
    if "DPSQL_DATA" not in os.environ:
        print("no DPSQL_DATA: nothing is compared on the census")
        return 0
    columns = ", ".join(column.name for column in COLUMNS)
    with duckdb.connect() as db:
        file = f"{os.environ['DPSQL_DATA']}/adult/adult_train.parquet"
        census = db.execute(f"SELECT {columns} FROM '{file}'").fetchnumpy()
    asked = rectangles()
    kept: dict[str, Any] = {"commit": commit(), "sizes": []}
    for size in SIZES:
        rows = drawn(census, size)
        found: dict[str, Any] = {"rows": len(rows["age"]), "dpsql": ourselves(rows, asked, size)}
        for name in options.models:
            found[name] = synthetic(rows, asked, name, size, options.seconds)
        kept["sizes"].append(found)
        shown = (f"{n} {found[n].get('error', found[n].get('failed'))}" for n in options.models if n in found)
        print(
            f"{found['rows']} rows: dpsql errs by {np.mean(found['dpsql']['errors']):.1f};",
            *shown,
            flush=True,
        )
    RESULTS.write_text(json.dumps(kept))
    for name in options.models:
        print(told(kept, name))
    rate = float(np.mean([row["dpsql"]["held"] for row in kept["sizes"]]))
    figures = Figures()
    figures.within("peers, census, coverage", rate, 0.93, 0.97)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
