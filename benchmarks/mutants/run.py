"""The kill matrix: defects of every package of dpsql against the cases of `make test` that reach them.

    python -m benchmarks.mutants.reach                 first: which case reaches which line, and its cost
    python -m benchmarks.mutants.run [--count 400] [--seed 60] [--workers 2]

Defects are drawn in proportion to the lines of each package. Each is planted in a process that has collected all cases,
forked for it: the code of the changed function is exchanged. Cases that reach the line run, the cheapest of each file
first, until three have failed or `CPU_SECONDS` are gone; a process that hangs or dies is a failure of its case, as a
suite that hangs is noticed. Defects outside of functions are drawn too and run in a fresh interpreter.

What fails runs once more without the defect, and counts only if it passes then.

Results are kept in build/mutants/matrix.jsonl, so a stopped run goes on. A result holds for as long as the module and
the files of the cases that failed are as they were; that nothing failed, for as long as all tests are.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import inspect
import json
import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

import pytest

from benchmarks.figures import Figures
from benchmarks.mutants.defects import Defect, count_defects, defect, planted
from benchmarks.mutants.equivalent import EQUIVALENT
from benchmarks.mutants.reach import PROJECT, Case, Reach

STORED = PROJECT / "build" / "mutants" / "matrix.jsonl"
CPU_SECONDS, WALL_SECONDS, ENOUGH, KILLED = 60, 240, 3, 0.95
MOST_CASES = 400
TASK = "DPSQL_MUTANT"
"""Environment variable of a fresh interpreter: the mutant, as JSON."""


class Mutant(NamedTuple):
    """A defect of a module, by its number there."""

    module: str
    number: int

    @property
    def defect(self) -> Defect:
        """What it changes."""
        return _defect(self)

    @property
    def package(self) -> str:
        """The stratum."""
        parts = Path(self.module).parts
        return parts[1] if len(parts) > 2 else "dpsql"

    @property
    def written(self) -> tuple[str, str, str, str]:
        """As `equivalent` names it."""
        defect = self.defect
        return (
            self.module,
            _source(self.module).splitlines()[defect.line - 1].strip(),
            defect.before,
            defect.after,
        )


@cache
def _source(module: str) -> str:
    return (PROJECT / module).read_text("utf-8")


@cache
def _defect(mutant: Mutant) -> Defect:
    return defect(_source(mutant.module), mutant.number)


def drawn(count: int, seed: int) -> list[Mutant]:
    """Defects of all packages, each package as often as its share of lines says and at least four times."""
    packages: dict[str, list[Mutant]] = defaultdict(list)
    lines: Counter[str] = Counter()
    for path in sorted((PROJECT / "dpsql").rglob("*.py")):
        module = str(path.relative_to(PROJECT))
        of = [Mutant(module, number) for number in range(count_defects(_source(module)))]
        if of:
            packages[of[0].package] += of
            lines[of[0].package] += _source(module).count("\n")
    rng, total = random.Random(seed), sum(lines.values())
    sizes = {name: min(len(of), max(4, round(count * lines[name] / total))) for name, of in packages.items()}
    return [mutant for name in sorted(packages) for mutant in rng.sample(packages[name], sizes[name])]


class Exchange(NamedTuple):
    """The function whose code a defect changes, as it is and as it becomes."""

    was: CodeType
    becomes: CodeType


def exchange(mutant: Mutant) -> Exchange | None:
    """None where the defect lies outside of functions, in a constant, a default or the body of a class."""
    path = str(PROJECT / mutant.module)
    was = compile(_source(mutant.module), path, "exec", dont_inherit=True)
    becomes = compile(planted(_source(mutant.module), mutant.number), path, "exec", dont_inherit=True)
    return _innermost(was, becomes)


def _innermost(was: CodeType, becomes: CodeType) -> Exchange | None:
    """Of a module or a class: the one function below it that differs."""
    pairs = list(zip(_children(was), _children(becomes), strict=False))
    differing = [(old, new) for old, new in pairs if _shape(old) != _shape(new)]
    if len(differing) != 1 or _own(was) != _own(becomes):
        return None
    old, new = differing[0]
    if not old.co_flags & inspect.CO_NEWLOCALS:
        return _innermost(old, new)
    return Exchange(old, new) if old.co_freevars == new.co_freevars else None


def _children(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _own(code: CodeType) -> tuple[Any, ...]:
    """Without the code of functions inside."""
    plain = tuple(repr(constant) for constant in code.co_consts if not isinstance(constant, CodeType))
    return code.co_name, code.co_code, plain, code.co_names


def _shape(code: CodeType) -> tuple[Any, ...]:
    return (*_own(code), *(_shape(child) for child in _children(code)))


def candidates(mutant: Mutant, reach: Reach, inside: bool) -> list[Case]:
    """Cases that reach the line: the cheapest of each file, then the second of each, for as long as time allows."""
    line = mutant.defect.line
    statement = [
        range(node.lineno, node.end_lineno + 1)
        for node in ast.walk(ast.parse(_source(mutant.module)))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0)
    ]
    lines = (line,) if inside else ()
    cases = reach.reaching(mutant.module, lines)
    if inside and not cases and statement:
        cases = reach.reaching(mutant.module, (min(statement, key=len).start,))
    files: dict[str, list[Case]] = defaultdict(list)
    for case in sorted(cases, key=lambda case: case.cpu):
        files[case.file].append(case)
    ordered = sorted(
        ((place, case.cpu, case) for of in files.values() for place, case in enumerate(of)),
        key=lambda row: row[:2],
    )
    kept, cpu = [], 0.0
    for _, seconds, case in ordered:
        cpu += seconds
        if kept and (cpu > CPU_SECONDS or len(kept) >= (MOST_CASES if inside else 40)):
            break
        kept.append(case)
    return kept


class Judge:
    """The plugin of a process with a defect: writes each failing case, and which one runs."""

    def __init__(self, target: Path) -> None:
        self._target, self._failed, self._began = target, set[str](), time.process_time()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        """What runs is what a death is counted for."""
        with self._target.open("a", encoding="utf-8") as file:
            file.write(f"runs {time.process_time() - self._began:.0f} {nodeid}\n")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a failure once a case."""
        if report.failed and report.nodeid not in self._failed:
            self._failed.add(report.nodeid)
            with self._target.open("a", encoding="utf-8") as file:
                file.write(f"failed {report.nodeid}\n")
            if len(self._failed) >= ENOUGH:
                os._exit(0)


