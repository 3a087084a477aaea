"""Quantiles: counted along leaves they are what counting along every value gives."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dpsql.executor.engine import ReleaseEngine
from dpsql.interfaces.agents import Statement, claimed_answer
from dpsql.intervals.errorfunctions import quantile_stderr
from dpsql.noise import ZeroNoise
from dpsql.planner import quantiles as rooms
from dpsql.planner.quantiles import Prefix, Steps, value_steps
from dpsql.release import open_release
from dpsql.results.render import margin_lines
from tests.releases import published, seeded, write_catalog
from tests.thinned import by_default

CATALOG = """
privacy: {lineage: shop, cap: 10, unit: row, epsilon: 1.0}
tables:
  sales: {role: fact, columns: {
    price: {type: decimal, scale: 2, lower: 0, upper: 50, cuts: [3, 10, 25]},
    day: {type: date, lower: 2025-01-01, upper: 2025-03-31, nullable: true, cuts: {width: month}},
    kind: {type: string, categories: [b, a, c]}}}
views:
  prices: {of: sales, axes: [sales.price, sales.kind], measures: [count], share: 0.5}
  days: {of: sales, axes: [sales.day, sales.kind], measures: [count], share: 0.5}
"""


def even(sizes: list[int]) -> Steps:
    """Steps of so many values each, numbered through."""
    begins = np.cumsum(sizes) - sizes

    def value(step: int, part: float) -> int:
        return int(begins[step]) + min(max(int(np.ceil(part * sizes[step])) - 1, 0), sizes[step] - 1)

    return value, lambda step: (value(step, 0.0), value(step, 1.0))


steps = st.lists(st.tuples(st.integers(-40, 200), st.sampled_from([1, 2, 4, 8])), min_size=1, max_size=8)


def prefix(
    counts: Sequence[float] | npt.NDArray[np.float64], steps: Steps, at: float, error: float = 5.0
) -> Prefix:
    """Counts whose error is the same at every step; one standard error on each side."""
    return Prefix(
        np.asarray(counts, np.float64),
        steps,
        at,
        lambda step: error,
        lambda step: (0.0, 0.0),
        lambda level: 1.0,
        0.0,
    )


def test_a_value_that_noise_buries_is_inside():
    """Forty rows in the first of a hundred steps with a noise of 30 each: the largest sum is far above the last."""
    rng, at, steps, sd = np.random.default_rng(5), 0.9, np.arange(100), 30.0
    errors = sd * np.sqrt((steps + 1) * (1 - at) ** 2 + (99 - steps) * at**2)
    lows = []
    for _ in range(400):
        counts = rng.normal(0, sd, 100) + np.where(steps == 0, 40.0, 0.0)
        drawn = prefix(counts, value_steps(steps, steps, steps), at)
        found = replace(drawn, error=lambda step: float(errors[step]), z=lambda level: 1.96)
        low, high = found.ends(0.95)
        lows += [] if low is None else [low]
        assert low is None or low <= found.value() <= high
    assert len(lows) > 300 and np.mean(np.array(lows) == 0) >= 0.95


@given(steps, st.integers(1, 200), st.floats(0.01, 0.99))
def test_steps_of_many_values_reach_the_value_that_single_ones_reach(
    drawn: list[tuple[int, int]], first_count: int, at: float
) -> None:
    # below 0 from the start, a low end may lie inside of the first leaf
    drawn[0] = (
        first_count,
        drawn[0][1],
    )
    counts, sizes = np.array([count for count, _ in drawn], np.float64), [size for _, size in drawn]
    single = np.repeat(counts / sizes, sizes)
    coarse = prefix(counts, even(sizes), at)
    leaf = np.repeat(np.arange(len(sizes)), sizes)
    first, last = np.searchsorted(leaf, leaf), np.searchsorted(leaf, leaf, side="right") - 1
    fine = prefix(single, value_steps(range(len(single)), first.tolist(), last.tolist()), at)
    running = np.maximum.accumulate(np.cumsum(single))
    assume(np.min(np.abs(running - at * running[-1])) > 1e-6)
    assert coarse.value() == fine.value()
    assume(np.min(np.abs(np.abs(running - at * running[-1]) - 5.0)) > 1e-6 and np.all(counts >= 0))
    assert coarse.ends(0.95) == fine.ends(0.95)


@pytest.mark.kernel
def test_the_interval_is_where_the_counts_interval_reaches_the_share() -> None:
    many = prefix([10.0] * 10, even([4] * 10), 0.5)
    assert many.value() == 19
    assert many.ends(0.95) == (16, 23)  # 50 - 5 is reached in the fifth step of 16 to 19, 50 + 5 in the sixth
    wide = prefix([10.0] * 10, even([4] * 10), 0.5, 60.0)
    assert wide.ends(0.95) == (0, 39)  # a share that may never be reached ends with the domain
    assert quantile_stderr(many.ends, 0.95) == pytest.approx(7 / (2 * 1.959964))


def test_an_error_that_nothing_bounds_leaves_the_value_and_takes_its_ends() -> None:
    unknown = prefix([1.0, 2.0, 1.0], value_steps(range(3), range(3), range(3)), 0.5, math.nan)
    assert unknown.value() == 1
    assert unknown.ends(0.95) == (None, None) and quantile_stderr(unknown.ends, 0.95) is None


@pytest.fixture(scope="module")
def shop(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("shop")
    rows = """SELECT CAST(i * 37 % 5001 / 100 AS DECIMAL(10, 2)) AS price, ['a', 'b', 'c'][i % 3 + 1] AS kind,
        CASE WHEN i % 7 > 0 THEN DATE '2025-01-01' + CAST(i * 13 % 90 AS INTEGER) END AS day FROM range(3000) t(i)"""
    return published(write_catalog(root, CATALOG, {"sales": rows}), seeded(5)).release.path


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


@pytest.mark.kernel
@pytest.mark.parametrize("text", by_default(STATEMENTS, 4))
def test_both_ways_agree(shop: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    release = open_release(shop, insecure=True)
    mine = ReleaseEngine(release, on_partial_bin="interpolate").query(text)
    monkeypatch.setattr(rooms, "_rising", lambda *arguments: None)
    other = ReleaseEngine(release, on_partial_bin="interpolate").query(text)
    assert (mine.rows, mine.types) == (other.rows, other.types)


def test_a_quantile_has_its_error_wherever_a_count_has_one(shop: Path) -> None:
    text = "SELECT kind, {} FROM sales GROUP BY kind"
    answerer = ReleaseEngine(open_release(shop, insecure=True))
    separate = [answerer.query(text.format(value)) for value in ("MEDIAN(price) AS p", "MEDIAN(day) AS d")]
    for result, name in zip(separate, "pd", strict=True):
        assert result.noisy == (1,)
        names, rows = result.with_errors()
        assert names == ("kind", name, f"{name}_stderr", f"{name}_low", f"{name}_high", f"{name}_bound")
        shown = result.with_intervals()
        assert shown.types[2:] == (("DATE", "DATE") if name == "d" else ("DOUBLE", "DOUBLE"))
        assert all(low <= value <= high for _, value, low, high in shown.rows)
        assert [row[3:5] for row in rows] == [row[2:] for row in shown.rows]
        (cell,) = {
            frozenset(row[name])
            for row in claimed_answer(result, Statement("release", text, 0.95), "claims")["rows"]
        }
        assert cell - {"claim"} == {"value", "low", "high"}
        assert ("claim" in cell) == (name == "p")
    prices, days = (margin_lines(result, 0.95) for result in separate)
    assert prices[0].startswith("p: margin ") and not any("margin" in line for line in days)


@pytest.mark.usefixtures("publishes")
def test_a_quantile_takes_the_finest_view_and_names_it(tmp_path: Path) -> None:
    days = "SELECT DATE '2025-01-01' + CAST(i % 90 AS INTEGER) AS day, i % 3 AS shop FROM range(3000) AS r(i)"
    text = """
