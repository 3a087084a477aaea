"""Raw rows: one DuckDB connection with a view for each table that the catalog names (`duck`).

The connection lives in memory; what does not fit goes to a private folder (`connection`). CSV columns arrive as text,
since a guessed type would depend on the rows; the catalog's types decide later, row by row. A place of a source is one
file, a pattern, or a folder with partitions:

    sales.parquet           a file below the root
    sales/*.parquet         a pattern; * and ? end at a folder, ** does not
    sales                   a folder: every file below it whose ending says that it can be read
    sales/year=2025/..      folders named so give a column `year`, as text: a type guessed from names would be guessed
                            from rows

Files are listed once, when a source is opened, and in order of their names. What begins with a dot or an underscore is
a writer's own and passed over.

**Privacy**: sees raw rows. Errors name files, tables and columns, never values, and are for the curator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeAlias

import duckdb

from dpsql.catalog import Catalog
from dpsql.catalog.checks import renamed
from dpsql.catalog.source import (
    CSV,
    DELTA,
    DUCKDB,
    FRAMES,
    ICEBERG,
    PARQUET,
    Csv,
    SourceKind,
    expand,
    query_of,
)
from dpsql.engines.duck import RawSide, no_sources, private_folder
from dpsql.engines.file_formats import load_csv, write_snapshot
from dpsql.engines.schema_union import (
    SchemaGroup,
    TableUse,
    folder_values,
    one_row_a_person,
    parquet_members,
    schema_of,
    table_use,
    united,
)
from dpsql.engines.values import DATABASE, FILES, INTEGERS, family, type_word
from dpsql.errors import CatalogError, SourceError
from dpsql.row_expressions import identifier, literal
from dpsql.row_expressions.rowlocal import Query

PATTERN = "*?["


def files_of(root: Path, place: str, endings: Collection[str]) -> tuple[Path, ...]:
    """The files of a place, sorted.

    Args:
        root: where relative places begin.
        place: as the catalog writes it, variables put in.
        endings: of the files that a folder is read for, in lower case.

    Returns:
        None where there is no such thing.
    """
    file = root / place
    if file.is_dir():
        return tuple(sorted(path for path in file.rglob("*") if _is_data(path, file, endings)))
    if file.exists() or not any(mark in place for mark in PATTERN):
        return (file,) if file.exists() else ()
    pattern = Path(place)
    base = Path(pattern.anchor) if pattern.is_absolute() else root
    relative_pattern = pattern.relative_to(pattern.anchor) if pattern.is_absolute() else pattern
    return tuple(sorted(path for path in base.glob(str(relative_pattern)) if path.is_file()))


def _is_data(file: Path, folder: Path, endings: Collection[str]) -> bool:
    names = file.relative_to(folder).parts
    return file.suffix.lower() in endings and file.is_file() and not any(name[0] in "._" for name in names)


__all__ = ["RawSide", "no_sources", "open_sources", "open_tables", "retyped"]


def open_tables(
    catalog: Catalog, names: Iterable[str] | None = None, *, own_files: Mapping[str, Path] | None = None
) -> RawSide:
    """Open tables of a catalog; its SELECTs are checked ones.

    Args:
        catalog: a checked catalog with a source.
        names: which tables, all of the source's unless given.
        own_files: table -> Parquet or CSV file that stands in for its source.

    Raises:
        CatalogError, SourceError: a file is missing or cannot be read, a SELECT does not fit its files.
    """
    source, stand_ins = catalog.raw_source(), own_files or {}
    if source.kind not in PLACES:
        raise CatalogError(f"source.kind: this needs rows in files or DuckDB, not in {source.kind.name}")
    opened = [name for name in (source.tables if names is None else names) if name in catalog.tables]
    places = {name: query_of(source, catalog.tables, name) or source.tables[name] for name in opened}
    uses = {name: table_use(catalog, name) for name in opened}
    raw = open_sources(
        source.kind,
        source.folder(catalog.file),
        places,
        csv=source.csv,
        own_files=stand_ins,
        uses=uses,
    )
    if source.kind.has_views and not source.trusted:
        try:
            _refuse_views(catalog, raw, places)
        except BaseException:
            raw.close()
            raise
    return raw


def _refuse_views(catalog: Catalog, raw: RawSide, places: Mapping[str, str | Query]) -> None:
    """A view of the database is a statement that nobody checks, so private rows come from tables.

    Raises:
        SourceError: a private table is a view.
    """
    views = {str(row[0]) for row in raw.connection.execute(
        "SELECT lower(view_name) FROM duckdb_views() WHERE database_name = 'source'"
    ).fetchall()}  # fmt: skip
    for name, where in places.items():
        read = where.reads if isinstance(where, Query) else (where,)
        view = next((place for place in read if expand(place).split(".")[-1].lower() in views), "")
        if view and not catalog.tables[name].is_public:
            raise SourceError(
                f"source.tables.{name}: {view} is a view of the database, whose SQL is not checked",
                hint="name its base table, write the SELECT here, or vouch for it by `trusted: true` in `source`",
            )


def open_sources(
    kind: SourceKind,
    root: Path,
    tables: Mapping[str, str | Query],
    *,
    csv: Csv | None = None,
    own_files: Mapping[str, Path] | None = None,
    uses: Mapping[str, TableUse] | None = None,
) -> RawSide:
    """Open every table of a source.

    Args:
        kind: files or a database.
        root: folder of the files, or the database file.
        tables: table -> file name under root, table name in the database, or a checked SELECT; as the catalog writes
            them, for errors print what is written and never what ${NAME} stands for.
        csv: how CSV files are written; RFC 4180 unless given.
        own_files: table -> Parquet or CSV file that stands in for its place.
        uses: table -> what its catalog makes of its columns; where there is none, types are as stored.

    Returns:
        The raw side with one view `raw.<table>` each.

    Raises:
        SourceError: a file is missing or cannot be read.
    """
    raw, stand_ins, dialect = no_sources(), own_files or {}, csv or Csv()
    try:
        # A timestamp with a zone must fall into the same leaf wherever the curator's machine stands.
        raw.connection.execute("SET TimeZone = 'UTC'")
        raw.connection.execute("CREATE SCHEMA raw")
        raw.connection.execute("CREATE SCHEMA read")
        raw.connection.execute("CREATE SCHEMA csv")
        place_of = PLACES[kind]
        try:
            place_of.attach(raw.connection, root)
        except duckdb.Error as error:
            raise SourceError(f"source.root cannot be opened ({type(error).__name__})") from error
        opening = _Opening(raw, place_of, root, dialect, uses or {})
        # a table that joins public ones waits for them
        for table in sorted(
            tables, key=lambda name: isinstance(at := tables[name], Query) and bool(at.joins)
        ):
            place = stand_ins.get(table, tables[table])
            if isinstance(place, Query):
                members = [_query(opening, table, place)]
            elif isinstance(place, Path):
                # A batch's own file: Parquet unless its ending says otherwise
                if not place.exists():
                    raise _nothing_there(table, place)
                members = READERS.get(place.suffix.lower(), _parquet)(opening, table, (place.absolute(),))
            else:
                members = place_of.members(opening, table, place, False)
            raw.members[table] = tuple(members)
            raw.columns[table] = _view(opening, table, members, _read_by(opening, table, place))
            if isinstance(place, Query) and place.joins:
                _check_joins(raw.connection, table, place)
    except BaseException:
        raw.close()
        raise
    return raw


Reader: TypeAlias = "Callable[[_Opening, str, Sequence[Path]], list[SchemaGroup]]"
"""The rows of some files, by schema: (source, table, files)."""


class SourcePlaces(NamedTuple):
    """Places of a kind of source.

    Args:
        attach: makes places below the root known to a connection; SourceError where there is no such root.
        members: the rows of a place as the catalog writes it, by schema: (the source, the table whose rows it holds,
            the place, whether a SELECT names it: then its name is split at dots, and its ending tells what it is);
            SourceError where there is no such file.
        home: the schema in which a trusted statement names tables as it likes.
        stored_in: the source of `dpsql.engines.values` whose types they have.
    """

    attach: Callable[[duckdb.DuckDBPyConnection, Path], None]
    members: Callable[[_Opening, str, str, bool], list[SchemaGroup]]
    home: str = "memory"
    stored_in: str = FILES


def _attach_files(connection: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Make file names in SELECT statements relative to the root."""
    _attach_lake(connection, root)
    connection.execute(f"SET file_search_path = {literal(str(root))}")


