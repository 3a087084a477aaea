"""A small star with two facts whose customers own uneven numbers of rows, for tests of answers across tables."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np

CATALOG = """
dpsql: 1
name: desk
ledger: ledger.duckdb
source: {{kind: parquet, root: {root}, tables: {{loans: loans.parquet, fines: fines.parquet, reader: reader.parquet}}}}
privacy: {{lineage: desk, cap: 100, unit: reader.id, epsilon: {epsilon}, delta: 1e-6}}
tables:
  reader: {{role: dimension, key: id, private: true, columns: {{branch: {{type: string, categories: [n, s]}}}}}}
  loans:
    role: fact
    max_ids: auto
    foreign_keys: {{id: reader}}
    columns:
      kind: {{type: int, lower: 0, upper: 3}}
      days: {{type: int, lower: 0, upper: 60, measure: true}}
  fines:
    role: fact
    max_ids: auto
    foreign_keys: {{id: reader}}
    columns: {{kind: {{type: int, lower: 0, upper: 3}}}}
views:
  kinds: {{of: loans, axes: [loans.kind], measures: [count, loans.days]}}
  branches: {{of: loans, axes: [reader.branch], measures: [count]}}
  fined: {{of: fines, axes: [fines.kind], measures: [count]}}
"""


def write_star(folder: Path, people: int, seed: int, *, spread: float = 0.7, epsilon: str = "1") -> Path:
    """Write a star of log-normal numbers of rows with this deviation, and its catalog; returns the catalog."""
    rng = np.random.default_rng(seed)
    loans, fines = (
        np.minimum(rng.lognormal(middle, spread, people).astype(int) + 1, 60) for middle in (1.6, 1.0)
    )
    return write_rows(folder, loans, fines, rng, epsilon=epsilon)


def write_rows(
    folder: Path, loans: np.ndarray, fines: np.ndarray, rng: np.random.Generator, *, epsilon: str = "1"
) -> Path:
    """Write a star whose readers have so many loans and fines, and its catalog; returns the catalog."""
    columns = {"reader": {"id": np.arange(len(loans)), "branch": rng.choice(["n", "s"], len(loans))}}
    for table, owned in (("loans", loans), ("fines", fines)):
        rows = int(owned.sum())
        columns[table] = {"id": np.repeat(np.arange(len(owned)), owned), "kind": rng.integers(0, 4, rows)}
    columns["loans"]["days"] = np.minimum(rng.gamma(2.0, 7.0, len(columns["loans"]["id"])).astype(int), 60)
    with duckdb.connect() as db:
        for table, values in columns.items():
            db.execute(
                f"CREATE TABLE {table} AS SELECT {', '.join(f'unnest(?) AS {name}' for name in values)}",
                [column.tolist() for column in values.values()],
            )
            db.execute(f"COPY {table} TO '{folder / table}.parquet'")
    catalog = folder / "desk.yaml"
    catalog.write_text(CATALOG.format(root=folder, epsilon=epsilon))
    return catalog
