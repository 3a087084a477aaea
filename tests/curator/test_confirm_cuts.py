"""Cuts of views follow bounds that `confirm --rounder` moves: every draft answers its workload as the raw rows do."""

from __future__ import annotations

from contextlib import closing
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.catalog import parse_catalog
from dpsql.curator.confirm import confirm_tables, groups_of, open_marks
from dpsql.curator.draft import CuratorChoices, DraftWorkload, draft_from_source
from dpsql.curator.draft.domains import roomy
from dpsql.noise import ZeroNoise
from tests.releases import published, write_tables
from tests.thinned import by_default

ROWS = 600
CASES = {
    "the first and the last month": (
        "DATE '2024-04-01' + CAST(range * 37 % 306 AS INT) AS sold_on, CAST(range * 11 % 90 AS INT) AS pieces",
        [
            "SELECT COUNT(*) FROM t WHERE sold_on >= '2024-04-01' AND sold_on < '2024-05-01'",
            "SELECT COUNT(*) FROM t WHERE sold_on >= '2024-06-17' AND sold_on < '2025-02-01'",
        ],
    ),
    "months of a season": (
        "DATE '2024-04-05' + CAST(range * 37 % 300 AS INT) AS sold_on, CAST(range * 11 % 90 AS INT) AS pieces",
        [
            "SELECT date_trunc('month', sold_on) AS m, COUNT(*) FROM t GROUP BY 1 ORDER BY 1",
            "SELECT COUNT(*) FROM t WHERE sold_on >= '2024-04-01' AND sold_on < '2024-05-01'",
            "SELECT SUM(pieces) FROM t WHERE sold_on >= '2024-07-01'",
        ],
    ),
    "a year from February": (
        "DATE '2024-02-01' + CAST(range * 37 % 300 AS INT) AS seen, CAST(range * 11 % 9 AS INT) AS pieces",
        [
            "SELECT COUNT(*) FROM t WHERE seen >= '2024-02-01' AND seen < '2024-03-01'",
            "SELECT COUNT(*) FROM t WHERE seen >= '2024-06-17'",
        ],
    ),
    "some days": (
        "DATE '2023-03-07' + CAST(range * 37 % 700 AS INT) AS seen, CAST(range * 11 % 9 AS INT) AS pieces",
        [
            "SELECT COUNT(*) FROM t WHERE seen >= '2023-06-12' AND seen < '2024-02-11'",
            "SELECT COUNT(*) FROM t WHERE seen < '2023-06-12'",
            "SELECT COUNT(*) FROM t WHERE seen >= '2024-02-11'",
        ],
    ),
    "a year from March": (
        "DATE '2023-03-01' + CAST(range * 37 % 300 AS INT) AS seen, CAST(range * 11 % 9 AS INT) AS pieces",
        [
            "SELECT COUNT(*) FROM t WHERE seen >= '2023-03-01' AND seen < '2023-04-01'",
            "SELECT COUNT(*) FROM t WHERE seen >= '2023-08-23'",
        ],
    ),
    "numbers": (
        "CAST(17 + range * 37 % 191 AS INT) AS height, CAST(range * 11 % 41 AS INT) AS visits",
        [
            "SELECT COUNT(*) FROM t WHERE height < 33",
            "SELECT COUNT(*), SUM(visits) FROM t WHERE height BETWEEN 33 AND 117",
            "SELECT COUNT(*) FROM t WHERE height > 180",
        ],
    ),
}


@pytest.mark.parametrize("rounder", [True, False])
@pytest.mark.parametrize("name", by_default(CASES, 3))
def test_a_confirmed_draft_answers_its_workload(tmp_path: Path, publishes: None, name: str, rounder: bool):
    columns, questions = CASES[name]
    rows = f"SELECT range AS id, {columns} FROM range({ROWS})"
    folder, catalog = write_tables(tmp_path / "data", {"t": rows}), tmp_path / "t.yaml"
    with duckdb.connect() as raw:
        raw.execute(f"CREATE TABLE t AS {rows}")
        choices = CuratorChoices("row", frozenset(), "500", "5000", data_dependent=False)
        made = draft_from_source(folder, catalog, None, lambda _: choices, DraftWorkload(questions))
        assert made.design is not None and made.design.served == len(questions)
        groups = groups_of(open_marks(parse_catalog(made.text)))
        catalog.write_text(confirm_tables(made.text, dict.fromkeys(groups, rounder))[0])
        answerer = published(catalog, ZeroNoise())
        with closing(answerer.release):
            for sql in questions:
                answered = [row for row in answerer.query(sql).rows if row[-1] and row[0] is not None]
                found = np.array([row[-1] for row in answered], float)
                exact = np.array([row[-1] for row in raw.execute(sql).fetchall()], float)
                assert found == pytest.approx(exact, abs=1e-3), (sql, answered)


def test_a_bound_leaves_room_above_nearly_all_rows():
    """Never the largest value, and at least twice the 99.9% value."""
    for value in (1, 3, 7.5, 10, 11, 99, 100, 101, 499, 501):
        for largest in (value, 2 * value, 500):
            bound = float(roomy(Decimal(str(value)), Decimal(str(largest))))
            assert bound != largest and 2 * value <= bound < 12.5 * value, (value, largest)
