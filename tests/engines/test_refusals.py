"""What a server cannot do is refused from the catalog or the schema, before a row is read; what it may read is read."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpsql.central.central import publish_release
from dpsql.engines.registry import kind_of, open_engine
from dpsql.errors import CatalogError, SourceError
from dpsql.noise import ZeroNoise
from tests.engines.catalogs import KEY, catalog, measured, server
from tests.engines.servers import Server

pytestmark = pytest.mark.usefixtures("publishes", "address")

SCHEMA, FACTS = "refused", 2_000


def changed(loaded: Server, *statements: str) -> None:
    """Run statements as the server's owner."""
    import psycopg

    with psycopg.connect(loaded.dsn, autocommit=True) as connection:
        for statement in statements:
            connection.execute(statement)


def publish(folder: Path, source: dict[str, Any], bound: str = "truncate", **sales: Any) -> None:
    """Publish without noise."""
    publish_release(catalog(folder, source, bound, **sales), folder / "r.dpsql", noise=ZeroNoise(), key=KEY)


def test_a_password_in_the_catalog_is_refused(tmp_path: Path) -> None:
    for root in ("host=x password=hunter-2", "postgresql://me:hunter-2@x/shop"):
        with pytest.raises(CatalogError, match="contains a password") as raised:
            catalog(tmp_path, server(SCHEMA) | {"root": root}, "row")
        assert "hunter" not in str(raised.value)


def test_a_select_of_a_public_table_is_refused(tmp_path: Path) -> None:
    source = server(SCHEMA)
    source["tables"]["shop"] = f"SELECT * FROM {SCHEMA}.shop"
    with pytest.raises(CatalogError, match="make a view of it on the server"):
        catalog(tmp_path, source, "row")


def test_a_view_needs_a_word_of_the_curator(loaded: Server, tmp_path: Path) -> None:
    """And with it gives what its table gives."""
    changed(loaded, f"CREATE VIEW {SCHEMA}.seen AS SELECT * FROM {SCHEMA}.sales")
    source = server(SCHEMA)
    source["tables"]["sales"] = f"{SCHEMA}.seen"
    with pytest.raises(SourceError, match="is a view of the database"):
        publish(tmp_path, source)
    vouched = measured(
        catalog(tmp_path / "a", source | {"trusted": True}, "truncate"), tmp_path / "a" / "r.dpsql"
    )
    assert vouched == measured(
        catalog(tmp_path / "b", server(SCHEMA), "truncate"), tmp_path / "b" / "r.dpsql"
    )


def test_text_for_a_decimal_is_refused_from_the_schema(loaded: Server, tmp_path: Path) -> None:
    changed(
        loaded,
        f"CREATE TABLE {SCHEMA}.texts AS SELECT customer_id, product_id, shop_id, CAST(amount AS text) AS amount, "
        f"cost, sold_at, sold_on, channel, loyal FROM {SCHEMA}.sales",
    )
    source = server(SCHEMA)
    source["tables"]["sales"] = f"{SCHEMA}.texts"
    with pytest.raises(SourceError, match=r"VARCHAR cannot be read there as a number"):
        publish(tmp_path, source)


def test_keys_of_two_types_are_refused(loaded: Server, tmp_path: Path) -> None:
    """But whole numbers of any width are one type."""
    changed(
        loaded,
        f"CREATE TABLE {SCHEMA}.named AS SELECT product_id::text AS product_id, price FROM {SCHEMA}.product",
        f"CREATE TABLE {SCHEMA}.short AS SELECT product_id::smallint AS product_id, price FROM {SCHEMA}.product",
    )
    source = server(SCHEMA)
    source["tables"]["product"] = f"{SCHEMA}.named"
    with pytest.raises(SourceError, match="BIGINT, VARCHAR"):
        publish(tmp_path / "a", source)
    source["tables"]["product"] = f"{SCHEMA}.short"
    found = measured(catalog(tmp_path / "b", source, "truncate"), tmp_path / "b" / "r.dpsql")
    assert found == measured(catalog(tmp_path / "c", server(SCHEMA), "truncate"), tmp_path / "c" / "r.dpsql")


