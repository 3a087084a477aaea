"""Rows where a nullable measure is known, under `max_ids: auto`: `python -m benchmarks.userlevel.nulls`.

3,000 people with geometric numbers of rows, 15% of the values NULL. Intervals at 95% of the whole table, by release.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.figures import Figures
from dpsql import api

PEOPLE, RELEASES, LEAST = 3_000, 100, 0.9
ASKED = {
    "COUNT(*) - COUNT(x)": "COUNT(*) - COUNT(x)",
    "COUNT(x) over COUNT(*)": "COUNT(x) * 1.0 / COUNT(*)",
    "COUNT(x)": "COUNT(x)",
    "AVG(x)": "AVG(x)",
}
CATALOG = """
dpsql: 1
name: nulls
source: {{kind: duckdb, root: nulls.duckdb, tables: {{event: event, patient: patient}}}}
privacy: {{unit: patient.id, lineage: nulls, cap: 10000, epsilon: 2{delta}}}
tables:
  patient: {{role: dimension, key: id, private: true, columns: {{sex: {{type: int, lower: 0, upper: 1}}}}}}
  event: {{role: fact, foreign_keys: {{id: patient}}, max_ids: auto, columns: {{
    g: {{type: int, lower: 0, upper: 3}}, x: {{type: int, lower: 0, upper: 33, measure: true, nullable: true}}}}}}
views:
  v: {{of: event, axes: [event.g, patient.sex], measures: [count, event.x]}}
ledger: {name}.ledger
"""


def held(folder: Path, name: str, delta: str) -> dict[str, float]:
    """Which part of the intervals holds the exact answer, by what is asked."""
    catalog, sql = folder / f"{name}.yaml", f"SELECT {', '.join(ASKED.values())} FROM event"
    catalog.write_text(CATALOG.format(delta=delta, name=name))
    with duckdb.connect(str(folder / "nulls.duckdb"), read_only=True) as raw:
        exact = raw.execute(sql).fetchall()[0]
    inside = np.zeros(len(ASKED))
    for number in range(RELEASES):
        file = folder / f"{name}{number}.dpsql"
        api.publish(catalog, file, new_ledger=number == 0)
        low, high = api.query(sql, str(file)).interval_rows(0.95)
        ends = zip(low[0], high[0], exact, strict=True)
        inside += [(a is None or a <= true) and (b is None or true <= b) for a, b, true in ends]
        file.unlink()
    return dict(zip(ASKED, (inside / RELEASES).tolist(), strict=True))


def main() -> int:
    """Print the figures of both laws."""
    figures, chance = Figures(), np.random.default_rng(5)
    rows = chance.geometric(0.35, PEOPLE).clip(1, 12)
    owners = np.repeat(np.arange(PEOPLE), rows)
    values = np.where(chance.random(owners.size) < 0.15, -1, chance.integers(0, 34, owners.size))
    groups = chance.integers(0, 4, owners.size)
    with tempfile.TemporaryDirectory() as name:
        with duckdb.connect(str(Path(name) / "nulls.duckdb")) as raw:
            columns = [column.tolist() for column in (owners, groups, values)]
            raw.execute(
                "CREATE TABLE event AS SELECT id, g, nullif(x, -1) AS x FROM "
                "(SELECT unnest(?::INT[]) AS id, unnest(?::INT[]) AS g, unnest(?::INT[]) AS x)", columns,
            )  # fmt: skip
            raw.execute("CREATE TABLE patient AS SELECT DISTINCT id, id % 2 AS sex FROM event")
        for law, delta in (("delta 1e-6", ", delta: 1e-6"), ("pure", "")):
            for asked, part in held(Path(name), law.partition(" ")[0], delta).items():
                figures.at_least("nullable measures under auto, coverage", part, LEAST, f"{law}, {asked}")
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
