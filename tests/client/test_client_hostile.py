"""A curator who wants more than epsilon, and values nobody thought of: no refusal depends on a person's rows."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Sequence
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.client import Memory, Plan, Row, decode, read_plan, respond
from dpsql.client.device import leaf_of, to_rows, units
from dpsql.client.entropy import below, system_entropy
from dpsql.client.plan import largest_weight, read_axis
from dpsql.errors import DataError, PrivacyError
from tests.local_plans import W1, all_kinds, plan_of, view

WAVE = {"edges": [[0, 1, 2, 3, 4]], "oracle": "WAVE", "domain": 4}
AMOUNT = {"name": "amount", "scale": 0}
PEOPLE: Sequence[list[Row]] = ([], [Row((1, 1), (0,))], [Row((1, 1), (0,))] * 9)


BAD_PLANS: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([view(measure=0, domain=5)], {"measures": [{**AMOUNT, "lower": 0, "upper": 1 << 49}]}),
    ([view(measure=0, domain=5)], {"measures": [{**AMOUNT, "lower": 0, "upper": 2.5}]}),
    ([view(measure=0, domain=5)], {"measures": [{**AMOUNT, "lower": 1 << 60, "upper": (1 << 60) + 1}]}),
    ([view("wave", **WAVE, extra=1 << 30)], {}), ([view(empty=1)], {}),
    ([view("wave", **WAVE, extra=0.25)], {}), ([view()], {"tau": 1.5}), ([view()], {"epsilon": 1}),
    ([view("rows", axes=[], edges=[], domain=1.5)], {"rows_cap": 0.5}), ([view(oracle="OLH", extra=2 + 2**-20)], {}),
    ([view(axes=[9])], {}), ([view(axes=[-1], edges=[[0, 1, 3]])], {}), ([view(measure=1, domain=5)], {}),
    ([view(edges=[["0", 2, 4]])], {}), ([view(empty="yes")], {}), ([view(domain=4)], {}),
    ([view(edges=[[0, 2]])], {}), ([view(edges=[[0, 2, 2, 4]])], {}), ([view(oracle="RAPPOR")], {}),
    ([view(share=-1)], {}), ([view(kind="wave")], {}), ([view(kind="boxes", boxes=[[0, 4, 0]])], {}),
    ([view(oracle="OLH")], {}), ([view(kind="other")], {}), ([view(share=0.5)], {}), ([view(share=0)], {}),
    ([view(share=1 << 50)], {}), ([view()], {"collection": 1}),
    ([view()], {"collection": ["a"]}), ([view()], {"epsilon": "1e1000000000"}), ([view()], {"epsilon": 1.0}),
    ([view()], {"axes": [{"name": "age", "leaves": 4, "keys": {"gold": 99}}]}),
    ([view()], {"axes": [{"name": "age", "leaves": 4, "null_leaf": 99}]}),
    ([view()], {"axes": [{"name": "age", "leaves": 4, "values": 5}]}),
    ([view()], {"axes": [{"name": "age", "leaves": 4, "starts": [0, 1, 1], "upper": 5}]}),
    # its rounds cannot be drawn
    ([view()], {"rounds": 2, "round": 2}), ([view()], {"rounds": 2, "round": -1}), ([view()], {"rounds": "2"}),
    ([view()], {"rounds": 2, "round_shares": [1]}), ([view()], {"rounds": 2, "round_shares": [0, 1]}),
    ([view()], {"rounds": 2, "round_shares": [True, 1]}), ([view()], {"rounds": 2, "round_shares": [1 << 47, 1 << 48]}),
    ([view()], {"other": 1}), ([view()], {"tau": 0}), ([view()], {"dpsql_plan": 2}), ([view()], {"epsilon": "x"}),
]  # fmt: skip
WHOLE_FLOATS: list[tuple[list[dict[str, Any]], dict[str, Any]]] = [
    ([view("wave", **WAVE, extra=1)], {"own": float(W1)}), ([view()], {"tau": 2.0}),
    ([view("rows", axes=[], edges=[], domain=6)], {"rows_cap": 5.0}),
]  # fmt: skip
"""JavaScript does not tell them from whole numbers."""
DEAR_PLANS: list[dict[str, Any]] = [{"own": W1 + 1}, {"own": 1 << 20}, {"epsilon": "17"}]
"""They cost more than they say."""


@pytest.mark.parametrize(("views", "changes"), BAD_PLANS + WHOLE_FLOATS)
def test_plans_that_some_people_could_not_answer_are_refused_unanswered(
    views: list[dict[str, Any]], changes: dict[str, Any]
) -> None:
    with pytest.raises(DataError):
        plan_of(*views, **changes)


@pytest.mark.parametrize("changes", DEAR_PLANS)
def test_plans_that_cost_more_than_they_say_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(PrivacyError):
        plan_of(view(), **changes)


def test_a_deep_plan_is_refused() -> None:
    with pytest.raises(DataError):
        read_plan(b"[" * 100_000)


def draw_item(plan: Plan, rows: list[Row]) -> int | None:
    return plan.views[0].asks.draw(plan, plan.views[0], rows, system_entropy)


@pytest.mark.parametrize("kind", [*all_kinds(), view(empty=False, domain=2)])
def test_everybody_can_answer_every_view(kind: dict[str, Any]) -> None:
    plan = plan_of(kind, tau=1)
    odd = [Row((99, -1), (10**30,)), Row((-1, 99), (-(10**30),))]
    for rows in [*PEOPLE, odd]:
        for _ in range(20):
            assert decode(respond(plan, rows, system_entropy)).plan == plan.hash


def test_a_hole_between_boxes_is_no_row() -> None:
    holed = {"axes": [0], "edges": [], "boxes": [[0, 1], [2, 4]]}
    with_item = plan_of(view("boxes", **holed, domain=3), tau=1)
    assert draw_item(with_item, [Row((1, 0))]) == 2
    without = plan_of(view("boxes", **holed, domain=2, empty=False), tau=1)
    drawn = [draw_item(without, [Row((1, 0))]) for _ in range(200)]
    assert 50 < drawn.count(1) < 150


def test_where_no_row_is_no_item_any_item_is_drawn_evenly() -> None:
    plan = plan_of(view(empty=False, domain=2), tau=1, rows_floor=1)
    drawn = [draw_item(plan, []) for _ in range(200)]
    assert 50 < drawn.count(0) < 150


AXES: Sequence[dict[str, Any]] = (
    {"name": "a", "leaves": 6, "lower": 20, "width": 10},
    {"name": "a", "leaves": 6, "lower": 20, "width": 10, "null_leaf": 4, "other_leaf": 5},
    {"name": "a", "leaves": 3, "starts": [0, 5, 9], "upper": 20, "scale": 1},
    {"name": "a", "leaves": 4, "starts": [0, 5, 9], "upper": 20, "other_leaf": 3},
    {"name": "a", "leaves": 3, "starts": [0, 5, 9], "upper": 20, "type": "date", "other_leaf": 2},
    {"name": "a", "leaves": 3, "starts": [0, 5, 9], "upper": 20, "type": "timestamp", "grain": "hour"},
    {"name": "a", "leaves": 3, "values": ["x", "7", "true"]},
    {"name": "a", "leaves": 3, "keys": {"7": 1}, "missing_leaf": 2},
)
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.decimals(), st.fractions(),
    st.dates(), st.datetimes(timezones=st.none() | st.timezones()), st.binary(),
    st.sampled_from(["1e999999999", "-1e999999999", "sNaN", "1_0", -0.0]),
    st.integers(5000, 5001).map(lambda digits: 10**digits),
)  # fmt: skip


@settings(deadline=None)
@given(ODD, st.sampled_from(AXES))
def test_every_value_has_a_leaf_or_is_left_out(value: object, axis: dict[str, Any]) -> None:
    leaf = leaf_of(read_axis(axis), value)
    assert leaf is None or 0 <= leaf < axis["leaves"]


@settings(deadline=None)
@given(ODD)
def test_every_measure_lies_in_its_bounds(value: object) -> None:
    rows = to_rows(plan_of(), [{"age": 12, "region": "north", "amount": value}, {"age": 12, "region": "x"}])
    assert len(rows) == 1
    assert type(rows[0].measures[0]) is int
    assert -3 <= rows[0].measures[0] <= 7


@pytest.mark.parametrize(
    ("value", "scale", "expected"),
    [(2.5, 0, 3), (-2.5, 0, -3), (4.35, 1, 44), ("0.449", 2, 45), (Fraction(1, 3), 2, 33), (True, 0, 1),
     (Decimal("-0.5"), 0, -1), (-0.0, 0, 0), (math.inf, 0, 99), (-math.inf, 0, -99), (math.nan, 0, None),
     ("1e999999999", 0, 99), ("-1e999999999", 0, -99), ("1e-999999999", 5, 0), ("1e9999999999999999999", 0, 99),
     (b"1", 0, None)],
)  # fmt: skip
def test_numbers_round_half_away_from_zero_as_raw_rows_do(value: object, scale: int, expected: int) -> None:
    assert units(value, scale, -99, 99) == expected


def test_integers_of_any_length_are_cut() -> None:
    assert (units(10**5000, 3, -99, 99), units(-(10**5000), 0, -99, 99)) == (99, -99)


def test_values_are_compared_as_text_and_absent_ones_have_a_leaf() -> None:
    answers = read_axis({"name": "a", "leaves": 4, "values": ["false", "true", "7"], "other_leaf": 3})
    assert [leaf_of(answers, v) for v in (False, True, 7, "7", 8, None)] == [0, 1, 2, 2, 3, 3]
    public = read_axis({"name": "p", "leaves": 2, "keys": {"7": 0}, "missing_leaf": 1})
    assert [leaf_of(public, v) for v in (7, 8, None)] == [0, 1, 1]
    days = read_axis({"name": "d", "leaves": 2, "starts": [0, 31], "upper": 58})
    assert [leaf_of(days, datetime.date(1970, m, 1)) for m in (1, 2, 3)] == [0, 1, None]


def test_times_count_their_grain() -> None:
    day = datetime.datetime(1970, 1, 1, 23, 59, 59)
    body = {"name": "t", "leaves": 2, "starts": [0, 12], "upper": 23, "type": "timestamp", "grain": "hour"}
    hours = read_axis(body)
    east = datetime.timezone(datetime.timedelta(hours=13))
    assert [leaf_of(hours, v) for v in (day, "1970-01-01T11:59", day.replace(tzinfo=east))] == [1, 0, 0]
    assert [leaf_of(hours, v) for v in (datetime.date(1970, 1, 1), "noon", 12, "1970-01-02")] == [
        0,
        None,
        None,
        None,
    ]
    edge = datetime.datetime.min.replace(tzinfo=east)
    assert leaf_of(hours, edge) is None
    assert leaf_of(read_axis({**body, "grain": "second", "starts": [0, 43200], "upper": 86399}), day) == 1


def test_a_source_that_runs_dry_is_no_source() -> None:
    with pytest.raises(OSError, match="0 bytes for 2"):
        below(1000, lambda size: b"")


def test_the_largest_weight_is_never_above_e_to_the_epsilon() -> None:
    with localcontext() as context:
        context.prec = 70  # ln 3 cut off: e^epsilon 2^20 is below 3 2^20 by less than sixty digits can tell
        below_log = Fraction(Decimal(3).ln()) - Fraction(1, 10**66)
    assert largest_weight(below_log) == (3 << 20) - 1
    assert largest_weight(below_log + Fraction(1, 10**50)) == 3 << 20


def device(folder: Path) -> Memory:
    return Memory(folder / "memory.lock", Fraction(1), Fraction(2))


@pytest.mark.parametrize(
    "text",
    ['{"a": {}}', '{"a": 1}', '{"a": {"epsilon": "-5", "round": 0, "report": null}}',
     '{"a": {"epsilon": "1", "round": "0", "report": null}}', '{"a": {"epsilon": "1", "round": 0, "report": "x"}}',
     '{"a": {"epsilon": "1/0", "round": 0, "report": null}}', "{", "[]", "null", "\x00"],
)  # fmt: skip
def test_a_memory_with_a_damaged_entry_stops_reporting(tmp_path: Path, text: str) -> None:
    kept = device(tmp_path)
    kept.path.write_text(text)
    with pytest.raises(DataError, match="damaged"):
        kept.answer(plan_of(), [], system_entropy)
    assert kept.path.read_text() == text


def test_a_memory_may_have_any_name(tmp_path: Path) -> None:
    kept = device(tmp_path)
    first = kept.answer(plan_of(), [], system_entropy)
    assert first == kept.answer(plan_of(), [], system_entropy)
    assert list(json.loads(kept.path.read_text())) == ["test"]
