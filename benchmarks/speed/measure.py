"""How fast answers are, on the bundled shop and on a release of a million nodes.

What an answer costs is measured from SQL text to rows beside its floor (`repeated`), then over the wire (`wire`), with
new constants in every statement so that no answer is one that was kept.
"""

from __future__ import annotations

import threading
import time
from itertools import cycle
from pathlib import Path

import numpy as np

from benchmarks.figures import Figures, main
from benchmarks.speed import cold, repeated, wire
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
    lock = threading.Lock()
    popular = [f"SELECT COUNT(*) FROM sales WHERE sold_on >= DATE '2025-{m:02d}-01'" for m in range(1, 13)]

    def client(number: int) -> None:
        own = []
        for _, text in zip(range(each), cycle(popular[number % 12 :] + popular[: number % 12]), strict=False):
            start = time.perf_counter()
            answerer.query(text)
            own.append(time.perf_counter() - start)
        with lock:
            taken.extend(own)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(clients)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(taken) / (time.perf_counter() - start), float(np.percentile(taken, 99) * 1e3)


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


def measure(figures: Figures, folder: Path) -> None:
    """Measure all four."""
    large = million(folder)
    repeated.measure("million", large, figures, small=False)
    repeated.measure("board", board(folder), figures, small=True)
    wire.measure(large.release.path, figures)
    answerer = shop(folder)
    cold.measure(answerer.release.path, figures)
    rate, tail = crowd(answerer)
    figures.at_least("16 clients, queries per second", rate, 500.0)
    figures.at_most("16 clients, p99 ms", tail, 100.0)


if __name__ == "__main__":
    main(measure)
