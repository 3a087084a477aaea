"""docs/collections.md: its Python runs, its names exist; those of docs/in-your-app.md exist in the client."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import dpsql
from dpsql.local.collector import add_spool, close_collection
from dpsql.local.files import open_state, plan_file

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


@pytest.mark.parametrize("name", ["Memory", "readPlan", "checkFields", "toRows", "indexedStorage"])
def test_the_javascript_of_the_app_s_page_imports_what_there_is(name: str) -> None:
    app = (ROOT / "docs" / "in-your-app.md").read_text()
    (line,) = [line for line in app.splitlines() if line.startswith("  import") and name in line]
    file = ROOT / "clients" / "js" / Path(line.split('"')[1]).name
    defined, passed_on = rf"(async )?(function|class) {name}\b", rf"\{{[^}}]*\b{name}\b[^}}]*\}}"
    assert re.search(rf"export ({defined}|{passed_on})", file.read_text())


def test_reasons_on_the_page_are_the_collector_s() -> None:
    told = " ".join(TEXT[TEXT.index("by reason:") :].split(" and so on")[0].split())
    folders = [ROOT / "dpsql" / "local", ROOT / "dpsql" / "local" / "oracles"]
    source = "".join(file.read_text() for folder in folders for file in sorted(folder.glob("*.py")))
    reasons = re.findall(r"`([^`]+)`", told)
    assert len(reasons) == 5
    assert [reason for reason in reasons if f'"{reason}"' not in source] == []
