"""Releases of small stars: tables that SQL makes, a catalog beside them, and what answers questions about them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import duckdb

from dpsql.api import audit
from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.curator.audit.contents import Check
from dpsql.curator.prove.layouts import RawRows, load_tables, stored_columns
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ExactNoise, Noise, insecure_test_entropy
from dpsql.release import open_release
from dpsql.row_expressions import identifier
from dpsql.scratch import scratch

Twins = tuple[ReleaseEngine, duckdb.DuckDBPyConnection]
"""A release without noise, and plain DuckDB over the same rows."""


def seeded(seed: int) -> Noise:
    """Noise that is the same in every run."""
    return ExactNoise(insecure_test_entropy(seed))


def headed(text: str, files: Mapping[str, str]) -> str:
    """A catalog; one without a source has that of Parquet files, and a version, a name and a ledger if it has none.

    Args:
        text: of the catalog; ROOT and LEDGER stand for places.
        files: by table.
    """
    places = ", ".join(f"{table}: {file}" for table, file in files.items())
    source = f"{{kind: parquet, root: ROOT, tables: {{{places}}}}}"
    head = (
        {"dpsql": "1", "name": "star", "ledger": "LEDGER", "source": source}
        if "\nsource:" not in text
        else {}
    )
    return (
        "".join(f"{key}: {value}\n" for key, value in head.items() if f"\n{key}:" not in f"\n{text}") + text
    )


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: Sequence[Sequence[Any]]) -> None:
    """Put rows into a table that is there, in order; `executemany` takes a third of a millisecond for each."""
    kinds = [kind for _, kind in stored_columns(connection, table)]
    lists = ", ".join(f"unnest(?::{kind}[])" for kind in kinds)
    connection.execute(
        f"INSERT INTO {identifier(table)} SELECT {lists}",
        [list(column) for column in zip(*rows, strict=True)],
    )


def write_tables(folder: Path, tables: Mapping[str, str | RawRows], ending: str = "parquet") -> Path:
    """Write each table as a file; a query may name tables before its own. Returns the folder, made if it is absent."""
    folder.mkdir(parents=True, exist_ok=True)
    with scratch() as database:
        for name, rows in tables.items():
            if isinstance(rows, RawRows):
                load_tables(database, {name: rows})
            else:
                database.execute(f"CREATE TABLE {identifier(name)} AS {rows}")
            database.execute(f"COPY {identifier(name)} TO '{folder / name}.{ending}'")
    return folder


def write_catalog(
    folder: Path, text: str, tables: Mapping[str, str | RawRows] | None = None, **words: object
) -> Path:
    """Write the rows of some tables, and a catalog about them.

    Args:
        folder: made if it is absent.
        text: of the catalog, but for what `headed` adds; ROOT in it is the folder, LEDGER a file there.
        tables: queries, or rows as they are.
        words: what else stands for other words in the text.

    Returns:
        The catalog.
    """
    write_tables(folder, tables or {})
    if tables:
        text = headed(text, {table: f"{table}.parquet" for table in tables})
    for word, value in (words | {"LEDGER": "ROOT/ledger", "ROOT": folder}).items():
        text = text.replace(word, str(value))
    (folder / "catalog.yaml").write_text(text)
    return folder / "catalog.yaml"


def plain_tables(folder: Path) -> duckdb.DuckDBPyConnection:
    """Plain DuckDB over the Parquet files of a folder."""
    raw = duckdb.connect()
    for file in folder.glob("*.parquet"):
        raw.execute(f"CREATE TABLE {identifier(file.stem)} AS FROM '{file}'")
    return raw


def published(
    catalog: Path, noise: Noise, name: str = "r", key: bytes = bytes(32), **options: Any
) -> ReleaseEngine:
    """Publish a catalog beside itself; `options` are those of the engine that answers."""
    release = publish_release(load_catalog(catalog), catalog.with_name(f"{name}.dpsql"), noise=noise, key=key)
    return ReleaseEngine(open_release(release.path, insecure=True), **options)


def failed(release: Path, catalog: Path | None = None) -> list[Check]:
    """Claims of a release that an audit does not find held."""
    return [check for check in audit(release, catalog=catalog, samples=0).checks if check.held is False]
