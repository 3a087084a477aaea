"""Joins may not read another unit's rows, and a key that two units share moves nobody else's row."""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from dpsql.catalog import parse_catalog
from dpsql.errors import CatalogError
from dpsql.noise import ZeroNoise
from dpsql.publishing.axes import axis_maker
from dpsql.publishing.central import publish_release
from dpsql.publishing.contributions import set_key
from dpsql.publishing.ownership import check_ownership
from dpsql.publishing.plan import plan_release
from dpsql.publishing.rows import place_rows, prepare_tables
from dpsql.sources import open_sources

CATALOG = """
dpsql: 1
name: market
ledger: ROOT/ledger.duckdb
source: {kind: parquet, root: ROOT, tables: {sales: s.parquet, orders: o.parquet, person: p.parquet}}
privacy: {lineage: market, cap: 9, unit: person.id, epsilon: 1.0}
tables:
  person: {role: dimension, key: id, private: true, columns: {age: {type: int, lower: 0, upper: 3}}}
  orders: {role: dimension, key: order_id, private: true, foreign_keys: {buyer: person}, max_ids: 2,
    columns: {kind: {type: int, lower: 0, upper: 3}}}
  sales: {role: fact, foreign_keys: {order_id: orders, seller: person}, max_ids: 2, unit_path: [order_id, buyer],
    columns: {day: {type: int, lower: 0, upper: 3}}}
views:
  v: {of: sales, axes: [AXIS], measures: [count]}
"""


def catalog(axis, root="."):
    return parse_catalog(CATALOG.replace("AXIS", axis).replace("ROOT", str(root)), "market.yaml")


def test_the_buyers_own_columns_are_fine_and_the_sellers_are_refused():
    own = [("order_id",), ("order_id", "buyer")]
    check_ownership(catalog("sales.day"), "sales", own)
    with pytest.raises(CatalogError, match="`seller` leads to rows of `person` that belong to other"):
        check_ownership(catalog("sales.day"), "sales", [*own, ("seller",)])


def test_publishing_refuses_an_axis_over_somebody_elses_rows(tmp_path):
    raw = duckdb.connect()
    raw.execute(f"COPY (SELECT 1 AS order_id, 2 AS seller, 1 AS day) TO '{tmp_path}/s.parquet'")
    raw.execute(f"COPY (SELECT 1 AS order_id, 1 AS buyer, 0 AS kind) TO '{tmp_path}/o.parquet'")
    raw.execute(f"COPY (SELECT i AS id, i AS age FROM range(3) t(i)) TO '{tmp_path}/p.parquet'")
    refused = catalog("seller.age", tmp_path)
    with pytest.raises(CatalogError, match="seller"):
        publish_release(refused, tmp_path / "m.dpsql", noise=ZeroNoise(), key=b"k" * 32)
    assert not (tmp_path / "m.dpsql").exists()


def order_counts(folder, orders):
    """Counted rows of the orders table by kind."""
    text = CATALOG.replace("of: sales, axes: [AXIS]", "of: orders, axes: [orders.kind]").replace("ROOT", str(folder))
    star = parse_catalog(text, "market.yaml")
    raw = open_sources("parquet", folder, star.source.tables)
    values = ", ".join(map(str, orders))
    raw.connection.execute(
        f"CREATE OR REPLACE VIEW raw.orders AS SELECT * FROM (VALUES {values}) t(order_id, buyer, kind)"
    )
    plan = plan_release(star, axis_maker(star, raw))
    set_key(raw.connection, b"k" * 32)
    prepare_tables(star, raw, plan)
    table, _ = place_rows(star, raw, plan, "orders")
    rows = raw.connection.execute(f"SELECT a0, count(*) FROM {table} GROUP BY 1").fetchall()
    counts = np.zeros(6, int)
    counts[[row[0] for row in rows]] = [row[1] for row in rows]
    return counts


def test_a_key_that_two_units_share_moves_only_the_units_own_rows(tmp_path):
    raw = duckdb.connect()
    for name in ("s", "o", "p"):
        raw.execute(
            f"COPY (SELECT 1 AS order_id, 2 AS seller, 1 AS day, 1 AS buyer, 0 AS kind, 1 AS id, 1 AS age) "
            f"TO '{tmp_path}/{name}.parquet'"
        )
    others = [(7, 1, 0), (7, 2, 1), (8, 3, 2)]
    for victim in ([(7, 9, 3)], [(7, 9, 3), (8, 9, 3), (9, 9, 3)]):
        change = order_counts(tmp_path, others + victim) - order_counts(tmp_path, others)
        assert np.abs(change).sum() == min(2, len(victim))
        assert (change >= 0).all()
