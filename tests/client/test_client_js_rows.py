"""The JavaScript client joins records and finds their fields as the Python one does. Needs Node."""

from __future__ import annotations

import pytest

from dpsql.client.rows import join, to_rows
from tests.client.test_client_js_hostile import NODE, run
from tests.local_plans import plan_of, plan_text, view

pytestmark = pytest.mark.skipif(NODE is None, reason="no node on this machine")

AXES = [
    {"name": "product(category)", "key": "product_id", "keys": {"7": 1}, "leaves": 3, "missing_leaf": 2},
    {"name": "price", "leaves": 4, "starts": [0, 5], "upper": 20, "missing_leaf": 2, "other_leaf": 3},
]
CHANGES = {"axes": AXES, "measures": [{"name": "amount", "lower": 0, "upper": 9, "scale": 0}]}
GRID = view(axes=[1], edges=[[0, 4]], domain=2)


def test_fields_are_found_by_name_by_key_and_without_a_public_row() -> None:
    facts = [{"product_id": 7, "amount": 3}, {"product_id": 8, "amount": 4}, {"product(category)": "7"}, {}]
    public = {7: {"price": 6}}
    records = join(facts, public, "product_id")
    code = "const [text, facts, rows] = given, joined = join(facts, new Map(rows), 'product_id');"
    code += "out.push(toRows(await read(text), joined))"
    (found,) = run(code, [plan_text(GRID, **CHANGES), facts, [[key, row] for key, row in public.items()]])
    expected = to_rows(plan_of(GRID, **CHANGES), records)
    assert [(tuple(r["leaves"]), tuple(r["measures"])) for r in found] == expected
    assert [row.leaves for row in expected] == [(1, 1), (2, 2), (1, 2), (2, 2)]


def test_misnamed_fields_are_told_without_a_record() -> None:
    code = """const plan = await read(given[0]);
    for (const fields of [["cost"], ["cost", "amount"]])
      out.push(await said(() => checkFields(plan, fields) ?? "known"));
    out.push(toRows(plan, [{ cost: 3 }]).length)"""
    said, known, rows = run(code, [plan_text(GRID, **CHANGES)])
    assert said.startswith("refused: none of the fields is one of the plan's; name them product(category)")
    assert said.count("price") == 1
    assert (known, rows) == ("known", len(to_rows(plan_of(GRID, **CHANGES), [{"cost": 3}])))
