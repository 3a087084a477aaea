"""What one question may take: statements that were slow or large end at once, and what people ask is not refused.

Each guard at its last good value and one past it; of calls, what the whitelist has and nothing else.
"""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest
import sqlglot
from sqlglot import exp

from dpsql.errors import InterfaceError, NotSupportedError, QueryTimeout, SqlSyntaxError
from dpsql.executor.run import MOST_ROWS, run_apart
from dpsql.federation.session import OpenReleases
from dpsql.release.request import Request
from dpsql.row_expressions import expression
from dpsql.row_expressions import expression as guard
from dpsql.row_expressions.expression import A_TOKEN, FREE, bounded_parser, check_text
from dpsql.sql.parse import ALLOWED, MOST_TEXT, check, check_growth, parse

GROUPS = "(SELECT region, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) GROUP BY region)"
NUMBERS = ", ".join(f"({number})" for number in range(290))


def doubled(first: str, step: str, last: str) -> str:
    """25 queries, each over the one before."""
    steps = ", ".join(f"c{i} AS (SELECT {step} AS r FROM c{i - 1})" for i in range(1, 26))
    return f"WITH c0 AS ({first}), {steps} {last}"


ATTACKS = {
    "readings": "SELECT COUNT(*) FROM sales " + "JOIN customer c " * 40,
    "repeat": f"SELECT REPEAT(region, 1000000000) FROM {GROUPS}",
    "repeat by a column": f"SELECT REPEAT(region, n) FROM {GROUPS}",
    "repeat twice": f"SELECT REPEAT(REPEAT(region, 1000), 1000) FROM {GROUPS}",
    "pad": f"SELECT RPAD(region, 100000000, 'x') FROM {GROUPS}",
    "replace": f"SELECT REPLACE(REPLACE(region, 'a', '{'b' * 900}'), 'b', '{'c' * 900}') FROM {GROUPS}",
    "texts": doubled(f"SELECT region AS r FROM {GROUPS} AS g", "r || r", "SELECT r FROM c25"),
    "texts of rows": f"SELECT t || t FROM (SELECT STRING_AGG(region, ',') AS t FROM {GROUPS} AS g) AS h",
    "columns": doubled("SELECT age AS r FROM customer", "r + r", "SELECT COUNT(*) FROM c25 WHERE r > 3"),
    "tuples": f"SELECT * FROM (VALUES {NUMBERS}) a(x), (VALUES {NUMBERS}) b(y), (VALUES {NUMBERS}) c(z)",
    "blocks": " UNION ALL ".join(["SELECT COUNT(*) FROM sales"] * 300),
}


def megabytes() -> float:
    """The most that this process has held so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_ends_at_once(opened: OpenReleases, name: str) -> None:
    opened.query("SELECT COUNT(*) FROM sales")  # what the first statement loads is not the attack's
    before, start = megabytes(), time.process_time()
    with pytest.raises((SqlSyntaxError, NotSupportedError)) as refused:
        opened.query(ATTACKS[name])
    assert len(str(refused.value).splitlines()) == 1
    assert time.process_time() - start < 3
    assert megabytes() - before < 500


def test_what_people_ask_is_answered(opened: OpenReleases) -> None:
    """More of it stands in `statements/shop.sql`."""
    for sql in (
        f"SELECT a.x + b.x FROM (VALUES {NUMBERS}) a(x), (VALUES {NUMBERS}) b(x)",
        " UNION ALL ".join(["SELECT COUNT(*) FROM sales"] * 20),
        "SELECT COUNT(*) FROM customer WHERE " + " AND ".join(["age BETWEEN 18 AND 89"] * 100),
    ):
        assert opened.query(sql).rows


def test_the_parsers_steps_are_counted() -> None:
    """Or the bound would hold nothing back: the parser's own method is the one that is replaced."""
    reader, parser = bounded_parser("duckdb")
    counted = parser(dialect=reader)
    tokens = reader.tokenize("SELECT COUNT(*) FROM sales WHERE age BETWEEN 20 AND 30 GROUP BY region")
    counted.parse(tokens, "")
    used = FREE + A_TOKEN * len(tokens) - counted._steps_left
    assert len(tokens) <= used <= 2 * len(tokens)


