"""docs/collections.md: its Python runs, its names exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dpsql
from dpsql.client import Row, decode, read_plan, respond, to_json
from dpsql.client.device import draw_round
from dpsql.local.collector import add_spool, close_collection
from dpsql.local.files import open_state, plan_file
from tests.local_plans import InsecureTestEntropy

pytestmark = pytest.mark.usefixtures("publishes")

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "collections.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", TEXT, flags=re.DOTALL)


def test_the_python_of_the_page_makes_a_report_once(tmp_path: Path) -> None:
    dpsql.collection_plan(ROOT / "catalog" / "survey.yaml", tmp_path / "plan.json", people=1000)
    code = blocks("python")[0]
    said = set()
    for _ in range(2):
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
        said.add((tmp_path / "report.jsonl").read_bytes())
    assert len(said) == 1, "asked again, a device sends the same bytes"
    plan = plan_file(tmp_path / "plan.json")
    state = open_state(plan)
    assert add_spool(state, plan, tmp_path / "report.jsonl", b"k").accepted == 1
    assert close_collection(state, plan)[1].rejected == {}


def test_the_rounds_of_the_page_find_where_people_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    entropy, drawn = InsecureTestEntropy(b"hours"), list[int]()

    def ask_people(raw: bytes, spool: Path) -> None:
        plan = read_plan(raw)
        drawn.extend(draw_round(plan, entropy) for _ in range(8000 - len(drawn)))
        rows = [Row((1 if i % 4 else 6,)) for i, mine in enumerate(drawn) if mine == plan.round]
        spool.write_text("\n".join(to_json(decode(respond(plan, [row], entropy))) for row in rows))

    found: dict[str, Any] = {"ask_people": ask_people}
    exec(compile(blocks("python")[1], "collections.md", "exec"), found)
    assert len(found["rounds"]) == 3
    assert found["shares"].shape == (8,)
    assert found["shares"].sum() == pytest.approx(1)
    assert found["shares"][:4].sum() == pytest.approx(0.75, abs=0.15)


@pytest.mark.parametrize("name", ["Memory", "readPlan", "join", "toRows"])
def test_the_javascript_of_the_page_imports_what_there_is(name: str) -> None:
    (code,) = blocks("js")
    (line,) = [line for line in code.splitlines() if line.startswith("import") and name in line]
    file = ROOT / "clients" / "js" / line.split('"')[1].removeprefix("./")
    defined, passed_on = rf"(async )?(function|class) {name}\b", rf"\{{[^}}]*\b{name}\b[^}}]*\}}"
    assert re.search(rf"export ({defined}|{passed_on})", file.read_text())


def test_reasons_on_the_page_are_the_collector_s() -> None:
    told = " ".join(TEXT[TEXT.index("by reason:") :].split(" and so on")[0].split())
    rooms = [ROOT / "dpsql" / "collecting", ROOT / "dpsql" / "mechanisms" / "oracles"]
    source = "".join(file.read_text() for room in rooms for file in sorted(room.glob("*.py")))
    reasons = re.findall(r"`([^`]+)`", told)
    assert len(reasons) == 5
    assert [reason for reason in reasons if f'"{reason}"' not in source] == []
