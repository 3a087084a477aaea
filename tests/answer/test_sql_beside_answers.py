"""Sums of what an axis tells of its rows, partners by their key, keys over several axes, IN and EXISTS, rows joined to
answers: equal to plain DuckDB without noise."""

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
TOP = f"(SELECT c.region AS r__, COUNT(*) AS n__ {JOINED} GROUP BY c.region ORDER BY n__ DESC LIMIT 2) AS t"
THREE = "CASE WHEN c.age < 30 THEN 'a' WHEN c.region = 'north' THEN 'b' ELSE 'c' END"
REGIONS = "(SELECT region AS r, COUNT(*) AS n FROM customer GROUP BY 1) AS t"

SUMS = [
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


EXACT = [
    *SUMS,
    f"SELECT {THREE} AS k, COUNT(*), SUM(amount), AVG(amount), AVG(qty), SUM(c.age) {JOINED} GROUP BY 1",
    f"SELECT {THREE} AS k, category, COUNT(*) {JOINED} JOIN product USING (product_id) JOIN category "
    "USING (category_id) GROUP BY k, category HAVING COUNT(*) > 10",
    f"SELECT c.age > 30 AND c.region = 'north', COUNT(*) {JOINED} GROUP BY 1",
    f"SELECT c.region || c.age, COUNT(*) {JOINED} GROUP BY 1",
    f"SELECT k, SUM(n) FROM (SELECT {THREE} AS k, COUNT(*) AS n {JOINED} GROUP BY 1) AS q GROUP BY k",
    f"SELECT {THREE} AS k, COUNT(*), 100.0 * COUNT(*) / SUM(COUNT(*)) OVER () {JOINED} GROUP BY 1",
    f"SELECT DISTINCT c.age > 30 OR c.region = 'north' {JOINED} WHERE c.age IS NOT NULL AND c.region IS NOT NULL",
    "SELECT STDDEV_POP(age), VAR_POP(age) FROM customer",
    "SELECT STDDEV(age), VARIANCE(age) FROM customer WHERE age > 0",
    f"SELECT region, STDDEV(c.age), COUNT(*) {JOINED} WHERE age > 0 GROUP BY 1",
    f"SELECT COUNT(*), SUM(amount) {JOINED} WHERE c.age - 20 > LENGTH(c.region)",
    f"SELECT c.region, COUNT(*) {JOINED} WHERE c.age % 7 < LENGTH(c.region) AND c.age > 20 GROUP BY 1",
    "SELECT COUNT(*), SUM(amount) FROM sales WHERE product_id IN (SELECT product_id FROM product JOIN category "
    "USING (category_id) WHERE category = 'tea')",
    "SELECT COUNT(*) FROM sales WHERE product_id NOT IN (SELECT p.product_id FROM product p JOIN category c "
    "ON p.category_id = c.category_id WHERE c.category = 'tea')",
    "SELECT COUNT(*) FROM sales s WHERE EXISTS (SELECT 1 FROM customer c WHERE c.customer_id = s.customer_id "
    "AND c.age < 30)",
    "SELECT COUNT(*) FROM sales s WHERE NOT EXISTS (SELECT * FROM customer c WHERE s.customer_id = c.customer_id "
    "AND c.age < 30)",
    "SELECT COUNT(*) FROM sales s WHERE customer_id IN (SELECT customer_id FROM customer WHERE age < 30) "
    "AND customer_id IN (SELECT customer_id FROM customer WHERE region = 'north')",
    f"SELECT c.region, COUNT(*) {JOINED} WHERE c.customer_id IN (SELECT customer_id FROM customer WHERE age < 30) "
    "OR c.region = 'north' GROUP BY 1",
    "SELECT COUNT(*) FROM sales WHERE product_id IN (SELECT product_id FROM product)",
    f"SELECT region, COUNT(*) AS n, AVG(amount) {JOINED} JOIN {TOP} ON region = r__ GROUP BY region",
    f"SELECT c.region, c.age > 30, COUNT(*) {JOINED} WHERE c.region IN (SELECT r__ FROM {TOP}) GROUP BY 1, 2",
    f"SELECT COUNT(*), MIN(c.age) {JOINED} JOIN {TOP} ON region = r__",
    f"WITH t AS (SELECT c.region AS r, COUNT(*) AS n {JOINED} GROUP BY 1) SELECT c.region, COUNT(*), SUM(amount) "
    f"{JOINED} JOIN t ON t.r = c.region WHERE t.n > 150 GROUP BY 1",
    f"SELECT c.region, t.n, COUNT(*) {JOINED} JOIN {REGIONS} ON t.r = c.region GROUP BY 1, 2",
    f"SELECT t.r, COUNT(*) FROM {REGIONS} JOIN customer c ON c.region = t.r GROUP BY 1",
    f"SELECT c.region, COUNT(*) {JOINED} LEFT JOIN {TOP} ON region = r__ WHERE r__ IS NULL GROUP BY 1",
    f"SELECT c.region, COUNT(*) {JOINED} JOIN (VALUES ('north', 1), ('south', 2)) AS v(r, w) ON v.r = c.region "
    "GROUP BY 1",
    f"SELECT v.w, COUNT(*) {JOINED} JOIN (VALUES ('north', 1), ('south', 2), ('south', 3)) AS v(r, w) "
    "ON v.r = c.region GROUP BY 1",
    f"SELECT COUNT(*) {JOINED} WHERE c.region IN (SELECT region FROM customer WHERE age < 20)",
    f"SELECT COUNT(*) {JOINED} WHERE c.region NOT IN (SELECT DISTINCT region FROM customer WHERE region < 'o')",
    "SELECT COUNT(*) FROM customer WHERE age > (SELECT AVG(age) FROM customer)",
    f"SELECT c.region, AVG(amount) {JOINED} WHERE EXISTS (SELECT 1 FROM (SELECT c.region AS region, COUNT(*) AS n "
    f"{JOINED} GROUP BY c.region ORDER BY n LIMIT 2) t0 WHERE ((c.region = t0.region) OR (c.region IS NULL AND "
    "t0.region IS NULL))) GROUP BY 1",
    f"SELECT c.region, COUNT(*) {JOINED} WHERE EXISTS (SELECT 1 FROM {TOP} WHERE c.region = t.r__) AND EXISTS "
    f"(SELECT 1 FROM (SELECT r, n FROM {REGIONS} ORDER BY n DESC LIMIT 3) AS t WHERE c.region = t.r) GROUP BY 1",
    "SELECT region, COUNT(*), n FROM customer JOIN (SELECT region, COUNT(*) AS n FROM customer GROUP BY 1) AS t "
    "USING (region) GROUP BY 1, 3",
    f"SELECT region, COUNT(*) FROM customer WHERE region IN (SELECT r FROM {REGIONS} WHERE n > 20) GROUP BY 1",
]


@pytest.mark.parametrize("text", EXACT)
def test_it_equals_plain_sql(answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, text: str) -> None:
    result, want = answerer.query(text), raw.execute(text).fetchall()
    assert want
    assert text not in SUMS or not result.undefined
    for row in want:
        assert any(all(map(equal, mine, row)) for mine in result.rows), (row, result.rows)
    more = [mine for mine in result.rows if not any(all(map(equal, mine, row)) for row in want)]
    assert all(equal(mine[-1], 0) for mine in more), more


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


@pytest.mark.parametrize(("text", "plain"), {
    f"SELECT n FROM (SELECT {THREE} AS k, COUNT(*) AS n {JOINED} GROUP BY 1) AS q WHERE k = 'a'":
        f"SELECT COUNT(*) {JOINED} WHERE c.age < 30",
    f"SELECT COUNT(*) {JOINED} JOIN {REGIONS} ON t.r = c.region WHERE t.r < 'o'":
        f"SELECT COUNT(*) {JOINED} WHERE c.region < 'o'",
    f"SELECT COUNT(*) {JOINED} JOIN {TOP} ON region = r__ WHERE region = 'east' GROUP BY region":
        f"SELECT COUNT(*) {JOINED} WHERE c.region = 'east'",
    "SELECT SUM(amount) FROM sales s WHERE NOT EXISTS (SELECT 1 FROM customer c WHERE c.customer_id = s.customer_id)":
        "SELECT SUM(amount) FROM sales s LEFT JOIN customer c USING (customer_id) WHERE c.customer_id IS NULL",
}.items())  # fmt: skip
def test_errors_are_those_of_the_plain_spelling(answerer: ReleaseEngine, text: str, plain: str) -> None:
    mine, want = answerer.query(text), answerer.query(plain)
    assert float(mine.scalar()) == pytest.approx(float(want.scalar()))
    # where ages beyond the bounds may be meant they have more cases in one spelling than in the other
    near = pytest.approx(want.stderr_rows[0][0], rel=2e-2 if "age" in plain else 1e-6)
    assert mine.stderr_rows[0][0] == near
    function = answerer.query(text.replace("SELECT ", "SELECT DP_STDERR(", 1).replace(" FROM", ") FROM", 1))
    assert float(function.scalar()) == near


def test_a_total_over_what_noise_picked_says_so(
    answerer: ReleaseEngine,
) -> None:
    result = answerer.query(f"SELECT COUNT(*) AS n {JOINED} JOIN {TOP} ON region = r__")
    assert result.stderr_rows == ((None,),)
    assert result.undefined == {"n": "SUM: rows were picked by a noisy value"}


@pytest.mark.parametrize(("text", "reason"), {
    "SELECT COUNT(*) FROM sales WHERE customer_id NOT IN (SELECT customer_id FROM customer WHERE age < 30)":
        "keys that find no customer are counted together",
    "SELECT COUNT(*) FROM sales WHERE NOT (customer_id IN (SELECT customer_id FROM customer) OR qty = 3)":
        "IN under NOT is not true where the key is NULL",
    f"SELECT COUNT(*) {JOINED} WHERE EXISTS (SELECT 1 FROM customer d WHERE d.region = c.region)":
        "rows other than a partner by its key",
    "SELECT COUNT(*) FROM customer c WHERE EXISTS (SELECT 1 FROM (SELECT region, age, COUNT(*) n FROM customer "
    "GROUP BY 1, 2) AS t WHERE t.region = c.region)": "may have several rows for one",
    f"SELECT COUNT(*) {JOINED} WHERE c.age > (SELECT AVG(d.age) FROM customer d WHERE d.region = c.region)":
        "a correlated subquery",
    f"SELECT t.r, COUNT(*) FROM {REGIONS} LEFT JOIN customer c ON c.region = t.r GROUP BY 1": "outer side of a join",
    f"SELECT SUM(t.n * c.age) {JOINED} JOIN {REGIONS} ON t.r = c.region": "an answer's column and of rows together",
    f"SELECT MAX(t.n) {JOINED} JOIN {REGIONS} ON t.r = c.region": "of which some may have no row",
    f"SELECT COUNT(*) FILTER (WHERE c.age - 20 > LENGTH(c.region)) {JOINED}": "inside an aggregate ties two axes",
    f"SELECT {THREE}, MEDIAN(c.age) {JOINED} GROUP BY 1": "quantiles and distinct values of several groups",
    "SELECT region, (SELECT COUNT(*) FROM customer d WHERE d.region = c.region) FROM customer c GROUP BY 1":
        "a correlated subquery",
    "SELECT COUNT(*) FROM sales SEMI JOIN customer USING (customer_id)": "SEMI JOIN is not supported; .* over its key",
    "SELECT COUNT(*) FROM sales ASOF JOIN customer USING (customer_id)": "ASOF JOIN is not supported",
    "SELECT SUM(price) FROM product": "no view counts rows of product",
    "SELECT STDDEV(amount) FROM sales": r"ask the curator for `squares\(sales.amount\)`",
    f"SELECT SUM(c.age * price) {JOINED} JOIN product USING (product_id)": "on one axis",
    "SELECT COUNT(*) FROM sales WHERE customer_id IS NULL": "are counted together",
    "SELECT ANY_VALUE(region) FROM customer": "the value of a single row is not published",
    "SELECT t.n FROM (SELECT COUNT(*) AS n FROM sales) AS t WHERE EXISTS (SELECT 1)": "EXISTS over answers",
}.items())  # fmt: skip
def test_refused_with_a_true_reason(answerer: ReleaseEngine, text: str, reason: str) -> None:
    with pytest.raises(NotSupportedError, match=reason):
        answerer.query(text)


@pytest.mark.parametrize("text", ["SELECT SUM(region) FROM customer", "SELECT SUM(sold_on) FROM sales"])
def test_texts_and_days_are_not_added_up(answerer: ReleaseEngine, text: str) -> None:
    with pytest.raises(DataError, match="types of its columns"):
        answerer.query(text)
