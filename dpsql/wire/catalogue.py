"""pg_catalog for psql and drivers: an in-memory DuckDB with the star's tables as Postgres would list them.

The queries that psql, JDBC and ODBC send run on it after a few spellings have been changed. It holds
public names and types alone, is locked down like a release, and takes SELECT alone.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from dpsql.answer.information import data_type
from dpsql.describe import TableInfo
from dpsql.errors import NotSupportedError, ProgrammingError
from dpsql.release.read import LOCKDOWN
from dpsql.wire.catalogue_sql import EMPTY_TABLES, MACROS, TABLES
from dpsql.wire.encode import TYPE_NAMES, oid_of

FIRST_OID = 16384
NAMESPACE = 2200
SECONDS = 10.0
INSIDE = re.compile(
    r"\b(?:duckdb|pragma|read|sniff)_\w+|\bglob\s*\(|\bgetenv\s*\(|\brange\s*\(", re.IGNORECASE
)
"""DuckDB's own functions, which say nothing about the star."""


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


@dataclass
class Catalogue:
    """The in-memory database; one query at a time.

    Args:
        connection: DuckDB without any way out.
    """

    connection: duckdb.DuckDBPyConnection
    lock: threading.Lock = field(default_factory=threading.Lock)

    def query(self, text: str) -> tuple[tuple[str, ...], tuple[str, ...], list[tuple[Any, ...]]]:
        """Answer one catalogue query: (names, DuckDB types, rows).

        Raises:
            NotSupportedError: not a SELECT, or one that this catalogue cannot answer.
            ProgrammingError: it does not parse.
        """
        if INSIDE.search(text):
            raise NotSupportedError("the engine's own functions are not part of the catalogue")
        changed = text
        for pattern, replacement in REWRITES:
            changed = pattern.sub(replacement, changed)
        try:
            statements = self.connection.extract_statements(changed)
            if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                raise NotSupportedError("only SELECT is answered here")
            with self.lock:
                timer = threading.Timer(SECONDS, self.connection.interrupt)
                timer.start()
                try:
                    done = self.connection.execute(changed)
                    described = done.description or []
                    return (
                        tuple(str(c[0]) for c in described),
                        tuple(str(c[1]) for c in described),
                        done.fetchall(),
                    )
                finally:
                    timer.cancel()
        except duckdb.ParserException as error:
            raise ProgrammingError(str(error).splitlines()[0]) from error
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise NotSupportedError(f"the catalogue cannot answer this: {reason}") from error


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
        [(oid, name, -1) for oid, name in TYPE_NAMES.items()],
    )
    oids = {table.name.lower(): FIRST_OID + i for i, (_, table) in enumerate(tables)}
    for _, table in tables:
        _add_table(connection, table, oids)
    for setting, value in LOCKDOWN.items():
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
            [table.name, column.name, number, "YES" if column.nullable else "NO", kind, TYPE_NAMES[kind]],
        )


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
