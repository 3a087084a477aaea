"""Operations that systems spell alike: each dialect's own meaning, against DuckDB in its own words."""

from __future__ import annotations

from collections import Counter

import duckdb
import pytest

from dpsql.errors import NotSupportedError
from dpsql.executor.engine import ReleaseEngine
from dpsql.sql.parse import parse

VARIANCE = 1e-18
FROM = "FROM sales s JOIN customer c ON s.customer_id = c.customer_id"


KEYS = [
    ("postgres", "age / 10", "age // 10"),
    ("postgres", "(age - 30) / 7", "(age - 30) // 7"),  # towards 0 for negative numbers
    ("postgres", "age / 10.0", "age / 10.0"),
    ("postgres", "CAST(age AS DOUBLE PRECISION) / 10", "age / 10.0"),
    ("postgres", "EXTRACT(YEAR FROM DATE '2025-03-01') / 10 + age", "202.5 + age"),
    ("trino", "year(DATE '2025-03-01') / 10 + age", "202 + age"),
    ("tsql", "age / 10", "age // 10"),
    ("mysql", "age / 10", "age / 10"),
    ("duckdb", "age / 10", "age / 10"),
    ("tsql", "CAST(age / 8.0 AS INT)", "TRUNC(age / 8.0)"),
    ("postgres", "CAST(age / 8.0 AS INT)", "CAST(age / 8.0 AS INT)"),
    ("postgres", "-age % 7", "-age % 7"),
    ("postgres", "SUBSTRING(region, -1, 4)", "SUBSTRING(region, 1, 2)"),
    ("duckdb", "SUBSTRING(region, -2, 2)", "SUBSTRING(region, -2, 2)"),
    ("postgres", "region ~ 'or'", "REGEXP_MATCHES(region, 'or')"),
    ("duckdb", "region ~ 'n.*'", "REGEXP_FULL_MATCH(region, 'n.*')"),
    ("postgres", "region LIKE 'n\\orth'", "region = 'north'"),
    ("duckdb", "region LIKE 'n\\orth'", "FALSE AND region = ''"),
]


@pytest.mark.parametrize(("dialect", "key", "plain"), KEYS)
def test_a_key_means_what_its_dialect_says(
    answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, dialect: str, key: str, plain: str
) -> None:
    text = f"SELECT {{}} AS k, COUNT(*) AS n {FROM} WHERE region IS NOT NULL GROUP BY 1 ORDER BY 1"
    found = answerer.query(text.format(key), dialect=dialect).rows
    want = {repr(_plain(k)): n for k, n in raw.execute(text.format(plain)).fetchall()}
    assert {repr(_plain(k)): n for k, n in found if n} == pytest.approx(want, abs=1e-4)


def _plain(value: object) -> object:
    return value if value is None or isinstance(value, str | bool) else round(float(value), 9)  # type: ignore[arg-type]


@pytest.mark.parametrize(("words", "plain"), [("ROLLUP", "ROLLUP (1, 2)"), ("CUBE", "CUBE (1, 2)")])
def test_with_rollup_has_the_totals(
    answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, words: str, plain: str
) -> None:
    text = f"SELECT c.region, c.age > 30, COUNT(*) AS n {FROM} GROUP BY "
    found = answerer.query(f"{text} c.region, 2 WITH {words}", dialect="mysql").rows
    exact = raw.execute(text + plain).fetchall()
    assert len(exact) > 8
    assert Counter((a, b, round(n)) for a, b, n in found if round(n)) == Counter(exact)


def test_integers_are_divided_outside_of_the_block_too(answerer: ReleaseEngine) -> None:
    text = f"SELECT a / 10 AS decade, SUM(n) FROM (SELECT age AS a, COUNT(*) AS n {FROM} GROUP BY 1) AS t GROUP BY 1"
    assert {key for key, _ in answerer.query(text, dialect="postgres").rows} == {1, 2, 3, None}
    assert answerer.query("SELECT 7 / 2", dialect="postgres").scalar() == 3
    assert answerer.query("SELECT 7 / 2").scalar() == 3.5


def test_a_sum_of_rounded_values_is_not_the_sum_of_the_values(answerer: ReleaseEngine) -> None:
    for call in ("SUM(CAST(amount AS INT))", "SUM(CAST(amount AS DECIMAL(9, 1)))"):
        with pytest.raises(NotSupportedError):
            answerer.query(f"SELECT {call} FROM sales")
    with pytest.raises(NotSupportedError):
        answerer.query("SELECT SUM(qty / 2) FROM sales", dialect="postgres")
    exact = answerer.query("SELECT SUM(amount), SUM(qty) FROM sales").rows
    assert (
        answerer.query("SELECT SUM(CAST(amount AS DOUBLE)), SUM(CAST(qty AS BIGINT)) FROM sales").rows
        == exact
    )


@pytest.mark.parametrize(("dialect", "call", "plain"), [
    ("mysql", "DAYOFWEEK(sold_on)", "DAYOFWEEK(sold_on) + 1"), ("mysql", "WEEKDAY(sold_on)", "ISODOW(sold_on) - 1"),
    ("bigquery", "EXTRACT(DAYOFWEEK FROM sold_on)", "DAYOFWEEK(sold_on) + 1"),
    ("postgres", "EXTRACT(DOW FROM sold_on)", "DAYOFWEEK(sold_on)"),
    ("tsql", "DATEPART(weekday, sold_on)", "DAYOFWEEK(sold_on) + 1"),
    ("postgres", "(sold_on - DATE '2025-01-01') / 7", "(sold_on - DATE '2025-01-01') // 7"),
    ("postgres", "sold_on::timestamptz >= '2025-02-01 02:00:00+02'::timestamptz", "sold_on >= DATE '2025-02-01'"),
    ("postgres", "DATE_TRUNC('month', sold_on)::timestamptz", "DATE_TRUNC('month', sold_on)"),
    ("bigquery", "sold_on >= TIMESTAMP '2025-02-01'", "sold_on >= DATE '2025-02-01'"),
])  # fmt: skip
def test_times(
    answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, dialect: str, call: str, plain: str
) -> None:
    text = "SELECT {} AS k, COUNT(*) AS n FROM sales GROUP BY 1"
    found = {str(k)[:10]: n for k, n in answerer.query(text.format(call), dialect=dialect).rows}
    assert found == {str(k)[:10]: n for k, n in raw.execute(text.format(plain)).fetchall()}


def test_weeks_of_another_count_are_refused(answerer: ReleaseEngine) -> None:
    with pytest.raises(NotSupportedError, match="ISO 8601"):
        answerer.query("SELECT WEEK(sold_on), COUNT(*) FROM sales GROUP BY 1", dialect="mysql")
    assert parse("SELECT WEEK(sold_on) FROM sales")
