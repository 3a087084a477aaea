"""Is the rule of `dpsql plan` right that says where MST would do better than a cube?

    python -m benchmarks.peers.small [TABLE]...

The rule was made on the census of benchmarks/results/peers.md, on diamonds and planes; flights, players, employees and
workers were committed before any of them was measured. At four times its rows it was wrong on players, most of whose
cells are empty, so the plan now says two numbers, and fielding and teams were added. Of each table as many rows are
drawn, with replacement, as a quarter of the first number and all of the second: MST must err less with the few, the
cube with the many. Both at (1, 1e-9). Questions are those that the cube is designed for: single values of names, all
ranges of ordered columns, on every pair.

**Privacy**: public tables of packages.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable, Mapping
from itertools import combinations
from math import pi, sqrt
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

import dpsql
from benchmarks.central.text_cubes import DEVELOPMENT, UNSEEN, TextTable, packaged
from benchmarks.central.unseen_lines import lahman
from benchmarks.figures import Figures
from benchmarks.peers.adult import DELTA, EPSILON, JOBS, SEED, fitted
from dpsql.curator.dry_release import MOSTLY_EMPTY

SECONDS = 1200
TIMES = (1 / 4, MOSTLY_EMPTY)


class OrderedColumn(NamedTuple):
    """A column of whole numbers, cut into bins of one width."""

    lower: int
    upper: int
    width: int


class MixedTable(NamedTuple):
    """A table, its columns of names and its ordered ones."""

    read: Callable[[], object]
    names: tuple[str, ...]
    ordered: Mapping[str, OrderedColumn]


WORKERS = MixedTable(
    packaged("AER", "CPS1988"),
    ("ethnicity", "smsa", "region", "parttime"),
    {
        "education": OrderedColumn(0, 18, 1),
        "experience": OrderedColumn(-4, 63, 4),
        "wage": OrderedColumn(0, 4000, 100),
    },
)
"""28,155 workers; wages above 4,000 count as 4,000."""

FIELDING = TextTable(lahman("Fielding"), "teamID lgID POS")


class CodedTable(NamedTuple):
    """Leaves of each row by column, the number of leaves, and the catalog's line of each column."""

    leaves: Mapping[str, np.ndarray]
    sizes: Mapping[str, int]
    lines: Mapping[str, str]


def coded(table: MixedTable) -> CodedTable:
    """A table as leaves; NULL of a name is a value of its own."""
    leaves, sizes, lines = {}, {}, {}
    with duckdb.connect() as db:
        db.register("raw", table.read())
        for name in table.names:
            texts = [
                row[0]
                for row in db.execute(f"SELECT coalesce(\"{name}\"::VARCHAR, '(none)') FROM raw").fetchall()
            ]
            values = sorted(set(texts))
            place = {value: i for i, value in enumerate(values)}
            leaves[name], sizes[name] = np.array([place[text] for text in texts]), len(values)
            lines[name] = f"{{type: string, categories: {json.dumps(values)}, out_of_domain: drop}}"
        for name, (lower, upper, width) in table.ordered.items():
            numbers = db.execute(f'SELECT CAST("{name}" AS BIGINT) AS x FROM raw').fetchnumpy()["x"]
            leaves[name] = (np.clip(numbers, lower, upper) - lower) // width
            sizes[name] = (upper - lower) // width + 1
            lines[name] = (
                f"{{type: int, lower: {lower}, upper: {upper}, cuts: {{width: {width}}}, out_of_domain: drop}}"
            )
    return CodedTable(leaves, sizes, lines)


class CubeErrors(NamedTuple):
    """What a plan says of a cube: the mean absolute error of its pairs, and from how many rows on it beats MST."""

    error: float
    rows: int


def cube_errors(table: CodedTable) -> CubeErrors:
    """By a catalog of the table's columns."""
    columns = ", ".join(f"{name}: {line}" for name, line in table.lines.items())
    axes = ", ".join(f"t.{name}" for name in table.lines)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "t.yaml"
        path.write_text(
            f"dpsql: 1\nname: t\nsource: {{kind: parquet, root: ., tables: {{t: t.parquet}}}}\n"
            f"privacy: {{lineage: t, cap: 9, unit: row, epsilon: {EPSILON}, delta: {DELTA}}}\n"
            f"tables: {{t: {{role: fact, columns: {{{columns}}}}}}}\n"
            f"views: {{all: {{of: t, axes: [{axes}], ways: 2}}}}\n"
        )
        report = dpsql.plan(path)
    pairs = [statistic.typical for statistic in report.statistics if len(statistic.axes) == 2]
    return CubeErrors(float(np.mean(pairs)) * sqrt(2 / pi), report.cubes[0].rows)


def all_ranges(n: int) -> np.ndarray:
    """Every range of leaves as a row of ones."""
    low, high = np.triu_indices(n + 1, 1)
    leaf = np.arange(n)
    return ((leaf >= low[:, None]) & (leaf < high[:, None])).astype(float)


def synthetic_error(name: str, table: CodedTable, ordered: Mapping[str, OrderedColumn], rows: int) -> float:
    """Mean absolute error of MST over so many rows, from its file where it has one."""
    file = JOBS / f"small-{name}-{rows}.json"
    people = len(next(iter(table.leaves.values())))
    picked = np.random.default_rng((SEED, rows)).integers(0, people, rows)
    leaves = {column: values[picked] for column, values in table.leaves.items()}
    if not file.exists():
        JOBS.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(fitted(leaves, table.sizes, "mst", SECONDS)))
    kept = json.loads(file.read_text())
    if "failed" in kept:
        raise SystemExit(f"{name}: {kept['failed']}")
    asked = {c: all_ranges(n) if c in ordered else np.eye(n) for c, n in table.sizes.items()}
    errors = []
    for (a, b), counts in zip(combinations(table.sizes, 2), kept["tables"], strict=True):
        sides = [np.arange(table.sizes[column] + 1) for column in (a, b)]
        wrong = np.array(counts) - np.histogram2d(leaves[a], leaves[b], bins=sides)[0]
        errors.append(np.abs(asked[a] @ wrong @ asked[b].T).mean())
    return float(np.mean(errors))


def main() -> int:
    """Print the figures."""
    figures = Figures()
    texts = {**UNSEEN, "fielding": FIELDING, "teams": DEVELOPMENT["teams"]}
    tables = {name: MixedTable(table.read, tuple(table.columns.split()), {}) for name, table in texts.items()}
    for name, mixed in {**tables, "workers": WORKERS}.items():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        table = coded(mixed)
        ours = cube_errors(table)
        few, many = (int(ours.rows * times) for times in TIMES)
        for rows in (few, many):
            ratio = synthetic_error(name, table, mixed.ordered, rows) / ours.error
            where = f"{name}, {rows:,} rows where the rule says {ours.rows:,}: MST's error over the cube's"
            if rows == few:
                figures.at_most("MST's error over the cube's below the plan's rows", ratio, 1.0, where)
            else:
                figures.at_least("MST's error over the cube's above the plan's rows", ratio, 1.0, where)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
