"""`dpsql init` reads a PostgreSQL copy of a star as it reads the files: the same keys, people, columns and views."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from benchmarks.figures import Figures
from dpsql import api
from dpsql.curate.draft.drafting import leave_open
from dpsql.curate.init import draft_from_source
from dpsql.star import load_catalog
from tests.curate.test_init import SHOP, TABLES
from tests.engines.servers import Server

TYPES = {"HUGEINT": "bigint", "BIGINT": "bigint", "INTEGER": "integer", "DOUBLE": "double precision", "VARCHAR": "text",
         "DATE": "date"}  # fmt: skip


def load(dsn: str, schema: str) -> None:
    """The shop in a schema of its own."""
    import psycopg

    with psycopg.connect(dsn) as server, duckdb.connect() as source:
        source.execute(SHOP)
        server.execute(f"CREATE SCHEMA {schema}")
        for table in TABLES:
            columns = [
                (row[0], TYPES.get(row[1], "numeric(18,2)"))
                for row in source.execute(f"DESCRIBE {table}").fetchall()
            ]
            server.execute(f"CREATE TABLE {schema}.{table} ({', '.join(f'{n} {t}' for n, t in columns)})")
            with server.cursor().copy(f"COPY {schema}.{table} FROM STDIN") as copy:
                for row in source.execute(f"SELECT * FROM {table}").fetchall():
                    copy.write_row(row)


def test_a_postgresql_copy_is_drafted_alike(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(postgres.dsn, "drafted")
    address = f"postgresql://curator:{postgres.password}@/shop?host={postgres.folder}&options=-csearch_path%3Ddrafted"
    made = draft_from_source(address, tmp_path / "served.yaml", "shop", leave_open)
    assert postgres.password not in made.text and "${DPSQL_SOURCE}" in made.text
    with duckdb.connect(str(tmp_path / "shop.duckdb")) as connection:
        connection.execute(SHOP)
    draft_from_source(tmp_path / "shop.duckdb", tmp_path / "stored.yaml", "shop", leave_open)
    served, stored = (load_catalog(tmp_path / f"{name}.yaml") for name in ("served", "stored"))
    alike = served.tables == stored.tables and served.privacy == stored.privacy
    Figures().at_least("draft-of-a-postgresql-copy-alike", float(alike), 1)
    assert alike
    monkeypatch.setenv("DPSQL_SOURCE", address)
    assert api.plan(tmp_path / "served.yaml").statistics
