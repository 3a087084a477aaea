"""Releases of small stars: tables that SQL makes, a catalog beside them, and what answers questions about them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import duckdb

from dpsql.catalog import load_catalog
from dpsql.central.central import publish_release
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import ExactNoise, Noise, insecure_test_entropy
from dpsql.release import open_release

Twins = tuple[ReleaseEngine, duckdb.DuckDBPyConnection]
"""A release without noise, and plain DuckDB over the same rows."""


def seeded(seed: int) -> Noise:
    """Noise that is the same in every run."""
    return ExactNoise(insecure_test_entropy(seed))


def write_tables(folder: Path, tables: Mapping[str, str]) -> Path:
    """Write the rows of each query as a Parquet file; returns the folder, made if it is absent."""
    folder.mkdir(parents=True, exist_ok=True)
    with duckdb.connect() as database:
        for name, query in tables.items():
            database.execute(f"COPY ({query}) TO '{folder / name}.parquet'")
    return folder


def write_catalog(folder: Path, text: str, tables: Mapping[str, str] | None = None) -> Path:
    """Write the rows of each query, and a catalog about them; ROOT in it is the folder."""
    write_tables(folder, tables or {})
    catalog = folder / "catalog.yaml"
    catalog.write_text(text.replace("ROOT", str(folder)))
    return catalog


def published(
    catalog: Path, noise: Noise, name: str = "r", key: bytes = bytes(32), **options: Any
) -> ReleaseEngine:
    """Publish a catalog beside itself; `options` are those of the engine that answers."""
    release = publish_release(load_catalog(catalog), catalog.with_name(f"{name}.dpsql"), noise=noise, key=key)
    return ReleaseEngine(open_release(release.path, insecure=True), **options)
