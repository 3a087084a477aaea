"""Each question of the cookbook is answered, and its intervals lie around the exact answer over the raw rows."""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb

from dpsql.examples.retail import CUSTOMERS, PRODUCTS, make_star, write_star
from dpsql.results.result import Result
from tests.releases import published, seeded, write_catalog

ROOT = Path(__file__).resolve().parents[2]
QUESTION = re.compile(r"^-- (\d+)\. [^\n]*\n(.*?);$", re.M | re.S)
RAW = """
CREATE VIEW product AS SELECT * FROM '{0}/product.parquet';
CREATE VIEW sales AS SELECT * FROM '{0}/sales.parquet';
CREATE VIEW customer AS SELECT c.*, coalesce(n, 0) AS visits, last_day, spent FROM '{0}/customer.parquet' AS c LEFT JOIN
    (SELECT customer_id, count(*) AS n, max(sold_on) AS last_day, least(sum(amount), 1000) AS spent FROM sales
     GROUP BY customer_id) USING (customer_id);
CREATE MACRO dp_interval_low(x) AS x; CREATE MACRO dp_interval_high(x) AS x; CREATE MACRO dp_differs(a, b) AS a <> b;
"""


def by_key(rows: list[Any], public: list[int]) -> dict[tuple[str, ...], Any]:
    """Rows by their columns without noise."""
    return {tuple(plain(row[column]) for column in public): row for row in rows}


def plain(value: Any) -> str:
    """Numbers of any type alike, and days whether or not they have a time."""
    return f"{float(value):g}" if isinstance(value, int | float | Decimal) else str(value)[:10]


def distances(result: Result, exact: list[Any]) -> list[float]:
    """Of each noisy number with an interval, its distance from the exact one over the interval's half width."""
    public = [column for column in range(len(result.columns)) if column not in result.noisy]
    exact_rows, found = by_key(exact, public), []
    low, high = result.interval_rows()
    for row, below, above in zip(result.rows, low, high, strict=True):
        of_key = exact_rows.get(next(iter(by_key([row], public))))
        for column in result.noisy if of_key is not None else ():
            if None not in (below[column], above[column], of_key[column]) and above[column] > below[column]:
                middle, half = (above[column] + below[column]) / 2, (above[column] - below[column]) / 2
                found.append(abs(float(of_key[column]) - float(middle)) / float(half))
    return found


def test_forty_questions_are_answered_near_the_exact_answers(tmp_path: Path) -> None:
    write_star(tmp_path / "data", make_star(20250101, CUSTOMERS, PRODUCTS))
    catalog = write_catalog(tmp_path, (ROOT / "catalog" / "retail_user.yaml").read_text())
    answerer, raw = published(catalog, seeded(20261126)), duckdb.connect()
    raw.execute(RAW.format(tmp_path / "data"))
    questions = QUESTION.findall((ROOT / "docs" / "cookbook.md").read_text("utf-8"))
    assert [number for number, _ in questions] == [str(number) for number in range(1, 41)]
    all_distances: list[float] = []
    without_interval = []
    for number, sql in questions:
        result = answerer.query(sql)
        shown = distances(result, raw.execute(sql).fetchall())
        assert result.rows, number
        assert max(shown, default=0) <= 2, f"question {number} lies two margins off"
        without_interval += [] if shown else [number]
        all_distances += shown
    assert without_interval == [
        "5",
        "30",
        "33",
    ]  # ends as columns; yes or no; an interval of a single year of age
    assert len(all_distances) > 150
    assert sum(distance <= 1 for distance in all_distances) >= 0.93 * len(all_distances)
