"""A raw star as people with rows, and a whole simulated collection of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dpsql
from dpsql.catalog import Catalog, load_catalog
from dpsql.engines import open_sources
from dpsql.examples.retail import make_star, write_star
from dpsql.local.files import open_state, token_key
from dpsql.local.run import Reports, collect
from dpsql.local.simulate import people_of, simulated_collection
from dpsql.local.survey import public_axis_maker, survey_of

pytestmark = pytest.mark.usefixtures("publishes")

RETAIL = Path(__file__).parents[2] / "catalog" / "retail.yaml"
VIEWS = """collection: {epsilon: 3, tau: 2, row_share: 1/10}
views:
  price: {of: sales, axes: [customer.sex, product.price], measures: [count, sales.amount]}
  brand: {of: sales, axes: [{axis: product, by: [category, brand]}, customer.region]}
"""


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    folder = tmp_path_factory.mktemp("star")
    write_star(folder / "data", make_star(1, 3000, 50))
    text = RETAIL.read_text()
    (folder / "local.yaml").write_text(text[: text.index("views:")] + VIEWS)
    return load_catalog(folder / "local.yaml")


def test_people_keep_all_their_rows(catalog: Catalog) -> None:
    survey = survey_of(catalog, public_axis_maker(catalog))
    source = catalog.raw_source()
    raw = open_sources(source.kind, source.folder(catalog.file), source.tables)
    people = people_of(survey, raw)
    sales, buyers = raw.connection.execute(
        "SELECT count(*), count(DISTINCT customer_id) FROM raw.sales JOIN raw.customer USING (customer_id)"
    ).fetchall()[0]
    raw.close()
    assert (int(people.first[-1]), people.count) == (sales, buyers)
    sizes = np.array([axis.leaves for axis in survey.axes])
    assert np.all((people.leaves >= 0) & (people.leaves < sizes))
    assert people.measures.min() >= 0


def test_a_simulated_collection_answers_sql(catalog: Catalog, tmp_path: Path) -> None:
    import duckdb

    ((plan, reports),) = simulated_collection(catalog, np.random.default_rng(1))
    (tmp_path / "plan.json").write_bytes(plan)
    duckdb.execute("CREATE OR REPLACE TEMP TABLE spool (report VARCHAR)")
    duckdb.executemany("INSERT INTO spool VALUES (?)", [[r.hex()] for r in reports])
    duckdb.execute(
        f"COPY (SELECT from_hex(report) AS report FROM spool) TO '{tmp_path}/r.parquet' (FORMAT parquet)"
    )
    back = Reports(
        tmp_path / "plan.json", [tmp_path / "r.parquet"], b"k" * 32, catalog.file, tmp_path / "state"
    )
    done = collect(back, tmp_path / "x", "x")
    assert done.manifest.accepted == len(reports)
    found = dpsql.query(
        "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE sex = 'F'", tmp_path / "x"
    )
    assert float(found.components["noise"][0][0]) > 0
    from dpsql.client import read_plan

    state = tmp_path / "state"
    open_state(read_plan(plan), state, token_key(state, b"f" * 32)).close()
