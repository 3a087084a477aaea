"""Definitions that no entry point reaches: functions, classes, methods and constants that only tests name, or nobody.

Reached is what a name stands for that entry points, modules as they load, docs or examples use, and then what a reached
definition names. Names are not resolved: a definition that is listed is reached under no name at all; one that is not
may still be dead. A name counts where it is read, not where it is imported.

Decorated definitions (commands, validators), and methods of classes with a base of a library or a Protocol's, are
called by others.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path

from tests.structure.source import Module, Package, identifier, imported

CALLED = ("ZeroNoise", "insecure_test_entropy", "main", "_repr_html_", "from_frames")
"""What the package offers to tests on purpose, what runs as a module, what notebooks call, `dpsql.Catalog`'s."""

PLAIN = {"property", "cached_property", "staticmethod", "classmethod", "dataclass", "lru_cache", "cache",
         "contextmanager", "total_ordering", "runtime_checkable", "overload", "abstractmethod"}  # fmt: skip
"""Decorators that call nothing."""
NO_METHODS = {"NamedTuple", "Enum", "StrEnum", "IntEnum", "Exception", "object", "Model"}
"""Bases that ask for no method."""


@dataclass(frozen=True, eq=False)
class Definition:
    """Something with a name: where it stands, its syntax, and the class that it is a method of."""

    name: str
    module: Module
    node: ast.stmt
    owner: ast.ClassDef | None = None


def unreached(package: Package, project: Path) -> list[str]:
    """Every definition that no entry point reaches, with its place."""
    left = [d for module in package.modules for d in _definitions(package, module)]
    own = {d.node for d in left}
    names = {*CALLED, *_documented(project)}
    for module in package.modules:
        names.update(_names(module.tree, own))
    while reached := {d for d in left if d.name in names and (d.owner is None or d.owner.name in names)}:
        left = [d for d in left if d not in reached]
        for definition in reached:
            names.update(_names(definition.node, own))
    nodes = {d.node for d in left}
    return sorted(
        f"{d.module.place(d.node)} {d.module.name}.{d.owner.name + '.' if d.owner else ''}{d.name}"
        for d in left
        if d.owner not in nodes
    )


def _names(syntax: ast.AST, apart: Set[ast.stmt]) -> Iterator[str]:
    """Names that are read, attributes, and texts that could be one (getattr, annotations as text); not inside of
    definitions that are looked at apart."""
    waiting = [syntax]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            yield node.value
        waiting += [child for child in ast.iter_child_nodes(node) if child not in apart]


def _documented(project: Path) -> Iterator[str]:
    """What entry points, documentation and examples import, and every word of the API's page."""
    files = [project / "README.md", *(project / "docs").rglob("*.md"), *(project / "examples").rglob("*.py")]
    for file in files:
        for names in re.findall(r"from dpsql[\w.]* import ([\w, ]+)", file.read_text("utf-8")):
            yield from re.findall(r"\w+", names)
    yield from re.findall(r'"dpsql[\w.]*:(\w+)"', (project / "pyproject.toml").read_text("utf-8"))
    for file in (project / "docs").glob("api.md"):
        yield from re.findall(r"\w+", file.read_text("utf-8"))


def _definitions(package: Package, module: Module) -> Iterator[Definition]:
    for node in module.nodes:
        if isinstance(node, ast.Module | ast.If | ast.Try):
            for statement in node.body:
                yield from (Definition(name, module, statement) for name in _defined(statement))
                if isinstance(statement, ast.ClassDef) and not any(
                    _is_outside(package, module, base) for base in statement.bases
                ):
                    methods = (part for part in statement.body if isinstance(part, ast.FunctionDef))
                    yield from (
                        Definition(name, module, part, statement)
                        for part in methods for name in _defined(part)
                    )  # fmt: skip


def _defined(statement: ast.stmt) -> list[str]:
    """Names that a statement gives to what it defines, if others do not call it."""
    names = list[str]()
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        calls = (d.func if isinstance(d, ast.Call) else d for d in statement.decorator_list)
        names = [statement.name] if {identifier(call) for call in calls} <= PLAIN else []
    elif isinstance(statement, ast.Assign):
        names = [target.id for target in statement.targets if isinstance(target, ast.Name)]
    elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name) and statement.value:
        names = [statement.target.id]
    return [name for name in names if not name.startswith("__")]


def _is_outside(package: Package, module: Module, base: ast.expr) -> bool:
    """Is a base class a library's, or a Protocol?"""
    name = identifier(base.value if isinstance(base, ast.Subscript) else base)
    root = base.value.id if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name) else name
    if name in NO_METHODS or any(isinstance(n, ast.ClassDef) and n.name == root for n in module.tree.body):
        return False
    sources = (
        imported(package, module, n) for n in module.nodes if isinstance(n, ast.Import | ast.ImportFrom)
    )
    found = {local: source for names in sources for local, source, _ in names}
    return not found.get(root, "").startswith("dpsql")
