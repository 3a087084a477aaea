"""SQL over private rows is row-local: what looks at a second row, at the clock or at another file is refused.

A window, a LIMIT or a sample over private rows moves other people's rows when one person comes or goes, so no bound
on a person's own rows would hold.
"""

from __future__ import annotations

import duckdb
import pytest

from dpsql.errors import CatalogError
from dpsql.row_expressions.expression import row_expression
from dpsql.row_expressions.rowlocal import Arm, checked_select, public_select

ARMS = {"product": Arm("product", "product_id"), "product.parquet": Arm("product", "product_id")}
SALES = "FROM 'sales.parquet'"

ACCEPTED = [
    f"SELECT * {SALES}",
    f"SELECT * EXCLUDE (a) {SALES} WHERE a > 0",
    f"SELECT a, lower(b) AS b {SALES}",
    "SELECT a FROM read_parquet('sales.parquet')",
    f"SELECT s.*, p.price * s.quantity AS revenue {SALES} AS s JOIN product AS p ON s.product_id = p.product_id",
    f"SELECT s.* {SALES} AS s LEFT JOIN 'product.parquet' AS p ON p.product_id = s.product_id",
    f"SELECT sales.* {SALES} LEFT JOIN product USING (product_id)",
]

REFUSED = [
    f"SELECT a {SALES} LIMIT 5",
    f"SELECT a {SALES} OFFSET 5",
    f"SELECT DISTINCT a {SALES}",
    f"SELECT DISTINCT ON (a) a {SALES}",
    f"SELECT a, row_number() OVER () AS n {SALES}",
    f"SELECT a - avg(a) OVER () AS n {SALES}",
    f"SELECT lag(a) OVER (ORDER BY a) AS n {SALES}",
    f"SELECT a {SALES} QUALIFY row_number() OVER (PARTITION BY b ORDER BY a) = 1",
    f"SELECT a {SALES} USING SAMPLE 10%",
    "SELECT a FROM 'sales.parquet' TABLESAMPLE 10%",
    f"SELECT a, count(*) AS n {SALES} GROUP BY a",
    f"SELECT max(a) AS m {SALES}",
    f"SELECT a {SALES} HAVING true",
    f"SELECT a {SALES} ORDER BY a",
    f"SELECT a {SALES} UNION ALL SELECT a {SALES}",
    f"WITH x AS (SELECT a {SALES}) SELECT a FROM x",
    f"SELECT a FROM (SELECT a {SALES})",
    f"SELECT a {SALES}, 'sales.parquet' AS t",
    f"SELECT (SELECT max(a) {SALES}) AS m {SALES}",
    f"SELECT a {SALES} WHERE a IN (SELECT a {SALES})",
    f"SELECT a {SALES} WHERE EXISTS (SELECT 1 {SALES})",
    f"SELECT s.a {SALES} AS s JOIN 'customer.parquet' AS c ON s.c = c.c",
    f"SELECT s.a {SALES} AS s JOIN product AS p ON s.a = p.price",
    f"SELECT s.a {SALES} AS s JOIN product AS p ON s.a = p.product_id OR true",
    f"SELECT s.a {SALES} AS s JOIN product AS p ON true",
    f"SELECT s.a {SALES} AS s CROSS JOIN product AS p",
    f"SELECT s.a {SALES} AS s FULL JOIN product AS p ON s.a = p.product_id",
    f"SELECT s.a {SALES} AS s RIGHT JOIN product AS p ON s.a = p.product_id",
    f"SELECT s.a {SALES} AS s ASOF JOIN product AS p ON s.a = p.product_id",
    f"SELECT s.a {SALES} AS s POSITIONAL JOIN product AS p",
    f"SELECT s.a {SALES} AS s SEMI JOIN product AS p ON s.a = p.product_id",
    f"SELECT unnest(a) AS a {SALES}",
    f"SELECT a {SALES} LATERAL VIEW explode(a) AS t",
    f"SELECT COLUMNS('a') AS a {SALES}",
    f"SELECT * REPLACE (1 AS a) {SALES}",
    f"SELECT random() AS a {SALES}",
    f"SELECT now() AS a {SALES}",
    f"SELECT current_date AS a {SALES}",
    f"SELECT uuid() AS a {SALES}",
    f"SELECT getvariable('x') AS a {SALES}",
    f"SELECT getenv('HOME') AS a {SALES}",
    f"SELECT nextval('s') AS a {SALES}",
    f"SELECT rowid + unknown_function(a) AS a {SALES}",
    "SELECT a FROM read_csv('sales.csv', sample_size = 3)",
    "SELECT a FROM read_text('/etc/passwd')",
    "SELECT a FROM '*.parquet'",
    "SELECT a FROM '/etc/sales.parquet'",
    "SELECT a FROM '../sales.parquet'",
    "SELECT a FROM sqlite_scan('a', 'b')",
    "PIVOT 'sales.parquet' ON a",
    "SUMMARIZE 'sales.parquet'",
    f"COPY (SELECT a {SALES}) TO 'x'",
    f"SELECT a {SALES}; SELECT 1",
    f"SELECT a {SALES} WHERE true) UNION ALL (SELECT a {SALES}",
]


