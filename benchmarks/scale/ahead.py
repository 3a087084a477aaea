"""Figures of what `plan` says ahead of a release: its bytes, and the CPU seconds of drawing, estimating and writing it.

Ten settings from 78 cells to 1e7, each in a process of its own. Seconds are those of a thousand rows, so that counting
takes nothing; bytes those of half a million, which fill the cells. The settings are not those over which the constants
of the plan were measured.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from math import prod
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figures, main
from benchmarks.processes import alone
from dpsql.api import plan, publish
from dpsql.progress import Stage
from tests.releases import write_tables

HEAD = """
dpsql: 1
name: ahead
source: {{kind: parquet, root: "{root}", tables: {{sales: sales.parquet, person: person.parquet}}}}
privacy: {{lineage: ahead, cap: 2, unit: {unit}, epsilon: 1, delta: {delta}}}
tables:
  person: {{role: dimension, key: person_id, private: true}}
  sales: {{role: fact, foreign_keys: {{person_id: person}}{bound}, columns: {{
    amount: {{type: int, lower: 0, upper: 500, measure: true}}{columns}}}}}
views:
"""
COUNT, BOTH = "[count]", "{count: 0.5, sales.amount: 0.5}"
View = tuple[Sequence[int], str]


class Setting(NamedTuple):
    """One catalog.

    Args:
        leaves: of each column.
        views: the columns of each view, and its measures.
        delta: of the catalog.
        bound: of a person's rows; empty where a row is the unit.
    """

    leaves: Sequence[int]
    views: Sequence[View]
    delta: str = "0"
    bound: str = ""

    def write(self, folder: Path, rows: int) -> Path:
        """So many rows, and their catalog."""
        named = ", ".join(f"(hash(i, {k}) % {n})::BIGINT AS c{k}" for k, n in enumerate(self.leaves))
        sales = (
            f"SELECT i % 400 AS person_id, (hash(i) % 501)::BIGINT AS amount, {named} FROM range({rows}) t(i)"
        )
        write_tables(folder, {"sales": sales, "person": "SELECT i AS person_id FROM range(400) t(i)"})
        ends = [f", c{k}: {{type: int, lower: 0, upper: {n - 1}}}" for k, n in enumerate(self.leaves)]
        unit, bound = ("person.person_id", f", max_ids: {self.bound}") if self.bound else ("row", "")
        text = HEAD.format(root=folder, delta=self.delta, columns="".join(ends), unit=unit, bound=bound)
        for v, (axes, measures) in enumerate(self.views):
            listed = ", ".join(f"sales.c{k}" for k in axes)
            text += f"  v{v}: {{of: sales, axes: [{listed}], measures: {measures}}}\n"
        file = folder / "ahead.yaml"
        file.write_text(text)
        return file


def pairs(columns: int, measures: str) -> list[View]:
    """A view for each pair of columns."""
    return [(pair, measures) for pair in combinations(range(columns), 2)]


SETTINGS = {
    "78 cells": Setting([78], [([0], COUNT)]),
    "2,800 cells with sums": Setting([70, 40], [([0, 1], BOTH)]),
    "4.2e5 cells": Setting([700, 600], [([0, 1], COUNT)]),
    "1e7 cells": Setting([3_200, 3_150], [([0, 1], COUNT)]),
    "200 views": Setting(range(6, 26), [*pairs(20, COUNT), *(([k], BOTH) for k in range(10))]),
    "six axes": Setting([7, 9, 6, 8, 5, 10], [(range(6), COUNT)]),
    "an axis of 6e4 leaves": Setting([60_000], [([0], COUNT)]),
    "an axis of 6e5 leaves, delta": Setting([600_000], [([0], COUNT)], "1e-6"),
    "people, delta": Setting([45, 25, 300], [([0, 1], BOTH), ([2], BOTH)], "1e-6", "auto"),
    "people, six views": Setting([45, 25, 13, 80], pairs(4, BOTH), "0", "5"),
}


def one(folder: Path, name: str) -> dict[str, float]:
    """Bytes and CPU seconds of one setting, as `plan` says and as they are."""
    planned = list[float]()

    def note(stage: Stage) -> None:
        if stage.doing == "planned":
            planned.append(time.process_time())

    file, release = SETTINGS[name].write(folder, 1000), folder / "ahead.dpsql"
    report = plan(file)
    publish(file, release, progress=note)
    taken = time.process_time() - planned[0]
    release.unlink()
    SETTINGS[name].write(folder, 500_000)
    publish(file, release, label="dense")
    size = release.stat().st_size
    return {"bytes": report.bytes / size, "seconds": report.seconds / taken, "size": size, "taken": taken}


def measure(figures: Figures, folder: Path) -> None:
    """Each setting in a process of its own."""
    for name in SETTINGS:
        place = folder / name.replace(" ", "_")
        place.mkdir()
        found = alone("benchmarks.scale.ahead", place, name)
        cells = sum(prod(SETTINGS[name].leaves[k] for k in axes) for axes, _ in SETTINGS[name].views)
        print(f"told   {name}: {cells:,} cells, {found['size']:,} bytes, {found['taken']:.1f} s", flush=True)
        for what in ("bytes", "seconds"):
            figures.within(f"plan: {what} over what publish took", found[what], 1 / 1.5, 1.5, name)


if __name__ == "__main__":
    if sys.argv[2:]:
        print(json.dumps(one(Path(sys.argv[1]), sys.argv[2])))
    else:
        main(measure)
