"""pg_catalog for psql and drivers: an in-memory DuckDB with the star's tables as Postgres would list them.

The queries that psql, JDBC and ODBC send run on it after a few spellings have been changed. It holds public
names and types alone, is locked down like a release, and takes SELECT alone. Tables that a read-only star has no
use for stay empty: drivers join them all the same.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb

from dpsql.answer.schema import data_type
from dpsql.doors.describe import TableInfo
from dpsql.doors.wire.lists import check_catalogue_query
from dpsql.doors.wire.protocol import TYPES, oid_of
from dpsql.errors import NotSupportedError
from dpsql.release.read import LOCKDOWN
from dpsql.star.sql.guard import check_text

FIRST_OID = 16384
NAMESPACE = 2200
SECONDS = 2.0
MOST_ROWS = 20_000
"""Of an answer; a star has fewer columns."""
MEMORY = "100MB"
REWRITES = (
    (re.compile(r"\bOPERATOR\s*\(\s*pg_catalog\.(\S+?)\s*\)", re.I), r"\1"),
    (re.compile(r"\bCOLLATE\s+(?:pg_catalog\.)?\"?default\"?", re.I), ""),
    (
        re.compile(r"::(?:pg_catalog\.)?(?:oid|regclass|regtype|regproc|regnamespace)(?!\w)(?!\[)", re.I),
        "::pg_oid",
    ),
    (
        re.compile(r"::(?:pg_catalog\.)?(?:\"char\"|name|text|unknown|information_schema\.\w+)(?!\w)", re.I),
        "::VARCHAR",
    ),
    (re.compile(r"::(?:pg_catalog\.)?(?:oid|int2|regclass)\[\]", re.I), "::BIGINT[]"),
    (re.compile(r"\bpg_catalog\s*\.\s*", re.I), ""),
    (re.compile(r"\"pg_catalog\"\s*\.\s*", re.I), ""),
    (re.compile(r"\binformation_schema\.(tables|columns|schemata)\b", re.I), r"star_\1"),
    (re.compile(r"(\([^()]*\)|[\w.]+)\s*::pg_oid", re.I), r"pg_oid(\1)"),
    (re.compile(r"('(?:[^']|'')*')\s*::pg_oid", re.I), r"pg_oid(\1)"),
    (re.compile(r"\bcurrent_(?:user|role)\b(?!\s*\()|\bsession_user\b(?!\s*\()", re.I), "'dpsql'"),
    (re.compile(r"\bcurrent_(?:catalog|database)\b\s*(?:\(\s*\))?", re.I), "pg_database_name()"),
    (re.compile(r"\bversion\s*\(\s*\)", re.I), "pg_version()"),
    (re.compile(r"\bcurrent_schema\b\s*(?:\(\s*\))?", re.I), "'main'"),
)

TABLES = (
    """CREATE TABLE pg_namespace (oid BIGINT, nspname VARCHAR, nspowner BIGINT, nspacl VARCHAR)""",
    """INSERT INTO pg_namespace VALUES (11, 'pg_catalog', 10, NULL), (2200, 'main', 10, NULL),
       (13000, 'information_schema', 10, NULL)""",
    """CREATE TABLE pg_class (oid BIGINT, relname VARCHAR, relnamespace BIGINT, reltype BIGINT DEFAULT 0,
       reloftype BIGINT DEFAULT 0, relowner BIGINT DEFAULT 10, relam BIGINT DEFAULT 0, relfilenode BIGINT DEFAULT 0,
       reltablespace BIGINT DEFAULT 0, relpages BIGINT DEFAULT 0, reltuples DOUBLE DEFAULT -1,
       reltoastrelid BIGINT DEFAULT 0, relhasindex BOOLEAN DEFAULT false, relisshared BOOLEAN DEFAULT false,
       relpersistence VARCHAR DEFAULT 'p', relkind VARCHAR, relnatts BIGINT, relchecks BIGINT DEFAULT 0,
       relhasrules BOOLEAN DEFAULT false, relhastriggers BOOLEAN DEFAULT false, relhassubclass BOOLEAN DEFAULT false,
       relrowsecurity BOOLEAN DEFAULT false, relforcerowsecurity BOOLEAN DEFAULT false,
       relreplident VARCHAR DEFAULT 'n', relispartition BOOLEAN DEFAULT false, relpartbound VARCHAR,
       relacl VARCHAR, reloptions VARCHAR[], relhasoids BOOLEAN DEFAULT false)""",
    """CREATE TABLE pg_attribute (attrelid BIGINT, attname VARCHAR, atttypid BIGINT, attstattarget BIGINT DEFAULT -1,
       attlen BIGINT DEFAULT -1, attnum INTEGER, attndims BIGINT DEFAULT 0, atttypmod BIGINT DEFAULT -1,
       attnotnull BOOLEAN, atthasdef BOOLEAN DEFAULT false, attidentity VARCHAR DEFAULT '',
       attgenerated VARCHAR DEFAULT '', attisdropped BOOLEAN DEFAULT false, attcollation BIGINT DEFAULT 0,
       attstorage VARCHAR DEFAULT 'p', attcompression VARCHAR DEFAULT '', attoptions VARCHAR, attacl VARCHAR)""",
    """CREATE TABLE pg_type (oid BIGINT, typname VARCHAR, typnamespace BIGINT, typlen BIGINT, typtype VARCHAR,
       typcategory VARCHAR, typrelid BIGINT, typelem BIGINT, typbasetype BIGINT, typtypmod BIGINT,
       typcollation BIGINT DEFAULT 0, typnotnull BOOLEAN DEFAULT false, typdelim VARCHAR DEFAULT ',',
       typarray BIGINT DEFAULT 0, typinput VARCHAR DEFAULT '')""",
    """CREATE TABLE pg_description (objoid BIGINT, classoid BIGINT, objsubid INTEGER, description VARCHAR)""",
    """CREATE TABLE pg_database (oid BIGINT, datname VARCHAR, datdba BIGINT, encoding BIGINT,
       datcollate VARCHAR DEFAULT 'C', datctype VARCHAR DEFAULT 'C', daticulocale VARCHAR,
       datlocprovider VARCHAR DEFAULT 'c', datacl VARCHAR[], datallowconn BOOLEAN DEFAULT true,
       datistemplate BOOLEAN DEFAULT false)""",
    """CREATE TABLE pg_roles AS SELECT 10::BIGINT AS oid, 'dpsql' AS rolname, false AS rolsuper, true AS rolinherit,
       false AS rolcreaterole, false AS rolcreatedb, true AS rolcanlogin, -1 AS rolconnlimit,
       NULL::TIMESTAMP AS rolvaliduntil, false AS rolreplication, false AS rolbypassrls""",
    """CREATE TABLE star_tables (table_catalog VARCHAR, table_schema VARCHAR, table_name VARCHAR,
       table_type VARCHAR)""",
    """CREATE TABLE star_columns (table_catalog VARCHAR, table_schema VARCHAR, table_name VARCHAR, column_name VARCHAR,
       ordinal_position INTEGER, column_default VARCHAR, is_nullable VARCHAR, data_type VARCHAR, udt_name VARCHAR)""",
    """CREATE VIEW star_schemata AS SELECT pg_database_name() AS catalog_name, 'main' AS schema_name,
       'dpsql' AS schema_owner""",
    """CREATE VIEW pg_user AS SELECT rolname AS usename, oid AS usesysid, rolsuper AS usesuper FROM pg_roles""",
)

EMPTY = {
    "pg_attrdef": "oid BIGINT, adrelid BIGINT, adnum INTEGER, adbin VARCHAR",
    "pg_index": (
        "indexrelid BIGINT, indrelid BIGINT, indisprimary BOOLEAN, indisunique BOOLEAN, "
        "indisclustered BOOLEAN, indisvalid BOOLEAN, indisreplident BOOLEAN, indkey BIGINT[], "
        "indnatts BIGINT, indoption BIGINT[], indexprs VARCHAR, indpred VARCHAR"
    ),
    "pg_constraint": (
        "oid BIGINT, conname VARCHAR, conrelid BIGINT, confrelid BIGINT, contype VARCHAR, "
        "conkey BIGINT[], confkey BIGINT[], conparentid BIGINT, condeferrable BOOLEAN, "
        "condeferred BOOLEAN, conindid BIGINT, confupdtype VARCHAR, confdeltype VARCHAR, "
        "connamespace BIGINT"
    ),
    "pg_inherits": "inhrelid BIGINT, inhparent BIGINT, inhseqno INTEGER, inhdetachpending BOOLEAN",
    "pg_trigger": (
        "oid BIGINT, tgrelid BIGINT, tgname VARCHAR, tgisinternal BOOLEAN, tgenabled VARCHAR, "
        "tgparentid BIGINT, tgconstraint BIGINT, tgdeferrable BOOLEAN, tginitdeferred BOOLEAN"
    ),
    "pg_rewrite": "oid BIGINT, ev_class BIGINT, rulename VARCHAR, ev_enabled VARCHAR",
    "pg_policy": (
        "oid BIGINT, polname VARCHAR, polrelid BIGINT, polcmd VARCHAR, polpermissive BOOLEAN, "
        "polroles BIGINT[], polqual VARCHAR, polwithcheck VARCHAR"
    ),
    "pg_statistic_ext": (
        "oid BIGINT, stxrelid BIGINT, stxname VARCHAR, stxnamespace BIGINT, stxkind VARCHAR[], "
        "stxstattarget BIGINT"
    ),
    "pg_publication": "oid BIGINT, pubname VARCHAR, puballtables BOOLEAN",
    "pg_publication_rel": "oid BIGINT, prpubid BIGINT, prrelid BIGINT, prqual VARCHAR, prattrs BIGINT[]",
    "pg_publication_namespace": "oid BIGINT, pnpubid BIGINT, pnnspid BIGINT",
    "pg_am": "oid BIGINT, amname VARCHAR",
    "pg_collation": "oid BIGINT, collname VARCHAR, collnamespace BIGINT",
    "pg_tablespace": "oid BIGINT, spcname VARCHAR",
    "pg_foreign_table": "ftrelid BIGINT, ftserver BIGINT, ftoptions VARCHAR[]",
    "pg_foreign_server": "oid BIGINT, srvname VARCHAR",
    "pg_enum": "oid BIGINT, enumtypid BIGINT, enumlabel VARCHAR, enumsortorder DOUBLE",
    "pg_proc": "oid BIGINT, proname VARCHAR, pronamespace BIGINT, prokind VARCHAR",
    "pg_auth_members": "roleid BIGINT, member BIGINT",
    "pg_range": "rngtypid BIGINT, rngsubtype BIGINT, rngmultitypid BIGINT",
    "pg_depend": (
        "classid BIGINT, objid BIGINT, refclassid BIGINT, refobjid BIGINT, refobjsubid INTEGER, "
        "deptype VARCHAR"
    ),
    "pg_sequence": "seqrelid BIGINT, seqtypid BIGINT",
    "pg_settings": "name VARCHAR, setting VARCHAR",
}

EMPTY_TABLES = tuple(f"CREATE TABLE {name} ({columns})" for name, columns in EMPTY.items())

FORMAT_TYPE = """CREATE MACRO format_type(kind, modifier) AS CASE kind WHEN 16 THEN 'boolean' WHEN 17 THEN 'bytea'
    WHEN 20 THEN 'bigint' WHEN 21 THEN 'smallint' WHEN 23 THEN 'integer' WHEN 25 THEN 'text' WHEN 26 THEN 'oid'
    WHEN 700 THEN 'real' WHEN 701 THEN 'double precision' WHEN 1043 THEN 'character varying' WHEN 1082 THEN 'date'
    WHEN 1083 THEN 'time without time zone' WHEN 1114 THEN 'timestamp without time zone' WHEN 1700 THEN 'numeric' END"""

PG_OID = """CREATE MACRO pg_oid(word) AS coalesce(TRY_CAST(word AS BIGINT),
    (SELECT c.oid FROM pg_class AS c WHERE c.relname = replace(replace(word::VARCHAR, '"', ''), 'main.', '')),
    CASE word::VARCHAR WHEN 'pg_class' THEN 1259 WHEN 'pg_namespace' THEN 2615 END, 0)"""

MACROS = (
    FORMAT_TYPE,
    PG_OID,
    "CREATE MACRO pg_get_userbyid(role) AS 'dpsql'",
    "CREATE MACRO pg_table_is_visible(relation) AS true",
    "CREATE MACRO pg_type_is_visible(kind) AS true",
    "CREATE MACRO pg_get_expr(body, relation) AS NULL::VARCHAR, (body, relation, pretty) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_indexdef(number) AS NULL::VARCHAR, (number, place, pretty) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_constraintdef(number) AS NULL::VARCHAR, (number, pretty) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_ruledef(number) AS NULL::VARCHAR, (number, pretty) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_triggerdef(number) AS NULL::VARCHAR, (number, pretty) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_viewdef(number) AS NULL::VARCHAR, (number, pretty) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_partkeydef(number) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_statisticsobjdef_columns(number) AS NULL::VARCHAR",
    "CREATE MACRO array_upper(list, dimension) AS len(list)",
    "CREATE MACRO pg_table_size(relation) AS 0",
    "CREATE MACRO pg_size_pretty(bytes) AS bytes::VARCHAR || ' bytes'",
    "CREATE MACRO pg_get_function_result(number) AS NULL::VARCHAR",
    "CREATE MACRO pg_get_function_arguments(number) AS NULL::VARCHAR",
    "CREATE MACRO pg_function_is_visible(number) AS true",
    "CREATE MACRO pg_relation_is_publishable(relation) AS false",
    "CREATE MACRO pg_encoding_to_char(number) AS 'UTF8'",
    "CREATE MACRO pg_my_temp_schema() AS 0",
    "CREATE MACRO pg_is_in_recovery() AS true",
    "CREATE MACRO pg_backend_pid() AS 0",
    "CREATE MACRO current_schemas(implicit) AS ['pg_catalog', 'main']",
    "CREATE MACRO quote_ident(word) AS '\"' || word || '\"'",
    "CREATE MACRO set_config(name, value, here) AS value",
    "CREATE MACRO current_setting(name) AS CASE name WHEN 'server_version_num' THEN '150000' ELSE '' END",
    "CREATE MACRO has_table_privilege(relation, what) AS true, (role, relation, what) AS true",
    "CREATE MACRO has_schema_privilege(schema, what) AS true, (role, schema, what) AS true",
    "CREATE MACRO obj_description(number) AS (SELECT d.description FROM pg_description AS d WHERE d.objoid = number "
    "AND d.objsubid = 0), (number, catalogue) AS (SELECT d.description FROM pg_description AS d "
    "WHERE d.objoid = number AND d.objsubid = 0)",
    "CREATE MACRO col_description(number, place) AS (SELECT d.description FROM pg_description AS d "
    "WHERE d.objoid = number AND d.objsubid = place)",
)


OWN = frozenset({"pg_database_name", "pg_version", *(text.split()[2].partition("(")[0] for text in MACROS)})
"""Names of the catalogue's functions."""


