"""Collections through their interfaces, from plan to SQL, and what a reader of their releases is told.

On the report page, under a table, beside csv, in provenance.
"""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

import dpsql
import dpsql.interfaces.cli.analyst
from dpsql.errors import InterfaceError, OperationalError
from dpsql.examples.retail import make_star, write_star
from dpsql.interfaces.cli import cli
from dpsql.interfaces.web.report import report_page
from dpsql.local.run import Reports, collect, write_plan
from dpsql.release.read import open_release
from tests.local.test_local_release import CATALOG, PEOPLE, answers, write_reports
from tests.releases import write_tables

pytestmark = pytest.mark.usefixtures("publishes")

RETAIL = Path(__file__).parents[2] / "catalog" / "retail.yaml"
SURVEY = Path(__file__).parents[2] / "catalog" / "survey.yaml"
VIEWS = """collection: {epsilon: 2, row_share: 1/10}
views:
  buyers: {of: sales, axes: [customer.sex, customer.region], measures: [count, sales.amount]}
"""


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interfaces")
    write_star(folder / "data", make_star(2, 4000, 50))
    text = RETAIL.read_text()
    (folder / "local.yaml").write_text(text[: text.index("views:")] + VIEWS)
    return folder


def run(*arguments: str | Path) -> tuple[str, int]:
    """Output and exit code of a command."""

    done = CliRunner().invoke(cli, [str(a) for a in arguments])
    return done.output, done.exit_code


def test_plan_simulate_collect_query(shop: Path) -> None:
    said, code = run("simulate", shop / "local.yaml", "-o", shop / "r.parquet", "--seed", "1", "--json")
    made = json.loads(said)
    assert (code, made["people"] > 3000) == (0, True)
    said, code = run("collect", made["plan"], made["reports"], "-o", shop / "s.dpsql", "--json")
    assert (code, json.loads(said)["accepted"]) == (0, made["people"])
    found = dpsql.query("SELECT COUNT(*), AVG(amount) FROM sales", release=shop / "s.dpsql")
    assert found.provenance["simulated"] is True
    assert found.provenance["privacy"]["simulated"] is True
    assert any("simulated" in note for note in found.notes)
    assert "replacing one person" in found.provenance["privacy"]["adds_up"]
    assert found.components["scale"] == ((0.0, 0.0),)  # the weight's error is part of the noise
    # People may have more rows than they were asked about, so totals have no upper end; the noise is known.
    error, total = found.components["noise"][0][0], found.rows[0][0]
    assert found.stderr_rows[0][0] is None and 0 < error < 0.5 * total
    (rows,) = found.provenance["scale"]["sales"]["measures"]
    assert rows["error"][0] == pytest.approx(error / total, rel=1e-3)


def test_a_file_may_stand_alone_and_the_audit_knows_whom_no_ledger_charges(shop: Path) -> None:
    dpsql.simulate(shop / "local.yaml", shop / "alone.parquet", shop / "alone.json", seed=6)
    dpsql.collect(shop / "alone.json", str(shop / "alone.parquet"), shop / "alone.dpsql")
    for catalog, code in (("local.yaml", 0), ("retail.yaml", 3)):
        if code:
            (shop / catalog).write_text(RETAIL.read_text())
        said, found = run("audit", shop / "alone.dpsql", "--catalog", shop / catalog)
        assert (found, "people spend on their own devices" in said) == (code, True), said
    text = SURVEY.read_text()
    (shop / "survey.yaml").write_text(text)
    said, found = run("publish", shop / "survey.yaml", "-o", shop / "x.dpsql")
    assert (found, "run dpsql collection-plan" in said) == (2, True)


def test_simulated_reports_never_count_as_real_ones(shop: Path) -> None:
    dpsql.collection_plan(shop / "local.yaml", shop / "real.json", people=4000)
    people = dpsql.simulate(shop / "local.yaml", shop / "t.parquet", shop / "t.json", seed=3)
    said, code = run("collect", shop / "real.json", shop / "t.parquet", "-o", shop / "t.dpsql")
    assert (code, people > 0) == (1, True) or "no report" in said
    assert not (shop / "t.dpsql").exists()
    with pytest.raises(OperationalError, match="exists"):
        dpsql.simulate(shop / "local.yaml", shop / "t.parquet", shop / "t.json", seed=3)


def test_the_seed_that_made_the_rows_may_draw_the_reports(shop: Path) -> None:
    dpsql.simulate(shop / "local.yaml", shop / "same.parquet", shop / "same.json", seed=2)
    dpsql.collect(shop / "same.json", [shop / "same.parquet"], shop / "same.dpsql")
    sql = "SELECT COUNT(*) / SUM(COUNT(*)) OVER () FROM sales JOIN customer USING (customer_id) GROUP BY sex"
    shares = [row[0] for row in dpsql.query(sql, release=shop / "same.dpsql").rows]
    assert all(0.3 < share < 0.7 for share in shares[:2]), shares


