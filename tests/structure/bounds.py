"""Sizes and shapes of the package, each with its bound: `python -m tests.structure` prints them.

`BOUNDS` is the one table; each figure has a function in `RULES`. A figure above its bound has a ceiling, which
is lowered when the figure falls and removed at the bound.
"""

from __future__ import annotations

import ast
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.structure import graph, reach
from tests.structure.source import ROOT, Module, Package, the_package

MANY_PARAMETERS = 7
LONG_MODULE = 600
QUESTIONS = {"What", "Whether", "How", "Where", "Which", "Whom", "Whose", "When", "Why"}
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Bound(NamedTuple):
    """A bound, and the ceiling until it is reached."""

    bound: float
    ceiling: float | None = None

    @property
    def most(self) -> float:
        """The value that the figure must not pass."""
        return self.bound if self.ceiling is None else self.ceiling


@cache
def code_lines(module: Module) -> int:
    """Lines that hold code; blank lines, comments and docstrings are not counted, so that nobody saves on them."""
    lines: set[int] = set()
    with module.path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in LAYOUT:
                lines |= set(range(token.start[0], token.end[0] + 1))
    for node in module.nodes:
        text = docstring(node)
        if text is not None:
            lines -= set(range(text.lineno, (text.end_lineno or text.lineno) + 1))
    return len(lines)


def docstring(node: ast.AST) -> ast.Expr | None:
    """The statement that documents a module, class or function."""
    first = node.body[0] if isinstance(node, DOCUMENTED) and node.body else None
    text = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    return first if text and isinstance(first.value.value, str) else None  # type: ignore[union-attr]


def total_lines(package: Package) -> list[str]:
    """A line for each line of code."""
    return [module.name for module in package.modules for _ in range(code_lines(module))]


def long_modules(package: Package) -> list[str]:
    """Modules of more than 600 lines."""
    lengths = ((m.name, len(m.path.read_text(encoding="utf-8").splitlines())) for m in package.modules)
    return [f"{name}: {length} lines" for name, length in lengths if length > LONG_MODULE]


def repeated_modules(package: Package) -> list[str]:
    """Module names that occur twice below one package of the top level, each with its places."""
    places: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for module in package.modules:
        parts = module.name.split(".")
        if len(parts) > 2 and not parts[-1].startswith("__"):
            places[parts[1], parts[-1]].append(module.name)
    return [", ".join(names) for names in places.values() if len(names) > 1]


def classes(package: Package) -> list[str]:
    """Every class."""
    return [
        f"{module.place(node)} {node.name}"
        for module in package.modules
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
    ]


def repeated_classes(package: Package) -> list[str]:
    """Class names that stand in more than one place."""
    names = Counter(place.split()[-1] for place in classes(package))
    return [name for name, count in names.items() if count > 1]


def value_classes(package: Package) -> list[str]:
    """NamedTuples and dataclasses that are built in at most one place."""
    calls = Counter(
        node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        for module in package.modules
        for node in module.nodes
        if isinstance(node, ast.Call)
    )
    return [
        f"{module.place(node)} {node.name}"
        for module in package.modules
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
        and re.search("NamedTuple|dataclass", " ".join(map(ast.unparse, [*node.bases, *node.decorator_list])))
        and calls[node.name] <= 1
    ]


def one_statement(package: Package) -> list[str]:
    """Functions and methods whose body is one statement."""
    return [
        f"{module.place(node)} {node.name}"
        for module in package.modules
        for node in module.nodes
        if isinstance(node, FUNCTIONS) and len(node.body) - (docstring(node) is not None) <= 1
    ]


def question_words(package: Package) -> list[str]:
    """Docstrings that open with a question word."""
    return [
        f"{module.name} {summary}"
        for module in package.modules
        for node in module.nodes
        if isinstance(node, DOCUMENTED) and (summary := ast.get_docstring(node))
        if summary.split(" ", 1)[0].strip(":,") in QUESTIONS
    ]


