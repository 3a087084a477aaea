"""Stars whose private rows have two owners, or are units and joined too, with the neighbours that show why it matters.

Each catalog must be refused when it is loaded; with the check put aside it breaks its claim many times over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from tests.privacy.loss import RawRows, Tables

CATALOG = """
dpsql: 1
name: market
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {TABLES}}
privacy: {lineage: market, cap: 9, unit: UNIT, epsilon: 1.0}
tables:
  person: {role: dimension, key: id, private: true, columns: {age: {type: int, lower: 0, upper: 3}}}
  orders: {role: dimension, key: order_id, private: true, foreign_keys: {buyer: person, seller: person}, ORDERS
    columns: {kind: {type: int, lower: 0, upper: 3}}}
  sales: {role: fact, foreign_keys: {order_id: orders}, max_ids: 2, unit_path: [order_id, buyer],
    columns: {day: {type: int, lower: 0, upper: 3}}}
  returns: {role: fact, foreign_keys: {order_id: orders}, max_ids: 2, unit_path: [order_id, RETURNS],
    columns: {day: {type: int, lower: 0, upper: 3}}}
views:
"""
TABLES = ", ".join(f"{name}: {name}.parquet" for name in ("person", "orders", "sales", "returns"))
OTHERS = 60
BOUGHT = "max_ids: 2, unit_path: [buyer],"


def market(*views: str, unit: str = "person.id", returns: str = "buyer", orders: str = "") -> str:
    """The catalog with views such as `sales by sales.day`."""
    text = CATALOG.replace("TABLES", TABLES).replace("UNIT", unit).replace("RETURNS", returns)
    for number, view in enumerate(views):
        of, _, axis = view.partition(" by ")
        text += f"  v{number}: {{of: {of}, axes: [{axis}], measures: [count], mechanism: identity}}\n"
    return text.replace("ORDERS", orders)


def crowd() -> Tables:
    """Sixty people who each bought once from the next one, with eight sales and eight returns."""
    lines = [(i, (i + j) % 4) for i in range(OTHERS) for j in range(8)]
    return {
        "person": RawRows("id INT, age INT", [(i, i % 4) for i in range(OTHERS)]),
        "orders": RawRows(
            "order_id INT, buyer INT, seller INT, kind INT",
            [(i, i, (i + 1) % OTHERS, i % 4) for i in range(OTHERS)],
        ),
        "sales": RawRows("order_id INT, day INT", lines),
        "returns": RawRows("order_id INT, day INT", lines),
    }


def buyer_of_everything(tables: Tables) -> Mapping[str, RawRows]:
    """One more person, who bought something from everybody; what was returned to those sellers stays."""
    bought = [(1000 + i, 999, i, i % 4) for i in range(OTHERS)]
    return {**tables, "person": tables["person"].plus((999, 0)), "orders": tables["orders"].plus(*bought)}


def sales_of_one(tables: Tables) -> Mapping[str, RawRows]:
    """All sales hang on the order of one person, whose row is the one that comes and goes."""
    lines = [(0, i % 4) for i in range(OTHERS)]
    return {**tables, "sales": RawRows(tables["sales"].columns, lines)}


def without(tables: Tables, table: str, row: int) -> Tables:
    rows = tables[table]
    return {**tables, table: RawRows(rows.columns, [*rows.rows[:row], *rows.rows[row + 1 :]])}


class Refused(NamedTuple):
    """A catalog that may not load, the reason, and neighbours who show why."""

    catalog: str
    reason: str
    left: Tables
    right: Tables


def returned(tables: Tables) -> Tables:
    """Two returns for each order that the buyer of everything may own."""
    lines = [(1000 + i, j) for i in range(OTHERS) for j in range(2)]
    return {**tables, "returns": RawRows(tables["returns"].columns, lines)}


REFUSED = {
    "a counted table is joined": Refused(
        market("sales by orders.kind", "orders by orders.kind", unit="row"),
        "views.v0: it joins `orders`, whose rows view `v1` counts.*unit: orders.order_id",
        sales_of_one(crowd()),
        without(sales_of_one(crowd()), "orders", 0),
    ),
    "a counted table decides which rows are dropped": Refused(
        market("sales by sales.day", "orders by orders.kind", unit="row").replace(
            "sales: {role: fact, foreign_keys: {order_id: orders}",
            "sales: {role: fact, foreign_keys: {order_id: {references: orders, on_missing: drop}}",
        ),
        "views.v0: it joins `orders`",
        sales_of_one(crowd()),
        without(sales_of_one(crowd()), "orders", 0),
    ),
    "an order has two owners": Refused(
        market("sales by sales.day", "returns by orders.kind", returns="seller"),
        "tables.returns.unit_path: rows of `orders` belong to `seller` here and to `buyer` in the views of `sales`",
        buyer_of_everything(returned(crowd())),
        returned(crowd()),
    ),
    "a counted order has another owner than its sales": Refused(
        market("orders by orders.kind", "returns by orders.kind", returns="seller", orders=BOUGHT),
        "rows of `orders` belong to `seller` here and to `buyer` in the views of `orders`",
        buyer_of_everything(returned(crowd())),
        returned(crowd()),
    ),
}
