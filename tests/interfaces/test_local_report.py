"""What a reader of a collection's release is told: on the report page, under a table, beside csv, in provenance."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import dpsql
import dpsql.interfaces.cli.analyst
from dpsql.interfaces.cli import cli
from dpsql.interfaces.web.report import report_page
from dpsql.local.run import Reports, collect, write_plan
from dpsql.release.read import open_release
from tests.local.test_local_release import CATALOG, PEOPLE, answers, write_reports
from tests.releases import write_tables

pytestmark = pytest.mark.usefixtures("publishes")

SHUFFLED = "collection: {epsilon: 1, shuffled: true}"


def pages(folder: Path, spool: Path) -> str:
    """The report page of a release of one spool."""
    target = folder / f"{spool.stem}.dpsql"
    collect(Reports(folder / "plan.json", [spool], b"k"), target, "x")
    release = open_release(target)
    try:
        return report_page(release)
    finally:
        release.close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("told")
    (place / "c.yaml").write_text(CATALOG.read_text().replace("collection: {epsilon: 1}", SHUFFLED))
    write_plan(place / "c.yaml", place / "plan.json", PEOPLE)
    write_reports(place / "plan.json", place / "plain.jsonl", answers(2))
    return place


def test_the_page_says_who_reported_and_what_a_shuffler_adds(folder: Path) -> None:
    (folder / "odd.jsonl").write_text((folder / "plain.jsonl").read_text() + "\nhello\n")
    page = pages(folder, folder / "odd.jsonl")
    assert "40 000 of 40 001" in page
    assert "<td>rejected: not a JSON report of version 1</td><td>1</td>" in page
    local = dpsql.query("SELECT COUNT(*) FROM answer", release=folder / "odd.dpsql").provenance["local"]
    assert f"{local['influence']['rows_at_most']:,.0f} rows" in page
    assert 1 < local["influence"]["rows_at_most"] < PEOPLE / 10
    assert f"({local['shuffled']['epsilon']:.4g}, 1e-07)-differentially private" in page
    assert "only through an anonymous shuffler" in page
    assert "simulated" not in page


def test_tokens_void_what_a_shuffler_adds(folder: Path) -> None:
    lines = (folder / "plain.jsonl").read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), "token": "a"})
    (folder / "token.jsonl").write_text("\n".join(lines))
    page = pages(folder, folder / "token.jsonl")
    assert "Nothing more is promised: 1 reports came with a token" in page
    assert "differentially private" not in page


def test_notes_stand_under_tables_and_beside_csv(folder: Path, shop_release: Path) -> None:
    for style in ("table", "markdown"):
        said = asked(shop_release, style).stdout
        assert "protects nobody" in said
        assert "which leaves out about" in said
    found = asked(shop_release, "json")
    assert "note: made of simulated reports" in found.stderr
    assert len(json.loads(found.stdout)) == 1


@pytest.fixture(scope="module")
def shop_release(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = "SELECT i % 3000 AS person, ['a', 'b'][1 + i % 2] AS kind FROM range(9000) t(i)"
    people = "SELECT i AS person FROM range(3000) t(i)"
    place = write_tables(tmp_path_factory.mktemp("shop"), {"buys": rows, "person": people})
    (place / "shop.yaml").write_text(
        """
dpsql: 1
name: shop
source: {kind: parquet, root: ., tables: {person: person.parquet, buys: buys.parquet}}
privacy: {lineage: shop, cap: 2, unit: person.person, epsilon: 1}
collection: {epsilon: 3, row_share: 1/4}
tables:
  person: {role: dimension, key: person, private: true, columns: {}}
  buys: {role: fact, max_ids: 5, foreign_keys: {person: person}, columns: {kind: {type: string, categories: [a, b]}}}
views:
  kinds: {of: buys, axes: [buys.kind], measures: [count]}
"""
    )
    dpsql.simulate(place / "shop.yaml", place / "r.parquet", place / "plan.json", seed=1)
    dpsql.collect(place / "plan.json", [place / "r.parquet"], place / "s.dpsql")
    return place / "s.dpsql"


def asked(release: Path, style: str):  # type: ignore[no-untyped-def]
    done = CliRunner().invoke(cli, ["query", str(release), "SELECT COUNT(*) FROM buys", "--format", style])
    assert done.exit_code == 0, done.output
    return done
