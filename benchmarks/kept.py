"""Figures that are kept: each with its command, commit and date, and the page made from them.

    python -m benchmarks.kept [--only RUN]...         what has no result for its inputs, then the page
    python -m benchmarks.kept --page                  the page alone
    python -m benchmarks.kept --only RUN --log FILE --at REVISION     what a run of that revision printed elsewhere

A result stands for the committed files that its run reads: the package, the catalogs, the run's own folder. It is
written when the run has ended, so a stopped command goes on with the run that it was in. What is not committed is not
measured: nobody else could measure it again.

benchmarks/results/figures.md has a line a figure, and the reason of each that is short. `table` lines are not kept.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import yaml

from benchmarks.page import markdown
from benchmarks.runs import RUNS, Run

PROJECT = Path(__file__).resolve().parents[1]
RESULTS = PROJECT / "benchmarks" / "results"
PAGE = RESULTS / "figures.md"
REASONS: dict[str, str] = yaml.safe_load(
    (PROJECT / "benchmarks" / "reasons.yaml").read_text(encoding="utf-8")
)
EVERY_RUN_READS = ("dpsql", "catalog", "pyproject.toml", "benchmarks/figures.py")
FIGURE = re.compile(r"figure (?P<figure>.+): (?P<value>\S+) \((?P<bound>[^()]*)\) (?P<verdict>ok|short)$")
HEAD = """# The promised figures

