"""The package as syntax trees: each module's name, file and tree, and which names its imports bind."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Module:
    """One module of the package.

    Args:
        name: dotted, a package by its own name.
        path: its file.
        tree: what it says.
    """

    name: str
    path: Path
    tree: ast.Module

    @cached_property
    def nodes(self) -> tuple[ast.AST, ...]:
        """Every node of the tree, in the order of `ast.walk`; walked once for all counts."""
        return tuple(ast.walk(self.tree))

    @property
    def package(self) -> str:
        """What relative imports start from."""
        return self.name if self.path.name == "__init__.py" else self.name.rpartition(".")[0]

    def place(self, node: ast.stmt | ast.expr | ast.pattern) -> str:
        """File and line, as editors open it."""
        own = self.path.relative_to(self.path.parents[len(self.package.split(".")) if self.package else 0])
        return f"{own}:{node.lineno}"


@dataclass(frozen=True)
class Package:
    """All modules of a package."""

    modules: tuple[Module, ...]

    @cached_property
    def by_name(self) -> dict[str, Module]:
        """Each module by its dotted name."""
        return {module.name: module for module in self.modules}


@functools.cache
def the_package() -> Package:
    """The package of this checkout, read once: a second or two."""
    return read_package(ROOT / "dpsql")


def read_package(folder: Path) -> Package:
    """Parse every module below a package's folder."""
    modules = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        modules.append(Module(name, path, ast.parse(path.read_text(encoding="utf-8"))))
    return Package(tuple(modules))


def imported(
    package: Package, module: Module, statement: ast.Import | ast.ImportFrom
) -> Iterator[tuple[str, str, str]]:
    """What an import statement binds, as (local name, module, name in it or an empty string)."""
    if isinstance(statement, ast.Import):
        for alias in statement.names:
            yield alias.asname or alias.name.partition(".")[0], alias.name, ""
        return
    base = (
        module.package.split(".")[: len(module.package.split(".")) - statement.level + 1]
        if statement.level
        else []
    )
    source = ".".join([*base, statement.module] if statement.module else base)
    for alias in statement.names:
        whole = f"{source}.{alias.name}"
        as_module = whole in package.by_name
        yield alias.asname or alias.name, whole if as_module else source, "" if as_module else alias.name


def identifier(node: ast.expr) -> str:
    """The last name of an expression: `x.kind`, `kind`, `x["kind"]`, `x.get("kind")`; else an empty string."""
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Subscript):
        return (
            node.slice.value
            if isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
            else ""
        )
    called = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get"
    if called and isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
        return str(node.args[0].value)
    return ""
