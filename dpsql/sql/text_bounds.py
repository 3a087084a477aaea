"""Bounds on the length of a statement's texts from query to query, so that growth is refused before it is
computed.

A query's columns are no longer than its longest expression, whose columns are those of the queries it reads. Lists and
texts made of many rows do count against DuckDB's memory limit; what they become is bounded no more, so that they
cannot grow again.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from dpsql.errors import NotSupportedError
from dpsql.row_expressions.expression import COLUMN, Node, Unbounded, growth
from dpsql.sql.parse import refusal

MOST = 2**16
"""Characters of a value: 2,048 of them, which DuckDB holds at a time, are 128 MB."""
OF_ROWS = (exp.GroupConcat, exp.ArrayAgg)


def check_growth(tree: Node) -> None:
    """Refuse a statement whose texts can become longer than `MOST` characters.

    Args:
        tree: a parsed statement, its parts on the lists.

    Raises:
        NotSupportedError: they can, or nothing bounds them.
    """
    try:
        _longest(tree, {})
    except Unbounded as error:
        raise refusal(NotSupportedError, str(error), at=tree, hint="write it as a whole number") from None


def _longest(query: Node, common: Mapping[str, int]) -> int:
    """The most characters of a query's columns."""
    scope, clause = dict(common), query.args.get("with_")
    for relation in clause.expressions if clause else ():
        scope[relation.alias.lower()] = _longest(relation.this, scope)
    if isinstance(query, exp.Table):
        return scope.get(query.name.lower(), COLUMN)
    if isinstance(query, exp.Subquery):
        return _longest(query.this, scope)
    if isinstance(query, exp.SetOperation):
        return max(_longest(query.left, scope), _longest(query.right, scope))
    read = [_longest(relation.this, scope) for relation in _read(query)]
    column = max([COLUMN, *read])

    def known(node: Node) -> int | None:
        if isinstance(node, exp.Column):
            return column
        if isinstance(node, exp.Query):
            return _longest(node, scope)
        return MOST if isinstance(node, OF_ROWS) else None

    arguments = [argument for key, argument in query.args.items() if key not in ("with_", "from_")]
    nodes = [
        node for argument in arguments for node in (argument if isinstance(argument, list) else [argument])
    ]
    lengths = [growth(node, known) for node in nodes if isinstance(node, Node)]
    longest = max([column, *lengths])
    if longest > MOST:
        raise refusal(
            NotSupportedError,
            f"a text could become {longest} characters long, the limit is {MOST}",
            hint="repeat, pad, replace or concatenate less",
        )
    return longest


def _read(query: Node) -> list[Node]:
    """FROM and the joins of a query; VALUES has neither."""
    first = query.args.get("from_")
    return ([first] if first is not None else []) + (query.args.get("joins") or [])
