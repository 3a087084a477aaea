"""Column names by dialect: unquoted identifiers, and select items without an alias.

| dialect | `SELECT Region` | `SELECT COUNT(*)` | `SELECT n::int` | `SELECT 2 * SUM(x)` |
|---|---|---|---|---|
| PostgreSQL and its kin | `region` | `count` | `n` | `?column?` |
| BigQuery | `Region` | `f0_`, numbered from the left | `f0_` | `f0_` |
| Trino, Presto, Athena | `Region` | `_col0`, by its place | `_col0` | `_col0` |
| others, DuckDB among them | `Region` | DuckDB's name of the expression | | |
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from sqlglot import exp

from dpsql.row_expressions.expression import Node
from dpsql.sql.dialects import POSTGRES
from dpsql.sql.statement import named

BY_PLACE = frozenset({"trino", "presto", "athena"})
NAMELESS = "?column?"
TYPES = {
    "INT": "int4", "BIGINT": "int8", "SMALLINT": "int2", "DOUBLE": "float8", "FLOAT": "float4", "DECIMAL": "numeric",
    "BOOLEAN": "bool",
}  # fmt: skip
"""PostgreSQL's own names of types, which a cast constant is called."""
CALLED: dict[type[Node], str] = {
    exp.TimestampTrunc: "date_trunc", exp.DateTrunc: "date_trunc", exp.Extract: "extract", exp.Trim: "btrim",
    exp.Coalesce: "coalesce", exp.Exists: "exists",
    exp.GroupConcat: "string_agg",
}  # fmt: skip
"""Calls whose name is not the word in the text."""


def name_columns(tree: Node, dialect: str, text: str) -> Node:
    """A parsed statement whose columns are called as its dialect calls them.

    Args:
        tree: changed in place.
        dialect: the parser's name of it.
        text: what the user wrote.

    >>> import sqlglot
    >>> name_columns(sqlglot.parse_one("SELECT 1, N FROM t", read="postgres"), "postgres", "SELECT 1, N FROM t").sql()
    'SELECT 1 AS "?column?", n FROM t'
    """
    if dialect in POSTGRES:
        for identifier in tree.find_all(exp.Identifier):
            if not identifier.args.get("quoted"):
                identifier.set("this", str(identifier.this).lower())
    for select in tree.find_all(exp.Select):
        if isinstance(select.parent, (exp.In, exp.Exists)):
            continue
        call = _caller(dialect, text)
        for place, projection in enumerate(list(select.expressions)):
            star = isinstance(projection, exp.Star) or isinstance(projection.this, exp.Star)
            nameless = not isinstance(projection, (exp.Alias, exp.Column)) and (
                not star or isinstance(projection, exp.Count)
            )
            name = call(place, projection) if nameless else ""
            if name:
                projection.replace(named(projection.copy(), name))
    return tree


def _caller(dialect: str, text: str) -> Callable[[int, Node], str]:
    """Function that names an unaliased select item by its position; None where DuckDB's own name is used."""
    if dialect in POSTGRES:
        return lambda place, node: figure(node, text) or NAMELESS
    if dialect in BY_PLACE:
        return lambda place, node: f"_col{place}"
    numbers = count()
    return lambda place, node: f"f{next(numbers)}_" if dialect == "bigquery" else ""


def figure(node: Node, text: str) -> str:
    """PostgreSQL's name of an expression; empty where it has none."""
    if isinstance(node, (exp.Paren, exp.Filter, exp.WithinGroup, exp.Window, exp.AtTimeZone, exp.Collate)):
        return figure(node.this, text) if not isinstance(node, exp.AtTimeZone) else "timezone"
    if isinstance(node, exp.Column):
        return node.name
    if isinstance(node, exp.Cast):
        return figure(node.this, text) or TYPES.get(node.to.this.name, node.to.this.name.lower())
    if isinstance(node, exp.Case):
        default = node.args.get("default")
        return (figure(default, text) if default is not None else "") or "case"
    if isinstance(node, exp.Subquery):
        inner = node.this.expressions[0] if isinstance(node.this, exp.Select) else node.this
        return inner.alias if isinstance(inner, exp.Alias) else figure(inner, text)
    if type(node) in CALLED:
        return CALLED[type(node)]
    if isinstance(node, exp.Anonymous):
        return str(node.this).lower()
    if not isinstance(node, exp.Func) or (isinstance(node, exp.Binary) and not isinstance(node, exp.AggFunc)):
        return ""
    written = text[node.meta["start"] : node.meta["end"] + 1].lower() if "start" in node.meta else ""
    return written if written.isidentifier() else node.sql_name().lower()