def _limited() -> None:
    spent = int(time.process_time())
    resource.setrlimit(resource.RLIMIT_CPU, (spent + CPU_SECONDS, spent + CPU_SECONDS + 5))


def outcome(target: Path, died: bool) -> list[str]:
    """The cases that failed, and the one in which a process died that had time left when it began."""
    lines = target.read_text("utf-8").splitlines() if target.exists() else []
    failed = [line[7:] for line in lines if line.startswith("failed ")]
    runs = [line.split(" ", 2)[1:] for line in lines if line.startswith("runs ")]
    if died and runs and int(runs[-1][0]) < CPU_SECONDS / 2 and runs[-1][1] not in failed:
        failed.append(runs[-1][1])
    return failed


class Results:
    """What earlier runs found, one line of `STORED` each."""

    def __init__(self) -> None:
        STORED.parent.mkdir(parents=True, exist_ok=True)
        lines = STORED.read_text("utf-8").splitlines() if STORED.exists() else []
        self._known: dict[str, list[str]] = {line["digest"]: line["by"] for line in map(json.loads, lines)}

    def by(self, mutant: Mutant) -> list[str] | None:
        """The cases that failed, of the same module; None if one of their files changed, or if nobody tried."""
        found = [by for digest, by in self._known.items() if digest == _digest(mutant, by)]
        return found[-1] if found else None

    def keep(self, mutant: Mutant, by: list[str]) -> None:
        """Write a result, and say it."""
        digest = _digest(mutant, by)
        self._known[digest] = by
        with STORED.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"digest": digest, "by": by, "written": mutant.written}) + "\n")
        print(f"  {len(by)} failed: {' | '.join(mutant.written)}", flush=True)


