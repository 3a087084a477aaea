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
    """Write the star and its catalog; log-normal numbers of rows with this deviation. Returns the catalog."""
    rng = np.random.default_rng(seed)
    columns = {"reader": {"id": np.arange(people), "branch": rng.choice(["n", "s"], people)}}
    for table, middle in (("loans", 1.6), ("fines", 1.0)):
        owned = np.minimum(rng.lognormal(middle, spread, people).astype(int) + 1, 60)
        rows = int(owned.sum())
        columns[table] = {"id": np.repeat(np.arange(people), owned), "kind": rng.integers(0, 4, rows)}
    columns["loans"]["days"] = np.minimum(rng.gamma(2.0, 7.0, len(columns["loans"]["id"])).astype(int), 60)
    with duckdb.connect() as db:
        for table, values in columns.items():
            frame = db.from_arrow(_arrow(values))
            frame.write_parquet(str(folder / f"{table}.parquet"))
    catalog = folder / "desk.yaml"
    catalog.write_text(CATALOG.format(root=folder, epsilon=epsilon))
    return catalog


def _arrow(columns: dict[str, np.ndarray]) -> object:
    import pyarrow

    return pyarrow.table(columns)
