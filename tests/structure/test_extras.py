"""dpsql works without any of its extras, and says what to install where one is wanted."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from dpsql.extras import EXTRAS
from tests.interfaces_release import build

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "SELECT region, COUNT(*) AS n FROM sales JOIN customer USING (customer_id) GROUP BY region ORDER BY region"

WITHOUT = """
import sys
from importlib.abc import MetaPathFinder

class Blocked(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {blocked!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Blocked())
"""

SESSION = """
from pathlib import Path
import dpsql
from tests.interfaces_release import build

release = build(Path({folder!r}))
result = dpsql.query({question!r}, release=release)
assert [row[0] for row in result.rows] == ["(other)", "east", "west", None], result.rows
assert result.columns == ("region", "n") and result.stderr_rows[1][1] > 0 and result.interval_rows()[0][1][1] > 0
assert "/+" in str(result).splitlines()[3] and "<td>east</td>" in result._repr_html_()
assert list(result.df()["n"]) == [row[1] for row in result.rows] and len(result.interval()[0]) == 4
try:
    result.arrow()
except dpsql.InterfaceError as error:
    print(error)
"""


def run(program: str) -> str:
    """Standard output of a program in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_publish_query_and_print_need_no_extra(tmp_path: Path) -> None:
    blocked = {found.module.split(".")[0] for found in EXTRAS.values()}
    (line,) = run(
        WITHOUT.format(blocked=blocked) + SESSION.format(folder=str(tmp_path), question=QUESTION)
    ).splitlines()
    assert line.startswith(f"{EXTRAS['arrow'].package} is not installed")
    assert 'pip install "dpsql[arrow]"' in line


@pytest.mark.usefixtures("publishes")
def test_no_extra_is_loaded_before_it_is_wanted(tmp_path: Path) -> None:
    shop, modules = build(tmp_path), {"pandas", *(found.module for found in EXTRAS.values())}
    program = f"""
import sys, dpsql
dpsql.connect({str(shop)!r}).execute("SELECT COUNT(*) FROM sales").fetchall()
str(dpsql.query("SELECT COUNT(*) FROM sales", release={str(shop)!r}))
print(*sorted(set(sys.modules) & {modules!r}))
"""
    assert run(program).split() == []


def test_extras_are_those_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    listed = {name: " ".join(found) for name, found in project["optional-dependencies"].items()}
    assert set(listed) == set(EXTRAS)
    assert all(EXTRAS[name].package in found for name, found in listed.items())
    needed = {re.split(r"[\[>=<]", text)[0] for text in project["dependencies"]}
    assert "pandas" in needed
    assert needed.isdisjoint(found.package for found in EXTRAS.values())
