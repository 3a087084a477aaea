"""A shop whose values are hard to place alike on three engines, as Parquet files, and in PostgreSQL.

NaN, both infinities, -0.0, 1e300, NULLs, keys that name nobody, `Web`, `web ` and accents, halves that round, zoned
times near midnight, negative ids and both ends of 64 bits, a private key that stands many times (`shop.sql`).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb

from tests.engines.servers import new_schema, run_clickhouse

TABLES = ("customer", "product", "shop", "sales")
PEOPLE = 500
WORDS = ["web", "Web", "web ", " web", "café", "cafe", "CAFÉ", "it's", "a\\b", "${x}", "phone", "", "shop"]

POSTGRES = {
    "customer": "customer_id bigint, age float8, region text",
    "product": "product_id bigint, price numeric(9,2)",
    "shop": "shop_id integer, city varchar(20)",
    "sales": "customer_id bigint, product_id bigint, shop_id integer, amount float8, cost numeric(12,3), "
    "sold_at timestamptz, sold_on date, channel text, loyal boolean",
}

CLICKHOUSE = {
    "customer": "customer_id Nullable(Int64), age Nullable(Float64), region LowCardinality(Nullable(String))",
    "product": "product_id Nullable(Int64), price Nullable(Decimal(9, 2))",
    "shop": "shop_id Int32, city String",
    "sales": "customer_id Nullable(Int64), product_id Nullable(Int64), shop_id Nullable(Int32), "
    "amount Nullable(Float64), cost Nullable(Decimal(12, 3)), sold_at Nullable(DateTime64(6, 'Europe/Berlin')), "
    "sold_on Nullable(Date32), channel Nullable(String), loyal Nullable(Bool)",
}


def build(folder: Path, facts: int, people: int = PEOPLE) -> Path:
    """Write the tables as Parquet files below a folder."""
    text = Path(__file__).with_name("shop.sql").read_text()
    with duckdb.connect() as connection:
        for statement in text.replace("<people>", str(people)).replace("<facts>", str(facts)).split(";\n"):
            connection.execute(statement)
        for table in TABLES:
            connection.execute(f"COPY {table} TO '{folder / table}.parquet' (FORMAT parquet)")
    return folder


def load_postgres(dsn: str, folder: Path, schema: str) -> None:
    """Copy the files into a schema of their own."""
    import psycopg

    with psycopg.connect(dsn) as server, duckdb.connect() as files:
        server.execute(new_schema(schema))
        files.execute("SET TimeZone = 'UTC'")
        for table, columns in POSTGRES.items():
            server.execute(f"CREATE TABLE {schema}.{table} ({columns})")
            rows = folder / f"{schema} {table}.csv"
            files.execute(
                f"COPY (FROM '{folder / table}.parquet') TO '{rows}' (HEADER false, NULLSTR '~null~')"
            )
            into = f"COPY {schema}.{table} FROM STDIN (FORMAT csv, NULL '~null~')"
            with server.cursor().copy(into) as copy, rows.open("rb") as text:
                while block := text.read(1 << 20):
                    copy.write(block)
            rows.unlink()


def load_clickhouse(root: Path, folder: Path, database: str) -> None:
    """Copy the files into a database of their own."""
    statements = [f"DROP DATABASE IF EXISTS {database}", f"CREATE DATABASE {database}"]
    for table, columns in CLICKHOUSE.items():
        statements.append(f"CREATE TABLE {database}.{table} ({columns}) ENGINE = MergeTree ORDER BY ()")
        rows = f"SELECT * FROM file('{folder / table}.parquet', Parquet)"
        statements.append(f"INSERT INTO {database}.{table} {rows}")
    run_clickhouse(root, *statements)


def values(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a table as Python sees them; an instant is its wall clock in UTC."""
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        instants = " REPLACE (sold_at::TIMESTAMP AS sold_at)" if table == "sales" else ""
        found = connection.execute(f"SELECT *{instants} FROM '{folder / table}.parquet'")
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
