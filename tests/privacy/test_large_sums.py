"""Sums that pass 64 bits: a release is made all the same, and nothing but its noisy numbers tells of them."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.central.placed_rows import LARGEST, exact_sums
from dpsql.errors import InternalError
from dpsql.matrices.reconcile import UNIT, family_step, node_sums, round_family
from dpsql.matrices.strategy import measure
from dpsql.mechanisms.axis.dense import sine_strategy
from dpsql.tree import kary_tree
from tests.releases import published, seeded, write_catalog
from tests.thinned import by_default

CATALOG = """
privacy: {lineage: grid, cap: 99, UNIT, epsilon: 2.0, DELTA}
tables:
  person: {role: dimension, key: id, private: true}
  hits: {role: fact, foreign_keys: {id: person}, MAXIDS, columns: {
    x: {type: int, lower: 0, upper: 15}, y: {type: int, lower: 0, upper: 11},
    cost: {type: int, lower: 0, upper: TOP, measure: true}}}
views:
  one: {of: hits, axes: [hits.x], measures: [count, hits.cost], MECHANISM}
  two: {of: hits, axes: [hits.x, hits.y], measures: [count, hits.cost], MECHANISM}
"""
PURE = {
    "UNIT": "unit: row",
    "DELTA": "delta: 0",
    "MAXIDS": "description: hits",
    "MECHANISM": "mechanism: auto",
}
WAYS = {
    "pure": PURE,
    "tree": PURE | {"MECHANISM": "mechanism: lue_dptree"},
    "residual": PURE | {"DELTA": "delta: 1e-6", "MECHANISM": "mechanism: residual"},
    "auto": PURE | {"UNIT": "unit: person.id", "MAXIDS": "max_ids: auto"},
}


def publish(folder: Path, number: int, cost: int, **words: str) -> dict[str, int]:
    """A release of rows that all have one cost; its tables and their row counts."""
    rows = f"SELECT i % 3000 AS id, 0 AS x, i % 3 AS y, {cost}::BIGINT AS cost FROM range({number}) t(i)"
    raw = {"hits": rows, "person": "SELECT i AS id FROM range(3000) t(i)"}
    release = published(write_catalog(folder, CATALOG, raw, **words), seeded(7), key=b"k" * 32).release
    release.close()
    with duckdb.connect(str(release.path), read_only=True) as opened:
        tables = opened.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
        names = [name for (name,) in tables]
        assert len(names) == len(set(names))
        return {name: opened.execute(f'SELECT count(*) FROM "{name}"').fetchall()[0][0] for name in names}


@pytest.mark.parametrize("way", by_default(WAYS, 1))
def test_sums_that_no_release_can_hold_publish_the_same_nodes(way: str, tmp_path: Path) -> None:
    words = WAYS[way] | {"TOP": str(2 * 10**9)}
    large = publish(tmp_path / "large", 12_000, 2 * 10**9, **words)
    assert 12_000 * 10**9 > 1 << 42
    assert publish(tmp_path / "small", 12_000, 3, **words) == large


@pytest.mark.slow  # 38 million rows: the plan refuses bounds that would need fewer
def test_exact_sums_beyond_64_bits_publish_the_same_nodes(tmp_path: Path) -> None:
    words, rows = PURE | {"TOP": str(5 * 10**11), "MECHANISM": "mechanism: identity"}, 38_000_000
    assert rows * 25 * 10**10 > 1 << 63
    large = publish(tmp_path / "large", rows, 5 * 10**11, **words)
    assert publish(tmp_path / "small", 30, 3, **words) == large


def test_a_cell_is_cut_no_further_apart_than_it_was() -> None:
    connection = duckdb.connect()
    rows = "SELECT i % 3 AS a0, (i % 3 - 1) * 9007199254740992 AS m FROM range(6000) t(i)"
    connection.execute(f"CREATE TABLE t AS {rows}")
    assert exact_sums(connection, "t", [0], [3], ["m"])[0].tolist() == [-LARGEST, 0, LARGEST]
    assert int(exact_sums(connection, "t", [], [], ["m"])[0]) == 0


def test_rows_of_a_strategy_wrap_and_do_not_fail() -> None:
    x = np.random.default_rng(3).integers(-LARGEST, LARGEST, 30)
    strategy = sine_strategy(30, 1 << 16)
    one = [int(v) for v in measure(strategy, np.array([1, *[0] * 29]))]
    exact = measure(strategy, np.eye(30, dtype=np.int64)).astype(object) @ x.astype(object)
    assert one == measure(strategy, np.eye(30, dtype=np.int64))[:, 0].tolist()
    assert all((int(a) - int(b)) % (1 << 64) == 0 for a, b in zip(measure(strategy, x), exact, strict=True))


def test_estimates_that_do_not_fit_are_divided_together() -> None:
    plane = np.full((3, 4), 1e15)
    views = [((0,), plane.sum(axis=1)), ((0, 1), plane)]
    step = family_step(views)
    assert step == 1 << 12  # 1.2e16 is between 2^53 and 2^54
    small, large = round_family([(axes, estimate / step) for axes, estimate in views])
    assert np.array_equal(large.sum(axis=1), small)
    assert 1 << 61 <= np.abs(node_sums(large, [kary_tree(3, 2), kary_tree(4, 2)])).max() <= 1 << 62
    assert np.allclose(large / UNIT * step, plane, rtol=1e-12)
    with pytest.raises(InternalError, match="does not fit 64 bits"):
        round_family(views)
