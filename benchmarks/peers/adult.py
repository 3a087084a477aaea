"""Two-way ranges of the Adult census: a cube of dpsql beside synthetic rows, both at (1, 1e-9), a person a row.

Questions are random rectangles on every pair of eight columns. Synthetic rows err by what their model leaves out, in
proportion to the rows; a release errs by noise, which does not know how many rows there are. So the rows are also
drawn again, with replacement, to other sizes.

**Privacy**: public data; without `DPSQL_DATA` nothing is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np

import dpsql
from benchmarks.figures import Figures
from benchmarks.peers.environments import BUILD, prepare, python_of

EPSILON, DELTA, SEED = 1.0, 1e-9, 1994
EACH = 12
"""Rectangles a pair."""
SIZES = (1 / 8, 1.0, 8.0)
"""Rows over those of the census."""
JOBS, RESULTS = BUILD / "jobs", BUILD / "adult.json"


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


def released(folder: Path, asked: Sequence[Rectangle]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Answers of a fresh release, and the ends of their intervals."""
    shown = ", ".join(column.yaml for column in COLUMNS)
    axes = ", ".join(f"person.{column.name}" for column in COLUMNS)
    (folder / "adult.yaml").write_text(
        "dpsql: 1\nname: adult\nsource: {kind: parquet, tables: {person: adult_train.parquet}, "
        f'root: "{os.environ["DPSQL_DATA"]}/adult"}}\n'
        f"privacy: {{lineage: adult, cap: 1, unit: row, epsilon: {EPSILON}, delta: {DELTA}}}\n"
        f"tables: {{person: {{role: fact, columns: {{{shown}}}}}}}\n"
        f"views: {{pairs: {{of: person, axes: [{axes}], ways: 2}}}}\n"
    )
    dpsql.publish(folder / "adult.yaml", folder / "adult.dpsql")
    results = [dpsql.query(each.sql, release=folder / "adult.dpsql") for each in asked]
    ends = [result.interval_rows(0.95) for result in results]
    return (
        np.array([float(result.rows[0][0]) for result in results]),
        np.array([float(low[0][0]) for low, _ in ends]),
        np.array([float(high[0][0]) for _, high in ends]),
    )


def ourselves(asked: Sequence[Rectangle], truth: np.ndarray, runs: int) -> tuple[float, float]:
    """dpsql's mean absolute error and how often its intervals hold, from their file where there is one."""
    file = JOBS / f"census-dpsql-{runs}.json"
    if not file.exists():
        errors, held = [], []
        for _ in range(runs):
            with tempfile.TemporaryDirectory() as name:
                values, low, high = released(Path(name), asked)
            errors.append(np.abs(values - truth).mean())
            held.append(((low <= truth) & (truth <= high)).mean())
        JOBS.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps([float(np.mean(errors)), float(np.mean(held))]))
    error, rate = json.loads(file.read_text())
    return float(error), float(rate)


def synthetic(leaves: Mapping[str, np.ndarray], model: str, size: float) -> dict[str, Any]:
    """What a model's rows hold, from its file where it has one."""
    file = JOBS / f"dpmm-{model}-{size:g}.json"
    if not file.exists():
        reason = prepare("dpmm")
        if reason:
            return {"failed": reason}
        with tempfile.TemporaryDirectory() as name:
            rows = f"{name}/rows.csv"
            with duckdb.connect() as db:
                db.register("raw", dict(leaves))
                db.execute(f"COPY raw TO '{rows}' (FORMAT csv, HEADER)")
            job = {
                "rows": rows, "epsilon": EPSILON, "delta": DELTA, "model": model,
                "leaves": {column.name: len(column.starts) for column in COLUMNS},
            }  # fmt: skip
            command = [python_of("dpmm"), "-m", "benchmarks.peers.with_dpmm"]
            done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True)
        if done.returncode:
            return {"failed": done.stderr.strip().splitlines()[-1][:200]}
        JOBS.mkdir(parents=True, exist_ok=True)
        file.write_text(done.stdout)
    return dict(json.loads(file.read_text()))


def crossing(sizes: Sequence[float], others: Sequence[float], ours: float) -> float:
    """From how many rows on an error that grows passes one that stays; between two sizes along a straight line of logs.

    Args:
        sizes: rows, growing.
        others: the other's error at each.
        ours: the error that stays.
    """
    for (a, low), (b, high) in zip(
        zip(sizes, others, strict=True), list(zip(sizes, others, strict=True))[1:], strict=False
    ):
        if low < ours <= high:
            share = np.log(ours / low) / np.log(high / low)
            return float(np.exp(np.log(a) + share * np.log(b / a)))
    return float(sizes[0]) if others[0] >= ours else float("inf")


def main() -> int:
    """Measure, keep, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="mst", choices=("mst", "aim"))
    parser.add_argument("--runs", type=int, default=3, help="releases of dpsql")
    options = parser.parse_args()
    if "DPSQL_DATA" not in os.environ:
        print("no DPSQL_DATA: nothing is compared on the census")
        return 0
    with duckdb.connect() as db:
        codes = ", ".join(f"{column.leaf} AS {column.name}" for column in COLUMNS)
        leaves = db.execute(
            f"SELECT {codes} FROM '{os.environ['DPSQL_DATA']}/adult/adult_train.parquet'"
        ).fetchnumpy()
    asked, rng = rectangles(), np.random.default_rng(SEED)
    people = len(leaves["age"])
    whole = pair_tables(leaves)
    truth = np.array([each.of(whole) for each in asked])
    ours, rate = ourselves(asked, truth, options.runs)
    kept: dict[str, Any] = {
        "people": people,
        "ours": ours,
        "held": rate,
        "model": options.model,
        "others": [],
    }
    for size in SIZES:
        drawn = rng.integers(0, people, round(people * size))
        own = leaves if size == 1 else {name: values[drawn] for name, values in leaves.items()}
        found = synthetic(own, options.model, size)
        if "failed" in found:
            kept["others"].append({"rows": len(own["age"]), "failed": found["failed"]})
            print(f"{options.model} at {len(own['age'])} rows: {found['failed']}")
            continue
        exact = pair_tables(own)
        wrong = float(np.mean([abs(each.of(found["tables"]) - each.of(exact)) for each in asked]))
        kept["others"].append(
            {
                "rows": len(own["age"]),
                "error": wrong,
                "cpu": found["cpu"],
                "version": found["version"],
                "lines": found["lines"],
            }
        )
        print(f"{len(own['age'])} rows: {options.model} errs by {wrong:.1f}, dpsql by {ours:.1f}", flush=True)
    RESULTS.write_text(json.dumps(kept))
    figures = Figures()
    figures.at_least("peers, census, 95% intervals hold, from below", rate, 0.93)
    figures.at_most("peers, census, 95% intervals hold, from above", rate, 0.97)
    told = [each for each in kept["others"] if "error" in each]
    if told:
        rows = crossing([each["rows"] for each in told], [each["error"] for each in told], ours)
        print(f"dpsql is ahead of {options.model} from {rows:,.0f} rows")
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
