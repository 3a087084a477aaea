"""Several views of one table, some with leaves drawn together: whatever view answers, parts add up."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dpsql.executor.engine import ReleaseEngine
from tests.releases import published, seeded, write_catalog

pytestmark = pytest.mark.usefixtures("publishes")

CATALOG = """
privacy: {lineage: shop, cap: 10, unit: row, epsilon: 1.0, delta: 0}
tables:
  customer: {role: dimension, key: customer_id, private: true, columns: {
    age: {type: int, lower: 0, upper: 63, out_of_domain: drop},
    region: {type: string, categories: [north, south, east], out_of_domain: drop},
    sex: {type: string, categories: [F, M], nullable: true, out_of_domain: drop}}}
  sales: {role: fact, foreign_keys: {customer_id: customer}, columns: {
    day: {type: int, lower: 1, upper: 30, out_of_domain: drop},
    amount: {type: int, lower: 0, upper: 90, measure: true}}}
views:
  ages: {of: sales, axes: [customer.age], measures: [count, sales.amount]}
  regions: {of: sales, axes: [customer.region, sales.day], measures: [count]}
  both: {of: sales, axes: [customer.region, customer.sex], measures: [count]}
"""
TABLES = {
    "customer": "SELECT i AS customer_id, i % 64 AS age, ['north', 'south', 'east'][1 + i % 3] AS region, "
    "CASE i % 5 WHEN 0 THEN 'F' WHEN 1 THEN NULL ELSE 'M' END AS sex FROM range(300) AS r(i)",
    "sales": "SELECT i % 400 AS customer_id, 1 + i % 30 AS day, i % 91 AS amount FROM range(5000) AS r(i)",
}
JOIN = "FROM sales JOIN customer USING (customer_id)"


@pytest.fixture(scope="module")
def shop(publishes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReleaseEngine]:
    folder = tmp_path_factory.mktemp("partners")
    answerer = published(write_catalog(folder, CATALOG, TABLES), seeded(5))
    yield answerer
    answerer.release.close()


def total(shop: ReleaseEngine, statement: str) -> float:
    return float(sum(row[-1] for row in shop.query(statement).rows))


def test_views_of_several_share_one_draw(shop: ReleaseEngine) -> None:
    mechanisms = {s.view: s.mechanism for s in shop.release.statistics}
    assert "joint tree" in mechanisms["ages"]


@pytest.mark.parametrize("column", ["age", "region", "sex", "region, day", "region, sex"])
def test_rows_with_a_partner_are_the_same_by_every_column(shop: ReleaseEngine, column: str) -> None:
    whole = total(shop, f"SELECT COUNT(*) {JOIN}")
    assert total(shop, f"SELECT {column}, COUNT(*) {JOIN} GROUP BY {column}") == pytest.approx(
        whole, abs=1e-9
    )


@pytest.mark.parametrize("column", ["age", "region", "sex", "day"])
def test_all_rows_are_the_same_by_every_column(shop: ReleaseEngine, column: str) -> None:
    left = "FROM sales LEFT JOIN customer USING (customer_id)"
    whole = total(shop, "SELECT COUNT(*) FROM sales")
    assert total(shop, f"SELECT {column}, COUNT(*) {left} GROUP BY {column}") == pytest.approx(
        whole, abs=1e-9
    )


def test_a_region_is_its_days_and_its_sexes(shop: ReleaseEngine) -> None:
    for column in ("day", "sex"):
        parts = shop.query(f"SELECT region, {column}, COUNT(*) {JOIN} GROUP BY region, {column}").rows
        for region, whole in shop.query(f"SELECT region, COUNT(*) {JOIN} GROUP BY region").rows:
            assert sum(row[-1] for row in parts if row[0] == region) == pytest.approx(whole, abs=1e-9)
