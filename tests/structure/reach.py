"""Definitions that nobody uses: functions, classes, methods and constants that only tests name, or nobody.

Used are names in the package (not where they are imported), in what docs and examples import, and in pyproject.toml.
What only unused definitions name is unused too. Names are not resolved: a definition that is listed is used under no
name at all; one that is not may still be dead.

Decorated definitions (commands, validators), and methods of classes with a base of a library or a Protocol's, are
called by others.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
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

    @cached_property
    def names(self) -> Counter[str]:
        """What it names itself."""
        return _names(self.node)


def unreached(package: Package, project: Path) -> list[str]:
    """Every definition that nobody uses, with its place."""
    uses = Counter(CALLED) + Counter(_documented(project))
    for module in package.modules:
        uses.update(_names(module.tree))
    left = [d for module in package.modules for d in _definitions(package, module)]
    dead = list[Definition]()
    while found := next((d for d in left if uses[d.name] <= d.names[d.name]), None):
        uses.subtract(found.names)
        dead.append(found)
        left = [d for d in left if d is not found and d.owner is not found.node]
    lines = ((d.module, d.node, d.owner.name + "." if d.owner else "", d.name) for d in dead)
    return sorted(f"{module.place(node)} {module.name}.{owner}{name}" for module, node, owner, name in lines)


def _names(syntax: ast.AST) -> Counter[str]:
    """Names that are read, attributes, and texts that could be one: getattr, and annotations as text."""
    found = Counter[str]()
    for node in ast.walk(syntax):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found[node.id] += 1
        elif isinstance(node, ast.Attribute):
            found[node.attr] += 1
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
            found[node.value] += 1
    return found


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
