"""Figures of counting raw rows: CPU against the plain GROUP BYs of the same views, best of three, and memory.

    python -m benchmarks.scale.measure [--facts N] [BOUNDING ..]

Counting is everything between open tables and exact integers. The whole publish is measured from its plan on: counting,
real noise, estimates, digests for the ledger, the file and the ledger's commit. Every measurement is a process of its
own, so that memory is its own too; rounds take turns, so that other work on the machine falls on all alike.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import duckdb

from benchmarks.figures import Figures
from benchmarks.scale.star import PLAIN, make_star, write_catalog
from dpsql.api import publish
from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker
from dpsql.central.bounding import OpenSource, draw_release
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.plan import plan_release
from dpsql.engines.registry import open_star
from dpsql.noise import ZeroNoise
from dpsql.progress import Stage

TO_REACH = {"row": 1.8, "weight": 2.6, "truncate": 4.0, "auto": 6.0, "delta": 8.0}
"""CPU of counting over that of the plain statements; `auto`, and `delta`, the same with a delta, are aims."""

WHOLE = 1.5
"""CPU of a whole publish after its plan over that of counting."""

RUNS = 3


class Cost(NamedTuple):
    """What one process took.

    Args:
        cpu: processor seconds of the part that is measured.
        megabytes: the largest resident memory of the whole process.
    """

    cpu: float
    megabytes: float


def plain(folder: Path) -> float:
    """Processor seconds of the plain statements."""
    with duckdb.connect() as db:
        for table in ("sales", "customer", "product"):
            db.execute(f"CREATE VIEW {table} AS FROM '{folder / table}.parquet'")
        start = time.process_time()
        for statement in PLAIN:
            db.execute(statement).fetchall()
        return time.process_time() - start


def counting(folder: Path, bounding: str) -> float:
    """Processor seconds of counting the star under a bound."""
    return count(write_catalog(folder, bounding))


def count(file: Path) -> float:
    """Processor seconds from open tables to exact integers.

    Args:
        file: a catalog.
    """
    catalog = load_catalog(file)
    raw = open_star(catalog)
    try:
        plan = plan_release(catalog, axis_maker(catalog, raw))
        start = time.process_time()
        prepare_tables(catalog, raw, plan)
        draw_release(OpenSource(catalog, raw, plan, ZeroNoise(), bytes(32)), lambda step: None)
        return time.process_time() - start
    finally:
        raw.close()


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


def measured(folder: Path, what: str) -> Cost:
    """One process."""
    command = [sys.executable, "-m", "benchmarks.scale.measure", "--one", what, "--folder", str(folder)]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Cost(*json.loads(printed))


def one(folder: Path, what: str) -> float:
    """Processor seconds of one thing in this process."""
    if what == "plain":
        return plain(folder)
    step, bounding = what.split()
    return {"counting": counting, "publishing": publishing}[step](folder, bounding)


def main() -> int:
    """Print the figures, or measure one thing in this process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("bounding", nargs="*", default=list(TO_REACH), help="row weight truncate auto delta")
    parser.add_argument("--facts", type=int, default=10_000_000)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        cpu = one(given.folder, given.one)
        print(json.dumps([cpu, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024]))
        return 0
    figures = Figures()
    with tempfile.TemporaryDirectory() as name:
        make_star(Path(name), given.facts)
        steps = [f"{step} {bounding}" for bounding in given.bounding for step in ("counting", "publishing")]
        rounds = [{what: measured(Path(name), what) for what in ("plain", *steps)} for _ in range(given.runs)]
    least = {what: min(each[what] for each in rounds) for what in rounds[0]}
    largest = {what: max(each[what].megabytes for each in rounds) for what in rounds[0]}
    print(
        f"plain GROUP BYs of {given.facts:,} facts: {least['plain'].cpu:.2f} s, {largest['plain']:.0f} MB",
        flush=True,
    )
    for bounding in given.bounding:
        cost, whole = least[f"counting {bounding}"].cpu, least[f"publishing {bounding}"].cpu
        figures.at_most(
            f"counting by {bounding}, CPU over the plain GROUP BYs",
            cost / least["plain"].cpu,
            TO_REACH[bounding],
        )
        figures.table(f"publishing by {bounding} after the plan, CPU over counting", whole / cost)
        most = max(largest[f"counting {bounding}"], largest[f"publishing {bounding}"])
        figures.at_most(f"publishing by {bounding}, resident MB", most, 2048)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
