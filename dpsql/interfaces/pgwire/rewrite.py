"""A statement as DuckDB's parser reads it, and PostgreSQL's spellings in a catalogue query, turned into DuckDB's on it.

A tree of dictionaries that can be looked at, changed, and written as SQL. DuckDB's grammar is PostgreSQL's, so it reads
what drivers write; what is checked is the very tree that runs.

| PostgreSQL | here |
|---|---|
| `pg_catalog.pg_class`, `information_schema.tables` | tables `pg_class`, `"information_schema.tables"` |
| `pg_catalog.f(x)` | macro `f(x)` |
| `x::regclass`, `regtype`, `regproc` .. | `regclass_oid(x)`, `regclass_name(..)` where its text is wanted |
| `'{1,2}'::oid[]` | `[1, 2]::BIGINT[]` |
| `x::name`, `x::"char"`, `x::information_schema.yes_or_no` | `x::VARCHAR` |
| `current_user`, `current_catalog` | functions of these names |
| `COLLATE ..` | nothing: names are compared as they are |

Columns without a name are called as PostgreSQL calls them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator
from typing import Any

import duckdb

from dpsql.errors import NotSupportedError, SqlSyntaxError, UnknownTable

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


SYSTEM = frozenset({"xmin", "xmax", "cmin", "cmax", "ctid", "tableoid"})
"""Columns that every table of PostgreSQL has, and `*` does not show."""
OBJECTS = ("regclass", "regtype", "regproc", "regnamespace", "regrole")
"""Types whose values are numbers of objects and whose texts are the objects' names."""
ALIKE = {"regprocedure": "regproc", "regoper": "regproc", "regoperator": "regproc"}
REGPROC = frozenset({"typinput", "typoutput", "typreceive", "typsend"})
"""Columns of type regproc that drivers read as names."""
WORDS = frozenset(
    {"current_user", "session_user", "user", "current_role", "current_catalog", "current_schema"}
)
"""Functions that are written without brackets."""
TEXTS = frozenset(
    {"text", "varchar", "bpchar", "name", "char", "unknown", "cstring", "character_data", "sql_identifier", "yes_or_no",
     "pg_node_tree", "aclitem", "json", "jsonb"}
)  # fmt: skip
NUMBERS = {"oid": "BIGINT", "xid": "BIGINT", "cid": "BIGINT", "int2": "SMALLINT", "int4": "INTEGER", "int8": "BIGINT",
           "cardinal_number": "INTEGER", "int2vector": "SMALLINT[]", "oidvector": "BIGINT[]"}  # fmt: skip
RENAMED = {"~": "regexp_matches"}
ABSENT = frozenset({"json_build_object", "jsonb_build_object"})
"""Functions of what a star does not have, such as identity columns: their value is NULL."""
VECTORS = frozenset({"indkey", "indoption", "indclass", "indcollation"})
"""Lists that PostgreSQL counts from 0."""
SHORT = {"BIGINT": "int8", "INTEGER": "int4", "SMALLINT": "int2", "VARCHAR": "varchar", "BOOLEAN": "bool",
         "DOUBLE": "float8", "REAL": "float4", "DECIMAL": "numeric",
         "TIMESTAMP WITH TIME ZONE": "timestamptz"}  # fmt: skip
"""DuckDB's names of types as PostgreSQL calls a column of a bare cast."""
NAMED_OPERATORS = {"OPERATOR_COALESCE": "coalesce", "ARRAY_CONSTRUCTOR": "array"}
INTEGER = re.compile(r"\d{1,18}")
ELEMENT = re.compile(r'\s*(?:"((?:[^"\\]|\\.)*)"|([^,"{}]*?))\s*(?:,|\}$)')


