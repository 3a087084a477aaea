"""COUNT(DISTINCT unit) without noise equals plain DuckDB, whatever asks it; what no view adds up is refused."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.errors import CatalogError, Error, NoViewError
from dpsql.executor.engine import ReleaseEngine
from dpsql.ledger.store import ledger_entries
from dpsql.noise import ZeroNoise
from dpsql.release import open_release
from tests.people_star import make_people
from tests.releases import plain_tables, published, seeded
from tests.statements import sections
from tests.thinned import by_default


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    folder = tmp_path_factory.mktemp("people")
    catalog = make_people(folder, customers=600, privacy="epsilon: 9")
    return published(catalog, ZeroNoise()), plain_tables(folder)


RANGES = [f"month BETWEEN {i} AND {j}" for i in range(6) for j in range(i, 6)]
JOINED = "FROM sales JOIN customer USING (id)"
FILE = sections(Path(__file__).with_name("people.sql"))
ASKED = [
    *(sql for sql, _ in FILE["asked"]),
    *(f"SELECT COUNT(DISTINCT id) FROM sales WHERE {each}" for each in RANGES),
    *(f"SELECT COUNT(DISTINCT sales.id) {JOINED} WHERE region <> 's' AND {each}" for each in RANGES[::4]),
]


def known(rows):
    """Answers of groups that exist, in order."""
    return sorted(tuple(row) for row in rows if None not in row and row[-1])


@pytest.mark.parametrize("sql", by_default(ASKED, 18))
def test_people_are_counted_once(shop, sql):
    answerer, rows = shop
    wanted, found = known(rows.execute(sql).fetchall()), known(answerer.query(sql).rows)
    found = [row for row in found if abs(row[-1]) > 1e-3]
    assert len(found) == len(wanted)
    for left, right in zip(found, wanted, strict=True):
        assert left[:-1] == right[:-1]
        # cells that people touch in tens are weighted, and put back by one factor
        assert left[-1] == pytest.approx(right[-1], abs=0.35 * right[-1] if "store" in sql else 1e-3)


@pytest.mark.parametrize("sql", [sql for sql, _ in FILE["counted twice"]])
def test_what_would_count_people_twice_names_the_view(shop, sql):
    with pytest.raises(NoViewError, match=r"\{of: sales, axes: \[.*measures: \[count, people\]") as refused:
        shop[0].query(sql)
    assert "COUNT(*) counts rows of sales" in str(refused.value)


@pytest.mark.parametrize(("sql", "instead"), FILE["refused"])
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


@pytest.mark.parametrize(
    ("bound", "privacy"), by_default([("3", "epsilon: 1"), ("auto", "epsilon: 1, delta: 1e-6")], 1)
)
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