@pytest.mark.parametrize("sql", ACCEPTED)
def test_row_local_statements_are_taken(sql: str) -> None:
    query = checked_select(sql, ARMS)
    assert query.reads == ("sales.parquet",) and not query.trusted


@pytest.mark.parametrize("sql", REFUSED)
def test_statements_over_several_rows_are_refused(sql: str) -> None:
    with pytest.raises(CatalogError):
        checked_select(sql, ARMS)


BEYOND_ONE_ROW = [
    "1) AS x, (SELECT count(*) FROM raw.sales", "0) OVER (", "sum(a)", "count(*)", "row_number() OVER ()", "a AS b",
    "a, b", "SELECT 1", "a IN (SELECT 1)", "random()", "today()", "now()", "getenv('x')", "a -> 1", "unnest(a)",
    "list_transform(a, x -> 1)", "TRY(a)", "error('x')", "a::JSON", "a::my_type", "$1", "other.a", "a.b.c",
    "repeat(a, b)", "repeat(a, 100000)", "lpad(a, 100000, 'x')", "regexp_matches(a, b)", "a LIKE b",
    "a LIKE 'x' ESCAPE b",
    "replace(replace(a, 'a', 'bbbbbbbbb'), 'b', 'bbbbbbbbb')", "(" * 40 + "a" + ")" * 40,
    "1); DROP TABLE raw.sales; SELECT (1",
]  # fmt: skip


@pytest.mark.parametrize("text", BEYOND_ONE_ROW)
def test_expressions_beyond_one_row_are_refused(text: str) -> None:
    with pytest.raises(CatalogError):
        row_expression(text)


def test_a_comment_does_not_reach_the_engine() -> None:
    assert row_expression("a -- ) AS x").sql == '"a"'
    assert row_expression("a /* ) */ + 1").sql == '"a" + 1'


def test_public_statements_may_look_at_many_rows_and_stay_pure() -> None:
    digits = "(SELECT unnest(range(3)) AS x)"
    query = public_select(f"SELECT DISTINCT zone, max(x) OVER () AS m FROM 'zone.parquet', {digits}")
    assert query.reads == ("zone.parquet",) and 'FROM "read"."zone.parquet"' in query.sql
    for sql in (
        "SELECT random() AS a",
        "SELECT * FROM glob('*')",
        "SELECT user AS a",
        "SELECT * FROM read_text('a')",
    ):
        with pytest.raises(CatalogError):
            public_select(sql)


HOSTILE = [
    "'a'",
    "''",
    "'1'",
    "'-1e400'",
    "'9999-12-31'",
    "'x('",
    "NULL",
    "'\u0661'",
    "'inf'",
    "'2020-02-30'",
]
NUMBERS = [
    "9223372036854775807", "(-9223372036854775807 - 1)", "0", "NULL", "1e308::DOUBLE", "'nan'::DOUBLE",
    "'-inf'::DOUBLE",
]  # fmt: skip
CALLS = [
    "{n} + 1", "-{n}", "{n} * {n}", "{n} // 0", "{n} % 0", "abs({n})", "CAST({n} AS TINYINT)", "{n} << 3",
    "CAST({n} AS DECIMAL(18, 2))", "pow({n}, {n})", "chr(CAST({n} AS INT))", "round({n}, 300)", "ln({n})", "sqrt({n})",
    "substring({s}, {n}, {n})", "left({s}, {n})", "split_part({s}, 'a', {n})", "make_date({n}, 1, 1)", "acos({n})",
    "CAST({s} AS INT) + 1", "CAST({s} AS DATE)", "CAST({s} AS TIMESTAMP)", "CAST({s} AS TIME)", "exp({n})",
    "CAST({s} AS INTERVAL)", "CAST({s} AS TIMESTAMPTZ)", "strptime({s}, '%Y')", "CAST({s} AS BOOLEAN)",
    "date_trunc({s}, DATE '2020-01-01')", "date_part({s}, DATE '2020-01-01')", "ascii({s})", "xor({n}, {n})",
    "DATE '2020-01-01' + INTERVAL ({n}) DAY", "lpad({s}, 10, {s})", "{s} LIKE '%a%' ", "{s} < 5",
    "last_day(CAST({s} AS DATE))", "{n} BETWEEN {s} AND 7",
]  # fmt: skip


@pytest.mark.parametrize("call", CALLS)
def test_no_row_makes_an_accepted_expression_fail(call: str) -> None:
    """Twice the same part with other ends: the engine must not take what is common out of TRY."""
    checked = row_expression(call.format(s="s", n="n")).sql
    with duckdb.connect() as connection:
        connection.execute("SET disabled_optimizers = 'common_subexpressions'")
        for number in NUMBERS:
            connection.execute(
                f"CREATE OR REPLACE TABLE t AS SELECT s, {number} AS n FROM (VALUES {rows()}) AS v(s)"
            )
            try:
                described = connection.execute(f"DESCRIBE SELECT {checked} FROM t").fetchall()
            except duckdb.BinderException:
                continue  # a type that the function does not take; refused before a row is read
            assert described
            connection.execute(
                f"CREATE OR REPLACE TABLE got AS SELECT TRY(concat({checked}, 'a')), TRY(concat({checked}, 'b')), "
                f"TRY({checked}) FROM t"
            )


def rows() -> str:
    return ", ".join(f"({value})" for value in HOSTILE)
