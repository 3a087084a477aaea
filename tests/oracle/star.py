"""The bundled shop for oracle tests: raw tables in plain DuckDB, and releases of it with and without noise."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import duckdb

from dpsql.catalog import load_catalog
from dpsql.examples.retail import CUSTOMERS, PRODUCTS, make_star, write_star
from dpsql.executor.engine import ReleaseEngine
from dpsql.noise import Noise
from tests.releases import published

ROOT = Path(__file__).resolve().parents[2]


def make_shop(folder: Path) -> duckdb.DuckDBPyConnection:
    """Write the star and its catalog into a folder; returns plain DuckDB over the raw tables."""
    write_star(folder / "data", make_star(20250101, CUSTOMERS, PRODUCTS))
    (folder / "retail.yaml").write_text((ROOT / "catalog" / "retail.yaml").read_text())
    raw = duckdb.connect()
    derived = load_catalog(folder / "retail.yaml").tables["customer"].derive["age_group"]
    for table in ("product", "sales"):
        raw.execute(f"CREATE VIEW {table} AS SELECT * FROM '{folder / 'data' / table}.parquet'")
    raw.execute(
        f"CREATE VIEW customer AS SELECT *, {derived} AS age_group FROM '{folder / 'data' / 'customer'}.parquet'"
    )
    return raw


def publish_shop(folder: Path, noise: Noise) -> ReleaseEngine:
    """A release of the shop, opened."""
    return published(folder / "retail.yaml", noise, key=b"k" * 32)


def same(left: object, right: object) -> bool:
    """Equal values: integers exactly, decimals and averages to 1e-9, NULL of an empty SUM as 0."""
    if left is None or right is None:
        return left is right or left in (0, 0.0) or right in (0, 0.0)
    if isinstance(left, int | float | Fraction) or hasattr(left, "as_tuple"):
        return abs(float(left) - float(right)) <= 1e-9 * max(1.0, abs(float(right)))  # type: ignore[arg-type]
    return str(left)[:19].removesuffix(" 00:00:00") == str(right)[:19].removesuffix(" 00:00:00")
