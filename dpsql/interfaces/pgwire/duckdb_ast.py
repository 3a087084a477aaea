"""A statement as DuckDB's parser reads it: a tree of dictionaries that can be looked at, changed, and written as SQL.

DuckDB's grammar is PostgreSQL's, so it reads what drivers write. What is checked is the very tree that runs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from dpsql.errors import NotSupportedError, SqlSyntaxError

Node = dict[str, Any]


def parse(connection: duckdb.DuckDBPyConnection, text: str) -> Node:
    """The one SELECT of a text; parsing runs nothing of it.

    Raises:
        SqlSyntaxError: it does not parse.
        NotSupportedError: it is no SELECT, or more than one.
    """
    row = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    tree: Node = json.loads(row[0]) if row else {"error": True}
    if tree["error"]:
        if tree.get("error_type") == "parser":
            raise SqlSyntaxError(f"the catalogue cannot read this: {tree['error_message'].splitlines()[0]}")
        raise NotSupportedError("only SELECT is answered here")
    if len(tree["statements"]) != 1:
        raise NotSupportedError("the catalogue takes one statement at a time")
    return tree


def written(connection: duckdb.DuckDBPyConnection, tree: Node) -> str:
    """A tree as SQL of DuckDB."""
    row = connection.execute("SELECT json_deserialize_sql(?)", [json.dumps(tree)]).fetchone()
    return str(row[0]) if row else ""


def walk(node: object) -> Iterator[Node]:
    """Every node of a tree, parents first."""
    waiting = [node]
    while waiting:
        current = waiting.pop()
        if isinstance(current, list):
            waiting += reversed(current)
        elif isinstance(current, dict):
            yield current
            waiting += reversed(list(current.values()))


def outermost(tree: Node) -> Node:
    """The query whose select list names the columns of the answer."""
    query: Node = tree["statements"][0]["node"]
    while "select_list" not in query:
        if query.get("left"):
            query = query["left"]
        elif query.get("children"):
            query = query["children"][0]
        elif query.get("child"):
            query = query["child"]
        else:
            return {"select_list": []}
    return query


def call(name: str, *arguments: Node) -> Node:
    """A call of a function."""
    return {
        "class": "FUNCTION", "type": "FUNCTION", "alias": "", "query_location": 0, "query_location_length": 0,
        "function_name": name, "schema": "", "catalog": "", "is_operator": False, "distinct": False, "filter": None,
        "export_state": False, "order_bys": {"type": "ORDER_MODIFIER", "orders": []},
        "arguments": [{"name": "", "expression": argument} for argument in arguments],
        "qualified_name": {"path": [name]},
    }  # fmt: skip


def constant(connection: duckdb.DuckDBPyConnection, sql: str) -> Node:
    """The tree of an expression without columns."""
    expression: Node = outermost(parse(connection, f"SELECT {sql}"))["select_list"][0]
    return expression
