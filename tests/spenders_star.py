"""A small star whose dear rows are in the hands of a few who spend much, for tests along an amount's own axis."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dpsql.curator.prove.layouts import RawRows
from tests.releases import write_catalog

CATALOG = """
privacy: {lineage: shop, cap: 100, unit: buyer.id, epsilon: EPSILON, delta: DELTA}
tables:
  buyer: {role: dimension, key: id, private: true, columns: {branch: {type: string, categories: [n, s]}}}
  sales:
    role: fact
    max_ids: auto
    foreign_keys: {id: buyer}
    columns:
      amount: {type: int, lower: 0, upper: 1000, measure: true, cuts: [1, 10, 20, 50, 100, 200, 500]}
views:
  amounts: {of: sales, axes: [sales.amount], measures: [count, sales.amount]}
  branches: {of: sales, axes: [buyer.branch], measures: [count]}
"""
EDGES = (0, 1, 10, 20, 50, 100, 200, 500, 1001)


def write_star(
    folder: Path, owner: np.ndarray, amount: np.ndarray, *, epsilon: str = "2", delta: str = "1e-6"
) -> Path:
    """Write sales of these owners and amounts; returns the catalog."""
    sales = np.transpose([owner, np.clip(amount, 0, 1000).astype(np.int64)]).tolist()
    buyer = "SELECT DISTINCT id, CASE WHEN id % 2 = 1 THEN 'n' ELSE 's' END AS branch FROM sales ORDER BY id"
    tables = {"sales": RawRows("id BIGINT, amount BIGINT", sales), "buyer": buyer}
    return write_catalog(folder, CATALOG, tables, EPSILON=epsilon, DELTA=delta)


def spenders(people: int = 4000, seed: int = 6) -> tuple[np.ndarray, np.ndarray]:
    """Owners and amounts: one of eighty people buys more, and thirty times as dear."""
    rng = np.random.default_rng(seed)
    heavy = np.arange(people) % 80 == 0
    owned = rng.poisson(np.where(heavy, 24, 5)) + 1
    owner = np.repeat(np.arange(people), owned)
    return owner, np.exp(rng.normal(np.where(heavy[owner], 6.2, 2.8), 0.9)).astype(int)


def counted(owner: np.ndarray, amount: np.ndarray) -> list[int]:
    """Rows of each bin."""
    return np.histogram(np.clip(amount, 0, 1000), EDGES)[0].tolist()
