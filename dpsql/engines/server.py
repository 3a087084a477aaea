"""Raw rows that stay on a server: one engine for all of them, over a small session of each.

A `ServerSession` knows how to open a server, what its tables and columns are, and how to run a SELECT. All else is the
same for all of them: which tables may be read, keys of one type, public tables, cells. A new engine is a `Dialect`, a
`ServerSession` and a line in `dpsql.engines.registry`.

What DuckDB does with casts that give NULL where they fail is refused here, from the schema, such as text that holds
numbers. `derive`, `expr` and SELECTs over one private table are written of total expressions
(`dpsql.row_expressions.total`); those that are not total are refused. A view of the curator's, with `trusted: true`,
does the same.

**Privacy**: sees raw rows, and hands out rows of public tables and cells. Nothing is written to the server.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from decimal import Decimal
from typing import Any, ClassVar, NamedTuple, NoReturn, Protocol

from dpsql.catalog import Catalog
from dpsql.catalog.columns import Column
from dpsql.catalog.derived import expressions, total_columns
from dpsql.catalog.graph import roots
from dpsql.catalog.source import expand, files_read, query_of
from dpsql.catalog.tables import Measure
from dpsql.engines import values
from dpsql.engines.dialect import Dialect, least_row_hashes
from dpsql.engines.duck import missing_column
from dpsql.engines.expressions import NARROW_DIGITS
from dpsql.engines.joined_rows import ROW, CommonRelations
from dpsql.engines.schema_union import TableUse, source_words, table_use, unlisted
from dpsql.engines.summaries import people_rows, person_lines
from dpsql.errors import CatalogError, SourceError
from dpsql.row_expressions.rowlocal import Query, total_select
from dpsql.tree import IntArray


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
        """Name of the engine for people."""

    @property
    def dialect(self) -> Dialect:
        """Dialect of the template."""

    def table(self, place: str) -> StoredTable | None:
        """A table as its schema has it, no row is read; None where there is none.

        Raises:
            EngineLost: the server does not answer.
        """

    def places(self, name: str) -> tuple[str, ...]:
        """Places of a table on the server, by facts that are the same for every spelling of its name.

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
        """FROM item for the rows (key, leaf) of a JSON text.

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
        self._public: list[str] = []
        self._places: dict[str, str] = {}
        self._named: dict[str, str] = {}
        self._derived: dict[str, dict[str, str]] = {}
        self.made: dict[str, dict[str, str]] = {}
        self._columns: dict[str, dict[str, values.SourceColumn]] = {}
        for name in names:
            table = catalog.tables[name]
            derived = {column.lower() for column in expressions(table)}
            for column in (*table.foreign_keys, *([table.key] if table.key else [])):
                if column.lower() in derived:
                    raise SourceError(
                        f"tables.{name}.derive.{column}: {self.name} reads keys from columns of the schema",
                        hint="make the column in a view, name the view, "
                        "and vouch for it by `trusted: true` in `source`",
                    )
            stored = self._stored(catalog, name)
            use = table_use(catalog, name)
            query = query_of(catalog.raw_source(), catalog.tables, name)  # over one private table
            if not session.dialect.derives and not table.is_public and (query is not None or derived):
                raise SourceError(
                    f"tables.{name}: no expression of the catalog's is written for {self.name}",
                    hint="make the columns in a view, name the view, and vouch for it by `trusted: true` in `source`",
                )
            if query is None:
                self._places[name] = stored.place
                self._columns[name] = columns_of(session.name, session.dialect, stored, name, use)
            else:
                selection = selected(session, stored, name, use, query)
                self._places[name], self._columns[name] = selection
            if stored.is_base and catalog.tables[name].is_public:
                self._public.append(name)
        self._type_keys(catalog)
        for name in self._columns:
            self._derive(catalog, name)

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
        """See `RawSide`: derived columns are total expressions."""
        quoted, derived = self.dialect.identifier, self._derived[table]
        columns = (f"{column.sql} AS {quoted(name)}" for name, column in self._columns[table].items())
        rows = f"(SELECT {', '.join(columns)} FROM {self._places[table]})"
        if catalog.tables[table].summaries:
            return people_rows(self, catalog, rows, derived, person_lines(self, catalog))
        if not derived:
            return rows
        made = "".join(f", {sql} AS {quoted(name)}" for name, sql in derived.items())
        return f"(SELECT {quoted(ROW)}.*{made} FROM {rows} AS {quoted(ROW)})"

    def lookup(self, name: str, kind: str | None, keys: Sequence[object], leaf: IntArray) -> str:
        """See `RawSide`: a text in the statement, since nothing may be created."""
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

    def check_key(self, table: str, key: str) -> tuple[bool, bool]:
        column = self._sql_of(table, key)
        query = f"SELECT count(*), count({column}), count(DISTINCT {column}) FROM {self._places[table]}"
        total, present, distinct = self._session.rows(query, f"checking the key of {table}")[0]
        return present < total, distinct < present

    def relations(self, step: str) -> CommonRelations:
        """See `RawSide`: common tables, since nothing may be created."""
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
        """See `RawSide`: the sum of the server's own 64-bit hashes."""
        present = {name.lower(): column.sql for name, column in self._columns[table].items()}
        hashed = [present[name] for name in columns if name in present] or ["0"]
        total = self.dialect.total(self._session.row_hash(hashed), True)
        query = f"SELECT count(*), {total} FROM {self._places[table]}"
        rows, hash_sum = self._session.rows(query, f"taking the fingerprint of {table}")[0]
        return f"{self.name} {rows} {int(hash_sum)}" if rows else None

    def least_row_hashes(self, table: str, key: str, number: int) -> list[str]:
        """See `RawSide`: of the columns that the catalog names."""
        by_name = sorted(self._columns[table].items(), key=lambda named: named[0].lower())
        columns = [column.sql for _, column in by_name] or ["0"]
        what, place = f"taking the sketch of {table}", self._places[table]
        (rows,) = self._session.rows(f"SELECT count(*) FROM {place}", what)[0]
        for query in least_row_hashes(self.dialect, place, columns, key, number, rows):
            hashes = [str(row[0]) for row in self._session.rows(query, what)]
            if len(hashes) == number:
                break
        return hashes

    def places(self, table: str) -> tuple[str, ...]:
        """See `RawSide`. A public view hides nothing: it may read private tables."""
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
        return self._session.places(expand(self._named[table]))

    def _sql_of(self, table: str, column: str) -> str:
        columns = self._columns[table].items()
        sql = next((c.sql for name, c in columns if name.lower() == column.lower()), None)
        if sql is None:
            raise missing_column(table, column, len(columns))
        return sql

    def _stored(self, catalog: Catalog, name: str) -> StoredTable:
        """A table of the catalog as the server has it."""
        source = catalog.raw_source()
        self._named[name] = files_read(source, catalog.tables, name)[0]
        place = expand(self._named[name])
        stored = self._session.table(place)
        if stored is None:
            raise SourceError(f"source.tables.{name}: {self.name} has no table {place} that may be read")
        if not (stored.is_base or source.trusted or catalog.tables[name].is_public):
            raise SourceError(
                f"source.tables.{name}: {place} is a view of the database, whose SQL is not checked",
                hint="name its base table, or vouch for it by `trusted: true` in `source`",
            )
        return stored

    def _derive(self, catalog: Catalog, name: str) -> None:
        """Type and write the derived columns of a table.

        Raises:
            SourceError: one is not total over the types that the columns have.
        """
        table, row = catalog.tables[name], self.dialect.identifier(ROW)
        columns = {
            column.lower(): f"{row}.{self.dialect.identifier(column)}" for column in self._columns[name]
        }
        self._derived[name], self.made[name] = {}, {}
        if table.is_public:
            return  # axes of a public table derive from its values, in DuckDB
        made, refusals = total_columns(table, self.columns[name])
        for path, reason in refusals.items():
            raise SourceError(f"tables.{name}.{'.'.join(path)}: {reason}")
        try:
            for column, expression in made.items():
                sql = expression.sql(self.dialect, columns)
                columns[column.lower()] = sql
                spec = table.measures.get(column) or table.written.get(column)
                narrow = narrowed(sql, expression.sql_type, spec)
                self._derived[name][column], self.made[name][column] = narrow.sql, narrow.kind
        except CatalogError as error:
            raise SourceError(f"tables.{name}.{error}") from None

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
                    f"tables.{root}.key: its columns are of the types "
                    f"{', '.join(sorted(map(values.type_word, kinds)))}",
                    hint="give them one type, in a view if need be, and name the view in `source`",
                )
            if form is None or len(kinds) == 1:
                continue
            for owner, name in members:
                self._columns[owner][name] = values.SourceColumn(
                    form[0], form[1].format(self._columns[owner][name].sql)
                )


