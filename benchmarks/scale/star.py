"""A generated star of any size, as Parquet: sales of customers, some of whom own thousands of rows.

Values come from DuckDB's hash of the row number, so a size always gives the same star. Customers are skewed (the cube
of a uniform number), 1% of the amounts are NULL, 1% of the keys lead nowhere, and a few regions are unknown.
"""

from __future__ import annotations

from pathlib import Path

from tests.releases import write_tables

CATALOG = """
dpsql: 1
name: scale
source: {{kind: parquet, root: "{root}", tables: {{
  sales: sales.parquet, customer: customer.parquet, product: product.parquet}}}}
privacy: {{lineage: scale, cap: 100, unit: {unit}, epsilon: 1, delta: {delta}}}
tables:
  customer: {{role: dimension, key: customer_id, private: true, columns: {{
    age: {{type: int, lower: 18, upper: 89}},
    region: {{type: string, categories: [north, south, east, west, abroad]}}}}}}
  product: {{role: dimension, key: product_id, private: false, columns: {{
    price: {{type: int, lower: 0, upper: 199, cuts: {{width: 10}}}},
    category: {{type: string}}}}}}
  sales: {{role: fact, foreign_keys: {{customer_id: customer, product_id: product}}, {bounds} columns: {{
    amount: {{type: decimal, scale: 2, lower: 0, upper: 500, measure: true}},
    quantity: {{type: int, lower: 0, upper: 20, measure: true}},
    sold_on: {{type: date, lower: 2025-01-01, upper: 2025-12-31, cuts: {{width: month}}}},
    channel: {{type: string, categories: [web, shop, phone]}}}}}}
views:
  demand: {{of: sales, axes: [customer.age, product.price], measures: {{count: 0.5, sales.amount: 0.5}}, share: 0.4}}
  trend: {{of: sales, axes: [sales.sold_on, customer.region], measures: {{count: 0.5, sales.amount: 0.5}}, share: 0.3}}
  mix: {{of: sales, axes: [product.category, sales.channel], measures: {{count: 0.5, sales.quantity: 0.5}}, share: 0.3}}
"""

PLAIN = (
    "SELECT age, price // 10 AS price, count(*), sum(amount) FROM sales JOIN customer USING (customer_id) "
    "JOIN product USING (product_id) GROUP BY ALL",
    "SELECT month(sold_on) AS month, region, count(*), sum(amount) FROM sales JOIN customer USING (customer_id) "
    "GROUP BY ALL",
    "SELECT category, channel, count(*), sum(quantity) FROM sales JOIN product USING (product_id) GROUP BY ALL",
)
"""The same three views as anybody would write them, without a promise."""

BOUNDS = {
    "row": "",
    "truncate": "max_ids: 10,",
    "weight": "max_ids: 10, bounding: weight,",
    "auto": "max_ids: auto,",
    "delta": "max_ids: auto,",
}


def make_star(folder: Path, facts: int, customers: int = 200_000, products: int = 5_000) -> None:
    """Write the three tables.

    Args:
        folder: where they go.
        facts, customers, products: rows of each.
    """
    tables = {
        "customer": f"SELECT i AS customer_id, (15 + hash(i) % 80)::INTEGER AS age, "
        f"['north', 'south', 'east', 'west', 'abroad', 'moon'][(1 + hash(i, 1) % 6)::INTEGER] AS region "
        f"FROM range({customers}) t(i)",
        "product": f"SELECT i AS product_id, (hash(i, 2) % 200)::INTEGER AS price, 'c' || hash(i, 3) % 10 AS category "
        f"FROM range({products}) t(i)",
        "sales": f"SELECT CASE WHEN hash(i, 4) % 100 = 0 THEN -1 ELSE "
        f"floor({customers} * pow(hash(i, 5)::DOUBLE / 18446744073709551616.0, 3))::BIGINT END AS customer_id, "
        f"(hash(i, 6) % {products})::BIGINT AS product_id, "
        "CASE WHEN hash(i, 7) % 100 > 0 THEN (hash(i, 8) % 60000 / 100)::DECIMAL(12, 2) END AS amount, "
        "(hash(i, 9) % 22)::INTEGER AS quantity, DATE '2025-01-01' + (hash(i, 10) % 370)::INTEGER AS sold_on, "
        f"['web', 'shop', 'phone', 'fax'][(1 + hash(i, 11) % 4)::INTEGER] AS channel FROM range({facts}) t(i)",
    }
    write_tables(folder, tables)


def write_catalog(folder: Path, bounding: str) -> Path:
    """A catalog over the star.

    Args:
        folder: where the tables are.
        bounding: `row`, `truncate`, `weight` or `auto`; `delta` is `auto` with a delta.
    """
    file = folder / f"{bounding}.yaml"
    unit = "row" if bounding == "row" else "customer.customer_id"
    delta = "1e-6" if bounding == "delta" else "0"
    file.write_text(CATALOG.format(root=folder, unit=unit, bounds=BOUNDS[bounding], delta=delta))
    return file
