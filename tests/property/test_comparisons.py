"""Filters that are answered in numpy hold exactly where DuckDB's own evaluation says."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import patch

import numpy as np
import pytest
import sqlglot
from hypothesis import given
from hypothesis import strategies as st

from dpsql.executor.run import run
from dpsql.planner import axis_query, leaf_values
from dpsql.planner.axis_query import axis_sql, cells_that_hold
from dpsql.planner.leaf_values import AxisQuery
from dpsql.planner.schema import Expression, Predicate
from dpsql.release import Release, open_release
from dpsql.sql.binding import comparisons
from tests.releases import published, seeded, write_catalog

VARIANCE = 4.0
DAYS = ["2024-12-31", "2025-01-01", "2025-02-28", "2025-03-31", "2026-01-01"]
DATES = st.sampled_from([written.format(day) for day in DAYS for written in ("CAST('{}' AS DATE)", "'{}'")])
TENTHS = st.decimals(-2, 21, places=1).map(lambda x: f"{x}00")
OPERATORS = ["<", "<=", ">", ">=", "=", "<>"]
NUMBERS = st.one_of(st.integers(-2, 45), st.sampled_from([-(10**17), 10**17]))


PRICES = """
privacy: {lineage: prices, cap: 10, unit: row, epsilon: 1.0}
tables:
  sales: {role: fact, columns: {
    price: {type: decimal, scale: 2, lower: -1, upper: 20, nullable: true, cuts: [3, 10]}}}
views:
  prices: {of: sales, axes: [sales.price], measures: [count]}
"""


@pytest.fixture(scope="module")
def prices(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    rows = {"sales": "SELECT CAST(3.14 AS DECIMAL(9, 2)) AS price"}
    found = published(write_catalog(tmp_path_factory.mktemp("prices"), PRICES, rows), seeded(3)).release
    yield found
    found.close()


def axes_of(release: Release, kinds: set[str]) -> list[tuple[int, str]]:
    return [(i, c.name) for i, axis in enumerate(release.axes) for c in axis.columns if c.type in kinds]


@st.composite
def filters(draw: st.DrawFn, constant: st.SearchStrategy[str]) -> tuple[Predicate, ...]:
    written_as = st.sampled_from(["dp_c0 {} {}", "NOT (dp_c0 {} {})", "NOT dp_c0 {} {}"])
    compared = st.builds(str.format, written_as, st.sampled_from(OPERATORS), constant)
    between = st.builds(lambda a, b: f"dp_c0 BETWEEN {a} AND {b}", constant, constant)
    texts = draw(st.lists(st.one_of(compared, between), min_size=0, max_size=3))
    return tuple(written(text, draw(st.booleans())) for text in texts)


def written(text: str, negated: bool = False) -> Predicate:
    """A predicate over the placeholder dp_c0, with the comparisons that its text holds."""
    compared = comparisons(sqlglot.parse_one(text, read="duckdb"), lambda column: 0)
    return Predicate(Expression(text, frozenset({0}), comparisons=compared), negated)


def check(release: Release, axis: int, name: str, wanted: tuple[Predicate, ...], inner: bool) -> None:
    question = AxisQuery(axis, ((0, name),), wanted, inner=inner)
    rows = np.array(run(release, axis_sql(question, release)).rows, np.float64).reshape(-1, 2)
    leaves = release.axes[axis].leaves
    for table in (leaves, 0):  # leaf by leaf, and in runs
        with patch.object(axis_query, "TABLE", table):
            cells = cells_that_hold(release, question)
        assert cells is not None
        direct = np.bincount(cells.by_leaf.leaf, cells.by_leaf.coverage, leaves)
        assert np.allclose(
            direct, np.bincount(rows[:, 0].astype(int), rows[:, 1], leaves), rtol=0, atol=1e-12
        )


@given(data=st.data(), wanted=filters(NUMBERS.map(str) | st.just("17.00")), inner=st.booleans())
def test_integers(release, data, wanted, inner):
    axis, name = data.draw(st.sampled_from(axes_of(release, {"INTEGER", "BIGINT", "SMALLINT"})))
    check(release, axis, name, wanted, inner)


@given(wanted=filters(st.one_of(NUMBERS.map(str), st.decimals(-2, 21, places=2).map(str), TENTHS)))
def test_decimals(prices, wanted):
    ((axis, name),) = axes_of(prices, {"DECIMAL(18,2)"})
    check(prices, axis, name, wanted, False)


def test_decimals_that_floats_or_the_column_do_not_tell_apart_are_left_to_duckdb(prices, release):
    ((axis, name),) = axes_of(prices, {"DECIMAL(18,2)"})
    for text in ("dp_c0 > 1.555", "dp_c0 > 1e1", "dp_c0 > '1.55'", "dp_c0 < DATE '2025-01-01'"):
        assert cells_that_hold(prices, AxisQuery(axis, ((0, name),), (written(text),))) is None


def test_decimals_too_long_for_a_float_are_left_to_duckdb(monkeypatch, prices):
    ((axis, name),) = axes_of(prices, {"DECIMAL(18,2)"})
    monkeypatch.setattr(leaf_values, "MOST_WHOLE", 1000)  # 20.00 has four digits
    again = open_release(prices.path, insecure=True)
    assert cells_that_hold(again, AxisQuery(axis, ((0, name),), (written("dp_c0 > 1.5"),))) is None
    again.close()


@given(data=st.data(), wanted=filters(DATES), inner=st.booleans())
def test_dates(release, data, wanted, inner):
    axis, name = data.draw(st.sampled_from(axes_of(release, {"DATE"})))
    check(release, axis, name, wanted, inner)


@pytest.mark.parametrize("text", [
    "dp_c0 > 1.5", "dp_c0 + 1 > 3", "dp_c0 > '3'", "abs(dp_c0) > 1", "dp_c0 IS NULL", "dp_c0 > 1 OR dp_c0 < 3",
    "NOT (dp_c0 BETWEEN 1 AND 3)", "NOT (NOT (dp_c0 < 3))",
])  # fmt: skip
def test_what_is_more_than_a_comparison_is_left_to_duckdb(release, text):
    columns = axes_of(release, {"INTEGER"})
    assert len(columns) == 3
    for axis, name in columns:
        assert cells_that_hold(release, AxisQuery(axis, ((0, name),), (written(text),))) is None


def test_a_day_that_does_not_exist_is_left_to_duckdb(release):
    ((axis, name), *_) = axes_of(release, {"DATE"})
    predicate = written("dp_c0 < CAST('2025-02-30' AS DATE)")
    assert cells_that_hold(release, AxisQuery(axis, ((0, name),), (predicate,))) is None
