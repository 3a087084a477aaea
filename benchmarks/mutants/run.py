"""Mutants of the noise, the budgets, the noise distributions and the ledger against their own tests.

    python -m benchmarks.mutants.run [--count 400] [--seed 40]

Defects are drawn without replacement, each of all modules with the same chance. One is planted in a copy of the
package, and the tests of its package run until one fails, at most 60 s of CPU; a mutant that is still running then is
killed, as a suite that hangs is noticed. What survives is printed with its line. Results are kept in
build/mutants.jsonl, so a stopped run goes on: a killed mutant for as long as its module and the file of the test that
failed are as they were, a survivor for as long as its module and all its tests are.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figures
from benchmarks.mutants.defects import Defect, defects, planted
from benchmarks.mutants.equivalent import EQUIVALENT

PROJECT = Path(__file__).resolve().parents[2]
STORED = PROJECT / "build" / "mutants.jsonl"
CPU_SECONDS, KILLED = 60, 0.95
PACKAGES = {
    "dpsql/noise": ("tests/noise",),
    "dpsql/budget": ("tests/budget",),
    "dpsql/mechanisms/distribution.py": (
        "tests/mechanisms/test_law.py",
        "tests/mechanisms/test_view.py", "tests/mechanisms/test_strategy.py",
        "tests/mechanisms/test_joint_tree.py",
        "tests/matrices/test_levels.py", "tests/privacy/test_auditor_gaussian.py", "tests/privacy/test_path_sums.py",
        "tests/privacy/test_joint_draws.py", "tests/mechanisms/test_bound.py",
        "tests/mechanisms/test_cells_meet_noise.py",
    ),
    "dpsql/ledger": (
        "tests/ledger/test_ledger.py", "tests/ledger/test_spend_memory.py", "tests/ledger/test_copies.py",
        "tests/ledger/test_signing_key.py", "tests/ledger",
    ),
}  # fmt: skip
"""Modules, and the tests that are theirs, the cheapest first: pytest stops at the first that fails."""


class Mutant(NamedTuple):
    """A defect of a module, or none, and the tests that should notice it."""

    module: str
    defect: Defect | None
    tests: tuple[str, ...]


def mutants() -> list[Mutant]:
    """Every defect of every module."""
    listed = []
    for part, tests in PACKAGES.items():
        place = PROJECT / part
        for path in sorted(place.glob("*.py")) if place.is_dir() else [place]:
            module = str(path.relative_to(PROJECT))
            listed += [Mutant(module, defect, tests) for defect in defects(path.read_text("utf-8"))]
    return listed


def refuse_failing_tests() -> None:
    """The package as it is must pass in its copy: tests that fail anyway would kill every mutant.

    Raises:
        RuntimeError: a package's tests fail without a defect.
    """
    for part, tests in PACKAGES.items():
        if killer(Mutant(part, None, tests)) != SURVIVED:
            raise RuntimeError(f"{part}: {' '.join(tests)} fail without a defect")


SURVIVED = "nothing"
"""Stands where the file of the failing test would."""


def killer(mutant: Mutant) -> str:
    """The file of the test that fails, the package's tests if they hang, `SURVIVED` if all pass."""
    with tempfile.TemporaryDirectory() as folder:
        for name in ("dpsql", "tests", "benchmarks", "docs", "catalog"):
            shutil.copytree(
                PROJECT / name, Path(folder) / name, ignore=shutil.ignore_patterns("__pycache__", "results")
            )
        for name in ("pyproject.toml", "README.md", "CONTRIBUTING.md"):
            shutil.copy(PROJECT / name, folder)
        if mutant.defect:
            source = (PROJECT / mutant.module).read_text("utf-8")
            (Path(folder) / mutant.module).write_text(planted(source, mutant.defect.number), "utf-8")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", *mutant.tests],
            cwd=folder, env={**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True, check=False, preexec_fn=_limit, text=True,
        )  # fmt: skip
    if done.returncode == 0 and " passed" not in done.stdout and "%]" not in done.stdout:
        raise RuntimeError(f"no test ran: {done.stdout}{done.stderr}")
    if done.returncode == 0:
        return SURVIVED
    failed = re.search(r"^(?:FAILED|ERROR) ([\w/]+\.py)", done.stdout, re.M)
    return failed[1] if failed else " ".join(mutant.tests)


def _limit() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


def digest(mutant: Mutant, by: str) -> str:
    """What a result stands for: the module, the defect, and the tests that it rests on."""
    known = hashlib.sha256((PROJECT / mutant.module).read_bytes())
    for name in mutant.tests if by == SURVIVED else by.split():
        place = PROJECT / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place] if place.exists() else []:
            known.update(path.read_bytes())
    known.update(f"{mutant.defect and mutant.defect.number} {by}".encode())
    return known.hexdigest()


class Results:
    """What earlier runs found, one line of `STORED` each."""

    def __init__(self) -> None:
        STORED.parent.mkdir(exist_ok=True)
        lines = STORED.read_text("utf-8").splitlines() if STORED.exists() else []
        self._by: dict[str, str] = {line["digest"]: line["by"] for line in map(json.loads, lines)}

    def killer(self, mutant: Mutant) -> str:
        """Of `mutant`, found again or looked up."""
        for by in {*self._by.values()}:
            if digest(mutant, by) in self._by:
                return by
        by = killer(mutant)
        self._by[digest(mutant, by)] = by
        with STORED.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"digest": digest(mutant, by), "by": by, "module": mutant.module}) + "\n")
        return by


def _written(mutant: Mutant) -> tuple[str, str, str, str]:
    defect = mutant.defect
    assert defect is not None
    line = (PROJECT / mutant.module).read_text("utf-8").splitlines()[defect.line - 1].strip()
    return mutant.module, line, defect.before, defect.after


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, run, print; 1 if too many survive."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=40)
    options = parser.parse_args(arguments)
    refuse_failing_tests()
    listed = mutants()
    drawn = random.Random(options.seed).sample(listed, min(options.count, len(listed)))
    results, killed, equivalent = Results(), 0, 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, by in zip(drawn, pool.map(results.killer, drawn), strict=True):
            killed += by != SURVIVED
            if by == SURVIVED:
                reason = EQUIVALENT.get(_written(mutant))
                equivalent += reason is not None
                print(
                    f"  {'the same: ' + reason if reason else 'survives'}: {' | '.join(_written(mutant))}",
                    flush=True,
                )
    print(
        f"  {len(drawn)} of {len(listed)} mutants, seed {options.seed}: {killed} killed, {equivalent} the same program"
    )
    figures = Figures()
    figures.at_least("mutants-killed, of those that differ", killed / (len(drawn) - equivalent), KILLED)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
