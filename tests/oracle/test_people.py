"""COUNT(DISTINCT unit) without noise equals plain DuckDB, whatever asks it; what no view adds up is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.errors import CatalogError, Error, NoViewError
from dpsql.executor.engine import ReleaseEngine
from dpsql.ledger.store import ledger_entries
from dpsql.noise import ZeroNoise
from dpsql.release import open_release
from tests.people_star import make_people, plain
from tests.releases import published, seeded


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    catalog = make_people(folder, customers=600, privacy="epsilon: 9")
    return published(catalog, ZeroNoise()), plain(folder)


RANGES = [f"month BETWEEN {i} AND {j}" for i in range(6) for j in range(i, 6)]
JOINED = "FROM sales JOIN customer USING (id)"
ASKED = [
    "SELECT COUNT(DISTINCT id) FROM sales",
    "SELECT COUNT(DISTINCT id) FROM returns",
    "SELECT COUNT(DISTINCT id) FROM returns WHERE month >= 4",
    *(f"SELECT COUNT(DISTINCT id) FROM sales WHERE {each}" for each in RANGES),
    *(f"SELECT COUNT(DISTINCT sales.id) {JOINED} WHERE region <> 's' AND {each}" for each in RANGES[::4]),
    "SELECT month, COUNT(DISTINCT id) FROM sales GROUP BY month",
    "SELECT CASE WHEN month < 4 THEN 'early' ELSE 'late' END AS h, COUNT(DISTINCT id) FROM sales GROUP BY h",
    f"SELECT region, month, COUNT(DISTINCT customer.id) {JOINED} GROUP BY region, month",
    f"SELECT age, COUNT(DISTINCT id) {JOINED} GROUP BY age",
    f"SELECT COUNT(DISTINCT id) {JOINED} WHERE age IN (1, 4, 7)",
    "SELECT store, COUNT(DISTINCT id) FROM sales WHERE month = 2 GROUP BY store",
    f"SELECT COUNT(DISTINCT id) {JOINED} WHERE month = 2 AND store = 1 AND region IN ('n', 'e')",
    f"SELECT COUNT(DISTINCT id) {JOINED} WHERE region = 'n' OR month = 1",
    f"SELECT COUNT(DISTINCT id) {JOINED} WHERE region = 'n' OR (region = 's' AND month > 2)",
    "SELECT COUNT(DISTINCT id) FILTER (WHERE month < 3) * 2 - COUNT(DISTINCT id) FROM sales",
    "SELECT COUNT(DISTINCT CASE WHEN month < 3 THEN id END) FROM sales",
    f"SELECT COUNT(DISTINCT IF(region = 'n', customer.id, NULL)) {JOINED} WHERE month BETWEEN 1 AND 3",
    "SELECT COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales WHERE month < 2)",
    "SELECT COUNT(*) AS n FROM customer c WHERE c.id IN (SELECT s.id FROM sales s WHERE s.month > 3)",
    "SELECT COUNT(*) FROM customer WHERE EXISTS (SELECT 1 FROM sales WHERE sales.id = customer.id AND month = 5)",
    "SELECT region, COUNT(*) FROM customer c WHERE EXISTS (SELECT * FROM sales s WHERE c.id = s.id AND month < 3) "
    "GROUP BY region",
    "SELECT COUNT(*) FROM customer WHERE age > 4 AND id IN (SELECT id FROM sales)",
    "WITH buyers AS (SELECT COUNT(*) AS n FROM customer WHERE id IN (SELECT id FROM sales WHERE month = 1)) "
    "SELECT n + 1 FROM buyers",
]


def known(rows):
    """Answers of groups that exist, in order."""
    return sorted(tuple(row) for row in rows if None not in row and row[-1])


@pytest.mark.parametrize("sql", ASKED)
def test_people_are_counted_once(shop, sql):
    answerer, rows = shop
    wanted, found = known(rows.execute(sql).fetchall()), known(answerer.query(sql).rows)
    found = [row for row in found if abs(row[-1]) > 1e-3]
    assert len(found) == len(wanted)
    for left, right in zip(found, wanted, strict=True):
        assert left[:-1] == right[:-1]
        # cells that people touch in tens are weighted, and put back by one factor
        assert left[-1] == pytest.approx(right[-1], abs=0.35 * right[-1] if "store" in sql else 1e-3)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT COUNT(DISTINCT id) FROM sales WHERE month IN (1, 4)",
        "SELECT COUNT(DISTINCT id) FROM sales WHERE month <> 2",
        "SELECT COUNT(DISTINCT id) FROM sales WHERE store = 1",
        f"SELECT COUNT(DISTINCT id) {JOINED} WHERE age = 3 OR month = 1",
        "SELECT COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales WHERE store < 3)",
    ],
)
def test_what_would_count_people_twice_names_the_view(shop, sql):
    with pytest.raises(NoViewError, match=r"people: \{of: sales, axes: \[") as refused:
        shop[0].query(sql)
    assert "COUNT(*) counts rows of sales" in str(refused.value)


OTHER = r"`id IN \(SELECT id FROM .. WHERE ..\)` or EXISTS"
ONE = r"COUNT\(DISTINCT id\) counts each of them once"


@pytest.mark.parametrize(
    ("sql", "instead"),
    [
        ("SELECT COUNT(*) FROM customer WHERE id NOT IN (SELECT id FROM sales WHERE month = 1)", OTHER),
        (
            "SELECT COUNT(*) FROM customer c WHERE NOT EXISTS (SELECT 1 FROM sales s WHERE s.id = c.id)",
            "all of customer less those with one",
        ),
        (
            "SELECT COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales WHERE month = 1) OR age = 3",
            OTHER,
        ),
        (
            "SELECT COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales GROUP BY id HAVING COUNT(*) > 2)",
            r"`visits: \{of: sales, is: count\(\*\), \.\.\}` under its summaries$",
        ),
        ("SELECT COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales LIMIT 3)", OTHER),
        ("SELECT AVG(age) FROM customer WHERE id IN (SELECT id FROM sales)", OTHER),
        ("SELECT COUNT(*) FROM customer WHERE EXISTS (SELECT 1 FROM sales WHERE month = 1)", OTHER),
        (
            "SELECT COUNT(*) FROM customer WHERE id IN (SELECT id FROM sales WHERE month = 1) "
            "AND id IN (SELECT id FROM sales WHERE month = 2)",
            OTHER,
        ),
        ("SELECT COUNT(*) FROM (SELECT DISTINCT id FROM sales)", ONE),
        (
            "SELECT COUNT(*) FROM (SELECT id FROM sales GROUP BY id)",
            rf"is: count\(\*\), \.\.\}}` under its summaries; {ONE}",
        ),
        ("WITH buyers AS (SELECT DISTINCT id FROM sales WHERE month = 1) SELECT COUNT(*) FROM buyers", ONE),
        ("SELECT COUNT(DISTINCT amount) FROM sales", "it is not an axis"),
        ("SELECT COUNT(DISTINCT CASE WHEN month < 3 THEN id ELSE 7 END) FROM sales", "it is not an axis"),
    ],
)
def test_other_shapes_are_refused_with_what_to_write(shop, sql, instead):
    with pytest.raises(Error, match=instead):
        shop[0].query(sql)


def test_a_name_that_the_statement_gives_itself_is_no_table_of_people(shop):
    answerer, rows = shop
    sql = (
        "WITH customer AS (SELECT month, COUNT(*) AS n FROM sales WHERE month < 6 GROUP BY month) "
        "SELECT COUNT(*) FROM customer WHERE n > (SELECT MIN(n) - 1 FROM customer)"
    )
    assert [tuple(row) for row in answerer.query(sql).rows] == rows.execute(sql).fetchall()


def test_an_answer_says_that_it_does_not_add_up(shop):
    caveat = "each unit of customer counts once: counts of different sales.month do not add up to the total"
    assert caveat in shop[0].query("SELECT COUNT(DISTINCT id) FROM sales WHERE month < 3").notes
    by_age = shop[0].query(f"SELECT age, COUNT(DISTINCT id) {JOINED} GROUP BY age")  # a person has one age
    assert by_age.notes == (
        "groups without a value of customer.age also contain values outside the catalog's domain",
    )


@pytest.mark.parametrize(("bound", "privacy"), [("3", "epsilon: 1"), ("auto", "epsilon: 1, delta: 1e-6")])
def test_shares_come_out_of_the_views(tmp_path, bound, privacy):
    catalog = load_catalog(make_people(tmp_path, bound=bound, privacy=privacy))
    done = publish_release(catalog, tmp_path / "r.dpsql", noise=seeded(1), key=bytes(32))
    (entry,) = ledger_entries(tmp_path / "ledger.duckdb")
    lines = {line.purpose: line.amount for line in entry.spend_lines()}
    whole = sum(lines.values(), Fraction(0))
    about_people = {purpose for purpose in lines if "people" in purpose or "cells per unit" in purpose}
    assert about_people == {
        "view months: people, by gaps", "view places: people, by gaps", "view returned: people, by gaps",
        "view ages: people", "view (sales in all): people", "view stores: people, by cells",
        "sales: cells per unit of stores",
    }  # fmt: skip
    assert sum(lines[purpose] for purpose in about_people) == whole * Fraction(1, 5) * (Fraction(1, 3) + 2)
    assert done.receipt.charged_epsilon <= 1
    answerer = ReleaseEngine(open_release(done.path, insecure=True))
    for sql in ASKED[::6]:
        errors = answerer.query(sql).stderr.to_numpy(dtype=float)[:, -1]
        assert np.all(errors > 0) and np.all(np.isfinite(errors))
    people = "COUNT(DISTINCT id)"
    parts = f"DP_STDERR({people}, 'scale'), DP_STDERR({people}, 'tail'), DP_BIAS_HINT({people})"
    assert answerer.query(f"SELECT month, {parts} FROM sales GROUP BY month").rows == tuple(
        (month, 0.0, 0.0, 0.0) for month in (*range(6), None)
    )


def test_errors_of_nested_ranges_hang_together(shop):
    """Adding months adds people of whom some were counted: the error of the difference is below the sum's."""
    answerer = shop[0]
    found = [
        answerer.query(
            f"SELECT DP_STDERR(COUNT(DISTINCT id) FILTER (WHERE month < {j})"
            f" - COUNT(DISTINCT id) FILTER (WHERE month < {i})),"
            f" DP_STDERR(COUNT(DISTINCT id) FILTER (WHERE month < {i})),"
            f" DP_STDERR(COUNT(DISTINCT id) FILTER (WHERE month < {j})) FROM sales"
        ).rows[0]
        for i, j in pairwise(range(1, 7))
    ]
    assert all(both < math.hypot(left, right) for both, left, right in found)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("unit: customer.id", "unit: row", "each row of `sales` is a unit"),
        ("{of: returns, axes: [returns.month]", "{of: customer, axes: [customer.age]", "is a unit"),
        ("views:", "stream: {column: sales.day, horizon: 4}\nviews:", "a stream does not count `people`"),
        ("measures: [count, people]}", "measures: [people]}", "add `count`"),
    ],
)
def test_catalogs_that_cannot_count_people(tmp_path, old, new, said):
    file = make_people(tmp_path)
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(CatalogError, match=said):
        load_catalog(file)
