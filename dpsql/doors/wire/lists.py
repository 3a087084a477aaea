"""What a catalogue query may be made of: tables of the catalogue, functions on a list, texts that stay short.

DuckDB itself parses the query, so what is checked is what will run. A part that is on no list is refused: a driver that
needs more shows which one, an attacker finds no clock, no sleep, no recursion and no source of rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import duckdb

from dpsql.errors import NotSupportedError, ProgrammingError

FUNCTIONS = frozenset(
    [
        "||",
        "concat",
        "concat_ws",
        "+",
        "-",
        "*",
        "/",
        "%",
        "~~",
        "!~~",
        "~~*",
        "!~~*",
        "like_escape",
        "not_like_escape",
        "ilike_escape",
        "not_ilike_escape",
        "lower",
        "upper",
        "length",
        "trim",
        "ltrim",
        "rtrim",
        "left",
        "right",
        "substring",
        "substr",
        "position",
        "strpos",
        "split_part",
        "replace",
        "regexp_matches",
        "regexp_full_match",
        "regexp_replace",
        "starts_with",
        "prefix",
        "suffix",
        "contains",
        "array_to_string",
        "array_agg",
        "string_agg",
        "list_value",
        "unnest",
        "array_length",
        "len",
        "list_contains",
        "array_contains",
        "list_extract",
        "array_extract",
        "array_position",
        "count",
        "count_star",
        "min",
        "max",
        "sum",
        "bool_or",
        "bool_and",
        "any_value",
        "row_number",
        "rank",
        "generate_series",
        "abs",
        "round",
        "greatest",
        "least",
        "nullif",
        "coalesce",
        "ifnull",
        "date_part",
        "error",
    ]
)
PLACES = frozenset({"BASE_TABLE", "EMPTY", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "TABLE_FUNCTION"})
QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE"})
GROWING = frozenset({"||", "concat", "concat_ws", "list_value", "replace", "regexp_replace"})
SERIES = frozenset({"generate_series"})
COUNTS = frozenset({"array_upper", "array_length", "len"})
MOST_GROWTH = 4096
"""Times that a text or list may become longer: all queries of a statement multiplied."""
MOST_SERIES = 1000
"""Rows of generate_series; lists of the catalogue are shorter."""

Part = dict[str, Any]


def check_catalogue_query(connection: duckdb.DuckDBPyConnection, text: str, macros: frozenset[str]) -> None:
    """Refuse what is not a plain query of the catalogue.

    Args:
        connection: parses the query, runs nothing of it.
        text: as it would run.
        macros: functions of the catalogue's own.

    Raises:
        ProgrammingError: it does not parse.
        NotSupportedError: it is no SELECT, or a part of it stands on no list.
    """
    row = connection.execute("SELECT json_serialize_sql(?)", [text]).fetchone()
    tree: Part = json.loads(row[0]) if row else {"error": True}
    if tree["error"]:
        if tree.get("error_type") == "parser":
            raise ProgrammingError(f"the catalogue cannot read this: {tree['error_message']}")
        raise NotSupportedError("only SELECT is answered here")
    if len(tree["statements"]) != 1:
        raise NotSupportedError("the catalogue takes one statement at a time")
    growth = 1
    try:
        for query in _queries(tree["statements"][0]["node"]):
            growth *= 1 + _check_query(query, macros)
    except (KeyError, TypeError, ValueError) as error:  # of another version of DuckDB: nothing is let through
        raise NotSupportedError("a part of the query is not known to the catalogue") from error
    if growth > MOST_GROWTH:
        raise NotSupportedError("a text of the catalogue would become too long")


def _check_query(query: Part, macros: frozenset[str]) -> int:
    """How many parts one query puts together, its subqueries apart; refused if one is on no list."""
    if query["type"] not in QUERIES:
        raise NotSupportedError("the catalogue takes no recursive query")
    joined = 0
    for node in _parts(query):
        name = node.get("function_name", "")
        if name and name.lower() not in FUNCTIONS | macros:
            raise NotSupportedError(f"function {name} is not part of the catalogue")
        arguments = node["arguments"] if name and name in GROWING | SERIES else []
        if name in SERIES and not all(_short(argument["expression"]) for argument in arguments):
            raise NotSupportedError(f"generate_series gives at most {MOST_SERIES} rows here")
        if "sample" in node and node.get("type") not in PLACES:
            raise NotSupportedError("FROM takes tables of the catalogue and queries")
        if node.get("type") == "TABLE_FUNCTION" and node["function"]["function_name"] not in SERIES | {
            "unnest"
        }:
            raise NotSupportedError("FROM takes no functions here")
        joined += len(arguments) if name in GROWING else 0
    return joined


def _short(argument: Part) -> bool:
    """Whether an argument of generate_series is a small number, or the length of a list."""
    if argument.get("class") == "FUNCTION":
        return argument["function_name"] in COUNTS
    literal = argument.get("literal") or {}
    return literal.get("kind") == "INTEGER" and abs(int(literal["text"])) <= MOST_SERIES


def _queries(node: object) -> Iterator[Part]:
    """Every query of a statement, the outermost first."""
    for descendant in _walk(node):
        if str(descendant.get("type", "")).endswith("_NODE"):
            yield descendant


def _parts(query: Part) -> Iterator[Part]:
    """What one query is made of, without what its subqueries are made of."""
    for key, value in query.items():
        if key != "type":
            yield from _walk(value, within=True)


def _walk(node: object, *, within: bool = False) -> Iterator[Part]:
    if isinstance(node, list):
        for child in node:
            yield from _walk(child, within=within)
    elif isinstance(node, dict):
        if within and str(node.get("type", "")).endswith("_NODE"):
            return
        yield node
        for child in node.values():
            yield from _walk(child, within=within)
