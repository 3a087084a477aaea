"""Quantiles: counted along leaves they are what counting along every value gives."""

from __future__ import annotations

import math
from pathlib import Path

import duckdb
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from dpsql.answer import Answerer
from dpsql.answer import quantiles as rooms
from dpsql.answer.quantiles import Prefix, Values
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.publishing.central import publish_release
from dpsql.release import open_release
from dpsql.star import load_catalog

CATALOG = """
dpsql: 1
name: shop
source: {{kind: parquet, root: "{root}", tables: {{sales: sales.parquet}}}}
privacy: {{lineage: shop, cap: 10, unit: row, epsilon: 1.0}}
tables:
  sales: {{role: fact, columns: {{
    price: {{type: decimal, scale: 2, lower: 0, upper: 50, cuts: [3, 10, 25]}},
    day: {{type: date, lower: 2025-01-01, upper: 2025-03-31, nullable: true, cuts: {{width: month}}}},
    kind: {{type: string, categories: [b, a, c]}}}}}}
views:
  prices: {{of: sales, axes: [sales.price, sales.kind], measures: [count], share: 0.5}}
  days: {{of: sales, axes: [sales.day, sales.kind], measures: [count], share: 0.5}}
"""


class Even:
    """Steps of so many values each, numbered through."""

    def __init__(self, sizes: list[int]) -> None:
        self.sizes, self.begins = sizes, np.cumsum(sizes) - sizes

    def value(self, step: int, part: float) -> int:
        size = self.sizes[step]
        return int(self.begins[step]) + min(max(int(np.ceil(part * size)) - 1, 0), size - 1)

    def below(self, step: int, part: float) -> float:
        return (self.value(step, part) - int(self.begins[step]) + 1) / self.sizes[step]


steps = st.lists(st.tuples(st.integers(-40, 200), st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=8)


@given(steps, st.floats(0.01, 0.99), st.floats(-3, 3))
@example(
    [(1, 1), (0, 2)], 0.5, 1.0
)  # a share that is never reached ends with the last value, whatever is there
def test_steps_of_many_values_reach_the_value_that_single_ones_reach(
    drawn: list[tuple[int, int]], at: float, errors: float
) -> None:
    counts, sizes = np.array([count for count, _ in drawn], np.float64), [size for _, size in drawn]
    single = np.repeat(counts / sizes, sizes)
    coarse = Prefix(counts, Even(sizes), at, 5.0)
    fine = Prefix(single, Values(range(len(single))), at, 5.0)
    assume(counts[0] >= 0)  # below 0 from the start, a low end may lie inside of the first leaf
    running = np.maximum.accumulate(np.cumsum(single))
    assume(np.min(np.abs(running - at * running[-1] - 5.0 * errors)) > 1e-6)
    assert coarse.value(errors) == fine.value(errors)


def test_an_error_that_nothing_bounds_leaves_the_value_and_takes_its_ends() -> None:
    prefix = Prefix(np.array([1.0, 2.0, 1.0]), Values(range(3)), 0.5, math.nan)
    assert prefix.value() == 1
    assert prefix.value(1.0) is None and prefix.value(-1.0) is None


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shop")
    rows = """SELECT CAST(i * 37 % 5001 / 100 AS DECIMAL(10, 2)) AS price, ['a', 'b', 'c'][i % 3 + 1] AS kind,
        CASE WHEN i % 7 > 0 THEN DATE '2025-01-01' + CAST(i * 13 % 90 AS INTEGER) END AS day FROM range(3000) t(i)"""
    duckdb.connect().execute(f"COPY ({rows}) TO '{root}/sales.parquet'")
    (root / "shop.yaml").write_text(CATALOG.format(root=root))
    noise = ExactNoise(insecure_test_entropy(5))
    publish_release(load_catalog(root / "shop.yaml"), root / "shop.dpsql", noise=noise, key=bytes(32))
    return root / "shop.dpsql"


STATEMENTS = (
    "SELECT MEDIAN(price), DP_INTERVAL_LOW(MEDIAN(price)), DP_INTERVAL_HIGH(MEDIAN(price), 0.5) FROM sales",
    "SELECT QUANTILE_CONT(price, 0.9) FROM sales WHERE price < 24.5 AND kind = 'a'",
    "SELECT kind, MEDIAN(price), DP_INTERVAL_LOW(MEDIAN(price)) FROM sales WHERE price >= 1 GROUP BY kind",
    "SELECT price < 10 AS cheap, MEDIAN(price) FROM sales GROUP BY 1",
    "SELECT MEDIAN(price) FROM sales WHERE price < 20 OR kind = 'b'",
    "SELECT kind, MEDIAN(day), DP_INTERVAL_HIGH(MEDIAN(day)) FROM sales GROUP BY 1",
    "SELECT MEDIAN(day) FROM sales WHERE day > DATE '2025-01-20'",
    "SELECT MEDIAN(price * 2), MEDIAN(kind) FROM sales",
    "SELECT MEDIAN(price) FROM sales WHERE price < 0.01",
)


@pytest.mark.parametrize("text", STATEMENTS)
def test_both_ways_agree(shop: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    release = open_release(shop, insecure=True)
    mine = Answerer(release, on_partial_bin="interpolate").query(text)
    monkeypatch.setattr(rooms, "_rising", lambda *arguments: None)
    other = Answerer(release, on_partial_bin="interpolate").query(text)
    assert (mine.rows, mine.types) == (other.rows, other.types)
