"""Raw rows that stay on a server: one engine for all of them, over a small session of each.

A `ServerSession` knows how to open a server, what its tables and columns are, and how to run a SELECT. All else is the
same for all of them: which tables may be read, keys of one type, public tables, cells. A new engine is a `Dialect`, a
`ServerSession` and a line in `dpsql.engines.registry`.

What DuckDB does with casts that give NULL where they fail is refused here, from the schema: text that holds numbers,
`derive` and `expr`, SELECTs in `source`. A view of the curator's, with `trusted: true`, does the same.

**Privacy**: sees raw rows, and hands out rows of public tables and cells. Nothing is written to the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

from dpsql.engines.dialect import Dialect
from dpsql.engines.engine import missing_column
from dpsql.engines.relations import CommonRelations, IntArray, KeyCheck, Relations
from dpsql.engines.summaries import people_rows, person_lines
from dpsql.engines.united import TableUse, source_words, table_use, unlisted
from dpsql.engines.values import BITS, POSTGRESQL, SourceColumn, family, leaving, reads, type_word
from dpsql.errors import CatalogError, SourceError
from dpsql.star import Catalog
from dpsql.star.derived import expressions
from dpsql.star.graph import roots
from dpsql.star.source import expand


class StoredTable(NamedTuple):
    """A table of a server.

    Args:
        place: how SQL names it, quoted.
        types: column -> stored type as `dpsql.engines.values` lists it, in the server's order.
        is_base: whether it is a table; a view is a statement that nobody checked.
    """

    place: str
    types: Mapping[str, str]
    is_base: bool


class ServerSession(Protocol):
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

    def places(self, name: str) -> tuple[str, ...]:
        """Where the server keeps a table, by facts that are the same for every spelling of its name.

        Args:
            name: a table that `table` knows.

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

    def batches(self, sql: str, step: str) -> Iterator[list[tuple[Any, ...]]]:
        """The rows of a SELECT, some at a time."""

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

    def __init__(self, session: ServerSession, catalog: Catalog, names: Iterable[str]) -> None:
        self._session = session
        self._written = catalog.raw_source().tables
        self._public: list[str] = []
        self._places: dict[str, str] = {}
        self._columns: dict[str, dict[str, SourceColumn]] = {}
        for name in names:
            self._refuse_derived_keys(catalog, name)
            stored = self._stored(catalog, name)
            self._places[name] = stored.place
            use = table_use(catalog, name)
            self._columns[name] = columns_of(session.name, session.dialect, stored, name, use)
            if stored.is_base and catalog.tables[name].is_public:
                self._public.append(name)
        self._type_keys(catalog)

    @property
    def name(self) -> str:
        return self._session.name

    @property
    def dialect(self) -> Dialect:
        return self._session.dialect

    @property
    def columns(self) -> Mapping[str, Mapping[str, str]]:
        return {
            table: {name: c.kind for name, c in columns.items()} for table, columns in self._columns.items()
        }

    def rows(self, catalog: Catalog, table: str) -> str:
        """See `Engine`: derived columns are not there; `dpsql.engines.expressions` refuses them."""
        quoted = self.dialect.identifier
        columns = (f"{column.sql} AS {quoted(name)}" for name, column in self._columns[table].items())
        rows = f"(SELECT {', '.join(columns)} FROM {self._places[table]})"
        if not catalog.tables[table].summaries:
            return rows
        return people_rows(self, catalog, rows, {}, person_lines(self, catalog))

    def lookup(self, name: str, kind: str | None, keys: Sequence[object], leaf: IntArray) -> str:
        """See `Engine`: a text in the statement, since nothing may be created."""
        pairs = [
            {"key": str(key) if isinstance(key, Decimal) else key, "leaf": at}
            for key, at in zip(keys, leaf.tolist(), strict=True)
        ]
        return self._session.lookup(json.dumps(pairs, ensure_ascii=False, default=str), str(kind))

    def public_rows(self, table: str) -> list[tuple[object, ...]]:
        quoted = self.dialect.identifier
        columns = (f"{column.sql} AS {quoted(name)}" for name, column in self._columns[table].items())
        query = f"SELECT {', '.join(columns)} FROM {self._places[table]}"
        return self._session.rows(query, f"reading the public table {table}")

    def check_key(self, table: str, key: str) -> KeyCheck:
        column = self._sql_of(table, key)
        query = f"SELECT count(*), count({column}), count(DISTINCT {column}) FROM {self._places[table]}"
        total, present, distinct = self._session.rows(query, f"checking the key of {table}")[0]
        return KeyCheck(present < total, distinct < present)

    def fetch(self, statement: str) -> Mapping[str, IntArray]:
        return self._session.columns(statement, "counting")

    def relations(self, step: str) -> Relations:
        """See `Engine`: common tables, since nothing may be created."""
        session = self._session
        return CommonRelations(
            self.dialect, lambda sql: session.columns(sql, step), lambda sql: session.batches(sql, step)
        )

    def as_duckdb(self, what: str) -> NoReturn:
        raise CatalogError(
            f"{what} is for DuckDB, and the rows are in {self.name}",
            hint="publish from files, or from a DuckDB file",
        )

    def fingerprint(self, table: str, columns: Sequence[str]) -> str | None:
        """See `Engine`: the sum of the server's own 64-bit hashes."""
        present = {name.lower(): column.sql for name, column in self._columns[table].items()}
        hashed = [present[name] for name in columns if name in present] or ["0"]
        total = self.dialect.total(self._session.row_hash(hashed), True)
        query = f"SELECT count(*), {total} FROM {self._places[table]}"
        rows, hash_sum = self._session.rows(query, f"taking the fingerprint of {table}")[0]
        return f"{self.name} {rows} {int(hash_sum)}" if rows else None

    def places(self, table: str) -> tuple[str, ...]:
        """See `Engine`. A public view hides nothing: it may read private tables."""
        resolved = self._resolved(table)
        public = {place for name in self._public for place in self._resolved(name)}
        return tuple(place for place in resolved if place not in public) or resolved

    def value_words(self, catalog: Catalog) -> dict[str, str]:
        return {
            table: source_words(f"a table of {self.name}", columns, table_use(catalog, table))
            for table, columns in self.columns.items()
        }

    def close(self) -> None:
        self._session.close()

    def _resolved(self, table: str) -> tuple[str, ...]:
        return self._session.places(expand(self._written[table]))

    def _sql_of(self, table: str, column: str) -> str:
        columns = self._columns[table].items()
        sql = next((c.sql for name, c in columns if name.lower() == column.lower()), None)
        if sql is None:
            raise missing_column(table, column, len(columns))
        return sql

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
            form = _common_key(self.name, kinds)
            if len(kinds) > 1 and form is None:
                raise SourceError(
                    f"tables.{root}.key: its columns are of the types {', '.join(sorted(map(type_word, kinds)))}",
                    hint="give them one type, in a view if need be, and name the view in `source`",
                )
            if form is None or len(kinds) == 1:
                continue
            for owner, name in members:
                self._columns[owner][name] = SourceColumn(
                    form[0], form[1].format(self._columns[owner][name].sql)
                )


