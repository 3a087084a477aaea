"""Plain SQL by person (`statements/people.sql`): what one counts for, and mappings that forget a rule are found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlglot import exp

from dpsql.executor.engine import ReleaseEngine
from dpsql.sql import per_person
from tests.answer.test_statements import FOLDER, alike, star
from tests.releases import Twins
from tests.statements import sections

pytestmark = pytest.mark.usefixtures("publishes")
STATEMENTS = sections(FOLDER / "people.sql")["as duckdb, noting names nobody"]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Twins:
    return star("people", Path(tmp_path_factory.mktemp("people")))


def test_a_sum_of_people_says_what_one_counts_for(people: Twins) -> None:
    notes = people[0].query("SELECT region, AVG(spent), SUM(pieces) FROM customer GROUP BY 1").notes
    assert "a row of customer counts for at most 400 of spent" in notes
    assert "a row of customer counts for at most 400 of pieces" in notes
    notes = people[0].query("SELECT AVG(visits) FROM customer").notes
    assert "a row of customer counts for at most 60 of visits" in notes
    notes = people[0].query("SELECT visits, COUNT(*) FROM customer GROUP BY 1").notes
    assert not any("counts for at most" in note for note in notes)


def groups(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Groups that somebody is in: a release shows all that the catalog knows."""
    return [row for row in rows if len(row) == 1 or any(row[1:])]


@pytest.mark.parametrize(
    ("rule", "forgotten", "least"),
    [("", None, 0), ("present", exp.true(), 5), ("_may_be_null", False, 1)],
    ids=["none", "people without rows", "sums of nothing"],
)
def test_a_mapping_that_forgets_a_rule_gives_other_rows(
    people: Twins, monkeypatch: pytest.MonkeyPatch, rule: str, forgotten: object, least: int
) -> None:
    if rule:
        monkeypatch.setattr(per_person._Mapping, rule, lambda *_: forgotten)
    answerer, raw = ReleaseEngine(people[0].release), people[1]  # remembers no statement
    wrong = [
        text for text, _ in STATEMENTS
        if not alike(groups(answerer.query(text).rows), groups(raw.execute(text).fetchall()))
    ]  # fmt: skip
    assert len(wrong) >= least and bool(wrong) is bool(least), wrong
