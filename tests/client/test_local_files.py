"""What a collection's commands say to wrong files: one line, an exit code, and nothing left behind."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

import dpsql.interfaces.cli.curate  # noqa: F401 - commands register themselves
from dpsql.client import Row, read_plan, respond, to_json
from dpsql.client.device import decode
from dpsql.client.entropy import system_entropy
from dpsql.interfaces.cli import cli

pytestmark = pytest.mark.long

SURVEY = Path(__file__).parents[2] / "catalog" / "survey.yaml"
SHOP = """
dpsql: 1
name: shop
source: {kind: parquet, root: ., tables: {product: product.parquet}}
privacy: {lineage: shop, cap: 2, unit: person.person_id, epsilon: 1}
collection: {epsilon: 1}
tables:
  person: {role: dimension, key: person_id, private: true, columns: {}}
  product: {role: dimension, key: product_id, private: false, columns: {category: {type: string}}}
  buys: {role: fact, max_ids: 3, foreign_keys: {person_id: person, product_id: product}, columns: {}}
views:
  what: {of: buys, axes: [{axis: product, by: [category]}], measures: [count]}
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan, forty reports of it, and what is none of them."""
    folder = tmp_path_factory.mktemp("made")
    for name, more in (("plan", ()), ("second", ("--label", "two"))):
        assert (
            run("collection-plan", SURVEY, "-o", folder / f"{name}.json", "--people", "1000", *more)[1] == 0
        )
    plan = read_plan((folder / "plan.json").read_bytes())
    reports = [respond(plan, [Row((3, 1, 2), (7,))], system_entropy) for _ in range(40)]
    body = json.loads((folder / "plan.json").read_bytes())
    body.pop("catalog")
    for file, text in {
        "good.jsonl": "\n".join(to_json(decode(report)) for report in reports), "empty.jsonl": "",
        "junk.jsonl": '{"report": 2}\nhello', "bare.json": json.dumps(body),
        "other.yaml": SURVEY.read_text().replace("upper: 81", "upper: 83"),
    }.items():  # fmt: skip
        (folder / file).write_text(text)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path, dirs_exist_ok=True))


def run(*arguments: str | Path) -> tuple[str, int]:
    """Output and exit code; an exception that is not dpsql's own fails the test."""
    done = CliRunner().invoke(cli, [str(a) for a in arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.output, done.exit_code


@pytest.mark.parametrize(
    ("arguments", "says", "code"),
    [
        ("plan.json good.jsonl -o no/such.dpsql", "there is no folder", 4),
        ("plan.json good.jsonl -o .", "exists", 2),
        ("plan.json good.jsonl -o s.dpsql --state no/state", "there is no folder", 4),
        ("plan.json good.jsonl -o s.dpsql --state good.jsonl", "not the state of a collection", 2),
        ("plan.json good.jsonl -o s.dpsql --catalog other.yaml", "not the catalog that this plan", 2),
        ("plan.json none.jsonl -o s.dpsql", "cannot read the spool none.jsonl", 2),
        ("plan.json empty.jsonl -o s.dpsql", "the files contain none", 1),
        ("plan.json junk.jsonl -o s.dpsql", "2 not a JSON report of version 1", 1),
        ("second.json good.jsonl -o s.dpsql", "40 another plan", 1),
        ("junk.jsonl good.jsonl -o s.dpsql", "dpsql collection-plan CATALOG", 2),
        ("none.json good.jsonl -o s.dpsql", "cannot read the plan none.json", 2),
        ("bare.json good.jsonl -o s.dpsql", "carries no catalog", 1),
    ],
)
def test_collect_refuses_in_one_line(folder: Path, arguments: str, says: str, code: int) -> None:
    before = sorted(folder.iterdir())
    words = [w if w.startswith("-") else folder / w for w in arguments.split()]
    said, found = run("collect", *words)
    assert (says in said, found, said.count("\n")) == (True, code, 1), said
    assert sorted(folder.iterdir()) == before


def test_a_plan_that_people_may_have_answered_is_kept(folder: Path) -> None:
    held = (folder / "plan.json").read_bytes()
    assert run("collection-plan", SURVEY, "-o", folder / "plan.json", "--people", "1000")[1] == 0
    said, code = run("collection-plan", SURVEY, "-o", folder / "plan.json", "--people", "900000")
    assert (code, "people have answered" in said) == (2, True)
    assert (folder / "plan.json").read_bytes() == held


@pytest.mark.parametrize(("target", "expected"), [("no/such.json", 4), (".", 2)])
def test_a_plan_goes_into_a_folder_that_exists(tmp_path: Path, target: str, expected: int) -> None:
    said, code = run("collection-plan", SURVEY, "-o", tmp_path / target)
    assert (code, "folder" in said, said.count("\n")) == (expected, True, 1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("publishes")
def test_public_rows_come_from_the_catalog(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    rows = "SELECT i AS product_id, ['food', 'toys'][1 + i % 2] AS category FROM range(4) t(i)"
    duckdb.connect().execute(f"COPY ({rows}) TO '{tmp_path / 'product.parquet'}' (FORMAT parquet)")
    (tmp_path / "shop.yaml").write_text(SHOP)
    assert run("collection-plan", tmp_path / "shop.yaml", "-o", tmp_path / "plan.json")[1] == 0
    plan = read_plan((tmp_path / "plan.json").read_bytes())
    reports = [respond(plan, [Row((i % 2,))], system_entropy) for i in range(400)]
    (tmp_path / "r.jsonl").write_text("\n".join(to_json(decode(r)) for r in reports))
    asked = ["collect", tmp_path / "plan.json", tmp_path / "r.jsonl", "-o", tmp_path / "s.dpsql"]
    said, code = run(*asked)
    assert (code, "--catalog CATALOG" in said) == (2, True)
    said, code = run(*asked, "--catalog", tmp_path / "shop.yaml")
    assert code == 0, said
    said, code = run("simulate", tmp_path / "shop.yaml", "-o", tmp_path / "r.parquet")
    assert (code, "`person` has no file" in said) == (2, True)


def test_a_simulation_overwrites_neither_plan_nor_spool(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb")
    duckdb.connect().execute(
        f"COPY (SELECT 20 AS age, 'north' AS district, 5 AS minutes FROM range(200)) TO '{tmp_path / 'a.parquet'}'"
    )
    source = "source: {kind: parquet, root: ., tables: {answer: a.parquet}}\nprivacy:"
    (tmp_path / "survey.yaml").write_text(SURVEY.read_text().replace("privacy:", source))
    run("collection-plan", SURVEY, "-o", tmp_path / "plan.json")
    held = (tmp_path / "plan.json").read_bytes()
    asked = ["simulate", tmp_path / "survey.yaml", "-o", tmp_path / "r.parquet"]
    said, code = run(*asked, "--plan", tmp_path / "plan.json")
    assert (code, "people have answered" in said, (tmp_path / "r.parquet").exists()) == (2, True, False)
    assert (tmp_path / "plan.json").read_bytes() == held
    assert "no folder" in run(*asked, "--plan", tmp_path / "no" / "plan.json")[0]
    assert run(*asked)[1] == 0
    assert "never overwritten" in run(*asked)[0]


def test_a_service_s_own_plan_makes_no_release(tmp_path: Path) -> None:
    asked = "collection: {epsilon: 2, services: {a: {axes: [answer.age]}, b: {axes: [answer.district]}}}"
    text = SURVEY.read_text().replace("collection: {epsilon: 1}", asked)
    views = "views:\n  places: {of: answer, axes: [answer.age, answer.district], measures: [count]}\n"
    (tmp_path / "c.yaml").write_text(text[: text.index("views:")] + views)
    assert run("collection-plan", tmp_path / "c.yaml", "-o", tmp_path / "plan.json")[1] == 0
    (tmp_path / "r.jsonl").write_text("")
    said, code = run("collect", tmp_path / "plan.a.json", tmp_path / "r.jsonl", "-o", tmp_path / "s.dpsql")
    assert (code, "that of the service a alone; name the plan" in said, said.count("\n")) == (2, True, 1), (
        said
    )