dpsql: 1
name: shop
source: {kind: parquet, tables: {sales: sales.parquet}}
privacy: {lineage: shop, cap: 10, unit: row, epsilon: 2}
tables: {sales: {role: fact, columns: {shop: {type: int, lower: 0, upper: 2},
    day: {type: date, lower: 2025-01-01, upper: 2025-03-31, out_of_domain: drop}}}}
views:
  months: {of: sales, axes: [{axis: sales.day, cuts: {width: month}}, sales.shop], measures: [count], share: 0.8}
  days: {of: sales, axes: [sales.day], measures: [count], share: 0.2}
"""
    answerer = published(write_catalog(tmp_path, text, {"sales": days}), seeded(3))
    result = answerer.query("SELECT MEDIAN(day) AS m, DP_STDERR(MEDIAN(day)) AS e FROM sales")
    assert result.provenance["views"] == ["days"]
    assert "the quantile of sales.day comes from the view days" in result.notes
    ((low, _),), ((high, _),) = result.interval_rows()
    assert low <= result.rows[0][0] <= high and low < high
    assert result.rows[0][1] == result.stderr_rows[0][0] == pytest.approx((high - low).days / (2 * 1.959964))
    assert f"{result.rows[0][0]} ({low} to {high})" in str(result)


@pytest.mark.usefixtures("publishes")
def test_rows_beyond_the_bounds_and_in_bins_that_conditions_cut_are_in_the_interval(tmp_path: Path) -> None:
    """Ninety percent of the amounts within the bounds are fewer than ninety percent of all: 0 of 4 intervals held."""
    rows = "SELECT i % 101 AS price, i % 50 AS age FROM range(20000) AS t(i)"
    text = (
        CATALOG[: CATALOG.index("    price:")]
        + """    price: {type: int, lower: 0, upper: 89, cuts: {width: 1}},
    age: {type: int, lower: 0, upper: 49, cuts: {width: 20}}}}
views:
  both: {of: sales, axes: [sales.price, sales.age], measures: [count]}
"""
    )
    answerer = published(write_catalog(tmp_path, text, {"sales": rows}), ZeroNoise())
    for asked in ("QUANTILE_DISC(price, 0.8) FROM sales", "MEDIAN(price) FROM sales WHERE age < 49"):
        raw = f"SELECT {asked.replace('sales', repr(str(tmp_path / 'sales.parquet')))}"
        ((true,),) = duckdb.sql(raw).fetchall()
        (low,), (high,) = answerer.query(f"SELECT {asked}").interval_rows()
        assert low[0] <= true <= high[0], (asked, low, true, high)
        assert high[0] - low[0] < 25
