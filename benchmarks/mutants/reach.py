"""Which case of `make test` reaches which line of the package, and what the case costs.

    python -m benchmarks.mutants.reach [FILE ...]      all of `make test`, or the cases of some files again

Cases run under coverage.py with a context each; module and session fixtures have contexts of their own, so that every
case that takes one counts as reaching its lines. What programs reach that a test starts is not seen. A run is a folder
of build/mutants/reach; of a test file the newest run that holds it is what counts.
"""

from __future__ import annotations

import json
import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Generator, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest

PROJECT = Path(__file__).resolve().parents[2]
RUNS = PROJECT / "build" / "mutants" / "reach"
FOLDER = "DPSQL_REACH"
"""Environment variable of the folder that a run writes; set, this module is the plugin that records."""


class Case(NamedTuple):
    """A case of the suite.

    Args:
        name: as pytest writes it.
        cpu: seconds of its process and of children that it waited for, under coverage.
        contexts: its own and those of the fixtures that it takes.
    """

    name: str
    cpu: float
    contexts: tuple[str, ...]

    @property
    def file(self) -> str:
        """Of the test."""
        return self.name.split("::")[0]


class Recorder:
    """The plugin of one process: a context each for cases and for fixtures that several cases share."""

    def __init__(self, folder: Path, worker: str) -> None:
        import coverage

        self._place = folder / worker
        self._coverage = coverage.Coverage(
            data_file=f"{self._place}.sqlite",
            source=[str(PROJECT / "dpsql")],
            config_file=False,
            messages=False,
        )
        self._coverage.start()
        self._within: list[str] = []
        self._cases: list[Case] = []

    def _enter(self, context: str) -> None:
        self._within.append(context)
        self._coverage.switch_context(context)

    def _leave(self) -> None:
        self._within.pop()
        self._coverage.switch_context(self._within[-1] if self._within else "")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """A context for the case."""
        known = item._fixtureinfo.name2fixturedefs if isinstance(item, pytest.Function) else {}
        fixtures = [known[name][-1] for name in getattr(item, "fixturenames", ()) if name in known]
        shared = tuple(_of(fixture) for fixture in fixtures if fixture.scope != "function")
        before = _cpu()
        self._enter(item.nodeid)
        try:
            return (yield)
        finally:
            self._leave()
            self._cases.append(Case(item.nodeid, _cpu() - before, (item.nodeid, *shared)))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, Any, Any]:
        """A context for what several cases share."""
        if fixturedef.scope == "function":
            return (yield)
        self._enter(_of(fixturedef))
        try:
            return (yield)
        finally:
            self._leave()

    def pytest_sessionfinish(self) -> None:
        """Write what was seen."""
        self._coverage.stop()
        self._coverage.save()
        Path(f"{self._place}.json").write_text(json.dumps(self._cases), "utf-8")


def _of(fixture: pytest.FixtureDef[Any]) -> str:
    return f"fixture {fixture.baseid} {fixture.argname}"


def _cpu() -> float:
    used = [resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


class Reach:
    """What the runs of a folder saw."""

    def __init__(self) -> None:
        self._databases: list[Path] = []
        self._cases: dict[str, list[Case]] = {}
        self._place: dict[str, int] = {}
        for run in sorted(RUNS.iterdir(), key=lambda run: int(run.name)):
            files: dict[str, list[Case]] = {}
            for listed in sorted(run.glob("*.json")):
                for name, cpu, contexts in json.loads(listed.read_text("utf-8")):
                    case = Case(name, cpu, tuple(f"{run.name} {context}" for context in contexts))
                    files.setdefault(case.file, []).append(case)
                self._databases.append(listed.with_suffix(".sqlite"))
            self._cases |= files

    @property
    def cases(self) -> list[Case]:
        """All of the newest runs, of files that are still there."""
        return [case for file, cases in self._cases.items() if (PROJECT / file).exists() for case in cases]

    def reaching(self, module: str, lines: Iterable[int]) -> list[Case]:
        """The cases that reach one of some lines of a module; without lines any line of it."""
        wanted, contexts = sum(1 << line for line in set(lines)), set[str]()
        for path in self._databases:
            with closing(sqlite3.connect(path)) as database:
                found = database.execute(
                    "SELECT context, numbits FROM line_bits JOIN file ON file.id = file_id "
                    "JOIN context ON context.id = context_id WHERE path LIKE ? AND context > ''",
                    [f"%/{module}"],
                )
                for context, bits in found:
                    if not wanted or wanted & int.from_bytes(bits, "little"):
                        contexts.add(f"{path.parent.name} {context}")
        return [case for case in self.cases if contexts.intersection(case.contexts)]


def main(files: list[str]) -> int:
    """Record one run."""
    RUNS.mkdir(parents=True, exist_ok=True)
    folder = RUNS / str(1 + max((int(run.name) for run in RUNS.iterdir()), default=0))
    folder.mkdir()
    command = [sys.executable, "-m", "pytest", "-n", "2", "-p", "benchmarks.mutants.reach", *files]
    return subprocess.run(
        [*command, "--dist", "worksteal"], cwd=PROJECT, env={**os.environ, FOLDER: str(folder)}
    ).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))


def pytest_configure(config: pytest.Config) -> None:
    """Record in every worker of a run that names a folder."""
    worker = os.environ.get("PYTEST_XDIST_WORKER")
    if worker and FOLDER in os.environ:
        config.pluginmanager.register(Recorder(Path(os.environ[FOLDER]), worker))
