"""Identity of raw tables: canonical places and digests of rows, so that a lineage cannot be renamed by spelling.

A place is a file after links, `.`, `..` and the case that the file system keeps, or a database file with a table's
name; a table of a server has the places that its engine resolves (`Engine.places`). A SELECT has the places that it
reads. A digest is of the rows, whatever their order and that of the columns, or of a file's bytes. Engines hash
differently, and types too: digests are compared within one engine, and know a copy again whose columns have the same
types.

**Privacy**: digests are of raw rows; the ledger keeps keyed hashes of them alone.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from dpsql.catalog import Catalog
from dpsql.catalog.source import DELTA, DUCKDB, ICEBERG, SourceKind
from dpsql.engines import files_of
from dpsql.engines.engine import Engine
from dpsql.row_expressions.rowlocal import is_select


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
