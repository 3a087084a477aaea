"""The guards: each limit at its last good value and one past it."""

from __future__ import annotations

import pytest

from dpsql.errors import InterfaceError, SqlSyntaxError
from dpsql.row_expressions import guard
from dpsql.row_expressions.guard import check_text
from dpsql.sql.parse import parse


def test_bytes() -> None:
    head = "SELECT 1 -- "
    check_text(head + "x" * (guard.MAX_BYTES - len(head)))
    with pytest.raises(SqlSyntaxError, match="65537 bytes"):
        check_text(head + "x" * (guard.MAX_BYTES - len(head) + 1))


def test_bytes_are_counted_in_utf8() -> None:
    with pytest.raises(SqlSyntaxError, match="bytes"):
        check_text("SELECT '" + "é" * (guard.MAX_BYTES // 2) + "'")


@pytest.mark.parametrize("opener, closer", [("(", ")"), ("[", "]")])
def test_depth(opener: str, closer: str) -> None:
    check_text("SELECT " + opener * guard.MAX_DEPTH + "1" + closer * guard.MAX_DEPTH)
    with pytest.raises(SqlSyntaxError, match="deeper than 32"):
        check_text("SELECT " + opener * (guard.MAX_DEPTH + 1) + "1" + closer * (guard.MAX_DEPTH + 1))


def test_brackets_in_strings_and_comments_do_not_nest() -> None:
    check_text("SELECT '" + "(" * 100 + "' /* " + "(" * 100 + " */ -- " + "(" * 100)


@pytest.mark.parametrize("word", ["NOT ", "- ", "CASE WHEN 1 = 1 THEN "])
def test_nesting_without_brackets(word: str) -> None:
    with pytest.raises(SqlSyntaxError, match="deeper"):
        check_text("SELECT " + word * (guard.MAX_DEPTH + 1) + "1")


def test_tokens() -> None:
    text = "SELECT 1" + " + 1" * ((guard.MAX_TOKENS - 2) // 2)
    check_text(text)
    with pytest.raises(SqlSyntaxError, match="tokens"):
        check_text(text + " + 1")


def test_in_items() -> None:
    items = ",".join("1" for _ in range(guard.MAX_IN_ITEMS))
    check_text(f"SELECT 1 WHERE 1 IN ({items})")
    with pytest.raises(SqlSyntaxError, match="more than 1000 items"):
        check_text(f"SELECT 1 WHERE 1 IN ({items},1)")


@pytest.mark.parametrize(
    "text", ["SELECT '\ud800'", "SELECT '\u202e'", "SELECT \x00", "", "   ", ";", "SELECT 1; SELECT 2"]
)
def test_not_one_statement(text: str) -> None:
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


@pytest.mark.parametrize(
    "text",
    [
        "DROP TABLE sales",
        "INSERT INTO t VALUES (1)",
        "ATTACH 'x'",
        "COPY t TO 'x'",
        "PRAGMA version",
        "SET threads = 4",
        "UPDATE t SET a = 1",
    ],
)
def test_only_queries(text: str) -> None:
    with pytest.raises(SqlSyntaxError):
        parse(text)
