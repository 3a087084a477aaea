"""Allowlist of catalogue queries: tables of the catalogue, listed functions, texts that stay short.

DuckDB itself parses the query, so what is checked is what will run. A part that is on no list is refused: a driver that
needs more shows which one, an attacker finds no clock, no sleep and no source of rows. One query may recurse, over
the relations alone: it builds no text and no list, and ends with the time that a catalogue query has.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from dpsql.errors import NotSupportedError
from dpsql.interfaces.pgwire.duckdb_ast import Node, walk
from dpsql.interfaces.pgwire.macros import TABLE_MACROS

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
        "generate_subscripts",
        "string_to_array",
        "string_split",
        "list_sort",
        "quote_nullable",
        "pg_typeof",
        "ascii",
        "reverse",
        "dense_rank",
        "lag",
        "lead",
        "date_trunc",
        "epoch",
        "instr",
        "initcap",
        "ceil",
        "floor",
        "sign",
        "mod",
        "list_concat",
        "array_concat",
        "array_append",
        "array_cat",
        "abs",
        "round",
        "greatest",
        "least",
        "nullif",
        "coalesce",
        "ifnull",
        "date_part",
        "error",
        "row",
        "&",
        "|",
        "regexp_split_to_array",
    ]
)
PLACES = frozenset({"BASE_TABLE", "EMPTY", "SUBQUERY", "JOIN", "EXPRESSION_LIST", "TABLE_FUNCTION"})
RECURSIVE = "RECURSIVE_CTE_NODE"
QUERIES = frozenset({"SELECT_NODE", "SET_OPERATION_NODE", "CTE_NODE", RECURSIVE})
GROWING = frozenset(
    {"||", "concat", "concat_ws", "list_value", "replace", "regexp_replace", "list_concat", "array_concat",
     "array_append", "array_cat"}
)  # fmt: skip
SERIES = frozenset({"generate_series"})
SOURCES = SERIES | TABLE_MACROS.keys() | {"unnest", "generate_subscripts", "string_to_array"}
"""Functions that may stand in FROM."""
COUNTS = frozenset({"array_upper", "array_lower", "array_length", "len"})
MOST_GROWTH = 4096
"""Times that a text or list may become longer: all queries of a statement multiplied."""
MOST_RECURSIVE = 2
MOST_SERIES = 1000
"""Rows of generate_series; lists of the catalogue are shorter."""


def check_catalogue_query(tree: Node, macros: Collection[str], relations: Collection[str]) -> None:
    """Refuse what is not a plain query of the catalogue.

    Args:
        tree: as it would run.
        macros: functions of the catalogue's own.
        relations: tables of the catalogue.

    Raises:
        NotSupportedError: a part of it stands on no list.
    """
    growth = 1
    try:
        for query in _queries(tree["statements"][0]["node"]):
            growth *= 1 + _check_query(query, macros)
        _check_tables(tree, relations)
    except (KeyError, TypeError, ValueError) as error:  # of another version of DuckDB: nothing is let through
        raise NotSupportedError("a part of the query is not known to the catalogue") from error
    if growth > MOST_GROWTH:
        raise NotSupportedError("a text of the catalogue would become too long")
    recursive = {node["cte_name"] for node in walk(tree) if node.get("type") == RECURSIVE}
    if len(recursive) > MOST_RECURSIVE:
        raise NotSupportedError(f"the catalogue takes at most {MOST_RECURSIVE} recursive queries")


def _check_tables(tree: Node, relations: Collection[str]) -> None:
    local = {cte["key"].lower() for node in walk(tree) for cte in node.get("cte_map", {}).get("map", ())}
    for node in walk(tree):
        if node.get("type") == "BASE_TABLE":
            name = node["table_name"]
            if (
                node["schema_name"]
                or node["catalog_name"]
                or (name not in relations and name.lower() not in local)
            ):
                raise NotSupportedError(f"table {name} is not part of the catalogue")


def _check_query(query: Node, macros: Collection[str]) -> int:
    """Number of parts of one query, its subqueries apart; refused if one is on no list."""
    if query["type"] not in QUERIES:
        raise NotSupportedError("the catalogue takes no such query")
    joined, recursive = 0, query["type"] == RECURSIVE
    for node in walk(query) if recursive else _parts(query):
        name = node.get("function_name", "")
        if recursive and (name in GROWING or name in SERIES):
            raise NotSupportedError(f"a recursive query of the catalogue takes no {name}")
        if name and name.lower() not in FUNCTIONS and name.lower() not in macros:
            raise NotSupportedError(f"function {name} is not part of the catalogue")
        arguments = node["arguments"] if name and name in GROWING | SERIES else []
        if name in SERIES and not all(_short(argument["expression"]) for argument in arguments):
            raise NotSupportedError(f"generate_series gives at most {MOST_SERIES} rows here")
        place = str(node.get("type", ""))
        if "sample" in node and place not in PLACES and not place.endswith("_NODE"):
            raise NotSupportedError("FROM takes tables of the catalogue and queries")
        if node.get("type") == "TABLE_FUNCTION" and node["function"]["function_name"] not in SOURCES:
            raise NotSupportedError("FROM takes no functions here")
        joined += len(arguments) if name in GROWING else 0
    return joined


def _short(argument: Node) -> bool:
    """True if an argument of generate_series is a small number, or the length of a list."""
    if argument.get("class") == "FUNCTION":
        return argument["function_name"] in COUNTS
    literal = argument.get("literal") or {}
    return literal.get("kind") == "INTEGER" and abs(int(literal["text"])) <= MOST_SERIES


def _queries(node: object) -> Iterator[Node]:
    """Every query of a statement, the outermost first."""
    for descendant in _walk(node):
        if str(descendant.get("type", "")).endswith("_NODE"):
            yield descendant


def _parts(query: Node) -> Iterator[Node]:
    """Parts of one query, without those of its subqueries."""
    for key, value in query.items():
        if key != "type":
            yield from _walk(value, within=True)


def _walk(node: object, *, within: bool = False) -> Iterator[Node]:
    if isinstance(node, list):
        for child in node:
            yield from _walk(child, within=within)
    elif isinstance(node, dict):
        if within and str(node.get("type", "")).endswith("_NODE"):
            return
        yield node
        for child in node.values():
            yield from _walk(child, within=within)
