"""Spellings of other systems, sums of shifted measures, CASE over two axes: equal to plain DuckDB without noise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest

from dpsql.answer import Answerer
from dpsql.errors import NotSupportedError
from dpsql.release import open_release
from tests.release_fixture import make_rows, raw_star, write_fixture

JOINED = "FROM sales s JOIN customer c ON s.customer_id = c.customer_id"
YOUNG = "CASE WHEN c.age < 30 THEN 1 WHEN c.region = 'north' THEN 2 ELSE 3 END"

CATEGORY = "JOIN category g ON p.category_id = g.category_id"

AS_THEY_ARE = [
    "SELECT SUM(amount - 1), SUM(2 - amount), AVG(amount + 3) FROM sales",
    "SELECT SUM(qty + 0), SUM(qty - 1), AVG(10 - qty), COUNT(qty - 1) FROM sales",
    f"SELECT c.region, SUM(CASE WHEN c.age < 30 THEN qty + 1 END) {JOINED} GROUP BY 1",
    f"SELECT COUNT(*) {JOINED} WHERE {YOUNG} = 2",
    f"SELECT COUNT(*) {JOINED} WHERE NOT {YOUNG} = 2",
    f"SELECT COUNT(*) {JOINED} WHERE {YOUNG} <> 3",
    f"SELECT COUNT(*) {JOINED} WHERE CASE WHEN c.age < 30 THEN c.region = 'north' ELSE c.region = 'south' END",
    f"SELECT COUNT(*) {JOINED} WHERE NOT CASE WHEN c.age < 30 THEN c.region = 'north' ELSE c.region = 'south' END",
    f"SELECT SUM(CASE WHEN {YOUNG} = 1 THEN amount ELSE 0 END) {JOINED}",
    "SELECT COUNT(*) FROM sales WHERE amount IS NOT NULL",
    "SELECT COUNT(*) FROM sales WHERE NOT amount IS NULL",
    "SELECT COUNT(*) FROM sales WHERE amount IS NULL",
    "SELECT COUNT(*) FROM sales NATURAL JOIN customer",
    f"SELECT c.region, COUNT(*) {JOINED} GROUP BY 1 ORDER BY 1 LIMIT 2 OFFSET 1",
    f"SELECT c.region, c.age > 30 AS old, COUNT(*), SUM(amount) {JOINED} GROUP BY ROLLUP (c.region, old)",
    f"SELECT c.region AS r, c.age > 30 AS old, COUNT(*) {JOINED} GROUP BY CUBE (r, old) ORDER BY 3, 1, 2",
    f"SELECT c.region, GROUPING(c.region), COUNT(*) {JOINED} GROUP BY CUBE (c.region)",
    f"SELECT c.region, c.age > 30 AS old, COUNT(*) {JOINED} GROUP BY GROUPING SETS ((c.region), (old), ()) "
    "HAVING COUNT(*) > 100",
    f"SELECT SUM(n) FROM (SELECT c.region, COUNT(*) AS n {JOINED} GROUP BY ROLLUP (c.region)) AS t",
    "SELECT COUNT(*) FROM (sales s JOIN customer c ON s.customer_id = c.customer_id) JOIN product p USING (product_id)",
    f"SELECT COUNT(*), SUM(s.amount) FROM sales s JOIN (product p {CATEGORY}) ON s.product_id = p.product_id "
    "WHERE g.category = 'tea'",
    f"SELECT g.category, COUNT(*) FROM ((sales s JOIN product p USING (product_id)) {CATEGORY}) GROUP BY 1",
    "SELECT g.category, COUNT(*) FROM sales s LEFT JOIN (product p LEFT JOIN category g "
    "ON p.category_id = g.category_id) ON s.product_id = p.product_id GROUP BY 1",
    f"SELECT g.category, COUNT(s.amount), SUM(s.amount), AVG(s.qty + 1), COUNT(s.product_id) FROM product p {CATEGORY} "
    "LEFT JOIN sales s ON p.product_id = s.product_id GROUP BY g.category",
    "SELECT c.region, COUNT(s.amount), SUM(s.amount) FILTER (WHERE c.age > 30) FROM sales s RIGHT JOIN customer c "
    "ON c.customer_id = s.customer_id WHERE c.age > 20 GROUP BY 1",
    "SELECT SUM(s.amount) FROM category g JOIN product p ON p.category_id = g.category_id LEFT JOIN sales s "
    "ON p.product_id = s.product_id WHERE s.sold_on > DATE '2025-02-01'",
    "SELECT COUNT(*) FROM customer WHERE region = ANY (['north', 'south']) OR age = ANY (SELECT 20)",
    "SELECT COUNT(*) FROM customer WHERE (region, age) IN (SELECT 'north', 20 UNION ALL SELECT 'east', 21)",
    "SELECT TIME_BUCKET(INTERVAL '1 month', sold_on), COUNT(*) FROM sales GROUP BY 1",
    "SELECT TRUNC(age / 7), COUNT(*) FROM customer GROUP BY 1",
]
"""Statements that DuckDB reads as they are."""

TRANSLATED = {
    "SELECT region, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY 1 ORDER BY 1 OFFSET 1 ROWS "
    "FETCH NEXT 2 ROWS ONLY":
        "SELECT region, COUNT(*) FROM sales JOIN customer USING (customer_id) GROUP BY 1 ORDER BY 1 LIMIT 2 OFFSET 1",
    "SELECT DATEADD(month, DATEDIFF(month, DATE '2000-01-01', sold_on), DATE '2000-01-01') AS m, COUNT(*) FROM sales "
    "GROUP BY 1": "SELECT CAST(DATE_TRUNC('month', sold_on) AS TIMESTAMP), COUNT(*) FROM sales GROUP BY 1",
    "SELECT TO_CHAR(sold_on, 'YYYY-MM') AS m, COUNT(*) FROM sales GROUP BY 1":
        "SELECT STRFTIME(sold_on, '%Y-%m'), COUNT(*) FROM sales GROUP BY 1",
    "SELECT SAFE_DIVIDE(SUM(amount), COUNT(*)), SAFE_DIVIDE(COUNT(*), 0) FROM sales":
        "SELECT SUM(amount) / COUNT(*), NULL FROM sales",
    "SELECT COUNT(*) FROM sales WHERE sold_on AT TIME ZONE 'UTC' >= TIMESTAMP '2025-02-01'":
        "SELECT COUNT(*) FROM sales WHERE sold_on >= DATE '2025-02-01'",
    "SELECT COUNT(*) FROM sales WHERE sold_on >= {d '2025-02-01'} AND sold_on < {ts '2025-03-01 00:00:00'}":
        "SELECT COUNT(*) FROM sales WHERE sold_on >= DATE '2025-02-01' AND sold_on < DATE '2025-03-01'",
    "SELECT DATEADD(month, DATEDIFF(month, 0, sold_on), 0) AS m, COUNT(*) FROM sales GROUP BY 1":
        "SELECT CAST(DATE_TRUNC('month', sold_on) AS TIMESTAMP), COUNT(*) FROM sales GROUP BY 1",
    "SELECT TRUNC(sold_on, 'MM') AS m, COUNT(*) FROM sales GROUP BY 1":
        "SELECT CAST(DATE_TRUNC('month', sold_on) AS TIMESTAMP), COUNT(*) FROM sales GROUP BY 1",
    "SELECT TO_CHAR(sold_on, 'YYYY-\"Q\"Q, FMMonth DD') AS m, COUNT(*) FROM sales GROUP BY 1":
        "SELECT STRFTIME(sold_on, '%Y-Q') || QUARTER(sold_on) || STRFTIME(sold_on, ', %B %d'), COUNT(*) FROM sales "
        "GROUP BY 1",
    "SELECT SAFE_DIVIDE(SAFE_DIVIDE(COUNT(*), 2), SAFE_DIVIDE(4, 2)) FROM sales": "SELECT COUNT(*) / 2 / 2 FROM sales",
    "SELECT FROM_UNIXTIME(UNIX_TIMESTAMP(sold_on)) AS t, COUNT(*) FROM sales GROUP BY 1":
        "SELECT CAST(sold_on AS TIMESTAMP), COUNT(*) FROM sales GROUP BY 1",
    "SELECT APPROX_COUNT_DISTINCT(age) FROM customer": "SELECT COUNT(DISTINCT age) FROM customer",
    "SELECT COUNT(*) FROM sales WHERE UNIX_TIMESTAMP(sold_on) >= UNIX_TIMESTAMP(DATE '2025-02-01')":
        "SELECT COUNT(*) FROM sales WHERE sold_on >= DATE '2025-02-01'",
}  # fmt: skip
"""Statements in other systems' words -> DuckDB's."""


@pytest.fixture(scope="module")
def star(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Answerer, duckdb.DuckDBPyConnection]]:
    rows = make_rows()
    path: Path = write_fixture(tmp_path_factory.mktemp("star") / "fixture.dpsql", rows, 1e-18)
    answerer = Answerer(open_release(path))
    yield answerer, raw_star(rows, known_only=True)
    answerer.release.close()


def equal(one: object, other: object) -> bool:
    """Equal values; SUM over no row is 0 here and NULL there."""
    numbers = [
        float(value or 0) for value in (one, other) if isinstance(value, (int, float, Decimal, type(None)))
    ]
    if len(numbers) == 2:
        return math.isclose(*numbers, rel_tol=1e-9, abs_tol=1e-9)
    return str(one) == str(other)


@pytest.mark.parametrize(("text", "plain"), [*((text, text) for text in AS_THEY_ARE), *TRANSLATED.items()])
def test_it_equals_plain_sql(star: tuple[Answerer, duckdb.DuckDBPyConnection], text: str, plain: str) -> None:
    answerer, raw = star
    got, want = answerer.query(text).rows, raw.execute(plain).fetchall()
    assert want and len(got) >= len(want)
    for row in want:
        assert any(all(map(equal, mine, row)) for mine in got), (row, got)


@pytest.mark.parametrize("text", [
    "SELECT COUNT(*) FROM sales WHERE sold_on AT TIME ZONE 'Asia/Tokyo' >= TIMESTAMP '2025-02-01'",
    "SELECT region, COUNT(*) FROM shop GROUP BY 1 ORDER BY 1 FETCH FIRST 10 PERCENT ROWS ONLY",
    "SELECT region, COUNT(*) FROM shop GROUP BY 1 ORDER BY 1 FETCH FIRST 10 ROWS WITH TIES",
    "SELECT TO_CHAR(sold_on, 'Month'), COUNT(*) FROM sales GROUP BY 1",
    "SELECT TO_CHAR(sold_on, 'D WW'), COUNT(*) FROM sales GROUP BY 1",
    f"SELECT g.category, COUNT(*) FROM product p {CATEGORY} LEFT JOIN sales s USING (product_id) GROUP BY 1",
    f"SELECT SUM(1) FROM product p {CATEGORY} LEFT JOIN sales s ON p.product_id = s.product_id",
    f"SELECT SUM(s.amount) FROM product p {CATEGORY} LEFT JOIN sales s ON p.product_id = s.product_id "
    "WHERE s.sold_on IS NULL OR g.category = 'tea'",
    "SELECT COUNT(p.price) FROM sales s RIGHT JOIN product p ON p.product_id = s.product_id",
    "SELECT COUNT(*) FROM sales s LEFT JOIN (product p JOIN category g ON p.category_id = g.category_id) "
    "ON s.product_id = p.product_id",
])  # fmt: skip
def test_what_would_mean_something_else_stays_refused(
    star: tuple[Answerer, duckdb.DuckDBPyConnection], text: str
) -> None:
    with pytest.raises(NotSupportedError):
        star[0].query(text)
