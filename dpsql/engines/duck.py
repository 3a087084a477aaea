"""DuckDB as an engine: one private connection with a view for each table, for files and for its own databases.

Rows are in memory up to `DPSQL_MEMORY` (1536MiB unless it is set), and what does not fit goes to a folder that nobody
else may read. DuckDB would otherwise spill into the working directory, in files that everybody may read, and leave them
there after a crash. The folder is made under `DPSQL_TMPDIR`, or where the system keeps temporary files, with mode 0700.
It goes when the connection is closed, and at the latest when the process ends, killed or not (`SpillFolder`); after a
power cut it stays, closed to others, for the curator to remove.

**Privacy**: sees raw rows, which may stand in the folder in clear text while the connection is open. Errors name files,
tables and columns, never values, and are for the curator.

An engine (`RawSide` here) stands between publishing and raw rows: it opens them, counts them, and lets cells out alone.

    open      one state of the rows for a whole publish, read-only, nothing created where nothing may be
    columns   names and types, from the schema; never from a row
    keys      whether a public table's key names each of its rows once
    relations run the statement of `dpsql.engines.counting` and return whole numbers

DuckDB is the engine of files and of its own databases. Another one is a class with these methods and a `Dialect`;
`dpsql.engines.registry` has them all. `tests/engines` is what each must pass.

**Privacy**: sees raw rows. Only `public_rows` and `relations` hand any value out: the first of tables that the catalog
declares public, the second cells, which go to mechanisms alone. Errors name the engine and the step; an engine's own
words may quote a value and are never shown.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

import duckdb
import numpy as np

from dpsql.catalog import Catalog
from dpsql.catalog.derived import derived_sql, total_columns
from dpsql.catalog.graph import roots
from dpsql.engines.dialect import DUCK, Dialect, least_row_hashes
from dpsql.engines.joined_rows import BATCH, NOTHING_HAPPENED, ROW, engine_lost
from dpsql.engines.schema_union import SchemaGroup, place_words, source_words, table_use
from dpsql.engines.summaries import PersonLines, exact_values, people_rows, person_lines
from dpsql.engines.values import exact_cast, type_word
from dpsql.errors import OperationalError, SourceError
from dpsql.row_expressions import identifier, literal
from dpsql.tree import IntArray

SWEEP = 'read _; rm -rf -- "$1"'
"""What waits for the end of a process that has raw rows in a folder: its pipe ends with it, killed or not."""


class SpillFolder(TemporaryDirectory[str]):
    """A folder of mode 0700 that goes with `cleanup`, at the end of the process, and when that is killed.

    DuckDB encrypts what it spills only with a library that it fetches from elsewhere, so a shell of its own session
    waits for the process to end and removes the folder. Where a machine has no shell, a kill leaves it.
    """

    def __init__(self) -> None:
        place = os.environ.get("DPSQL_TMPDIR") or None
        super().__init__(prefix="dpsql-", dir=place, ignore_cleanup_errors=True)
        self._sweeper: subprocess.Popen[bytes] | None = None
        if os.name == "posix" and Path(SHELL).is_file():
            self._sweeper = subprocess.Popen(
                [SHELL, "-c", SWEEP, "dpsql-sweep", str(Path(self.name).absolute())],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                start_new_session=True, cwd="/", env={"PATH": os.defpath},
            )  # fmt: skip

    def cleanup(self) -> None:
        super().cleanup()
        sweeper, self._sweeper = self._sweeper, None
        if sweeper is not None and sweeper.stdin is not None:
            sweeper.stdin.close()
            try:
                sweeper.wait(SWEEP_SECONDS)
            # a fork of this process still holds the pipe; nothing is left to remove
            except subprocess.TimeoutExpired:
                sweeper.kill()
                sweeper.wait()


SHELL, SWEEP_SECONDS = "/bin/sh", 5.0

SWITCHED_OFF = ("statistics_propagation", "common_subexpressions")
"""Optimizers that would undo a bound.

