"""How fast answers are, on the bundled shop and on a release of a million nodes.

What an answer costs is measured from SQL text to rows beside its floor (`repeated`), then over the wire (`wire`), with
new constants in every statement so that no answer is one that was kept.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import cycle
from pathlib import Path

import numpy as np

from benchmarks.figures import Figures, main
from benchmarks.processes import at_once
from benchmarks.speed import repeated, wire
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ExactNoise, os_entropy
from dpsql.release import open_release
from tests.releases import write_catalog

MILLION = """
dpsql: 1
name: million
source: {kind: parquet, root: "ROOT", tables: {facts: facts.parquet, person: person.parquet}}
privacy: {lineage: million, cap: 10, unit: row, epsilon: 1.0}
tables:
  person: {role: dimension, key: id, private: true, columns: {y: {type: int, lower: 0, upper: 747}}}
  facts: {role: fact, foreign_keys: {id: {references: person, on_missing: drop}}, columns: {
    x: {type: int, lower: 0, upper: 747}, amount: {type: int, lower: 0, upper: 100, measure: true}}}
views:
  grid: {of: facts, axes: [facts.x, person.y], measures: [count]}
"""


def crowd(answerer: ReleaseEngine, clients: int = 16, each: int = 200) -> tuple[float, float]:
    """(queries per second, 99th percentile in ms) of clients that ask at once."""
    taken: list[float] = []
    popular = [f"SELECT COUNT(*) FROM sales WHERE sold_on >= DATE '2025-{m:02d}-01'" for m in range(1, 13)]

    def client(number: int) -> None:
        for _, text in zip(range(each), cycle(popular[number % 12 :] + popular[: number % 12]), strict=False):
            start = time.perf_counter()
            answerer.query(text)
            taken.append(time.perf_counter() - start)

    seconds = at_once(clients, client)
    return len(taken) / seconds, float(np.percentile(taken, 99) * 1e3)


def shop(folder: Path) -> ReleaseEngine:
    """The bundled shop, published into a folder of its own."""
    (folder / "retail.yaml").write_text(Path("catalog/retail.yaml").read_text())
    return publish(folder / "retail.yaml")


def million(folder: Path) -> ReleaseEngine:
    """A release of one view with 1,000 x 1,000 nodes."""
    return publish(write_catalog(folder / "million", MILLION, {
        "person": "SELECT i AS id, i % 748 AS y FROM range(5000) t(i)",
        "facts": "SELECT i % 5000 AS id, i * 7 % 748 AS x, i % 100 AS amount FROM range(50000) t(i)",
    }))  # fmt: skip


def board(folder: Path) -> ReleaseEngine:
    """A release of 200 days x 60 ages: what a dashboard shows."""
    return publish(write_catalog(folder / "board", repeated.BOARD, {
        "person": "SELECT i AS id, 20 + i % 60 AS age FROM range(5000) t(i)",
        "visits": "SELECT i % 5000 AS id, i * 7 % 200 AS day FROM range(50000) t(i)",
    }))  # fmt: skip


def publish(catalog: Path) -> ReleaseEngine:
    """Publish a catalog beside itself and open the release; its people are others than those of any other here."""
    target = catalog.with_suffix(".dpsql")
    publish_release(
        load_catalog(catalog, catalog.with_suffix(".ledger")),
        target,
        noise=ExactNoise(os_entropy()),
        key=os_entropy()(32),
    )
    return ReleaseEngine(open_release(target))


RUNS = 5


def cpu_of(command: Sequence[str]) -> float:
    """Seconds of CPU of a process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def cold(release: Path, figures: Figures) -> None:
    """The figures: each command and its floor in turns, once to warm up.

    Args:
        release: that is asked for one count.
        figures: gain them.
    """
    commands = {
        "libraries": [sys.executable, "-c", "import duckdb, numpy, sqlglot"],
        "query": [sys.executable, "-m", "dpsql", "query", str(release), "SELECT COUNT(*) FROM sales"],
    }
    rounds = [{name: cpu_of(command) for name, command in commands.items()} for _ in range(RUNS + 1)][1:]
    query, floor = (float(np.median([costs[name] for costs in rounds])) for name in ("query", "libraries"))
    print(f"query {query:.3f} s of CPU, libraries {floor:.3f}")
    figures.at_most("a cold `dpsql query` over `import duckdb, numpy, sqlglot`", query / floor, 2.5)


def measure(figures: Figures, folder: Path) -> None:
    large = million(folder)
    repeated.measure("million", large, figures, small=False)
    repeated.measure("board", board(folder), figures, small=True)
    wire.measure(large.release.path, figures)
    answerer = shop(folder)
    cold(answerer.release.path, figures)
    rate, tail = crowd(answerer)
    figures.at_least("16 clients, queries per second", rate, 500.0)
    figures.at_most("16 clients, p99 ms", tail, 100.0)


if __name__ == "__main__":
    main(measure)