def _common_key(server: str, kinds: Set[str]) -> tuple[str, str] | None:
    """The type of keys of several types, and the cast into it: whole numbers, and any numbers on PostgreSQL."""
    if kinds <= BITS.keys():
        return "BIGINT", "CAST({} AS BIGINT)"
    exact = all(name == "NUMERIC" or family(name) in ("integer", "decimal") for name in kinds)
    return ("NUMERIC", "trim_scale(CAST({} AS numeric))") if exact and server == POSTGRESQL else None


def every_column(server: str, dialect: Dialect, stored: StoredTable, *, key: bool) -> dict[str, SourceColumn]:
    """All columns of a table, those of types without a rule as they are stored."""
    return {
        name: leaving(server, kind, dialect.identifier(name), key=key)
        or SourceColumn(kind.upper(), dialect.identifier(name))
        for name, kind in stored.types.items()
    }


def columns_of(
    server: str, dialect: Dialect, stored: StoredTable, table: str, use: TableUse
) -> dict[str, SourceColumn]:
    """The columns of a table as they leave the server.

    Args:
        server: of `dpsql.engines.values`.
        dialect: its words.
        stored: the table.
        table: its name in the catalog, for messages.
        use: what the catalog makes of its columns.

    Raises:
        SourceError: the table of source values does not list a column that the catalog names.
    """
    columns = {}
    for name, kind in stored.types.items():
        low = name.lower()
        column = leaving(server, kind, dialect.identifier(name), key=low in use.keys)
        if column is None and use.names(low):
            raise unlisted(table, name, server, kind)
        if column is None:
            continue
        declared = use.declared[low].type if low in use.declared and low not in use.keys else ""
        if not reads(declared, column.kind):
            raise SourceError(
                f"tables.{table}.{low}: no {column.kind} is a value of the declared type {declared}",
                hint="declare the type that it has, or CAST it in a view, and name the view in `source`",
            )
        columns[name] = column
    return columns
