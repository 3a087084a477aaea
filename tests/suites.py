"""Outcomes and CPU of the suites of tests, as figures.

    python -m tests.suites [quick] [test] [slow]               targets of make
    python -m tests.suites lowest                              `quick` with the oldest dependencies of pyproject.toml
    python -m tests.suites sqlalchemy14                        the dialect's tests with SQLAlchemy 1.4
    python -m tests.suites --python [python3.13 ...]           `quick` with other interpreters, locked versions; without
                                                               names those of the PATH from 3.11 on

CPU is user and system time of everything that was started and waited for. An interpreter gets an environment of its
own under build/.
"""

from __future__ import annotations

import re
import resource
import shutil
import subprocess
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.figures import Figures

ROOT = Path(__file__).resolve().parents[1]
CPU_SECONDS = {"quick": 120, "test": 16 * 60}
"""What a suite may take."""
QUICK = "not slow and not publishes and not long"
SUMMARY = re.compile(r"(\d+) (failed|passed|skipped|xfailed|xpassed|errors?)\b")


class Suite(NamedTuple):
    """What a run of tests said and cost.

    Args:
        counts: tests by outcome, as pytest names it.
        cpu, wall: seconds.
    """

    counts: Counter[str]
    cpu: float
    wall: float


def suite(*command: str) -> Suite:
    """Run it and show what it prints."""
    before, began, last = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic(), ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            last = line if SUMMARY.search(line) and " in " in line else last
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    counts = Counter({word.rstrip("s"): int(number) for number, word in SUMMARY.findall(last)})
    if process.returncode and not counts["failed"] + counts["error"]:
        counts["error"] += 1  # a linter, or a run that broke off
    cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return Suite(counts, cpu, time.monotonic() - began)


def print_figures(figures: Figures, name: str, outcome: Suite, most: float | None = None) -> None:
    """Failed, passed, skipped and the time of a suite; `most` is the CPU that it may take."""
    figures.at_most(f"{name}: failed", outcome.counts["failed"] + outcome.counts["error"], 0)
    figures.table(f"{name}: passed", outcome.counts["passed"])
    print(
        f"  {name}: {outcome.counts['skipped']} skipped, {outcome.wall / 60:.1f} minutes, {outcome.cpu:.0f} CPU s"
    )
    if most is not None:
        figures.at_most(f"{name}: CPU seconds", outcome.cpu, most)


def of_python(interpreter: str) -> tuple[str, Suite]:
    """Version of an interpreter, and `quick` with it and the versions of tests/locked.txt."""
    say = "import platform; print(platform.python_version())"
    version = subprocess.run(
        [interpreter, "-c", say], check=True, capture_output=True, text=True
    ).stdout.strip()
    place = ROOT / "build" / f"python-{version}"
    python = str(place / "bin" / "python")
    if not place.exists():
        subprocess.run([interpreter, "-m", "venv", place], check=True)
    for words in (
        ["--require-hashes", "--requirement", "tests/locked.txt"],
        ["--no-deps", "--no-build-isolation", "--editable", "."],
    ):
        subprocess.run([python, "-m", "pip", "install", "--quiet", *words], check=True, cwd=ROOT)
    return version, suite(python, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-m", QUICK, "tests")


def environment(name: str, *requirements: str) -> str:
    """The interpreter of an environment below build/ that holds the package and some requirements."""
    place = ROOT / "build" / name
    if not place.exists():
        subprocess.run([sys.executable, "-m", "venv", place], check=True)
    python = str(place / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "--quiet", *requirements], check=True, cwd=ROOT)
    return python


def lowest() -> Suite:
    """`quick` with the oldest dependencies that pyproject.toml allows."""
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["dependency-groups"]["dev"]
    python = environment("lowest", "--constraint", "tests/lowest.txt", "--editable", ".", *tools)
    return suite(python, "-m", "pytest", "-n", "2", "--dist", "worksteal", "-m", QUICK, "tests")


def sqlalchemy14() -> Suite:
    """Tests of the dialect with the last SQLAlchemy before 2."""
    wanted = ("SQLAlchemy<2", "pandas<2.2", "numpy<2", "pyarrow", "pytest", "hypothesis", "--editable", ".")
    python = environment("sqlalchemy14", *wanted)
    alone = ("-p", "no:cacheprovider", "-c", "/dev/null", "--rootdir", ".", "-o", "markers=slow")
    return suite(python, "-m", "pytest", "-q", "-s", *alone, "tests/interfaces/test_sqlalchemy.py")


OWN_ENVIRONMENTS = {"lowest": lowest, "sqlalchemy14": sqlalchemy14}
MINORS = (11, 12, 13, 14)


def main(words: Sequence[str]) -> int:
    """Run and measure; 1 if a test fails or a suite takes longer than it may."""
    figures = Figures()
    if words[:1] == ["--python"]:
        found = [path for minor in MINORS if (path := shutil.which(f"python3.{minor}"))]
        for interpreter in words[1:] or found:
            version, outcome = of_python(interpreter)
            print_figures(figures, f"quick tests on Python {version}", outcome)
    else:
        for target in words or ("quick", "test"):
            own = OWN_ENVIRONMENTS.get(target)
            outcome = own() if own else suite("make", target)
            print_figures(figures, target if own else f"make {target}", outcome, CPU_SECONDS.get(target))
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
