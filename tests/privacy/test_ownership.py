"""A private row moves its own unit's counted rows and nobody else's: other catalogs are refused when they are loaded.

Each refused catalog is also published with the check put aside, on neighbours aimed at it, and breaks its claim.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.catalog import checks, parse_catalog
from dpsql.catalog.source import PARQUET
from dpsql.central.axes import axis_maker
from dpsql.central.placed_rows import place_rows, prepare_tables
from dpsql.central.plan import plan_release
from dpsql.engines import open_sources
from dpsql.errors import CatalogError
from tests.privacy.loss import measure
from tests.privacy.owned_stars import BOUGHT, REFUSED, buyer_of_everything, crowd, market, returned, without


@pytest.mark.parametrize("name", REFUSED)
def test_a_catalog_that_breaks_its_claim_is_refused_when_loaded(name: str, tmp_path: Path, monkeypatch):
    case = REFUSED[name]
    with pytest.raises(CatalogError, match=case.reason):
        parse_catalog(case.catalog, "market.yaml")
    monkeypatch.setattr(checks, "check_owners", lambda catalog: None)
    assert measure(case.catalog, case.left, case.right, tmp_path).share > 10


def test_a_sellers_columns_are_refused_where_the_unit_is_the_buyer():
    keys = "sales: {role: fact, foreign_keys: {"
    text = market("sales by seller.age").replace(keys, keys + "seller: person, ")
    with pytest.raises(
        CatalogError, match=r"views.v0.axes: .*`seller` leads to rows of `person` that belong to other"
    ):
        parse_catalog(text, "market.yaml")
    parse_catalog(text.replace("[seller.age]", "[order_id.buyer.age]"), "market.yaml")


@pytest.mark.parametrize(
    "catalog",
    [
        market("sales by orders.kind", "sales by sales.day", unit="row"),
        market("sales by sales.day", "orders by orders.kind", unit="row"),
    ],
)
def test_a_row_of_a_counted_table_costs_its_claim_at_most(tmp_path: Path, catalog: str):
    loss = measure(catalog, crowd(), without(crowd(), "sales", 3), tmp_path)
    assert 0 < loss.share <= 1


def test_with_one_owner_everywhere_a_buyer_of_everything_moves_her_own_rows(tmp_path: Path):
    catalog = market("sales by orders.kind", "returns by orders.kind", "orders by orders.kind", orders=BOUGHT)
    loss = measure(catalog, buyer_of_everything(returned(crowd())), returned(crowd()), tmp_path)
    assert 0 < loss.share <= 1


def order_counts(folder, orders):
    """Counted rows of the orders table by kind."""
    star = parse_catalog(
        market("orders by orders.kind", orders=BOUGHT).replace("ROOT", str(folder)),
        "m.yaml",
    )
    raw = open_sources(PARQUET, folder, star.source.tables)
    values = ", ".join(map(str, orders))
    raw.connection.execute(
        f"CREATE OR REPLACE VIEW raw.orders AS SELECT *, 0 AS seller FROM (VALUES {values}) o(order_id, buyer, kind)"
    )
    plan = plan_release(star, axis_maker(star, raw))
    prepare_tables(star, raw, plan)
    table, _ = place_rows(star, raw, plan, "orders", bytes(32))
    rows = raw.connection.execute(f"SELECT a0, count(*) FROM {table} GROUP BY 1").fetchall()
    counts = np.zeros(6, int)
    counts[[row[0] for row in rows]] = [row[1] for row in rows]
    return counts


def test_a_key_that_two_units_share_moves_only_the_units_own_rows(tmp_path):
    raw = duckdb.connect()
    for name in ("sales", "returns", "orders", "person"):
        raw.execute(
            f"COPY (SELECT 1 AS order_id, 2 AS seller, 1 AS day, 1 AS buyer, 0 AS kind, 1 AS id, 1 AS age) "
            f"TO '{tmp_path}/{name}.parquet'"
        )
    others = [(7, 1, 0), (7, 2, 1), (8, 3, 2)]
    for victim in ([(7, 9, 3)], [(7, 9, 3), (8, 9, 3), (9, 9, 3)]):
        change = order_counts(tmp_path, others + victim) - order_counts(tmp_path, others)
        assert np.abs(change).sum() == min(2, len(victim))
        assert (change >= 0).all()