def many_parameters(package: Package) -> list[str]:
    """Functions and methods with seven parameters or more; `self` and `cls` are none."""
    lines = []
    for module in package.modules:
        for node in module.nodes:
            if isinstance(node, FUNCTIONS):
                given = node.args
                every = (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
                count = sum(a is not None and a.arg not in ("self", "cls") for a in every)
                if count >= MANY_PARAMETERS:
                    lines.append(f"{module.place(node)} {node.name}: {count}")
    return lines


def modules(package: Package) -> list[str]:
    """Every module."""
    return [module.name for module in package.modules]


def unreached(package: Package, project: Path = ROOT) -> list[str]:
    """Definitions that no entry point reaches."""
    return reach.unreached(package, project)


CORE = ("noise", "engines.counting", "central", "contributions", "ledger", "streams")
"""Packages and modules that see raw rows or entropy; each engine beside them reads rows of one kind of source."""


def is_below(module: Module, places: tuple[str, ...]) -> bool:
    """True if a module is one of some places below `dpsql`, or lies in one."""
    return any(f"{module.name}.".startswith(f"dpsql.{place}.") for place in places)


def core_lines(package: Package) -> list[str]:
    """Code lines of the modules that see raw rows or entropy."""
    return [
        f"{module.name}: {line}"
        for module in package.modules
        if is_below(module, CORE)
        for line in range(code_lines(module))
    ]


RULES: dict[str, Callable[[Package], list[str]]] = {
    "modules": modules,
    "code-lines": total_lines,
    "code-lines-of-the-core": core_lines,
    "classes": classes,
    "value-classes-built-in-at-most-one-place": value_classes,
    "functions-of-one-statement": one_statement,
    "docstrings-that-open-with-a-question-word": question_words,
    "functions-of-seven-parameters": many_parameters,
    "modules-above-600-lines": long_modules,
    "module-names-that-occur-twice": repeated_modules,
    "class-names-that-occur-twice": repeated_classes,
    "import-cycles": graph.cycles,
    "unreached-definitions": unreached,
}
BOUNDS: dict[str, Bound] = {
    "modules": Bound(250, 289),
    "code-lines": Bound(62500, 64358),
    "code-lines-of-the-core": Bound(8700),
    "classes": Bound(650, 822),
    "value-classes-built-in-at-most-one-place": Bound(120, 231),
    "functions-of-one-statement": Bound(1300, 1587),
    "docstrings-that-open-with-a-question-word": Bound(150),
    "functions-of-seven-parameters": Bound(5, 10),
    "modules-above-600-lines": Bound(0),
    "module-names-that-occur-twice": Bound(0),
    "class-names-that-occur-twice": Bound(20),
    "import-cycles": Bound(0),
    "unreached-definitions": Bound(0),
}


def _lines(folder: str) -> float:
    return sum(path.read_text("utf-8").count("\n") for path in (ROOT / folder).rglob("*.py"))


def _words() -> float:
    return sum(len(path.read_text("utf-8").split()) for path in (ROOT / "docs").rglob("*.md"))


def _pages() -> float:
    """Pages of the site; decision records (`docs/adr`), which nobody reads in order, are none."""
    return sum("adr" not in path.parts for path in (ROOT / "docs").rglob("*.md"))


def _imports() -> float:
    modules = the_package().modules
    lines = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for module in modules
        for node in module.nodes
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    return round(100 * lines / sum(map(code_lines, modules)), 1)


PROJECT: dict[str, tuple[Callable[[], float], Bound]] = {
    "imports, % of code lines": (_imports, Bound(8, 8.7)),
    "lines of tests": (lambda: _lines("tests"), Bound(46_000, 67_825)),
    "lines of benchmarks": (lambda: _lines("benchmarks"), Bound(15_000, 17_164)),
    "words of docs": (_words, Bound(50_000)),
    "pages of docs": (_pages, Bound(40)),
    "words of README": (lambda: len((ROOT / "README.md").read_text("utf-8").split()), Bound(950)),
    "targets of the Makefile": (
        lambda: len(re.findall(r"^[a-z][a-z0-9-]*:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)),
        Bound(15),
    ),
}
"""Figures of the whole project, each with its measure and its bound."""
