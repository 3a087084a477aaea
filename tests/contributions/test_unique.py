"""A table whose unit key names its rows has one row a unit by the catalog: no recipe, no histogram, no note."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.release.read import open_release

CATALOG = """
dpsql: 1
name: unique
source: {{kind: duckdb, root: unique.duckdb, tables: {{member: member, profile: profile, note: note}}}}
privacy: {{unit: member.id, lineage: unique, cap: 10000, epsilon: 1000{delta}}}
tables:
  member: {{role: dimension, key: id, private: true}}
  profile: {{role: fact, key: id, foreign_keys: {{id: member}}, max_ids: auto, columns: {{
    plan: {{type: int, lower: 0, upper: 3}}, paid: {{type: int, lower: 0, upper: 9, measure: true}}}}}}
  note: {{role: fact, key: id, foreign_keys: {{id: profile}}, max_ids: auto, columns: {{
    mood: {{type: int, lower: 0, upper: 3}}}}}}
views:
  plans: {{of: profile, axes: [profile.plan], measures: [count, profile.paid], share: 0.6}}
  moods: {{of: note, axes: [note.mood], measures: [count], share: 0.4}}
ledger: unique.ledger
"""


@pytest.mark.parametrize("delta", ["", ", delta: 1e-6"])
def test_one_row_a_unit_by_the_catalog_has_no_recipe(tmp_path: Path, delta: str) -> None:
    """Keys may lead to the unit over several tables; a row that repeats its key all the same does not count."""
    with duckdb.connect(str(tmp_path / "unique.duckdb")) as raw:
        raw.execute("CREATE TABLE member AS SELECT i AS id FROM range(500) t(i)")
        raw.execute(
            "CREATE TABLE profile AS SELECT i AS id, i % 4 AS plan, i % 10 AS paid FROM range(400) t(i)"
        )
        raw.execute("CREATE TABLE note AS SELECT i AS id, i % 4 AS mood FROM range(100) t(i)")
        raw.execute("INSERT INTO note SELECT 7, 3 FROM range(200)")
    file = tmp_path / "unique.yaml"
    file.write_text(CATALOG.format(delta=delta))
    api.publish(file, tmp_path / "out.dpsql", new_ledger=True)
    result = api.query("SELECT COUNT(*), SUM(paid) FROM profile", str(tmp_path / "out.dpsql"))
    assert result.rows[0] == pytest.approx((400, 1800), abs=5)
    # values are clamped to their bounds in every table; of rows of a unit there is nothing to say
    assert all("values beyond its bounds" in note for note in result.notes)
    notes = api.query("SELECT COUNT(*) FROM note", str(tmp_path / "out.dpsql"))
    assert notes.scalar() == pytest.approx(100, abs=2)
    meta = open_release(tmp_path / "out.dpsql").meta
    assert not meta.scales and not meta.bounding
    assert meta.privacy.rows_per_unit == {"profile": 1, "note": 1}
    assert all(purpose.startswith("view ") for purpose, *_ in meta.spends)


def test_a_key_that_is_not_the_way_to_the_unit_says_nothing(tmp_path: Path) -> None:
    file = tmp_path / "unique.yaml"
    text = CATALOG.format(delta="").replace(
        "note: {role: fact, key: id, ", "note: {role: fact, key: number, "
    )
    file.write_text(text)
    star = load_catalog(file).star
    assert star.tables["profile"].unique and not star.tables["note"].unique
    assert star.tables["note"].bounding.max_ids == 0