class CatalogueRows(NamedTuple):
    """What a catalogue query gave: names of its columns, their DuckDB types, rows."""

    names: tuple[str, ...]
    types: tuple[str, ...]
    rows: list[tuple[Any, ...]]


@dataclass(frozen=True)
class Catalogue:
    """The in-memory database; each query has a cursor of its own.

    Args:
        connection: DuckDB without any way out.
    """

    connection: duckdb.DuckDBPyConnection

    def query(self, text: str) -> CatalogueRows:
        """Answer one catalogue query.

        Raises:
            NotSupportedError: not a SELECT, or one that this catalogue cannot answer.
            ProgrammingError: it does not parse.
        """
        changed = check_text(text)
        for pattern, replacement in REWRITES:
            changed = pattern.sub(replacement, changed)
        cursor = self.connection.cursor()
        timer = threading.Timer(SECONDS, cursor.interrupt)
        timer.start()
        try:
            check_catalogue_query(cursor, changed, OWN)
            done = cursor.execute(changed)
            described = done.description or []
            names, types = ([str(column[i]) for column in described] for i in (0, 1))
            rows = done.fetchmany(MOST_ROWS + 1)
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise NotSupportedError(f"the catalogue cannot answer this: {reason}") from error
        finally:
            timer.cancel()
        if len(rows) > MOST_ROWS:
            raise NotSupportedError(f"the catalogue's answer has more than {MOST_ROWS} rows")
        return CatalogueRows(tuple(names), tuple(types), rows)


