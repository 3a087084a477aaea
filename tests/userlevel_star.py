"""A small star whose customers own uneven numbers of rows, for tests of `max_ids: auto`."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np

from dpsql.catalog import Catalog, load_catalog
from dpsql.central.axes import axis_maker
from dpsql.central.placed_rows import counted_rows, prepare_tables
from dpsql.central.plan import plan_release
from dpsql.contributions.selection import RecipeTable, placed_table
from dpsql.engines import open_sources
from dpsql.noise import Noise

CATALOG = """
dpsql: 1
name: shop
source: {{kind: duckdb, root: {file}, tables: {{sales: sales, customer: customer}}}}
privacy: {{lineage: shop, cap: 10, unit: customer.id, epsilon: 1, delta: {delta}, rows: {rows}}}
tables:
  customer: {{role: dimension, key: id, private: true, columns: {{region: {{type: string, categories: [n, s, w]}}}}}}
  sales:
    role: fact
    max_ids: auto
    foreign_keys: {{id: customer}}
    columns:
      amount: {{type: decimal, scale: 2, lower: 0, upper: 100, measure: true, nullable: {nullable}}}
      day: {{type: int, lower: 1, upper: {days}}}
views:
  days: {{of: sales, axes: [sales.day], measures: {{count: 0.55, sales.amount: 0.45}}, share: 0.5}}
  regions:
    of: sales
    axes: [customer.region, {{axis: sales.day, cuts: {{width: 3}}}}]
    measures: {{count: 0.55, sales.amount: 0.45}}
    share: 0.5
"""
"""Two views; `days` decides whether the first one gets leaves (up to about 100) or two levels."""

Row = tuple[int | None, float | None, int | None]


def write_star(
    folder: Path,
    rows: list[Row],
    customers: dict[int, str | None],
    *,
    delta: str = "1e-6",
    days: int = 12,
    public_rows: bool = False,
    nullable: bool = False,
    name: str = "shop",
) -> Path:
    """Write the rows and the catalog; returns the catalog's path."""
    file = folder / f"{name}.duckdb"
    with duckdb.connect(str(file)) as db:
        db.execute("CREATE TABLE sales (id INT, amount DOUBLE, day INT)")
        db.execute("CREATE TABLE customer (id INT, region VARCHAR)")
        if rows:
            columns = [[row[i] for row in rows] for i in range(3)]
            db.execute(
                "INSERT INTO sales SELECT unnest(?::INT[]), unnest(?::DOUBLE[]), unnest(?::INT[])", columns
            )
        if customers:
            db.execute(
                "INSERT INTO customer SELECT unnest(?::INT[]), unnest(?::VARCHAR[])",
                [list(customers), list(customers.values())],
            )
    catalog = folder / f"{name}.yaml"
    rows_word = "public" if public_rows else "private"
    catalog.write_text(
        CATALOG.format(file=file, delta=delta, days=days, rows=rows_word, nullable=str(nullable).lower())
    )
    return catalog


def uneven_rows(
    people: int, seed: int, days: int = 12, largest: int = 400
) -> tuple[list[Row], dict[int, str | None]]:
    """Rows of customers with log-normal numbers of them."""
    rng = np.random.default_rng(seed)
    owned = np.minimum(np.maximum(rng.lognormal(2.0, 1.0, people).astype(int), 1), largest)
    rows: list[Row] = []
    for person, count in enumerate(owned):
        amounts = np.round(rng.gamma(2.0, 5.0, count), 2)
        rows += [
            (person, float(a), int(d)) for a, d in zip(amounts, rng.integers(1, days + 1, count), strict=True)
        ]
    return rows, {person: "nsw"[person % 3] for person in range(people)}


def open_table(catalog: Path, noise: Noise) -> RecipeTable:
    """The sales of a written star, placed and ready to be settled."""
    loaded: Catalog = load_catalog(catalog)
    source = loaded.raw_source()
    raw = open_sources(source.kind, source.folder(catalog), source.tables)
    plan = plan_release(loaded, axis_maker(loaded, raw))
    prepare_tables(loaded, raw, plan)
    return placed_table(
        raw.relations("testing"), plan, "sales", counted_rows(loaded, raw, plan, "sales"), noise
    )
