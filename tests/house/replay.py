"""A replay: how many old files of the package would be touched if a family were added now.

A family brings modules of its own and a word. Whatever file imports one of these modules, lists the word among others,
compares with it or uses its constant would be changed with it; its own modules would not.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import NamedTuple

from tests.house.source import Module, Package, imported


class Replay(NamedTuple):
    """A family as a toy.

    Args:
        modules: those that came with it.
        words: texts and constants that name it.
    """

    modules: frozenset[str]
    words: frozenset[str]


REPLAYS = {
    "blocks": Replay(
        frozenset({
            "dpsql.mechanisms.family.blocks", "dpsql.mechanisms.family.block_plan", "dpsql.mechanisms.family.partition",
            "dpsql.variance.blocks",
        }),
        frozenset({"blocks"}),
    ),
    "people": Replay(
        frozenset({
            "dpsql.mechanisms.family.distinct", "dpsql.publishing.people", "dpsql.variance.distinct",
        }),
        frozenset({"PEOPLE"}),
    ),
}  # fmt: skip
"""The two families that the third edition is measured by."""


def touched(package: Package, replay: Replay) -> list[str]:
    """The old files that a replay touches."""
    return sorted(
        module.name
        for module in package.modules
        if module.name not in replay.modules and any(_names(package, module, replay))
    )


def _names(package: Package, module: Module, replay: Replay) -> Iterator[bool]:
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom):
            for _, source, name in imported(package, module, node):
                yield source in replay.modules or f"{source}.{name}" in replay.modules
        elif isinstance(node, ast.Compare) or (node in module.tree.body and isinstance(node, ast.Assign)):
            constants = (n.value for n in ast.walk(node) if isinstance(n, ast.Constant))
            yield any(isinstance(value, str) and value in replay.words for value in constants)
        elif isinstance(node, ast.Name):
            yield node.id.isupper() and node.id in replay.words
