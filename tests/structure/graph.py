"""Import cycles: groups of modules each of which imports the others, directly or not.

Counted is every import, in a function and below `if TYPE_CHECKING:` too: a reader follows those as well. Loading a
module loads the packages it lies in; that alone closes no cycle here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.structure.source import Package, imported


def cycles(package: Package) -> list[str]:
    """Each group of modules that import each other, as one line."""
    edges = {module.name: set(_imports(package, module.name)) for module in package.modules}
    reached = {name: _reached(edges, name) for name in edges}
    groups = {frozenset(b for b in reached[a] if a in reached[b]) for a in edges if a in reached[a]}
    return sorted(", ".join(sorted(group)) for group in groups)


def reading_order(package: Package) -> list[str]:
    """Modules so that each comes after those that it imports; alphabetical where imports leave it open."""
    edges = {module.name: set(_imports(package, module.name)) for module in package.modules}
    order: dict[str, None] = {}

    def read(name: str, above: frozenset[str]) -> None:
        for below in sorted(edges[name] - above - order.keys()):
            read(below, above | {below})
        order[name] = None

    for name in sorted(edges):
        if name not in order:
            read(name, frozenset({name}))
    return list(order)


def _imports(package: Package, name: str) -> Iterator[str]:
    module = package.by_name[name]
    for statement in module.nodes:
        if isinstance(statement, ast.Import | ast.ImportFrom):
            for _, source, _ in imported(package, module, statement):
                if source in package.by_name:
                    yield source


def _reached(edges: dict[str, set[str]], start: str) -> set[str]:
    reached: set[str] = set()
    waiting = list(edges[start])
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += edges.get(name, ())
    return reached