def _digest(mutant: Mutant, by: Sequence[str]) -> str:
    """What a result stands for: the module, the defect, the cases that failed and their files, or all tests' files."""
    known = hashlib.sha256(f"{_source(mutant.module)} {mutant.number} {list(by)}".encode())
    if by:
        for file in sorted({case.split("::")[0] for case in by}):
            known.update((PROJECT / file).read_bytes() if (PROJECT / file).exists() else b"gone")
    else:
        known.update(_all_tests())
    return known.hexdigest()


@cache
def _all_tests() -> bytes:
    files = sorted((PROJECT / "tests").rglob("test_*.py"))
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).digest()


def fresh(mutant: Mutant, cases: Sequence[Case], folder: Path) -> int:
    """Start an interpreter that imports the module with its defect; its process number."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "benchmarks.mutants.run"]
    names = [case.name for case in cases]
    task = json.dumps([mutant.module, mutant.number, str(folder / _name(mutant))])
    process = subprocess.Popen(
        [*command, f"--basetemp={_scratch(folder, mutant)}", *names], cwd=PROJECT, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, env={**os.environ, TASK: task}, preexec_fn=_limited, process_group=0,
    )  # fmt: skip
    return process.pid


class Planter(SourceFileLoader):
    """Loads one module with its defect."""

    def __init__(self, name: str, path: str, number: int) -> None:
        super().__init__(name, path)
        self._number = number

    def get_code(self, fullname: str) -> CodeType:
        """Of the changed text; nothing is read from or written to compiled files."""
        return compile(planted(Path(self.path).read_text("utf-8"), self._number), self.path, "exec")


class Finder:
    """Finds one module, in place of the one on disk."""

    def __init__(self, module: str, number: int) -> None:
        self._name = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._path, self._number = str(PROJECT / module), number

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """See `importlib.abc.MetaPathFinder`."""
        if name != self._name:
            return None
        loader = Planter(name, self._path, self._number)
        return spec_from_file_location(name, self._path, loader=loader)


if TASK in os.environ:
    sys.meta_path.insert(0, Finder(*json.loads(os.environ[TASK])[:2]))  # type: ignore[arg-type]


def pytest_configure(config: pytest.Config) -> None:
    """In a fresh interpreter: write which cases fail."""
    if TASK in os.environ:
        config.pluginmanager.register(Judge(Path(json.loads(os.environ[TASK])[2])))


class Task(NamedTuple):
    """One process: a defect and the cases to run, or without a change cases that failed with it."""

    mutant: Mutant
    change: Exchange | None
    cases: list[Case]
    suspects: tuple[str, ...] = ()


class Matrix:
    """The plugin that collects once and forks for each defect.

    What fails with a defect runs again without it: a case that fails then too has noticed nothing.
    """

    def __init__(self, todo: Sequence[Task], results: Results, workers: int, folder: Path) -> None:
        self._todo, self._results, self._workers, self._folder = [*reversed(todo)], results, workers, folder
        self._functions: dict[tuple[str, str, int], list[FunctionType]] = defaultdict(list)
        self._items: dict[str, pytest.Item] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """In place of running the suite."""
        self._items = {item.nodeid: item for item in session.items}
        gc.unfreeze()
        for found in gc.get_objects():
            if isinstance(found, FunctionType) and found.__code__.co_filename.startswith(f"{PROJECT}/dpsql/"):
                self._functions[_place(found.__code__)].append(found)
        gc.freeze()
        running: dict[int, tuple[float, Task]] = {}
        while self._todo or running:
            while self._todo and len(running) < self._workers:
                task = self._todo.pop()
                (self._folder / _name(task.mutant)).unlink(missing_ok=True)
                running[self._started(task)] = time.monotonic(), task
            time.sleep(0.02)
            for pid, (began, task) in list(running.items()):
                ended, status = os.waitpid(pid, os.WNOHANG)
                if not ended and time.monotonic() - began > WALL_SECONDS:
                    os.killpg(pid, 9)
                    ended, status = os.waitpid(pid, 0)
                if ended:
                    del running[pid]
                    shutil.rmtree(_scratch(self._folder, task.mutant), ignore_errors=True)
                    self._take(task, outcome(self._folder / _name(task.mutant), os.WIFSIGNALED(status)))
        return True

    def _take(self, task: Task, failed: list[str]) -> None:
        if task.suspects:
            self._results.keep(task.mutant, [case for case in task.suspects if case not in failed])
        elif failed:
            cases = [case for case in task.cases if case.name in failed]
            self._todo.append(Task(task.mutant, None, cases, tuple(failed)))
        else:
            self._results.keep(task.mutant, [])

    def _started(self, task: Task) -> int:
        """The process of a task: a fork, or an interpreter where no function's code can be exchanged."""
        changed = self._functions[_place(task.change.was)] if task.change else []
        if not task.suspects and not changed:
            return fresh(task.mutant, task.cases, self._folder)
        pid = os.fork()
        if not pid:
            os.setpgid(0, 0)
            for function in changed:
                function.__code__ = task.change.becomes  # type: ignore[union-attr]
            self._run(task)
        return pid

    def _run(self, task: Task) -> None:
        listed = [self._items[case.name] for case in task.cases if case.name in self._items]
        own = _scratch(self._folder, task.mutant)
        own.mkdir()
        if listed:
            listed[0].config._tmp_path_factory._basetemp = own  # type: ignore[attr-defined]
            listed[0].config.pluginmanager.register(Judge(self._folder / _name(task.mutant)))
        _limited()
        for item, following in zip(listed, [*listed[1:], None], strict=True):
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        os._exit(0)


