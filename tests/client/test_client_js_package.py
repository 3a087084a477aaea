"""The JavaScript client as a package: what npm packs is whole, and its README's code runs. Needs Node and npm."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

import dpsql
from tests.local_plans import plan_text, view

NODE, NPM = shutil.which("node"), shutil.which("npm")
CLIENT = Path(__file__).parents[2] / "clients" / "js"
pytestmark = pytest.mark.skipif(NODE is None or NPM is None, reason="no node or no npm on this machine")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that has the packed client among its modules."""
    folder = tmp_path_factory.mktemp("npm")
    command = [
        str(NPM),
        "pack",
        "--json",
        "--offline",
        "--pack-destination",
        str(folder),
        "--cache",
        str(folder / "cache"),
    ]
    subprocess.run([*command, str(CLIENT)], check=True, capture_output=True, timeout=120)
    (packed,) = folder.glob("*.tgz")
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    (folder / "node_modules").mkdir()
    (folder / "package").rename(folder / "node_modules" / "dpsql-client")
    return folder


def test_the_package_holds_what_it_imports_and_nothing_else(installed: Path) -> None:
    held = {path.name for path in (installed / "node_modules" / "dpsql-client").iterdir()}
    modules = {"dpsql-client", "dpsql-plan", "dpsql-rows", "dpsql-storage"}
    typed = modules - {"dpsql-plan"}
    assert held == {"package.json", "README.md", "cjs"} | {f"{m}.js" for m in modules} | {
        f"{m}.d.ts" for m in typed
    }
    common = {path.name for path in (installed / "node_modules" / "dpsql-client" / "cjs").iterdir()}
    assert common == {f"{m}.cjs" for m in modules} | {f"{m}.d.cts" for m in typed}
    told = json.loads((CLIENT / "package.json").read_text("utf-8"))
    assert told["version"] == dpsql.__version__
    assert "dependencies" not in told and "private" not in told


def test_the_readme_s_code_answers_a_plan_once(installed: Path) -> None:
    (code,) = re.findall(r"```js\n(.*?)```", (CLIENT / "README.md").read_text("utf-8"), re.S)
    imports, _, rest = code.partition("\n\n")
    text = plan_text(view(), epsilon="1").replace('"age"', '"answer.age"')  # as collections name their fields
    program = f"""{imports}
const kept = new Map();
const localStorage = {{ getItem: (key) => kept.get(key) ?? null, setItem: (key, text) => kept.set(key, text) }};
const bytes = new TextEncoder().encode({json.dumps(text)});
{rest}
const again = await memory.answer(plan, []);
console.log(JSON.stringify([[...report], [...again]]));
"""
    (installed / "answer.mjs").write_text(program)
    done = subprocess.run(
        [str(NODE), "answer.mjs"], cwd=installed, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    report, again = json.loads(done.stdout)
    assert report == again and len(report) > 8


ANSWERS = """
const bytes = new TextEncoder().encode(PLAN);
const kept = new Map();
let slow = 0, lossy = false;
const storage = { // the shape of React Native's: promises, and no locks beside it
  async getItem(key) { slow += 1; await new Promise((done) => setTimeout(done, 2)); return kept.get(key) ?? null; },
  async setItem(key, text) { await new Promise((done) => setTimeout(done, 2)); if (!lossy) kept.set(key, text); },
};
(async () => {
  Object.defineProperty(globalThis, "navigator", { value: undefined, configurable: true });
  const plan = await readPlan(bytes), rows = toRows(plan, [{ "answer.age": 3 }]);
  const [one, two] = [new Memory(storage, "1", "4"), new Memory(storage, "1", "4")];
  const reports = await Promise.all([one, two, one, two].map((memory) => memory.answer(plan, rows)));
  const texts = new Set(reports.map(toHex));
  kept.clear();
  lossy = true;
  const lost = await one.answer(plan, rows).then(() => "sent", (error) => error.message);
  lossy = false;
  const after = await one.answer(plan, rows);
  console.log(JSON.stringify([texts.size, slow > 8, lost, after.length > 8]));
})();
"""


@pytest.mark.parametrize("kind", ["cjs", "mjs"])
def test_a_memory_may_give_promises_and_draws_once_all_the_same(installed: Path, kind: str) -> None:
    """Four calls at once share one report; a memory that keeps nothing sends nothing, and keeps nobody else waiting."""
    imports = (
        'const { Memory, readPlan, toHex } = require("dpsql-client");\n'
        'const { toRows } = require("dpsql-client/rows");\n'
        if kind == "cjs"
        else 'import { Memory, readPlan, toHex } from "dpsql-client";\nimport { toRows } from "dpsql-client/rows";\n'
    )
    text = plan_text(view(), epsilon="1").replace('"age"', '"answer.age"')
    (installed / f"answers.{kind}").write_text(imports + ANSWERS.replace("PLAN", json.dumps(text)))
    done = subprocess.run(
        [str(NODE), f"answers.{kind}"], cwd=installed, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [1, True, "the memory did not keep what was drawn", True]
