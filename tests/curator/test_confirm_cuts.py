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
from tests.statements import sections
from tests.thinned import by_default

ROWS = 600
CASES = sections(Path(__file__).with_name("confirm_cuts.sql"))
"""Questions of a table; its columns stand above the first."""


@pytest.mark.parametrize(
    ("name", "rounder"), by_default([(name, rounder) for name in CASES for rounder in (True, False)], 2)
)
def test_a_confirmed_draft_answers_its_workload(tmp_path: Path, publishes: None, name: str, rounder: bool):
    questions, (columns, *_) = zip(*CASES[name], strict=True)
    rows = f"SELECT range AS id, {columns} FROM range({ROWS})"
    folder, catalog = write_tables(tmp_path / "data", {"t": rows}), tmp_path / "t.yaml"
    with duckdb.connect() as raw:
        raw.execute(f"CREATE TABLE t AS {rows}")
        choices = CuratorChoices("row", frozenset(), "500", "5000", data_dependent=False)
        made = draft_from_source(folder, catalog, None, lambda _: choices, DraftWorkload(list(questions)))
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
