"""A private row moves its own unit's counted rows and nobody else's: other catalogs are refused when they are loaded.

Each refused catalog is also published with the check put aside, on neighbours aimed at it, and breaks its claim.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np
import pytest

from dpsql.catalog import checks, parse_catalog
from dpsql.catalog.source import PARQUET
from dpsql.central.axes import axis_maker
from dpsql.central.placed_rows import place_rows, prepare_tables
from dpsql.central.plan import plan_release
from dpsql.engines import open_sources, open_tables
from dpsql.errors import CatalogError
from tests.privacy.loss import Bytes, RawRows, Tables, measure, write_side
from tests.releases import write_tables
from tests.statements import refusals
from tests.thinned import by_default

CATALOG = """
dpsql: 1
name: market
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {TABLES}}
privacy: {lineage: market, cap: 9, unit: UNIT, epsilon: 1.0}
tables:
  person: {role: dimension, key: id, private: true, columns: {age: {type: int, lower: 0, upper: 3}}}
  orders: {role: dimension, key: order_id, private: true, foreign_keys: {buyer: person, seller: person}, ORDERS
    columns: {kind: {type: int, lower: 0, upper: 3}}}
  sales: {role: fact, foreign_keys: {order_id: orders}, max_ids: 2, unit_path: [order_id, buyer],
    columns: {day: {type: int, lower: 0, upper: 3}}}
  returns: {role: fact, foreign_keys: {order_id: orders}, max_ids: 2, unit_path: [order_id, RETURNS],
    columns: {day: {type: int, lower: 0, upper: 3}}}
