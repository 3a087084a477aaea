"""NaN and infinity become NULL where they would arise: 0/0 is as unknown as an AVG over nobody.

DuckDB computes by IEEE 754: 0/0 is NaN, which it ranks above every number and lets pass `> 100`; 1/0 is infinity.
Every operation that can leave the finite numbers is put into

    LIST_FILTER(LIST_PACK(x), LAMBDA dp_v : NOT ISFINITE(TRY_CAST(dp_v AS DOUBLE)) IS FALSE)[1]

which is x, of x's own type, or NULL. A list's filter says x once: as CASE or NULLIF, which say it twice, nested
operations would double the statement at every level. The list is not spelled [x]: where x has a subquery, older parsers
write that as ARRAY(x), which is something else. Dates and intervals pass, for they are no DOUBLE. The same expression
has the same guards wherever it stands, so that GROUP BY still finds it in the select list. Integer division by 0 is
NULL by the setting `error_on_division_by_zero` of a release's connection.
"""

from __future__ import annotations

import math
from functools import lru_cache

import sqlglot
from sqlglot import exp

from dpsql.row_expressions.expression import Node

GUARD = "LIST_FILTER(LIST_PACK(dp_x), LAMBDA dp_v : NOT ISFINITE(TRY_CAST(dp_v AS DOUBLE)) IS FALSE)[1]"
CHAIN = (exp.Add, exp.Sub, exp.Mul)
"""What is not finite once an operand is not; a quotient is so for its numerator."""
DEEP = 8
"""So many operations of a chain are guarded, the outermost ones, which see to the rest. A guard takes 45 of the 1,000
frames that Python's parser may nest when the statement is read again (`sql.carry`)."""

OPERATIONS = (
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Pow, exp.Sqrt, exp.Exp, exp.Ln,
    exp.Log, exp.Cbrt, exp.Sin, exp.Cos, exp.Tan, exp.Asin, exp.Acos, exp.Atan, exp.Atan2,
    exp.Degrees, exp.Radians, exp.Sum, exp.Avg, exp.Stddev, exp.StddevPop, exp.StddevSamp,
    exp.Variance, exp.VariancePop, exp.Corr, exp.CovarPop, exp.CovarSamp, exp.Median, exp.Quantile,
    exp.PercentileCont, exp.PercentileDisc, exp.ApproxQuantile,
)  # fmt: skip
NAMED = ("div", "mod", "cbrt", "log2", "log10", "ln", "median", "quantile", "quantile_cont", "quantile_disc")
FLOATS = (exp.DataType.Type.DOUBLE, exp.DataType.Type.FLOAT)
CALLS = (exp.Filter, exp.Window, exp.WithinGroup)
"""What belongs to an aggregate's call, and is guarded with it."""


def finite(node: Node) -> Node:
    """An expression or a query with NULL in place of every NaN and infinity.

    Args:
        node: changed in place.

    Returns:
        The node, or its guard.

    >>> finite(sqlglot.parse_one("1 / b", read="duckdb")).sql("duckdb")
    'LIST_FILTER(LIST_PACK(1 / b), LAMBDA dp_v : NOT ISFINITE(TRY_CAST(dp_v AS DOUBLE)) IS FALSE)[1]'
    """
    root = node
    for descendant in reversed(list(node.walk(bfs=False))):
        if not _computes(descendant):
            continue
        outermost = descendant
        while isinstance(outermost.parent, CALLS) and outermost.arg_key == "this":
            outermost = outermost.parent
        if _seen_to(outermost):
            continue
        guard, place = _guard()
        if outermost is root:
            root = guard
        else:
            outermost.replace(guard)
        place.replace(outermost)
    return root


def unguarded(node: Node) -> Node:
    """Expression under a finiteness guard, or the node itself."""
    inner = node.this if isinstance(node, exp.Bracket) else None
    packed = inner.this if isinstance(inner, exp.ArrayFilter) else None
    if isinstance(packed, exp.Anonymous) and packed.name == "LIST_PACK":
        return packed.expressions[0]  # type: ignore[no-any-return]
    return node


def _computes(node: Node) -> bool:
    """True if an operation may give a number that is not finite."""
    if isinstance(node, exp.Cast):
        return node.to.this in FLOATS
    if isinstance(node, exp.Literal):
        return not node.is_string and math.isinf(float(node.this))
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower() in NAMED
    if isinstance(node, (exp.Add, exp.Sub)) and isinstance(node.expression, exp.Interval):
        return False  # a date
    return isinstance(node, OPERATIONS)


def _seen_to(node: Node) -> bool:
    """True if enough guards further up see to this operation."""
    depth, above = 0, node.parent
    while isinstance(above, (*CHAIN, exp.Paren)) or (isinstance(above, exp.Div) and node.arg_key == "this"):
        depth += not isinstance(above, exp.Paren)
        node, above = above, above.parent
    return depth >= DEEP


def _guard() -> tuple[Node, Node]:
    """A guard and the place in it for what it guards."""
    guard = _parsed().copy()
    return guard, next(column for column in guard.find_all(exp.Column) if column.name == "dp_x")


@lru_cache(maxsize=1)
def _parsed() -> Node:
    guard = sqlglot.parse_one(GUARD, read="duckdb")
    # As DuckDB counts: sqlglot would infer types below each guard, and simplify 0 + 1, whenever it writes one.
    guard.set("expressions", [exp.Literal.number(1)])
    guard.set("offset", 1)
    return guard