def test_a_label_makes_another_collection(tmp_path: Path) -> None:
    dpsql.collection_plan(SURVEY, tmp_path / "a", people=1000)
    dpsql.collection_plan(SURVEY, tmp_path / "b", people=1000, label="autumn")
    names = [json.loads((tmp_path / name).read_bytes())["collection"] for name in "ab"]
    assert names == ["survey:town-survey", "survey:town-survey:autumn"]


def test_predicted_errors_are_printed(tmp_path: Path) -> None:
    said, code = run("collection-plan", SURVEY, "-o", tmp_path / "plan.json", "--people", "50000")
    assert code == 0
    assert "a range of answer.age" in said
    rows, _ = run("collection-plan", SURVEY, "-o", tmp_path / "more.json", "--people", "200000", "--json")
    first = {each["question"]: each["error"] for each in json.loads(rows)["result"]}["a range of answer.age"]
    assert 0 < first < 0.05
    with pytest.raises(InterfaceError, match="one person"):
        dpsql.collection_plan(SURVEY, tmp_path / "x", people=0)


def test_a_kept_state_keeps_its_token_key(shop: Path) -> None:
    plan, state = shop / "k.json", shop / "kept.duckdb"
    dpsql.simulate(shop / "local.yaml", shop / "k.parquet", plan, seed=4)
    first = dpsql.collect(plan, [shop / "k.parquet"], shop / "k1.dpsql", state=state)
    key = state.with_name("kept.duckdb.key")
    held = key.read_bytes()
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    second = dpsql.collect(plan, [shop / "k.parquet"], shop / "k2.dpsql", state=state)
    assert (key.read_bytes(), second.manifest) == (held, first.manifest)


def test_a_first_round_is_predicted_in_rows(shop: Path) -> None:
    text = (shop / "local.yaml").read_text()
    (shop / "first.yaml").write_text(text.replace("epsilon: 2,", "epsilon: 2, tau: estimate,"))
    said, code = run("collection-plan", shop / "first.yaml", "-o", shop / "first.json", "--people", "9000")
    assert (code, "round 1 of 2" in said, "of the people" in said) == (0, True, False)
    assert "standard error of a person's mean number of rows" in said


SHUFFLED = "collection: {epsilon: 1, shuffled: true}"


def report_of(told: Path, spool: Path) -> str:
    """The report page of a release of one spool."""
    target = told / f"{spool.stem}.dpsql"
    collect(Reports(told / "plan.json", [spool], b"k"), target, "x")
    release = open_release(target)
    try:
        return report_page(release)
    finally:
        release.close()


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("told")
    (place / "c.yaml").write_text(CATALOG.read_text().replace("collection: {epsilon: 1}", SHUFFLED))
    write_plan(place / "c.yaml", place / "plan.json", PEOPLE)
    write_reports(place / "plan.json", place / "plain.jsonl", answers(2))
    return place


def test_the_page_says_who_reported_and_what_a_shuffler_adds(told: Path) -> None:
    (told / "odd.jsonl").write_text((told / "plain.jsonl").read_text() + "\nhello\n")
    page = report_of(told, told / "odd.jsonl")
    assert "40 000 of 40 001" in page
    assert "<td>rejected: not a JSON report of version 1</td><td>1</td>" in page
    local = dpsql.query("SELECT COUNT(*) FROM answer", release=told / "odd.dpsql").provenance["local"]
    assert f"{local['influence']['rows_at_most']:,.0f} rows" in page
    assert 1 < local["influence"]["rows_at_most"] < PEOPLE / 10
    assert f"({local['shuffled']['epsilon']:.4g}, 1e-07)-differentially private" in page
    assert "only through an anonymous shuffler" in page
    assert "simulated" not in page


def test_tokens_void_what_a_shuffler_adds(told: Path) -> None:
    lines = (told / "plain.jsonl").read_text().splitlines()
    lines[0] = json.dumps({**json.loads(lines[0]), "token": "a"})
    (told / "token.jsonl").write_text("\n".join(lines))
    page = report_of(told, told / "token.jsonl")
    assert "Nothing more is promised: 1 reports came with a token" in page
    assert "differentially private" not in page


def test_notes_stand_under_tables_and_beside_csv(told: Path, shop_release: Path) -> None:
    for style in ("table", "markdown"):
        said = shown(shop_release, style).stdout
        assert "protects nobody" in said
        assert "which leaves out about" in said
    found = shown(shop_release, "json")
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


def shown(release: Path, style: str):  # type: ignore[no-untyped-def]
    done = CliRunner().invoke(cli, ["query", str(release), "SELECT COUNT(*) FROM buys", "--format", style])
    assert done.exit_code == 0, done.output
    return done