def _files(read: Reader, opening: _Opening, table: str, place: str, parts: bool) -> list[SchemaGroup]:
    """The rows of files below a folder, by a reader. One that a SELECT names may end otherwise than the source."""
    endings = [ending for ending, reader in READERS.items() if reader is read]
    files = files_of(opening.root, expand(place), endings)
    if not files:
        raise _nothing_there(table, place)
    reader = READERS.get(files[0].suffix.lower(), read) if parts else read
    return reader(opening, table, files)


def _attach_lake(connection: duckdb.DuckDBPyConnection, root: Path) -> None:
    """See that there is a root."""
    if not root.is_dir():
        raise SourceError("source.root is not a folder")


def _snapshot(kind: SourceKind, opening: _Opening, table: str, place: str, parts: bool) -> list[SchemaGroup]:
    """The rows of a lake's snapshot, which become a private Parquet file."""
    folder = private_folder()
    opening.raw.folders.append(folder)
    file = Path(folder.name) / "rows.parquet"
    write_snapshot(kind, opening.root, table, place, file)
    return _parquet(opening, table, (file,))


def _attach_database(connection: duckdb.DuckDBPyConnection, root: Path) -> None:
    """Attach a DuckDB file, read-only."""
    if not root.is_file():
        raise SourceError("source.root is not a DuckDB file")
    connection.execute(f"ATTACH {literal(str(root))} AS source (READ_ONLY)")


