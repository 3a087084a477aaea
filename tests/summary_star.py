"""People, their orders and the lines of these, with hostile values; and every summary computed by plain Python.

Orders name customers, lines name orders and public products. Some orders stand twice, shared by two customers; keys
are NULL or name nobody; customers stand twice; amounts are negative, NULL, or as large as 64 bits take.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from tests.releases import insert

Row = dict[str, Any]
Rows = dict[str, list[Row]]

SCHEMA = {
    "customer": {"customer_id": "BIGINT", "region": "VARCHAR"},
    "orders": {"order_id": "BIGINT", "customer_id": "BIGINT"},
    "line": {"order_id": "BIGINT", "product_id": "BIGINT", "amount": "DECIMAL(18,2)", "pieces": "BIGINT",
             "sold_on": "DATE", "note": "VARCHAR", "gift": "BOOLEAN"},
    "product": {"product_id": "BIGINT", "category": "VARCHAR"},
}  # fmt: skip
NOTES = ["a", "A", "ä", "á", "b", "ab", "z", "Z", None, "a"]
FIRST = date(2025, 1, 1)

CATALOG = """\
dpsql: 1
name: shop
ledger: LEDGER
source: SOURCE
privacy: {lineage: p, cap: 40, unit: customer.customer_id, epsilon: 1, delta: 1e-6}
tables:
  customer:
    role: dimension
    key: customer_id
    columns: {region: {type: string, categories: [n, s]}}
    summaries:
      lines: {of: line, is: count(*), type: int, lower: 0, upper: 9}
      noted: {of: line, is: count(note), type: int, lower: 0, upper: 9}
      cheap: {of: line, is: "count(*) FILTER (WHERE amount <= 5 AND product.category = 'toys')",
        type: int, lower: 0, upper: 9}
      kinds: {of: line, is: count(DISTINCT product.category), type: int, lower: 0, upper: 9}
      words: {of: line, is: count(DISTINCT note), type: int, lower: 0, upper: 9}
      spent: {of: line, is: sum(amount), type: decimal, scale: 2, lower: -100, upper: 100, measure: true}
      pieces: {of: line, is: sum(pieces), type: int, lower: -50, upper: 50}
      first: {of: line, is: min(sold_on), type: date, lower: 2025-01-05, upper: 2025-01-20, nullable: true}
      last: {of: line, is: max(sold_on) FILTER (WHERE NOT gift),
        type: date, lower: 2025-01-05, upper: 2025-01-20, nullable: true, out_of_domain: drop}
      second: {of: line, is: "nth(sold_on, 2)",
        type: date, lower: 2025-01-05, upper: 2025-01-20, nullable: true, out_of_domain: other}
      third_day: {of: line, is: "nth(DISTINCT sold_on, 3)",
        type: date, lower: 2025-01-01, upper: 2025-02-01, nullable: true}
      toys: {of: line, is: bool_or(product.category = 'toys'), type: bool}
      gifts: {of: line, is: bool_and(gift), type: bool}
      note_of_least: {of: line, is: "arg_min(note, amount)",
        type: string, categories: [a, A, ä, á, b, ab, z, Z], nullable: true}
      day_of_most: {of: line, is: "arg_max(sold_on, pieces) FILTER (WHERE pieces < 1000)",
        type: date, lower: 2025-01-01, upper: 2025-02-01, nullable: true}
      favourite: {of: line, is: mode(product.category),
        type: string, categories: [toys, food, tools], nullable: true}
      word: {of: line, is: mode(note), type: string, categories: [a, A, ä, á, b, ab, z, Z], nullable: true}
      later: {of: line, is: count(*) FILTER (WHERE sold_on > DATE '2025-01-10' AND lines >= 3),
        type: int, lower: 0, upper: 9}
      orders: {of: orders, is: count(*), type: int, lower: 0, upper: 9}
  product: {role: dimension, key: product_id, private: false,
    columns: {category: {type: string, categories: [toys, food, tools]}}}
  orders: {role: fact, key: order_id, max_ids: 3, foreign_keys: {customer_id: customer}}
  line:
    role: fact
    max_ids: 3
    foreign_keys: {order_id: orders, product_id: product}
    columns:
      amount: {type: decimal, scale: 2, lower: 0, upper: 10}
      pieces: {type: int, lower: 0, upper: 10}
      sold_on: {type: date, lower: 2025-01-01, upper: 2025-02-01}
      note: {type: string, categories: [a]}
      gift: {type: bool}
