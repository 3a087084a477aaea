"""Figures of a big release: a view of 2^24 node combinations, its file, and one range of it.

Two axes of 3,072 leaves have 4,096 nodes each. Publishing, opening and asking are processes of their own, so that
memory is their own too. The floor of a range is the plain sum over the same stored numbers, by row number, in DuckDB
alone. Then an axis of 2^20 leaves, minutes of two years, under each law: its question is compared with one on 1,000.
"""

from __future__ import annotations

import json
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks.figures import Figures, main
from benchmarks.processes import alone, cpu_of, peak_mib
from dpsql.executor.engine import ReleaseEngine
from dpsql.release import Release, open_release
from dpsql.release.read import READING
from dpsql.tree import cover
from tests import long_axis
from tests.releases import published, seeded, write_catalog

LEAVES, ROWS, RANGES = 3072, 1_000_000, 41
MOST_TIMES = 4.0

CATALOG = f"""
privacy: {{lineage: big, cap: 1, unit: row, epsilon: 1}}
tables:
  sales: {{role: fact, columns: {{
    x: {{type: int, lower: 0, upper: {LEAVES - 1}, out_of_domain: drop}},
    y: {{type: int, lower: 0, upper: {LEAVES - 1}, out_of_domain: drop}}}}}}
views:
  plane: {{of: sales, axes: [sales.x, sales.y], measures: [count], mechanism: identity}}
"""


def publish(folder: Path) -> dict[str, float]:
    """Make the star and its release; CPU seconds and MB."""
    column = f"CAST(hash(i * 2 + {{}}) % {LEAVES} AS INTEGER)"
    rows = f"SELECT {column.format(0)} AS x, {column.format(1)} AS y FROM range({ROWS}) AS t(i)"
    start = time.process_time()
    published(write_catalog(folder, CATALOG, {"sales": rows}), seeded(1), "big").release.close()
    return {"cpu": time.process_time() - start, "memory": peak_mib()}


def asked(folder: Path) -> dict[str, float]:
    """The processor time of ranges beside their floor."""
    release = open_release(folder / "big.dpsql", insecure=True)
    answerer, chance = ReleaseEngine(release), np.random.default_rng(3)
    plain = duckdb.connect(str(release.path), read_only=True, config=READING)
    answerer.query("SELECT COUNT(*) FROM sales WHERE x < 5 AND y < 5")  # trees and axes are read once
    ranges, floors = [], []
    for _ in range(RANGES):
        low, high = sorted(chance.choice(LEAVES, 2, replace=False).tolist())
        sql = f"SELECT COUNT(*) FROM sales WHERE x BETWEEN {low} AND {high}"
        ids = _numbers(release, low, high + 1)
        ranges.append(cpu_of(partial(answerer.query, sql)))
        floors.append(cpu_of(partial(_floor, plain, ids)))
    return {"range": float(np.median(ranges)), "floor": float(np.median(floors))}


def _floor(plain: duckdb.DuckDBPyConnection, ids: list[int]) -> list[Any]:
    """The sum of some stored numbers."""
    listed = "(SELECT unnest(?::BIGINT[]) AS n) AS a"
    statement = f"SELECT SUM(estimate) FROM node_combination_0 AS c, {listed} WHERE c.rowid = a.n"
    return plain.execute(statement, [ids]).fetchall()


def _numbers(release: Release, low: int, high: int) -> list[int]:
    """Row numbers of the nodes of a range of the first axis, all of the second."""
    nodes = cover(release.tree(0), [low], [high])[1]
    return [int(node) * release.tree(1).size for node in nodes]


STEPS = {"publish": publish, "ask": asked}


def measure(figures: Figures, folder: Path) -> None:
    """Publish and ask, each in a process of its own."""
    made, found = (alone("benchmarks.scale.big", step, folder) for step in STEPS)
    print(f"told   big release: published in {made['cpu']:.0f} CPU s, {made['memory']:.0f} MB at most")
    taken, floor = (1e3 * found[name] for name in ("range", "floor"))
    print(f"told   big release: a range takes {taken:.1f} CPU ms, its floor {floor:.1f}")
    figures.at_most("big release: a range over its floor", taken / floor, MOST_TIMES)
    for delta in ("0", "1e-6"):
        long, short = (long_axis.measured(leaves, delta, "auto") for leaves in (1 << 20, 1000))
        figures.at_most(f"2^20 leaves, delta {delta}: resident MB", long.resident, 1024)
        over = long.question / short.question
        figures.at_most(f"2^20 leaves, delta {delta}: a question over 1,000's", over, 2)


if __name__ == "__main__":
    if sys.argv[1:2] and sys.argv[1] in STEPS:
        print(json.dumps(STEPS[sys.argv[1]](Path(sys.argv[2]))))
    else:
        main(measure)
