"""A DB-API whose tables are plain DuckDB in memory, and the dialect over it.

SQLAlchemy's suite makes tables and writes rows; a release has neither. So the suite drives dpsql's dialect
(compiler, types, parameters, result rows) against the tables it made, while the tests of the dialect over
releases are in tests/interfaces/test_sqlalchemy.py. Parameters go through dpsql's own literal binding.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import duckdb

import dpsql
from dpsql.interfaces.python.dbapi import bind, type_of
from dpsql.interfaces.python.sqlalchemy import DpsqlDialect

DATABASES: dict[str, duckdb.DuckDBPyConnection] = {}


class Cursor:
    """Executes bound text on DuckDB."""

    arraysize = 1
    lastrowid = None

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.rows: list[Any] = []
        self.description: Any = None
        self.rowcount = -1

    def execute(self, text: str, parameters: Any = None) -> Cursor:
        self.connection.begin()
        try:
            done = self.connection.raw.execute(bind(text, parameters))
        except duckdb.ConstraintException as error:
            raise dpsql.IntegrityError(str(error)) from error
        except duckdb.Error as error:
            raise dpsql.ProgrammingError(str(error)) from error
        reads = (
            text.lstrip().upper().startswith(("SELECT", "WITH", "VALUES", "(")) or "RETURNING" in text.upper()
        )
        names = done.description if reads else None
        self.description = names and [(name, type_of(str(kind)), *[None] * 5) for name, kind, *_ in names]
        self.rows = done.fetchall() if reads else []
        return self

    def executemany(self, text: str, many: Any) -> None:
        for parameters in many:
            self.execute(text, parameters)

    def fetchone(self) -> Any:
        return self.rows.pop(0) if self.rows else None

    def fetchmany(self, size: int | None = None) -> list[Any]:
        count = size or self.arraysize
        taken, self.rows = self.rows[:count], self.rows[count:]
        return taken

    def fetchall(self) -> list[Any]:
        taken, self.rows = self.rows, []
        return taken

    def close(self) -> None:
        self.rows = []


class Connection:
    """A transaction on the shared in-memory database."""

    def __init__(self, path: str) -> None:
        shared = DATABASES.setdefault(path, duckdb.connect())
        self.raw = shared.cursor()
        self.active = False

    def begin(self) -> None:
        if not self.active:
            self.raw.begin()
            self.active = True

    def cursor(self) -> Cursor:
        return Cursor(self)

    def commit(self) -> None:
        if self.active:
            self.active = False
            self.raw.commit()

    def rollback(self) -> None:
        if self.active:
            self.active = False
            self.raw.rollback()

    def close(self) -> None:
        self.rollback()
        self.raw.close()


class StandIn(ModuleType):
    """dpsql's module with another connect."""

    def __getattr__(self, name: str) -> Any:
        return getattr(dpsql, name)

    def connect(self, path: str, **options: Any) -> Connection:
        return Connection(path)


class SuiteDialect(DpsqlDialect):
    """dpsql's dialect; only what it connects to and how tables are found differ."""

    supports_statement_cache = True
    supports_default_values = True
    supports_empty_insert = True
    insert_returning = False

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        return StandIn("standin")

    def do_ping(self, dbapi_connection: Any) -> bool:
        return True

    def has_table(self, connection: Any, table_name: str, schema: str | None = None, **kw: Any) -> bool:
        return table_name in self.get_table_names(connection, schema)

    def get_table_names(self, connection: Any, schema: str | None = None, **kw: Any) -> list[str]:
        query = "SELECT table_name FROM duckdb_tables() WHERE schema_name = ?"
        return [row[0] for row in connection.exec_driver_sql(query, (schema or "main",))]
