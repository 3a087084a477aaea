"""What cannot be published or collected is refused when the catalog is loaded or planned, with its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.curator.forecast import plan_catalog
from dpsql.errors import CatalogError, Error
from dpsql.local.run import write_plan
from tests.releases import write_tables
from tests.statements import refusals
from tests.userlevel_star import write_star

pytestmark = pytest.mark.long

CATALOG = """
dpsql: 1
name: shop
source: {{root: data, tables: {{sales: missing.parquet, product: product.parquet, customer: missing.parquet}}}}
privacy: {{lineage: shop, cap: 100, unit: row, epsilon: 1{delta}}}
tables:
  sales:
    role: fact
    foreign_keys: {{product_id: product, customer_id: customer}}
    {table}
    columns: {{amount: {{type: int, lower: 0, upper: 9, measure: true}}, code: {{type: string, categories: [a]}},
      day: {{type: date, lower: 2025-01-01, upper: 2025-12-31}}}}
  product: {{role: dimension, key: product_id, private: false}}
  customer: {{role: dimension, key: customer_id, private: true, columns: {{age: {{type: int, lower: 0, upper: 99,
    measure: true}}}}}}
views:
  counts: {{of: sales, axes: [sales.amount], measures: {measures}}}
"""


def shop(folder: Path, **parts: str) -> Path:
    write_tables(folder / "data", {"product": "SELECT 1 AS product_id"})
    text = CATALOG.format(**({"delta": "", "table": "", "measures": "[count]"} | parts))
    (folder / "shop.yaml").write_text(text, encoding="utf-8")
    return folder / "shop.yaml"


@pytest.mark.parametrize(("parts", "place", "what"), refusals("plan"))
def test_what_cannot_be_published_is_refused_before_a_row_is_opened(parts, place, what, tmp_path):
    with pytest.raises(CatalogError) as refused:
        plan_catalog(load_catalog(shop(tmp_path, **parts)), ())
    assert place in str(refused.value)


def test_a_plan_opens_no_private_file(tmp_path: Path) -> None:
    """The files of sales and customer do not exist."""
    table = "derive: {half: amount / 2, week: \"date_trunc('week', day)\", quarter: half / 2}"
    assert plan_catalog(load_catalog(shop(tmp_path, table=table)), ()).statistics


SURVEY = """
dpsql: 1
name: survey
privacy: {lineage: survey, cap: 1, unit: row, epsilon: 1}
tables: {answer: {role: fact, columns: {COLUMNS}}}
views: {all: {of: answer, axes: [AXES]}}
collection: {tau: 1}
"""


@pytest.mark.parametrize(("axes", "fits"), [(5, False), (2, True)])
def test_a_collection_that_cannot_be_stored_is_not_planned(axes: int, fits: bool, tmp_path: Path) -> None:
    columns = ", ".join(f"c{i}: {{type: int, lower: 1, upper: 32, out_of_domain: drop}}" for i in range(axes))
    names = ", ".join(f"answer.c{i}" for i in range(axes))
    (tmp_path / "survey.yaml").write_text(
        SURVEY.replace("COLUMNS", columns).replace("AXES", names), encoding="utf-8"
    )
    if fits:
        write_plan(tmp_path / "survey.yaml", tmp_path / "plan.json", people=1000)
        return
    with pytest.raises(Error, match=r"views\.all: 32 .* = 33554432 cells are over the cap"):
        write_plan(tmp_path / "survey.yaml", tmp_path / "plan.json", people=1000)


@pytest.mark.parametrize("word", ["tents", "tree", "gaussian", "lue_dptree"])
def test_people_who_are_weighted_get_no_other_shape_than_is_named(tmp_path: Path, word: str) -> None:
    catalog = write_star(tmp_path, [], {})
    catalog.write_text(catalog.read_text().replace("  days: {", f"  days: {{mechanism: {word}, "))
    with pytest.raises(CatalogError, match=f"views.days.mechanism: .* so {word} is not measured"):
        api.plan(catalog)


def test_leaves_may_be_named_where_they_are_what_people_get(tmp_path: Path) -> None:
    for days in (12, 300):
        catalog = write_star(tmp_path, [], {}, days=days, name=f"shop{days}")
        catalog.write_text(catalog.read_text().replace("  days: {", "  days: {mechanism: identity, "))
        if days == 12:
            assert api.plan(catalog).statistics[0].strategies == ("leaves",)
        else:
            with pytest.raises(CatalogError, match="identity is not measured"):
                api.plan(catalog)
