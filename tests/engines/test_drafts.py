"""`dpsql init` reads a PostgreSQL copy of a star as it reads the files: the same keys, people, columns and views."""

from __future__ import annotations

import os
import re
from pathlib import Path

import duckdb
import pytest

from benchmarks.figures import Figures
from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.curator.draft import draft_from_source, leave_open
from dpsql.row_expressions import identifier
from tests.curator.test_init import SHOP
from tests.engines.servers import Server, new_schema
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

TYPES = {"HUGEINT": "bigint", "BIGINT": "bigint", "INTEGER": "integer", "SMALLINT": "smallint", "BOOLEAN": "boolean",
         "DOUBLE": "double precision", "VARCHAR": "text", "DATE": "date", "TIMESTAMP": "timestamp",
         "UUID": "uuid"}  # fmt: skip
CLINIC = """
CREATE TABLE patients AS SELECT md5('p' || i)::UUID AS patient_id, i % 90 AS age, i % 7 = 0 AS smokes
    FROM range(400) t(i);
CREATE TABLE visits AS SELECT md5('v' || i)::UUID AS visit_id, md5('p' || i % 400)::UUID AS patient_id, i % 9 AS ward
    FROM range(1500) t(i);
CREATE TABLE calls AS SELECT md5('c' || i)::UUID AS call_id, md5('p' || i % 400)::UUID::VARCHAR AS patient_id,
    i % 3 AS line FROM range(900) t(i);
"""
"""Keys of the type UUID, one foreign key among them as text."""
MADE = {"shop": SHOP, "clinic": CLINIC}
STARS = (*MADE, "northwind", "chinook")
"""The first two are made up; the others are real stars of $DPSQL_DATA."""


def stored_copy(star: str, file: Path) -> None:
    """A star as a DuckDB file."""
    with duckdb.connect(str(file)) as connection:
        if star in MADE:
            connection.execute(MADE[star])
            return
        for parquet in sorted((Path(os.environ["DPSQL_DATA"]) / star).glob("*.parquet")):
            connection.execute(f"CREATE TABLE {identifier(parquet.stem)} AS SELECT * FROM '{parquet}'")


def load(dsn: str, schema: str, file: Path) -> None:
    """A DuckDB file in a schema of its own."""
    import psycopg

    with psycopg.connect(dsn) as server, duckdb.connect(str(file), read_only=True) as source:
        server.execute(new_schema(schema))
        for (table,) in source.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall():
            name = identifier(table)
            described = source.execute(f"DESCRIBE {name}").fetchall()
            columns = ", ".join(f"{identifier(row[0])} {_type(row[1])}" for row in described)
            server.execute(f"CREATE TABLE {schema}.{name} ({columns})")
            with server.cursor().copy(f"COPY {schema}.{name} FROM STDIN") as copy:
                for row in source.execute(f"SELECT * FROM {name}").fetchall():
                    copy.write_row(row)


def _type(kind: str) -> str:
    """DuckDB's type as PostgreSQL writes it."""
    return re.sub("^DECIMAL", "numeric", kind) if kind.startswith("DECIMAL") else TYPES[kind]


@pytest.mark.parametrize("star", by_default(STARS, 1))
def test_a_postgresql_copy_is_drafted_alike(
    star: str, postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if star not in MADE and not os.environ.get("DPSQL_DATA"):
        pytest.skip("set DPSQL_DATA to the folder of real stars")
    schema, file = f"drafted_{star}", tmp_path / f"{star}.duckdb"
    stored_copy(star, file)
    load(postgres.dsn, schema, file)
    address = f"postgresql://curator:{postgres.password}@/shop?host={postgres.folder}&options=-csearch_path%3D{schema}"
    made = draft_from_source(address, tmp_path / "served.yaml", star, leave_open)
    assert postgres.password not in made.text and "${DPSQL_SOURCE}" in made.text
    draft_from_source(file, tmp_path / "stored.yaml", star, leave_open)
    served, stored = (load_catalog(tmp_path / f"{name}.yaml") for name in ("served", "stored"))
    alike = served.tables == stored.tables and served.privacy == stored.privacy
    Figures().at_least(f"draft-of-a-postgresql-copy-alike, {star}", float(alike), 1)
    assert alike
    monkeypatch.setenv("DPSQL_SOURCE", address)
    assert api.plan(tmp_path / "served.yaml").statistics
