"""User-level releases asked through SQL, against plain DuckDB over all rows: near, and told how near."""

from __future__ import annotations

import duckdb
import pytest

from dpsql.noise import ZeroNoise
from tests.oracle.star import ROOT
from tests.releases import published, seeded, write_catalog
from tests.userlevel_star import uneven_rows, write_star


def test_foodmart_months_and_totals(shared_data, tmp_path):
    text = (ROOT / "catalog" / "foodmart_user.yaml").read_text()
    answerer = published(write_catalog(tmp_path, text), seeded(12))
    raw = duckdb.connect()
    for table in ("sales_fact_1997", "time_by_day"):
        raw.execute(f"CREATE VIEW {table} AS SELECT * FROM '{shared_data}/foodmart/{table}.parquet'")
    sql = (
        "SELECT EXTRACT(MONTH FROM the_date) AS m, COUNT(*) AS c, SUM(store_sales) AS s, AVG(store_sales) AS a "
        "FROM sales_fact_1997 JOIN time_by_day USING (time_id) GROUP BY 1 ORDER BY 1"
    )
    for mine, right in zip(answerer.query(sql).rows, raw.execute(sql).fetchall(), strict=True):
        assert mine[0] == right[0]
        assert mine[1:] == pytest.approx(right[1:], rel=0.2)
    whole = "SELECT COUNT(*), SUM(store_sales), AVG(store_sales) FROM sales_fact_1997"
    assert answerer.query(whole).rows[0] == pytest.approx(raw.execute(whole).fetchone(), rel=0.1)


def test_a_long_axis_is_measured_on_two_levels(tmp_path):
    rows, customers = uneven_rows(4000, 11, days=150, largest=60)
    answerer = published(write_star(tmp_path, rows, customers, days=150), seeded(12))
    assert answerer.release.axes[0].strategy == "two-level square-root tree"
    result = answerer.query("SELECT COUNT(*) FROM sales WHERE day BETWEEN 20 AND 110")
    truth = sum(20 <= day <= 110 for _, _, day in rows if day is not None)
    assert result.scalar() == pytest.approx(truth, rel=0.2)
    parts = {name: grid[0][0] for name, grid in result.components.items()}
    assert parts.pop("channel") == 0  # nobody reported
    assert parts.pop("within_leaf") == 0  # no view by blocks
    assert all(0 < part < 0.2 * truth for part in parts.values()), parts
    assert max(parts["noise"], parts["scale"]) < 0.1 * truth
    low, high = result.interval_rows(0.95)
    assert low[0][0] < truth < high[0][0]


def test_parts_add_up_to_the_whole_across_views(tmp_path):
    rows, customers = uneven_rows(2000, 12)
    answerer = published(write_star(tmp_path, rows, customers), seeded(12))
    whole = answerer.query("SELECT COUNT(*) FROM sales").scalar()
    days = answerer.query("SELECT day, COUNT(*) FROM sales GROUP BY 1").rows
    regions = answerer.query(
        "SELECT region, COUNT(*) FROM sales LEFT JOIN customer USING (id) GROUP BY 1"
    ).rows
    assert sum(count for _, count in days) == pytest.approx(whole, abs=1e-6)
    assert sum(count for _, count in regions) == pytest.approx(whole, abs=1e-6)


# FoodMart without noise: the totals that every published Mondrian test states.


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
