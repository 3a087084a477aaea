"""Facts about people: each engine gives what plain Python gives, whatever the order of storage, and to her alone."""

from __future__ import annotations

from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.catalog import Catalog, parse_catalog
from dpsql.catalog.base import EPOCH
from dpsql.engines import summaries as lines
from dpsql.engines.registry import Engine, open_engine, open_star
from tests.engines.servers import Server, copied, new_schema
from tests.releases import insert
from tests.summary_star import NAMES, SCHEMA, Rows, catalog_text, made_up, stored, summaries, write_parquet

pytestmark = pytest.mark.long


def expected(catalog: Catalog, rows: Rows) -> dict[int, tuple[Any, ...]]:
    """Each person's values within bounds, by plain Python."""
    specs = catalog.tables["customer"].summaries

    def within(name: str, value: Any) -> Any:
        spec = specs[name]
        if value is None or not spec.ordered:
            return value
        units = (value - EPOCH).days if isinstance(value, date) else value
        margin = 0 if spec.out_of_domain.nearest else 1
        return min(max(units, spec.bounds[0] - margin), spec.bounds[1] + margin)

    people = {row["customer_id"] for row in rows["customer"]}
    return {key: tuple(within(n, v) for n, v in summaries(rows, key).items()) for key in people}


def statement(catalog: Catalog, engine: Engine) -> str:
    quoted = engine.dialect.identifier
    columns = ", ".join(quoted(name) for name in ("customer_id", *NAMES))
    return f"SELECT {columns} FROM {engine.rows(catalog, 'customer')} AS p"


def by_duckdb(folder: Path, threads: int = 1) -> tuple[Catalog, dict[int, tuple[Any, ...]]]:
    catalog = parse_catalog(catalog_text(folder))
    with closing(open_star(catalog)) as raw:
        raw.connection.execute(f"SET threads = {threads}")
        fetched = raw.connection.execute(statement(catalog, raw)).fetchall()
    people: dict[int, tuple[Any, ...]] = {}
    for key, *values in fetched:
        assert people.setdefault(key, tuple(values)) == tuple(values)  # one who stands twice has equal lines
    return catalog, people


@pytest.mark.parametrize(("order", "threads"), [(0, 1), (1, 4), (2, 1), (3, 4)])
def test_duckdb_gives_what_python_gives(order: int, threads: int, tmp_path: Path) -> None:
    rows = made_up(order % 2)
    catalog, found = by_duckdb(write_parquet(tmp_path, rows, order), threads)
    assert found == expected(catalog, rows)
    assert max(len(set(column)) for column in zip(*found.values(), strict=True)) > 5


def by_engine(catalog: Catalog) -> dict[Any, tuple[Any, ...]]:
    """Each person's values, by the engine of the catalog's source."""
    with closing(open_engine(catalog)) as engine:
        fetched = engine._session.rows(statement(catalog, engine), "a test")  # type: ignore[attr-defined]
    return {key: tuple(values) for key, *values in fetched}