def rewrite(tree: Node, relations: Collection[str]) -> Node:
    """Turn PostgreSQL's spellings into DuckDB's, in place.

    Args:
        tree: of one SELECT.
        relations: the catalogue's tables, as DuckDB calls them.

    Raises:
        UnknownTable: a table that is not the catalogue's.
    """
    for projection in outermost(tree)["select_list"]:
        _name_of_object(projection)
    for node in walk(tree):
        if node.get("type") == "TABLE_FUNCTION" and "function" in node:
            node["function"]["in_from"] = True
    local = {cte["key"].lower() for node in walk(tree) for cte in node.get("cte_map", {}).get("map", ())}
    for node in reversed(list(walk(tree))):  # children first
        if node.get("type") == "BASE_TABLE" and "table_name" in node:
            schema, name = node["schema_name"].lower(), node["table_name"].lower()
            target = f"information_schema.{name}" if schema == "information_schema" else name
            if (target not in relations and (schema or name not in local)) or schema not in SCHEMAS:
                raise UnknownTable(
                    f"relation {name} is not part of the catalogue", hint="\\d lists the relations"
                )
            node |= {
                "schema_name": "", "table_name": target, "qualified_name": {"path": [target]},
                "alias": node["alias"] or name,
            }  # fmt: skip
        elif node.get("type") == "TABLE_FUNCTION" and "function" in node:
            _source(node)
        elif change := CHANGES.get(str(node.get("class"))):
            change(node)
    return tree


def _source(node: Node) -> None:
    """A function in FROM: of a list it gives one row, of ancestors the relation alone."""
    function = node["function"]
    function.pop("in_from", None)
    if function["function_name"] == "pg_partition_ancestors":
        listed = call("list_value", *(argument["expression"] for argument in function["arguments"]))
        node["function"] = call("unnest", listed)
    elif function["function_name"] in ("string_to_array", "string_split", "parse_ident"):
        name = next(filter(None, [*node["column_name_alias"], node["alias"], function["function_name"]]))
        query = {**EMPTY_QUERY, "select_list": [{**function, "alias": name}]}
        _become(node, {"type": "SUBQUERY", "alias": node["alias"] or name, "sample": None, "query_location": 0,
                       "query_location_length": 0, "subquery": {"node": query, "named_param_map": []},
                       "column_name_alias": []})  # fmt: skip


EMPTY_QUERY: Node = {
    "type": "SELECT_NODE", "modifiers": [], "cte_map": {"map": []}, "where_clause": None, "group_expressions": [],
    "group_sets": [], "aggregate_handling": "STANDARD_HANDLING", "having": None, "sample": None, "qualify": None,
    "from_table": {"type": "EMPTY", "alias": "", "sample": None, "query_location": 0, "query_location_length": 0},
}  # fmt: skip
SCHEMAS = ("", "pg_catalog", "information_schema")


def _column(node: Node) -> None:
    names = node["column_names"]
    if len(names) > 1 and names[0].lower() in SCHEMAS:
        node["column_names"] = names[1:]
    word = names[-1].lower()
    if word in SYSTEM or (len(names) == 1 and word in WORDS):
        _become(node, call("system_number" if word in SYSTEM else word), alias=node["alias"] or word)


def _function(node: Node) -> None:
    name = node["function_name"].lower()
    name = RENAMED.get(name, name)
    if name in ABSENT:
        _become(node, NULL, alias=node["alias"])
        return
    if name == "format" and node["arguments"]:
        _format(node)
        return
    if name == "generate_series" and not node.pop("in_from", False):
        series = {**node, "alias": "", "schema": "", "qualified_name": {"path": [name]}}
        _become(node, call("unnest", series), alias=node["alias"])
        return
    node |= {"schema": "", "catalog": "", "function_name": name, "qualified_name": {"path": [name]}}
    if name == "regexp_matches":
        node["is_operator"] = False
    if name == "!~":
        matching = call("regexp_matches", *(argument["expression"] for argument in node["arguments"]))
        _become(node, {"class": "OPERATOR", "type": "OPERATOR_NOT", "alias": node["alias"], "query_location": 0,
                       "query_location_length": 0, "children": [matching]})  # fmt: skip
    if name == "unnest" and node["arguments"]:
        _listed(node["arguments"][0]["expression"])


NULL: Node = {"class": "CONSTANT", "type": "VALUE_CONSTANT", "query_location": 0, "query_location_length": 0,
              "literal": {"kind": "NULL_LITERAL", "text": ""}}  # fmt: skip


def _format(node: Node) -> None:
    """`format('%I.%s', a, b)` as a concatenation."""
    pattern, *arguments = (argument["expression"] for argument in node["arguments"])
    text = (pattern.get("literal") or {}).get("text")
    if text is None:
        raise NotSupportedError("format takes a constant pattern here")
    pieces: list[Node] = []
    for word in re.split(r"(%[sIL%])", text):
        if word in FORMATS:
            if not arguments:
                raise NotSupportedError("format has more places than values")
            pieces.append(FORMATS[word](arguments.pop(0)))
        else:
            literal = {"kind": "STRING", "text": "%" if word == "%%" else word}
            pieces.append({**pattern, "alias": "", "literal": literal})
    _become(node, call("concat", *pieces), alias=node["alias"])


