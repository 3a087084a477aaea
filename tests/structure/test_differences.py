"""A number that was subtracted is compared with 0 relative to what it was subtracted from.

A difference that is 0 by algebra comes out as a residue whose sign hangs on how the processor's kernels round: `> 0` of
it is true on one machine and false on another. This finds comparisons with 0 of differences and of results of
`numpy.linalg`, within a function and through the functions of its module; those of integers and fractions are exact.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

PACKAGE = Path(__file__).parents[2] / "dpsql"
KEEPS = {
    "abs", "asarray", "copy", "diag", "diagonal", "float", "max", "maximum", "min", "minimum", "ravel", "reshape",
    "sqrt", "sum",
}  # fmt: skip
"""Functions and methods of which a residue comes out as one."""

EXACT = {
    "planner/quantiles.py::_first": "a slack relative to the total is added first",
    "budget/curve.py::mu2_of": "fractions",
    "client/device.py::_steps": "counts of digits",
    "local/parts.py::_against_grid": "cut off at 0, and continuous there",
    "local/plan.py::views_of": "fractions",
    "local/files.py::_text": "a place in a file",
    "local/survey.py::_asked": "fractions",
    "curator/audit/contents.py::check_noise": "counts of rows",
    "interfaces/pgwire/login.py::wrong": "a count of logins",
    "release/request.py::charge": "bytes",
    "catalog/columns.py::_even": "decimals",
}
"""Comparisons that no kernel moves, with the reason."""


class Module:
    """The functions of a module, and those of them that return differences."""

    def __init__(self, source: str) -> None:
        self.functions = [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef)]
        self.subtracting: frozenset[str] = frozenset()
        self.subtracting = frozenset(f.name for f in self.functions if self._returns_difference(f))

    def comparisons(self) -> Iterator[tuple[str, str]]:
        """(function, comparison) of each difference that is compared with 0."""
        for function in self.functions:
            compared = [node for node in ast.walk(function) if isinstance(node, ast.Compare)]
            with_zero = [node for node in compared if any(map(_is_zero, [node.left, *node.comparators]))]
            names = self._names(function) if with_zero else set[str]()
            for node in with_zero:
                sides = [node.left, *node.comparators]
                for left, right in pairwise(sides):
                    if any(
                        _is_zero(b) and self._differs(a, names) for a, b in ((left, right), (right, left))
                    ):
                        yield function.name, ast.unparse(node)

    def _returns_difference(self, function: ast.FunctionDef) -> bool:
        names = self._names(function)
        returned = [node.value for node in ast.walk(function) if isinstance(node, ast.Return) and node.value]
        values = [v for value in returned for v in (value.elts if isinstance(value, ast.Tuple) else [value])]
        return any(self._differs(value, names) for value in values)

    def _names(self, function: ast.FunctionDef) -> set[str]:
        names: set[str] = set()
        for node in ast.walk(function):
            if not isinstance(node, ast.Assign):
                continue
            for target in node.targets:
                if isinstance(target, ast.Name) and self._differs(node.value, names):
                    names.add(target.id)
                elif isinstance(target, ast.Tuple):
                    values = (
                        node.value.elts
                        if isinstance(node.value, ast.Tuple)
                        else [node.value] * len(target.elts)
                    )
                    pairs = zip(target.elts, values, strict=False)
                    names |= {t.id for t, v in pairs if isinstance(t, ast.Name) and self._differs(v, names)}
        return names

    def _differs(self, node: ast.expr, names: set[str]) -> bool:
        """Whether a value is a difference of two numbers, or a result of numpy.linalg."""
        match node:
            case ast.BinOp(left=left, op=ast.Sub(), right=right):
                return not any(isinstance(side, ast.Constant) for side in (left, right))
            case ast.BinOp(left=left, right=right):
                return self._differs(left, names) or self._differs(right, names)
            case ast.UnaryOp(operand=operand):
                return self._differs(operand, names)
            case ast.Subscript(value=value):
                return self._differs(value, names)
            case ast.Name(id=name):
                return name in names
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="linalg"))):
                return True
            case ast.Call(func=ast.Name(id=name)) if name in self.subtracting:
                return True
            case ast.Call(func=ast.Attribute(value=value, attr=name), args=args) if name in KEEPS:
                return any(self._differs(argument, names) for argument in (value, *args))
            case ast.Call(func=ast.Name(id=name), args=args) if name in KEEPS:
                return any(self._differs(argument, names) for argument in args)
        return False


def _is_zero(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value == 0 and not isinstance(node.value, bool)


def test_no_sign_of_a_residue_decides() -> None:
    found = {
        f"{file.relative_to(PACKAGE)}::{name}": text
        for file in sorted(PACKAGE.rglob("*.py"))
        for name, text in Module(file.read_text("utf-8")).comparisons()
    }
    assert {place: text for place, text in found.items() if place not in EXACT} == {}
    assert set(EXACT) <= set(found), "of a comparison that has gone"


def test_a_residue_that_decides_is_found() -> None:
    planted = """
def residuals(x, f, var):
    covariance = x + x
    covariance = covariance - f - f.T + var
    return x - f, covariance

def compare(x, f, var):
    apart, covariance = residuals(x, f, var)
    if covariance.max(initial=0.0) > 0:
        return apart
    values, vectors = np.linalg.eigh(covariance)
    return values[-1] <= 0, float(x.sum() - f.sum()) < 0
"""
    assert [text for _, text in Module(planted).comparisons()] == [
        "covariance.max(initial=0.0) > 0", "values[-1] <= 0", "float(x.sum() - f.sum()) < 0",
    ]  # fmt: skip
