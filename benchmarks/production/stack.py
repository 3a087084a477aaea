"""The stack of `deploy/` from its own steps: what a restore loses.

The image's install lines are run in a clean environment. No container is built.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from benchmarks.figures import Figures, main
from dpsql.examples.retail import make_star, write_star

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"


def image(place: Path) -> Path:
    """The install lines of the Dockerfile in a clean environment."""
    source, environment = place / "src", place / "image"
    source.mkdir()
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, capture_output=True, check=True).stdout
    subprocess.run(["tar", "-x"], cwd=source, input=archive, check=True)
    (lines,) = re.findall(
        r"^RUN (python -m venv (?:.*\\\n)*.*)$", (DEPLOY / "Dockerfile").read_text(), re.MULTILINE
    )
    world = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    lines = lines.replace("/opt/dpsql", str(environment)).replace("python -m", f"{sys.executable} -m", 1)
    subprocess.run(["sh", "-ec", lines], cwd=source, check=True, capture_output=True, env=world)
    return environment / "bin"


def measure(figures: Figures, folder: Path) -> None:
    """The drill: back up after each publish, lose the machine, restore the newest; then an older one: refused."""
    programs, folder = image(folder), folder / "drill"
    write_star(folder / "data", make_star(3, 2000, 40))
    text = (ROOT / "catalog" / "retail.yaml").read_text()
    (folder / "retail.yaml").write_text(text)
    world = {"PATH": os.environ["PATH"], "DPSQL_STATE": "/dev/null"}

    def dpsql(*words: str, code: int = 0) -> str:
        done = subprocess.run(
            [programs / "dpsql", *words], cwd=folder, env=world, capture_output=True, text=True
        )
        assert (done.returncode == 0) is (code == 0), done.stderr
        return done.stdout

    ledger = ".dpsql/ledger.duckdb"
    for number in (1, 2):
        dpsql("publish", "retail.yaml", "-o", f"r{number}.dpsql")
        dpsql("ledger", "backup", ledger, "-o", f"copy{number}.duckdb")
    before = json.loads(dpsql("budget", "retail.yaml", "--json"))["lineages"]

    def restore(copy: str) -> None:
        for end in ("", ".head"):
            if (folder / f"{copy}.duckdb{end}").exists():
                shutil.copy(folder / f"{copy}.duckdb{end}", folder / f"{ledger}{end}")

    shutil.rmtree(folder / ".dpsql")
    (folder / ".dpsql").mkdir(mode=0o700)
    restore("copy2")
    after = json.loads(dpsql("budget", "retail.yaml", "--json"))["lineages"]
    lost = sum(len(line["releases"]) for line in before) - sum(len(line["releases"]) for line in after)
    figures.at_most("production: charges lost by a restore of the newest backup", lost, 0)
    restore("copy1")
    dpsql("publish", "retail.yaml", "-o", "r3.dpsql", code=3)
    assert not (folder / "r3.dpsql").exists(), "published over an older backup"


if __name__ == "__main__":
    main(measure)
