"""Figures of counting raw rows: CPU against the plain GROUP BYs of the same views, best of three, and memory.

Counting is everything between open tables and exact integers. The whole publish is measured from its plan on: counting,
real noise, estimates, digests for the ledger, the file and the ledger's commit. Every measurement is a process of its
own, so that memory is its own too; rounds take turns, so that other work on the machine falls on all alike.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import duckdb

from benchmarks.figures import Figures, main
from benchmarks.processes import alone, cpu_of, peak_mib
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
    """What one thing takes in this process."""
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
    rounds = [
        {what: Cost(*alone("benchmarks.scale.measure", "--one", folder, what)) for what in steps}
        for _ in range(runs)
    ]
    least = {what: min(each[what].cpu for each in rounds) for what in steps}
    largest = {what: max(each[what].megabytes for each in rounds) for what in steps}
    floor = least["plain"]
    print(f"plain GROUP BYs of {facts:,} facts: {floor:.2f} s, {largest['plain']:.0f} MB", flush=True)
    for bound in bounding:
        count, whole = (f"{step} {bound}" for step in ("counting", "publishing"))
        title = f"counting by {bound}, CPU over the plain GROUP BYs"
        figures.at_most(title, least[count] / floor, TO_REACH[bound])
        figures.table(f"publishing by {bound} after the plan, CPU over counting", least[whole] / least[count])
        most = max(largest[count], largest[whole])
        figures.at_most(f"publishing by {bound}, resident MB", most, 2048)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(Path(sys.argv[2]), sys.argv[3])))
    else:
        main(measure)
