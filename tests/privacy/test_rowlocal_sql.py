"""SQL over private rows is row-local: what looks at a second row, at the clock or at another file is refused.

A window, a LIMIT or a sample over private rows moves other people's rows when one person comes or goes, so no bound
on a person's own rows would hold.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from dpsql.errors import CatalogError
from dpsql.row_expressions.expression import row_expression
from dpsql.row_expressions.rowlocal import Arm, checked_select, public_select
from tests.statements import sections

ARMS = {"product": Arm("product", "product_id"), "product.parquet": Arm("product", "product_id")}

FILE = sections(Path(__file__).with_name("rowlocal.sql"))


@pytest.mark.parametrize("sql", [text for text, _ in FILE["accepted"]])
def test_row_local_statements_are_taken(sql: str) -> None:
    query = checked_select(sql, ARMS)
    assert query.reads == ("sales.parquet",) and not query.trusted


@pytest.mark.parametrize("sql", [text for text, _ in FILE["refused"]])
def test_statements_over_several_rows_are_refused(sql: str) -> None:
    with pytest.raises(CatalogError):
        checked_select(sql, ARMS)


@pytest.mark.parametrize("text", [text for text, _ in FILE["expressions beyond one row"]])
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


@pytest.mark.parametrize("call", [text for text, _ in FILE["calls"]])
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
