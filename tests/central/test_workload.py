"""A declared query log moves the budget to the ranges that it lists."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.catalog import parse_catalog
from dpsql.central.axes import axis_maker, with_unforeseen
from dpsql.central.plan import plan_release
from dpsql.engines.duck import RawSide
from dpsql.errors import CatalogError
from dpsql.executor.engine import ReleaseEngine
from dpsql.matrices.reading import from_columns
from dpsql.mechanisms.axis import auto_strategy
from dpsql.mechanisms.offers import expected_error
from dpsql.noise import ExactNoise, os_entropy
from dpsql.tree import Workload
from tests.releases import failed, published, write_catalog
from tests.thinned import by_default

pytestmark = pytest.mark.usefixtures("publishes")

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
    return strategy_of(CATALOG.replace("AXIS", axis))


def strategy_of(text):
    catalog = parse_catalog(text, "days.yaml")
    return plan_release(catalog, axis_maker(catalog, RawSide(None, {}))).axes[0].strategy


@pytest.mark.slow
def test_weeks_are_better_where_weeks_are_asked():
    weeks = ", ".join(f"[2025-{m:02d}-01, 2025-{m:02d}-07]" for m in range(1, 13))
    plain = strategy("facts.day").solver
    asked = strategy(f"{{axis: facts.day, workload: [{weeks}]}}").solver
    lo = np.array([0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334])
    assert asked.ranges(lo, lo + 7).mean() < 0.2 * plain.ranges(lo, lo + 7).mean()
    again = from_columns(asked.kind, 365, asked.columns())
    assert again.ranges(lo, lo + 30) == pytest.approx(asked.ranges(lo, lo + 30))
    assert np.all(np.isfinite(asked.ranges(np.arange(365), np.arange(365) + 1)))


def logs(n: int) -> dict[str, Workload]:
    """The logs, drawn with a fixed seed.

    Args:
        n: leaves of the axis.
    """
    rng = np.random.default_rng(3)
    first = rng.integers(0, n - 16, 100)
    short = Workload(first, first + rng.integers(1, 17, 100), np.ones(100))
    ends = np.sort(rng.choice(n, n // 4, replace=False)) + 1
    prefixes = Workload(np.zeros(len(ends), np.int64), ends, np.ones(len(ends)))
    borders = np.sort(rng.choice(n, (8, 2), replace=False), axis=1)
    hot = Workload(borders[:, 0], borders[:, 1], 1 / np.arange(1.0, 9.0))
    weeks = np.arange(0, n - 7, 7)
    late = rng.integers(n - n // 4, n - 30, 60)
    some = np.sort(rng.choice(n, (40, 2), replace=False), axis=1)
    mixed = Workload(
        np.concatenate([first[:50], np.zeros(40, np.int64), some[:, 0]]),
        np.concatenate([first[:50] + 7, rng.integers(1, n, 40), some[:, 1]]), np.ones(130),
    )  # fmt: skip
    return {
        "100 short ranges, up to 16 leaves": short,
        "prefixes, n / 4 of them": prefixes,
        "8 hot ranges": hot,
        "weeks of 7 leaves": Workload(weeks, weeks + 7, np.ones(len(weeks))),
        "60 ranges in the last quarter": Workload(late, late + rng.integers(1, 30, 60), np.ones(60)),
        "mixed, 130 ranges": mixed,
    }


@pytest.mark.parametrize(
    ("log", "bound"),
    by_default(
        [
            ("8 hot ranges", 29.3),
            ("weeks of 7 leaves", 11.9),
            ("prefixes, n / 4 of them", 57.1),
            ("mixed, 130 ranges", 54.8),
        ],
        1,
    ),
)
def test_errors_over_declared_logs(log, bound):
    asked = with_unforeseen(logs(256)[log], 256)
    assert asked.weight.sum() == pytest.approx(1)
    choice = auto_strategy(256, asked)
    assert choice.expected_error <= bound
    assert choice.expected_error <= expected_error(auto_strategy(256).strategy, asked)


def test_a_range_outside_or_upside_down_is_refused():
    with pytest.raises(CatalogError, match="contains no value"):
        strategy("{axis: facts.day, workload: [[2025-05-01, 2025-04-01]]}")
    with pytest.raises(CatalogError, match="weight"):
        strategy("{axis: facts.day, workload: [[2025-05-01, 2025-06-01, 0]]}")
    with pytest.raises(CatalogError, match=r"unknown key `asked`; write one of `axis`"):
        strategy("{axis: facts.day, asked: [[2025-05-01, 2025-06-01]]}")


@pytest.mark.parametrize(
    ("mechanism", "chosen", "depth"),
    [
        ("{tree: kary, arity: 8}", "LUE-DPTree k=8", 4),
        ("{tree: binary}", "binary LUE-DPTree k=2", 10),
        ("{tree: levels, arity: 8}", "LUE-DPTree of even levels k=8", 4),
    ],
)
def test_a_release_keeps_the_shape_that_its_catalog_names(tmp_path, mechanism, chosen, depth):
    """Planned, published, answered and audited with that tree; the file says what was asked and what it got."""
    text = CATALOG.replace("AXIS", "facts.day").replace("[count]", f"[count], mechanism: {mechanism}")
    rows = "SELECT DATE '2025-01-01' + (i % 365)::INT AS day FROM range(4000) t(i)"
    catalog = write_catalog(tmp_path, text, {"facts": rows})
    text = catalog.read_text()
    assert strategy_of(text).solver.tree.depth == depth
    release = published(catalog, ExactNoise(os_entropy()), key=b"k" * 32).release
    assert release.axes[0].strategy == chosen
    assert release.statistics[0].mechanism == f"Laplace: {chosen}"
    kept = release.meta.catalog["views"]["v"]["mechanism"]
    assert kept["tree"] in mechanism
    answer = ReleaseEngine(release).query("SELECT COUNT(*) FROM facts WHERE day < DATE '2025-07-01'")
    true = sum(1 for i in range(4000) if i % 365 < 181)
    assert abs(float(answer.rows[0][0]) - true) < 5 * answer.stderr_rows[0][0]
    release.close()
    assert failed(release.path, catalog) == []


@pytest.mark.parametrize(
    ("mechanism", "said"),
    [
        ("{tree: binary, arity: 8}", "a binary tree has 2 children a node at most, not 8"),
        ("{tree: oak}", "'kary', 'binary' or 'levels'"),
    ],
)
def test_a_shape_that_does_not_exist_is_refused(mechanism, said):
    text = CATALOG.replace("AXIS", "facts.day").replace("[count]", f"[count], mechanism: {mechanism}")
    with pytest.raises(CatalogError, match=said):
        strategy_of(text)
