"""The catalogue that psql and drivers ask: PostgreSQL's relations about a star, in an in-memory DuckDB.

rewrite    a statement as DuckDB's parser reads it, and PostgreSQL's spellings turned into DuckDB's
relations  pg_catalog and information_schema with their rows

It holds public names and types alone, is locked down like a release, and takes SELECT alone.

A query is made of what is listed: tables of the catalogue, listed functions, texts that stay short. DuckDB itself
parses it, so what is checked is what will run. A part that is on no list is refused: a driver that needs more shows
which one, an attacker finds no clock, no sleep and no source of rows. One query may recurse, over the relations alone:
it builds no text and no list, and ends with the time that a catalogue query has.

Functions of PostgreSQL that catalogue queries call are DuckDB's macros. They read the catalogue's relations or give a
constant. What a read-only star does not have (triggers, rules, views, partitions) is NULL; privileges are those of
somebody who may read.
"""

from __future__ import annotations

import datetime
import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import duckdb

from dpsql.errors import NotSupportedError, UnknownTable
from dpsql.interfaces.pgwire import relations
from dpsql.interfaces.pgwire.protocol import OIDS_BY_NAME, TYPES, WireColumn, oid_of
from dpsql.interfaces.pgwire.rewrite import (
    Node,
    name_columns,
    names_of,
    outermost,
    parse,
    rewrite,
    walk,
    written,
)
from dpsql.interfaces.python.describe import TableInfo
from dpsql.release.read import LOCKDOWN
from dpsql.row_expressions import literal
from dpsql.row_expressions.expression import check_text

READING = "('select', 'usage', 'connect', 'execute', 'temp', 'temporary')"
NULLS = {
    "pg_get_expr": (2, 3), "pg_get_ruledef": (1, 2), "pg_get_triggerdef": (1, 2), "pg_get_viewdef": (1, 2),
    "pg_get_partkeydef": (1,), "pg_get_statisticsobjdef_columns": (1,), "pg_get_function_result": (1,),
    "pg_get_function_arguments": (1,), "pg_get_function_identity_arguments": (1,), "pg_get_functiondef": (1,),
    "pg_get_function_sqlbody": (1,), "pg_get_serial_sequence": (2,), "pg_tablespace_location": (1,),
    "shobj_description": (2,), "inet_server_addr": (0,), "inet_server_port": (0,), "inet_client_addr": (0,),
    "pg_last_xact_replay_timestamp": (0,), "pg_get_partition_constraintdef": (1,), "pg_sequence_last_value": (1,),
    "pg_get_statisticsobjdef": (1,), "pg_get_object_address": (3,),
}  # fmt: skip
"""Functions of what a star does not have, with how many arguments they may get."""
TRUE = ("pg_table_is_visible", "pg_type_is_visible", "pg_function_is_visible", "pg_collation_is_visible",
        "pg_operator_is_visible", "pg_opclass_is_visible", "pg_conversion_is_visible", "pg_ts_config_is_visible",
        "pg_ts_dict_is_visible", "pg_ts_parser_is_visible", "pg_ts_template_is_visible", "pg_opfamily_is_visible",
        "pg_statistics_obj_is_visible")  # fmt: skip
PRIVILEGES = ("table", "any_column", "schema", "database", "sequence", "tablespace", "type", "language", "function",
              "server", "foreign_data_wrapper")  # fmt: skip
SIZES = ("pg_table_size", "pg_relation_size", "pg_total_relation_size", "pg_indexes_size", "pg_database_size",
         "pg_tablespace_size")  # fmt: skip
LAST = "regexp_replace(replace(x::VARCHAR, '\"', ''), '^.*\\.', '')"
"""The last part of a name with its schema."""

