"""A small star of people with many rows: sales over months and stores, and a second fact."""

from __future__ import annotations

import random
from pathlib import Path

from dpsql.curator.prove.layouts import RawRows
from tests.releases import write_catalog

MONTHS, STORES = 6, 5

CATALOG = """
dpsql: 1
name: shop
ledger: ledger.duckdb
source: {kind: parquet, root: ROOT, tables: {
  sales: sales.parquet, returns: returns.parquet, customer: customer.parquet}}
privacy: {lineage: p, cap: 9, unit: customer.id, PRIVACY}
tables:
  customer: {role: dimension, key: id, private: true, columns: {
    age: {type: int, lower: 0, upper: 9}, region: {type: string, categories: [n, s, e]}}}
  sales: {role: fact, foreign_keys: {id: customer}, max_ids: BOUND, columns: {
    month: {type: int, lower: 0, upper: 5}, store: {type: int, lower: 0, upper: 4},
    amount: {type: int, lower: 0, upper: 10, measure: true}}}
  returns: {role: fact, foreign_keys: {id: customer}, max_ids: 2, columns: {month: {type: int, lower: 0, upper: 5}}}
views:
  months: {of: sales, axes: [sales.month], measures: [count, people, sales.amount]}
  ages: {of: sales, axes: [customer.age], measures: [count, people]}
  places: {of: sales, axes: [customer.region, sales.month], measures: [count, people]}
  stores: {of: sales, axes: [sales.month, sales.store, customer.region], measures: [count, people]}
  returned: {of: returns, axes: [returns.month], measures: [count, people]}
"""


def make_people(folder: Path, *, customers: int = 60, bound: str = "3", privacy: str = "epsilon: 1") -> Path:
    """Write the star and its catalog; returns the catalog."""
    chance = random.Random(5)
    people = [(i, chance.randrange(10), chance.choice("nse")) for i in range(customers)]
    sales = [
        (i, chance.randrange(MONTHS), chance.randrange(STORES), chance.randrange(11))
        for i in range(customers)
        for _ in range(chance.randrange(8))
    ]
    returns = [(i, chance.randrange(MONTHS)) for i in range(0, customers, 3) for _ in range(2)]
    tables = {
        "customer": RawRows("id INT, age INT, region VARCHAR", people),
        "sales": RawRows("id INT, month INT, store INT, amount INT", sales),
        "returns": RawRows("id INT, month INT", returns),
    }
    return write_catalog(folder, CATALOG, tables, PRIVACY=privacy, BOUND=bound)
