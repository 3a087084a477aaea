"""Damaged input of every kind that dpsql reads: typed errors only, each piece within a second of CPU.

The generators are those of `tests.property.fuzz`, of which the default suite reads a few. Each kind is read in a
process of its own, so that a reader that dies is counted and not followed. Hostile releases have a module of their own.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

from benchmarks.figures import Figures, main
from dpsql.executor.engine import ReleaseEngine
from dpsql.release import open_release
from tests.property.fuzz import KINDS, Outcome, run
from tests.property.test_sql_mutants import run_mutants
from tests.release_fixture import make_rows, write_fixture

COUNTS = {
    "catalogs": 5000, "collection plans": 10_000, "reports": 10_000, "JSON reports": 10_000, "CSV sources": 400,
    "Parquet sources": 1000,
}  # fmt: skip
STATEMENTS = 20_000


def pieces(name: str, seed: int, count: int) -> Outcome:
    """Read pieces of one kind."""
    return run(KINDS[name], seed, count)


def statements(seed: int, count: int) -> Outcome:
    """Ask damaged statements; one that ends in anything but an answer or a typed line stops them."""
    with tempfile.TemporaryDirectory(prefix="dpsql-fuzz-") as folder:
        answerer = ReleaseEngine(
            open_release(write_fixture(Path(folder) / "f.dpsql", make_rows(sales=100), 1.0))
        )
        try:
            ends = run_mutants(answerer, seed, count)
        except AssertionError as fault:
            return Outcome(Counter(fault=1), [str(fault)], 0.0)
        finally:
            answerer.release.close()
    return Outcome(Counter(read=ends["answered"], refused=ends["refused"]), [], 0.0)


def apart(work: Callable[..., Outcome], *given: object) -> Outcome:
    """Do some work in a process of its own."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        try:
            return pool.submit(work, *given).result()
        except BrokenProcessPool:
            return Outcome(Counter(died=1), ["the process died"], 0.0)


def measure(seed: int = 1) -> int:
    """Print the figures; the exit code."""
    figures = Figures()
    for name, count in COUNTS.items():
        found = apart(pieces, name, seed, count)
        told(figures, name, count, found)
        figures.table(f"damaged inputs: CPU seconds of the slowest, {name}", found.slowest)
        if name == "reports":
            figures.at_most("malformed reports that were counted", found.ends["read"], 0)
    told(figures, "SQL statements", STATEMENTS, apart(statements, seed, STATEMENTS))
    return figures.finish()


def told(figures: Figures, name: str, count: int, found: Outcome) -> None:
    """How many were read, and how many of them ended in a fault."""
    ends = found.ends
    print(f"{name}: {ends['read']} read, {ends['refused']} refused")
    print(*found.faults, sep="\n", end="\n" * bool(found.faults))
    figures.table(f"damaged {name}, of {count}", ends.total())
    wrong = ends.total() - ends["read"] - ends["refused"]
    figures.at_most("damaged inputs that end in anything but an answer or a typed line", wrong, 0, name)


if __name__ == "__main__":
    main(measure)
