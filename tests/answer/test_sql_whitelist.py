"""The whitelist, both ways: what is on it exists and passes, what is not is refused."""

from __future__ import annotations

import pytest
import sqlglot
from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.sql import parse

EVIL = [
    "read_csv('x')", "read_text('/etc/passwd')", "getenv('HOME')", "current_setting('threads')", "uuid()", "random()",
    "now()", "CURRENT_DATE", "CURRENT_TIMESTAMP", "pg_sleep(1)", "nextval('s')", "version()", "current_user()",
    "query('SELECT 1')", "getvariable('x')", "glob('*')", "list_transform([1], x -> x)", "checkpoint()",
]  # fmt: skip


@pytest.mark.parametrize("call", EVIL)
def test_impure_functions_are_refused(call: str) -> None:
    with pytest.raises(NotSupportedError):
        parse.check(sqlglot.parse_one(f"SELECT {call}", read="duckdb"))


def test_functions_off_the_list_are_refused() -> None:
    off = [cls for cls in exp.ALL_FUNCTIONS if cls.__name__ not in parse.ALLOWED]
    assert len(off) > 100
    for cls in off:
        with pytest.raises(NotSupportedError):
            parse.check(exp.Select(expressions=[cls()]))


@pytest.mark.parametrize("call", [
    "lower('A')", "DATE_TRUNC('month', DATE '2025-01-02')", "EXTRACT(YEAR FROM DATE '2025-01-02')", "ROUND(1.5, 1)",
    "COALESCE(NULL, 1)", "CASE WHEN 1 = 1 THEN 2 END", "RANK() OVER (ORDER BY 1)", "'a' LIKE 'b%'", "CAST('1' AS INT)",
    "INTERVAL 1 DAY", "substring('abc', 1, 2)", "strftime(DATE '2025-01-02', '%Y')",
])  # fmt: skip
def test_pure_parts_pass(call: str) -> None:
    parse.check(sqlglot.parse_one(f"SELECT {call}", read="duckdb"))


@pytest.mark.parametrize("source", ["read_csv('x')", "t TABLESAMPLE 10%", "t PIVOT (COUNT(*) FOR a IN (1))"])
def test_from_takes_names_only(source: str) -> None:
    with pytest.raises(NotSupportedError):
        parse.check(sqlglot.parse_one(f"SELECT 1 FROM {source}", read="duckdb"))


def test_every_listed_node_exists() -> None:
    assert [name for name in sorted(parse.ALLOWED) if not hasattr(exp, name)] == []
