"""Names that say nothing of their values, and class names that occur twice.

    python -m tests.house.words             counts by package, and the share of all bindings
    python -m tests.house.words --list      every binding, `file:line name`

A *binding* is an assigned name, a target of a loop, `with`, `except` or comprehension, or a parameter. A *pointer* is
one whose name is a pronoun, participle or filler: the reader must find out what it points to. `left` is one unless
`right` is bound in the same function; `entry` is none in the ledger, where it is the noun.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from tests.house.source import ROOT, Module, Package, the_package

POINTERS = frozenset({
    "found", "each", "own", "made", "mine", "theirs", "told", "said", "asked", "held", "whole", "given", "some", "one",
    "other", "others", "both", "kept", "beside", "them", "it", "more", "most", "least", "here", "there", "now", "what",
    "which", "after", "before", "known", "part", "parts", "rest", "left", "thing", "item", "result", "res", "tmp",
    "obj", "info", "data", "stuff", "entry",
})  # fmt: skip
"""Fixed: a name is not taken off because the code is full of it."""


class Binding(NamedTuple):
    """A name that code binds, and where."""

    place: str
    package: str
    name: str
    pointer: bool


def bindings(package: Package) -> list[Binding]:
    """Every binding of a package."""
    return [binding for module in package.modules for binding in _of_module(module)]


def _of_module(module: Module) -> Iterator[Binding]:
    scopes: list[ast.AST] = [module.tree]
    scopes += [node for node in module.nodes if isinstance(node, SCOPES)]
    for scope in scopes:
        bound = list(_bound_in(scope))
        names = {name for _, name in bound}
        for node, name in bound:
            yield Binding(module.place(node), _folder(module), name, _is_pointer(name, names, module))


SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)


def _bound_in(scope: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Names bound in a scope itself, not in scopes inside of it."""
    if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        parameters = scope.args
        for parameter in (
            *parameters.posonlyargs,
            *parameters.args,
            *parameters.kwonlyargs,
            *(p for p in (parameters.vararg, parameters.kwarg) if p is not None),
        ):
            yield parameter, parameter.arg
    waiting = list(ast.iter_child_nodes(scope))
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node, node.id
        elif isinstance(node, ast.ExceptHandler) and node.name:
            yield node, node.name
        if not isinstance(node, SCOPES):
            waiting += ast.iter_child_nodes(node)


def _is_pointer(name: str, beside: set[str], module: Module) -> bool:
    bare = name.strip("_")
    if bare == "left" and "right" in beside:
        return False
    if bare == "entry" and "ledger" in str(module.path):
        return False
    return bare in POINTERS


def _folder(module: Module) -> str:
    return "/".join(module.path.relative_to(ROOT).parts[:3][:-1]) or "dpsql"


def share(package: Package) -> float:
    """Pointers among all bindings."""
    counted = bindings(package)
    return sum(binding.pointer for binding in counted) / max(1, len(counted))


def repeated_classes(package: Package) -> dict[str, int]:
    """Class names that stand in more than one place, with how many."""
    names = Counter(
        node.name for module in package.modules for node in module.nodes if isinstance(node, ast.ClassDef)
    )
    return {name: count for name, count in names.items() if count > 1}


def main() -> None:
    """Print counts, or every pointer."""
    package = the_package()
    counted = bindings(package)
    if "--list" in sys.argv:
        print("\n".join(f"{b.place} {b.name}" for b in counted if b.pointer))
        return
    by_folder = Counter(b.package for b in counted if b.pointer)
    for folder, count in by_folder.most_common():
        print(f"{count:5} {folder}")
    print(Counter(b.name for b in counted if b.pointer).most_common(12))
    print(f"{share(package):.1%} of {len(counted)} bindings are pointers")
    print(f"{len(repeated_classes(package))} class names occur twice or more")


if __name__ == "__main__":
    main()
