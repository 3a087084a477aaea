"""A declared query log moves the budget to the ranges that it lists."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import query_logs
from dpsql.catalog import parse_catalog
from dpsql.errors import CatalogError
from dpsql.mechanisms.axis.choose import auto_strategy
from dpsql.mechanisms.axis.question import expected_error
from dpsql.publishing.axes import axis_maker
from dpsql.publishing.plan import plan_release
from dpsql.publishing.workload import with_unforeseen
from dpsql.sources import RawSide
from dpsql.variance import from_columns

CATALOG = """
dpsql: 1
name: days
privacy: {lineage: days, cap: 1, unit: row, epsilon: 1.0}
tables:
  facts: {role: fact, columns: {day: {type: date, lower: 2025-01-01, upper: 2025-12-31, out_of_domain: drop}}}
views:
  v: {of: facts, axes: [AXIS], measures: [count]}
"""


def strategy(axis):
    catalog = parse_catalog(CATALOG.replace("AXIS", axis), "days.yaml")
    return plan_release(catalog, axis_maker(catalog, RawSide(None, {}))).axes[0].strategy


def test_weeks_are_better_where_weeks_are_asked():
    weeks = ", ".join(f"[2025-{m:02d}-01, 2025-{m:02d}-07]" for m in range(1, 13))
    plain = strategy("facts.day").variance()
    asked = strategy(f"{{axis: facts.day, asked: [{weeks}]}}").variance()
    lo = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334])
    assert asked.ranges(lo, lo + 7).mean() < 0.2 * plain.ranges(lo, lo + 7).mean()
    again = from_columns(asked.kind, 365, asked.columns())
    assert again.ranges(lo, lo + 30) == pytest.approx(asked.ranges(lo, lo + 30))
    assert np.all(np.isfinite(asked.ranges(np.arange(365), np.arange(365) + 1)))


@pytest.mark.parametrize(
    ("log", "bound"),
    [
        ("8 hot ranges", 29.3),
        ("weeks of 7 leaves", 11.9),
        ("prefixes, n / 4 of them", 57.1),
        ("mixed, 130 ranges", 54.8),
    ],
)
def test_errors_over_the_logs_of_the_accuracy_page(log, bound):
    asked = with_unforeseen(query_logs.logs(256)[log], 256)
    assert asked.weight.sum() == pytest.approx(1)
    choice = auto_strategy(256, asked)
    assert choice.expected_error <= bound
    assert choice.expected_error <= expected_error(auto_strategy(256).strategy, asked)


def test_a_range_outside_or_upside_down_is_refused():
    with pytest.raises(CatalogError, match="holds no value"):
        strategy("{axis: facts.day, asked: [[2025-05-01, 2025-04-01]]}")
    with pytest.raises(CatalogError, match="weight"):
        strategy("{axis: facts.day, asked: [[2025-05-01, 2025-06-01, 0]]}")
