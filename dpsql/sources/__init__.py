"""Where raw rows are: one DuckDB connection with a view for each table that the catalog names.

The connection lives in memory and writes nothing. CSV columns arrive as text, since a guessed type
would depend on the rows; the catalog's types decide later, row by row.

**Privacy**: sees raw rows. Errors name files, tables and columns, never values, and are for the curator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from dpsql.errors import SourceError

READERS = {
    "parquet": "read_parquet({file})",
    "csv": "read_csv({file}, all_varchar = true, header = true)",
}


@dataclass
class RawSide:
    """An open raw side.

    Args:
        connection: private in-memory DuckDB connection with the schema `raw`.
        columns: table -> column -> DuckDB type.
    """

    connection: duckdb.DuckDBPyConnection
    columns: dict[str, dict[str, str]]

    def close(self) -> None:
        """Forget the connection and all temporary tables."""
        self.connection.close()


def open_sources(kind: str, root: Path, tables: Mapping[str, str]) -> RawSide:
    """Open every table of a source.

    Args:
        kind: `parquet`, `csv` or `duckdb`.
        root: folder of the files; for `duckdb` the database file.
        tables: table -> file name under root, table name in the database, or a SELECT statement.

    Returns:
        The raw side with one view `raw.<table>` each.

    Raises:
        SourceError: a file is missing or cannot be read.
    """
    connection = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
    try:
        # A timestamp with a zone must fall into the same leaf wherever the curator's machine stands.
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE SCHEMA raw")
        _attach(connection, kind, root)
        columns = {table: _define(connection, kind, root, table, where) for table, where in tables.items()}
    except BaseException:
        connection.close()
        raise
    return RawSide(connection, columns)


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


def _define(
    connection: duckdb.DuckDBPyConnection, kind: str, root: Path, table: str, where: str
) -> dict[str, str]:
    if where.lstrip().lower().startswith(("select ", "with ")):
        relation = f"({where})"
    elif kind == "duckdb":
        relation = f"source.{identifier(where)}"
    else:
        if not (root / where).exists():
            raise SourceError(f"source.tables.{table}: there is no file {where} in {root}")
        relation = READERS[kind].format(file=literal(str(root / where)))
    try:
        if kind == "duckdb":
            connection.execute("USE source")
        connection.execute(f"CREATE VIEW memory.raw.{identifier(table)} AS SELECT * FROM {relation}")
        connection.execute("USE memory")
        described = connection.execute(f"DESCRIBE raw.{identifier(table)}").fetchall()
    except duckdb.Error as error:
        raise SourceError(
            f"source.tables.{table} cannot be read ({type(error).__name__})",
            hint="check the file and its format",
        ) from error
    return {str(row[0]): str(row[1]) for row in described}


def identifier(name: str) -> str:
    """A quoted SQL identifier.

    >>> identifier('a"b')
    '"a""b"'
    """
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    """A quoted SQL string.

    >>> literal("it's")
    "'it''s'"
    """
    return "'" + text.replace("'", "''") + "'"
