"""Intervals of COUNT(DISTINCT person) of single cells, where who touches many cells differs from cell to cell."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest

from benchmarks.answers import distinct
from dpsql.executor.engine import ReleaseEngine
from tests.people_star import make_people
from tests.releases import plain_tables, published, seeded
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")


def released(catalog: Path, releases: int) -> Iterator[ReleaseEngine]:
    for seed in range(releases):
        yield published(catalog, seeded(seed), str(seed), key=bytes([seed]) * 32)


def covered(answers: ReleaseEngine, sql: str, truth: dict[tuple, int]) -> list[bool]:
    result = answers.query(sql)
    low, high = result.interval_rows(0.95)
    rows = zip(result.rows, low, high, strict=True)
    return [
        bottom[-1] <= truth.get(row[:-1], 0) <= top[-1] for row, bottom, top in rows if None not in row[:-1]
    ]


def visits(
    folder: Path, delta: str = "1e-6", rows: str = "", a: int = 9, b: int = 11
) -> tuple[Path, dict[tuple, int]]:
    """The catalog and the truth of a star of made-up visits, or of those that SQL selects from a folder of data."""
    with duckdb.connect() as db:
        if rows:
            db.execute(f"CREATE TABLE visit AS {rows.format(data=os.environ['DPSQL_DATA'])}")
        else:
            distinct.campus(db, people=1500)
        db.execute(f"COPY visit TO '{folder}/visit.parquet'")
        db.execute(f"COPY (SELECT DISTINCT id, id % 2 AS half FROM visit) TO '{folder}/person.parquet'")
        truth = {
            row[:2]: row[2] for row in db.execute("SELECT a, b, count(*) FROM visit GROUP BY a, b").fetchall()
        }
    catalog = folder / "cells.yaml"
    catalog.write_text(distinct.CATALOG.format(name="cells", folder=folder, delta=delta, a=a, b=b, epsilon=8))
    return catalog, truth


@pytest.mark.parametrize("delta", by_default(["1e-6", "0"], 1))
def test_cells_of_busy_people_are_covered(tmp_path: Path, delta: str) -> None:
    """One factor for all cells covered .6 here: the last modules are those of the busiest."""
    catalog, truth = visits(tmp_path, delta)
    hits = [
        hit for answers in released(catalog, 2)
        for hit in covered(answers, "SELECT a, b, COUNT(DISTINCT id) AS n FROM visit GROUP BY a, b", truth)
    ]  # fmt: skip
    assert sum(hits) >= 0.93 * len(hits)


def test_a_difference_of_cells_takes_both_bounds(tmp_path: Path) -> None:
    catalog, truth = visits(tmp_path)
    (answers,) = released(catalog, 1)
    if answers.release.statistics[-1].people_bounds is None:
        pytest.skip("everybody weighs 1")
    ends = {}
    for cell in ("a = 8 AND b = 3", "a = 1 AND b = 3"):
        low, high = answers.query(f"SELECT COUNT(DISTINCT id) FROM visit WHERE {cell}").interval_rows(0.95)
        ends[cell] = low[0][0], high[0][0]
    low, high = answers.query(
        "SELECT x.n - y.n AS d FROM (SELECT COUNT(DISTINCT id) AS n FROM visit WHERE a = 8 AND b = 3) AS x, "
        "(SELECT COUNT(DISTINCT id) AS n FROM visit WHERE a = 1 AND b = 3) AS y"
    ).interval_rows(0.95)
    assert low[0][0] <= truth[8, 3] - truth[1, 3] <= high[0][0]


def test_a_star_of_few_people_is_covered(tmp_path: Path) -> None:
    catalog = make_people(tmp_path, customers=400, privacy="epsilon: 4, delta: 1e-6")
    truth = {row[:2]: row[2] for row in plain_tables(tmp_path).execute(
        "SELECT month, store, count(DISTINCT id) FROM sales GROUP BY month, store").fetchall()}  # fmt: skip
    hits = [
        hit for answers in released(catalog, 2)
        for hit in covered(answers, "SELECT month, store, COUNT(DISTINCT id) AS n FROM sales GROUP BY 1, 2", truth)
    ]  # fmt: skip
    assert sum(hits) >= 0.93 * len(hits)


@pytest.mark.slow
@pytest.mark.skipif("DPSQL_DATA" not in os.environ, reason="real rows are not there")
@pytest.mark.parametrize(("rows", "a", "b"), [(distinct.FOODMART, 23, 11), (distinct.RETAIL, 9, 12)],
                         ids=["foodmart", "retail"])  # fmt: skip
def test_customers_of_months_are_covered(tmp_path: Path, rows: str, a: int, b: int) -> None:
    catalog, truth = visits(tmp_path, rows=rows, a=a, b=b)
    (answers,) = released(catalog, 1)
    hits = covered(answers, "SELECT a, b, COUNT(DISTINCT id) AS n FROM visit GROUP BY a, b", truth)
    assert sum(hits) >= 0.93 * len(hits)
