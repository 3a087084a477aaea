"""SQLAlchemy dialect, for 1.4 and 2.x: `create_engine("dpsql:////abs/path/retail.dpsql?also=other.dpsql")`.

Read-only: the inspector shows the star and the wide table as tables, with comments that carry domain and
use; statements that would write are refused by the engine. Several `also=` releases of one population are
alternatives.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from sqlalchemy import exc, types
from sqlalchemy.engine import Connection
from sqlalchemy.engine.default import DefaultDialect
from sqlalchemy.engine.url import URL
from sqlalchemy.sql import compiler

from dpsql.interfaces.python.describe import TableInfo, describe

TYPES: Mapping[str, Any] = {
    "TINYINT": types.SmallInteger,
    "SMALLINT": types.SmallInteger,
    "INTEGER": types.Integer,
    "BIGINT": types.BigInteger,
    "HUGEINT": types.BigInteger,
    "FLOAT": types.Float,
    "DOUBLE": types.Float,
    "DECIMAL": types.Numeric,
    "BOOLEAN": types.Boolean,
    "DATE": types.Date,
    "TIME": types.Time,
    "TIMESTAMP": types.DateTime,
}

SCHEMA = "main"

SWITCHES, WORDS = ("insecure", "nonnegative", "combine"), ("on_partial_bin", "as_of", "require_signature")
"""URL options that `dpsql.connect` takes: true or false, and text."""


class DpsqlCompiler(compiler.SQLCompiler):
    """Statements as DuckDB reads them."""

    def limit_clause(self, select: Any, **kw: Any) -> str:
        """LIMIT and OFFSET, each without the other if the other is absent."""
        clauses = [("LIMIT", select._limit_clause), ("OFFSET", select._offset_clause)]
        return "".join(
            f"\n {word} {self.process(clause, **kw)}" for word, clause in clauses if clause is not None
        )

    def visit_mod_binary(self, binary: Any, operator: Any, **kw: Any) -> str:
        """The remainder; its sign is never doubled, because parameters are question marks."""
        return f"{self.process(binary.left, **kw)} % {self.process(binary.right, **kw)}"


class DpsqlDialect(DefaultDialect):
    """The dialect: connects, reflects, and leaves everything else to the standard compiler."""

    name = "dpsql"
    driver = "dpsql"
    default_paramstyle = "qmark"
    statement_compiler = DpsqlCompiler
    supports_statement_cache = True
    supports_native_boolean = True
    supports_native_decimal = True
    supports_alter = False
    supports_sane_rowcount = False
    supports_sane_multi_rowcount = False
    supports_comments = True
    supports_default_values = False
    supports_empty_insert = False
    supports_multivalues_insert = False
    postfetch_lastrowid = False
    div_is_floordiv = False

    @classmethod
    def import_dbapi(cls) -> ModuleType:
        """The DB-API module, as 2.x asks for it."""
        import dpsql

        return dpsql

    @classmethod
    def dbapi(cls) -> ModuleType:  # type: ignore[override]  # 1.4 calls it, 2.x replaces it on the instance
        """The DB-API module, as 1.4 asks for it."""
        return cls.import_dbapi()

    def create_connect_args(self, url: URL) -> tuple[list[str], dict[str, Any]]:
        """The release in the URL's path, then every `also=`; the other options go to `dpsql.connect`."""
        also = url.query.get("also", ())
        paths = [url.database or "", *([also] if isinstance(also, str) else also)]
        if not paths[0]:
            raise exc.ArgumentError("the URL names no release; write dpsql:////abs/path/retail.dpsql")
        unknown = sorted(set(url.query) - {"also", *SWITCHES, *WORDS})
        if unknown:
            options_there = ", ".join(("also", *SWITCHES, *WORDS))
            raise exc.ArgumentError(f"unknown URL option {unknown[0]}; there are {options_there}")
        options: dict[str, Any] = {word: url.query[word] for word in WORDS if word in url.query}
        options |= {word: url.query[word] == "true" for word in SWITCHES if word in url.query}
        return paths, options

    def do_ping(self, dbapi_connection: Any) -> bool:
        """True if the releases are still open."""
        dbapi_connection.execute("SELECT 1")
        return True

    def _get_server_version_info(self, connection: Connection) -> tuple[int, ...]:
        import dpsql

        return tuple(int(number) for number in dpsql.__version__.split("."))

    def _get_default_schema_name(self, connection: Connection) -> str:
        return SCHEMA

    def _check_unicode_returns(self, *arguments: Any, **kw: Any) -> bool:
        return True

    _check_unicode_description = _check_unicode_returns

    def get_isolation_level(self, dbapi_connection: Any) -> Any:
        """Nothing is ever written, so every statement sees the same rows."""
        return "SERIALIZABLE"

    def get_default_isolation_level(self, dbapi_conn: Any) -> Any:
        return "SERIALIZABLE"

    def get_schema_names(self, connection: Connection, **kw: Any) -> list[str]:
        """`main` for one release; with several the name of each catalog besides."""
        names = [release.name for release in _releases(connection)]
        return [SCHEMA, *names] if len(names) > 1 else [SCHEMA]

    def get_table_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """The star's tables and the wide table, because BI tools make datasets of tables."""
        return list(_tables(connection, schema))

    def get_view_names(self, connection: Connection, schema: str | None = None, **kw: Any) -> list[str]:
        """None: every relation is listed as a table."""
        return []

    def has_table(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> bool:
        """True if a statement may name the table."""
        return table_name.lower() in {name.lower() for name in _tables(connection, schema)}

    def get_columns(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        """Columns with types and comments."""
        return [
            {
                "name": column.name,
                "type": TYPES.get(column.type.split("(")[0].upper(), types.String)(),
                "nullable": column.nullable,
                "default": None,
                "autoincrement": False,
                "comment": column.comment,
            }
            for column in _table(connection, table_name, schema).columns
        ]

    def get_pk_constraint(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        """The key of a dimension."""
        key = _table(connection, table_name, schema).key
        return {"constrained_columns": [key] if key else [], "name": None}

    def get_foreign_keys(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        return [
            {
                "name": None,
                "constrained_columns": [column],
                "referred_schema": schema,
                "referred_table": target,
                "referred_columns": [key],
                "options": {},
            }
            for column, (target, key) in _table(connection, table_name, schema).references.items()
        ]

    def get_table_comment(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> Any:
        return {"text": _table(connection, table_name, schema).comment}

    def get_indexes(
        self, connection: Connection, table_name: str, schema: str | None = None, **kw: Any
    ) -> list[Any]:
        return []

    get_unique_constraints = get_check_constraints = get_indexes


def _releases(connection: Connection) -> tuple[Any, ...]:
    """Open releases behind a SQLAlchemy connection."""
    raw: Any = connection.connection
    releases: tuple[Any, ...] = raw.session.releases
    return releases


def _tables(connection: Connection, schema: str | None) -> dict[str, TableInfo]:
    """Table name -> description, of every release that the schema name means."""
    wanted = (schema or SCHEMA).lower()
    return {
        table.name: table
        for release in reversed(_releases(connection))
        if wanted in (SCHEMA, release.name.lower())
        for table in describe(release)
    }


def _table(connection: Connection, name: str, schema: str | None) -> TableInfo:
    for table_name, table in _tables(connection, schema).items():
        if table_name.lower() == name.lower():
            return table
    raise exc.NoSuchTableError(name)