def test_a_missing_table_and_a_missing_right(
    loaded: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user who may only read publishes, and one who may not is told the step."""
    source = server(SCHEMA)
    source["tables"]["sales"] = f"{SCHEMA}.nothing"
    with pytest.raises(SourceError, match="has no table"):
        publish(tmp_path / "a", source)
    changed(
        loaded,
        "CREATE ROLE reader LOGIN PASSWORD 'only-reads'",
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO reader",
        f"GRANT SELECT ON {SCHEMA}.customer, {SCHEMA}.product, {SCHEMA}.shop TO reader",
        "REVOKE TEMPORARY ON DATABASE shop FROM PUBLIC",
    )
    dsn = loaded.dsn.replace("user=curator", "user=reader").replace(loaded.password, "only-reads")
    monkeypatch.setenv("DPSQL_TEST_DSN", dsn)
    with pytest.raises(Exception, match=r"PostgreSQL: .* failed \(permission denied\)"):
        publish(tmp_path / "b", server(SCHEMA))
    changed(loaded, f"GRANT SELECT ON {SCHEMA}.sales TO reader")
    publish(tmp_path / "b", server(SCHEMA))


def test_columns_that_mean_something_else_elsewhere(loaded: Server, tmp_path: Path) -> None:
    """CHAR(n), a collation that ignores case, NaN in a NUMERIC, infinite dates and times, a domain, an enumeration."""
    changed(
        loaded,
        f"CREATE COLLATION {SCHEMA}.blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
        f"CREATE DOMAIN {SCHEMA}.money_like AS numeric(12,3)",
        f"CREATE TYPE {SCHEMA}.ways AS ENUM ('web', 'Web', 'phone', 'shop')",
        f"CREATE TABLE {SCHEMA}.odd (customer_id bigint, product_id bigint, shop_id integer, amount real, "
        f"cost {SCHEMA}.money_like, sold_at timestamptz, sold_on date, channel text COLLATE {SCHEMA}.blind, "
        "loyal boolean)",
        f"CREATE TABLE {SCHEMA}.folded (LIKE {SCHEMA}.odd)",
        f"CREATE TABLE {SCHEMA}.plain (LIKE {SCHEMA}.odd)",
        f'ALTER TABLE {SCHEMA}.plain ALTER channel TYPE text COLLATE "C", ALTER cost TYPE numeric(12,3)',
        f"CREATE TABLE {SCHEMA}.padded (LIKE {SCHEMA}.odd)",
        f"ALTER TABLE {SCHEMA}.padded ALTER channel TYPE char(9)",
        f"CREATE TABLE {SCHEMA}.listed (LIKE {SCHEMA}.odd)",
        f"ALTER TABLE {SCHEMA}.listed ALTER channel TYPE {SCHEMA}.ways USING channel::{SCHEMA}.ways",
    )
    rows = (
        "(3, 1, 1, 2.5, {nan}, 'infinity', 'infinity', 'web', true), "
        "(3, 1, 1, 4.35, 1, '-infinity', '-infinity', '{web}', false), "
        "(3, 1, 1, 'NaN', -1.005, '2025-01-01 00:00:00+02', '2025-01-01', 'phone', null)"
    )
    stores = ("plain", "folded", "odd", "padded", "listed")
    for store in stores:
        web, nan = ("web" if store == "folded" else "Web"), ("null" if store == "plain" else "'NaN'")
        changed(loaded, f"INSERT INTO {SCHEMA}.{store} VALUES {rows.format(web=web, nan=nan)}")
    found = {}
    for store in stores:
        source = server(SCHEMA)
        source["tables"]["sales"] = f"{SCHEMA}.{store}"
        shop = catalog(tmp_path / store, source, "row")
        with closing(open_engine(shop)) as engine:
            assert kind_of(engine, "sales", "channel") == "VARCHAR"
            assert kind_of(engine, "sales", "cost") == "DECIMAL(12,3)"
        found[store] = measured(shop, tmp_path / store / "r.dpsql")
    assert found["plain"] == found["odd"] == found["padded"] == found["listed"]
    assert found["plain"] != found["folded"]
