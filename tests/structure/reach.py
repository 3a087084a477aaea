"""Definitions that no entry point reaches: functions, classes, methods and constants that only tests use, or nobody.

A definition is reached if it is an entry point, or if its name is used in a reached definition or as a module loads.

- Entry points: scripts and entry points of pyproject.toml, the public names in `dpsql/__init__.py`, what is decorated
  (a command, a validator), `__all__` of `dpsql.client` and `dpsql.interfaces.python.dbapi`, what docs and examples
  import, `main` of a module that is run, and `TEST_HELPERS`. Of a class that is an entry point all public methods are.
- A name in a function is looked up in its module and through imports, re-exports followed. An attribute may be anything
  of that name: a method, or a name in an imported module. So a definition that is listed is used under no name at all;
  one that is not listed may still be dead.
- Methods count one by one once their class is reached. Those with double underscores, those of a class that inherits
  from a library's class, and those that a Protocol asks for are called by others.
"""

from __future__ import annotations

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tests.structure.source import Module, Package, identifier, imported

TEST_HELPERS = {"dpsql.noise.source.ZeroNoise", "dpsql.noise.source.insecure_test_entropy"}
"""What the package offers to tests on purpose; see also every argument called `kill_point`."""


@dataclass(frozen=True, eq=False)
class Definition:
    """Something with a name: where it stands, and the syntax that is its own."""

    name: str
    module: Module
    node: ast.stmt
    owner: str = ""

    @property
    def whole(self) -> str:
        """Dotted name."""
        return f"{self.module.name}.{self.owner + '.' if self.owner else ''}{self.name}"


def unreached(package: Package, project: Path) -> list[str]:
    """Every definition that no entry point reaches, with its place."""
    search = _Search(package)
    search.start(_entry_points(package, project))
    left = [d for d in search.definitions if d not in search.reached]
    inside = {(d.module.name, d.name) for d in left if not d.owner}
    return [f"{d.module.place(d.node)} {d.whole}" for d in left if (d.module.name, d.owner) not in inside]


def _entry_points(package: Package, project: Path) -> set[str]:
    """Dotted names that people or other programs call."""
    told = tomllib.loads((project / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    points = [told.get("scripts", {}), *told.get("entry-points", {}).values()]
    entry_points = {point.replace(":", ".") for group in points for point in group.values()} | TEST_HELPERS
    init = package.by_name["dpsql"]
    for node in init.nodes:
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple):
                    entry_points |= {
                        f"{key.value}.{part.value}" for part in value.elts if isinstance(part, ast.Constant)
                    }
    for module in package.modules:
        public = module.name == "dpsql.client" or module.name == "dpsql.interfaces.python.dbapi"
        runs = module.name.endswith("__main__") or '"__main__"' in ast.unparse(module.tree).replace("'", '"')
        entry_points |= {f"{module.name}.{name}" for name in (_all(module) if public else [])}
        entry_points |= {f"{module.name}.main"} if runs else set()
    return entry_points | _documented(project)


def _documented(project: Path) -> set[str]:
    """What the documentation and the examples import: people do as they read."""
    files = [project / "README.md", *(project / "docs").rglob("*.md"), *(project / "examples").rglob("*.py")]
    lines = re.findall(
        r"from (dpsql[\w.]*) import ([\w, ]+)", "\n".join(file.read_text("utf-8") for file in files)
    )
    return {f"{module}.{name.strip()}" for module, names in lines for name in names.split(",")}


def _all(module: Module) -> list[str]:
    for node in module.tree.body:
        if isinstance(node, ast.Assign) and identifier(node.targets[0]) == "__all__":
            return [part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant)]
    return []


