"""Is the rule of `dpsql plan` right that says where MST would do better than a cube?

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
import tempfile
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import pi, sqrt
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

import dpsql
from benchmarks.central.cubes import one_table
from benchmarks.central.datasets import lahman, packaged
from benchmarks.central.text_cubes import UNSEEN, TextTable
from benchmarks.figures import Figures, main
from benchmarks.local.simulated import range_masks
from benchmarks.peers.adult import DELTA, SEED, fitted
from benchmarks.peers.environments import once
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
TEAMS = TextTable(lahman("Teams"), "lgID franchID divID park WSWin")


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
            texts = db.execute(f"SELECT coalesce(\"{name}\"::VARCHAR, '(none)') FROM raw").fetchall()
            values = sorted({text for (text,) in texts})
            place = {value: i for i, value in enumerate(values)}
            leaves[name], sizes[name] = np.array([place[text] for (text,) in texts]), len(values)
            lines[name] = f"{{type: string, categories: {json.dumps(values)}, out_of_domain: drop}}"
        for name, (lower, upper, width) in table.ordered.items():
            numbers = db.execute(f'SELECT CAST("{name}" AS BIGINT) AS x FROM raw').fetchnumpy()["x"]
            leaves[name] = (np.clip(numbers, lower, upper) - lower) // width
            sizes[name] = (upper - lower) // width + 1
            cut = f"lower: {lower}, upper: {upper}, cuts: {{width: {width}}}"
            lines[name] = f"{{type: int, {cut}, out_of_domain: drop}}"
    return CodedTable(leaves, sizes, lines)


def cube_errors(table: CodedTable) -> tuple[float, int]:
    """What a plan says of a cube: the mean absolute error of its pairs, and from how many rows on it beats MST."""
    with tempfile.TemporaryDirectory() as folder:
        report = dpsql.plan(one_table(Path(folder), "t", table.lines, delta=str(DELTA)))
    pairs = [statistic.typical for statistic in report.statistics if len(statistic.axes) == 2]
    return float(np.mean(pairs)) * sqrt(2 / pi), report.cubes[0].rows


def synthetic_error(name: str, table: CodedTable, ordered: Mapping[str, OrderedColumn], rows: int) -> float:
    """Mean absolute error of MST over so many rows."""
    people = len(next(iter(table.leaves.values())))
    picked = np.random.default_rng((SEED, rows)).integers(0, people, rows)
    leaves = {column: values[picked] for column, values in table.leaves.items()}
    found = once(f"small-{name}-{rows}", lambda: fitted(leaves, table.sizes, "mst", SECONDS))
    if "failed" in found:
        raise SystemExit(f"{name}: {found['failed']}")
    asked = {c: range_masks(n) if c in ordered else np.eye(n) for c, n in table.sizes.items()}
    errors = []
    for (a, b), counts in zip(combinations(table.sizes, 2), found["tables"], strict=True):
        sides = [np.arange(table.sizes[column] + 1) for column in (a, b)]
        wrong = np.array(counts) - np.histogram2d(leaves[a], leaves[b], bins=sides)[0]
        errors.append(np.abs(asked[a] @ wrong @ asked[b].T).mean())
    return float(np.mean(errors))


def measure(figures: Figures, tables: Sequence[str] = ()) -> None:
    """Compare on the named tables, or all."""
    texts = {**UNSEEN, "fielding": FIELDING, "teams": TEAMS}
    mixed = {name: MixedTable(table.read, tuple(table.columns.split()), {}) for name, table in texts.items()}
    for name, table in {**mixed, "workers": WORKERS}.items():
        if tables and name not in tables:
            continue
        codes = coded(table)
        ours, least = cube_errors(codes)
        few, many = (int(least * times) for times in TIMES)
        for rows, where, judge in ((few, "below", figures.at_most), (many, "above", figures.at_least)):
            ratio = synthetic_error(name, codes, table.ordered, rows) / ours
            cell = f"{name}, {rows:,} rows where the rule says {least:,}: MST's error over the cube's"
            judge(f"MST's error over the cube's {where} the plan's rows", ratio, 1.0, cell)


if __name__ == "__main__":
    main(measure)