views:
VIEWS
"""
NAMES = (
    "lines", "noted", "cheap", "kinds", "words", "spent", "pieces", "first", "last", "second", "third_day", "toys",
    "gifts", "note_of_least", "day_of_most", "favourite", "word", "later", "orders",
)  # fmt: skip
VIEWS = "\n".join(
    f"  v{i}: {{of: customer, axes: [customer.{name}], measures: [count]}}" for i, name in enumerate(NAMES)
)


def made_up(seed: int, people: int = 30, lines: int = 200) -> Rows:
    """Rows of all tables."""
    chance = random.Random(seed)
    keys: list[int | None] = [*range(1, people + 1), None, 999]
    customers = [
        {"customer_id": key, "region": chance.choice(["n", "s", None])} for key in range(1, people + 1)
    ]
    customers += [dict(chance.choice(customers)) for _ in range(2)]
    orders = [
        {"order_id": number, "customer_id": chance.choice(keys[: people // 2] + keys[people:] + [3, 3, 3])}
        for number in range(1, people * 2)
    ]
    # shared orders: the same number stands for two customers
    orders += [{"order_id": row["order_id"], "customer_id": chance.randint(1, people)} for row in orders[:5]]
    numbers: list[int | None] = [row["order_id"] for row in orders] + [None, 12345]
    amounts = [None, 0, -300, 500, 500, 725, 10**18 - 1, 1 - 10**18, 1250, 499]  # cents
    rows = [
        {
            "order_id": chance.choice(numbers), "product_id": chance.choice([1, 2, 3, 4, None, 77]),
            "amount": chance.choice(amounts), "pieces": chance.choice([None, 1, 2, 3, -4, 10**18 - 1, 1 - 10**18]),
            "sold_on": chance.choice([None, *(FIRST + timedelta(days=chance.randint(0, 25)) for _ in range(6))]),
            "note": chance.choice(NOTES), "gift": chance.choice([True, False, None]),
        }
        for _ in range(lines)
    ]  # fmt: skip
    product = [
        {"product_id": i + 1, "category": word} for i, word in enumerate(["toys", "food", "tools", "toys"])
    ]
    return {"customer": customers, "orders": orders, "line": rows, "product": product}


def stored(column: str, value: Any) -> Any:
    """A value as a source has it: amounts are cents here, and decimals there."""
    return Decimal(value).scaleb(-2) if column == "amount" and value is not None else value


def write_parquet(folder: Path, rows: Mapping[str, Sequence[Row]], order: int = 0) -> Path:
    """One file a table, its rows in an order of their own."""
    folder.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as connection:
        for table, columns in SCHEMA.items():
            listed = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
            connection.execute(f"CREATE TABLE {table} ({listed})")
            shuffled = [tuple(stored(name, row[name]) for name in columns) for row in rows[table]]
            random.Random(order).shuffle(shuffled)
            insert(connection, table, shuffled)
            connection.execute(f"COPY {table} TO '{folder / table}.parquet'")
    return folder


def catalog_text(folder: Path, source: str = "", views: str = VIEWS) -> str:
    """The catalog over files of a folder, or over another source."""
    tables = ", ".join(f"{table}: {table}.parquet" for table in SCHEMA)
    files = source or f"{{kind: parquet, root: {folder}, tables: {{{tables}}}}}"
    return (
        CATALOG.replace("LEDGER", str(folder / "l.duckdb")).replace("SOURCE", files).replace("VIEWS", views)
    )


def lines_of(rows: Mapping[str, Sequence[Row]], person: int) -> list[Row]:
    """The joined lines that lead to a person, products beside them."""
    categories = {row["product_id"]: row["category"] for row in rows["product"]}
    owned = [order["order_id"] for order in rows["orders"] if order["customer_id"] == person]
    return [
        row | {"category": categories.get(row["product_id"])}
        for number in owned
        for row in rows["line"]
        if row["order_id"] == number
    ]


def _extreme(rows: list[Row], by: str, value: str, sign: int) -> Any:
    """The value of the row of least (or greatest) `by`; among equals the least value, None last."""
    keyed = [(sign * row[by], row[value] is None, _bytes(row[value])) for row in rows]
    return min(keyed)[2] if keyed and not min(keyed)[1] else None


def _bytes(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value if value is not None else b""


def _mode(values: list[str | None]) -> Any:
    counted = Counter(value for value in values if value is not None)
    return min(counted, key=lambda word: (-counted[word], word.encode())) if counted else None


def summaries(rows: Mapping[str, Sequence[Row]], person: int) -> Row:
    """Every summary of a person, before bounds."""
    own = lines_of(rows, person)
    days = sorted(row["sold_on"] for row in own if row["sold_on"] is not None)
    several = sorted(set(days))
    unpacked = [row["sold_on"] for row in own if row["sold_on"] is not None and row["gift"] is False]
    gifts = [row["gift"] for row in own if row["gift"] is not None]
    categories = [row["category"] for row in own]
    known = [category == "toys" for category in categories if category is not None]
    few = [row for row in own if row["pieces"] is not None and row["pieces"] < 1000]
    least = _extreme([row for row in own if row["amount"] is not None], "amount", "note", 1)
    return {
        "lines": len(own),
        "noted": sum(row["note"] is not None for row in own),
        "cheap": sum(row["category"] == "toys" and row["amount"] is not None and row["amount"] <= 500 for row in own),
        "kinds": len({category for category in categories if category is not None}),
        "words": len({row["note"] for row in own if row["note"] is not None}),
        "spent": sum(row["amount"] or 0 for row in own),
        "pieces": sum(row["pieces"] for row in own if row["pieces"] is not None),
        "first": min(days, default=None),
        "last": max(unpacked, default=None),
        "second": days[1] if len(days) > 1 else None,
        "third_day": several[2] if len(several) > 2 else None,
        "toys": any(known) if known else None,
        "gifts": all(gifts) if gifts else None,
        "note_of_least": least.decode() if isinstance(least, bytes) else least,
        "day_of_most": _extreme(few, "pieces", "sold_on", -1),
        "favourite": _mode(categories),
        "word": _mode([row["note"] for row in own]),
        "later": sum(day > date(2025, 1, 10) for day in days) if len(own) >= 3 else 0,
        "orders": sum(order["customer_id"] == person for order in rows["orders"]),
    }  # fmt: skip