def make_catalogue(tables: Sequence[tuple[str, TableInfo]], database: str, version: str) -> Catalogue:
    """List a star as Postgres would.

    Args:
        tables: (release name, table) of everything a statement may name.
        database: what current_database() says.
        version: of dpsql.
    """
    connection = duckdb.connect(":memory:")
    names = {"pg_database_name": database, "pg_version": f"PostgreSQL 15.0 (dpsql {version})"}
    facts = [f"CREATE MACRO {name}() AS {_quoted(value)}" for name, value in names.items()]
    for definition in (*facts, *TABLES, *EMPTY_TABLES, *MACROS):
        connection.execute(definition)
    connection.execute(
        "INSERT INTO pg_database (oid, datname, datdba, encoding) VALUES (1, ?, 10, 6)", [database]
    )
    connection.executemany(
        "INSERT INTO pg_type (oid, typname, typnamespace, typlen, typtype, typcategory, typrelid, typelem, "
        "typbasetype, typtypmod) VALUES (?, ?, 11, ?, 'b', 'U', 0, 0, 0, -1)",
        [(oid, kind.name, kind.width) for oid, kind in TYPES.items()],
    )
    oids = {table.name.lower(): FIRST_OID + i for i, (_, table) in enumerate(tables)}
    for _, table in tables:
        _add_table(connection, table, oids)
    for setting, value in (LOCKDOWN | {"memory_limit": MEMORY}).items():
        connection.execute(f"SET {setting} = '{value}'")
    return Catalogue(connection)