def _common_key(server: str, kinds: Set[str]) -> tuple[str, str] | None:
    """The type of keys of several types, and the cast into it: whole numbers, and any numbers on PostgreSQL."""
    if kinds <= values.BITS.keys():
        return "BIGINT", "CAST({} AS BIGINT)"
    if server == values.CLICKHOUSE and kinds <= values.INTEGERS:
        return "HUGEINT", "CAST({} AS Int128)"
    exact = all(name == "NUMERIC" or values.family(name) in ("integer", "decimal") for name in kinds)
    return ("NUMERIC", "trim_scale(CAST({} AS numeric))") if exact and server == values.POSTGRESQL else None


def narrowed(sql: str, kind: str, spec: Column | Measure | None) -> values.SourceColumn:
    """A number that is read with fewer digits than its type has, clamped to those: its bounds lie within them.

    Raises:
        CatalogError: they do not.

    >>> narrowed("x", "DECIMAL(28,2)", None)
    SourceColumn(kind='DECIMAL(28,2)', sql='x')
    """
    scale = spec.scale if isinstance(spec, Measure) else spec.digits if spec is not None else 0
    digits = values.decimal_digits(kind) or (values.Digits(19, 0) if kind == "BIGINT" and scale else None)
    if spec is None or digits is None or digits.whole + scale <= NARROW_DIGITS:
        return values.SourceColumn(kind, sql)
    whole = NARROW_DIGITS - scale - digits.places
    ends = spec.bounds if isinstance(spec, Measure) or (spec.has_domain and spec.ordered) else (0, 0)
    if whole < 1 or max(map(abs, ends)) >= 10 ** (whole + scale):
        raise CatalogError(
            f"its values have up to {digits.whole} digits, more than are counted with",
            hint="ROUND it to fewer places, or declare smaller bounds",
        )
    most = f"{'9' * whole}.{'9' * digits.places}" if digits.places else "9" * whole
    clamped = f"CASE WHEN {sql} > {most} THEN {most} WHEN {sql} < -{most} THEN -{most} ELSE {sql} END"
    target = f"DECIMAL({whole + digits.places},{digits.places})"
    return values.SourceColumn(target, f"CAST({clamped} AS {target})")


