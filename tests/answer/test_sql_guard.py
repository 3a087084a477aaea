"""The guards: each limit at its last good value and one past it; of calls, what the whitelist has and nothing else."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from dpsql.errors import InterfaceError, NotSupportedError, SqlSyntaxError
from dpsql.row_expressions import expression as guard
from dpsql.row_expressions.expression import check_text
from dpsql.sql.parse import ALLOWED, check, parse

HEAD = "SELECT 1 -- "
ITEMS = ",".join(["1"] * guard.MAX_IN_ITEMS)
SUM = "SELECT 1" + " + 1" * ((guard.MAX_TOKENS - 2) // 2)


@pytest.mark.parametrize(("good", "one_more", "reason"), [
    (HEAD + "x" * (guard.MAX_BYTES - len(HEAD)), HEAD + "x" * (guard.MAX_BYTES - len(HEAD) + 1), "65537 bytes"),
    ("SELECT 'e'", "SELECT '" + "é" * (guard.MAX_BYTES // 2) + "'", "bytes"),
    (f"SELECT {'(' * guard.MAX_DEPTH}1{')' * guard.MAX_DEPTH}",
     f"SELECT {'(' * (guard.MAX_DEPTH + 1)}1{')' * (guard.MAX_DEPTH + 1)}", "deeper than 32"),
    (f"SELECT {'[' * guard.MAX_DEPTH}1{']' * guard.MAX_DEPTH}",
     f"SELECT {'[' * (guard.MAX_DEPTH + 1)}1{']' * (guard.MAX_DEPTH + 1)}", "deeper than 32"),
    (SUM, f"{SUM} + 1", "tokens"),
    (f"SELECT 1 WHERE 1 IN ({ITEMS})", f"SELECT 1 WHERE 1 IN ({ITEMS},1)", "more than 1000 items"),
], ids=["bytes", "utf8", "brackets", "square brackets", "tokens", "items"])  # fmt: skip
def test_limits(good: str, one_more: str, reason: str) -> None:
    check_text(good)
    with pytest.raises(SqlSyntaxError, match=reason):
        check_text(one_more)


def test_brackets_in_strings_and_comments_do_not_nest() -> None:
    check_text("SELECT '" + "(" * 100 + "' /* " + "(" * 100 + " */ -- " + "(" * 100)


@pytest.mark.parametrize("word", ["NOT ", "- ", "CASE WHEN 1 = 1 THEN "])
def test_nesting_without_brackets(word: str) -> None:
    with pytest.raises(SqlSyntaxError, match="deeper"):
        check_text("SELECT " + word * (guard.MAX_DEPTH + 1) + "1")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT '\ud800'",
        "SELECT '\u202e'",
        "SELECT \x00",
        "",
        "   ",
        ";",
        "SELECT 1; SELECT 2",
        "DROP TABLE sales",
        "INSERT INTO t VALUES (1)",
        "ATTACH 'x'",
        "COPY t TO 'x'",
        "PRAGMA version",
        "SET threads = 4",
        "UPDATE t SET a = 1",
    ],
)
def test_what_is_not_one_query_is_refused(text: str) -> None:
    with pytest.raises(SqlSyntaxError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 1


def test_one_statement_may_end_in_a_semicolon() -> None:
    assert parse("SELECT 1;").sql() == "SELECT 1"


def test_dialects() -> None:
    assert parse("SELECT TOP 3 [a b] FROM t", "tsql").args["limit"] is not None
    assert parse("SELECT `a` FROM t", "mysql").find_all is not None
    with pytest.raises(InterfaceError, match="no SQL dialect"):
        parse("SELECT 1", "klingon")


IMPURE = (
    "read_csv('x')", "read_text('/etc/passwd')", "getenv('HOME')", "current_setting('threads')", "uuid()", "random()",
    "now()", "CURRENT_DATE", "CURRENT_TIMESTAMP", "pg_sleep(1)", "nextval('s')", "version()", "current_user()",
    "query('SELECT 1')", "getvariable('x')", "glob('*')", "list_transform([1], x -> x)", "checkpoint()",
)  # fmt: skip
NO_NAMES = ("read_csv('x')", "t TABLESAMPLE 10%", "t PIVOT (COUNT(*) FOR a IN (1))")


@pytest.mark.parametrize("items", [*IMPURE, *(f"1 FROM {source}" for source in NO_NAMES)])
def test_impure_functions_and_sources_that_are_no_names_are_refused(items: str) -> None:
    with pytest.raises(NotSupportedError):
        check(sqlglot.parse_one(f"SELECT {items}", read="duckdb"))


def test_functions_off_the_list_are_refused() -> None:
    off = [cls for cls in exp.ALL_FUNCTIONS if cls.__name__ not in ALLOWED]
    assert len(off) > 100
    for cls in off:
        with pytest.raises(NotSupportedError):
            check(exp.Select(expressions=[cls()]))


@pytest.mark.parametrize("call", [
    "lower('A')", "DATE_TRUNC('month', DATE '2025-01-02')", "EXTRACT(YEAR FROM DATE '2025-01-02')", "ROUND(1.5, 1)",
    "COALESCE(NULL, 1)", "CASE WHEN 1 = 1 THEN 2 END", "RANK() OVER (ORDER BY 1)", "'a' LIKE 'b%'", "CAST('1' AS INT)",
    "INTERVAL 1 DAY", "substring('abc', 1, 2)", "strftime(DATE '2025-01-02', '%Y')",
])  # fmt: skip
def test_pure_parts_pass(call: str) -> None:
    check(sqlglot.parse_one(f"SELECT {call}", read="duckdb"))


def test_every_listed_node_exists() -> None:
    assert [name for name in sorted(ALLOWED) if not hasattr(exp, name)] == []
