"""`derive`, `expr` and SELECTs over servers: without noise and with a fixed key, the same integers as from files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dpsql.catalog import Catalog, load_catalog
from dpsql.errors import CatalogError, SourceError
from tests.engines.catalogs import files, measured, server, spark_files
from tests.engines.servers import Server
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

SCHEMA, FACTS = "derived", 6_000
SELECT = (
    "SELECT customer_id, shop_id, cost, channel, loyal, sold_on, sold_at, amount, "
    "CASE WHEN cost > 0 THEN shop_id END AS sold_in FROM {} AS s WHERE sold_on >= '2025-01-01' AND NOT channel = 'shop'"
)
DERIVE = {
    "weekday": "isodow(sold_on)",
    "hour": "EXTRACT(hour FROM sold_at)",
    "kind": "CASE WHEN channel LIKE 'w%' THEN 'web' WHEN channel IS NULL THEN 'none' ELSE left(channel, 2) END",
    "large": "abs(cost) > 900.5 OR amount >= 499.99",
    "squared": "shop_id * shop_id",
    "shifted": "squared * 2 - 40",
}
MEASURES = {
    "paid": {"expr": "coalesce(cost, 0) * 3", "lower": -900, "upper": 2500},
    "wide": {"expr": "customer_id * CAST(cost AS DECIMAL(18,3))", "lower": -1000, "upper": 1000, "scale": 1},
    "days": {"expr": "sold_on - DATE '2025-01-01'", "lower": 0, "upper": 200, "scale": 0},
}


TEXT = """
dpsql: 1
name: shop
privacy: {lineage: derived, cap: 4, unit: customer.customer_id, neighbours: add_remove, epsilon: 1}
tables:
  customer: {role: dimension, key: customer_id, private: true, derive: {old: age >= 65}, columns: {
    age: {type: decimal, scale: 2}, old: {type: bool, nullable: true}}}
  sales: {role: fact, foreign_keys: {customer_id: customer}, max_ids: 4, columns: {
    shop_id: {type: int}, sold_in: {type: int, lower: 0, upper: 12}, cost: {type: decimal, scale: 3},
    channel: {type: string}, loyal: {type: bool}, amount: {type: decimal, scale: 2}, customer_id: {type: int},
    sold_on: {type: date}, sold_at: {type: timestamp, grain: minute},
    weekday: {type: int, lower: 1, upper: 7, nullable: true}, hour: {type: int, lower: 0, upper: 23},
    kind: {type: string, categories: [web, none, ph, ca, CA, ""]}, large: {type: bool, nullable: true},
    squared: {type: int}, shifted: {type: int, lower: -40, upper: 200, cuts: {width: 20}}}}
views:
  times: {of: sales, axes: [sales.weekday, sales.hour], measures: [count, sales.paid]}
  kinds: {of: sales, axes: [sales.kind, sales.large, customer.old], measures: [count, sales.days, sales.wide]}
  shops: {of: sales, axes: [sales.shifted, sales.sold_in], measures: [count]}