def selected(
    session: ServerSession, stored: StoredTable, table: str, use: TableUse, query: Query
) -> tuple[str, dict[str, values.SourceColumn]]:
    """A SELECT over one table as what stands after FROM, and its columns.

    Args:
        session: where the table is.
        stored: the table.
        table: its name in the catalog.
        use: what the catalog makes of its columns.
        query: the checked SELECT.

    Raises:
        SourceError: an expression is not total, or a key is computed.
    """
    dialect, row = session.dialect, "x"
    sources = {
        name: values.leaving(session.name, kind, f"{row}.{dialect.identifier(name)}", key=False)
        for name, kind in stored.types.items()
    }
    kinds = {name.lower(): column.kind for name, column in sources.items() if column is not None}
    texts = {name.lower(): column.sql for name, column in sources.items() if column is not None}
    try:
        items, condition = total_select(query.text, kinds, tuple(stored.types))
        columns: dict[str, values.SourceColumn] = {}
        written = []
        for name, expression, plain in items:
            low, sql = name.lower(), expression.sql(dialect, texts)
            column = values.SourceColumn(expression.sql_type, sql)
            if low in use.keys:
                own = next((n for n in stored.types if n.lower() == plain.lower()), None)
                key = own and values.leaving(
                    session.name, stored.types[own], f"{row}.{dialect.identifier(own)}", key=True
                )
                if not key:
                    raise CatalogError(
                        f"the key `{name}` is computed, or of a type that cannot be a key", hint=KEY_HINT
                    )
                column = key
            declared = use.declared[low].type if low in use.declared and low not in use.keys else ""
            if not values.reads(declared, column.kind):
                raise CatalogError(
                    f"no {column.kind} is a value of `{name}`, declared {declared}", hint=KEY_HINT
                )
            columns[name] = values.SourceColumn(column.kind, dialect.identifier(name))
            written.append(f"{column.sql} AS {dialect.identifier(name)}")
        where = "" if condition is None else f" WHERE {condition.sql(dialect, texts)}"
    except CatalogError as error:
        raise SourceError(f"source.tables.{table}: {error}") from None
    return f"(SELECT {', '.join(written)} FROM {stored.place} AS {row}{where}) AS {row}", columns


KEY_HINT = "select the column as it is, or make it in a view of yours, and vouch for it by `trusted: true`"


def every_column(
    server: str, dialect: Dialect, stored: StoredTable, *, key: bool
) -> dict[str, values.SourceColumn]:
    """All columns of a table, those of types without a rule as they are stored."""
    return {
        name: values.leaving(server, kind, dialect.identifier(name), key=key)
        or values.SourceColumn(kind.upper(), dialect.identifier(name))
        for name, kind in stored.types.items()
    }


def columns_of(
    server: str, dialect: Dialect, stored: StoredTable, table: str, use: TableUse
) -> dict[str, values.SourceColumn]:
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
        column = values.leaving(server, kind, dialect.identifier(name), key=low in use.keys)
        if column is None and use.names(low):
            raise unlisted(table, name, server, kind)
        if column is None:
            continue
        declared = use.declared[low].type if low in use.declared and low not in use.keys else ""
        if not values.reads(declared, column.kind):
            raise SourceError(
                f"tables.{table}.{low}: no {column.kind} is a value of the declared type {declared}",
                hint="declare the type that it has, or CAST it in a view, and name the view in `source`",
            )
        columns[name] = column
    return columns
