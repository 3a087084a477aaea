"""Total expressions have the same value in every engine, on rows that engines like to treat differently."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.engines.dialect import DUCK, Dialect
from dpsql.engines.postgresql import POSTGRES
from dpsql.engines.spark import SPARK
from dpsql.errors import CatalogError
from dpsql.row_expressions.total import total_expression
from dpsql.row_expressions.typed import TotalExpression
from tests.engines.servers import Server

pytestmark = pytest.mark.long

KINDS = {
    "s": "SMALLINT", "i": "INTEGER", "j": "INTEGER", "b": "BIGINT", "c": "BIGINT", "d": "DECIMAL(12,2)",
    "e": "DECIMAL(18,0)", "w": "DECIMAL(30,6)", "f": "DOUBLE", "g": "DOUBLE", "t": "VARCHAR", "u": "VARCHAR",
    "p": "BOOLEAN", "q": "BOOLEAN", "day": "DATE", "until": "DATE", "stamp": "TIMESTAMP",
    "moment": "TIMESTAMP WITH TIME ZONE",
}  # fmt: skip
STORED = {"DOUBLE": "DOUBLE PRECISION", "VARCHAR": "TEXT"}
HOSTILE: dict[str, list[Any]] = {
    "SMALLINT": [None, 0, 1, -1, 7, -7, 32767, -32768],
    "INTEGER": [None, 0, 3, -3, 2**31 - 1, -(2**31), 46341, 100],
    "BIGINT": [None, 0, -1, 2**63 - 1, -(2**63), 3_037_000_500, 10**18, 5],
    "DECIMAL(12,2)": [None, "0", "0.01", "-0.01", "9999999999.99", "-9999999999.99", "2.50", "-2.55"],
    "DECIMAL(18,0)": [None, "0", "1", "-1", "999999999999999999", "-999999999999999999", "5", "250"],
    "DECIMAL(30,6)": [None, "0", "0.000001", "-0.5", "999999999999999999999999.999999", "1.5", "2.5", "-2.5"],
    "DOUBLE": [None, "NaN", "Infinity", "-Infinity", "-0.0", "1e308", "5e-324", "9.99"],
    "VARCHAR": [None, "", "a", "A", "é", "e\u0301", "👨‍👩‍👧", "İ_%\\'\n\t\u2003\U0001f600z"],
    "BOOLEAN": [None, True, False],
    "DATE": [None, "0001-01-01", "1582-10-10", "1969-12-31", "1970-01-01", "2024-02-29", "9999-12-31", "1900-03-01"],
    "TIMESTAMP": [None, "0001-01-01 00:00:00", "1969-12-31 23:59:59.999999", "1970-01-01 00:00:00",
                  "2024-02-29 12:34:56.5", "9999-12-31 23:59:59.999999", "1582-10-10 10:10:10", "2025-06-30 00:00:01"],
}  # fmt: skip
HOSTILE["TIMESTAMP WITH TIME ZONE"] = [text and f"{text}+00" for text in HOSTILE["TIMESTAMP"]]
EXPRESSIONS = [
    "s + 1", "s * 2", "s - 40000", "-s", "abs(s)", "i + j", "i * j", "i - j", "-i", "b + c", "b * c", "b - c", "-b",
    "abs(b)", "abs(b) + abs(c)", "b // 7", "b % 7", "i // 3 * 1000000", "i % 10", "mod(b, 3) + 1", "b + 1 - 1",
    "d * 2", "d * i", "d + e", "d - 0.005", "d * 1.19", "-d", "abs(d)", "e * 3", "d * d", "w + 1",
    "round(d, 1)", "round(d)", "floor(d)", "ceil(d)", "round(w, 3)", "round(i, 1)", "floor(w)",
    "greatest(i, j, 5)", "least(d, 3, e)", "coalesce(d, 0)", "coalesce(b + c, 0)", "nullif(i, 3)", "nullif(t, 'a')",
    "CAST(s AS BIGINT) * i", "CAST(d AS DECIMAL(18,4))", "CAST(b AS VARCHAR)", "CAST(5 AS DECIMAL(9,2)) * d",
    "CAST(stamp AS DATE)", "CAST(moment AS DATE)", "i::VARCHAR || '-' || t", "t || u", "length(t)", "left(t, 2)",
    "substring(t, 2, 2)", "starts_with(t, 'a')", "contains(t, '😀')", "t <> u",
    "t < u", "t = 'é'", "t LIKE 'a%'", "t NOT LIKE '%\u2003%'", "t LIKE '_'", "t IN ('', 'A', 'é')", "t >= ''",
    "CASE WHEN i * j > 100 THEN 'big' WHEN i IS NULL THEN 'none' ELSE 'small' END", "CASE t WHEN 'a' THEN 1 ELSE 0 END",
    "CASE WHEN p THEN d ELSE 0 END", "if(p AND NOT q, i, NULL)", "p OR q", "p AND q", "NOT p", "p IS NULL", "p = q",
    "f > 9.99", "f <= 9.99", "f = 0", "f < g", "f = g", "isnan(f)", "coalesce(f, 0)", "CASE WHEN f > 0 THEN f END",
    "f BETWEEN -1 AND 10", "d BETWEEN 0 AND 2.5", "i NOT BETWEEN 1 AND 3", "i NOT IN (0, 3)", "d > i", "e >= d",
    "d = 2.5", "s > 99999.5", "b <> 5", "day >= '2024-02-29'", "day < DATE '1970-01-01'", "day = until",
    "stamp >= TIMESTAMP '1970-01-01 00:00:00'", "stamp < DATE '2024-03-01'", "moment >= '1970-01-01'",
    "year(day)", "month(day)", "quarter(day)", "day(day)", "isodow(day)", "dayofweek(day)", "weekday(day)",
    "EXTRACT(year FROM stamp)", "hour(stamp)", "minute(stamp)", "second(stamp)", "EXTRACT(hour FROM moment)",
    "year(moment)", "month(moment)", "isodow(stamp)", "date_part('quarter', stamp)", "until - day",
    "date_diff('day', day, until)",
    "(until - day) // 7", "year(day) * 100 + month(day)", "CASE WHEN until - day > 30 THEN 'late' ELSE 'on time' END",
]  # fmt: skip
REFUSED = [
    "i / 2", "f * 2", "f + g", "round(f)", "lower(t)", "upper(t)", "trim(t)", "t::INTEGER", "TRY_CAST(t AS BIGINT)",
    "b::INTEGER", "d::BIGINT", "f::DECIMAL(9,2)", "d::VARCHAR", "day::TIMESTAMP", "day::VARCHAR", "p::INTEGER",
    "i // 0", "i // j", "b % -3", "regexp_matches(t, 'a')", "replace(t, 'a', 'b')", "t LIKE u", "t = 1", "day = stamp",
    "stamp = moment", "sqrt(i)", "date_trunc('month', day)", "day + INTERVAL 1 DAY", "f IN (1, 2)", "w * w",
    "nothing + 1", "left(t, -1)", "substring(t, -2, 1)", "strftime(day, '%Y')", "hour(day)", "f > 1.2345678901234567",
    "i = NULL",
    "day > 'soon'", "NULL", "concat(t, u)", "reverse(t)", "epoch(stamp)", "i & 1", "coalesce(t, 1)", "w * 2",
]  # fmt: skip


def typed(text: str) -> TotalExpression:
    return total_expression(text, KINDS)


def rows() -> list[list[Any]]:
    """Every value of a column beside several of the others."""
    columns = [(HOSTILE[kind], 1 + 2 * (k % 4), k + 1) for k, kind in enumerate(KINDS.values())]
    return [
        [values[(n * step + n // 8 * turn) % len(values)] for values, step, turn in columns]
        for n in range(256)
    ]


def selected(dialect: Dialect, texts: Sequence[str]) -> str:
    """Items of a SELECT; dates as days, since Python has none before year 1."""
    items = []
    for text in texts:
        expression = typed(text)
        sql = expression.sql(dialect, {name: dialect.identifier(name) for name in KINDS})
        items.append(dialect.days(sql) if expression.sql_type == "DATE" else sql)
    return ", ".join(f"{sql} AS r{n}" for n, sql in enumerate(items))


def plain(value: Any) -> Any:
    """A value that two drivers spell alike."""
    if isinstance(value, float):
        return repr(value + 0.0)
    return Decimal(value) if isinstance(value, (int, Decimal)) and not isinstance(value, bool) else value


def plain_rows(found: Sequence[Sequence[Any]]) -> list[list[Any]]:
    return [[plain(value) for value in row] for row in found]


@pytest.fixture(scope="module")
def duck() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    columns = ", ".join(f'"{name}" {kind}' for name, kind in KINDS.items())
    connection.execute(f"CREATE TABLE hostile (n INTEGER, {columns})")
    marks = ", ".join("?" * (len(KINDS) + 1))
    connection.executemany(
        f"INSERT INTO hostile VALUES ({marks})", [[n, *row] for n, row in enumerate(rows())]
    )
    return connection


def by_duckdb(duck: duckdb.DuckDBPyConnection) -> list[list[Any]]:
    return plain_rows(
        duck.execute(f"SELECT {selected(DUCK, EXPRESSIONS)} FROM hostile ORDER BY n").fetchall()
    )


def differing(ours: list[list[Any]], theirs: list[list[Any]]) -> list[tuple[str, Any, Any]]:
    """The expressions that differ, each once, with both values."""
    differences: dict[str, tuple[str, Any, Any]] = {}
    for one_row, other_row in zip(ours, theirs, strict=True):
        for text, mine, yours in zip(EXPRESSIONS, one_row, other_row, strict=True):
            if mine != yours:
                differences.setdefault(text, (text, mine, yours))
    return list(differences.values())


def test_duckdb_reads_them_as_it_reads_the_text(duck: duckdb.DuckDBPyConnection) -> None:
    """But where a part overflows inside of what takes NULL: there the part is NULL, and not the whole."""
    items = [
        f"TRY({text})" if typed(text).sql_type != "DATE" else f"TRY(({text}) - DATE '1970-01-01')"
        for text in EXPRESSIONS
    ]
    theirs = plain_rows(duck.execute(f"SELECT {', '.join(items)} FROM hostile ORDER BY n").fetchall())
    differences = differing(by_duckdb(duck), theirs)
    assert {text for text, _, _ in differences} <= {
        "coalesce(b + c, 0)", "CASE WHEN i * j > 100 THEN 'big' WHEN i IS NULL THEN 'none' ELSE 'small' END",
    }  # fmt: skip


def test_types_are_those_of_duckdb(duck: duckdb.DuckDBPyConnection) -> None:
    for text in EXPRESSIONS:
        kind = duck.execute(f"DESCRIBE SELECT {text} FROM hostile").fetchall()[0][1]
        assert typed(text).sql_type == kind or "EXTRACT" in text or "date_part" in text, text


@pytest.mark.parametrize("text", REFUSED)
def test_what_is_not_total_is_refused_by_name(text: str) -> None:
    with pytest.raises(CatalogError):
        typed(text)


def test_postgresql_gives_the_same(duck: duckdb.DuckDBPyConnection, postgres: Server) -> None:
    import psycopg

    columns = ", ".join(f'"{name}" {STORED.get(kind, kind)}' for name, kind in KINDS.items())
    with psycopg.connect(postgres.dsn) as server:
        server.execute("SET TimeZone = 'UTC'")
        server.execute(f"CREATE TEMPORARY TABLE hostile (n integer, {columns})")
        marks = ", ".join(["%s"] * (len(KINDS) + 1))
        server.cursor().executemany(
            f"INSERT INTO hostile VALUES ({marks})", [[n, *row] for n, row in enumerate(rows())]
        )
        sources = ", ".join(
            f"{POSTGRES.text(f'''x.{name}''')} AS {name}" if kind == "VARCHAR" else name
            for name, kind in KINDS.items()
        )
        query = f"SELECT {selected(POSTGRES, EXPRESSIONS)} FROM (SELECT n, {sources} FROM hostile AS x) AS y ORDER BY n"
        theirs = plain_rows(server.execute(query.encode()).fetchall())
    assert differing(by_duckdb(duck), theirs) == []


def test_infinite_dates(duck: duckdb.DuckDBPyConnection, postgres: Server) -> None:
    """Of DuckDB and PostgreSQL; and of years before 1."""
    import psycopg

    texts = ["year(day)", "month(day)", "day(day)", "isodow(day)", "until - day", "day > '2020-01-01'", "year(stamp)",
             "hour(stamp)", "quarter(stamp)", "CAST(stamp AS DATE) = day", "isodow(stamp)"]  # fmt: skip
    with psycopg.connect(postgres.dsn) as server, duckdb.connect() as files:
        for day in ("infinity", "-infinity", "0044-03-15 (BC)", "0001-12-31 (BC)", "10000-01-01"):
            both = f"CAST('{day}' AS DATE) AS day, CAST('{day}' AS TIMESTAMP) AS stamp"
            values = f"(SELECT {both}, DATE '2020-02-29' AS until) AS x"
            ours = files.execute(f"SELECT {selected(DUCK, texts)} FROM {values}").fetchall()
            query = f"SELECT {selected(POSTGRES, texts)} FROM {values}".replace(" (BC)", " BC")
            assert plain_rows(ours) == plain_rows(server.execute(query.encode()).fetchall()), day


def test_spark_gives_the_same(duck: duckdb.DuckDBPyConnection, spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "hostile.parquet"
    duck.execute(f"COPY hostile TO '{file}' (FORMAT parquet)")
    session = spark.newSession()
    from dpsql.engines.spark import SETTINGS

    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    session.read.parquet(str(file)).createOrReplaceTempView("hostile")
    theirs = session.sql(f"SELECT {selected(SPARK, EXPRESSIONS)} FROM hostile ORDER BY n").collect()
    assert differing(by_duckdb(duck), plain_rows([list(row) for row in theirs])) == []