def _add_table(connection: duckdb.DuckDBPyConnection, table: TableInfo, oids: dict[str, int]) -> None:
    oid = oids[table.name.lower()]
    connection.execute(
        "INSERT INTO pg_class (oid, relname, relnamespace, relkind, relnatts, relhasindex) VALUES (?, ?, ?, 'r', ?, ?)",
        [oid, table.name, NAMESPACE, len(table.columns), False],
    )
    connection.execute("INSERT INTO pg_description VALUES (?, 1259, 0, ?)", [oid, table.comment])
    connection.execute(
        "INSERT INTO star_tables VALUES (pg_database_name(), 'main', ?, 'BASE TABLE')", [table.name]
    )
    for number, column in enumerate(table.columns, 1):
        kind = oid_of(column.type or data_type(""))
        connection.execute(
            "INSERT INTO pg_attribute (attrelid, attname, atttypid, attnum, attnotnull) VALUES (?, ?, ?, ?, ?)",
            [oid, column.name, kind, number, not column.nullable],
        )
        connection.execute("INSERT INTO pg_description VALUES (?, 1259, ?, ?)", [oid, number, column.comment])
        connection.execute(
            "INSERT INTO star_columns VALUES (pg_database_name(), 'main', ?, ?, ?, NULL, ?, format_type(?, -1), ?)",
            [table.name, column.name, number, "YES" if column.nullable else "NO", kind, TYPES[kind].name],
        )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
