"""What statements mean, on a star whose answers are known: special leaves, joins, wrappers, listings."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from dpsql.errors import RawRowsError, SqlSyntaxError, UnknownName
from dpsql.executor.engine import ReleaseEngine
from dpsql.results.render import text_table
from tests.release_fixture import AGES, make_rows

VARIANCE = 1e-18
ROWS = make_rows()


SAME = [
    "SELECT COUNT(*), SUM(amount), SUM(qty), COUNT(qty), AVG(qty) FROM sales",
    "SELECT COUNT(*) FROM main.sales s, main.customer AS c WHERE c.customer_id = s.customer_id",
    "SELECT COUNT(*) FROM sales INNER JOIN customer USING (customer_id) WHERE 20 <= age AND age < 30",
    "SELECT region, COUNT(*) n FROM sales LEFT JOIN customer USING (customer_id) GROUP BY region",
    'SELECT "region" AS "count", COUNT(*) FROM "sales" JOIN "customer"'
    ' ON "sales"."customer_id" = "customer"."customer_id" GROUP BY "region"',
    "SELECT department, category, SUM(amount) FROM sales JOIN product USING (product_id) JOIN category USING"
    " (category_id)"
    " GROUP BY department, category",
    "SELECT EXTRACT(MONTH FROM sold_on) AS m, COUNT(*) FROM sales GROUP BY m ORDER BY m DESC LIMIT 2",
    "SELECT DATE_TRUNC('month', sold_on) AS sold_on, COUNT(*) FROM sales GROUP BY DATE_TRUNC('month', sold_on)",
    "SELECT FLOOR((age - 18) / 5) * 5 + 18 AS b, COUNT(*) FROM customer WHERE age BETWEEN 18 AND 37 GROUP BY b",
    "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE age > 30 OR region = 'north'",
    "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE NOT (age > 30 AND region = 'north')",
    "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE (age, region) IN ((20, 'north'),"
    " (21, 'south'))",
    "SELECT COUNT(*) FROM sales LEFT JOIN customer USING (customer_id) WHERE region IS NULL",
    "SELECT COUNT(*) FROM sales LEFT JOIN customer USING (customer_id) WHERE NOT region IS NULL",
    "SELECT SUM(CASE WHEN age < 25 THEN amount ELSE 0 END) / NULLIF(SUM(amount), 0) FROM sales JOIN customer"
    " USING (customer_id)",
    "SELECT COUNT(*) FILTER (WHERE region = 'east'), COUNT_IF(age > 30) FROM sales JOIN customer USING (customer_id)",
    "SELECT r, n FROM (SELECT region AS r, COUNT(*) AS n FROM (SELECT c.region, s.amount FROM sales s JOIN"
    " customer c ON"
    " s.customer_id = c.customer_id WHERE age > 20) AS virtual_table GROUP BY region) AS t WHERE n > 50"
    " ORDER BY n DESC",
    "WITH x AS (SELECT c.region AS r, s.amount AS a FROM sales s JOIN customer c USING (customer_id)), y AS"
    " (SELECT r, SUM(a)"
    " AS t FROM x GROUP BY r) SELECT r, t, RANK() OVER (ORDER BY t DESC) AS k FROM y WHERE r IS NOT NULL ORDER BY k",
    "SELECT 'all' AS k, COUNT(*) AS n FROM sales UNION ALL SELECT 'teens', COUNT(*) FROM sales JOIN customer USING"
    " (customer_id) WHERE age < 20",
    "SELECT COUNT(*) * 100.0 / (SELECT COUNT(*) FROM sales) FROM sales JOIN customer USING (customer_id)"
    " WHERE age > 30",
    "SELECT region, COUNT(*) AS n FROM customer GROUP BY ALL HAVING COUNT(*) > 20 ORDER BY COUNT(*), region",
    "SELECT region, SUM(amount) AS amount FROM sales JOIN customer USING (customer_id) GROUP BY 1 HAVING amount > 100",
    "SELECT region AS r, COUNT(*) AS region FROM customer GROUP BY customer.region HAVING region = 'north'",
    "SELECT region, SUM(amount) AS m, SUM(SUM(amount)) OVER (ORDER BY region) FROM sales JOIN customer USING"
    " (customer_id)"
    " WHERE region IS NOT NULL GROUP BY region",
    "SELECT COUNT(*) FROM customer WHERE age BETWEEN 30 AND 20",
    "SELECT COUNT(*) FROM customer WHERE 1 = 0 OR age = 20",
    "SELECT SUM(amount * qty) FROM sales",
    "SELECT PERCENTILE_DISC(0.5) WITHIN GROUP (ORDER BY age) FROM customer WHERE region = 'east'",
    "SELECT COUNT(DISTINCT region) FROM customer",
    "SELECT MIN(age), MAX(age) FROM customer",
    "SELECT DISTINCT department FROM category ORDER BY 1",
    "SELECT 1 AS one, 'x' AS x",
]  # fmt: skip


@pytest.mark.parametrize("text", SAME)
def test_equals_duckdb(text: str, answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection) -> None:
    want, got = _plain(raw.execute(text).fetchall()), _plain(answerer.query(text).rows)
    ordered = "ORDER BY" in text.rsplit(")", 1)[-1]
    assert got == want if ordered else sorted(got, key=repr) == sorted(want, key=repr)


def test_ages_beyond_the_bounds_that_an_or_may_mean_are_a_group(answerer: ReleaseEngine) -> None:
    text = "SELECT age, COUNT(*) FROM sales JOIN customer USING (customer_id)"
    text += " WHERE 17 > age OR age IN (17, 19) GROUP BY 1"
    result = answerer.query(text)
    (low, high), rows = result.interval_rows(), dict(result.rows)
    assert rows.keys() == {19, None} and rows[19] == pytest.approx(69) and low[1][1] == 0 < high[1][1]


def _plain(rows: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Numbers as rounded floats, so that 3, 3.0 and Decimal(3) are alike."""
    return [
        tuple(round(float(v), 6) if isinstance(v, (int, float, Decimal)) else v for v in row) for row in rows
    ]


