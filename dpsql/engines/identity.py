"""Which raw table is which: canonical places and digests of rows, so that a lineage cannot be renamed by spelling.

A place is a file after links, `.`, `..` and the case that the file system keeps, or a database file with a table's
name. A SELECT has the places that it reads. A digest is of the rows, whatever their order and that of the columns, or
of a file's bytes. Engines hash differently, and types too: digests are compared within one engine, and know a copy
again whose columns have the same types.

**Privacy**: digests are of raw rows; the ledger keeps keyed hashes of them alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path

from dpsql.engines import postgresql, spark
from dpsql.engines.engine import Engine
from dpsql.engines.files import files_of
from dpsql.star import Catalog
from dpsql.star.source import DUCKDB, POSTGRESQL, SPARK, Source, SourceKind
from dpsql.star.sql.rowlocal import is_select


def places(kind: SourceKind, root: Path | str, where: str) -> tuple[str, ...]:
    """The canonical places of one table of a source.

    Args:
        kind: files or a database.
        root: folder of the files, the database file, or a server's address.
        where: file name under root, table name in the database, or a SELECT whose files cannot be told.

    Returns:
        At least one place. A SELECT, or a file that is not there, stands for itself.
    """
    if isinstance(root, str):
        return (f"{root}#{where.lower()}",)
    named = () if is_select(where) else (where,)
    listed = [place for name in named for place in NAMED.get(kind, _of_files)(root, name)]
    return tuple(dict.fromkeys(listed)) or (f"{canonical(root)}: {where}",)


def _of_files(root: Path, name: str) -> list[str]:
    """A folder is a place, and so is each file in it."""
    whole = [root / name] if (root / name).exists() else []
    return [canonical(file) for file in (*whole, *files_of(root, name, ENDINGS))]


def _of_database(root: Path, name: str) -> list[str]:
    return [f"{canonical(root)}#{name.split('.')[-1].lower()}"]


def root_of(source: Source, catalog_file: Path | None) -> Path | str:
    """Where a source's places are: a folder, a database file, or a server's address without anything secret."""
    if source.kind in SERVERS:
        return SERVERS[source.kind](source.address)
    return source.folder(catalog_file)


SERVERS: Mapping[SourceKind, Callable[[str], str]] = {POSTGRESQL: postgresql.address, SPARK: spark.address}
"""Kind of source -> what its address is without anything secret."""

ENDINGS = (".parquet", ".csv", ".tsv", ".txt")
"""Of the files that make a folder a table."""

NAMED = {DUCKDB: _of_database}
"""How a name stands for places, where it is not the name of files."""


def canonical(path: Path) -> str:
    """The one spelling of a path: absolute, links followed, each name as its folder lists it."""
    resolved = path.resolve()
    spelt = Path(resolved.anchor)
    for part in resolved.parts[1:]:
        spelt /= _listed(spelt, part)
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
        {c.lower() for c in (*table.columns, *table.foreign_keys, *([table.key] if table.key else []))}
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
            names = [entry.name for entry in entries]
    except OSError:
        return name
    if name in names:
        return name
    alike = (other for other in names if other.casefold() == name.casefold())
    return next((other for other in alike if (folder / other).samefile(folder / name)), name)