def _stored_table(opening: _Opening, table: str, place: str, parts: bool) -> list[SchemaGroup]:
    """The rows of a table of a database."""
    stored = expand(place)
    name = ".".join(map(identifier, stored.split("."))) if parts else identifier(stored)
    return [_member(opening, table, f"source.{name}")]


class _Opening(NamedTuple):
    """A source while it is opened."""

    raw: RawSide
    places: SourcePlaces
    root: Path
    dialect: Csv
    uses: Mapping[str, TableUse]

    def use(self, table: str) -> TableUse:
        """Columns of a table that the catalog uses."""
        return self.uses.get(table, TableUse())


def _query(opening: _Opening, table: str, query: Query) -> SchemaGroup:
    """The rows of a SELECT, each of its files opened as `read."<place>"`."""
    if query.trusted:
        return _member(opening, table, f"({expand(query.sql)})", trusted=True)
    for place in query.reads:
        members = opening.places.members(opening, table, place, True)
        select, _ = united(table, members, TableUse(), opening.places.stored_in)
        opening.raw.connection.execute(f"CREATE OR REPLACE VIEW memory.read.{identifier(place)} AS {select}")
    return _member(opening, table, f"({query.sql})")


def _read_by(opening: _Opening, table: str, place: str | Path | Query) -> str:
    """The source whose types a table's rows have: what a SELECT makes of texts may have a collation."""
    if isinstance(place, Path):
        return FILES
    if isinstance(place, Query) and (place.trusted or opening.use(table).public):
        return DATABASE
    return opening.places.stored_in


def _nothing_there(table: str, place: str | Path) -> SourceError:
    where = "" if isinstance(place, Path) else " below source.root"
    return SourceError(f"source.tables.{table}: there is no file {place}{where}")


def _parquet(opening: _Opening, table: str, files: Sequence[Path]) -> list[SchemaGroup]:
    """Parquet files, each read by its own schema."""
    try:
        return parquet_members(opening.raw.connection, files, opening.root, opening.use(table).folders)
    except duckdb.Error as error:
        raise _unreadable(table, error) from None  # the engine's words list columns and quote values


def _load(opening: _Opening, table: str, files: Sequence[Path]) -> list[SchemaGroup]:
    """Read CSV files into tables."""
    folders = opening.use(table).folders
    return [
        _member(opening, table, _load_file(opening, table, file))._replace(
            folders=folder_values(file, opening.root, folders), files=1
        )
        for file in files
    ]


