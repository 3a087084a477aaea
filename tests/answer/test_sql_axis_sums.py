"""SUM and AVG of what an axis tells of its rows, and partners by their key: equal to plain DuckDB without noise."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.errors import DataError, NotSupportedError, NoViewError
from dpsql.executor.engine import ReleaseEngine
from tests.answer.test_sql_spellings import equal

VARIANCE = 1e-18
JOINED = "FROM sales s JOIN customer c ON s.customer_id = c.customer_id"
LEFT = "FROM sales s LEFT JOIN customer c ON s.customer_id = c.customer_id"
PRICED = "FROM sales JOIN product USING (product_id)"

EXACT = [
    "SELECT SUM(age), AVG(age) FROM customer",
    "SELECT region, SUM(age), AVG(age) FROM customer GROUP BY 1",
    "SELECT SUM(age) FILTER (WHERE region = 'north'), SUM(-age), SUM(3 - age) FROM customer",
    f"SELECT AVG(c.age * 2 + 1), SUM(c.age % 10), SUM(c.age * c.age) {JOINED} WHERE c.age > 25",
    f"SELECT SUM(amount * c.age), AVG(amount * c.age), SUM(amount / c.age), SUM(s.qty * c.age) {JOINED}",
    f"SELECT SUM(CASE WHEN c.region = 'north' THEN c.age ELSE 0 END), SUM(c.age) {LEFT}",
    "SELECT SUM(age > 30), AVG(CASE WHEN age > 30 THEN 1 ELSE 0 END) FROM customer",
    "SELECT SUM(EXTRACT(day FROM sold_on)), AVG(EXTRACT(month FROM sold_on)) FROM sales",
    "SELECT SUM(LENGTH(region)), SUM(COALESCE(age, 0)) FROM customer",
    "SELECT SUM(age) / COUNT(age), SUM(age) - AVG(age) FROM customer WHERE age IS NOT NULL AND age < 99",
    "SELECT AVG(age * age) - AVG(age) * AVG(age) FROM customer",
    "SELECT region, age // 10 * 10, SUM(age) FROM customer GROUP BY 1, 2",
    f"SELECT COUNT(*), SUM(amount) {LEFT} WHERE c.customer_id IS NULL",
    f"SELECT COUNT(*) {LEFT} WHERE c.customer_id IS NOT NULL AND c.age > 30",
    f"SELECT COUNT(*), SUM(amount) {LEFT} WHERE c.customer_id IS NULL OR c.age > 30",
    f"SELECT c.region, COUNT(c.customer_id) {LEFT} GROUP BY 1",
    f"SELECT COUNT(s.customer_id), COUNT(c.customer_id) {JOINED}",
    "SELECT COUNT(*), COUNT(product_id) FROM sales WHERE product_id IS NOT NULL",
]


@pytest.mark.parametrize("text", EXACT)
def test_it_equals_plain_sql(answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, text: str) -> None:
    result, want = answerer.query(text), raw.execute(text).fetchall()
    assert want
    assert not result.undefined
    for row in want:
        assert any(all(map(equal, mine, row)) for mine in result.rows), (row, result.rows)


@pytest.mark.parametrize("text", [
    f"SELECT 'all', SUM(price), AVG(price), SUM(price * price) {PRICED}",
    f"SELECT 'all', SUM(price), SUM(10 - price) {PRICED} WHERE price < 18",
    f"SELECT 'all', SUM(price), SUM(price) FILTER (WHERE price >= 4) {PRICED}",
    f"SELECT price // 10, SUM(price), AVG(price) {PRICED} GROUP BY 1",
    f"SELECT 'all', SUM(CASE WHEN region = 'north' THEN price END) {PRICED} JOIN customer USING (customer_id)",
])  # fmt: skip
def test_bins_of_several_values_are_bounded(
    answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, text: str
) -> None:
    result, want = answerer.query(text), raw.execute(text).fetchall()
    assert any("have several values" in note for note in result.notes)
    keyed = {row[0]: (row, bounds) for row, bounds in zip(result.rows, result.model_bound, strict=True)}
    for key, *values in want:
        row, bounds = keyed[key]
        for mine, plain, bound in zip(row[1:], values, bounds[1:], strict=True):
            assert bound is not None
            assert abs(float(mine) - float(plain)) <= bound + 1e-6, (text, mine, plain, bound)
    assert any(bound for bounds in result.model_bound for bound in bounds)


def test_one_value_a_bin_has_no_bound_to_tell(answerer: ReleaseEngine) -> None:
    result = answerer.query("SELECT SUM(age), AVG(age) FROM customer")
    assert result.model_bound == ((0.0, 0.0),)
    assert [note for note in result.notes if "values of customer.age outside its declared range" in note]


def test_a_catalog_that_refuses_cut_bins_refuses_spreading_too(
    answerer: ReleaseEngine,
) -> None:
    strict = ReleaseEngine(answerer.release, on_partial_bin="refuse")
    with pytest.raises(NoViewError, match=r"bins of product\.price with several values"):
        strict.query(f"SELECT SUM(price) {PRICED}")
    assert strict.query(f"SELECT SUM(price // 5) {PRICED}").rows


@pytest.mark.parametrize(("text", "kind", "reason"), [
    ("SELECT SUM(region) FROM customer", DataError, "types of its columns"),
    ("SELECT SUM(sold_on) FROM sales", DataError, "types of its columns"),
    (f"SELECT SUM(c.age * price) {JOINED} JOIN product USING (product_id)", NotSupportedError, "on one axis"),
    ("SELECT COUNT(*) FROM sales WHERE customer_id IS NULL", NotSupportedError, "are counted together"),
])  # fmt: skip
def test_refused(answerer: ReleaseEngine, text: str, kind: type[Exception], reason: str) -> None:
    with pytest.raises(kind, match=reason):
        answerer.query(text)
