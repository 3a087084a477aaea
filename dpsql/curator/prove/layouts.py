"""Storage layouts of made-up rows: each is another kind of source, and the same rows have to cost the same.

| layout | what lies there | what it aims at |
|---|---|---|
| `one file` | one Parquet file a table | nothing; the others are compared with it |
| `several files` | three Parquet files a table, types and order of columns of each its own | one schema for all |
| `DuckDB file` | COLLATE NOCASE, generated columns, views, macros | an engine's equalities and names |
| `CSV` | text | types that are guessed |
| `folders` | a column in the names of folders, and a file beside them | partitions that are guessed |

**Privacy**: made-up rows.
**Source**: docs/audit.md, "2. Where neighbours aim".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import duckdb

from dpsql.catalog import Catalog
from dpsql.catalog.private_columns import reported_columns
from dpsql.row_expressions import identifier, literal
from dpsql.scratch import scratch


class RawRows(NamedTuple):
    """The rows of one raw table.

    Args:
        columns: names and DuckDB types, as in CREATE TABLE.
        rows: one tuple each; text is read as the column's type.
    """

    columns: str
    rows: Sequence[tuple[object, ...]]

    def plus(self, *rows: tuple[object, ...]) -> RawRows:
        """The same table with more rows."""
        return RawRows(self.columns, (*self.rows, *rows))


Tables = Mapping[str, RawRows]


class SourceLayout(NamedTuple):
    """A kind of source that needs no server.

    Args:
        name: in a proof.
        write: (folder, tables by name, the catalog that reads them; its public tables keep their types) -> the
            `source` of a catalog that reads them; the folder is made if it is not there.
        fits: whether a catalog's columns mean the same there.
    """

    name: str
    write: Callable[[Path, Tables, Catalog], dict[str, Any]]
    fits: Callable[[Catalog], bool] = lambda _: True


def load_tables(raw: duckdb.DuckDBPyConnection, tables: Tables) -> None:
    """Make a table of each in a connection, rows in order."""
    for name, table in tables.items():
        target = identifier(name)
        raw.execute(f"CREATE TABLE {target} ({table.columns})")
        kinds = [kind for _, kind in stored_columns(raw, name)]
        lists = ", ".join(f"unnest(?::{kind}[])" for kind in kinds)
        values = [[row[i] for row in table.rows] for i in range(len(kinds))]
        raw.execute(f"INSERT INTO {target} SELECT {lists}", values)


def stored_columns(raw: duckdb.DuckDBPyConnection, table: str) -> list[tuple[str, str]]:
    """Names and types of a table's columns."""
    return [(str(row[0]), str(row[1])) for row in raw.execute(f"DESCRIBE {identifier(table)}").fetchall()]


def write_tables(place: Path, tables: Tables, ending: str = ".parquet", options: str = "") -> None:
    """Write each table into a file of its name.

    Args:
        place: a folder; made if it is not there.
        tables: by name.
        ending: of the files.
        options: of COPY.
    """
    place.mkdir(parents=True, exist_ok=True)
    with scratch() as raw:
        load_tables(raw, tables)
        for name in tables:
            raw.execute(f"COPY {identifier(name)} TO {literal(str(place / name) + ending)}{options}")


def one_file(place: Path, tables: Tables, catalog: Catalog) -> dict[str, Any]:
    write_tables(place, tables)
    return {"root": str(place), "tables": {name: f"{name}.parquet" for name in tables}}


NUMBERS = ("SMALLINT", "INTEGER", "BIGINT")
WIDER: tuple[Mapping[str, str], ...] = (
    {},
    dict.fromkeys(NUMBERS, "DECIMAL(20,2)") | {"DATE": "TIMESTAMP"},
    dict.fromkeys(NUMBERS, "DOUBLE"),
)
"""By file: column, or stored type -> the type that it has there; empty where the file has no such column."""


def several_files(
    place: Path, tables: Tables, catalog: Catalog, types: Sequence[Mapping[str, str]] = WIDER
) -> dict[str, Any]:
    """Rows of each private table over files of different types, `types` as `WIDER`."""
    public = catalog.public_tables
    write_tables(place, {name: table for name, table in tables.items() if name in public})
    private = {name: table for name, table in tables.items() if name not in public}
    with scratch() as raw:
        load_tables(raw, private)
        for name in private:
            (place / name).mkdir()
            columns = stored_columns(raw, name)
            for number, file_types in enumerate(types):
                ordered = columns if number % 2 == 0 else columns[::-1]
                stored = [
                    (column, file_types.get(column, file_types.get(kind, kind))) for column, kind in ordered
                ]
                named = ((identifier(column), kind) for column, kind in stored if kind)
                cast = ", ".join(f"CAST({column} AS {kind}) AS {column}" for column, kind in named)
                rows = f"SELECT {cast} FROM {identifier(name)} WHERE rowid % {len(types)} = {number}"
                raw.execute(f"COPY ({rows}) TO {literal(str(place / name / f'{number}.parquet'))}")
    files = {name: f"{name}.parquet" if name in public else f"{name}/*.parquet" for name in tables}
    return {"root": str(place), "tables": files}


