"""PostgreSQL: tables of a server, counted where they are.

    source: {kind: postgresql, root: "${SHOP_DSN}", tables: {sales: public.sales}}

Everything runs in one transaction: read-only, REPEATABLE READ (one state of all tables), with a time limit a statement.
Nothing is created. `root` is what libpq takes; its own variables, service file and password file work too, so that
no password stands in a catalog.

Columns are read by the type that the schema declares (`dpsql.engines.values`). A domain is what it is made of.

A table is known by places that neither another spelling, a rename nor a reload changes.

    postgresql+cluster://<system identifier>/<database oid>/name/<schema>/<name>    stays when a table is made anew
    postgresql+cluster://<system identifier>/<database oid>/table/<oid>             stays when a table is renamed
    postgresql+address://<host>:<port>/<database>/..                                without access to the identifier

The server resolves the name, by its search path and its own rules of case and quotes. A table stands for its partitions
and for tables that inherit from it, a view for the tables that it reads. The system identifier is drawn when a cluster
is made, an oid when a database is: one that was restored from a dump has others, and no engine can know that its people
are the same.

**Privacy**: only cells leave the server. A message names the step and SQLSTATE, never the server's own text, which may
quote a value.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

import numpy as np

from dpsql.engines.dialect import Dialect, moment, searched
from dpsql.engines.joined_rows import BATCH, engine_lost
from dpsql.engines.server import StoredTable
from dpsql.engines.values import POSTGRESQL, postgres_text
from dpsql.extras import extra
from dpsql.row_expressions import identifier, literal
from dpsql.row_expressions.typed import guarded
from dpsql.tree import IntArray

_CLUSTER, _ADDRESS = "postgresql+cluster", "postgresql+address"

_RELATIONS = """
WITH RECURSIVE reached (oid) AS (
    SELECT CAST(pg_catalog.to_regclass(%s) AS oid)
    UNION
    SELECT below.oid FROM reached CROSS JOIN LATERAL (
        SELECT i.inhrelid AS oid FROM pg_catalog.pg_inherits AS i WHERE i.inhparent = reached.oid
        UNION ALL
        SELECT d.refobjid FROM pg_catalog.pg_rewrite AS r JOIN pg_catalog.pg_depend AS d
            ON d.objid = r.oid AND d.classid = CAST('pg_catalog.pg_rewrite' AS regclass)
            AND d.refclassid = CAST('pg_catalog.pg_class' AS regclass)
        WHERE r.ev_class = reached.oid AND r.ev_type = '1'
    ) AS below
)
SELECT c.oid, n.nspname, c.relname FROM reached
JOIN pg_catalog.pg_class AS c ON c.oid = reached.oid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
ORDER BY c.oid
"""
"""A rule of the type '1' is the SELECT of a view."""

_DATABASE = """
SELECT d.oid, d.datname, pg_catalog.current_setting('port'),
    pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE')
