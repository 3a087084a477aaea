"""What other systems write in their own way, in the words of the one that answers.

| written | becomes |
|---|---|
| `SAFE_DIVIDE(a, b)` | `a / NULLIF(b, 0)` |
| `DATEADD(unit, n, day)` | the day, moved by an interval |
| `UNIX_TIMESTAMP(t)` | `EPOCH(t)` |
| `t AT TIME ZONE 'UTC'` | `t`: times of a release have no zone |
| `TO_CHAR(t, 'YYYY-MM')` | `STRFTIME(t, '%Y-%m')` |
| `OFFSET 5 ROWS FETCH NEXT 10 ROWS ONLY` | `LIMIT 10 OFFSET 5` |
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.time import format_time

from dpsql.star.sql.expression import Node


def normal(tree: Node) -> Node:
    """A parsed statement with such spellings replaced.

    Args:
        tree: changed in place.

    >>> import sqlglot
    >>> normal(sqlglot.parse_one("SELECT SAFE_DIVIDE(a, b) FROM t", read="duckdb")).sql("duckdb")
    'SELECT (a) / NULLIF(b, 0) FROM t'
    """
    return tree.transform(lambda node: SPELLINGS.get(type(node), _as_it_is)(node), copy=False)


def _as_it_is(node: Node) -> Node:
    return node


def _safe_divide(node: Node) -> Node:
    below = exp.Nullif(this=node.expression, expression=exp.Literal.number(0))
    return exp.Div(this=exp.Paren(this=node.this), expression=below)


def _called(node: Node) -> Node:
    name, arguments = str(node.this).lower(), node.expressions
    if name == "dateadd" and len(arguments) == 3:
        return exp.DateAdd(this=arguments[2], expression=arguments[1], unit=exp.var(arguments[0].name))
    if name == "unix_timestamp" and len(arguments) == 1:
        return exp.Anonymous(this="epoch", expressions=arguments)
    return node


def _in_zone(node: Node) -> Node:
    zone = node.args.get("zone")
    utc = isinstance(zone, exp.Literal) and str(zone.this).upper() == "UTC"
    return exp.cast(node.this, "TIMESTAMP") if utc else node


def _to_char(node: Node) -> Node:
    written = node.args.get("format")
    if not isinstance(written, exp.Literal) or not written.is_string:
        return node
    text = format_time(str(written.this), Postgres.TIME_MAPPING)
    return exp.TimeToStr(this=node.this, format=exp.Literal.string(text or ""))


def _fetch(node: Node) -> Node:
    plain = node.args.get("limit_options")
    if plain is not None and (plain.args.get("percent") or plain.args.get("with_ties")):
        return node
    return exp.Limit(expression=node.args.get("count") or exp.Literal.number(1))


SPELLINGS: dict[type[Node], Callable[[Node], Node]] = {
    exp.SafeDivide: _safe_divide, exp.Anonymous: _called, exp.AtTimeZone: _in_zone, exp.ToChar: _to_char,
    exp.Fetch: _fetch,
}  # fmt: skip
"""Node types of such spellings."""
