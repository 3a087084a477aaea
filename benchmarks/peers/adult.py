"""Two-way ranges of the Adult census: a cube of dpsql beside synthetic rows, both at (1, 1e-9), a person a row.

Questions are random rectangles on every pair of eight columns. Synthetic rows err by what their model leaves out, in
proportion to the rows; a release errs by noise, which does not know how many rows there are. So the rows are also
drawn again, with replacement, to other sizes. What a fit or a release came to is kept in build/peers/jobs, so that a
run can be stopped and goes on.

**Privacy**: public data; without `DPSQL_DATA` nothing is measured.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np

import dpsql
from benchmarks.central.cubes import one_table
from benchmarks.columns import write_columns
from benchmarks.figures import Figures, main
from benchmarks.peers.environments import BUILD, commit, once, prepare, python_of

EPSILON, DELTA, SEED = 1.0, 1e-9, 1994
EACH, RUNS = 12, 3
"""Rectangles a pair; releases of dpsql at each size."""
SIZES = (10_000, 0, 200_000)
"""Rows; 0 is the census itself."""
RESULTS = BUILD / "adult.json"


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
            return f"{{type: string, categories: [{', '.join(map(str, self.starts))}]}}"
        cuts = ", ".join(map(str, self.starts[1:]))
        return f"{{type: int, lower: {self.starts[0]}, upper: {self.upper}, cuts: [{cuts}]}}"

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


def released(folder: Path, rows: Mapping[str, np.ndarray], asked: Sequence[Rectangle]) -> np.ndarray:
    """Answers of a fresh release and both ends of their intervals, one row each."""
    write_columns(folder, "person", rows)
    catalog = one_table(folder, "person", {column.name: column.yaml for column in COLUMNS}, delta=str(DELTA))
    dpsql.publish(catalog, folder / "adult.dpsql")
    values = []
    for each in asked:
        result = dpsql.query(each.sql, release=folder / "adult.dpsql")
        ((low,),), ((high,),) = result.interval_rows(0.95)
        values.append([result.scalar(), low, high])
    return np.array(values, dtype=float)


def ourselves(rows: Mapping[str, np.ndarray], asked: Sequence[Rectangle], size: int) -> dict[str, Any]:
    """dpsql's mean absolute error and how often its intervals hold."""

    def make() -> dict[str, Any]:
        tables, errors, held, start = pair_tables(leaves_of(rows)), [], [], time.process_time()
        truth = np.array([each.of(tables) for each in asked])
        for _ in range(RUNS):
            with tempfile.TemporaryDirectory() as name:
                values, low, high = released(Path(name), rows, asked).T
            errors.append(float(np.abs(values - truth).mean()))
            held.append(float(((low <= truth) & (truth <= high)).mean()))
        return {"errors": errors, "held": held, "cpu": (time.process_time() - start) / RUNS}

    return once(f"census-dpsql-{size}", make)


def synthetic(
    rows: Mapping[str, np.ndarray], asked: Sequence[Rectangle], name: str, size: int, seconds: int
) -> dict[str, Any]:
    """What a model's rows err by."""

    def make() -> dict[str, Any]:
        leaves = leaves_of(rows)
        found = fitted(leaves, {column.name: len(column.starts) for column in COLUMNS}, name, seconds)
        if "tables" in found:
            exact, tables = pair_tables(leaves), found.pop("tables")
            found["error"] = float(np.mean([abs(each.of(tables) - each.of(exact)) for each in asked]))
        return found

    return once(f"census-{name}-{size}", make)


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
        rows = write_columns(Path(folder), "rows.csv", leaves)
        job = {
            "rows": str(rows), "epsilon": EPSILON, "delta": DELTA, "model": name,
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


def measure(figures: Figures, *, models: Sequence[str] = tuple(MODELS), seconds: int = 2400) -> None:
    """Compare with the models, of which a fit may take so much CPU; keep all of it for the page."""
    if "DPSQL_DATA" not in os.environ:
        print("no DPSQL_DATA: nothing is compared on the census")
        return
    columns = ", ".join(column.name for column in COLUMNS)
    with duckdb.connect() as db:
        file = f"{os.environ['DPSQL_DATA']}/adult/adult_train.parquet"
        census = db.execute(f"SELECT {columns} FROM '{file}'").fetchnumpy()
    asked, sizes = rectangles(), []
    for size in SIZES:
        rows = drawn(census, size)
        found: dict[str, Any] = {"rows": len(rows["age"]), "dpsql": ourselves(rows, asked, size)}
        found |= {name: synthetic(rows, asked, name, size, seconds) for name in models}
        sizes.append(found)
        shown = (f"{name} {found[name].get('error', found[name].get('failed'))}" for name in models)
        error = np.mean(found["dpsql"]["errors"])
        print(f"{found['rows']} rows: dpsql errs by {error:.1f};", *shown, flush=True)
    compared = {"commit": commit(), "sizes": sizes}
    RESULTS.write_text(json.dumps(compared))
    for name in models:
        print(told(compared, name))
    rate = float(np.mean([row["dpsql"]["held"] for row in sizes]))
    figures.within("peers, census, coverage", rate, 0.93, 0.97)


if __name__ == "__main__":
    main(measure)