`statistics_propagation` believes what a file says of its columns. It drops a clip at 10 where a Parquet file's
statistics say that no value is above 5, and a row above 10 would then count whole. `common_subexpressions` takes what
two expressions share out of their TRY (DuckDB 2.0.0) or out of a COALESCE that guards it (2.0.1 too): a row could then
stop a publish. `tests/privacy/test_switches.py` takes each back and fails once DuckDB no longer needs it off.
"""

MEMORY = "1536MiB"
"""What rows may take of memory unless `DPSQL_MEMORY` says otherwise."""


def private_folder() -> SpillFolder:
    """A folder that nobody else may read, for what does not fit in memory.

    Raises:
        OperationalError: no folder can be made there.
    """
    try:
        return SpillFolder()
    except OSError as error:
        raise OperationalError(
            f"cannot make a temporary folder ({type(error).__name__})",
            hint="set DPSQL_TMPDIR to a folder where you may write",
        ) from error


def private_connection() -> tuple[duckdb.DuckDBPyConnection, SpillFolder]:
    """A connection in memory with a spill folder of its own.

    Returns:
        (the connection, the folder); whoever closes the first calls `cleanup` of the second.

    Raises:
        OperationalError: no folder can be made there.
    """
    folder = private_folder()
    try:
        connection = duckdb.connect(
            ":memory:",
            config={
                "python_enable_replacements": "false",
                "temp_directory": folder.name,
                "preserve_insertion_order": "false",
                "disabled_optimizers": ", ".join(SWITCHED_OFF),
            },
        )
        _limit(connection)
    except BaseException:
        folder.cleanup()
        raise
    return connection, folder


def _limit(connection: duckdb.DuckDBPyConnection) -> None:
    """Set the memory limit.

    Raises:
        OperationalError: `DPSQL_MEMORY` is no amount of memory.
    """
    limit = os.environ.get("DPSQL_MEMORY") or MEMORY
    try:
        connection.execute(f"SET memory_limit = {literal(limit)}")
    except duckdb.Error as error:
        connection.close()
        raise OperationalError(
            "DPSQL_MEMORY is not an amount of memory", hint=f"write one such as `{MEMORY}`"
        ) from error


@dataclass
class RawSide:
    """An open raw side.

    Args:
        connection: private in-memory DuckDB connection with the schema `raw`.
        columns: table -> column -> DuckDB type.
        spill: where the connection puts what does not fit into memory; None if somebody else removes it.
        left_out: private table -> lines of its CSV file that are no rows; for the curator alone.
        from_csv: tables read from CSV files, whose columns are text because nobody said what else.
        stored: table -> SQL name of its view and its columns as the source has them, where `retyped` replaced them.
        key_types: table -> DuckDB type of its key and of all foreign keys that name it (`engines.keys`).
        members: table -> the rows that are read by one schema each.
        folders: private ones with rows that a library wrote, which go with the connection.
    """

    name: ClassVar[str] = "DuckDB"
    dialect: ClassVar[Dialect] = DUCK
    made: ClassVar[Mapping[str, Mapping[str, str]]] = {}

    connection: duckdb.DuckDBPyConnection
    columns: dict[str, dict[str, str]]
    spill: SpillFolder | None = None
    left_out: dict[str, int] = field(default_factory=dict)
    from_csv: set[str] = field(default_factory=set)
    stored: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    key_types: dict[str, str] = field(default_factory=dict)
    members: dict[str, tuple[SchemaGroup, ...]] = field(default_factory=dict)
    folders: list[SpillFolder] = field(default_factory=list)

    def rows(self, catalog: Catalog, table: str) -> str:
        """FROM item for the rows of a table, with its derived columns.

        What an expression cannot make of a row is NULL there.

        Raises:
            SourceError: the engine cannot derive them.
        """
        view = f"raw.{identifier(table)}"
        if catalog.tables[table].summaries:
            lines = person_lines(self, catalog)
            return people_rows(self, catalog, view, self._derived(catalog, table, lines), lines)
        derived = self._derived(catalog, table)
        if not derived:
            return view
        columns = "".join(f", {expression} AS {identifier(name)}" for name, expression in derived.items())
        return f"(SELECT *{columns} FROM {view} AS {identifier(ROW)})"

    def _derived(self, catalog: Catalog, table: str, lines: PersonLines | None = None) -> dict[str, str]:
        """Derived columns and measures of a table; one that is a foreign key is carried like one.

        Raises:
            SourceError: its type and its group's stand for no common values.
        """
        row, keys = identifier(ROW), roots(catalog)
        exact = {} if lines is None else exact_values(catalog, lines)
        derived = derived_sql(catalog.tables[table], self.columns[table], row, exact)
        # what is total is written as for servers, so that a table which moves there keeps its cells
        columns = {name.lower(): f"{row}.{identifier(name)}" for name in self.columns[table]}
        for name, expression in total_columns(catalog.tables[table], self.columns[table])[0].items():
            derived[name] = columns[name.lower()] = expression.sql(DUCK, columns)
        for name, text in derived.items():
            target = self.key_types.get(keys.get((table, name.lower()), ""))
            if target is None:
                continue
            query = f"DESCRIBE SELECT {text} FROM raw.{identifier(table)} AS {row}"
            kind = str(self.connection.execute(query).fetchall()[0][1])
            value = exact_cast(text, kind, target)
            if value is None:
                raise SourceError(
                    f"tables.{table}.derive.{name}: {type_word(kind)} is never equal to the key it names",
                    hint="cast it in the expression",
                )
            derived[name] = value
        return derived

    def lookup(self, name: str, kind: str | None, keys: Sequence[object], leaf: IntArray) -> str:
        """FROM item for a public table of (key, leaf).

        A table of the connection, in memory.

        Args:
            name: a name for it, not quoted.
            kind: type of the keys, where it is known.
            keys, leaf: of one length; no key stands twice.
        """
        key = f"CAST($1 AS {kind}[])" if kind else "$1"
        query = f"SELECT unnest({key}) AS key, unnest(CAST($2 AS INTEGER[])) AS leaf"
        table = identifier(name)
        self.connection.execute(
            f"CREATE OR REPLACE TEMP TABLE {table} AS {query}", [list(keys), leaf.tolist()]
        )
        return table

    def public_rows(self, table: str) -> list[tuple[object, ...]]:
        """All rows of a public table, their columns as in `columns`."""
        with self.step(f"reading the public table {table}"):
            return self.connection.execute(f"SELECT * FROM raw.{identifier(table)}").fetchall()

    def check_key(self, table: str, key: str) -> tuple[bool, bool]:
        """(NULL somewhere, repeated): the faults of the key of a public table."""
        column = identifier(key)
        with self.step(f"checking the key of {table}"):
            counts = self.connection.execute(
                f"SELECT count(*), count({column}), count(DISTINCT {column}) FROM raw.{identifier(table)}"
            ).fetchall()
        total, present, distinct = counts[0]
        return present < total, distinct < present

    def fingerprint(self, table: str, columns: Sequence[str]) -> str | None:
        """Fingerprint by which a copy of a table is recognised in the same engine, whatever the order of its rows.

        The sum of 64-bit hashes of the rows as the source has them; hashing is most of its cost.

        Args:
            table: a table.
            columns: those that count, in lower case and sorted.

        Returns:
            A text; None for a table without rows, or where the engine cannot say.

        **Privacy**: of raw rows; the ledger keeps a keyed hash of it.
        """
        view, names = self.stored.get(table) or (f"raw.{identifier(table)}", tuple(self.columns[table]))
        present = {name.lower(): identifier(name) for name in names}
        hashed = ", ".join(present[name] for name in columns if name in present) or "0"
        statement = f"SELECT count(*), sum(hash({hashed})) FROM {view}"
        with self.step(f"taking the fingerprint of {table}"):
            rows, total = self.connection.execute(statement).fetchall()[0]
        return f"{self.name} {rows} {total}" if rows else None

    def least_row_hashes(self, table: str, key: str, number: int) -> list[str]:
        """The least keyed hashes of the different rows of a table, whatever their order and that of its columns.

        Of every column that the source has.

        Args:
            table: a table.
            key: 32 bytes in hex digits.
            number: how many hashes; all of them where the table has fewer different rows.

        Returns:
            Hex digits, the least first.

        **Privacy**: of raw rows; the ledger keeps 64 of them beside its secret.
        """
        view, names = self.stored.get(table) or (f"raw.{identifier(table)}", tuple(self.columns[table]))
        columns = [identifier(name) for name in sorted(names, key=str.lower)]
        with self.step(f"taking the sketch of {table}"):
            (rows,) = self.connection.execute(f"SELECT count(*) FROM {view}").fetchall()[0]
            for query in least_row_hashes(DUCK, view, columns, key, number, rows):
                hashes = [str(row[0]) for row in self.connection.execute(query).fetchall()]
                if len(hashes) == number:
                    break
        return hashes

    def places(self, table: str) -> tuple[str, ...]:
        """Canonical places of a private table on a server, as it resolves the name, and of tables that a view
        reads.

        Paths say where files are.

        Returns:
            Places, without those of public tables; none of files and DuckDB, whose paths say it (`engines.registry`).
        """
        return ()

    def value_words(self, catalog: Catalog) -> dict[str, str]:
        """Table -> how its source's values were compared and rounded, from schemas and the catalog alone."""
        uses = {table: table_use(catalog, table) for table in self.members}
        return {
            table: source_words(place_words(members, uses[table]), self.columns[table], uses[table])
            for table, members in self.members.items()
        }

    @contextmanager
    def step(self, step: str, hint: str = NOTHING_HAPPENED) -> Iterator[None]:
        """Statements of one step: a file that went away, or a full disk, is one line without the engine's words.

        Args:
            step: what they do, for the message.
            hint: what to do about it.

        Raises:
            EngineLost: one failed.
        """
        try:
            yield
        except duckdb.Error as error:
            raise engine_lost(self.name, step, type(error).__name__, hint) from None

    def relations(self, step: str) -> StoredRelations:
        """Statements over the rows, and queries that later ones read by name, for bounds that are chosen.

        Temporary tables of the connection.

        Args:
            step: what they are for, for messages.

        **Privacy**: they fetch raw cells.
        """
        return StoredRelations(self, step)

    def as_duckdb(self, what: str) -> RawSide:
        """The engine as DuckDB, where rows that count may be stored and changed: streams, reported columns.

        Args:
            what: the catalog's words that need it.

        Raises:
            CatalogError: it is another engine.
        """
        return self

    def close(self) -> None:
        """Forget the rows, and whatever was stored on the way.

        Forget the connection, all temporary tables and what they left on disk.
        """
        self.connection.close()
        for folder in (*self.folders, *([] if self.spill is None else [self.spill])):
            folder.cleanup()


