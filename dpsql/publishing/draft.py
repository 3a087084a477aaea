"""`dpsql init`: look at raw tables and write the first catalog, every bound read from data marked.

**Privacy**: reads raw rows and shows bounds to the curator, before any promise is made. The catalog that
comes out cannot be published until each marked place has been replaced or confirmed.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpsql.catalog.draft import MOST_CATEGORIES, ColumnFacts, TableFacts, draft_catalog
from dpsql.catalog.source import Csv
from dpsql.errors import InterfaceError, SourceError
from dpsql.sources import RawSide, identifier, open_sources
from dpsql.sources.csv import LONGEST


def draft_from_source(source: Path, output: Path, name: str | None) -> int:
    """Write a first catalog.

    Args:
        source: a folder of Parquet or CSV files, or a DuckDB file.
        output: the catalog; must not exist.
        name: its name; the source's own unless given.

    Returns:
        How many places wait for confirmation.

    Raises:
        SourceError: nothing readable there.
        InterfaceError: the output exists.
    """
    if output.exists():
        raise InterfaceError(f"{output} exists", hint="choose another output, or remove it")
    kind, tables = _tables(source)
    dialect = (
        Csv(delimiter=_delimiter([source / where for where in tables.values()])) if kind == "csv" else None
    )
    raw = open_sources(kind, source, tables, csv=dialect)
    try:
        facts = [_table_facts(raw, table, where) for table, where in tables.items()]
    finally:
        raw.close()
    text = draft_catalog(name or _plain(source.stem), kind, str(source), facts, dialect)
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(text, encoding="utf-8")
    return text.count("confirm: true") - text.count("`confirm: true`")


def _tables(source: Path) -> tuple[str, dict[str, str]]:
    """Kind of the source, and table -> file (or table) name."""
    if source.is_file():
        import duckdb

        try:
            with duckdb.connect(str(source), read_only=True) as connection:
                rows = connection.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        except duckdb.Error as error:
            raise SourceError(
                f"{source} is not a DuckDB file", hint="give a DuckDB file or a folder"
            ) from error
        return "duckdb", {str(row[0]): str(row[0]) for row in rows}
    for kind in ("parquet", "csv"):
        files = sorted(source.glob(f"*.{kind}")) if source.is_dir() else []
        if files:
            return kind, {_plain(file.stem): file.name for file in files}
    raise SourceError(
        f"{source} holds no Parquet or CSV file", hint="give a folder of tables or a DuckDB file"
    )


def _delimiter(files: Sequence[Path]) -> str:
    """The delimiter that stands most often in the header lines, which are no rows; a comma where none does."""
    headers = b""
    for file in files:
        with file.open("rb") as stream:
            headers += stream.readline(LONGEST)
    return max(",;\t|", key=lambda mark: headers.count(mark.encode()))


def _table_facts(raw: RawSide, table: str, where: str) -> TableFacts:
    """Rows, keys, bounds and short lists of values of one table."""
    name = f"raw.{identifier(table)}"
    rows = int(raw.connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0])
    columns = tuple(
        _column_facts(raw, name, column, kind, rows) for column, kind in raw.columns[table].items()
    )
    return TableFacts(table, where, rows, columns)


def _column_facts(raw: RawSide, table: str, column: str, kind: str, rows: int) -> ColumnFacts:
    quoted = identifier(column)
    low, high, distinct, present = raw.connection.execute(
        f"SELECT CAST(min({quoted}) AS VARCHAR), CAST(max({quoted}) AS VARCHAR), count(DISTINCT {quoted}), "
        f"count({quoted}) FROM {table}"
    ).fetchall()[0]
    values: tuple[str, ...] = ()
    if distinct <= MOST_CATEGORIES:
        listed = raw.connection.execute(
            f"SELECT DISTINCT CAST({quoted} AS VARCHAR) FROM {table} WHERE {quoted} IS NOT NULL ORDER BY 1"
        ).fetchall()
        values = tuple(str(row[0]) for row in listed)
    unique = rows > 0 and distinct == rows and present == rows
    return ColumnFacts(column, kind, low, high, unique, present < rows, values)


def _plain(text: str) -> str:
    """A name that a catalog accepts."""
    plain = "".join(c if c.isalnum() else "_" for c in text)
    return plain if plain and not plain[0].isdigit() else f"t_{plain}"