class _Search:
    """Follows names from the entry points."""

    def __init__(self, package: Package) -> None:
        self.package = package
        self.definitions = [d for module in package.modules for d in _definitions(module)]
        self.reached: set[Definition] = set()
        self.bound = {module.name: _bindings(package, module) for module in package.modules}
        self.top = {(d.module.name, d.name): d for d in self.definitions if not d.owner}
        self.tops: dict[str, list[Definition]] = defaultdict(list)
        self.methods: dict[str, list[Definition]] = defaultdict(list)
        for definition in self.definitions:
            (self.methods if definition.owner else self.tops)[definition.name].append(definition)
        self.attributes: set[str] = set()
        self.waiting: list[tuple[Module, ast.AST]] = []

    def start(self, entry_points: set[str]) -> None:
        """Reach the entry points, what modules do when they are loaded, and all that follows."""
        for entry_point in entry_points:
            module, _, name = entry_point.rpartition(".")
            self._name(module, name)
        public = {(d.module.name, d.name) for d in self.reached}
        for method in self.definitions:  # of classes that people hold
            if (method.module.name, method.owner) in public and not re.match(r"_(?!repr_)", method.name):
                self._reach(method)
        for module in self.package.modules:
            for statement in module.tree.body:
                names = [name for name in _named(statement) if not _is_dunder(name)]
                if not isinstance(statement, ast.Import | ast.ImportFrom) and not names:
                    self.waiting.append((module, statement))
        for definition in self.definitions:
            if _is_called_by_others(self.package, definition):
                self._reach(definition) if not definition.owner else None
        while self.waiting:
            self._follow(*self.waiting.pop())

    def _follow(self, module: Module, syntax: ast.AST) -> None:
        for node in _within(syntax):
            if isinstance(node, ast.Name):
                self._name(module.name, node.id)
            elif isinstance(node, ast.Attribute):
                self._attribute(node.attr)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                self._attribute(node.value)  # getattr, and annotations as text
            elif isinstance(node, ast.ImportFrom):
                for _, source, name in imported(self.package, module, node):
                    self._name(source, name)

    def _name(self, module: str, name: str, depth: int = 0) -> None:
        if (module, name) in self.top:
            self._reach(self.top[module, name])
        elif depth < 8 and name in self.bound.get(module, {}):
            source, inner = self.bound[module][name]
            self._name(source, inner, depth + 1)

    def _attribute(self, name: str) -> None:
        if name in self.attributes:
            return
        self.attributes.add(name)
        for definition in self.tops[name]:
            self._reach(definition)
        for method in self.methods[name]:
            if self.top[method.module.name, method.owner] in self.reached:
                self._reach(method)

    def _reach(self, definition: Definition) -> None:
        if definition in self.reached:
            return
        self.reached.add(definition)
        self.waiting.append((definition.module, definition.node))
        if isinstance(definition.node, ast.ClassDef):
            for method in self.definitions:
                own = method.owner == definition.name and method.module is definition.module
                if own and (method.name in self.attributes or _is_called_by_others(self.package, method)):
                    self._reach(method)


def _within(syntax: ast.AST) -> Iterator[ast.AST]:
    """A definition's own syntax; a class's methods have their own, but for those with double underscores."""
    if not isinstance(syntax, ast.ClassDef):
        yield from ast.walk(syntax)
        return
    for part in (*syntax.bases, *syntax.decorator_list, *(k.value for k in syntax.keywords)):
        yield from ast.walk(part)
    for statement in syntax.body:
        if not (
            isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_dunder(statement.name)
        ):
            yield from ast.walk(statement)


def _is_dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


def _named(statement: ast.stmt) -> Iterator[str]:
    """Names that a statement defines. Fields of a class (annotations without a value, or of dataclasses) are none."""
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Assign):
        yield from (target.id for target in statement.targets if isinstance(target, ast.Name))
    elif (
        isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and statement.value is not None
    ):
        yield statement.target.id


def _definitions(module: Module) -> Iterator[Definition]:
    for statement in _flat(module.tree.body):
        for name in _named(statement):
            if not _is_dunder(name):
                yield Definition(name, module, statement)
        if isinstance(statement, ast.ClassDef):
            for part in statement.body:
                if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and not part.name.startswith(
                    "__"
                ):
                    yield Definition(part.name, module, part, statement.name)


def _flat(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            yield from _flat(statement.body)


def _is_called_by_others(package: Package, definition: Definition) -> bool:
    """Decorated by more than a property, or a method that a library's class or a Protocol asks for."""
    node = definition.node
    plain = {"property", "cached_property", "staticmethod", "classmethod", "dataclass", "lru_cache", "cache",
             "contextmanager", "total_ordering", "runtime_checkable", "overload", "abstractmethod"}  # fmt: skip
    for decorator in getattr(node, "decorator_list", []):
        base = decorator.func if isinstance(decorator, ast.Call) else decorator
        if identifier(base) not in plain:
            return True
    if not definition.owner:
        return False
    classes = [
        n
        for n in _flat(definition.module.tree.body)
        if isinstance(n, ast.ClassDef) and n.name == definition.owner
    ]
    return any(_outside(package, definition.module, base) for n in classes for base in n.bases)


def _outside(package: Package, module: Module, base: ast.expr) -> bool:
    """Is a base class a library's (or a Protocol's)? NamedTuple, Enum and errors ask for no method."""
    name = identifier(base.value if isinstance(base, ast.Subscript) else base)
    if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):  # click.Group
        return not _bindings(package, module).get(base.value.id, ("dpsql", ""))[0].startswith("dpsql")
    if name in ("NamedTuple", "Enum", "StrEnum", "IntEnum", "Exception", "object", "Model"):
        return False
    source = _bindings(package, module).get(name, ("", ""))[0]
    local = any(isinstance(n, ast.ClassDef) and n.name == name for n in module.tree.body)
    return not local and not source.startswith("dpsql")


@lru_cache(maxsize=1024)
def _bindings(package: Package, module: Module) -> dict[str, tuple[str, str]]:
    """Every name that an import anywhere in a module binds."""
    found = {}
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for local, source, name in imported(package, module, node):
                found[local] = (source, name)
    return found
