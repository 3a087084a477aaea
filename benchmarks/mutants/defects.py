"""Small defects of a module, one at a time: what stands in one place of its syntax tree is exchanged.

| defect | becomes |
|---|---|
| `<`, `<=`, `>`, `>=`, `==`, `!=`, `in`, `is` | its neighbour or its opposite |
| `+`, `-`, `*`, `//`, `/`, `%`, `<<`, `>>` | another operation |
| `and`, `or`, `not x` | `or`, `and`, `x` |
| a number | one more |
| `True`, `False` | the other |
| `if x`, `while x` | `if not x` |
| `raise` | nothing |
| `return x` | `return None`, where x is not None |
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from typing import NamedTuple

COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
COMPUTED: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.FloorDiv, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.Pow: ast.Mult,
}  # fmt: skip


class Defect(NamedTuple):
    """One defect.

    Args:
        number: position among the module's defects.
        line: where it is.
        before, after: the statement's part as it was and as it becomes.
    """

    number: int
    line: int
    before: str
    after: str


def defects(source: str) -> list[Defect]:
    """Every defect of a module, in the order of its text."""
    return [_defect(number, change) for number, change in enumerate(_changes(ast.parse(source)))]


def defect(source: str, number: int) -> Defect:
    """One of them."""
    return _defect(number, list(_changes(ast.parse(source)))[number])


def count_defects(source: str) -> int:
    """How many there are."""
    return sum(1 for _ in _changes(ast.parse(source)))


def planted(source: str, number: int) -> ast.Module:
    """The module with one defect; all else stands in the lines where it stood."""
    tree = ast.parse(source)
    change = list(_changes(tree))[number]
    return ast.fix_missing_locations(_Exchange(change.place, change.becomes()).visit(tree))


class _Change(NamedTuple):
    """A place, and what makes that which becomes of it; None removes a statement."""

    place: ast.expr | ast.stmt
    becomes: Callable[[], ast.AST | None]


def _defect(number: int, change: _Change) -> Defect:
    place, becomes = change.place, change.becomes()
    return Defect(number, place.lineno, ast.unparse(place), ast.unparse(becomes) if becomes else "pass")


def _changes(tree: ast.Module) -> Iterator[_Change]:
    """All of them. Annotations and docstrings are left alone."""
    for node in _code(tree):
        if isinstance(node, ast.Compare) and type(node.ops[0]) in COMPARED:
            yield _Change(node, partial(_with, node, ops=[COMPARED[type(node.ops[0])](), *node.ops[1:]]))
        elif isinstance(node, ast.BinOp) and type(node.op) in COMPUTED:
            yield _Change(node, partial(_with, node, op=COMPUTED[type(node.op)]()))
        elif isinstance(node, ast.BoolOp):
            yield _Change(
                node, partial(_with, node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
            )
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield _Change(node, partial(_same, node.operand))
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield _Change(node, partial(ast.Constant, not node.value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield _Change(node, partial(ast.Constant, node.value + 1))
        elif isinstance(node, ast.If | ast.While) and not isinstance(node.test, ast.Compare | ast.BoolOp):
            yield _Change(node.test, partial(ast.UnaryOp, ast.Not(), node.test))
        elif isinstance(node, ast.Raise):
            yield _Change(node, partial(_same, None))
        elif isinstance(node, ast.Return) and node.value is not None and not _is_none(node.value):
            yield _Change(node, partial(ast.Return, ast.Constant(None)))


def _same(node: ast.AST | None) -> ast.AST | None:
    return node


def _code(node: ast.AST) -> Iterator[ast.AST]:
    """Nodes from the top in the order of the text, without annotations, decorators and texts that stand alone."""
    yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not (
                isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)
            ):
                yield from _code(child)


def _with(node: ast.AST, **changed: object) -> ast.AST:
    copy = deepcopy(node)
    for name, value in changed.items():
        setattr(copy, name, value)
    return copy


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


class _Exchange(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, place: ast.AST, changed: ast.AST | None) -> None:
        self.place, self.changed = place, changed

    def visit(self, node: ast.AST) -> ast.AST:
        if node is self.place:
            return ast.Pass() if self.changed is None else self.changed
        return self.generic_visit(node)
