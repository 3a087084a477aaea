"""Engine of a source, the types of its keys, and the identity of its raw tables.

DuckDB reads files and its own databases; a session on a server reads the others.

One person, one key: the keys of a star are carried into the type of the key that they name, before anything is joined.

The key of a dimension and all foreign keys that name it are one group. Where their types are the same nothing is done.
Where they differ, every column of the group is carried into one type by value, in the view `raw.<table>`
itself, so that joins, ranks, counters and axes all see one form. The type is decided by types alone:

    the group's first form (a stream's first batch), else the type of the key itself,
    read as whole numbers where the file holds text and the catalog declares the key `type: int`

Raw tables are known by canonical places and digests of rows, so that a lineage cannot be renamed by spelling.

A place is a file after links, `.`, `..` and the case that the file system keeps, or a database file with a table's
name; a table of a server has the places that its engine resolves (`Engine.places`). A SELECT has the places that it
reads. A digest is of the rows, whatever their order and that of the columns, or of a file's bytes. Engines hash
differently, and types too: digests are compared within one engine, and know a copy again whose columns have the same
types.

**Privacy**: types of keys are a function of the source's column types and the catalog. Digests are of raw rows; the
ledger keeps keyed hashes of them alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from dpsql.catalog import Catalog
from dpsql.catalog.graph import key_of, roots
from dpsql.catalog.source import (
    CLICKHOUSE,
    DELTA,
    DUCKDB,
    ICEBERG,
    POSTGRESQL,
    SPARK,
    Source,
    SourceKind,
    query_of,
)
from dpsql.engines import files_of, open_tables
from dpsql.engines.clickhouse import ClickHouseSession
from dpsql.engines.duck import RawSide, StoredRelations, retyped
from dpsql.engines.joined_rows import CommonRelations
from dpsql.engines.postgresql import PostgresSession
from dpsql.engines.server import ServerEngine, ServerSession
from dpsql.engines.spark import SparkSession
from dpsql.engines.values import EMPTY, exact_cast, family, type_word, widest
from dpsql.errors import SourceError
from dpsql.row_expressions import identifier
from dpsql.row_expressions.rowlocal import is_select

Engine: TypeAlias = RawSide | ServerEngine
"""Whatever holds the raw rows of one catalog; one state of them from opening to closing. Methods as of `RawSide`."""

Relations: TypeAlias = StoredRelations | CommonRelations
"""Named queries of one engine. Methods as of `CommonRelations`."""


def kind_of(engine: Engine, table: str, column: str) -> str | None:
    """Type of a column, however it is written; None for one that DuckDB derives."""
    columns = (*engine.columns[table].items(), *engine.made.get(table, {}).items())
    return next((kind for name, kind in columns if name.lower() == column.lower()), None)


KeyColumn = tuple[str, str, str, str]
"""A column that holds keys of a group: its table and name, its DuckDB type, and how messages name it."""


def open_star(
    catalog: Catalog,
    names: Iterable[str] | None = None,
    *,
    first: Mapping[str, str] | None = None,
    own_files: Mapping[str, Path] | None = None,
) -> RawSide:
    """Open tables of a catalog with their keys in one form each.

    Args:
        catalog: a checked catalog with a source.
        names: which tables, all of the source's unless given.
        first: root table -> DuckDB type of its key at a stream's first batch.
        own_files: table -> Parquet or CSV file that stands in for its source.

    Raises:
        CatalogError, SourceError: a file is missing or cannot be read, a SELECT does not fit its files, or a key and
            a foreign key cannot be equal.
    """
    raw = open_tables(catalog, names, own_files=own_files)
    try:
        type_keys(catalog, raw, first or {})
    except BaseException:
        raw.close()
        raise
    return raw


def type_keys(catalog: Catalog, raw: RawSide, first: Mapping[str, str]) -> None:
    """Carry every key of the open tables into its group's type.

    Args:
        catalog: the catalog.
        raw: the raw side; its views and column types are replaced.
        first: root table -> DuckDB type of its key at a stream's first batch.

    Raises:
        SourceError: a column's type and its group's stand for no common values.
    """
    casts: dict[str, dict[str, tuple[str, str]]] = {}
    for root, members in _groups(catalog, raw).items():
        target = raw.key_types[root] = group_type(catalog, root, members, first.get(root))
        for table, column, sql_type, place in members:
            value = exact_cast(identifier(column), sql_type, target)
            if value is None:
                raise SourceError(
                    f"{place}: {type_word(sql_type)} is never equal to "
                    f"{root}.{catalog.tables[root].key}, which has {type_word(family(target))} values",
                    hint="write both in one type, or declare the key's column `type: int` if its text contains numbers",
                )
            if value != identifier(column):
                _not_joined(catalog, raw, table, target)
                casts.setdefault(table, {})[column] = (value, target)
    for table, columns in casts.items():
        every = {name: (identifier(name), kind) for name, kind in raw.columns[table].items()}
        retyped(raw, table, every | columns)


def group_type(catalog: Catalog, root: str, members: list[KeyColumn], first: str | None) -> str:
    """The type of a group's keys: its own where all agree, else one that holds every value of its family."""
    types = {(table, column.lower()): kind for table, column, kind, _ in members if kind != EMPTY}
    types = types or {(table, column.lower()): kind for table, column, kind, _ in members}
    key = types.get((root, key_of(catalog, root)), next(iter(types.values())))
    base = first or (key if key != EMPTY else "VARCHAR")
    declared = catalog.tables[root].columns.get(str(catalog.tables[root].key))
    if declared is not None and declared.type == "int" and family(base) == "text":
        base = "HUGEINT"
    if set(types.values()) == {base}:
        return base
    # A public key keeps its type where it can: its axis shows it.
    keeps = catalog.tables[root].is_public and key == base and family(base) == "integer"
    return base if keeps else widest(base)


