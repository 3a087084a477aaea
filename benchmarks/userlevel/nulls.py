"""Rows where a nullable measure is known, under `max_ids: auto`.

3,000 people with geometric numbers of rows, 15% of the values NULL. Intervals at 95% of the whole table, by release.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.columns import write_columns
from benchmarks.coverage import LEVEL, covers
from benchmarks.figures import Figures, main
from dpsql import api
from tests.releases import plain_tables

PEOPLE, LEAST = 3_000, 0.9
ASKED = {
    "COUNT(*) - COUNT(x)": "COUNT(*) - COUNT(x)",
    "COUNT(x) over COUNT(*)": "COUNT(x) * 1.0 / COUNT(*)",
    "COUNT(x)": "COUNT(x)",
    "AVG(x)": "AVG(x)",
}
CATALOG = """
dpsql: 1
name: nulls
source: {{kind: parquet, root: ., tables: {{event: event.parquet, patient: patient.parquet}}}}
privacy: {{unit: patient.id, lineage: nulls, cap: 10000, epsilon: 2{delta}}}
tables:
  patient: {{role: dimension, key: id, private: true, columns: {{sex: {{type: int, lower: 0, upper: 1}}}}}}
  event: {{role: fact, foreign_keys: {{id: patient}}, max_ids: auto, columns: {{
    g: {{type: int, lower: 0, upper: 3}}, x: {{type: int, lower: 0, upper: 33, measure: true, nullable: true}}}}}}
views:
  v: {{of: event, axes: [event.g, patient.sex], measures: [count, event.x]}}
ledger: {name}.ledger
"""


def held(folder: Path, name: str, delta: str, releases: int) -> dict[str, float]:
    """Which part of the intervals holds the exact answer, by what is asked."""
    catalog, sql = folder / f"{name}.yaml", f"SELECT {', '.join(ASKED.values())} FROM event"
    catalog.write_text(CATALOG.format(delta=delta, name=name))
    with plain_tables(folder) as raw:
        exact = raw.execute(sql).fetchall()[0]
    inside = np.zeros(len(ASKED))
    for number in range(releases):
        file = folder / f"{name}{number}.dpsql"
        api.publish(catalog, file, new_ledger=number == 0)
        (low,), (high,) = api.query(sql, str(file)).interval_rows(LEVEL)
        inside += list(map(covers, low, exact, high))
        file.unlink()
    return dict(zip(ASKED, (inside / releases).tolist(), strict=True))


def measure(figures: Figures, folder: Path, releases: int = 100) -> None:
    """Publish so often under both laws."""
    chance = np.random.default_rng(5)
    rows = chance.geometric(0.35, PEOPLE).clip(1, 12)
    owners = np.repeat(np.arange(PEOPLE), rows)
    values = np.where(chance.random(owners.size) < 0.15, -1, chance.integers(0, 34, owners.size))
    columns = {"id": owners, "g": chance.integers(0, 4, owners.size), "x": values}
    write_columns(folder, "event", columns, "id, g, nullif(x, -1) AS x")
    write_columns(folder, "patient", columns, "DISTINCT id, id % 2 AS sex")
    for law, delta in (("delta 1e-6", ", delta: 1e-6"), ("pure", "")):
        for asked, part in held(folder, law.partition(" ")[0], delta, releases).items():
            figures.at_least("nullable measures under auto, coverage", part, LEAST, f"{law}, {asked}")


if __name__ == "__main__":
    main(measure)