def _place(code: CodeType) -> tuple[str, str, int]:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _name(mutant: Mutant) -> str:
    return f"{mutant.module.replace('/', '.')}.{mutant.number}"


def _scratch(folder: Path, mutant: Mutant) -> Path:
    return folder / f"{_name(mutant)}.tmp"


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw, run, print; 1 if too many survive."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=400)
    parser.add_argument("--seed", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args(arguments)
    results, reach = Results(), Reach()
    listed = drawn(options.count, options.seed)
    todo, unreached = list[Task](), set[Mutant]()
    for mutant in listed:
        if results.by(mutant) is None:
            change = exchange(mutant)
            cases = candidates(mutant, reach, change is not None)
            if cases:
                todo.append(Task(mutant, change, cases))
            else:
                unreached.add(mutant)
    random.Random(options.seed).shuffle(todo)  # a run that is stopped has seen some of every package
    if todo:
        files = sorted({case.file for task in todo for case in task.cases})
        with tempfile.TemporaryDirectory() as folder:
            matrix = Matrix(todo, results, options.workers, Path(folder))
            pytest.main(["-q", "-p", "no:cacheprovider", *files], plugins=[matrix])
    return _printed(listed, results, unreached)


def _printed(listed: Sequence[Mutant], results: Results, unreached: set[Mutant]) -> int:
    """A row a package."""
    figures, total, killed = Figures(), 0, 0
    print("  package       defects  reached  killed  by three  of those that differ")
    for name in dict.fromkeys(mutant.package for mutant in listed):
        of = [mutant for mutant in listed if mutant.package == name]
        differ = [mutant for mutant in of if mutant.written not in EQUIVALENT]
        by = [len(results.by(mutant) or ()) for mutant in differ]
        print(
            f"  {name:14}{len(of):7}{len(of) - len(unreached.intersection(of)):9}{sum(map(bool, by)):8}"
            f"{sum(n >= ENOUGH for n in by):10}{sum(map(bool, by)) / max(1, len(differ)):8.0%}"
        )
        total, killed = total + len(differ), killed + sum(map(bool, by))
    figures.at_least("defects that cases notice, of those that differ", killed / total, KILLED)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