def _groups(catalog: Catalog, raw: RawSide) -> dict[str, list[KeyColumn]]:
    """The key columns that the open tables have, by root."""
    groups: dict[str, list[KeyColumn]] = {}
    for (table, column), root in roots(catalog).items():
        foreign = [name for name in catalog.tables[table].foreign_keys if name.lower() == column]
        place = f"tables.{table}.foreign_keys.{foreign[0]}" if foreign else f"tables.{table}.key"
        for name, sql_type in raw.columns.get(table, {}).items():
            if name.lower() == column:
                groups.setdefault(root, []).append((table, name, sql_type, place))
    return groups


def _not_joined(catalog: Catalog, raw: RawSide, table: str, target: str) -> None:
    """Refuse to carry keys that the SELECT of another table joins as they are stored.

    Raises:
        SourceError: one does.
    """
    source = catalog.raw_source()
    for name in raw.columns:
        query = None if name == table else query_of(source, catalog.tables, name)
        if query is not None and any(arm == table for arm, _ in query.keys):
            raise SourceError(
                f"tables.{table}.key: it would be read as {target}, and the SELECT of {name} joins it as it is stored",
                hint=f"write {target} in the source of {table}",
            )


SESSIONS: dict[SourceKind, Callable[[str, int], ServerSession]] = {
    POSTGRESQL: PostgresSession,
    SPARK: SparkSession,
    CLICKHOUSE: ClickHouseSession,
}
"""Kind of source -> how its server is opened: (the root, seconds that a statement may run)."""


def open_session(source: Source) -> ServerSession:
    """Open a server.

    Args:
        source: of a kind in `SESSIONS`.

    Raises:
        CatalogError: a variable of its address is not set.
        EngineLost: it cannot be reached.
    """
    return SESSIONS[source.kind](source.address, source.timeout)


