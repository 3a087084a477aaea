"""Keys that several units share on the way to them: whoever comes or goes, only her own bounded rows do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.privacy.loss import RawRows, Tables, measure
from tests.thinned import by_default

CATALOG = """
dpsql: 1
name: market
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, orders: orders.parquet, person: person.parquet}}
privacy: {lineage: market, cap: 9, unit: person.id, epsilon: 1, delta: DELTA}
tables:
  person: {role: dimension, key: id, private: true, columns: {age: {type: int, lower: 0, upper: 3}}}
  orders: {role: dimension, key: order_id, private: true, foreign_keys: {buyer: person},
    columns: {kind: {type: int, lower: 0, upper: 3}}}
  sales: {role: fact, foreign_keys: {order_id: orders}, BOUNDS
    columns: {day: {type: date, lower: 2025-01-01, upper: 2025-01-04}}}
STREAM
views:
  v: {of: sales, axes: [AXIS], measures: [count]MORE}
"""
DAYS = [f"2025-01-0{day}" for day in range(1, 5)]
PEOPLE = 60


def crowd() -> Tables:
    """Sixty people with an order of eight sales each."""
    return {
        "sales": RawRows(
            "order_id INT, day DATE", [(i, DAYS[(i + j) % 4]) for i in range(PEOPLE) for j in range(8)]
        ),
        "orders": RawRows("order_id INT, buyer INT, kind INT", [(i, i, i % 4) for i in range(PEOPLE)]),
        "person": RawRows("id INT, age INT", [(i, i % 4) for i in range(PEOPLE)]),
    }


def intruder(tables: Tables) -> Tables:
    """One more person who owns an order row of everybody's key, and several person rows."""
    return tables | {
        "orders": tables["orders"].plus(*((i, 999, k) for i in range(PEOPLE) for k in (0, 3))),
        "person": tables["person"].plus((999, 0), (999, 3), (999, None)),
    }


def market(
    bounds: str, *, axis: str = "orders.kind", delta: str = "0", stream: str = "", more: str = ""
) -> str:
    text = CATALOG.replace("BOUNDS", f"{bounds},").replace("AXIS", axis).replace("DELTA", delta)
    return text.replace("STREAM", stream).replace("MORE", more)


@pytest.mark.parametrize("axis", by_default(["orders.kind", "person.age", "sales.day"], 2))
@pytest.mark.parametrize("bounds", ["max_ids: 2, bounding: truncate", "max_ids: 2, bounding: weight"])
def test_one_who_claims_everybodys_orders_moves_her_own_rows_only(tmp_path: Path, bounds: str, axis: str):
    catalog = market(bounds, axis=axis, more=", mechanism: identity")
    loss = measure(catalog, intruder(crowd()), crowd(), tmp_path)
    assert 0.98 <= loss.share <= 1


@pytest.mark.parametrize("delta", ["0", "1e-6"])
def test_bounds_chosen_from_data_hold_too(tmp_path: Path, delta: str):
    catalog = market("max_ids: auto", delta=delta)
    loss = measure(catalog, intruder(crowd()), crowd(), tmp_path)
    assert 0 < loss.share <= 1


def test_a_stream_holds_too(tmp_path: Path):
    stream = "stream: {column: sales.day, grain: day, horizon: 4, max_batches: 2}"
    catalog = market("max_ids: 2", axis="sales.day, orders.kind", stream=stream)
    loss = measure(catalog, intruder(crowd()), crowd(), tmp_path, batches=DAYS[:2])
    assert 0 < loss.share <= 1