def test_a_parser_whose_steps_cannot_be_counted_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """sqlglotc's classes cannot be inherited from, and say so when one is made."""

    def compiled(dialect: object) -> None:
        raise TypeError("interpreted classes cannot inherit from compiled")

    monkeypatch.setattr(expression, "bounded_parser", lambda dialect: (None, compiled))
    with pytest.raises(InterfaceError, match=r"installed compiled.*uninstall sqlglotc"):
        parse("SELECT 1")


def test_a_text_is_as_long_as_its_bound_says(opened: OpenReleases) -> None:
    check_growth(parse(f"SELECT REPEAT('x', {MOST_TEXT})"))
    with pytest.raises(NotSupportedError, match=f"{MOST_TEXT + 1} characters"):
        check_growth(parse(f"SELECT REPEAT('x', {MOST_TEXT + 1})"))
    assert len(opened.query(f"SELECT REPEAT('x', {MOST_TEXT})").scalar()) == MOST_TEXT


def test_a_question_has_one_limit_of_time() -> None:
    endless = "SELECT COUNT(*) FROM range(100000000) a, range(1000000) b"
    start = time.process_time()
    with Request(0.5).working():
        with pytest.raises(QueryTimeout):
            run_apart(endless, ())
        with pytest.raises(QueryTimeout):  # nothing is left of it
            run_apart("SELECT 1", ())
    assert time.process_time() - start < 5
    assert run_apart("SELECT 1", ()).rows == [(1,)]


@pytest.mark.long
def test_rows_and_memory_are_bounded() -> None:
    with pytest.raises(NotSupportedError, match=f"more than {MOST_ROWS} rows"):
        run_apart(f"SELECT * FROM range({MOST_ROWS + 1})", ())
    with pytest.raises(NotSupportedError, match="of memory"):
        run_apart("SELECT LEN(ARRAY_AGG(range)) FROM range(100000000)", ())
    assert len(run_apart(f"SELECT * FROM range({MOST_ROWS})", ()).rows) == MOST_ROWS


def test_nothing_is_spilled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NotSupportedError, match="of memory"):
        run_apart("SELECT COUNT(*) FROM (SELECT range AS a, COUNT(*) FROM range(50000000) GROUP BY 1)", ())
    assert run_apart("SELECT current_setting('temp_directory')", ()).rows == [("",)]
    assert list(tmp_path.iterdir()) == []


BEGUN = "SELECT 1 -- "
LISTED = ",".join(["1"] * guard.MAX_IN_ITEMS)
ADDED = "SELECT 1" + " + 1" * ((guard.MAX_TOKENS - 2) // 2)


@pytest.mark.parametrize(("good", "one_more", "reason"), [
    (BEGUN + "x" * (guard.MAX_BYTES - len(BEGUN)), BEGUN + "x" * (guard.MAX_BYTES - len(BEGUN) + 1), "65537 bytes"),
    ("SELECT 'e'", "SELECT '" + "é" * (guard.MAX_BYTES // 2) + "'", "bytes"),
    (f"SELECT {'(' * guard.MAX_DEPTH}1{')' * guard.MAX_DEPTH}",
     f"SELECT {'(' * (guard.MAX_DEPTH + 1)}1{')' * (guard.MAX_DEPTH + 1)}", "deeper than 32"),
    (f"SELECT {'[' * guard.MAX_DEPTH}1{']' * guard.MAX_DEPTH}",
     f"SELECT {'[' * (guard.MAX_DEPTH + 1)}1{']' * (guard.MAX_DEPTH + 1)}", "deeper than 32"),
    (ADDED, f"{ADDED} + 1", "tokens"),
    (f"SELECT 1 WHERE 1 IN ({LISTED})", f"SELECT 1 WHERE 1 IN ({LISTED},1)", "more than 1000 items"),
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