def open_engine(catalog: Catalog, names: Iterable[str] | None = None) -> Engine:
    """Open tables of a catalog where their rows are.

    Args:
        catalog: a checked catalog with a source.
        names: which tables, all of the source's unless given.

    Raises:
        CatalogError, SourceError: a table is missing or cannot be read, or a key and a foreign key cannot be equal.
        EngineLost: a server cannot be reached, or is lost.
    """
    source = catalog.raw_source()
    if source.kind not in SESSIONS:
        return open_star(catalog, names)
    wanted = [name for name in (source.tables if names is None else names) if name in catalog.tables]
    session = open_session(source)
    try:
        return ServerEngine(session, catalog, wanted)
    except BaseException:
        session.close()
        raise


def places(kind: SourceKind, root: Path, where: str) -> tuple[str, ...]:
    """The canonical places of one table of a source.

    Args:
        kind: files or a DuckDB database; of servers `Engine.places` knows.
        root: folder of the files, or the database file.
        where: file name under root, table name in the database, or a SELECT whose files cannot be told.

    Returns:
        At least one place. A SELECT, or a file that is not there, stands for itself.
    """
    named = () if is_select(where) else (where,)
    listed = [place for name in named for place in NAMED.get(kind, _of_files)(root, name)]
    return tuple(dict.fromkeys(listed)) or (f"{canonical(root)}: {where}",)


def _of_files(root: Path, name: str) -> list[str]:
    """A folder is a place, and so is each file in it."""
    existing = [root / name] if (root / name).exists() else []
    return [canonical(file) for file in (*existing, *files_of(root, name, ENDINGS))]


ENDINGS = (".parquet", ".csv", ".tsv", ".txt")
"""Of the files that make a folder a table."""


def _of_lake(root: Path, name: str) -> list[str]:
    """The folder, whatever its snapshot, and the snapshot that is pinned."""
    folder, _, pin = name.rpartition("@")
    place = canonical(root / folder)
    return [place, f"{place}@{pin}"]


NAMED: dict[SourceKind, Callable[[Path, str], list[str]]] = {
    DUCKDB: lambda root, name: [f"{canonical(root)}#{name.split('.')[-1].lower()}"],
    DELTA: _of_lake,
    ICEBERG: _of_lake,
}
"""How a name stands for places, where it is not the name of files."""


def canonical(path: Path) -> str:
    """The one spelling of a path: absolute, links followed, each name as its folder lists it."""
    resolved = path.resolve()
    spelt = Path(resolved.anchor)
    for name in resolved.parts[1:]:
        spelt /= _listed(spelt, name)
    return str(spelt)


def table_digests(raw: Engine, catalog: Catalog, name: str, where: tuple[str, ...]) -> tuple[str, ...]:
    """Digests by which a copy of a table is known again.

    Args:
        raw: the open raw side.
        catalog: what is published.
        name: one of its tables.
        where: its places.

    Returns:
        The digest of its rows' keys and declared columns as the source has them, and those of its files' bytes; none
        for a table without rows.
    """
    table = catalog.tables[name]
    columns = sorted(
        {c.lower() for c in (*table.written, *table.foreign_keys, *([table.key] if table.key else []))}
    )
    rows = raw.fingerprint(name, columns)
    if rows is None:
        return ()  # tables without rows are all alike and hold nobody
    files = [_bytes_digest(Path(place)) for place in where if Path(place).is_file()]
    return (hashlib.sha256(json.dumps([columns, rows]).encode()).hexdigest(), *files)


def _bytes_digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _listed(folder: Path, name: str) -> str:
    """A name as its folder lists it; on file systems that ignore case the spelling used may be another."""
    try:
        with os.scandir(folder) as entries:
            names = [child.name for child in entries]
    except OSError:
        return name
    if name in names:
        return name
    alike = (candidate for candidate in names if candidate.casefold() == name.casefold())
    return next((candidate for candidate in alike if (folder / candidate).samefile(folder / name)), name)
