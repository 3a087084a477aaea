"""Expressions that statements sum: what a table could declare as measures, with bounds that follow from columns.

**Privacy**: a function of statements and declared bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

import sqlglot
from sqlglot import exp

from dpsql.row_expressions.expression import Node
from dpsql.sql.moments import OF_ONE
from dpsql.sql.parse import parse

MOST_DIGITS = 4


class Summed(NamedTuple):
    """An expression inside SUM or AVG.

    Args:
        sql: DuckDB text over bare column names.
        columns: the columns in it, in small letters.
        name: what the statement calls its sum, or nothing.
    """

    sql: str
    columns: frozenset[str]
    name: str


class Range(NamedTuple):
    """Value range: inclusive bounds, and decimal digits."""

    low: Fraction
    high: Fraction
    scale: int


def summed_expressions(text: str) -> Iterator[Summed]:
    """Products, sums and differences of columns that a statement sums.

    Args:
        text: one statement.

    Raises:
        ProgrammingError: it is not SQL.

    >>> [each.sql for each in summed_expressions("SELECT SUM(s.price * s.qty) AS revenue, AVG(x), SUM(2 * y) FROM s")]
    ['price * qty']
    """
    for node in parse(text, "").find_all(exp.Sum, exp.Avg):
        inner = node.this.unnest() if isinstance(node.this, exp.Paren) else node.this
        columns = frozenset(column.name.lower() for column in inner.find_all(exp.Column))
        if (
            isinstance(inner, (exp.Mul, exp.Add, exp.Sub))
            and len(columns) > 1
            and not inner.find(exp.Case, exp.AggFunc)
        ):
            alias = node.parent.alias if isinstance(node.parent, exp.Alias) else ""
            yield Summed(_bare(inner).sql(dialect="duckdb"), columns, alias)


def squared(text: str) -> frozenset[str]:
    """Columns, in lower case, of whose values a statement asks a variance, or what is made of one.

    Args:
        text: one statement.

    Raises:
        ProgrammingError: it is not SQL.

    >>> sorted(squared("SELECT SUM(a), STDDEV(b), CORR(s.C, d) FROM s"))
    ['b', 'c', 'd']
    """
    moments = parse(text, "").find_all(*OF_ONE, exp.Corr)
    return frozenset(column.name.lower() for moment in moments for column in moment.find_all(exp.Column))


def _bare(node: Node) -> Node:
    """The expression without table names and quotes that it does not need."""
    return node.copy().transform(
        lambda descendant: (
            exp.column(descendant.name, quoted=not descendant.name.isidentifier())
            if isinstance(descendant, exp.Column)
            else descendant
        )
    )


def same_expression(left: str, right: str) -> bool:
    """True if two expressions are the same, whatever their letters' case and brackets.

    >>> same_expression("A * b", "(b * a)")
    True
    """
    return _canonical(left) == _canonical(right)


def _canonical(text: str) -> str:
    node = sqlglot.parse_one(text.lower(), dialect="duckdb").transform(
        lambda descendant: descendant.this if isinstance(descendant, exp.Paren) else descendant
    )
    if isinstance(node, (exp.Mul, exp.Add)):
        return node.key + " ".join(sorted((node.left.sql(), node.right.sql())))
    return str(node.sql())


def range_of(text: str, columns: Mapping[str, Range]) -> Range | None:
    """Range of an expression given the ranges of its columns; None for functions that are not followed.

    Args:
        text: a DuckDB expression of numbers and columns with + - *.
        columns: name in small letters -> its range.

    >>> price, qty = Range(Fraction(0), Fraction(5), 2), Range(Fraction(1), Fraction(9), 0)
    >>> range_of("price * qty - 1", {"price": price, "qty": qty})
    Range(low=Fraction(-1, 1), high=Fraction(44, 1), scale=2)
    """
    return _range(sqlglot.parse_one(text, dialect="duckdb"), columns)


def _range(node: Node, columns: Mapping[str, Range]) -> Range | None:
    if isinstance(node, exp.Paren):
        return _range(node.this, columns)
    if isinstance(node, exp.Column):
        return columns.get(node.name.lower())
    if isinstance(node, exp.Literal) and not node.is_string:
        value = Fraction(node.this)
        return Range(value, value, len(node.this.partition(".")[2]))
    if not isinstance(node, (exp.Add, exp.Sub, exp.Mul)):
        return None
    left, right = _range(node.left, columns), _range(node.right, columns)
    if left is None or right is None:
        return None
    if isinstance(node, exp.Mul):
        ends = [a * b for a in left[:2] for b in right[:2]]
        return Range(min(ends), max(ends), min(left.scale + right.scale, MOST_DIGITS))
    scale = max(left.scale, right.scale)
    if isinstance(node, exp.Add):
        return Range(left.low + right.low, left.high + right.high, scale)
    return Range(left.low - right.high, left.high - right.low, scale)
