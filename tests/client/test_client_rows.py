"""A device looks values up as the curator's own SQL would: the same leaf, or the same rows left out."""

from __future__ import annotations

import datetime
from typing import Any

import duckdb
import pytest

from dpsql.axis.model import Axis, leaf_sql
from dpsql.catalog import parse_catalog
from dpsql.client import decode, read_plan, respond
from dpsql.client.device import check_fields, leaf_of, to_rows
from dpsql.client.entropy import system_entropy
from dpsql.errors import DataError
from dpsql.local.plan import build_plan
from dpsql.local.survey import design_of, public_axis_maker, survey_of
from tests.local_plans import plan_of, view

TEXT = """
dpsql: 1
name: visits
privacy: {lineage: town, cap: 2, unit: person.person_id, epsilon: 1}
collection: {epsilon: 1, tau: 2}
tables:
  person: {role: dimension, key: person_id, private: true, columns: {
      age: {type: int, lower: 18, upper: 81, nullable: true, cuts: {width: 5}},
      town: {type: string, categories: [north, south]}}}
  visit: {role: fact, max_ids: 5, foreign_keys: {person_id: person}, columns: {
      price: {type: decimal, scale: 1, lower: 0, upper: 20, cuts: {width: 2}},
      day: {type: date, lower: 2025-01-01, upper: 2025-12-31, out_of_domain: drop, cuts: {width: 30}},
      hour: {type: timestamp, grain: hour, lower: 2025-01-01 00:00:00, upper: 2025-01-03 23:00:00, cuts: {width: 6}},
      sent: {type: bool},
      spent: {type: decimal, scale: 2, lower: 0, upper: 90, measure: true}}}
views:
  all: {of: visit, axes: [person.age, person.town, visit.price, visit.day], measures: [count, visit.spent]}
  more: {of: visit, axes: [visit.hour, visit.sent], measures: [count]}
"""
VALUES: dict[str, tuple[str, list[Any]]] = {
    "person.age": ("DOUBLE", [17, 17.5, 18, 22, 23, 81, 81.4, 81.5, 90, None, float("nan"), float("inf")]),
    "person.town": ("VARCHAR", ["north", "south", "North", "", None]),
    "visit.price": ("VARCHAR", ["0", "-0.04", "-0.05", "1.94", "1.95", "20", "20.1", "dear", "", None]),
    "visit.day": (
        "DATE",
        [datetime.date(2025, 1, 31), datetime.date(2025, 2, 1), datetime.date(2026, 1, 1), None],
    ),
    "visit.hour": (
        "TIMESTAMP",
        [
            datetime.datetime(2025, 1, 1, 5, 59),
            datetime.datetime(2025, 1, 1, 6),
            datetime.datetime(2025, 1, 4),
            None,
        ],
    ),
    "visit.sent": ("BOOLEAN", [True, False, None]),
}


@pytest.fixture(scope="module")
def asked() -> tuple[dict[str, Axis], Any]:
    catalog = parse_catalog(TEXT)
    survey = survey_of(catalog, public_axis_maker(catalog))
    return {axis.name: axis for axis in survey.axes}, read_plan(build_plan(design_of(survey, 1000)))


@pytest.mark.parametrize("name", list(VALUES))
def test_the_same_leaf_as_sql(asked: tuple[dict[str, Axis], Any], name: str) -> None:
    axes, plan = asked
    looked = {axis.name: axis for axis in plan.axes}
    kind, values = VALUES[name]
    expression = leaf_sql(axes[name], f"CAST($1 AS {kind})")
    for value in values:
        wanted = duckdb.execute(f"SELECT {expression}", [value]).fetchall()[0][0]
        assert leaf_of(looked[name], value) == wanted, (name, value)


def test_text_and_zones_of_times(asked: tuple[dict[str, Axis], Any]) -> None:
    looked = {axis.name: axis for axis in asked[1].axes}
    west = datetime.timezone(datetime.timedelta(hours=-5))
    assert leaf_of(looked["visit.day"], "2025-03-01") == 1
    assert leaf_of(looked["visit.day"], datetime.datetime(2025, 3, 1, 23, 59)) == 1
    assert leaf_of(looked["visit.day"], "soon") is None
    assert leaf_of(looked["visit.hour"], datetime.datetime(2025, 1, 1, 1, tzinfo=west)) == 1
    assert leaf_of(looked["visit.hour"], 7) == looked["visit.hour"].lookup["other_leaf"]


def test_records_become_rows(asked: tuple[dict[str, Axis], Any]) -> None:
    plan = asked[1]
    record = {
        "person.age": 30, "person.town": "south", "visit.price": "3.5", "visit.day": "2025-02-03",
        "visit.hour": "2025-01-01 07:00:00", "visit.sent": True, "visit.spent": "12.345",
    }  # fmt: skip
    (row,) = to_rows(plan, [record])
    assert row.measures == (1235,), "halves away from zero, as SQL rounds"
    assert to_rows(plan, [{**record, "visit.day": "2031-01-01"}]) == [], (
        "out_of_domain: drop leaves the row out"
    )
    alone = {k: v for k, v in record.items() if not k.startswith("person.")}
    (lost,) = to_rows(plan, [alone])
    held = {axis.name: leaf for axis, leaf in zip(plan.axes, lost.leaves, strict=True)}
    missing = {axis.name: axis.lookup.get("missing_leaf") for axis in plan.axes}
    assert (held["person.age"], held["person.town"]) == (missing["person.age"], missing["person.town"])
    assert to_rows(plan, [{}]) == [], "a person without any value is no mistake of the program's"


def test_misnamed_fields_are_told_without_a_record(asked: tuple[dict[str, Axis], Any]) -> None:
    with pytest.raises(DataError, match="one of the plan's; name them person"):
        check_fields(asked[1], ["age", "price"])
    check_fields(asked[1], ["age", "visit.price"])


def test_a_plan_of_unknown_fields_is_answered_by_whoever_has_records_too() -> None:
    plan = plan_of(axes=[{"name": "nobody's", "leaves": 4, "values": ["a"]}], measures=[])
    for records in ([], [{"age": 30}], [{"age": 30}] * 3):
        assert decode(respond(plan, to_rows(plan, records), system_entropy)).plan == plan.hash


def test_a_public_table_s_rows_are_found_by_their_key() -> None:
    axis = {
        "name": "product(category)",
        "key": "product_id",
        "keys": {"7": 1},
        "leaves": 3,
        "missing_leaf": 2,
    }
    plan = plan_of(view(edges=[[0, 1, 2, 3]], domain=4), axes=[axis], measures=[])
    assert [row.leaves for row in to_rows(plan, [{"product_id": 7}, {"product_id": 8}])] == [(1,), (2,)]
    assert to_rows(plan, [{"product(category)": 7}])[0].leaves == (1,)
