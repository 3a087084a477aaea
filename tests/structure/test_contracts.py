"""The import contracts hold, and each of them notices when it is broken on purpose."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from tests.thinned import by_default

ROOT = Path(__file__).resolve().parents[2]

BREACHES = {
    "Answering reaches no noise": ("results/result.py", "from dpsql.noise import ExactNoise"),
    "The release file cannot draw noise": ("release/format.py", "import dpsql.mechanisms"),
    "A person's own device runs": ("client/entropy.py", "import numpy"),
    "Mechanisms are numpy in, numpy out": ("mechanisms/distribution.py", "import duckdb"),
    "Only sql and row_expressions import sqlglot": ("release/read.py", "import sqlglot"),
    "Layers": ("tree.py", "import dpsql.release"),
    "A rehearsal of made-up rows opens": ("curator/rehearse.py", "from dpsql.engines import open_sources"),
    "Applications reach the engine": ("interfaces/shell.py", "import dpsql.planner.quantiles"),
    "Contributions stand between": ("central/placed_rows.py", "import dpsql.contributions.recipe"),
}


def lint(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(folder), "NO_COLOR": "1", "TERM": "dumb"}
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("contracts")
    shutil.copytree(ROOT / "dpsql", folder / "dpsql", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / ".importlinter", folder)
    return folder


def test_the_contracts_hold(copy: Path) -> None:
    result = lint(copy)
    assert result.returncode == 0, result.stdout


@pytest.mark.parametrize("contract", by_default(BREACHES, 3))
def test_a_breach_is_found(copy: Path, contract: str) -> None:
    name, line = BREACHES[contract]
    file = copy / "dpsql" / name
    sound = file.read_text()
    file.write_text(f"{sound}\n{line}\n")
    try:
        result = lint(copy)
    finally:
        file.write_text(sound)
    assert result.returncode != 0
    broken = [line for line in map(click.unstyle, result.stdout.splitlines()) if "BROKEN" in line]
    assert any(line.startswith(contract) for line in broken), result.stdout
