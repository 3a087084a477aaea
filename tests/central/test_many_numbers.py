"""Views of many numbers: tries are foretold, and numbers that one draw would take too long for are drawn one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpsql.catalog import Catalog, load_catalog
from dpsql.curator.forecast import PlanReport, plan_catalog
from dpsql.interfaces.cli.plan import plan_text
from dpsql.mechanisms.designs.question import mean_tries
from dpsql.noise.knorm import expected_tries

CATALOG = """
dpsql: 1
name: shop
source: {{root: ., tables: {{sales: missing.parquet}}}}
privacy: {{lineage: shop, cap: 100, unit: row, epsilon: {epsilon}, delta: 0}}
tables:
  sales:
    role: fact
    columns: {{cell: {{type: int, lower: 1, upper: 39}}, {columns}}}
views:
  v: {{of: sales, axes: [sales.cell], measures: [count, {named}], mechanism: identity}}
"""


def shop(folder: Path, measures: int, epsilon: int, *, squares: bool = False, upper: int = 1) -> Catalog:
    names = [f"m{i}" for i in range(measures)]
    columns = ", ".join(f"{name}: {{type: int, lower: 0, upper: {upper}, measure: true}}" for name in names)
    named = [f"sales.{name}" for name in names] + [f"squares(sales.{name})" for name in names if squares]
    text = CATALOG.format(epsilon=epsilon, columns=columns, named=", ".join(named))
    (folder / "catalog.yaml").write_text(text)
    return load_catalog(folder / "catalog.yaml")


def report(catalog: Catalog) -> PlanReport:
    return plan_catalog(catalog, [])


def test_a_plan_says_how_many_tries_its_draws_take(tmp_path: Path) -> None:
    """Five measures with their squares, and the count: eleven numbers."""
    catalog = shop(tmp_path, 5, 1, squares=True)
    (draw,) = report(catalog).draws
    assert len(draw.statistics) == 11 and draw.vectors == draw.cells == 40
    assert draw.tries is not None and 1 < draw.tries < 3
    line = f"v: 11 numbers by one draw, 40 cells x {draw.tries:.3g} tries"
    assert line in plan_text(report(catalog))


@pytest.mark.parametrize(
    "measures, epsilon, upper, apart",
    [(25, 1, 1, True), (24, 28, 1, True), (24, 28, 99, False), (15, 18, 1, False)],
)
def test_numbers_beyond_one_draw_are_drawn_one_by_one(measures, epsilon, upper, apart, tmp_path):
    """Twenty-six, or twenty-five that take some 260 tries; not sixteen that take 55, or sums of wide bounds."""
    catalog = shop(tmp_path, measures, epsilon, upper=upper)
    seen = report(catalog)
    (draw,) = seen.draws
    assert (draw.tries is None) is apart
    lines = [line for line in plan_text(seen).splitlines() if line.startswith("  v: ")]
    assert ("have a draw each" in lines[0]) is apart


def test_tries_of_many_rates_are_averaged() -> None:
    """Of two thousand rates between .001 and 20, read off a grid of 64."""
    budget, bounds = np.arange(1, 20_001, 10).reshape(20, -1), (1,) * 10
    every = [expected_tries(unit / 1000, bounds) for unit in budget.ravel()[::40].tolist()]
    assert mean_tries(budget, 1000, bounds) == pytest.approx(np.mean(every), rel=0.05)