def test_whole_numbers_without_noise_are_printed_as_such(answerer: ReleaseEngine) -> None:
    text = "SELECT FLOOR(age / 10) * 10 AS decade, COUNT(*) AS n FROM customer WHERE age BETWEEN 20 AND 39 GROUP BY 1"
    lines = text_table(answerer.query(text)).splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["20", "30"]


def test_out_of_domain_is_not_null(answerer: ReleaseEngine) -> None:
    others = sum(row["age"] not in AGES for row in ROWS["customer"])
    assert others > 0
    assert answerer.query("SELECT COUNT(*) FROM customer WHERE age IS NOT NULL").scalar() == len(
        ROWS["customer"]
    )
    assert answerer.query("SELECT COUNT(*) FROM customer WHERE age IS NULL").scalar() == 0
    known = answerer.query("SELECT COUNT(*) FROM customer WHERE age > 0")
    assert known.scalar() == pytest.approx(len(ROWS["customer"]) - others)
    assert known.interval_rows()[1][0][0] > len(ROWS["customer"]) - 0.5  # all of them may be old


def test_parts_add_up_to_the_whole(answerer: ReleaseEngine) -> None:
    for key in ("region", "age", "region, age", "age % 3"):
        parts = answerer.query(f"SELECT {key}, COUNT(*) AS n, SUM(amount) FROM shop GROUP BY {key}").rows
        assert sum(row[-2] for row in parts) == answerer.query("SELECT COUNT(*) FROM sales").scalar()


def test_groups_come_in_catalog_order(answerer: ReleaseEngine) -> None:
    rows = answerer.query("SELECT region, COUNT(*) FROM shop GROUP BY region").rows
    assert [row[0] for row in rows] == ["north", "south", "east", "west", None]


def test_wide_table_is_left_joined(answerer: ReleaseEngine) -> None:
    assert answerer.query("SELECT COUNT(*) FROM shop").scalar() == len(ROWS["sales"])
    for nothing in ("LIMIT 0", "WHERE 1 = 0", "AS q WHERE (0 = 1) AND q.age > 30"):
        answer = answerer.query(f"SELECT * FROM shop {nothing}")
        assert {"amount", "age", "region", "category", "department"} <= {*answer.columns} and not answer.rows
    joined = answerer.query("SELECT c.*, * FROM customer c JOIN sales USING (customer_id) LIMIT 0").columns
    assert joined[:3] == joined[3:6] and joined.count("customer_id") == 2


@pytest.mark.parametrize(("sql", "error"), [
    ("SELECT agee FROM customer", UnknownName), ("SELECT age FROM customer", RawRowsError),
    ("SELECT", SqlSyntaxError), ("SELECT *", SqlSyntaxError), ("SELECT * FROM customer WHERE 1 = 1", RawRowsError),
    ("SELECT * FROM customer WHERE 1 = 1.0", RawRowsError), ("SELECT * FROM customer WHERE '1' = 1", RawRowsError),
])  # fmt: skip
def test_the_first_thing_that_is_wrong_is_the_error(
    answerer: ReleaseEngine, sql: str, error: type[Exception]
) -> None:
    """A misspelt column was told that a release has no rows, and SELECT alone in DuckDB's words."""
    with pytest.raises(error):
        answerer.query(sql)


def test_same_text_same_answer(answerer: ReleaseEngine) -> None:
    text = "SELECT region, AVG(amount) FROM shop GROUP BY 1"
    assert answerer.query(text) is answerer.query(text)
    assert ReleaseEngine(answerer.release).query(text).rows == answerer.query(text).rows
