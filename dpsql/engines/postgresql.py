"""PostgreSQL: tables of a server, counted where they are.

    source: {kind: postgresql, root: "${SHOP_DSN}", tables: {sales: public.sales}}

Everything runs in one transaction: read-only, REPEATABLE READ (one state of all tables), with a time limit a statement.
Nothing is created. `root` is what libpq takes; its own variables, service file and password file work too, so that
no password stands in a catalog.

Columns are read by the type that the schema declares, in a form that is the same on every engine: texts compare by
bytes and without the blanks of CHAR(n), NUMERIC has no NaN and no infinity.

**Privacy**: only cells leave the server. A message names the step and SQLSTATE, never the server's own text, which may
quote a value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np

from dpsql.engines.dialect import Dialect, moment, searched
from dpsql.engines.engine import IntArray, engine_lost
from dpsql.engines.server import Column, StoredTable
from dpsql.extras import extra
from dpsql.star.sql import identifier, literal

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


def _text(value: str) -> str:
    """A collation that is not deterministic takes two texts for one."""
    return f'CAST({value} AS text) COLLATE "C"'


POSTGRES = Dialect(
    wide="NUMERIC",
    double="DOUBLE PRECISION",
    reads_any=False,
    materialised="MATERIALIZED",
    is_nan=lambda value: f"({value}) = 'NaN'",
    quotient=lambda dividend, divisor: f"({dividend}) / ({divisor})",
    instant=_instant,
    days=_days,
    microseconds=_microseconds,
    months=lambda value: f"CAST(extract(year FROM {value}) * 12 + extract(month FROM {value}) - 1 AS BIGINT)",
    position=searched(_text, literal),
    text=_text,
    number=lambda digits: f"CAST(CAST('x' || lpad({digits}, 16, '0') AS BIT(64)) AS BIGINT)",
    hex=lambda value: f"encode({value}, 'hex') COLLATE \"C\"",
    sha256=lambda prefix, text: (
        f"encode(sha256(decode('{prefix}', 'hex') || convert_to({text}, 'UTF8')), 'hex')"
    ),
    chance="random()",
    total=lambda value, wide: f"sum({value})",
)
"""PostgreSQL's words; settings of the session: UTC, ISO dates, standard strings. NaN equals itself there, DIV would be
NUMERIC, and the sum of a BIGINT is one."""


_DECIMAL = re.compile(r"numeric\((\d+),(\d+)\)")
_TYPES = {
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "double precision": "DOUBLE",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "uuid": "UUID",
}
"""Types that are read as they are."""


def column_of(name: str, declared: str, family: str) -> Column:
    """How a column of a declared type is read.

    Args:
        name: the column.
        declared: its type as PostgreSQL writes it; of a domain its base type.
        family: `pg_type.typcategory`: `S` texts, `E` enumerations.

    >>> print(column_of("x", "numeric(9,2)", "N").sql)
    nullif("x", 'NaN')
    >>> column_of("x", "timestamp(3) with time zone", "D").kind
    'TIMESTAMP WITH TIME ZONE'
    """
    here, digits = identifier(name), _DECIMAL.fullmatch(declared)
    if declared in _TYPES:
        return Column(_TYPES[declared], here)
    if family in "SE":  # a cast takes the padding of CHAR(n) off
        return Column("VARCHAR", f'CAST({here} AS text) COLLATE "C"')
    if declared == "real":
        return Column("DOUBLE", f"CAST({here} AS double precision)")
    if digits and int(digits[1]) <= 38:
        return Column(f"DECIMAL({digits[1]},{digits[2]})", f"nullif({here}, 'NaN')")
    if declared.startswith("numeric"):
        near = f"CAST(least(greatest({here}, -1e28), 1e28) AS numeric(38,9))"
        return Column("DECIMAL(38,9)", f"CASE WHEN {here} <> 'NaN' THEN {near} END")
    if declared.startswith("timestamp"):
        zoned = declared.endswith("with time zone")
        return Column("TIMESTAMP WITH TIME ZONE" if zoned else "TIMESTAMP", here)
    return Column(declared.upper(), here)


_COLUMNS = """
SELECT a.attname, format_type(coalesce(nullif(t.typbasetype, 0), t.oid),
           CASE WHEN t.typbasetype = 0 THEN a.atttypmod ELSE t.typtypmod END), t.typcategory
FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
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


def _key_type(kind: str) -> str:
    """A key's type in PostgreSQL's words."""
    return {"VARCHAR": "text", "DOUBLE": "double precision"}.get(kind, kind)


def address(dsn: str) -> str:
    """Host, port and database of what libpq takes; nothing of who asks."""
    parts = extra(DRIVER).conninfo.conninfo_to_dict(dsn)
    host = parts.get("host") or parts.get("hostaddr") or os.environ.get("PGHOST", "")
    port = parts.get("port") or os.environ.get("PGPORT", "5432")
    database = parts.get("dbname") or os.environ.get("PGDATABASE", "")
    return f"postgresql://{host}:{port}/{database}?{parts.get('service', '')}"


class PostgresSession:
    """One read-only transaction on a server.

    Args:
        dsn: what libpq takes; empty for its own variables and files.
        seconds: time limit of a statement.

    Raises:
        InterfaceError: psycopg is not installed.
        EngineLost: the server cannot be reached.
    """

    name: ClassVar[str] = "PostgreSQL"
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
            found = self._connection.execute(_TABLE, (place,)).fetchall()
            if not found:
                return None
            oid, schema, name, is_base = found[0]
            listed = self._connection.execute(_COLUMNS, (oid,)).fetchall()
        columns = {str(column): column_of(column, declared, family) for column, declared, family in listed}
        return StoredTable(f"{identifier(schema)}.{identifier(name)}", columns, bool(is_base))

    def rows(self, sql: str, step: str) -> list[tuple[Any, ...]]:
        """See `Session`."""
        with self._step(step):
            return list(self._connection.execute(sql.encode(), binary=True).fetchall())

    def columns(self, sql: str, step: str) -> Mapping[str, IntArray]:
        """See `Session`."""
        with self._step(step):
            found = self._connection.execute(sql.encode(), binary=True)
            names, rows = [column.name for column in found.description], found.fetchall()
        array = np.array(rows, np.int64).reshape(len(rows), len(names))
        return {name: array[:, i] for i, name in enumerate(names)}

    def lookup(self, keys: str, kind: str) -> str:
        """See `Session`."""
        pairs = f"jsonb_to_recordset({literal(keys)}) AS pairs(key {_key_type(kind)}, leaf integer)"
        return f"(SELECT key, leaf FROM {pairs})"

    def row_hash(self, columns: Sequence[str]) -> str:
        """See `Session`."""
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