"""


def shop_catalog(folder: Path, source: dict[str, Any], **changed: Any) -> Catalog:
    """A catalog whose views are of derived columns alone; `changed` are keys of its fact table."""
    written = yaml.safe_load(TEXT) | {"source": source}
    written["tables"]["sales"] |= {"derive": DERIVE, "measures": MEASURES, **changed}
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "shop.yaml"
    file.write_text(yaml.safe_dump(written, allow_unicode=True, sort_keys=False))
    return load_catalog(file)


def selected(source: dict[str, Any], place: str) -> dict[str, Any]:
    """A source whose sales are a SELECT."""
    return source | {"tables": {"customer": source["tables"]["customer"], "sales": SELECT.format(place)}}


@pytest.fixture(scope="module")
def by_duckdb(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    target = tmp_path_factory.mktemp("duckdb")
    return measured(shop_catalog(target, selected(files(shop), "'sales.parquet'")), target / "r.dpsql")


def test_there_is_something_to_compare(by_duckdb: dict[str, Any]) -> None:
    for n in range(3):
        assert sum(abs(value) > 0 for *_, value in by_duckdb[f"node_combination_{n}"]) > 10


@pytest.mark.usefixtures("address")
def test_postgresql_counts_alike(by_duckdb: dict[str, Any], tmp_path: Path) -> None:
    source = selected(server(SCHEMA), f"{SCHEMA}.sales")
    assert measured(shop_catalog(tmp_path, source), tmp_path / "r.dpsql") == by_duckdb


def test_spark_counts_alike(by_duckdb: dict[str, Any], shop: Path, spark: Any, tmp_path: Path) -> None:
    spark.read.parquet(str(shop / "sales.parquet")).createOrReplaceGlobalTempView("sales_of_a_shop")
    source = spark_files(shop)
    source["tables"] = {
        "customer": source["tables"]["customer"],
        "sales": SELECT.format("global_temp.sales_of_a_shop"),
    }
    source["trusted"] = True  # a view of this test; the SELECT over it is checked all the same
    assert measured(shop_catalog(tmp_path, source), tmp_path / "r.dpsql") == by_duckdb


@pytest.mark.parametrize("changed", [
    {"derive": DERIVE | {"kind": "lower(channel)"}}, {"derive": DERIVE | {"hour": "CAST(channel AS INTEGER)"}},
    {"measures": MEASURES | {"paid": {"expr": "cost / 2", "lower": 0, "upper": 9}}},
    {"derive": DERIVE | {"large": "regexp_matches(channel, 'a+')"}},
])  # fmt: skip
def test_what_is_not_total_is_refused_when_the_catalog_is_loaded(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    """On a server; files take it."""
    with pytest.raises(CatalogError, match=r"tables\.sales\.(derive|measures)\..* is not for a server"):
        shop_catalog(tmp_path, selected(server(SCHEMA), f"{SCHEMA}.sales"), **changed)
    shop_catalog(tmp_path, selected(files(tmp_path), "'sales.parquet'"), **changed)


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize(("old", "new", "reason"), by_default([
    ("loyal,", "upper(channel) AS loyal,", "is not for a server"),
    ("customer_id,", "customer_id + 0 AS customer_id,", "is computed"),
    ("cost,", "loyal AS cost,", "not for a server|no BOOLEAN is a value"),
    ("'2025-01-01'", "'soon'", "write dates as"),
], 2))  # fmt: skip
def test_selects_that_are_refused_by_the_schema(old: str, new: str, reason: str, tmp_path: Path) -> None:
    source = selected(server(SCHEMA), f"{SCHEMA}.sales")
    source["tables"]["sales"] = source["tables"]["sales"].replace(old, new, 1)
    with pytest.raises(SourceError, match=reason):
        measured(shop_catalog(tmp_path, source), tmp_path / "r.dpsql")


def test_selects_that_are_refused_by_their_shape(tmp_path: Path) -> None:
    source = selected(server(SCHEMA), f"{SCHEMA}.sales")
    for sql, reason in (
        (f"SELECT DISTINCT * FROM {SCHEMA}.sales", "DISTINCT"),
        (f"SELECT *, row_number() OVER () AS n FROM {SCHEMA}.sales", "is not on the list|WINDOW|OVER"),
        (f"SELECT * FROM {SCHEMA}.sales LIMIT 5", "LIMIT"),
    ):
        source["tables"]["sales"] = sql
        with pytest.raises(CatalogError, match=reason):
            shop_catalog(tmp_path, source)


@pytest.mark.usefixtures("address")
def test_no_row_stops_a_publish(loaded: Server, tmp_path: Path) -> None:
    """Ends of every type in one row."""
    import psycopg

    with psycopg.connect(loaded.dsn, autocommit=True) as connection:
        connection.execute(f"CREATE TABLE {SCHEMA}.ends (LIKE {SCHEMA}.sales)")
        for sign in ("-", ""):
            connection.execute(
                f"INSERT INTO {SCHEMA}.ends VALUES ({sign}9223372036854775807, NULL, {sign}2147483647, "
                f"'{sign}Infinity', {sign}999999999.999, '{sign}infinity', '{sign}infinity', "
                "repeat('é', 100000), true), "
                f"(NULL, NULL, NULL, 'NaN', NULL, NULL, NULL, '', NULL)"
            )
    source = selected(server(SCHEMA), f"{SCHEMA}.ends")
    source["tables"]["sales"] = f"SELECT *, shop_id AS sold_in FROM {SCHEMA}.ends"
    measured(shop_catalog(tmp_path, source), tmp_path / "r.dpsql")