def test_postgresql_gives_what_python_gives(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import psycopg

    rows = made_up(0)
    with psycopg.connect(postgres.dsn) as connection:
        connection.execute(new_schema("summed"))
        for table, columns in SCHEMA.items():
            kinds = {"VARCHAR": 'text COLLATE "en-x-icu"', "DECIMAL(18,2)": "numeric(18,2)"}
            listed = ", ".join(f"{name} {kinds.get(kind, kind)}" for name, kind in columns.items())
            connection.execute(f"CREATE TABLE summed.{table} ({listed})")
            marks = ", ".join(["%s"] * len(columns))
            connection.cursor().executemany(
                f"INSERT INTO summed.{table} VALUES ({marks})",
                [tuple(stored(name, row[name]) for name in columns) for row in rows[table]],
            )
    monkeypatch.setenv("DPSQL_TEST_DSN", postgres.dsn)
    tables = ", ".join(f"{table}: summed.{table}" for table in SCHEMA)
    source = f'{{kind: postgresql, root: "${{DPSQL_TEST_DSN}}", tables: {{{tables}}}}}'
    catalog = parse_catalog(catalog_text(tmp_path, source))
    assert by_engine(catalog) == expected(catalog, rows)


def test_spark_gives_what_python_gives(spark: Any, tmp_path: Path) -> None:
    rows = made_up(0)
    folder = write_parquet(tmp_path, rows)
    tables = ", ".join(f"{table}: {folder / table}.parquet" for table in SCHEMA)
    catalog = parse_catalog(catalog_text(tmp_path, f"{{kind: spark, tables: {{{tables}}}}}"))
    assert by_engine(catalog) == expected(catalog, rows)


def test_clickhouse_gives_what_python_gives(clickhouse: Path, tmp_path: Path) -> None:
    rows = made_up(0)
    folder = write_parquet(tmp_path, rows)
    copied(clickhouse, "summed", {table: folder / f"{table}.parquet" for table in SCHEMA})
    tables = ", ".join(f"{table}: summed.{table}" for table in SCHEMA)
    catalog = parse_catalog(
        catalog_text(tmp_path, f"{{kind: clickhouse, root: {clickhouse}, tables: {{{tables}}}}}")
    )
    assert by_engine(catalog) == expected(catalog, rows)


SHOP = """\
dpsql: 1
name: shop
source: {kind: KIND, root: ROOT, tables: {customer: customer.KIND, sales: sales.KIND}}
privacy: {lineage: p, cap: 4, unit: customer.id, epsilon: 1}
tables:
  customer: {role: dimension, key: id, columns: {gap: {type: int, lower: 0, upper: 99, nullable: true}},
    derive: {gap: "date_diff('day', first, second)"}, summaries: {
    first: {of: sales, is: min(day), type: date}, second: {of: sales, is: "nth(day, 2)", type: date},
    worth: {of: sales, is: sum(price * pieces), type: decimal, scale: 2, lower: 0, upper: 100},
    soon: {of: sales,
      is: "count(*) FILTER (WHERE date_diff('day', first, day) BETWEEN 1 AND 3)", type: int, lower: 0, upper: 9}}}
  sales: {role: fact, max_ids: 3, foreign_keys: {id: customer}, columns: {
    day: {type: date}, price: {type: decimal}, pieces: {type: int}}}
views:
  gaps: {of: customer, axes: [customer.gap, customer.soon, customer.worth], measures: [count]}
"""


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_derived_columns_and_expressions(kind: str, tmp_path: Path) -> None:
    """Text of CSV and doubles of Parquet are read as the declared types, row by row, before anything is added."""
    with duckdb.connect() as connection:
        connection.execute("CREATE TABLE customer AS SELECT unnest([1, 2, 3]) AS id")
        rows = [
            (1, "2025-01-05", "1.005", 2), (1, "2025-01-07", "0.1", 3), (1, None, "nan", 1), (2, "2025-01-01", "5", 1),
            (1, "2025-01-05", "0.2", 1),
        ]  # fmt: skip
        connection.execute("CREATE TABLE sales (id BIGINT, day DATE, price DOUBLE, pieces BIGINT)")
        insert(connection, "sales", rows)
        for table in ("customer", "sales"):
            connection.execute(f"COPY {table} TO '{tmp_path / table}.{kind}'")
    catalog = parse_catalog(SHOP.replace("KIND", kind).replace("ROOT", str(tmp_path)))
    with closing(open_star(catalog)) as raw:
        fetched = raw.connection.execute(
            f"SELECT id, gap, soon, worth FROM {raw.rows(catalog, 'customer')} ORDER BY id"
        ).fetchall()
    # the text is read as the declared 1.01, the double is multiplied as it is
    worth = 252 if kind == "csv" else 251
    assert [(int(key), *values) for key, *values in fetched] == [
        (1, 0, 1, worth),
        (2, None, 0, 500),
        (3, None, 0, 0),
    ]


DEFECTS = {
    "a sum of floats": ("sum(x", "sum(1.0::DOUBLE * x"),
    "a mode of the greatest among equals": ("SELECT k, min(v) AS v", "SELECT k, max(v) AS v"),
    "an inner join": ("LEFT JOIN person", "JOIN person"),
    "equal values counted once": ("FROM (SELECT k, x", "FROM (SELECT DISTINCT k, x"),
    "texts without their case": ("CAST(c0 AS VARCHAR)", "lower(CAST(c0 AS VARCHAR))"),
    "rows read after bounding": (
        'FROM raw."line" AS r ',
        'FROM (SELECT * FROM raw."line" QUALIFY row_number() OVER (PARTITION BY order_id ORDER BY pieces) <= 3) AS r ',
    ),
    "out of the domain beyond the bounds": (
        "least(greatest(coalesce(person0.v0, 0), 0), 9)",
        "CASE WHEN coalesce(person0.v0, 0) <= 9 THEN coalesce(person0.v0, 0) ELSE 10 END",
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_planted_defects_are_found(defect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values differ from plain Python's."""
    rows, (old, new) = made_up(1), DEFECTS[defect]
    made = lines.people_rows

    def planted(*given: Any) -> str:
        text = made(*given)
        assert old in text
        return text.replace(old, new)

    monkeypatch.setattr("dpsql.engines.duck.people_rows", planted)
    catalog, values = by_duckdb(write_parquet(tmp_path, rows))
    assert values != expected(catalog, rows)


def spelled(folder: Path, rows: Rows) -> Path:
    """The same rows, where orders spell a person's key in three ways."""
    write_parquet(folder, rows)
    orders = folder / "orders.parquet"
    key = "CAST(customer_id AS VARCHAR)"
    spelling = f"CASE order_id % 3 WHEN 0 THEN '00' || {key} WHEN 1 THEN {key} || '.0' ELSE {key} END"
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE o AS SELECT * REPLACE ({spelling} AS customer_id) FROM '{orders}'")
        connection.execute(f"COPY o TO '{orders}'")
    return folder


def test_a_key_is_its_value_however_it_is_spelled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: rows grouped by the key as the file spells it."""
    rows = made_up(1)
    folder = spelled(tmp_path, rows)
    _, values = by_duckdb(folder)
    wanted = expected(parse_catalog(catalog_text(folder)), rows)
    assert {int(key): value for key, value in values.items()} == wanted
    made = lines.people_rows
    raw = f"read_parquet('{folder / 'orders.parquet'}')"
    monkeypatch.setattr(
        "dpsql.engines.duck.people_rows", lambda *given: made(*given).replace('raw."orders"', raw)
    )
    try:
        _, planted = by_duckdb(folder)
    except AssertionError:  # one who stands once has two lines
        return
    assert {int(key): value for key, value in planted.items()} != wanted
