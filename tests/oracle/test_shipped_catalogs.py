"""The shipped catalogs over the real stars: bounds cover the data, so answers without noise can equal plain SQL."""

from __future__ import annotations

import math
import os
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest

import dpsql.api
from dpsql.axis.build import build_axis, needed_tables
from dpsql.axis.model import PublicTable, leaf_sql
from dpsql.budget import currency_at
from dpsql.catalog import Catalog, load_catalog
from dpsql.catalog.columns import Cuts
from dpsql.catalog.graph import resolve_axis
from dpsql.catalog.model import AxisSpec, View
from dpsql.examples.retail import make_star, write_star
from dpsql.interfaces.cli.plan import plan_text
from tests.thinned import by_default

CATALOGS = Path(__file__).parents[2] / "catalog"
NAMES = ("adult", "blackfriday", "chinook", "foodmart", "northwind", "nyc_taxi", "online_retail", "ssb")
# Columns that keep an OTHER leaf on purpose: dirty times and distances, returns and fees.
DIRTY = {("nyc_taxi", "lpep_pickup_datetime"), ("nyc_taxi", "trip_distance"), ("online_retail", "UnitPrice")}


def opened(catalog: Catalog) -> duckdb.DuckDBPyConnection:
    """Every table of the source as a view."""
    source, connection = catalog.raw_source(), duckdb.connect(config={"threads": 1})
    folder = source.folder(catalog.file)
    connection.execute(f"SET file_search_path = '{folder}'")
    for table, place in source.expanded().items():
        statement = place if place.startswith("SELECT") else f"SELECT * FROM '{place}'"
        derived = "".join(f", {sql} AS {name}" for name, sql in catalog.tables[table].derive.items())
        connection.execute(f'CREATE VIEW "{table}" AS SELECT *{derived} FROM ({statement})')
    return connection


def public_rows(connection: duckdb.DuckDBPyConnection, table: str) -> PublicTable:
    types = {row[0]: row[1] for row in connection.execute(f'DESCRIBE "{table}"').fetchall()}
    rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
    return PublicTable(table, types, {name: [row[i] for row in rows] for i, name in enumerate(types)})


@pytest.mark.parametrize("file", sorted(CATALOGS.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_cap_holds_a_release(file: Path) -> None:
    privacy = load_catalog(file).privacy
    currency = currency_at(privacy.delta, privacy.key_delta)
    assert currency.counted(privacy.epsilon) <= currency.counted(privacy.cap)


@pytest.fixture(scope="module")
def retail_shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bundled shop's tables, which catalogs of `root: data` are about."""
    folder = tmp_path_factory.mktemp("shop") / "data"
    write_star(folder, make_star(1, 200, 20))
    return folder


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("file", sorted(CATALOGS.glob("*.yaml")), ids=lambda file: file.stem)
def test_every_shipped_catalog_is_planned(file: Path, retail_shop: Path, tmp_path: Path) -> None:
    """Every number of every view has an error and a charge, and charges fit the promise; skipped without its tables."""
    catalog = load_catalog(file)
    if catalog.collection is not None:
        forecast = dpsql.api.collection_plan(file, tmp_path / "plan.json", people=20_000)
        assert (tmp_path / "plan.json").stat().st_size
        assert {cost.view for cost in forecast.costs} >= set(catalog.views) and forecast.predictions
        return
    source = catalog.raw_source()
    if source.root == "data":
        source = source.model_copy(update={"root": str(retail_shop)})
        catalog = catalog.model_copy(update={"source": source})
    elif "DPSQL_DATA" not in os.environ or not source.folder(file).is_dir():
        pytest.skip(f"{source.root} is not here")
    report = dpsql.api.plan(catalog, [f"SELECT COUNT(*) FROM {view.of}" for view in catalog.views.values()])
    assert {statistic.view for statistic in report.statistics} >= set(catalog.views)
    assert all(0 < statistic.typical < math.inf for statistic in report.statistics)
    charges = [Fraction(statistic.charge) for statistic in report.statistics]
    promise = currency_at(catalog.privacy.delta, catalog.privacy.key_delta)
    assert all(charge > 0 for charge in charges)
    assert sum(charges) <= promise.counted(catalog.privacy.epsilon)
    assert len(report.queries) == len(catalog.views)
    assert plan_text(report, mechanisms=True)


@pytest.mark.usefixtures("shared_data")
@pytest.mark.parametrize("name", by_default(NAMES, 3))
def test_every_value_lies_in_its_domain_and_every_measure_in_its_bounds(name: str) -> None:
    catalog = load_catalog(CATALOGS / f"{name}.yaml")
    connection = opened(catalog)
    for table, entry in catalog.tables.items():
        for column, spec in entry.columns.items():
            if not spec.has_domain:
                continue
            # One leaf is enough to ask what lies outside; a measure may have more values than leaves can be.
            whole = Cuts(at=(str(spec.lower),)) if spec.ordered else None
            written = AxisSpec(axis=column, cuts=whole)
            resolved = resolve_axis(catalog, View(of=table, axes=(written,)), written)
            public = {other: public_rows(connection, other) for other in needed_tables(catalog, resolved)}
            axis = build_axis(catalog, resolved, public)
            leaf = leaf_sql(axis, f'"{column}"')
            outside = f'SELECT count(*) FROM "{table}" WHERE {leaf} = {axis.other_leaf}'
            count = connection.execute(outside).fetchall()[0][0]
            assert (count == 0) != ((name, column) in DIRTY), f"{table}.{column}"
        for measure in entry.measures.values():
            low, high = (bound / 10**measure.scale for bound in measure.bounds)
            extremes = f'SELECT min({measure.expr}), max({measure.expr}) FROM "{table}"'
            least, most = connection.execute(extremes).fetchall()[0]
            assert low <= float(least) <= float(most) <= high


@pytest.mark.usefixtures("shared_data")
def test_the_taxi_zones_become_unique_and_foodmart_keeps_its_arms() -> None:
    taxi = load_catalog(CATALOGS / "nyc_taxi.yaml")
    zones = public_rows(opened(taxi), "zone")
    assert zones.size == len(set(zones.columns["LocationID"])) == 260
    food = load_catalog(CATALOGS / "foodmart.yaml")
    connection = opened(food)
    view = food.views["class_by_day"]
    resolved = resolve_axis(food, view, view.axes[1])
    tables = {name: public_rows(connection, name) for name in needed_tables(food, resolved)}
    axis = build_axis(food, resolved, tables)
    columns = {column.column for column in axis.columns if column.table == "product_class"}
    assert {"product_subcategory", "product_category", "product_department", "product_family"} <= columns
    assert axis.leaves == 109  # 108 classes that differ, and MISSING