views:
"""
TABLES = ", ".join(f"{name}: {name}.parquet" for name in ("person", "orders", "sales", "returns"))
OTHERS = 60
BOUGHT = "max_ids: 2, unit_path: [buyer],"


def market(*views: str, unit: str = "person.id", returns: str = "buyer", orders: str = "") -> str:
    """The catalog with views such as `sales by sales.day`."""
    text = CATALOG.replace("TABLES", TABLES).replace("UNIT", unit).replace("RETURNS", returns)
    for number, view in enumerate(views):
        of, _, axis = view.partition(" by ")
        text += f"  v{number}: {{of: {of}, axes: [{axis}], measures: [count], mechanism: identity}}\n"
    return text.replace("ORDERS", orders)


def crowd() -> Tables:
    """Sixty people who each bought once from the next one, with eight sales and eight returns."""
    lines = [(i, (i + j) % 4) for i in range(OTHERS) for j in range(8)]
    return {
        "person": RawRows("id INT, age INT", [(i, i % 4) for i in range(OTHERS)]),
        "orders": RawRows(
            "order_id INT, buyer INT, seller INT, kind INT",
            [(i, i, (i + 1) % OTHERS, i % 4) for i in range(OTHERS)],
        ),
        "sales": RawRows("order_id INT, day INT", lines),
        "returns": RawRows("order_id INT, day INT", lines),
    }


def buyer_of_everything(tables: Tables) -> Mapping[str, RawRows]:
    """One more person, who bought something from everybody; what was returned to those sellers stays."""
    bought = [(1000 + i, 999, i, i % 4) for i in range(OTHERS)]
    return {**tables, "person": tables["person"].plus((999, 0)), "orders": tables["orders"].plus(*bought)}


def sales_of_one(tables: Tables) -> Mapping[str, RawRows]:
    """All sales hang on the order of one person, whose row is the one that comes and goes."""
    lines = [(0, i % 4) for i in range(OTHERS)]
    return {**tables, "sales": RawRows(tables["sales"].columns, lines)}


def without(tables: Tables, table: str, row: int) -> Tables:
    rows = tables[table]
    return {**tables, table: RawRows(rows.columns, [*rows.rows[:row], *rows.rows[row + 1 :]])}


class Refused(NamedTuple):
    """A catalog that may not load, the reason, and neighbours who show why."""

    catalog: str
    reason: str
    left: Tables
    right: Tables


def returned(tables: Tables) -> Tables:
    """Two returns for each order that the buyer of everything may own."""
    lines = [(1000 + i, j) for i in range(OTHERS) for j in range(2)]
    return {**tables, "returns": RawRows(tables["returns"].columns, lines)}


REFUSED = {
    "a counted table is joined": Refused(
        market("sales by orders.kind", "orders by orders.kind", unit="row"),
        "views.v0: it joins `orders`, whose rows view `v1` counts.*unit: orders.order_id",
        sales_of_one(crowd()),
        without(sales_of_one(crowd()), "orders", 0),
    ),
    "a counted table decides which rows are dropped": Refused(
        market("sales by sales.day", "orders by orders.kind", unit="row").replace(
            "sales: {role: fact, foreign_keys: {order_id: orders}",
            "sales: {role: fact, foreign_keys: {order_id: {references: orders, on_missing: drop}}",
        ),
        "views.v0: it joins `orders`",
        sales_of_one(crowd()),
        without(sales_of_one(crowd()), "orders", 0),
    ),
    "an order has two owners": Refused(
        market("sales by sales.day", "returns by orders.kind", returns="seller"),
        "tables.returns.unit_path: rows of `orders` belong to `seller` here and to `buyer` in the views of `sales`",
        buyer_of_everything(returned(crowd())),
        returned(crowd()),
    ),
    "a counted order has another owner than its sales": Refused(
        market("orders by orders.kind", "returns by orders.kind", returns="seller", orders=BOUGHT),
        "rows of `orders` belong to `seller` here and to `buyer` in the views of `orders`",
        buyer_of_everything(returned(crowd())),
        returned(crowd()),
    ),
}


@pytest.mark.parametrize("name", by_default(REFUSED, 2))
def test_a_catalog_that_breaks_its_claim_is_refused_when_loaded(name: str, tmp_path: Path, monkeypatch):
    case = REFUSED[name]
    with pytest.raises(CatalogError, match=case.reason):
        parse_catalog(case.catalog, "market.yaml")
    monkeypatch.setattr(checks, "check_owners", lambda catalog: None)
    assert measure(case.catalog, case.left, case.right, tmp_path).share > 10


def test_a_sellers_columns_are_refused_where_the_unit_is_the_buyer():
    keys = "sales: {role: fact, foreign_keys: {"
    text = market("sales by seller.age").replace(keys, keys + "seller: person, ")
    said = r"views.v0.axes: .*`seller` leads to rows of `person` that belong to other"
    with pytest.raises(CatalogError, match=said):
        parse_catalog(text, "market.yaml")
    parse_catalog(text.replace("[seller.age]", "[order_id.buyer.age]"), "market.yaml")


@pytest.mark.parametrize(
    "catalog",
    [
        market("sales by orders.kind", "sales by sales.day", unit="row"),
        market("sales by sales.day", "orders by orders.kind", unit="row"),
    ],
)
def test_a_row_of_a_counted_table_costs_its_claim_at_most(tmp_path: Path, catalog: str):
    loss = measure(catalog, crowd(), without(crowd(), "sales", 3), tmp_path)
    assert 0 < loss.share <= 1


def test_with_one_owner_everywhere_a_buyer_of_everything_moves_her_own_rows(tmp_path: Path):
    catalog = market("sales by orders.kind", "returns by orders.kind", "orders by orders.kind", orders=BOUGHT)
    loss = measure(catalog, buyer_of_everything(returned(crowd())), returned(crowd()), tmp_path)
    assert 0 < loss.share <= 1


def order_counts(folder, orders):
    """Counted rows of the orders table by kind."""
    star = parse_catalog(
        market("orders by orders.kind", orders=BOUGHT).replace("ROOT", str(folder)), "m.yaml"
    )
    raw, counts = open_sources(PARQUET, folder, star.source.tables), np.zeros(6, int)
    values = ", ".join(map(str, orders))
    raw.connection.execute(
        f"CREATE OR REPLACE VIEW raw.orders AS SELECT *, 0 AS seller FROM (VALUES {values}) o(order_id, buyer, kind)"
    )
    plan = plan_release(star, axis_maker(star, raw))
    prepare_tables(star, raw, plan)
    table, _ = place_rows(star, raw, plan, "orders", bytes(32))
    for kind, number in raw.connection.execute(f"SELECT a0, count(*) FROM {table} GROUP BY 1").fetchall():
        counts[kind] = number
    return counts


def test_a_key_that_two_units_share_moves_only_the_units_own_rows(tmp_path):
    row = "SELECT 1 AS order_id, 2 AS seller, 1 AS day, 1 AS buyer, 0 AS kind, 1 AS id, 1 AS age"
    write_tables(tmp_path, dict.fromkeys(("sales", "returns", "orders", "person"), row))
    others = [(7, 1, 0), (7, 2, 1), (8, 3, 2)]
    for victim in ([(7, 9, 3)], [(7, 9, 3), (8, 9, 3), (9, 9, 3)]):
        change = order_counts(tmp_path, others + victim) - order_counts(tmp_path, others)
        assert np.abs(change).sum() == min(2, len(victim))
        assert (change >= 0).all()


ENROLLED = """
dpsql: 1
name: campus
ledger: LEDGER
source: {kind: KIND, root: ROOT, tables: {enrolled: enrolled.ENDING, marks: marks.ENDING}}
privacy: {lineage: campus, cap: 9, unit: students.id, epsilon: 1}
tables:
  students: {people_of: enrolled, key: id, columns: [region, age]}
  enrolled: {role: fact, max_ids: 2, clipped_share: 0, columns: {
    region: {type: string, categories: [e, n, s], nullable: true},
    age: {type: int, lower: 8, upper: 11, nullable: true}, term: {type: int, lower: 0, upper: 3}}}
  marks: {role: fact, foreign_keys: {id: students}, max_ids: 2, clipped_share: 0,
    columns: {mark: {type: int, lower: 0, upper: 3}}}
views:
  people: {of: students, axes: [students.region, students.age], measures: [count], mechanism: identity, share: 1/3}
  terms: {of: enrolled, axes: [students.region, enrolled.term], measures: [count], mechanism: identity, share: 1/3}
  marks: {of: marks, axes: [students.age, marks.mark], measures: [count], mechanism: identity, share: 1/3}
