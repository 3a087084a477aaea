"""Value classes that earn no place: built in at most one place, and named in no signature outside of their module.

A *value class* is a dataclass or a NamedTuple that implements no Protocol of the package; one that does stands in
signatures under the Protocol's name. It is *built* where its name is called, or `cls` in its own class. A *signature*
is the annotation of a parameter, of a return value or of a field; an alias (`Form = Linear | Ratio`) stands for its
members.
"""

from __future__ import annotations

import ast
import contextlib
from collections import Counter
from collections.abc import Iterator

from tests.house.source import Module, Package, identifier, imported

Name = tuple[str, str]
"""A module and a name in it."""


def idle_values(package: Package) -> list[str]:
    """Each such class, with its place."""
    classes = {
        (module.name, node.name): (module, node)
        for module in package.modules
        for node in module.nodes
        if isinstance(node, ast.ClassDef)
    }
    protocols = [_members(node) for _, node in classes.values() if _inherits(node, "Protocol")]
    built: Counter[Name] = Counter()
    named: set[Name] = set()
    values = {*classes, *((module.name, name) for module in package.modules for name in _assigned(module))}
    bound = {module.name: _bound(package, module, values) for module in package.modules}
    for module in package.modules:
        names = bound[module.name]
        for name in _built(module.tree):
            built[names.get(name, ("", ""))] += 1
        for annotation in _signatures(module):
            named |= {names[n] for n in _names(annotation) if n in names and names[n][0] != module.name}
    named |= {member for alias in named for member in _alias_members(package, alias, bound)}
    return [
        f"{module.place(node)} {node.name}: built {built[name]} times"
        for name, (module, node) in sorted(classes.items())
        if _is_value(node)
        and built[name] <= 1
        and name not in named
        and not any(members and members <= _members(node) for members in protocols)
    ]


def _is_value(node: ast.ClassDef) -> bool:
    decorated = any(
        identifier(d.func if isinstance(d, ast.Call) else d) == "dataclass" for d in node.decorator_list
    )
    return decorated or _inherits(node, "NamedTuple")


def _inherits(node: ast.ClassDef, name: str) -> bool:
    return any(identifier(b.value if isinstance(b, ast.Subscript) else b) == name for b in node.bases)


def _members(node: ast.ClassDef) -> frozenset[str]:
    """Names of a class's fields and methods, those with two underscores left out."""
    names = [n.name for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    names += [
        n.target.id for n in node.body if isinstance(n, ast.AnnAssign) and isinstance(n.target, ast.Name)
    ]
    names += [
        t.id for n in node.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)
    ]
    return frozenset(name for name in names if not name.startswith("__"))


def _bound(package: Package, module: Module, values: set[Name]) -> dict[str, Name]:
    """Every name that stands for a class or an alias in a module, with the module that defines it; `m.Name` too."""
    bound = {name: (owner, name) for owner, name in values if owner == module.name}
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for local, source, name in imported(package, module, node):
                if source in package.by_name and name:
                    bound[local] = _defined(package, (source, name))
                elif source in package.by_name:
                    bound |= {
                        f"{local}.{other}": (owner, other) for owner, other in values if owner == source
                    }
    return bound


def _assigned(module: Module) -> list[str]:
    return [name for name, _ in _assignments(module.tree)]


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    """Names that a module assigns, and what: an alias, `Form: TypeAlias = ..` too, among others."""
    for node in tree.body:
        if isinstance(node, ast.Assign):
            yield identifier(node.targets[0]), node.value
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            yield identifier(node.target), node.value


def _defined(package: Package, name: Name) -> Name:
    """Follow re-exports to the module that defines a name."""
    module = package.by_name[name[0]]
    for node in module.tree.body:
        if isinstance(node, ast.ImportFrom):
            for local, source, original in imported(package, module, node):
                if local == name[1] and original and source in package.by_name and source != name[0]:
                    return _defined(package, (source, original))
    return name


def _built(tree: ast.AST, owner: str = "") -> Iterator[str]:
    """The name that each call in a tree calls; `cls` is its class."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call):
            name = _dotted(node.func).removesuffix("._make")
            yield owner if name == "cls" else name
        yield from _built(node, node.name if isinstance(node, ast.ClassDef) else owner)


def _dotted(node: ast.expr) -> str:
    """`a.b.c` as it is written; an empty string for anything but names."""
    if isinstance(node, ast.Attribute):
        return f"{_dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def _signatures(module: Module) -> Iterator[ast.expr]:
    for node in module.nodes:
        if isinstance(node, ast.arg | ast.AnnAssign) and node.annotation is not None:
            yield node.annotation
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield node.returns


def _names(annotation: ast.expr) -> Iterator[str]:
    for node in ast.walk(annotation):
        if isinstance(node, ast.Name | ast.Attribute):
            yield _dotted(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            with contextlib.suppress(
                SyntaxError
            ):  # a sentence of `Annotated` or a word of `Literal` is no type
                yield from _names(ast.parse(node.value, mode="eval").body)


def _alias_members(package: Package, alias: Name, bound: dict[str, dict[str, Name]]) -> Iterator[Name]:
    names = bound[alias[0]]
    for assigned, value in _assignments(package.by_name[alias[0]].tree):
        union = isinstance(value, ast.BinOp | ast.Subscript)
        if assigned == alias[1] and (union or isinstance(value, ast.Constant)):
            for name in _names(value):
                if name in names and names[name] != alias:
                    yield names[name]
                    yield from _alias_members(package, names[name], bound)
