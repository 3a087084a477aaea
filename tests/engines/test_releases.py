"""One release of the shop by each engine: without noise and with a fixed key, the same integers everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engines.catalogs import BOUNDS, catalog, clickhouse_tables, files, measured, server, spark_files
from tests.engines.servers import Server, new_schema
from tests.engines.star import load_clickhouse
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

FACTS = 20_000
SCHEMA = "releases"


@pytest.fixture(scope="module")
def by_duckdb(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """DuckDB's releases by bound."""
    folders = {bound: tmp_path_factory.mktemp(bound) for bound in BOUNDS}
    return {bound: measured(catalog(f, files(shop), bound), f / "r.dpsql") for bound, f in folders.items()}


def test_bounds_differ(by_duckdb: dict[str, dict[str, Any]]) -> None:
    """The three bounds count different rows; equal releases below are not equal for being empty."""
    counts = [by_duckdb[bound]["measurement_0"] for bound in BOUNDS]
    assert all(sum(abs(value) for *_, value in rows) > 1000 for rows in counts)
    assert counts[0] != counts[1] != counts[2] != counts[0]


@pytest.mark.parametrize("bound", BOUNDS)
def test_statements_of_few_groups_count_alike(
    bound: str, shop: Path, by_duckdb: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many views are counted by several statements: two hundred in one took more memory than is allowed."""
    monkeypatch.setattr("dpsql.engines.duck.StoredRelations.MOST_GROUPS", 1)
    assert measured(catalog(tmp_path, files(shop), bound), tmp_path / "r.dpsql") == by_duckdb[bound]


@pytest.mark.usefixtures("address")
@pytest.mark.parametrize("bound", by_default(BOUNDS, 3))
def test_postgresql_counts_alike(bound: str, by_duckdb: dict[str, Any], tmp_path: Path) -> None:
    """Every stored integer and estimate is that of DuckDB."""
    assert measured(catalog(tmp_path, server(SCHEMA), bound), tmp_path / "r.dpsql") == by_duckdb[bound]


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("engine", ["spark", "clickhouse"])
def test_other_engines_count_alike(
    engine: str,
    bound: str,
    shop: Path,
    by_duckdb: dict[str, Any],
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """Every stored integer and estimate is that of DuckDB."""
    there, source = request.getfixturevalue(engine), spark_files(shop)
    if engine == "clickhouse":
        load_clickhouse(there, shop, SCHEMA)
        source = clickhouse_tables(there, SCHEMA)
    assert measured(catalog(tmp_path, source, bound), tmp_path / "r.dpsql") == by_duckdb[bound]


@pytest.mark.usefixtures("address")
def test_the_order_of_storage_changes_nothing(
    loaded: Server, by_duckdb: dict[str, Any], tmp_path: Path
) -> None:
    """Shuffled tables give the same rows of each unit."""
    import psycopg

    with psycopg.connect(loaded.dsn) as connection:
        connection.execute(new_schema("shuffled"))
        for table in ("customer", "product", "shop", "sales"):
            connection.execute(
                f"CREATE TABLE shuffled.{table} AS SELECT * FROM {SCHEMA}.{table} ORDER BY random()"
            )
    found = measured(catalog(tmp_path, server("shuffled"), "truncate"), tmp_path / "r.dpsql")
    assert found == by_duckdb["truncate"]
