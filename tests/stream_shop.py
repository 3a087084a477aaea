"""The bundled shop as a stream, for tests: a small star, a catalog with `stream`, appends without noise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path

import duckdb

from dpsql.catalog import load_catalog
from dpsql.examples.retail import make_star, write_star
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import Noise, ZeroNoise, insecure_test_entropy
from dpsql.release import open_release
from dpsql.streams.publish import Appended, Arrival, Chance, Compared, append_batch, check_batch

FIRST = date(2025, 1, 1)
NOW = datetime(2026, 6, 1)
CATALOG = """
dpsql: 1
name: retail
source: {kind: parquet, root: data,
         tables: {customer: customer.parquet, product: product.parquet, sales: sales.parquet}}
privacy: {lineage: shop, cap: 4.0, unit: customer.customer_id, neighbours: add_remove, epsilon: EPSILON, delta: DELTA}
tables:
  customer:
    {role: dimension, key: customer_id, private: true, columns: {
      age: {type: int, lower: 18, upper: 89, out_of_domain: drop},
      region: {type: string, categories: [north, south, east, west], nullable: true, out_of_domain: drop},
      sex: {type: string, categories: [F, M], out_of_domain: drop}}}
  product: {role: dimension, key: product_id, private: false, columns: {category: {type: string}}}
  sales:
    {role: fact, foreign_keys: {customer_id: {references: customer, on_missing: drop}, product_id: product},
     max_ids: 10,
     columns: {amount: {type: decimal, scale: 2, lower: 0, upper: 200, measure: true},
               sold_on: {type: date, lower: 2025-01-01, upper: 2025-12-31, out_of_domain: drop}}}
stream: {column: sales.sold_on, grain: day, horizon: 365, late: batch, max_batches: 10}
views:
  days: {of: sales, axes: [sales.sold_on], measures: [count, sales.amount]}
  regions: {of: sales, axes: [customer.region, sales.sold_on], measures: [count]}
  ages: {of: sales, axes: [sales.sold_on, {axis: customer.age, cuts: [30, 45, 65]}], measures: [count]}
  sexes: {of: sales, axes: [sales.sold_on, customer.sex], measures: [count]}
  assortment: {of: sales, axes: [sales.sold_on, {axis: product, by: [category]}], measures: [count]}
"""


@dataclass(frozen=True)
class StreamShop:
    """A folder with the star, its catalog and its stream."""

    folder: Path
    noise: Noise

    @property
    def directory(self) -> Path:
        return self.folder / "retail.dpsql"

    @property
    def catalog(self) -> Path:
        return self.folder / "retail.yaml"

    def append(self, day: int | str, source: Path | None = None) -> Appended:
        """Append one day, by number or by date."""
        label = day if isinstance(day, str) else (FIRST + timedelta(days=day)).isoformat()
        return append_batch(load_catalog(self.catalog), self.directory, Arrival(label, source, NOW),
                            Chance(self.noise, insecure_test_entropy(7)))  # fmt: skip

    def check(self, day: int | str, source: Path | None = None) -> Compared:
        """Compare rows with those of a public day."""
        label = day if isinstance(day, str) else (FIRST + timedelta(days=day)).isoformat()
        return check_batch(load_catalog(self.catalog), self.directory, Arrival(label, source))

    def opened(self, as_of: int | str | None = None) -> ReleaseEngine:
        return ReleaseEngine(open_release(self.directory, insecure=True, as_of=as_of))

    def raw(self, days: int = 365) -> duckdb.DuckDBPyConnection:
        """Plain DuckDB over the star, with the sales of the first days only."""
        raw = duckdb.connect()
        for table in ("customer", "product"):
            raw.execute(f"CREATE VIEW {table} AS SELECT * FROM '{self.folder / 'data' / table}.parquet'")
        last = FIRST + timedelta(days=days)
        sales = self.folder / "data" / "sales.parquet"
        raw.execute(f"CREATE TABLE sales AS SELECT * FROM '{sales}' WHERE sold_on < DATE '{last}'")
        return raw


def make_stream_shop(folder: Path, *, customers: int = 3000, noise: Noise | None = None, text: str = CATALOG,
                     epsilon: str = "1.0", delta: str = "0") -> StreamShop:  # fmt: skip
    """Write star and catalog; nothing is appended yet."""
    write_star(folder / "data", make_star(20250101, customers, 40))
    (folder / "retail.yaml").write_text(text.replace("EPSILON", epsilon).replace("DELTA", delta))
    return StreamShop(folder, noise or ZeroNoise())
