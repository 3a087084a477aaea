"""One SELECT's FROM clause, bound to the star: turns resolved expressions into placeholder text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import sqlglot
from sqlglot import exp

from dpsql.answer.block import ColumnRef, Expression
from dpsql.answer.schema import Schema
from dpsql.answer.sql.finite import finite
from dpsql.answer.sql.joins import Paths
from dpsql.answer.sql.names import Rows, column_of, placed
from dpsql.answer.sql.refuse import refusal, span
from dpsql.errors import NotSupportedError
from dpsql.sql.node import Node

DIALECT = "duckdb"

MONOTONE = (
    exp.Column,
    exp.Identifier,
    exp.Literal,
    exp.Var,
    exp.Null,
    exp.Boolean,
    exp.Paren,
    exp.Cast,
    exp.DataType,
    exp.DataTypeParam,
    exp.Interval,
    exp.LT,
    exp.LTE,
    exp.GT,
    exp.GTE,
    exp.EQ,
    exp.NEQ,
    exp.Between,
    exp.Is,
    exp.In,
    exp.Not,
    exp.And,
    exp.Or,
    exp.Neg,
    exp.Add,
    exp.Sub,
    exp.Mul,
    exp.Div,
    exp.Floor,
    exp.Ceil,
    exp.Round,
    exp.DateTrunc,
    exp.TimestampTrunc,
    exp.Year,
    exp.Case,
    exp.If,
)
"""Nodes under which a value between two others has a result between theirs."""


@dataclass
class Binding:
    """A FROM clause with its paths, and the placeholders given out so far."""

    rows: Rows
    paths: Paths
    schema: Schema
    columns: list[ColumnRef] = field(default_factory=list)
    known: dict[ColumnRef, int] = field(default_factory=dict)

    def ref(self, node: exp.Column) -> ColumnRef:
        """The star's column that a resolved column stands for."""
        instance, name = self.rows.of(node)
        return ColumnRef(self.paths.path[instance.number], instance.table.name, name)

    def placeholder(self, ref: ColumnRef) -> int:
        """The number of a column's placeholder."""
        if ref not in self.known:
            self.known[ref] = len(self.columns)
            self.columns.append(ref)
        return self.known[ref]


def derived(binding: Binding, node: Node) -> Node:
    """Replace declared derivations that have an axis by their column, and the others by their expression.

    Args:
        binding: the FROM clause.
        node: a resolved expression; changed in place where possible.

    Returns:
        The expression to use from here on.
    """
    for instance in binding.rows.instances:
        for name, text in instance.table.derived.items():
            ref = ColumnRef(binding.paths.path[instance.number], instance.table.name, name)
            body = _declared(binding, instance.number, text)
            column = column_of(instance.number, name)
            old, new = (body, column) if binding.schema.axis_columns(ref) else (column, exp.Paren(this=body))
            node = _swap(node, old, new)
    return node


def _declared(binding: Binding, number: int, text: str) -> Node:
    """A catalog expression over one table's columns, resolved to one instance of it."""
    body = sqlglot.parse_one(text, read=DIALECT)
    table = binding.rows.instances[number].table

    def bind(part: Node) -> Node:
        if isinstance(part, exp.Column):
            return column_of(number, table.column(part.name) or part.name)
        return part

    return body.transform(bind)


def declared_measures(binding: Binding) -> dict[str, Node]:
    """Declared product measures of the root and its dimensions: `table.name` -> resolved expression."""
    found: dict[str, Node] = {}
    for instance in binding.rows.instances:
        for name, text in instance.table.measures.items():
            if text:
                found.setdefault(f"{instance.table.name}.{name}", _declared(binding, instance.number, text))
    return found


def _swap(node: Node, old: Node, new: Node) -> Node:
    if node == old:
        return placed(new, node)
    for part in list(node.walk()):
        if part is not node and part.parent is not None and part == old:
            part.replace(placed(new, part))
    return node


def expression(binding: Binding, node: Node) -> Expression:
    """A resolved scalar expression as placeholder text.

    Args:
        binding: the FROM clause.
        node: free of aggregates and subqueries.

    Returns:
        The text, its placeholders and its place.

    Raises:
        NotSupportedError: a subquery, an aggregate or a window inside.
    """
    parts = list(node.walk())
    kinds = (exp.Query, exp.Subquery, exp.AggFunc, exp.Window)
    inner = next((part for part in parts if isinstance(part, kinds)), None)
    if inner is not None:
        what = "subquery" if isinstance(inner, (exp.Query, exp.Subquery)) else type(inner).__name__.lower()
        raise refusal(
            NotSupportedError,
            f"a {what} inside a row-level condition would be evaluated on rows",
            at=node,
            clause="WHERE",
            hint="use HAVING, or write its value as a literal",
        )
    used: set[int] = set()

    def bind(part: Node) -> Node:
        if isinstance(part, exp.Is) and isinstance(part.expression, exp.Null):
            # an out-of-domain value is not NULL, though its columns are unknown here
            known = exp.NEQ(this=exp.column("dp_kind"), expression=exp.Literal.number(3))
            return exp.Paren(this=exp.And(this=part, expression=known))
        if isinstance(part, exp.Column) and part.table:
            number = binding.placeholder(binding.ref(part))
            used.add(number)
            return exp.column(f"dp_c{number}")
        return part

    place = span(node)
    bound = _bottom_up(node.copy(), bind)
    monotone = all(isinstance(part, MONOTONE) for part in parts)
    plain = bound.sql(dialect=DIALECT)
    return Expression(finite(bound).sql(dialect=DIALECT, copy=False), frozenset(used), monotone, place, plain)


def _bottom_up(node: Node, change: Callable[[Node], Node]) -> Node:
    """Children first, so that what `change` returns is not visited again."""
    for child in list(node.iter_expressions()):
        new = _bottom_up(child, change)
        if new is not child:
            child.replace(new)
    return change(node.copy() if isinstance(node, exp.Is) else node)
