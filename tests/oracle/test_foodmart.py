"""FoodMart without noise: the totals that every published Mondrian test states."""

from __future__ import annotations

import pytest

from dpsql.noise import ZeroNoise
from tests.oracle.star import ROOT
from tests.releases import published, write_catalog


@pytest.fixture(scope="module")
def foodmart(shared_data, tmp_path_factory):
    text = (ROOT / "catalog" / "foodmart.yaml").read_text()
    return published(write_catalog(tmp_path_factory.mktemp("foodmart"), text), ZeroNoise())


def test_all_rows_are_kept_and_totals_are_exact(foodmart):
    units, sales = foodmart.query("SELECT SUM(unit_sales), SUM(store_sales) FROM sales_fact_1997").rows[0]
    assert float(units) == 266_773
    assert float(sales) == pytest.approx(565_238.13, abs=1e-6)


def test_quarters(foodmart):
    rows = foodmart.query(
        "SELECT quarter, SUM(unit_sales) FROM sales_fact_1997 JOIN time_by_day USING (time_id) "
        "WHERE the_year = 1997 GROUP BY quarter ORDER BY quarter"
    ).rows
    assert [(quarter, float(units)) for quarter, units in rows] == [
        ("Q1", 66_291), ("Q2", 62_610), ("Q3", 65_848), ("Q4", 72_024),
    ]  # fmt: skip