MACROS: dict[str, str] = {
    "regclass_oid": f"(x) AS CASE WHEN x IS NULL THEN NULL ELSE coalesce(TRY_CAST(x AS BIGINT), (SELECT min(c.oid) "
                    f"FROM pg_class AS c WHERE c.relname = {LAST}), error('42P01')) END",
    "regclass_name": "(x) AS coalesce((SELECT c.relname FROM pg_class AS c WHERE c.oid = x), x::VARCHAR)",
    "to_regclass": f"(x) AS (SELECT min(c.oid) FROM pg_class AS c WHERE c.relname = {LAST})",
    "regtype_oid": "(x) AS coalesce(TRY_CAST(x AS BIGINT), to_regtype(x))",
    "regtype_name": "(x) AS coalesce(format_type(x, NULL), x::VARCHAR)",
    "to_regtype": "(x) AS (SELECT min(t.oid) FROM type_names AS t WHERE t.spelling = replace("
                  "replace(x::VARCHAR, '\"', ''), 'pg_catalog.', ''))",
    "format_type": "(kind, modifier) AS (SELECT min(t.name) FROM type_names AS t WHERE t.oid = kind)",
    "regproc_oid": f"(x) AS coalesce(TRY_CAST(x AS BIGINT), (SELECT min(p.oid) FROM pg_proc AS p "
                   f"WHERE p.proname = {LAST}))",
    "regproc_name": "(x) AS CASE WHEN x = 0 THEN '-' ELSE coalesce((SELECT p.proname FROM pg_proc AS p "
                    "WHERE p.oid = x), x::VARCHAR) END",
    "regnamespace_oid": "(x) AS coalesce(TRY_CAST(x AS BIGINT), to_regnamespace(x))",
    "regnamespace_name": "(x) AS coalesce((SELECT n.nspname FROM pg_namespace AS n WHERE n.oid = x), x::VARCHAR)",
    "to_regnamespace": f"(x) AS (SELECT min(n.oid) FROM pg_namespace AS n WHERE n.nspname = {LAST})",
    "regrole_oid": "(x) AS coalesce(TRY_CAST(x AS BIGINT), 10)",
    "regrole_name": "(x) AS 'dpsql'",
    "pg_get_userbyid": "(role) AS 'dpsql'",
    "current_user": "() AS 'dpsql'", "session_user": "() AS 'dpsql'", "user": "() AS 'dpsql'",
    "current_role": "() AS 'dpsql'", "current_schema": "() AS 'public'",
    "current_schemas": "(implicit) AS CASE WHEN implicit THEN ['pg_catalog', 'public'] ELSE ['public'] END",
    "pg_get_indexdef": "(number) AS (SELECT k.definition FROM key_texts AS k WHERE k.oid = number), "
                       "(number, place, pretty) AS CASE WHEN place = 0 THEN (SELECT k.definition FROM key_texts AS k "
                       "WHERE k.oid = number) ELSE (SELECT a.attname FROM pg_attribute AS a WHERE a.attrelid = number "
                       "AND a.attnum = place) END",
    "pg_get_constraintdef": "(number) AS (SELECT k.definition FROM key_texts AS k WHERE k.oid = number), "
                            "(number, pretty) AS (SELECT k.definition FROM key_texts AS k WHERE k.oid = number)",
    "obj_description": "(number) AS (SELECT min(d.description) FROM pg_description AS d WHERE d.objoid = number "
                       "AND d.objsubid = 0), "
                       "(number, catalogue) AS (SELECT min(d.description) FROM pg_description AS d "
                       "WHERE d.objoid = number AND d.objsubid = 0)",
    "col_description": "(number, place) AS (SELECT min(d.description) FROM pg_description AS d "
                       "WHERE d.objoid = number AND d.objsubid = place)",
    "array_upper": "(list, dimension) AS len(list)", "array_lower": "(list, dimension) AS 1",
    "_pg_expandarray": "(list) AS unnest([{'x': list[i], 'n': i} for i in range(1, len(list) + 1)])",
    "pg_partition_ancestors": "(x) AS unnest([regclass_oid(x)])", "getdatabaseencoding": "() AS 'UTF8'",
    "pg_advisory_unlock_all": "() AS NULL::VARCHAR", "system_number": "() AS 0",
    "regexp_split_to_table": "(word, pattern) AS unnest(regexp_split_to_array(word, pattern))",
    "pg_size_pretty": "(bytes) AS bytes::VARCHAR || ' bytes'",
    "quote_ident": "(word) AS CASE WHEN regexp_full_match(word, '[a-z_][a-z0-9_$]*') THEN word "
                   "ELSE '\"' || replace(word, '\"', '\"\"') || '\"' END",
    "quote_literal": "(word) AS '''' || replace(word, '''', '''''') || ''''",
    "parse_ident": "(word) AS string_split(replace(word, '\"', ''), '.')",
    "set_config": "(name, value, here) AS value",
    "pg_relation_is_publishable": "(relation) AS false", "pg_encoding_to_char": "(number) AS 'UTF8'",
    "pg_encoding_max_length": "(number) AS 4", "pg_char_to_encoding": "(name) AS 6",
    "pg_my_temp_schema": "() AS 0", "pg_is_other_temp_schema": "(number) AS false", "pg_is_in_recovery": "() AS true",
    "pg_is_wal_replay_paused": "() AS false", "pg_backend_pid": "() AS 0", "txid_current": "() AS 0",
    "pg_postmaster_start_time": "() AS TIMESTAMP '2000-01-01 00:00:00'",
    "pg_index_column_has_property": "(number, place, name) AS name IN ('asc', 'orderable', 'returnable', 'nulls_last')",
    "pg_has_role": "(role, what) AS true, (name, role, what) AS true",
    "row_security_active": "(relation) AS false", "pg_column_is_updatable": "(r, c, t) AS false",
    "pg_relation_is_updatable": "(r, t) AS 0",
}  # fmt: skip
MACROS |= dict.fromkeys(TRUE, "(x) AS true")
MACROS |= dict.fromkeys(SIZES, "(x) AS 0")
MACROS |= {
    f"has_{name}_privilege": f"(x, what) AS lower(what) IN {READING}, (role, x, what) AS lower(what) IN {READING}"
    for name in PRIVILEGES
}
MACROS["has_column_privilege"] = (
    f"(t, c, what) AS lower(what) IN {READING}, (role, t, c, what) AS lower(what) IN {READING}"
)
MACROS |= {
    name: ", ".join(f"({', '.join(f'a{i}' for i in range(count))}) AS NULL::VARCHAR" for count in counts)
    for name, counts in NULLS.items()
}

