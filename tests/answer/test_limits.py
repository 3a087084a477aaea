"""What one question may take: statements that were slow or large end at once, and what people ask is not refused."""

from __future__ import annotations

import resource
import time
from pathlib import Path

import pytest

from dpsql.errors import InterfaceError, NotSupportedError, QueryTimeout, SqlSyntaxError
from dpsql.executor.run import MOST_ROWS, run_apart
from dpsql.federation.session import OpenReleases
from dpsql.release.request import Request
from dpsql.row_expressions import expression
from dpsql.row_expressions.expression import A_TOKEN, FREE, bounded_parser
from dpsql.sql.parse import MOST_TEXT, check_growth, parse

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


USEFUL = (
    f"SELECT region || ' ' || CAST(n AS VARCHAR), LPAD(region, 12, '.') FROM {GROUPS}",
    f"SELECT STRING_AGG(region, ', ') FROM {GROUPS}",
    f"SELECT REPEAT('#', 20), REPLACE(region, 'east', 'eastern') FROM {GROUPS}",
    f"SELECT a.x + b.x FROM (VALUES {NUMBERS}) a(x), (VALUES {NUMBERS}) b(x)",
    " UNION ALL ".join(["SELECT COUNT(*) FROM sales"] * 20),
    "SELECT COUNT(*) FROM customer WHERE " + " AND ".join(["age BETWEEN 18 AND 89"] * 100),
)


@pytest.mark.parametrize("sql", USEFUL)
def test_what_people_ask_is_answered(opened: OpenReleases, sql: str) -> None:
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
