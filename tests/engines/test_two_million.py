"""2e6 facts about 2e5 people, counted by each engine under each bound: the same integer in every cell.

`python -m tests.engines` prints the figures. Only what is counted and drawn is compared here; whole releases are in
`test_releases.py`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.engines.catalogs import BOUNDS, catalog, files, measured, server, spark_files
from tests.engines.servers import Server
from tests.engines.star import load_postgres

FACTS, PEOPLE_OF_SHOP = 2_000_000, 200_000
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def by_duckdb(shop: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """DuckDB's integers by bound."""
    return {bound: integers(shop, files(shop), bound, tmp_path_factory.mktemp(bound)) for bound in BOUNDS}


def integers(shop: Path, source: dict[str, Any], bound: str, folder: Path) -> dict[str, Any]:
    """The drawn integers of a release without noise, by statistic."""
    begun = time.perf_counter()
    found = measured(catalog(folder, source, bound), folder / "r.dpsql")
    print(f"{source['kind']}, {bound}: published in {time.perf_counter() - begun:.0f} s")
    return {name: rows for name, rows in found.items() if name.startswith("measurement")}


def compared(engine: str, bound: str, found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Print the figure of an engine under a bound, and fail if a cell differs."""
    every = {(name, row) for name, rows in expected.items() for row in rows}
    equal = every & {(name, row) for name, rows in found.items() for row in rows}
    ok = found == expected and bool(every)
    print(
        f"figure {engine}, {bound}, 2e6 facts: {len(equal)} of {len(every)} integers as DuckDB's (all) "
        f"{'ok' if ok else 'short'}"
    )
    assert ok


@pytest.mark.parametrize("bound", BOUNDS)
def test_postgresql(
    bound: str, shop: Path, postgres: Server, by_duckdb: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL, from a schema with the same rows."""
    schema = f"big_{bound}"
    load_postgres(postgres.dsn, shop, schema)
    monkeypatch.setenv("DPSQL_TEST_DSN", postgres.dsn)
    compared("PostgreSQL", bound, integers(shop, server(schema), bound, tmp_path), by_duckdb[bound])


@pytest.mark.parametrize("bound", BOUNDS)
def test_spark(bound: str, shop: Path, spark: Any, by_duckdb: Any, tmp_path: Path) -> None:
    """Spark, from the same files."""
    compared("Spark", bound, integers(shop, spark_files(shop), bound, tmp_path), by_duckdb[bound])
