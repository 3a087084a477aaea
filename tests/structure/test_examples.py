"""The examples and the demo run from beginning to end, on a small shop."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dpsql import collection_plan
from dpsql.examples.retail import make_star, write_star
from tests.interrupts import piped

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]


def run(folder: Path, *arguments: str | Path) -> str:
    """Standard output of a Python program that must succeed."""
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": "160"}
    command = [sys.executable, *map(str, arguments)]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("example", sorted(path.name for path in (ROOT / "examples").glob("*.py")))
def test_an_example_runs(example: str, tmp_path: Path) -> None:
    assert run(tmp_path, ROOT / "examples" / example)


@pytest.mark.slow
def test_exact_counts_give_people_away_and_a_release_does_not(tmp_path: Path) -> None:
    said = run(tmp_path, ROOT / "examples" / "attack" / "reconstruct.py")
    exact, released = map(int, re.findall(r"^(?:exact counts|its release): (\d+)%", said, re.MULTILINE))
    assert exact >= 95 and released <= 75, said  # a release at epsilon 1 gives 50 with a deviation of 5


def test_the_demo_answers_one_question_three_ways(tmp_path: Path) -> None:
    (tmp_path / "catalog").mkdir()
    for name in ("retail_user.yaml", "retail.yaml", "shop_survey.yaml"):
        shutil.copy(ROOT / "catalog" / name, tmp_path / "catalog")
    write_star(tmp_path / "data", make_star(7, 3000, 50))
    said = run(tmp_path, "-m", "dpsql.examples.demo")
    assert "3000 simulated reports, 3000 accepted" in said
    assert re.search(r"^sex +central +local +both +true$", said, re.MULTILINE)
    (names,) = re.findall(r"Both: one table from (.*?)\.$", said, re.MULTILINE)
    assert len(names.split(", ")) >= 2
    (beside,) = re.findall(r"months (\S+)% here, (\S+)% under pure epsilon 1", said)
    assert float(beside[0]) < float(beside[1])
    (inside, values) = map(int, re.findall(r"^(\d+) of (\d+) true values lie inside", said, re.MULTILINE)[0])
    assert inside >= 0.85 * values
    readme = (ROOT / "README.md").read_text("utf-8")
    (shown,) = re.findall(r'^\$ dpsql query retail.dpsql "(.*?)"$', readme, re.MULTILINE | re.DOTALL)
    assert "north" in run(tmp_path, "-m", "dpsql", "query", "retail.dpsql", shown)
    (program,) = re.findall(r"^```python\n(.*?)^```", readme, re.MULTILINE | re.DOTALL)
    assert "±" in run(tmp_path, "-c", program)


def test_the_survey_s_collector_says_where_it_is_or_what_is_wrong(tmp_path: Path) -> None:
    script = ROOT / "examples" / "survey" / "collector.py"
    command = [sys.executable, str(script), "plan.json", "reports.jsonl", "--port", "0"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60)
    assert (refused.returncode, refused.stderr.count("\n"), "plan.json" in refused.stderr) == (2, 1, True)
    collection_plan(ROOT / "catalog" / "survey.yaml", tmp_path / "plan.json", people=1000)
    served = piped(command, cwd=tmp_path)
    try:
        assert served.stdout is not None
        assert re.match(r"http://localhost:\d+ asks; reports go to reports.jsonl", served.stdout.readline())
        served.send_signal(signal.SIGINT)
        _, complaint = served.communicate(timeout=60)
    finally:
        served.kill()
    assert (served.returncode, complaint) == (0, "")
