"""Functions of PostgreSQL that catalogue queries call, as DuckDB's macros.

They read the catalogue's relations or give a constant. What a read-only star does not have (triggers, rules, views,
partitions) is NULL; privileges are those of somebody who may read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

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
                  "replace(x::VARCHAR, 'pg_catalog.', ''), '\"', ''))",
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
    "current_role": "() AS 'dpsql'", "current_schema": "() AS 'main'",
    "current_schemas": "(implicit) AS CASE WHEN implicit THEN ['pg_catalog', 'main'] ELSE ['main'] END",
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
    "pg_available_extensions": "() AS TABLE SELECT '' AS name, '' AS default_version WHERE false",
}
"""Functions that stand in FROM."""


def statements(constants: Mapping[str, str], settings: Mapping[str, str]) -> list[str]:
    """Statements that create every macro.

    Args:
        constants: functions without arguments and the texts that they give.
        settings: what current_setting gives.
    """
    cases = " ".join(f"WHEN {_text(name.lower())} THEN {_text(value)}" for name, value in settings.items())
    case = f"CASE lower(n) {cases} END" if cases else "NULL::VARCHAR"
    bodies = {
        **{name: f"() AS {_text(text)}" for name, text in constants.items()},
        **MACROS, **TABLE_MACROS, "current_setting": f"(n) AS {case}, (n, missing) AS {case}",
    }  # fmt: skip
    ordered = sorted(bodies.items(), key=lambda pair: ORDER.get(pair[0], 1))
    return [f"CREATE MACRO {name}{_hygienic(name, body)}" for name, body in ordered]


def _text(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


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
