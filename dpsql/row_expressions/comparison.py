"""A condition over declared columns and constants, in words that all engines share.

Columns are compared as whole units of their declared types, texts by bytes, so a condition means the same whether a
source stores texts, doubles or decimals.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from dpsql.catalog.tables import Column
from dpsql.row_expressions.expression import ColumnName, Node, column_name

SIGNS: dict[type[Node], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.GT: ">", exp.LT: "<", exp.GTE: ">=", exp.LTE: "<=",
}  # fmt: skip

ColumnOf = Callable[[ColumnName], tuple[str, Column]]
"""A column -> SQL of its units, and what the catalog declares."""


class NotPlain(ValueError):
    """A condition that is more than AND, OR, NOT and comparisons of declared columns with exact constants."""


def comparison(node: Node, column: ColumnOf, text: Callable[[str], str]) -> str:
    """SQL of a condition over units.

    Args:
        node: a checked expression of one row.
        column: a column in units; may raise `NotPlain`.
        text: a text constant that is compared by bytes.

    Raises:
        NotPlain: it is more.
    """
    if isinstance(node, exp.Paren):
        return f"({comparison(node.this, column, text)})"
    if isinstance(node, exp.And | exp.Or):
        word = "AND" if isinstance(node, exp.And) else "OR"
        return f"({comparison(node.this, column, text)} {word} {comparison(node.expression, column, text)})"
    if isinstance(node, exp.Not):
        return f"(NOT {comparison(node.this, column, text)})"
    sign = SIGNS.get(type(node))
    if sign is not None and column_name(node.this) is None:
        name, spec = _units(node.expression, column)
        return f"({_constant(node.this, spec, text)} {sign} {name})"
    plain = not isinstance(node, exp.Column)
    name, spec = _units(node.this if plain else node, column)
    if sign is not None:
        return f"({name} {sign} {_constant(node.expression, spec, text)})"
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
        return f"({name} IS NULL)"
    if isinstance(node, exp.Between):
        low, high = (_constant(node.args[end], spec, text) for end in ("low", "high"))
        return f"({name} >= {low} AND {name} <= {high})"
    if isinstance(node, exp.In) and node.expressions:
        return f"({name} IN ({', '.join(_constant(value, spec, text) for value in node.expressions)}))"
    if plain or spec.type != "bool":
        raise NotPlain
    return f"({name} = 1)"


def _units(node: object, column: ColumnOf) -> tuple[str, Column]:
    name = column_name(node) if isinstance(node, Node) else None
    if name is None:
        raise NotPlain
    return column(name)


def _constant(node: Node, spec: Column, text: Callable[[str], str]) -> str:
    """A constant in units of a column's type."""
    if isinstance(node, exp.Boolean) and spec.type == "bool":
        return str(int(bool(node.this)))
    quoted = node.this if isinstance(node, exp.Cast) else node
    negative = isinstance(node, exp.Neg)
    number = node.this if negative else node
    if spec.type in ("int", "decimal"):
        if not isinstance(number, exp.Literal) or number.is_string:
            raise NotPlain
        return _exact(spec, f"-{number.this}" if negative else str(number.this))
    if not isinstance(quoted, exp.Literal) or not quoted.is_string:
        raise NotPlain
    if spec.type == "string":
        if quoted is not node:
            raise NotPlain
        return text(str(quoted.this))
    written = str(quoted.this)
    units = _exact(spec, written)
    if spec.text(int(units)).removesuffix(" 00:00:00") != written.removesuffix(" 00:00:00"):
        raise NotPlain  # finer than the column's grain
    return units


def _exact(spec: Column, written: str) -> str:
    try:
        return str(spec.units(written))
    except ValueError:
        raise NotPlain from None
