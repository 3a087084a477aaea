"""Every run that prints `figure` lines, in the order of the page benchmarks/results/figures.md.

A run is what is measured again as a whole. Long targets are cut into parts, so that a stopped `make figures` loses one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Run(NamedTuple):
    """One command and what it reads.

    Attributes:
        name: of the result file, and what `--only` takes.
        topic: heading on the page.
        command: a line for the shell, from the project's folder; `python` is the environment's.
        reads: paths of the project beside the package and the catalogs whose change makes the result an old one.
    """

    name: str
    topic: str
    command: str
    reads: tuple[str, ...]


LOCAL_PARTS = ("axis", "rows", "bars", "rounds", "boxes", "lle")
_MODULES = f"""\
Privacy proved, files that attack, faults | withstand | prove, hostile, fuzz, frames, soak, kills, faults, damage, exits
One value, one table from every source | sources | places, stars, pairs, mutants, witness
Right, or marked as not | answers | measure, quantiles, moments, selected, bounds, samples, catalogs, limits, distinct
Right, or marked as not | answers | totals, words, small_numbers
What BI tools send | bi | measure
Accuracy of central releases | central | expected, joint, trees, cubes, text_cubes, measure, blocks, unseen_planes
Accuracy of central releases | central | unseen_planes held, unseen_lines
Accuracy about people | userlevel | measure, forecasts, made_up, nulls, short
Facts about people | people | measure
Keys that nobody listed | keys | measure
Reports of devices | local | {", ".join(f"measure --only {part}" for part in LOCAL_PARTS)}, collect, columns, totals
Two trusts | trusts | measure
Streams | streams | ahead
Composite answers | composites | measure
Speed of answers | speed | measure
Scale | scale | measure, big, ahead
The first hour | firsthour | drafts, designs, readme, unseen, agents, person, devices, pages
Beside other libraries | peers | measure, adult
"""
"""Topic, folder, and modules of it: `measure rows` is the module `measure` with the argument `rows`."""


_SHARED = tuple(f"benchmarks/{name}.py" for name in ("columns", "coverage", "page", "processes"))


def _modules() -> Iterator[Run]:
    for line in _MODULES.splitlines():
        topic, folder, parts = line.split(" | ")
        for part in parts.split(", "):
            name = "-".join([folder, *(word for word in part.split() if not word.startswith("-"))])
            reads = (f"benchmarks/{folder}", "benchmarks/baselines", *_SHARED)
            yield Run(name, topic, f"python -m benchmarks.{folder}.{part}", reads)


_FIXTURES = ("tests/interfaces_release.py", "tests/engines/test_lakes.py")
_PRODUCTION = ("benchmarks/production", *_FIXTURES, "examples", "deploy")
_SUITES = ("tests", "docs", "benchmarks", "clients", "Makefile")
RUNS: tuple[Run, ...] = (
    *_modules(),
    Run("explore", "The first hour", "make explore", ("tests/explore", "Makefile")),
    Run("mutants-run", "Tests that notice", "python -m benchmarks.mutants.run", _SUITES),
    *(
        Run(f"suites-{name}", "Suites", f"python -m tests.suites {name}", _SUITES)
        for name in ("quick", "test", "slow", "lowest")
    ),
    Run("suites-pythons", "Suites", "python -m tests.suites --python", _SUITES),
    Run("wire", "Interfaces", "make wire", ("tests/interfaces", "Makefile")),
    Run(
        "production-serving",
        "Production",
        "python -m benchmarks.production.serving",
        ("benchmarks/production", "tests/interfaces", "tests/interfaces_release.py"),
    ),
    *(
        Run(f"production-{part}", "Production", f"python -m benchmarks.production.{part}", _PRODUCTION)
        for part in ("pipelines", "stack", "soak")
    ),
    Run("engines", "Engines", "python -m tests.engines", ("tests/engines",)),
)