def no_sources() -> RawSide:
    """A raw side without any table."""
    connection, spill = private_connection()
    return RawSide(connection, {}, spill)


BLOCK = 500_000
"""Rows of a block of units, about."""


@dataclass(frozen=True)
class StoredRelations:
    """Temporary tables of DuckDB; methods as of `CommonRelations`.

    Args:
        raw: the engine.
        step: what they are for, for messages.
    """

    raw: RawSide
    step: str
    MOST_GROUPS: ClassVar[int] = 32

    @property
    def dialect(self) -> Dialect:
        return self.raw.dialect

    def make(self, name: str, query: str, order: str = "") -> str:
        table = self.dialect.identifier(name)
        ordered = f" ORDER BY {order}" if order else ""
        with self.raw.step(self.step):
            self.raw.connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {query}{ordered}")
        return table

    def make_by_unit(self, name: str, query: Callable[[str], str], rows: str) -> str:
        # Groups of one block of units stay in the processor's caches: half of the time, and little memory. Edges are
        # some units' keys, which stay in the engine: every unit is in one block, wherever they lie.
        largest = int(self.fetch(f"SELECT count(*) // {BLOCK} AS edges FROM {rows}")["edges"][0])
        if not largest:
            return self.make(name, query(rows))
        run = self.raw.connection.execute
        with self.raw.step(self.step):
            edges = f"SELECT DISTINCT unit FROM {rows} WHERE rowid % {BLOCK} = {BLOCK - 1}"
            run(f"SET VARIABLE edges = (SELECT list(unit ORDER BY unit) FROM ({edges}))")
        blocks = int(self.fetch("SELECT len(getvariable('edges')) AS edges")["edges"][0])
        edge = "getvariable('edges')[{}]".format
        for i in range(blocks + 1):
            ends = [f"unit > {edge(i)}"] if i else []
            ends += [f"unit <= {edge(i + 1)}"] if i < blocks else []
            block = f"(SELECT * FROM {rows} WHERE {' AND '.join(ends)})"
            if not i:
                table = self.make(name, query(block))
            else:
                with self.raw.step(self.step):
                    run(f"INSERT INTO {table} {query(block)}")
        return table

    def fetch(self, statement: str) -> Mapping[str, IntArray]:
        with self.raw.step(self.step):
            found = self.raw.connection.execute(statement).fetchnumpy()
        return {name: np.asarray(column, np.int64) for name, column in found.items()}

    def batches(self, statement: str) -> Iterator[list[tuple[str | int, int]]]:
        with self.raw.step(self.step):
            cursor = self.raw.connection.execute(statement)
            while pairs := cursor.fetchmany(BATCH):
                yield pairs