TABLE_MACROS = {
    "pg_get_keywords": "() AS TABLE SELECT word, catcode, false AS barelabel, catdesc FROM pg_keywords",
    "pg_show_all_settings": "() AS TABLE SELECT * FROM pg_settings",
    "pg_options_to_table": "(x) AS TABLE SELECT '' AS option_name, '' AS option_value WHERE false",
    "aclexplode": "(x) AS TABLE SELECT 0 AS grantor, 0 AS grantee, '' AS privilege_type, "
    "false AS is_grantable WHERE false",
    "pg_partition_tree": "(x) AS TABLE SELECT 0 AS relid, 0 AS parentrelid, true AS isleaf, 0 AS level WHERE false",
    "current_schema": "() AS TABLE SELECT 'public' AS current_schema",
    "current_database": "() AS TABLE SELECT min(datname) AS current_database FROM pg_database",
    "pg_available_extensions": "() AS TABLE SELECT '' AS name, '' AS default_version WHERE false",
}
"""Functions that stand in FROM."""


def statements(constants: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    """Statements that create every macro.

    Args:
        constants: functions without arguments and the texts that they give.
        settings: what current_setting gives.
    """
    cases = " ".join(
        f"WHEN {literal(name.lower())} THEN {literal(value)}" for name, value in settings.items()
    )
    case = f"CASE lower(n) {cases} END" if cases else "NULL::VARCHAR"
    bodies = {
        **{name: f"() AS {literal(text)}" for name, text in constants.items()},
        **MACROS, "current_setting": f"(n) AS {case}, (n, missing) AS {case}",
    }  # fmt: skip
    ordered = sorted((*bodies.items(), *TABLE_MACROS.items()), key=lambda pair: ORDER.get(pair[0], 1))
    return [f"CREATE MACRO {name}{_hygienic(name, body)}" for name, body in ordered]


def _hygienic(name: str, body: str) -> str:
    """A macro whose aliases are its own: those of a query stand in its arguments."""
    for alias in set(ALIAS.findall(body)):
        body = re.sub(rf"\b{alias}\.", f"_{name}_{alias}.", body)
        body = re.sub(rf"\bAS {alias}\b", f"AS _{name}_{alias}", body)
    return body


ALIAS = re.compile(r"FROM \w+ AS (\w)\b")
ORDER = {"format_type": -1, "to_regtype": 0, "to_regnamespace": 0}
"""Macros that others call come first."""
NAMES = frozenset({*MACROS, *TABLE_MACROS, "current_setting"})


SECONDS = 2.0
MOST_ROWS = 20_000
"""Of an answer; a star has fewer columns."""
MEMORY = "100MB"
CONSTANTS = frozenset({"version", "current_database", "current_catalog"})
FUNCTIONS = NAMES | CONSTANTS
NULL_QUOTIENTS = {"ieee_floating_point_ops": "false", "error_on_division_by_zero": "false"}
SETTINGS = {"preserve_identifier_case": "false"} | NULL_QUOTIENTS | LOCKDOWN | {"memory_limit": MEMORY}
"""`1 / 0` is NULL, as it is in answers."""


CatalogueRows = tuple[tuple[WireColumn, ...], list[tuple[Any, ...]]]
"""The answer of a catalogue query: its columns, and rows."""


def query_catalogue(
    connection: duckdb.DuckDBPyConnection, text: str, *, described: bool = False
) -> CatalogueRows:
    """Answer one catalogue query, by a cursor of its own.

    Args:
        connection: of the in-memory database, without any way out.
        text: without placeholders.
        described: whether columns are wanted and no rows.

    Raises:
        SqlSyntaxError: it does not parse.
        UnknownTable: it reads a table that PostgreSQL's catalogue does not have.
        NotSupportedError: not a SELECT, or one that this catalogue cannot answer.
    """
    check_text(text)
    cursor = connection.cursor()
    if (types := wanted_types(text)) is not None:
        oids = (OIDS_BY_NAME[kind] for kind in TREE_COLUMNS.values())
        return wire_columns(TREE_COLUMNS, oids), type_tree(cursor, types)
    timer = threading.Timer(SECONDS, cursor.interrupt)
    timer.start()
    try:
        tree = parse(cursor, text)
        names, sources = names_of(tree), [_source(node) for node in outermost(tree)["select_list"]]
        name_columns(tree)
        rewrite(tree, relations.relations().keys())
        check_catalogue_query(tree, FUNCTIONS, relations.relations().keys())
        sql = written(cursor, tree)
        done = cursor.execute(f"SELECT * FROM ({sql}) AS described LIMIT 0" if described else sql)
        heads = [(str(column[0]), str(column[1])) for column in done.description or []]
        rows = done.fetchmany(MOST_ROWS + 1)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:  # a tree of another form
        raise NotSupportedError("a part of the query is not known to the catalogue") from error
    except duckdb.Error as error:
        reason = str(error).splitlines()[0]
        if reason.endswith("42P01"):  # the macro regclass_oid can raise a text alone
            raise UnknownTable("the relation does not exist", hint="\\d lists the relations") from error
        raise NotSupportedError(f"the catalogue cannot answer this: {reason}") from error
    finally:
        timer.cancel()
    if len(rows) > MOST_ROWS:
        raise NotSupportedError(f"the catalogue's answer has more than {MOST_ROWS} rows")
    named = _spread(names, [name for name, _ in heads])
    columns = _spread(sources, [name for name, _ in heads])
    if ZONED in columns:  # a moment, which DuckDB keeps in universal time, with its zone
        moments = [c for c, column in enumerate(columns) if column == ZONED]
        rows = [
            tuple(
                v.replace(tzinfo=datetime.UTC) if c in moments and isinstance(v, datetime.datetime) else v
                for c, v in enumerate(row)
            )
            for row in rows
        ]
    oids = (_oid(kind, column) for (_, kind), column in zip(heads, columns, strict=True))
    return wire_columns(named, oids), rows


def wire_columns(names: Iterable[str], oids: Iterable[int]) -> tuple[WireColumn, ...]:
    """Columns of an answer, with the bytes of their values."""
    return tuple((name, oid, TYPES[oid].width) for name, oid in zip(names, oids, strict=True))


def _source(node: Node) -> str | None:
    """The column of a relation that a column of an answer is; empty for an expression, None for a `*`."""
    if node.get("class") == "STAR":
        return None
    if node.get("class") == "CAST":
        return ZONED if node["type_expr"]["type_name"].lower() in ZONED_TYPES else ""
    return str(node["column_names"][-1]) if node.get("class") == "COLUMN_REF" else ""


ZONED = "timestamptz"
ZONED_TYPES = frozenset({"timestamptz", "timestamp with time zone"})


def _spread(words: Sequence[str | None], names: Sequence[str]) -> list[str]:
    """Words of a select list over the columns of its answer; what a `*` gives is called as DuckDB calls it."""
    if None not in words:
        return [str(word) for word in words] if len(words) == len(names) else list(names)
    if words.count(None) > 1:
        return list(names)
    first = words.index(None)
    middle = names[first : len(names) - (len(words) - 1 - first)]
    return [*map(str, words[:first]), *middle, *map(str, words[first + 1 :])]


def _oid(kind: str, column: str) -> int:
    """PostgreSQL's type of a column: that of the relation's column where DuckDB stores it as such, else DuckDB's."""
    if column == ZONED:
        return OIDS_BY_NAME[ZONED]
    pg_type = relations.column_types().get(column.lower(), "")
    if pg_type in SHOWN and relations.STORED.get(pg_type, "VARCHAR") == kind:
        return OIDS_BY_NAME[SHOWN[pg_type]]
    return oid_of(kind)


SHOWN: Mapping[str, str] = {
    "oid": "oid", "name": "name", "char": "char", "int2vector": "int2vector", "oidvector": "oidvector",
    "_oid": "_oid", "_int2": "_int2", "_text": "_text",
}  # fmt: skip
"""PostgreSQL's types that DuckDB has no type for."""


def make_catalogue(
    tables: Sequence[tuple[str, TableInfo]],
    database: str,
    version: str,
    settings: Mapping[str, str] | None = None,
) -> duckdb.DuckDBPyConnection:
    """List a star as PostgreSQL would, in memory, without any way out.

    Args:
        tables: (release name, table) of everything a statement may name.
        database: what current_database() says.
        version: of dpsql.
        settings: what pg_settings shows.
    """
    connection = duckdb.connect(":memory:")
    relations.fill(connection, tables, database)
    keywords, *lines = relations.keywords()
    connection.execute(f"CREATE TABLE pg_keywords ({', '.join(f'{name} VARCHAR' for name in keywords)})")
    connection.execute(
        "INSERT INTO pg_keywords SELECT unnest(?), unnest(?), unnest(?)",
        [*map(list, zip(*lines, strict=True))],
    )
    for name, value in (settings or {}).items():
        connection.execute(
            "INSERT INTO pg_settings (name, setting, vartype) VALUES (?, ?, 'string')", [name, value]
        )
    constants = {
        "version": f"PostgreSQL 15.0 (dpsql {version})", "current_database": database, "current_catalog": database,
    }  # fmt: skip
    for statement in statements(constants, settings or {}):
        connection.execute(statement)
    for setting, locked in SETTINGS.items():
        connection.execute(f"SET GLOBAL {setting} = '{locked}'")
    return connection


# asyncpg asks about types that it does not know, with their elements, bounds and bases, all the way down: a recursive
# query whose parts are recursive queries again, over every type and column. DuckDB works out all of them for all types
# and runs out of memory, so the text is known here and its answer walked from `pg_type`.
TREE_BEGINS = re.compile(r"\s*WITH\s+RECURSIVE\s+typeinfo_tree\s*\(", re.IGNORECASE)
TREE_WANTED = re.compile(
    r"ti\.oid\s*=\s*any\s*\(\s*(?:ARRAY\s*\[([\d,\sNUL]*)\]|'\{([\d,]*)\}')(?:::oid\[\])?\s*\)", re.IGNORECASE
)
TREE_COLUMNS = {
    "oid": "oid", "ns": "name", "name": "name", "kind": "char", "basetype": "oid", "elemtype": "oid",
    "elemdelim": "char", "range_subtype": "oid", "attrtypoids": "_oid", "attrnames": "_text", "depth": "int4",
    "basetype_name": "text", "elemtype_name": "text", "range_subtype_name": "text",
}  # fmt: skip
"""Columns of the answer with PostgreSQL's types."""
TREE_TYPES = """SELECT t.oid, n.nspname, t.typname, t.typtype, nullif(t.typbasetype, 0), t.typelem, e.typdelim,
    coalesce(r.rngsubtype, m.rngsubtype), format_type(nullif(t.typbasetype, 0), NULL), format_type(t.typelem, NULL),
    format_type(coalesce(r.rngsubtype, m.rngsubtype), NULL)
FROM pg_type AS t JOIN pg_namespace AS n ON n.oid = t.typnamespace LEFT JOIN pg_range AS r ON r.rngtypid = t.oid
    LEFT JOIN pg_range AS m ON m.rngmultitypid = t.oid
    LEFT JOIN pg_type AS e ON e.oid = t.typelem AND t.typlen = -1 AND t.typelem <> 0 WHERE list_contains(?, t.oid)"""


def wanted_types(text: str) -> list[int] | None:
    """The types that a statement asks for; None if it is another question."""
    match = TREE_WANTED.search(text) if TREE_BEGINS.match(text) else None
    return None if match is None else list(map(int, re.findall(r"\d+", match[1] or match[2] or "")))


def type_tree(cursor: duckdb.DuckDBPyConnection, oids: list[int]) -> list[tuple[Any, ...]]:
    """The types and all that they are made of, the innermost first."""
    rows: list[tuple[Any, ...]] = []
    depth = 0
    while oids:
        level = cursor.execute(TREE_TYPES, [oids]).fetchall()
        rows += [(*row[:8], None, None, depth, *row[8:]) for row in level]
        seen = {row[0] for row in rows}
        oids = list({oid for row in level for oid in (row[4], row[5], row[7]) if oid} - seen)
        depth += 1
    return rows[::-1]


LISTED = frozenset([
    "||", "concat", "concat_ws", "+", "-", "*", "/", "%", "~~", "!~~", "~~*", "!~~*", "like_escape", "not_like_escape",
    "ilike_escape", "not_ilike_escape", "lower", "upper", "length", "trim", "ltrim", "rtrim", "left", "right",
    "substring", "substr", "position", "strpos", "split_part", "replace", "regexp_matches", "regexp_full_match",
    "regexp_replace", "starts_with", "prefix", "suffix", "contains", "array_to_string", "array_agg", "string_agg",
    "list_value", "unnest", "array_length", "len", "list_contains", "array_contains", "list_extract", "array_extract",
    "array_position", "count", "count_star", "min", "max", "sum", "bool_or", "bool_and", "any_value", "row_number",
    "rank", "generate_series", "generate_subscripts", "string_to_array", "string_split", "list_sort", "quote_nullable",
    "pg_typeof", "ascii", "reverse", "dense_rank", "lag", "lead", "date_trunc", "epoch", "instr", "initcap", "ceil",
    "floor", "sign", "mod", "list_concat", "array_concat", "array_append", "array_cat", "abs", "round", "greatest",
    "least", "nullif", "coalesce", "ifnull", "date_part", "error", "row", "&", "|", "regexp_split_to_array",
])  # fmt: skip
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
        for query in walk(tree["statements"][0]["node"]):
            if str(query.get("type", "")).endswith("_NODE"):
                growth *= 1 + _check_query(query, macros)
        local = {cte["key"].lower() for node in walk(tree) for cte in node.get("cte_map", {}).get("map", ())}
        for node in walk(tree):
            if node.get("type") == "BASE_TABLE":
                name = node["table_name"]
                elsewhere = node["schema_name"] or node["catalog_name"]
                if elsewhere or (name not in relations and name.lower() not in local):
                    raise NotSupportedError(f"table {name} is not part of the catalogue")
    except (KeyError, TypeError, ValueError) as error:  # of another version of DuckDB: nothing is let through
        raise NotSupportedError("a part of the query is not known to the catalogue") from error
    if growth > MOST_GROWTH:
        raise NotSupportedError("a text of the catalogue would become too long")
    recursive = {node["cte_name"] for node in walk(tree) if node.get("type") == RECURSIVE}
    if len(recursive) > MOST_RECURSIVE:
        raise NotSupportedError(f"the catalogue takes at most {MOST_RECURSIVE} recursive queries")


def _check_query(query: Node, macros: Collection[str]) -> int:
    """Number of parts of one query, its subqueries apart; refused if one is on no list."""
    if query["type"] not in QUERIES:
        raise NotSupportedError("the catalogue takes no such query")
    joined, recursive = 0, query["type"] == RECURSIVE
    for node in (
        walk(query) if recursive else _parts([value for key, value in query.items() if key != "type"])
    ):
        name = node.get("function_name", "")
        if recursive and (name in GROWING or name in SERIES):
            raise NotSupportedError(f"a recursive query of the catalogue takes no {name}")
        if name and name.lower() not in LISTED and name.lower() not in macros:
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
    constant = argument.get("literal") or {}
    return constant.get("kind") == "INTEGER" and abs(int(constant["text"])) <= MOST_SERIES


def _parts(node: object) -> Iterator[Node]:
    """Nodes of one query, without those of its subqueries."""
    if isinstance(node, list):
        for child in node:
            yield from _parts(child)
    elif isinstance(node, dict) and not str(node.get("type", "")).endswith("_NODE"):
        yield node
        for child in node.values():
            yield from _parts(child)
