"""The shop's catalog over each engine, and its release without noise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import yaml

from dpsql.catalog import Catalog, load_catalog
from dpsql.central.central import publish_release
from dpsql.noise import ZeroNoise
from tests.engines.star import TABLES, WORDS

KEY = bytes(range(7, 39))

BOUNDS: dict[str, dict[str, Any]] = {
    "row": {},
    "weight": {"max_ids": 4, "bounding": "weight"},
    "truncate": {"max_ids": 4},
    "auto": {"max_ids": "auto"},
    "auto_pure": {"max_ids": "auto"},
}
DELTAS: dict[str, dict[str, Any]] = {"auto": {"delta": "1e-6"}, "auto_pure": {"delta": 0}}


TEXT = """
dpsql: 1
name: shop
privacy: {lineage: shop-BOUND, cap: 4, neighbours: add_remove, epsilon: 1, rows: private}
tables:
  customer: {role: dimension, key: customer_id, private: true, columns: {
    age: {type: int, lower: 18, upper: 89},
    region: {type: string, categories: [north, south, east, Nörd], nullable: true}}}
  product: {role: dimension, key: product_id, private: true, columns: {
    price: {type: decimal, scale: 1, lower: 0, upper: 500, cuts: {width: 25}, nullable: true}}}
  shop: {role: dimension, key: shop_id, private: false, columns: {}}
  sales: {role: fact, foreign_keys: {customer_id: customer, product_id: product, shop_id: shop}, columns: {
    amount: {type: decimal, scale: 2, lower: 0, upper: 500, measure: true},
    cost: {type: decimal, scale: 2, lower: "-900.5", upper: 1000, measure: true},
    sold_at: {type: timestamp, grain: day, lower: "2025-01-01", upper: "2026-12-31", cuts: {width: 30}},
    sold_on: {type: date, lower: "2025-01-01", upper: "2025-12-31", cuts: {width: DAYS}, nullable: true},
    channel: {type: string, nullable: true},
    loyal: {type: bool, nullable: true}}}
views:
  demand: {of: sales, axes: [customer.age, product.price], measures: [count, sales.amount]}
  trend: {of: sales, axes: [sales.sold_at, customer.region], measures: [count, sales.costPEOPLE]}
  ways: {of: sales, axes: [{axis: shop, by: [city]}, sales.channel, sales.loyal], measures: [countPEOPLE]}
  regions: {of: sales, axes: [customer.region, customer.age], measures: [countPEOPLE]}
  weeks: {of: sales, axes: [sales.sold_on], measures: [count, sales.amount, sales.cost]}
"""


def files(folder: Path) -> dict[str, Any]:
    """The shop as Parquet files, for DuckDB."""
    return {"kind": "parquet", "root": str(folder), "tables": {table: f"{table}.parquet" for table in TABLES}}


def server(schema: str) -> dict[str, Any]:
    """The shop in PostgreSQL; its address is in the environment."""
    return {
        "kind": "postgresql",
        "root": "${DPSQL_TEST_DSN}",
        "tables": {table: f"{schema}.{table}" for table in TABLES},
    }


def spark_files(folder: Path) -> dict[str, Any]:
    """The shop as Parquet files, for Spark."""
    return {"kind": "spark", "tables": {table: str(folder / f"{table}.parquet") for table in TABLES}}


def clickhouse_tables(root: Path, database: str) -> dict[str, Any]:
    """The shop in a chdb database."""
    tables = {table: f"{database}.{table}" for table in TABLES}
    return {"kind": "clickhouse", "root": str(root), "tables": tables}


def catalog(folder: Path, source: dict[str, Any], bound: str, *, days: int = 7, **changed: Any) -> Catalog:
    """A catalog of the shop.

    Args:
        folder: where the catalog and its ledger are written.
        source: of a function above.
        bound: of `BOUNDS`.
        days: of a leaf of `sold_on`.
        changed: keys of the table `sales` that differ.
    """
    people = "" if bound == "row" else ", people"
    text = TEXT.replace("PEOPLE", people).replace("DAYS", str(days)).replace("BOUND", bound)
    written = yaml.safe_load(text) | {"source": source}
    written["privacy"] |= {
        "unit": "row" if bound == "row" else "customer.customer_id",
        **DELTAS.get(bound, {}),
    }
    sales = written["tables"]["sales"]
    sales["columns"]["channel"]["categories"] = list(dict.fromkeys(word.strip() for word in WORDS if word))
    sales |= {**BOUNDS[bound], **changed}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump(written, allow_unicode=True))
    return load_catalog(file)


def measured(catalog: Catalog, target: Path) -> dict[str, Any]:
    """What a release without noise and with a fixed key stores of each statistic, by table of its file."""
    publish_release(catalog, target, noise=ZeroNoise(), key=KEY)
    with duckdb.connect(str(target), read_only=True) as release:
        names = [
            row[0] for row in release.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        ]
        tables = [name for name in names if name.startswith(("measurement", "node_combination"))]
        return {name: sorted(release.execute(f'FROM "{name}"').fetchall(), key=repr) for name in tables}
