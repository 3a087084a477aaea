"""Sizes: modules, statements, and functions with many parameters."""

from __future__ import annotations

import ast

from tests.house.source import Package

MANY = 7


def statements(package: Package) -> int:
    """Statements of the package; docstrings are not counted, so that nobody saves on them."""
    return sum(isinstance(n, ast.stmt) and not _is_text(n) for m in package.modules for n in ast.walk(m.tree))


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
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            given = node.args
            names = [
                a.arg
                for a in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg)
                if a
            ]
            count = len([name for name in names if name not in ("self", "cls")])
            if count >= MANY:
                lines.append(f"{module.place(node)} {node.name}: {count}")
    return lines
