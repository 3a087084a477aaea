"""Where raw rows are: one DuckDB connection with a view for each table that the catalog names.

The connection lives in memory; what does not fit goes to a private folder (`spill`). CSV columns arrive as text, since
a guessed type would depend on the rows; the catalog's types decide later, row by row.

**Privacy**: sees raw rows. Errors name files, tables and columns, never values, and are for the curator.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from dpsql.catalog.source import Csv
from dpsql.errors import SourceError
from dpsql.sources.csv import load_csv
from dpsql.sources.spill import SpillFolder, private_connection
from dpsql.sources.text import identifier, literal

__all__ = ["RawSide", "identifier", "literal", "no_sources", "open_sources"]

CSV_ENDINGS = (".csv", ".tsv", ".txt")


@dataclass
class RawSide:
    """An open raw side.

    Args:
        connection: private in-memory DuckDB connection with the schema `raw`.
        columns: table -> column -> DuckDB type.
        spill: where the connection puts what does not fit into memory; None if somebody else removes it.
        left_out: private table -> lines of its CSV file that are no rows; for the curator alone.
    """

    connection: duckdb.DuckDBPyConnection
    columns: dict[str, dict[str, str]]
    spill: SpillFolder | None = None
    left_out: dict[str, int] = field(default_factory=dict)

    def close(self) -> None:
        """Forget the connection, all temporary tables and what they left on disk."""
        self.connection.close()
        if self.spill is not None:
            self.spill.cleanup()


def no_sources() -> RawSide:
    """A raw side without any table."""
    connection, spill = private_connection()
    return RawSide(connection, {}, spill)


def open_sources(
    kind: str,
    root: Path,
    tables: Mapping[str, str],
    *,
    csv: Csv | None = None,
    public: Collection[str] = (),
    own_files: Mapping[str, Path] | None = None,
) -> RawSide:
    """Open every table of a source.

    Args:
        kind: `parquet`, `csv` or `duckdb`.
        root: folder of the files; for `duckdb` the database file.
        tables: table -> file name under root, table name in the database, or a SELECT statement.
        csv: how CSV files are written; RFC 4180 unless given.
        public: tables in which a line that is no row is an error.
        own_files: table -> Parquet or CSV file that stands in for its place.

    Returns:
        The raw side with one view `raw.<table>` each.

    Raises:
        SourceError: a file is missing or cannot be read.
    """
    raw, own, dialect = no_sources(), own_files or {}, csv or Csv()
    try:
        # A timestamp with a zone must fall into the same leaf wherever the curator's machine stands.
        raw.connection.execute("SET TimeZone = 'UTC'")
        raw.connection.execute("CREATE SCHEMA raw")
        raw.connection.execute("CREATE SCHEMA csv")
        _attach(raw.connection, kind, root)
        for table, place in tables.items():
            file = own.get(table) or _file(kind, root, table, place)
            if file is not None and (file.suffix.lower() in CSV_ENDINGS if table in own else kind == "csv"):
                _load(raw, table, file, dialect, is_public=table in public)
            elif file is not None:
                _view(raw, table, f"read_parquet({literal(str(file.absolute()))})")
            else:
                _view(raw, table, f"({place})" if _is_select(place) else f"source.{identifier(place)}", kind)
    except BaseException:
        raw.close()
        raise
    return raw


def _attach(connection: duckdb.DuckDBPyConnection, kind: str, root: Path) -> None:
    """Make file names in SELECT statements relative to the root."""
    try:
        if kind == "duckdb":
            if not root.is_file():
                raise SourceError(f"source.root {root} is not a DuckDB file")
            connection.execute(f"ATTACH {literal(str(root))} AS source (READ_ONLY)")
        else:
            if not root.is_dir():
                raise SourceError(f"source.root {root} is not a folder")
            connection.execute(f"SET file_search_path = {literal(str(root))}")
    except duckdb.Error as error:
        raise SourceError(f"source.root {root} cannot be opened ({type(error).__name__})") from error


def _is_select(place: str) -> bool:
    return place.lstrip().lower().startswith(("select ", "with "))


def _file(kind: str, root: Path, table: str, place: str) -> Path | None:
    """The file of a table, or None where its rows come from a database or a statement."""
    if kind == "duckdb" or _is_select(place):
        return None
    if not (root / place).exists():
        raise SourceError(f"source.tables.{table}: there is no file {place} in {root}")
    return root / place


def _load(raw: RawSide, table: str, file: Path, dialect: Csv, *, is_public: bool) -> None:
    """Read a CSV file into the table; lines that are no rows are left out, in a public table they are an error."""
    names = dialect.columns.get(table, ())
    target = f"csv.{identifier(table)}"
    left_out = load_csv(raw.connection, target, file, dialect, names)
    if left_out and is_public:
        raise SourceError(
            f"source.tables.{table}: {left_out} lines of {file.name} are no rows",
            hint="write source.csv as the file is written: one row a line, as many fields as the header",
        )
    _view(raw, table, target)
    if left_out:
        raw.left_out[table] = left_out


def _view(raw: RawSide, table: str, relation: str, kind: str = "") -> None:
    """A view of the table over a file, a table of a database, or a statement."""
    try:
        if kind == "duckdb":
            raw.connection.execute("USE source")
        raw.connection.execute(f"CREATE VIEW memory.raw.{identifier(table)} AS SELECT * FROM {relation}")
        raw.connection.execute("USE memory")
        described = raw.connection.execute(f"DESCRIBE raw.{identifier(table)}").fetchall()
    except duckdb.Error as error:
        raise SourceError(
            f"source.tables.{table} cannot be read ({type(error).__name__})",
            hint="check the file and its format",
        ) from error
    raw.columns[table] = {str(row[0]): str(row[1]) for row in described}