def _load_file(opening: _Opening, table: str, file: Path) -> str:
    """Read a CSV file into a table; lines that are not rows are left out, of a public table they are an error."""
    raw, names = opening.raw, opening.dialect.columns.get(table, ())
    target = f"csv.{identifier(f'{table} {file}')}"
    left_out = load_csv(raw.connection, target, file, opening.dialect, names)
    raw.from_csv.add(table)
    if left_out and opening.use(table).public:
        raise SourceError(
            f"source.tables.{table}: {left_out} lines of {file.name} are not rows",
            hint="describe the file in source.csv: one row per line, as many fields as the header",
        )
    if left_out:
        raw.left_out[table] = raw.left_out.get(table, 0) + left_out
    return target


READERS: dict[str, Reader] = {".parquet": _parquet, **dict.fromkeys((".csv", ".tsv", ".txt"), _load)}
"""Ending of a file -> how its rows are read."""

PLACES: dict[SourceKind, SourcePlaces] = {
    **dict.fromkeys((PARQUET, FRAMES), SourcePlaces(_attach_files, partial(_files, _parquet))),
    CSV: SourcePlaces(_attach_files, partial(_files, _load)),
    **{lake: SourcePlaces(_attach_lake, partial(_snapshot, lake)) for lake in (DELTA, ICEBERG)},
    DUCKDB: SourcePlaces(_attach_database, _stored_table, "source", DATABASE),
}


def _member(opening: _Opening, table: str, relation: str, *, trusted: bool = False) -> SchemaGroup:
    """Rows of one schema. A trusted statement names tables of the database as it likes."""
    connection = opening.raw.connection
    try:
        if trusted and opening.places.home != "memory":
            # a view's names are bound each time that it is read, so the path stays; the engine's own functions come
            # before macros of the database, which could stand in for `floor` in the counting statement
            connection.execute(f"SET search_path = 'memory.main,system.main,{opening.places.home}.main'")
        return SchemaGroup(relation, schema_of(connection, relation))
    except duckdb.Error as error:
        raise _unreadable(table, error) from None  # the engine's words list columns and quote values


def _unreadable(table: str, error: duckdb.Error) -> SourceError:
    return SourceError(
        f"source.tables.{table} cannot be read ({type(error).__name__})",
        hint="check the file and its format, and that it has the columns that its SELECT names",
    )


def _view(opening: _Opening, table: str, members: Sequence[SchemaGroup], source: str) -> dict[str, str]:
    """Make the view of a table, `raw.<table>`; its columns and their types."""
    select, types = united(table, members, opening.use(table), source)
    if plain := renamed(table, types):
        listed = (f"{identifier(name)} AS {identifier(plain.get(name, name))}" for name in types)
        select, types = (
            f"SELECT {', '.join(listed)} FROM ({select})",
            {plain.get(n, n): types[n] for n in types},
        )
    if person := opening.use(table).person:
        select = one_row_a_person(table, select, types, person)
    try:
        opening.raw.connection.execute(f"CREATE OR REPLACE VIEW memory.raw.{identifier(table)} AS {select}")
    except duckdb.Error as error:
        raise _unreadable(table, error) from None  # the engine's words list columns and quote values
    return types


def _check_joins(connection: duckdb.DuckDBPyConnection, table: str, query: Query) -> None:
    """A key that is joined is of the other side's type, since a cast could fail on a row, and multiplies nothing.

    Raises:
        SourceError: it is not.
    """
    sides = [str(row[1]) for row in connection.execute(f"DESCRIBE {query.probe}").fetchall()]
    for joined, left, right in zip(query.joins, sides[::2], sides[1::2], strict=True):
        # an ENUM beside a text, and a FLOAT beside a DOUBLE, are carried without loss
        alike = family(left) == family(right) and family(left) in ("text", "float")
        if left != right and not alike and not {left, right} <= INTEGERS:
            probe, key = type_word(left), type_word(right)
            raise SourceError(
                f"source.tables.{table}: {joined} is joined by a {probe}, and its key is a {key}",
                hint=f"write CAST(.. AS {key}) in the ON of the SELECT",
            )
    for arm, key in query.keys:
        counts = connection.execute(
            f"SELECT count(*) = count(DISTINCT {identifier(key)}) FROM raw.{identifier(arm)}"
        ).fetchall()
        if not counts[0][0]:
            raise SourceError(
                f"tables.{arm}.key: {key} is NULL or repeated, which would multiply the rows of {table}",
                hint="remove them, or use a SELECT DISTINCT statement as the source of the table",
            )
