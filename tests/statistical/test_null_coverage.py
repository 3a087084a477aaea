"""Statements over counts of all rows and of rows with a value: they err together, and their intervals say so.

Three views of one star share an axis: a nullable measure alone, two measures, and rows alone. So counts are averaged
over other views than counts of values are.
"""

from __future__ import annotations

import duckdb
import numpy as np
import pytest

from benchmarks.coverage import redrawn
from dpsql.catalog import load_catalog
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy

CATALOG = """
dpsql: 1
name: flights
source: {{kind: parquet, root: "{root}", tables: {{flight: flight.parquet}}}}
privacy: {{lineage: flights, cap: 10, unit: row, epsilon: 0.75, delta: 0}}
tables:
  flight: {{role: fact, columns: {{
    hour: {{type: int, lower: 0, upper: 23}}, day: {{type: int, lower: 1, upper: 12}},
    carrier: {{type: string, categories: [a, b, c], out_of_domain: drop}},
    delay: {{type: int, lower: -20, upper: 60, measure: true, nullable: true}},
    miles: {{type: int, lower: 0, upper: 9, measure: true}}}}}}
views:
  alone: {{of: flight, axes: [flight.hour, flight.carrier], measures: [count, flight.delay]}}
  beside: {{of: flight, axes: [flight.day, flight.carrier], measures: [count, flight.miles, flight.delay]}}
  rows: {{of: flight, axes: [flight.carrier], measures: [count]}}
"""
FLIGHTS = """
COPY (SELECT (random() * 23)::INT AS hour, (1 + random() * 11)::INT AS day, chr(97 + (random() * 2)::INT) AS carrier,
  CASE WHEN random() < .2 THEN NULL ELSE (random() * 80 - 20)::INT END AS delay, (random() * 9)::INT AS miles
FROM range(20000)) TO '{}/flight.parquet'
"""
WHERE = ("", "WHERE hour < 9", "WHERE hour BETWEEN 3 AND 20", "WHERE carrier = 'b'", "WHERE day > 4",
         "WHERE day = 7 AND carrier <> 'a'", "WHERE hour = 5")  # fmt: skip
COLUMNS = (
    "COUNT(*)", "COUNT(delay)", "SUM(delay)", "AVG(delay)", "COUNT(*) - COUNT(delay)", "COUNT(*) + COUNT(delay)",
    "CAST(COUNT(delay) AS DOUBLE) / COUNT(*)", "1 - COUNT(delay) * 1.0 / COUNT(*)",
)  # fmt: skip
STATEMENTS = [f"SELECT {', '.join(COLUMNS)} FROM flight {where}" for where in WHERE]
ACROSS = (
    "SELECT h.n - d.m AS apart FROM (SELECT COUNT(*) AS n FROM flight WHERE {0} carrier = 'b') AS h, "
    "(SELECT COUNT(delay) AS m FROM flight WHERE day < 9 AND carrier = 'b') AS d"
)


@pytest.fixture(scope="module")
def flights(tmp_path_factory):
    """A way to turn draws into an Answerer, over one set of cells."""
    folder = tmp_path_factory.mktemp("flights")
    with duckdb.connect() as db:
        db.execute("SELECT setseed(0.3)")
        db.execute(FLIGHTS.format(folder))
    file = folder / "flights.yaml"
    file.write_text(CATALOG.format(root=folder))
    return redrawn(load_catalog(file), folder)


def answers(answerer, sql):
    """Values, standard errors and whether 95% intervals are there, one array a statement."""
    result = answerer.query(sql)
    low, high = result.interval(0.95)
    return np.array([result.rows[0], low.iloc[0], high.iloc[0]], float)


def test_errors_over_both_counts_use_their_covariance(flights):
    """COUNT(*) - COUNT(x) is the number of rows with NULL, drawn alone."""
    answerer = flights(ZeroNoise(), "exact.dpsql")
    sql = (
        "SELECT DP_STDERR(COUNT(*) - COUNT(delay), 'noise') AS d, DP_STDERR(COUNT(*) + COUNT(delay), 'noise') AS s, "
        "DP_STDERR(COUNT(delay), 'noise') AS x, DP_STDERR(COUNT(*), 'noise') AS n, "
        "DP_STDERR(COUNT(delay) * 1.0 / COUNT(*), 'noise') AS share, "
        "COUNT(*) AS rows, COUNT(delay) AS present FROM flight WHERE hour = 5 AND carrier = 'a'"
    )
    d, s, x, n, share, rows, present = map(float, answerer.query(sql).rows[0])
    assert d**2 + s**2 == pytest.approx(2 * (x**2 + n**2))
    covariance = (s**2 - d**2) / 4
    # of one view it would be the variance of COUNT(x); rows are averaged
    assert 0.9 < covariance / x**2 <= 1.0001
    part = present / rows
    assert (share * rows) ** 2 == pytest.approx(x**2 - 2 * part * covariance + part**2 * n**2)


def cover(flights, statements, releases, noise):
    """By column the share of intervals that hold the exact answer, and squared errors over squared half-intervals."""
    exact = flights(ZeroNoise(), f"zero{len(statements)}.dpsql")
    truths = [answers(exact, sql)[0] for sql in statements]
    held, errors = [], []
    for i in range(releases):
        answerer = flights(noise, f"r{len(statements)}-{i}.dpsql")
        for sql, truth in zip(statements, truths, strict=True):
            value, low, high = answers(answerer, sql)
            held.append((low <= truth) & (truth <= high))
            errors.append(((value - truth) / ((high - low) / 3.92)) ** 2)
        answerer.release.close()
    return np.mean(held, axis=0), np.mean(errors, axis=0)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # hundreds of releases
def test_intervals_over_both_counts_cover(flights):
    held, errors = cover(flights, STATEMENTS, 200, ExactNoise(insecure_test_entropy(20261127)))
    assert np.all((held >= 0.93) & (held <= 0.97)), dict(zip(COLUMNS, held, strict=True))
    assert np.all((errors >= 0.75) & (errors <= 1.1)), dict(zip(COLUMNS, errors, strict=True))


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_intervals_over_two_views_cover(flights):
    """Rows of one view less values of another: they share what the views agree on."""
    statements = [ACROSS.format(where) for where in ("", "hour < 9 AND", "hour > 2 AND")]
    held, errors = cover(flights, statements, 300, ExactNoise(insecure_test_entropy(20261128)))
    assert np.all((held >= 0.92) & (held <= 0.98)) and np.all((errors >= 0.7) & (errors <= 1.25)), (
        held,
        errors,
    )
