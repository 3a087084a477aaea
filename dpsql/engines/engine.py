"""Interface between publishing and the holder of raw rows: an engine opens them, counts them, and lets cells out
alone.

    open      one state of the rows for a whole publish, read-only, nothing created where nothing may be
    columns   names and types, from the schema; never from a row
    keys      whether a public table's key names each of its rows once
    relations run the statement of `dpsql.engines.counting` and return whole numbers

DuckDB is the engine of files and of its own databases (`dpsql.engines.duck`). Another one is a class with these
methods and a `Dialect`; `dpsql.engines.registry` has them all. `tests/engines` is what each must pass.

**Privacy**: sees raw rows. Only `public_rows` and `relations` hand any value out: the first of tables that the catalog
declares public, the second cells, which go to mechanisms alone. Errors name the engine and the step; an engine's own
words may quote a value and are never shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from dpsql.catalog import Catalog
from dpsql.engines.dialect import Dialect
from dpsql.engines.duck import RawSide
from dpsql.engines.joined_rows import KeyCheck, Relations
from dpsql.errors import SourceError
from dpsql.tree import IntArray


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


def kind_of(engine: Engine, table: str, column: str) -> str | None:
    """Type of a column, however it is written; None for one that DuckDB derives."""
    columns = (*engine.columns[table].items(), *engine.made.get(table, {}).items())
    return next((kind for name, kind in columns if name.lower() == column.lower()), None)


class Engine(Protocol):
    """Whatever holds the raw rows of one catalog; one state of them from opening to closing."""

    @property
    def dialect(self) -> Dialect:
        """Dialect of the template."""

    @property
    def columns(self) -> Mapping[str, Mapping[str, str]]:
        """Table -> column -> type in DuckDB's words, from the schema alone."""

    @property
    def made(self) -> Mapping[str, Mapping[str, str]]:
        """Table -> derived column or measure -> type, where the engine knows it."""

    @property
    def left_out(self) -> Mapping[str, int]:
        """Private table -> lines of its file that are no rows; for the curator alone."""

    def rows(self, catalog: Catalog, table: str) -> str:
        """FROM item for the rows of a table, with its derived columns.

        Raises:
            SourceError: the engine cannot derive them.
        """

    def lookup(self, name: str, kind: str | None, keys: Sequence[object], leaf: IntArray) -> str:
        """FROM item for a public table of (key, leaf).

        Args:
            name: a name for it, not quoted.
            kind: type of the keys, where it is known.
            keys, leaf: of one length; no key stands twice.
        """

    def public_rows(self, table: str) -> list[tuple[object, ...]]:
        """All rows of a public table, their columns as in `columns`."""

    def check_key(self, table: str, key: str) -> KeyCheck:
        """True if the key of a public table is NULL somewhere, or stands twice."""

    def relations(self, step: str) -> Relations:
        """Statements over the rows, and queries that later ones read by name, for bounds that are chosen.

        Args:
            step: what they are for, for messages.

        **Privacy**: they fetch raw cells.
        """

    def as_duckdb(self, what: str) -> RawSide:
        """The engine as DuckDB, where rows that count may be stored and changed: streams, reported columns.

        Args:
            what: the catalog's words that need it.

        Raises:
            CatalogError: it is another engine.
        """

    def fingerprint(self, table: str, columns: Sequence[str]) -> str | None:
        """Fingerprint by which a copy of a table is recognised in the same engine, whatever the order of its
        rows.

        Args:
            table: a table.
            columns: those that count, in lower case and sorted.

        Returns:
            A text; None for a table without rows, or where the engine cannot say.

        **Privacy**: of raw rows; the ledger keeps a keyed hash of it.
        """

    def least_row_hashes(self, table: str, key: str, number: int) -> list[str]:
        """The least keyed hashes of the different rows of a table, whatever their order and that of its columns.

        Args:
            table: a table.
            key: 32 bytes in hex digits.
            number: how many hashes; all of them where the table has fewer different rows.

        Returns:
            Hex digits, the least first.

        **Privacy**: of raw rows; the ledger keeps 64 of them beside its secret.
        """

    def places(self, table: str) -> tuple[str, ...]:
        """Canonical places of a private table on a server, as it resolves the name, and of tables that a view reads.

        Returns:
            Places, without those of public tables; none of files and DuckDB, whose paths say it (`engines.registry`).
        """

    def value_words(self, catalog: Catalog) -> dict[str, str]:
        """Table -> how its source's values were compared and rounded, from schemas and the catalog alone."""

    def close(self) -> None:
        """Forget the rows, and whatever was stored on the way."""