FORMATS: dict[str, Callable[[Node], Node]] = {
    "%s": lambda node: node, "%I": lambda node: call("quote_ident", node),
    "%L": lambda node: call("quote_literal", node),
}  # fmt: skip


def _operator(node: Node) -> None:
    """`indkey[0]` is the first element of a vector."""
    children = node.get("children") or [{}]
    name = str(children[0].get("column_names", [""])[-1]).lower()
    if node["type"] == "ARRAY_EXTRACT" and name in VECTORS:
        node["children"] = [children[0], {**call("+", children[1], ONE), "is_operator": True}]


ONE: Node = {**NULL, "alias": "", "literal": {"kind": "INTEGER", "text": "1"}}


def _subquery(node: Node) -> None:
    """`x = ANY(ARRAY(SELECT ..))` looks among the elements."""
    query = node["subquery"]["node"] if node["subquery_type"] == "ANY" else {}
    for projection in query.get("select_list", ())[:1]:
        if projection.get("class") == "CASE" and "array_agg" in str(projection["case_checks"][:1]):
            query["select_list"] = [call("unnest", projection)]


def _cast(node: Node) -> None:
    kind, child, alias = node["type_expr"], node["child"], node["alias"]
    type_name = kind["type_name"].lower()
    type_name = ALIKE.get(type_name, type_name)
    if type_name == "list" and kind.get("children"):
        element = kind["children"][0]
        element_name = element["type_name"].lower()
        other = NUMBERS.get(element_name, "BIGINT" if element_name in OBJECTS else element["type_name"])
        _set_type(element, "VARCHAR" if element_name in TEXTS else other)
        _listed(child)
    elif type_name in OBJECTS:
        _become(node, call(f"{type_name}_oid", child))
    elif type_name in TEXTS:
        _set_type(kind, "VARCHAR")
        _name_of_object(child)
    elif type_name == "varchar":
        _name_of_object(child)
    elif type_name in NUMBERS:
        _set_type(kind, NUMBERS[type_name])
        if _object_of(child):
            _become(node, child)
    elif type_name in ("numeric", "decimal") and not kind.get("children"):
        # a number without a stated scale has as many digits as are written
        text = (child.get("literal") or {}).get("text", "")
        _, point, fraction = text.partition(".")
        if child.get("class") == "CONSTANT" and point and fraction.isdigit() and len(fraction) < DIGITS:
            whole = [{"kind": "INTEGER", "text": str(n)} for n in (DIGITS, len(fraction))]
            sizes = [{**child, "alias": "", "literal": literal} for literal in whole]
            kind |= {"type_name": "DECIMAL", "children": sizes, "qualified_name": {"path": ["DECIMAL"]}}
    elif type_name in ("timestamptz", "timestamp with time zone"):
        _set_type(kind, "TIMESTAMP")  # in universal time
    elif kind.get("schema", "").lower() == "pg_catalog":
        _set_type(kind, kind["type_name"])
    node["alias"] = alias


DIGITS = 38
"""Of a DECIMAL of DuckDB."""


def _set_type(kind: Node, name: str) -> None:
    element = name.removesuffix("[]")
    if element != name:
        inner = {**kind, "children": []}
        _set_type(inner, element)
        kind["children"], name = [inner], "list"
    kind |= {"type_name": name, "schema": "", "qualified_name": {"path": [name]}}


def _listed(node: Node) -> None:
    """A text such as `{1,2}` where a list is wanted becomes the list."""
    text = (node.get("literal") or {}).get("text", "")
    if node.get("class") != "CONSTANT" or not text.startswith("{"):
        return
    words = [quoted or bare for quoted, bare in ELEMENT.findall(text[1:]) if quoted or bare]
    kind = "INTEGER" if all(INTEGER.fullmatch(word) for word in words) else "STRING"
    elements = [{**node, "alias": "", "literal": {"kind": kind, "text": word}} for word in words]
    _become(node, call("list_value", *elements))


def _object_of(node: Node) -> str:
    """The type whose object a node is the number of; empty for anything else."""
    name = str(node.get("function_name", ""))
    return name.removesuffix("_oid") if name.endswith("_oid") and name.removesuffix("_oid") in OBJECTS else ""