FROM pg_catalog.pg_database AS d WHERE d.datname = pg_catalog.current_database()
"""
_IDENTIFIER = "SELECT system_identifier FROM pg_catalog.pg_control_system()"


def table_places(connection: Any, name: str) -> tuple[str, ...]:
    """The places of a table, and of the tables that it stands for.

    Args:
        connection: an open psycopg connection.
        name: the table as SQL writes it.

    Returns:
        Two places for each relation; none where there is no such table.

    **Privacy**: reads the server's catalogs alone.
    """
    relations = connection.execute(_RELATIONS, (name,)).fetchall()
    database = _database_place(connection)
    return tuple(
        f"{database}/{place}"
        for oid, schema, relation in relations
        for place in (f"name/{_quoted(schema)}/{_quoted(relation)}", f"table/{oid}")
    )


def is_by_address(place: str) -> bool:
    """True if a place names its server by address, since its identifier could not be read."""
    return urlsplit(place).scheme == _ADDRESS


def _database_place(connection: Any) -> str:
    oid, name, port, readable = connection.execute(_DATABASE).fetchone()
    if readable:
        (identifier,) = connection.execute(_IDENTIFIER).fetchone()
        return f"{_CLUSTER}://{identifier}/{oid}"
    return f"{_ADDRESS}://{_server_host(connection.info)}:{port}/{_quoted(name)}"


def _server_host(connection_info: Any) -> str:
    """The server's resolved address; this computer's name where it runs here, by whichever socket or interface."""
    address = str(connection_info.hostaddr)
    if not address or _is_local(address):
        return _quoted(socket.gethostname())
    return f"[{address}]" if ":" in address else address


def _is_local(address: str) -> bool:
    """True if an address is one of this computer's: only those can be bound."""
    parsed = ipaddress.ip_address(address.partition("%")[0])
    kind = socket.AF_INET6 if parsed.version == 6 else socket.AF_INET
    with socket.socket(kind, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((str(parsed), 0))
        except OSError:
            return parsed.is_loopback
    return True


def _quoted(name: object) -> str:
    return quote(str(name), safe="")


DRIVER = "postgresql"


def _instant(microseconds: int, kind: str) -> str:
    if kind == "TIMESTAMP WITH TIME ZONE":
        return f"TIMESTAMPTZ '{moment(microseconds)}+00'"
    return f"TIMESTAMP '{moment(microseconds)}'"


def _days(value: str) -> str:
    """NULL for the two infinite dates, which cannot be subtracted."""
    return f"CASE WHEN isfinite({value}) THEN CAST(({value}) - DATE '1970-01-01' AS BIGINT) END"


def _microseconds(value: str) -> str:
    """NULL outside of years 1 to 9999: the last years that the type holds overflow."""
    return (
        f"CASE WHEN ({value}) >= '0001-01-01 00:00' AND ({value}) < '10000-01-01 00:00' "
        f"THEN CAST(extract(epoch FROM {value}) * 1000000 AS BIGINT) END"
    )


def _without(value: str, characters: str) -> str:
    """No text holds NUL there."""
    return f"translate({value}, {literal(characters.replace(chr(0), ''))}, '')"


def _year(value: str) -> str:
    """There is no year 0, and infinite dates have one that no integer is."""
    before = f"CASE WHEN {value} < '0001-01-01' THEN 1 ELSE 0 END"
    return f"CASE WHEN isfinite({value}) THEN CAST(extract(year FROM {value}) AS BIGINT) + {before} END"


POSTGRES = Dialect(
    wide="NUMERIC",
    double="DOUBLE PRECISION",
    reads_any=False,
    materialised="MATERIALIZED",
    is_nan=lambda value: f"({value}) = 'NaN'",
    quotient=lambda dividend, divisor: f"({dividend}) / ({divisor})",
    wide_quotient=lambda dividend, divisor: f"div({dividend}, {divisor})",
    instant=_instant,
    days=_days,
    microseconds=_microseconds,
    months=lambda value: f"CAST(extract(year FROM {value}) * 12 + extract(month FROM {value}) - 1 AS BIGINT)",
    position=searched(postgres_text, literal),
    text=postgres_text,
    octets=lambda value: f"octet_length({value})",
    without=_without,
    number=lambda digits: f"CAST(CAST('x' || lpad({digits}, 16, '0') AS BIT(64)) AS BIGINT)",
    hex=lambda value: f"encode({value}, 'hex') COLLATE \"C\"",
    sha256=lambda prefix, text: (
        f"encode(sha256(decode('{prefix}', 'hex') || convert_to({text}, 'UTF8')), 'hex')"
    ),
    chance="random()",
    exact=lambda operation: guarded(operation, "NUMERIC"),
    year=_year,
    total=lambda value, wide: f"sum({value})",
)
"""PostgreSQL's words; settings of the session: UTC, ISO dates, standard strings. NaN equals itself there, DIV would be
NUMERIC, and the sum of a BIGINT is one."""


_COLUMNS = """
WITH RECURSIVE base AS (
    SELECT a.attnum, a.attname, t.oid, t.typbasetype, t.typtype, t.typname, a.attcollation,
           CASE WHEN t.typbasetype = 0 THEN a.atttypmod ELSE t.typtypmod END AS typmod
    FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
    WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
    UNION ALL
    SELECT b.attnum, b.attname, t.oid, t.typbasetype, t.typtype, t.typname, b.attcollation,
           CASE WHEN b.typmod = -1 AND t.typbasetype <> 0 THEN t.typtypmod ELSE b.typmod END
    FROM base AS b JOIN pg_type AS t ON t.oid = b.typbasetype WHERE b.typbasetype <> 0
)
SELECT b.attname, CASE WHEN b.typtype = 'e' THEN 'enum' ELSE format_type(b.oid, b.typmod) END, b.typname,
       coalesce(NOT c.collisdeterministic, false)
FROM base AS b LEFT JOIN pg_collation AS c ON c.oid = b.attcollation
WHERE b.typbasetype = 0 ORDER BY b.attnum
"""
"""Columns with their types, domains down to what they are made of."""


_TEXTS = ("text", "varchar", "bpchar")


def stored_type(declared: str, name: str, folds: bool) -> str:
    """A column's type as the table of source values lists it.

    Args:
        declared: as PostgreSQL writes it.
        name: of the type, without schema and length.
        folds: whether its collation takes several texts for one.

    >>> stored_type("character varying(9)", "varchar", True), stored_type("public.citext", "citext", False)
    ('text, folded', 'citext')
    """
    return "citext" if name == "citext" else "text, folded" if folds and name in _TEXTS else declared


_TABLE = """
SELECT c.oid, n.nspname, c.relname, c.relkind IN ('r', 'p')
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)
"""
_REASONS = {
    "57014": "it ran longer than allowed", "57P01": "the connection was ended", "42501": "permission denied",
    "28P01": "password refused",
}  # fmt: skip
_SETTINGS = {
    "TimeZone": "UTC", "DateStyle": "ISO", "standard_conforming_strings": "on", "extra_float_digits": "1",
    "idle_in_transaction_session_timeout": "0",
}  # fmt: skip


class PostgresSession:
    """One read-only transaction on a server.

    Args:
        dsn: what libpq takes; empty for its own variables and files.
        seconds: time limit of a statement.

    Raises:
        InterfaceError: psycopg is not installed.
        EngineLost: the server cannot be reached.
    """

    name: ClassVar[str] = POSTGRESQL
    dialect: ClassVar[Dialect] = POSTGRES

    def __init__(self, dsn: str, seconds: int) -> None:
        psycopg = extra(DRIVER)
        self._failures: type[Exception] = psycopg.Error
        with self._step("connecting"):
            self._connection = psycopg.connect(dsn, application_name="dpsql")
        try:
            with self._step("opening a read-only transaction"):
                self._connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
                self._connection.read_only = True
                for name, value in {**_SETTINGS, "statement_timeout": f"{seconds}s"}.items():
                    self._connection.execute("SELECT set_config(%s, %s, true)", (name, value))
        except BaseException:
            self.close()
            raise

    def table(self, place: str) -> StoredTable | None:
        """See `Session`; a place is a name as SQL writes it: `sales`, `shop.sales`, `"Sales"`."""
        with self._step("reading the schema"):
            matches = self._connection.execute(_TABLE, (place,)).fetchall()
            if not matches:
                return None
            oid, schema, name, is_base = matches[0]
            listed = self._connection.execute(_COLUMNS, (oid,)).fetchall()
        types = {str(column): stored_type(declared, base, folds) for column, declared, base, folds in listed}
        return StoredTable(f"{identifier(schema)}.{identifier(name)}", types, bool(is_base))

    def places(self, name: str) -> tuple[str, ...]:
        with self._step("resolving a table's name"):
            return table_places(self._connection, name)

    def rows(self, sql: str, step: str) -> list[tuple[Any, ...]]:
        with self._step(step):
            return list(self._connection.execute(sql.encode(), binary=True).fetchall())

    def columns(self, sql: str, step: str) -> Mapping[str, IntArray]:
        with self._step(step):
            cursor = self._connection.execute(sql.encode(), binary=True)
            names, rows = [column.name for column in cursor.description], cursor.fetchall()
        array = np.array(rows, np.int64).reshape(len(rows), len(names))
        return {name: array[:, i] for i, name in enumerate(names)}

    def batches(self, sql: str, step: str) -> Iterator[list[tuple[Any, ...]]]:
        with self._step(step), self._connection.cursor("dpsql_batches", binary=True) as cursor:
            cursor.execute(sql.encode())
            while rows := cursor.fetchmany(BATCH):
                yield rows

    def lookup(self, keys: str, kind: str) -> str:
        key_type = {"VARCHAR": "text", "DOUBLE": "double precision"}.get(kind, kind)
        pairs = f"jsonb_to_recordset({literal(keys)}) AS pairs(key {key_type}, leaf integer)"
        return f"(SELECT key, leaf FROM {pairs})"

    def row_hash(self, columns: Sequence[str]) -> str:
        return f"hashtextextended(CAST(ROW({', '.join(columns)}) AS text), 0)"

    def close(self) -> None:
        """End the transaction and forget the connection."""
        self._connection.close()

    @contextmanager
    def _step(self, step: str) -> Iterator[None]:
        try:
            yield
        except self._failures as error:
            state = getattr(error, "sqlstate", None)
            why = _REASONS.get(str(state), f"SQLSTATE {state}" if state else "no connection")
            raise engine_lost(self.name, step, why) from None
