"""Sizes: modules, lines of code, protocols, and functions with many parameters."""

from __future__ import annotations

import ast
import tokenize
from collections import defaultdict

from tests.house.source import Module, Package

MANY_PARAMETERS = 7
LONG_MODULE = 600
LAYOUT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}


def code_lines(package: Package) -> int:
    """Lines that hold code; blank lines, comments and docstrings are not counted, so that nobody saves on them."""
    return sum(len(_code_lines(module)) for module in package.modules)


def _code_lines(module: Module) -> set[int]:
    lines: set[int] = set()
    with module.path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type not in LAYOUT and token.type != tokenize.ENCODING:
                lines |= set(range(token.start[0], token.end[0] + 1))
    for node in module.nodes:
        if isinstance(node, ast.stmt) and _is_text(node):
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return lines


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


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def many_parameters(package: Package) -> list[str]:
    """Functions and methods with seven parameters or more; `self` and `cls` are none."""
    lines = []
    for module in package.modules:
        for node in module.nodes:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            given = node.args
            names = [
                a.arg
                for a in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
                if a
            ]
            count = len([name for name in names if name not in ("self", "cls")])
            if count >= MANY_PARAMETERS:
                lines.append(f"{module.place(node)} {node.name}: {count}")
    return lines


def protocols(package: Package) -> list[tuple[int, str]]:
    """Every Protocol with the number of its members, methods and attributes alike; what it inherits counts."""
    classes = {
        node.name: (module, node)
        for module in package.modules
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
    }

    def members(node: ast.ClassDef) -> set[str]:
        found = {part.name for part in node.body if isinstance(part, ast.FunctionDef)}
        found |= {
            part.target.id
            for part in node.body
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
        }
        for base in map(_base, node.bases):
            found |= members(classes[base][1]) if base in classes else set()
        return found

    return sorted(
        (len(members(node)), f"{module.place(node)} {name}")
        for name, (module, node) in classes.items()
        if "Protocol" in map(_base, node.bases)
    )


def _base(node: ast.expr) -> str:
    """The name of a base class, without what stands in brackets."""
    return ast.unparse(node.value if isinstance(node, ast.Subscript) else node).rpartition(".")[2]


def constructions(package: Package, name: str) -> list[str]:
    """Where a class is called by its name."""
    return [
        module.place(node)
        for module in package.modules
        for node in module.nodes
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == name
    ]
