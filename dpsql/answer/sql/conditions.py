"""WHERE, FILTER and CASE conditions -> plain conditions.

SQL keeps a row only where its condition is true. NOT is pushed down to the comparisons (De Morgan holds
in three-valued logic), after which AND and OR of "is true" are two-valued.
"""

from __future__ import annotations

from sqlglot import exp

from dpsql.answer.block import FALSE, TRUE, Condition, Predicate, complement, every, some
from dpsql.answer.sql.binding import Binding, expression
from dpsql.answer.sql.refuse import refusal
from dpsql.errors import ProgrammingError
from dpsql.sql.node import Node


def condition(binding: Binding, node: Node, negated: bool = False) -> Condition:
    """Where a resolved boolean expression is true (or, negated, where its NOT is true).

    Args:
        binding: the FROM clause.
        node: a resolved boolean expression.
        negated: ask for NOT node.

    Returns:
        A condition over predicates.
    """
    if isinstance(node, exp.Paren):
        return condition(binding, node.this, negated)
    if isinstance(node, exp.Not):
        return condition(binding, node.this, not negated)
    if isinstance(node, (exp.And, exp.Or)):
        parts = [condition(binding, side, negated) for side in (node.left, node.right)]
        return every(parts) if isinstance(node, exp.And) != negated else some(parts)
    if isinstance(node, exp.Boolean):
        return TRUE if bool(node.this) != negated else FALSE
    if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean):
        truth = condition(binding, node.this, not node.expression.this)
        return complement(truth) if negated else truth
    if isinstance(node, exp.In) and isinstance(node.this, exp.Tuple) and node.expressions:
        return condition(binding, _tuples(node), negated)
    leaf = exp.Not(this=exp.Paren(this=node.copy())) if negated else node
    return Predicate(expression(binding, leaf))


def _tuples(node: exp.In) -> Node:
    """(a, b) IN ((1, 2), (3, 4)) as an OR of ANDs, so that a and b may lie on two axes."""
    names = node.this.expressions
    rows = []
    for row in node.expressions:
        values = row.expressions if isinstance(row, exp.Tuple) else [row]
        if len(values) != len(names):
            raise refusal(ProgrammingError, "the tuples of an IN differ in length", at=node, clause="WHERE")
        equal = [exp.EQ(this=a.copy(), expression=b.copy()) for a, b in zip(names, values, strict=True)]
        rows.append(exp.and_(*equal))
    return exp.or_(*rows)
