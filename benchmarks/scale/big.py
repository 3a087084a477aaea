"""Figures of a big release: a view of 2^24 node combinations, its file, and one range of it.

    python -m benchmarks.scale.big

Two axes of 3,072 leaves have 4,096 nodes each. Publishing, opening and asking are processes of their own, so that
memory is their own too. The floor of a range is the plain sum over the same stored numbers, by row number, in DuckDB
alone. Then an axis of 2^20 leaves, minutes of two years, under each law: its question is compared with one on 1,000.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from benchmarks.figures import Figures
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.executor.engine import ReleaseEngine
from dpsql.executor.recombine import node_list
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.release import Release, open_release
from dpsql.release.read import READING
from tests import long_axis
from tests.releases import write_tables

LEAVES, ROWS, RANGES = 3072, 1_000_000, 41
MOST_TIMES = 4.0

CATALOG = f"""
dpsql: 1
name: big
source: {{kind: parquet, root: ., tables: {{sales: sales.parquet}}}}
privacy: {{lineage: big, cap: 1, unit: row, epsilon: 1}}
tables:
  sales: {{role: fact, columns: {{
    x: {{type: int, lower: 0, upper: {LEAVES - 1}, out_of_domain: drop}},
    y: {{type: int, lower: 0, upper: {LEAVES - 1}, out_of_domain: drop}}}}}}
views:
  plane: {{of: sales, axes: [sales.x, sales.y], measures: [count], mechanism: identity}}
"""


def publish(folder: Path) -> None:
    """Make the star and its release."""
    column = f"CAST(hash(i * 2 + {{}}) % {LEAVES} AS INTEGER)"
    rows = f"SELECT {column.format(0)} AS x, {column.format(1)} AS y FROM range({ROWS}) AS t(i)"
    write_tables(folder, {"sales": rows})
    (folder / "big.yaml").write_text(CATALOG, encoding="utf-8")
    noise = ExactNoise(insecure_test_entropy(1))
    publish_release(load_catalog(folder / "big.yaml"), folder / "big.dpsql", noise=noise, key=bytes(32))


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
        ranges.append(_cpu(partial(answerer.query, sql)))
        floors.append(_cpu(partial(_floor, plain, ids)))
    return {"range": float(np.median(ranges)), "floor": float(np.median(floors))}


def _floor(plain: duckdb.DuckDBPyConnection, ids: list[int]) -> list[Any]:
    """The sum of some stored numbers."""
    listed = "(SELECT unnest(?::BIGINT[]) AS n) AS a"
    statement = f"SELECT SUM(estimate) FROM node_combination_0 AS c, {listed} WHERE c.rowid = a.n"
    return plain.execute(statement, [ids]).fetchall()


def _numbers(release: Release, low: int, high: int) -> list[int]:
    """Row numbers of the nodes of a range of the first axis, all of the second."""
    mask = ((np.arange(LEAVES) >= low) & (np.arange(LEAVES) < high)).astype(np.float64)[None, :]
    nodes = node_list(mask, release.tree(0)).node
    return [int(node) * release.tree(1).size for node in nodes]


def _cpu(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return time.process_time() - start


def _resident() -> float:
    """The process's largest resident memory so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def _child(step: str, folder: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.scale.big", "--step", step, "--folder", str(folder)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> int:
    """Print all figures; 1 if any is short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--step", choices=("publish", "ask"))
    parser.add_argument("--folder", type=Path)
    given = parser.parse_args()
    if given.step == "publish":
        start = time.process_time()
        publish(given.folder)
        print(json.dumps({"cpu": time.process_time() - start, "memory": _resident()}))
        return 0
    if given.step == "ask":
        print(json.dumps(asked(given.folder)))
        return 0
    figures = Figures()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = _child("publish", folder)
        print(f"told   big release: published in {made['cpu']:.0f} CPU s, {made['memory']:.0f} MB at most")
        found = _child("ask", folder)
        taken, floor = (1e3 * found[name] for name in ("range", "floor"))
        print(f"told   big release: a range takes {taken:.1f} CPU ms, its floor {floor:.1f}")
        figures.at_most("big release: a range over its floor", taken / floor, MOST_TIMES)
    for delta in ("0", "1e-6"):
        long, short = (long_axis.measured(leaves, delta, "auto") for leaves in (1 << 20, 1000))
        figures.at_most(f"2^20 leaves, delta {delta}: resident MB", long.resident, 1024)
        figures.at_most(
            f"2^20 leaves, delta {delta}: a question over 1,000's", long.question / short.question, 2
        )
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