def retyped(raw: RawSide, table: str, columns: Mapping[str, tuple[str, str]]) -> None:
    """Replace the view of a table by one with these columns and no others.

    Args:
        raw: the raw side; its view and its column types are replaced.
        table: the table.
        columns: name -> (SQL over the table's columns, DuckDB type).
    """
    views = raw.connection.execute("SELECT count(*) FROM duckdb_views() WHERE schema_name = 'raw'").fetchall()
    view, stored = f"raw.{identifier(table)}", identifier(f"{table} below {views[0][0]} views")
    values = ", ".join(f"{value} AS {identifier(name)}" for name, (value, _) in columns.items())
    raw.connection.execute(f"ALTER VIEW {view} RENAME TO {stored}")
    raw.connection.execute(f"CREATE VIEW {view} AS SELECT {values} FROM raw.{stored}")
    raw.stored.setdefault(table, (f"raw.{stored}", tuple(raw.columns[table])))
    raw.columns[table] = {name: kind for name, (_, kind) in columns.items()}


def missing_column(table: str, column: str, present: int) -> SourceError:
    """A source without a column that the catalog names. Names that a source has are not shown: they may be a row.

    Args:
        table, column: as the catalog writes them.
        present: how many columns the source has.
    """
    return SourceError(
        f"tables.{table}: the source has no column `{column}`",
        hint=f"it has {present} columns; if it is a CSV file, does it have a header?",
    )
