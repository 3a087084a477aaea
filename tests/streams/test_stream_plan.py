"""`dpsql plan` on a stream says the errors that its release will have; `dpsql publish` sends its curator to append."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpsql
from dpsql import api
from dpsql.catalog import load_catalog
from dpsql.errors import CatalogError
from dpsql.examples.retail import make_star, write_star
from tests.stream_shop import CATALOG, make_stream_shop

pytestmark = pytest.mark.usefixtures("publishes")

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("delta", [pytest.param("0", marks=pytest.mark.slow), "1e-6"])
def test_predicted_errors_are_those_of_the_stream_at_its_horizon(tmp_path: Path, delta: str) -> None:
    text = CATALOG.replace("horizon: 365", "horizon: 4").replace("max_batches: 10", "max_batches: 2")
    shop = make_stream_shop(tmp_path, customers=60, text=text, delta=delta)
    questions = [
        "SELECT COUNT(*) FROM sales",
        "SELECT COUNT(*) FROM sales WHERE sold_on BETWEEN DATE '2025-01-02' AND DATE '2025-01-03'",
        "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE sex = 'F'",
    ]
    report = api.plan(shop.catalog, questions)
    for day in range(4):
        shop.append(day)
    state = shop.opened()
    for query, question in zip(report.queries, questions, strict=True):
        assert query.columns, question
        actual = state.query(question).stderr_rows[0][0]
        assert query.columns[0].median == pytest.approx(actual, rel=1e-6), question


def test_a_stream_is_not_published_as_a_release(tmp_path: Path) -> None:
    shop = make_stream_shop(tmp_path, customers=60)
    with pytest.raises(CatalogError, match="dpsql append"):
        dpsql.publish(shop.catalog, tmp_path / "out.dpsql")
    assert not (tmp_path / "out.dpsql").exists()


def test_the_bundled_stream_catalog_plans(tmp_path: Path) -> None:
    file = tmp_path / "retail_stream.yaml"
    file.write_text((ROOT / "catalog" / file.name).read_text("utf-8"), encoding="utf-8")
    write_star(tmp_path / "data", make_star(7, 200, 20))
    catalog = load_catalog(file)
    assert catalog.stream is not None and catalog.stream.max_batches == 10
    assert "days" in {statistic.view for statistic in api.plan(file).statistics}