MACROS = ("abs(x) AS 0", "hash(x) AS 0", "least(a, b) AS a", "coalesce_all(a) AS NULL")
"""Functions that a database file may define under names that statements use."""


def database_file(place: Path, tables: Tables, catalog: Catalog, collation: str = "NOCASE") -> dict[str, Any]:
    """Tables of a DuckDB file whose texts have a collation."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "tables.duckdb"
    with duckdb.connect(str(file)) as database, scratch() as raw:
        load_tables(raw, tables)
        for macro in MACROS:
            database.execute(f"CREATE MACRO {macro}")
        for name in tables:
            rows = place / f"{name}.parquet"
            raw.execute(f"COPY {identifier(name)} TO {literal(str(rows))}")
            _store(database, name, stored_columns(raw, name), rows, collation, name in catalog.public_tables)
            rows.unlink()
    return {"kind": "duckdb", "root": str(file), "tables": {name: name for name in tables}}


def _store(
    database: duckdb.DuckDBPyConnection, name: str, columns: Sequence[tuple[str, str]], rows: Path,
    collation: str, is_view: bool,
) -> None:  # fmt: skip
    """A base table whose last column is generated; of a public table a view over it."""
    stored = f"{name} stored" if is_view else name
    last, kind = columns[-1]
    base_columns = [*columns[:-1], (f"{last} stored", kind)]
    collated = {"VARCHAR": f"VARCHAR COLLATE {collation}"}
    specs = ", ".join(f"{identifier(column)} {collated.get(kind, kind)}" for column, kind in base_columns)
    generated = f"{identifier(last)} {kind} GENERATED ALWAYS AS ({identifier(last + ' stored')})"
    database.execute(f"CREATE TABLE {identifier(stored)} ({specs}, {generated})")
    database.execute(f"INSERT INTO {identifier(stored)} FROM {literal(str(rows))}")
    if is_view:
        names = ", ".join(identifier(column) for column, _ in columns)
        database.execute(f"CREATE VIEW {identifier(name)} AS SELECT {names} FROM {identifier(stored)}")


def csv_files(place: Path, tables: Tables, catalog: Catalog) -> dict[str, Any]:
    write_tables(place, tables, ".csv", " (FORMAT csv, HEADER true)")
    return {"kind": "csv", "root": str(place), "tables": {name: f"{name}.csv" for name in tables}}


def folders(place: Path, tables: Tables, catalog: Catalog) -> dict[str, Any]:
    """Folders that name the values of a column; NULL lies in the file beside them."""
    named = {name: folder_column(catalog, name) for name in tables}
    write_tables(place, {name: table for name, table in tables.items() if not named[name]})
    partitioned = {name: column for name, column in named.items() if column}
    with scratch() as raw:
        load_tables(raw, {name: tables[name] for name in partitioned})
        for name, column in partitioned.items():
            text = f"CAST({identifier(column)} AS VARCHAR)"
            distinct = raw.execute(f"SELECT DISTINCT {text} FROM {identifier(name)} ORDER BY 1")
            for value in {None, *(row[0] for row in distinct.fetchall())}:
                folder = place / name / ("" if value is None else f"{column}={quote(value, safe='')}")
                folder.mkdir(parents=True, exist_ok=True)
                rows = f"SELECT * EXCLUDE ({identifier(column)}) FROM {identifier(name)}"
                same, target = (
                    "IS NULL" if value is None else f"= {literal(value)}",
                    folder / "rows.parquet",
                )
                raw.execute(f"COPY ({rows} WHERE {text} {same}) TO {literal(str(target))}")
    files = {name: f"{name}{'/**/*' if name in partitioned else ''}.parquet" for name in tables}
    hive = {name: (column,) for name, column in partitioned.items()}
    return {"root": str(place), "tables": files, "hive": hive}


def folder_column(catalog: Catalog, name: str) -> str:
    """The column of a private table that folders can name: no key, and no expression sees its type; empty for none."""
    table = catalog.tables[name]
    if name in catalog.public_tables or table.derive or table.measures:
        return ""
    keys = {key.lower() for key in (*table.foreign_keys, table.key or "")}
    plain = {n: spec for n, spec in table.written.items() if spec.reported is None and not spec.measure}
    fit = [n for n, spec in plain.items() if spec.type in FOLDER_TYPES and n.lower() not in keys]
    return fit[-1] if fit else ""


FOLDER_TYPES = ("string", "int", "date")
ONE_FILE = SourceLayout("one file", one_file)
LAYOUTS = (
    ONE_FILE,
    SourceLayout("several files", several_files),
    # reports of people's devices are files
    SourceLayout("DuckDB file", database_file, lambda catalog: not reported_columns(catalog)),
    # expressions, axes over public tables and keys without a declared type see other types than in Parquet
    SourceLayout("CSV", csv_files, lambda catalog: catalog.raw_source().kind.name == "csv"),
    SourceLayout(
        "folders", folders, lambda catalog: any(folder_column(catalog, name) for name in catalog.tables)
    ),
)
"""In the order in which a proof takes them."""
