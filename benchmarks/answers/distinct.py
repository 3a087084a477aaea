"""Distinct people of cells on three stars where who touches many cells differs from cell to cell.

| star | cells | people |
|---|---|---|
| campus, made up | 10 modules by 12 weeks | 4,000 students; the busier one is, the later her module |
| foodmart | 24 stores by 12 months | customers of 1997 |
| retail | 10 price bands by 13 months | customers of Online Retail |

The share of 95% intervals of `COUNT(DISTINCT id)` that cover, over cells of at least 50 people, and the median half of
an interval over the median count. The two real stars need DPSQL_DATA and are left out without it.
"""

from __future__ import annotations

import os
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.answers.totals import released
from benchmarks.coverage import covers, interval_cells
from benchmarks.figures import Figures, main

LEAST, EPSILON = 50, 4
LOW, HIGH = 0.93, 0.98

CATALOG = """
dpsql: 1
name: {name}
ledger: {folder}/ledger.duckdb
source: {{kind: parquet, root: {folder}, tables: {{visit: visit.parquet, person: person.parquet}}}}
privacy: {{lineage: {name}, cap: 1000, unit: person.id, epsilon: {epsilon}, delta: {delta}}}
tables:
  person: {{role: dimension, key: id, private: true, columns: {{half: {{type: int, lower: 0, upper: 1}}}}}}
  visit: {{role: fact, foreign_keys: {{id: person}}, max_ids: 20, clipped_share: 0, columns: {{
    a: {{type: int, lower: 0, upper: {a}}}, b: {{type: int, lower: 0, upper: {b}}}}}}}
views:
  cells: {{of: visit, axes: [visit.a, visit.b], measures: {{count: 0.5, people: 0.5}}}}
"""

FOODMART = """
SELECT DISTINCT customer_id AS id, store_id % 24 AS a, month_of_year - 1 AS b
FROM '{data}/foodmart/sales_fact_1997.parquet' JOIN '{data}/foodmart/time_by_day.parquet' USING (time_id)
"""
RETAIL = """
SELECT DISTINCT CAST(CustomerID AS INT) AS id, least(CAST(floor(UnitPrice) AS INT), 9) AS a,
  (year(InvoiceDate) - 2010) * 12 + month(InvoiceDate) - 12 AS b
FROM '{data}/online-retail/invoice_line.parquet' WHERE CustomerID IS NOT NULL AND UnitPrice >= 0
"""


def campus(db: duckdb.DuckDBPyConnection, people: int = 4000, seed: int = 4) -> None:
    """The table `visit` of a star whose busiest people meet in a few cells."""
    rng = np.random.default_rng(seed)
    busy = np.minimum(rng.lognormal(1.0, 1.0, people).astype(int) + 1, 60)
    owner = np.repeat(np.arange(people), busy)
    rank = np.repeat(np.argsort(np.argsort(busy)) / people, busy)
    module = np.clip((10 * rank + rng.normal(0, 1.2, len(owner))).astype(int), 0, 9)
    week = rng.integers(0, 12, len(owner))
    columns = [column.tolist() for column in (owner, module, week)]
    db.execute(
        "CREATE TABLE visit AS SELECT DISTINCT * FROM (SELECT unnest(?::INT[]) AS id, unnest(?::INT[]) AS a, "
        "unnest(?::INT[]) AS b)", columns,
    )  # fmt: skip


def cells(
    name: str, db: duckdb.DuckDBPyConnection, delta: str, releases: int, figures: Figures, folder: Path
) -> None:
    """The figures of a star whose rows are the table `visit`."""
    counted = db.execute("SELECT a, b, count(DISTINCT id) FROM visit GROUP BY a, b").fetchall()
    truth = {(a, b): n for a, b, n in counted if n >= LEAST}
    db.execute(f"COPY visit TO '{folder}/visit.parquet'")
    db.execute(f"COPY (SELECT DISTINCT id, id % 2 AS half FROM visit) TO '{folder}/person.parquet'")
    (a, b) = db.execute("SELECT max(a), max(b) FROM visit").fetchall()[0]
    catalog, halves, inside, errors = folder / "cells.yaml", list[float](), 0, list[float]()
    catalog.write_text(CATALOG.format(name=name, folder=folder, delta=delta, a=a, b=b, epsilon=EPSILON))
    for answerer in released(catalog, releases):
        answer = answerer.query("SELECT a, b, COUNT(DISTINCT id) AS n FROM visit GROUP BY a, b")
        for row, low, high in interval_cells(answer):
            if row[:2] in truth:
                inside += covers(low[2], truth[row[:2]], high[2])
                errors.append(row[2] - truth[row[:2]])
                halves.append((high[2] - low[2]) / 2)
    law = "delta 1e-6" if delta != "0" else "pure"
    figures.within("distinct people of cells covered", inside / len(halves), LOW, HIGH, f"{name}, {law}")
    middle = float(np.median([*truth.values()]))
    print(f"  {len(truth)} cells, {releases} releases: half-width {np.median(halves) / middle:.1%} of {middle:.0f} "
          f"people, mean error {np.mean(errors):+.1f}", flush=True)  # fmt: skip


def measure(figures: Figures, folder: Path, releases: int = 60) -> None:
    data = os.environ.get("DPSQL_DATA")
    for name, sql in (("campus", ""), ("foodmart", FOODMART), ("retail", RETAIL)):
        for delta in ("1e-6", "0") if data or not sql else ():
            own = folder / f"{name} {delta}"
            own.mkdir()
            with duckdb.connect() as db:
                if sql:
                    db.execute(f"CREATE TABLE visit AS {sql.format(data=data)}")
                else:
                    campus(db)
                cells(name, db, delta, releases, figures, own)


if __name__ == "__main__":
    main(measure)