def _name_of_object(node: Node) -> None:
    """A number of an object becomes its name, where the text of it is wanted."""
    alias = node.get("alias", "")
    if kind := _object_of(node):
        _become(node, call(f"{kind}_name", dict(node)))
    elif node.get("class") == "COLUMN_REF" and node["column_names"][-1].lower() in REGPROC:
        _become(node, call("regproc_name", dict(node)))
        alias = alias or node["arguments"][0]["expression"]["column_names"][-1]
    elif node.get("class") == "CAST":
        name = node["type_expr"]["type_name"].lower()
        name = ALIKE.get(name, name)
        if name in OBJECTS:
            alias = alias or _cast_name(node)
            _become(node, call(f"{name}_name", call(f"{name}_oid", node["child"])))
    node["alias"] = alias


def _become(node: Node, other: Node, **fields: Any) -> None:
    values = {**other, **fields}
    node.clear()
    node |= values


CHANGES: dict[str, Callable[[Node], None]] = {
    "COLUMN_REF": _column, "FUNCTION": _function, "CAST": _cast,
    "COLLATE": lambda node: _become(node, node["child"], alias=node["alias"] or node["child"].get("alias", "")),
    "OPERATOR": _operator, "SUBQUERY": _subquery,
}  # fmt: skip


def name_columns(tree: Node) -> None:
    """Give the columns of every query the names that PostgreSQL gives them: other parts may refer to these."""
    for query in walk(tree):
        for node in query.get("select_list") or ():
            called = node.get("class") in ("FUNCTION", "WINDOW", "CASE", "CAST") and not node.get("alias")
            if called and name_of(node) != "?column?":
                node["alias"] = name_of(node)


def names_of(tree: Node) -> list[str | None]:
    """The names that PostgreSQL gives to the columns of a query; None for a `*`."""
    return [None if node.get("class") == "STAR" else name_of(node) for node in outermost(tree)["select_list"]]


def name_of(node: Node) -> str:
    """The name of one column.

    >>> name_of({"class": "CONSTANT", "alias": ""}), name_of({"class": "COLUMN_REF", "column_names": ["c", "oid"]})
    ('?column?', 'oid')
    """
    called = NAMES.get(str(node.get("class")))
    return str(node.get("alias") or (called(node) if called else "?column?"))


def _function_name(node: Node) -> str:
    name = str(node["function_name"])
    if node.get("is_operator") or name in ("regexp_matches", "~~", "~~*", "!~~"):
        return "?column?"
    return {"count_star": "count", "list_value": "array"}.get(name, name)


def _cast_name(node: Node) -> str:
    child, kind = node["child"], node["type_expr"]
    while child.get("class") == "CAST":
        child = child["child"]
    while kind.get("children") and kind["type_name"] == "list":
        kind = kind["children"][0]
    name, written = name_of(child), str(kind["type_name"])
    weak = child.get("class") in ("CASE", "CONSTANT") or name == "?column?"
    return SHORT.get(written.upper(), written.lower()) if weak else name


def _case_name(node: Node) -> str:
    name = name_of(node["else_expr"]) if node.get("else_expr") else "?column?"
    return "case" if name == "?column?" else name


def _operator_name(node: Node) -> str:
    if node["type"] == "ARRAY_EXTRACT":
        return name_of(node["children"][0])
    if node["type"] == "STRUCT_EXTRACT":
        return str(node["children"][1]["literal"]["text"])
    return NAMED_OPERATORS.get(node["type"], "?column?")


def _subquery_name(node: Node) -> str:
    if node["subquery_type"] == "EXISTS":
        return "exists"
    if node["subquery_type"] != "SCALAR":
        return "?column?"
    query = node["subquery"]["node"]
    if "select_list" not in query:
        return "?column?"
    first = query["select_list"][0]
    if first.get("class") == "CASE" and "array_agg" in str(first["case_checks"][:1]):
        return "array"  # of ARRAY(SELECT ..), as DuckDB's parser writes it
    return name_of(first)


NAMES: dict[str, Callable[[Node], str]] = {
    "COLUMN_REF": lambda node: str(node["column_names"][-1]), "FUNCTION": _function_name, "WINDOW": _function_name,
    "CAST": _cast_name, "CASE": _case_name,
    "OPERATOR": _operator_name, "SUBQUERY": _subquery_name, "COLLATE": lambda node: name_of(node["child"]),
}  # fmt: skip
