"""Raw rows that stay on a server: one engine for all of them, over a small session of each.

A `Session` knows how to open a server, what its tables and columns are, and how to run a SELECT. All else is the same
for all of them: which tables may be read, keys of one type, public tables, cells. A new engine is a `Dialect`, a
`Session` and a line in `dpsql.engines.registry`.

What DuckDB does with casts that give NULL where they fail is refused here, from the schema: text that holds numbers,
`derive` and `expr`, SELECTs in `source`. A view of the curator's, with `trusted: true`, does the same.

**Privacy**: sees raw rows, and hands out rows of public tables and cells. Nothing is written to the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

from dpsql.engines.casts import roots
from dpsql.engines.dialect import Dialect
from dpsql.engines.engine import IntArray, KeyCheck
from dpsql.engines.kinds import BITS
from dpsql.errors import CatalogError, SourceError
from dpsql.star import Catalog
from dpsql.star.derived import expressions
from dpsql.star.source import expand


class Column(NamedTuple):
    """A column as the template reads it.

    Args:
        kind: its type in DuckDB's words; the server's own word where there is none.
        sql: what is selected, of the server's column.
    """

    kind: str
    sql: str


class StoredTable(NamedTuple):
    """A table of a server.

    Args:
        place: how SQL names it, quoted.
        columns: by name, in the server's order.
        is_base: whether it is a table; a view is a statement that nobody checked.
    """

    place: str
    columns: Mapping[str, Column]
    is_base: bool


class Session(Protocol):
    """An open server: read-only, in UTC, with a time limit a statement."""

    @property
    def name(self) -> str:
        """What people call the engine."""

    @property
    def dialect(self) -> Dialect:
        """How it spells the template."""

    def table(self, place: str) -> StoredTable | None:
        """A table as its schema has it, no row is read; None where there is none.

        Raises:
            EngineLost: the server does not answer.
        """

    def rows(self, sql: str, step: str) -> list[tuple[Any, ...]]:
        """The rows of a SELECT.

        Args:
            sql: in the engine's words.
            step: what it does, for messages.

        Raises:
            EngineLost: the server refused, was lost, or took too long.
        """

    def columns(self, sql: str, step: str) -> Mapping[str, IntArray]:
        """The same, of whole numbers alone, by column."""

    def lookup(self, keys: str, kind: str) -> str:
        """What stands after FROM for the rows (key, leaf) of a JSON text.

        Args:
            keys: a list of objects {"key", "leaf"}.
            kind: type of the keys in DuckDB's words.
        """

    def row_hash(self, columns: Sequence[str]) -> str:
        """A 64-bit hash of columns."""

    def close(self) -> None:
        """Leave nothing behind."""


class ServerEngine:
    """The tables of a catalog on a server.

    Args:
        session: an open server.
        catalog: a checked catalog.
        names: which tables are opened.

    Raises:
        SourceError: a table is not there, is a view that nobody vouches for, or its keys have several types.
        EngineLost: the server does not answer.
    """

    left_out: ClassVar[Mapping[str, int]] = {}

    def __init__(self, session: Session, catalog: Catalog, names: Iterable[str]) -> None:
        self._session = session
        self._places: dict[str, str] = {}
        self._columns: dict[str, dict[str, Column]] = {}
        for name in names:
            self._refuse_derived_keys(catalog, name)
            stored = self._stored(catalog, name)
            self._places[name], self._columns[name] = stored.place, dict(stored.columns)
        self._type_keys(catalog)

    @property
    def name(self) -> str:
        """See `Engine`."""
        return self._session.name

    @property
    def dialect(self) -> Dialect:
        """See `Engine`."""
        return self._session.dialect

    @property
    def columns(self) -> Mapping[str, Mapping[str, str]]:
        """See `Engine`."""
        return {
            table: {name: c.kind for name, c in columns.items()} for table, columns in self._columns.items()
        }

    def kind_of(self, table: str, column: str) -> str | None:
        """See `Engine`."""
        known = self._columns[table].items()
        return next((c.kind for name, c in known if name.lower() == column.lower()), None)

    def rows(self, catalog: Catalog, table: str) -> str:
        """See `Engine`: derived columns are not there; `dpsql.engines.expressions` refuses them."""
        quoted = self.dialect.identifier
        columns = (f"{column.sql} AS {quoted(name)}" for name, column in self._columns[table].items())
        return f"(SELECT {', '.join(columns)} FROM {self._places[table]})"

    def lookup(self, name: str, kind: str | None, keys: Sequence[object], leaf: IntArray) -> str:
        """See `Engine`: a text in the statement, since nothing may be created."""
        pairs = [
            {"key": str(key) if isinstance(key, Decimal) else key, "leaf": at}
            for key, at in zip(keys, leaf.tolist(), strict=True)
        ]
        return self._session.lookup(json.dumps(pairs, ensure_ascii=False, default=str), str(kind))

    def public_rows(self, table: str) -> list[tuple[object, ...]]:
        """See `Engine`."""
        quoted = self.dialect.identifier
        columns = (f"{column.sql} AS {quoted(name)}" for name, column in self._columns[table].items())
        query = f"SELECT {', '.join(columns)} FROM {self._places[table]}"
        return self._session.rows(query, f"reading the public table {table}")

    def check_key(self, table: str, key: str) -> KeyCheck:
        """See `Engine`."""
        column = self._sql_of(table, key)
        query = f"SELECT count(*), count({column}), count(DISTINCT {column}) FROM {self._places[table]}"
        total, present, distinct = self._session.rows(query, f"checking the key of {table}")[0]
        return KeyCheck(present < total, distinct < present)

    def fetch(self, statement: str) -> Mapping[str, IntArray]:
        """See `Engine`."""
        return self._session.columns(statement, "counting")

    def as_duckdb(self, what: str) -> NoReturn:
        """See `Engine`."""
        raise CatalogError(
            f"{what} is for DuckDB, and the rows are in {self.name}",
            hint="write `bounding: weight` and a number for `max_ids`",
        )

    def fingerprint(self, table: str, columns: Sequence[str]) -> str | None:
        """See `Engine`: the sum of the server's own 64-bit hashes."""
        present = {name.lower(): column.sql for name, column in self._columns[table].items()}
        hashed = [present[name] for name in columns if name in present] or ["0"]
        total = self.dialect.total(self._session.row_hash(hashed), True)
        query = f"SELECT count(*), {total} FROM {self._places[table]}"
        rows, found = self._session.rows(query, f"taking the fingerprint of {table}")[0]
        return f"{self.name} {rows} {int(found)}" if rows else None

    def close(self) -> None:
        """See `Engine`."""
        self._session.close()

    def _sql_of(self, table: str, column: str) -> str:
        known = self._columns[table].items()
        found = next((c.sql for name, c in known if name.lower() == column.lower()), None)
        if found is None:
            raise SourceError(f"tables.{table}: the source has no column `{column}`")
        return found

    def _stored(self, catalog: Catalog, name: str) -> StoredTable:
        """A table of the catalog as the server has it."""
        source = catalog.raw_source()
        place = expand(source.tables[name])
        stored = self._session.table(place)
        if stored is None:
            raise SourceError(f"source.tables.{name}: {self.name} has no table {place} that may be read")
        if not (stored.is_base or source.trusted or catalog.tables[name].is_public):
            raise SourceError(
                f"source.tables.{name}: {place} is a view of the database, whose SQL is not checked",
                hint="name its base table, or vouch for it by `trusted: true` in `source`",
            )
        return stored

    def _refuse_derived_keys(self, catalog: Catalog, name: str) -> None:
        table = catalog.tables[name]
        derived = {column.lower() for column in expressions(table)}
        for column in (*table.foreign_keys, *([table.key] if table.key else [])):
            if column.lower() in derived:
                raise SourceError(
                    f"tables.{name}.derive.{column}: {self.name} reads keys from columns of the schema",
                    hint="make the column in a view, name the view, and vouch for it by `trusted: true` in `source`",
                )

    def _type_keys(self, catalog: Catalog) -> None:
        """Keys and the foreign keys that name them are of one type: whole numbers become BIGINT, others are the same.

        Raises:
            SourceError: they are not; a cast could fail on a row.
        """
        groups: dict[str, list[tuple[str, str]]] = {}
        for (table, column), root in roots(catalog).items():
            groups.setdefault(root, []).extend(
                (table, name) for name in self._columns.get(table, {}) if name.lower() == column
            )
        for root, members in groups.items():
            kinds = {self._columns[owner][name].kind for owner, name in members}
            if len(kinds) > 1 and not kinds <= BITS.keys():
                raise SourceError(
                    f"tables.{root}.key: its columns are of the types {', '.join(sorted(kinds))}",
                    hint="give them one type, in a view if need be, and name the view in `source`",
                )
            for owner, name in members if len(kinds) > 1 else ():
                cast = f"CAST({self._columns[owner][name].sql} AS BIGINT)"
                self._columns[owner][name] = Column("BIGINT", cast)