"""
SCHEMA = "id INT, region TEXT, age INT, term INT"
AS_PARQUET = ENROLLED.replace("KIND", "parquet").replace("ENDING", "parquet")


def campus() -> dict[str, RawRows]:
    enrolled = [(i, "ens"[(i + j) % 3], 8 + (i + j) % 4, j) for i in range(OTHERS) for j in range(1 + i % 3)]
    marks = [(i, j) for i in range(OTHERS) for j in range(i % 4)]
    return {"enrolled": RawRows(SCHEMA, enrolled), "marks": RawRows("id INT, mark INT", marks)}


HERS = {
    "two values": [(999, "s", 8, 0), (999, "n", 11, 0)],
    "no value": [(999, None, None, 0), (999, None, None, 1)],
    "200 rows": [(999, "ens"[j % 3], 8 + j % 4, j % 4) for j in range(200)],
    "one row": [(999, "x", 99, 9)],
}


@pytest.mark.parametrize("hers", HERS.values(), ids=HERS)
def test_a_person_made_of_several_rows_costs_her_claim_and_no_more(hers: list, tmp_path: Path) -> None:
    tables = campus()
    # rows without a key are nobody's and in both sides
    crowded = {**tables, "enrolled": tables["enrolled"].plus((None, "e", 9, 1), (None, "n", 9, 1))}
    marked = crowded["marks"].plus(*((999, j % 4) for j in range(len(hers))))
    with_her = {"enrolled": crowded["enrolled"].plus(*hers), "marks": marked}
    loss = measure(AS_PARQUET, crowded, with_her, tmp_path)
    full = 1 if len(hers) > 1 else 2 / 3  # one row is half of what `max_ids: 2` is charged for
    assert full - 1e-8 < loss.share <= full


def test_whoever_is_in_no_row_of_the_people_is_missing_and_still_herself(tmp_path: Path) -> None:
    tables = campus()
    marked = {**tables, "marks": tables["marks"].plus(*((999, j % 4) for j in range(200)))}
    assert 1 / 3 - 1e-8 < measure(AS_PARQUET, tables, marked, tmp_path).share <= 1 / 3


@pytest.mark.parametrize("kind", ["parquet", "csv"])
def test_a_person_is_the_least_text_of_each_column_alone(kind: str, tmp_path: Path) -> None:
    rows = [
        (7, "s", 11, 0), (7, "n", 9, 3), (7, None, 8, 1), (8, None, None, 0), (8, None, 10, 0), (9, "é", 9, 0),
        (9, "z", None, 2), (None, "e", 9, 0), (10, None, None, 1),
    ]  # fmt: skip
    write_side(tmp_path, "", {"enrolled": RawRows(SCHEMA, rows), "marks": RawRows("id INT, mark INT", [])})
    for table in ("enrolled", "marks"):
        duckdb.sql(f"COPY '{tmp_path / table}.parquet' TO '{tmp_path / table}.csv'")
    text = ENROLLED.replace("KIND", kind).replace("ENDING", kind).replace("ROOT", str(tmp_path))
    with closing(open_tables(parse_catalog(text, "campus.yaml"))) as raw:
        people = raw.connection.execute(
            "SELECT CAST(id AS INT), region, age::TEXT FROM raw.students ORDER BY 1"
        ).fetchall()
    # 10 and 11 are below 8 and 9 as texts, and z is below é as bytes
    assert people == [(7, "n", "11"), (8, None, "10"), (9, "z", "9"), (10, None, None)]


def test_keys_of_one_text_are_one_person(tmp_path: Path) -> None:
    content = b"id,region,age,term\n7,s,9,0\n07,n,9,0\n 7,e,9,0\n"
    files = {"enrolled": Bytes("enrolled.csv", content), "marks": Bytes("marks.csv", b"id,mark\n")}
    write_side(tmp_path, "", files)
    text = ENROLLED.replace("KIND", "csv").replace("ENDING", "csv").replace("ROOT", str(tmp_path))
    star = parse_catalog(text, "campus.yaml")
    with closing(open_tables(star)) as raw:
        kind = raw.columns["students"]["id"]
        keys = raw.connection.execute("SELECT count(*), count(DISTINCT id) FROM raw.students").fetchall()
        enrolled = raw.connection.execute("SELECT count(DISTINCT id) FROM raw.enrolled").fetchall()
    assert keys[0][0] == keys[0][1] == enrolled[0][0]
    assert kind == raw.columns["enrolled"]["id"]


@pytest.mark.parametrize(("before", "after", "reason", "what"), refusals("people made of rows"))
def test_people_of_rows_that_are_not_each_persons_own_are_refused(before, after, reason, what):
    assert before in AS_PARQUET
    text = AS_PARQUET.replace(before, after).replace(
        "marks: {role: fact,", "marks: {role: fact, key: key,", 1
    )
    with pytest.raises(CatalogError, match=reason):
        parse_catalog(text, "campus.yaml")