What dpsql promises in numbers, and whether it held when it was measured. `make figures` measures again whatever has no
result for the files that its run reads; `make bench TOPIC=..` prints one topic with its tables. A promise over many
cells is its worst cell, which is named.
"""


class UsageError(ValueError):
    """What was asked for cannot be done as it was asked; the message says why."""


@dataclass(frozen=True)
class Kept:
    """One figure as it was measured.

    Attributes:
        figure: its name, as the run printed it.
        value, bound: as printed; the bound is `<= 1.5` or `>= 0.93`.
        held: whether the value keeps the bound.
        run, command: which run printed it.
        commit, date: what was measured, and when the run ended.
        inputs: a digest of the committed files that the run reads.
        ended: exit code of the run; a run that broke off in the middle is not 0 or 1.
    """

    figure: str
    value: str
    bound: str
    held: bool
    run: str
    command: str
    commit: str
    date: str
    inputs: str
    ended: int


def figures_of(lines: Iterable[str]) -> list[tuple[str, str, str, bool]]:
    """Name, value, bound and verdict of each `figure` line.

    Example:
        >>> figures_of(["warming up", "figure rows read: 12 (<= 20) ok"])
        [('rows read', '12', '<= 20', True)]
    """
    matches = (FIGURE.search(line.rstrip()) for line in lines)
    return [(m["figure"], m["value"], m["bound"], m["verdict"] == "ok") for m in matches if m]


def inputs_of(run: Run, revision: str = "HEAD") -> str:
    """Digest of the committed files that a run reads, by their names and contents."""
    tree = _git(PROJECT, "ls-tree", "-r", revision, "--", *EVERY_RUN_READS, *run.reads)
    return hashlib.sha256(tree.encode()).hexdigest()[:16]


def kept(run: Run) -> list[Kept]:
    """What is kept of a run; empty if nothing is."""
    path = RESULTS / f"{run.name}.jsonl"
    return [Kept(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def keep(run: Run, lines: Iterable[str], ended: int, revision: str, date: str) -> list[Kept]:
    """Write the figures of a run that has ended, all at once."""
    commit = _git(PROJECT, "rev-parse", "--short=10", revision).strip()
    inputs = inputs_of(run, revision)
    figures = [
        Kept(figure, value, bound, held, run.name, run.command, commit, date, inputs, ended)
        for figure, value, bound, held in figures_of(lines)
    ]
    if not figures:
        raise UsageError(f"{run.name}: no `figure` line in what it printed")
    RESULTS.mkdir(exist_ok=True)
    fresh = RESULTS / f".{run.name}"
    fresh.write_text("".join(json.dumps(asdict(figure)) + "\n" for figure in figures))
    fresh.replace(RESULTS / f"{run.name}.jsonl")
    return figures


def measure(run: Run) -> list[Kept]:
    """Run it as its command says, showing and keeping what it prints."""
    changed = _git(PROJECT, "status", "--porcelain", "--", *EVERY_RUN_READS, *run.reads)
    if changed:
        raise UsageError(f"{run.name} reads files that are not committed:\n{changed.rstrip()}")
    revision = _git(PROJECT, "rev-parse", "HEAD").strip()
    binaries = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    print(f"== {run.name}: {run.command}", flush=True)
    lines = []
    with subprocess.Popen(
        ["/bin/sh", "-c", run.command],
        cwd=PROJECT,
        env={**os.environ, "PATH": binaries},
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            print(line, end="", flush=True)
            lines.append(line)
    return keep(run, lines, process.returncode, revision, datetime.now(UTC).date().isoformat())


def page() -> str:
    """The page: reasons of the short figures, then a table a topic, then the runs without a result."""
    figures = [figure for run in RUNS for figure in kept(run)]
    short = [figure for figure in figures if not figure.held]
    dates = sorted(figure.date for figure in figures)
    parts = [HEAD, f"{len(figures) - len(short)} of {len(figures)} figures hold."]
    parts.append(f"They were measured from {dates[0]} to {dates[-1]}.\n" if dates else "")
    if short:
        parts.append("## Short\n")
        parts += [f"- {_cell(figure.figure)}: {REASONS.get(promise(figure), '')}" for figure in short]
        parts.append("")
    missing = [run.name for run in RUNS if not kept(run)]
    if missing:
        parts.append("Not kept yet: " + ", ".join(f"`{name}`" for name in missing) + ".\n")
    for topic, runs in groupby(RUNS, lambda run: run.topic):
        rows = [_row(figure) for run in runs for figure in kept(run)]
        if rows:
            parts += [f"## {topic}\n", markdown(["figure", "value", "bound"], rows), ""]
    return "\n".join(parts).rstrip() + "\n"


def promise(figure: Kept) -> str:
    """Name of a figure without its worst cell."""
    return figure.figure.partition(", worst of ")[0]


def _row(figure: Kept) -> tuple[str, str, str]:
    """A figure's row of the page's tables."""
    value = figure.value if figure.held else f"**{figure.value}**"
    ended = "" if figure.ended in (0, 1) else f", broke off with exit code {figure.ended}"
    return _cell(figure.figure), value, _cell(figure.bound) + ended


def _cell(text: str) -> str:
    for character in "|<>*_":
        text = text.replace(character, f"\\{character}")
    return text


def _git(project: Path, *words: str) -> str:
    return subprocess.run(
        ["git", "-C", str(project), *words], check=True, capture_output=True, text=True
    ).stdout


def main() -> int:
    """Measure, keep, write the page; 1 if a figure that is kept is short, 2 if a run has none."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", choices=[run.name for run in RUNS], metavar="RUN")
    parser.add_argument("--page", action="store_true", help="measure nothing")
    parser.add_argument(
        "--log", type=Path, help="what one run printed elsewhere; a last line `exit N` is its code"
    )
    parser.add_argument("--at", metavar="REVISION", help="the revision that the log is of")
    given = parser.parse_args()
    runs = [run for run in RUNS if not given.only or run.name in given.only]
    refused = 0
    try:
        if given.log is not None:
            _take(runs, given.log, given.at)
        elif not given.page:
            for run in runs:
                inputs = [figure.inputs for figure in kept(run)[:1]]
                if inputs != [inputs_of(run)]:
                    refused += not _measured(run)
    except UsageError as refusal:
        print(refusal, file=sys.stderr)
        return 2
    PAGE.write_text(page())
    return 2 if refused else 0 if all(figure.held for run in RUNS for figure in kept(run)) else 1


def _measured(run: Run) -> bool:
    """Measure a run; what has no figures is said, and the next one goes on."""
    try:
        measure(run)
    except UsageError as refusal:
        print(refusal, file=sys.stderr)
        return False
    return True


def _take(runs: Sequence[Run], log: Path, revision: str | None) -> None:
    if len(runs) != 1 or revision is None:
        raise UsageError("--log is of one run at one revision: --only RUN --log FILE --at REVISION")
    lines = log.read_text().splitlines()
    last = lines[-1].split() if lines else []
    if last[:1] != ["exit"]:
        raise UsageError(f"{log}: its last line is not `exit N`, so nobody knows whether the run ended")
    date = datetime.fromtimestamp(log.stat().st_mtime, UTC).date().isoformat()
    keep(runs[0], lines, int(last[1]), revision, date)


if __name__ == "__main__":
    sys.exit(main())
