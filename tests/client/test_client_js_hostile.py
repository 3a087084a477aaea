"""The JavaScript client against a curator who wants more than epsilon, and the fields of records. Needs Node."""

from __future__ import annotations

import json
import shutil
import subprocess
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpsql.client.device import join, to_rows
from dpsql.client.plan import largest_weight
from dpsql.errors import DataError
from tests.client.test_client_hostile import BAD_PLANS, DEAR_PLANS
from tests.local_plans import plan_of, plan_text, view

NODE = shutil.which("node")
CLIENT = Path(__file__).parents[2] / "clients" / "js"
pytestmark = [pytest.mark.skipif(NODE is None, reason="no node on this machine"), pytest.mark.long]
HEAD = f"""
import {{ Memory, below, readPlan, respond, toHex }} from "{(CLIENT / "dpsql-client.js").as_uri()}";
import {{ exact, largestWeight }} from "{(CLIENT / "dpsql-plan.js").as_uri()}";
import {{ checkFields, join, toRows }} from "{(CLIENT / "dpsql-rows.js").as_uri()}";
class Storage {{
  constructor(text) {{ this.text = text ?? null; }}
  getItem() {{ return this.text; }}
  setItem(key, text) {{ this.text = text; }}
}}
const read = (text) => readPlan(new TextEncoder().encode(text));
const said = async (act) => {{ try {{ return await act(); }} catch (error) {{ return "refused: " + error.message; }} }};
const given = JSON.parse((await import("node:fs")).readFileSync(0, "utf8"));
const out = [];
"""


def run(code: str, given: Any) -> Any:
    done = subprocess.run(
        [str(NODE), "--input-type=module", "-e", f"{HEAD}{code}; console.log(JSON.stringify(out));"],
        input=json.dumps(given), capture_output=True, text=True, check=True,
    )  # fmt: skip
    return json.loads(done.stdout)


PLANS = [plan_text(*views, **changes) for views, changes in BAD_PLANS]
PLANS += [plan_text(view(), **changes) for changes in DEAR_PLANS]
PLANS += [plan_text(view(oracle="toString", extra=1.5)), plan_text(view(), epsilon="1e0")]


def test_hostile_plans_are_refused_by_both_clients() -> None:
    """Those that the Python client refuses, and two that only a script could misread."""
    found = run("for (const text of given) out.push(await said(() => read(text)))", PLANS)
    assert [
        text for text, said in zip(PLANS, found, strict=True) if not str(said).startswith("refused")
    ] == []
    for text in PLANS[-2:]:
        with pytest.raises(DataError):
            plan_of(**json.loads(text))


def test_weights_are_exact_floors() -> None:
    epsilons = [
        "1", "0.5", "1/3", "2", "3", "4", "5", "16", "0.000001", "7/13", "1.0986122886681098", "12.345"
    ]  # fmt: skip
    epsilons += [f"{i}/100" for i in range(1, 1600, 7)]
    found = run("for (const text of given) out.push(largestWeight(exact(text)))", epsilons)
    assert found == [largest_weight(Fraction(text)) for text in epsilons]


def test_no_name_of_a_collection_is_forgotten() -> None:
    names = ["__proto__", "constructor", "toString", "a", ""]
    code = """
    for (const name of given) {
      const storage = new Storage(), plan = await read(name[1]), seen = new Set();
      for (let i = 0; i < 30; i += 1)
        seen.add(await said(async () => toHex(await new Memory(storage, 1, 1).answer(plan, []))));
      out.push([...seen]);
    }"""
    # json.loads keeps a __proto__ that a JavaScript literal would not
    found = run(f"{code}", [[name, plan_text(collection=name)] for name in names[:-1]])
    assert [len(seen) for seen in found] == [1] * 4
    assert not any(text.startswith("refused") for seen in found for text in seen)


@pytest.mark.parametrize(
    "caps", ["", "1", "1, undefined", "NaN, 1", "1, Infinity", "1, null", '"1e9", 1', "-1, 1"]
)
def test_a_memory_without_sound_caps_is_none(caps: str) -> None:
    arguments = f"new Storage(), {caps}" if caps else "new Storage()"
    assert run(f"out.push(await said(() => new Memory({arguments})))", None)[0].startswith("refused")


@pytest.mark.parametrize(
    "text",
    ['{"a":{}}', '{"a":{"epsilon":"x","round":0,"report":null}}', '{"a":{"round":0,"report":null}}', "[]", "null",
     "{", '"x"', '{"a":{"epsilon":"1","round":0,"report":"4"}}', '{"a":null}'],
)  # fmt: skip
def test_a_damaged_memory_stops_reporting(text: str) -> None:
    code = """const storage = new Storage(given[0]);
    out.push(await said(async () => new Memory(storage, 1, 9).answer(await read(given[1]), [])), storage.text)"""
    said, kept = run(code, [text, plan_text()])
    assert said.startswith("refused")
    assert kept == text


def test_epsilons_add_up_as_fractions() -> None:
    code = """const storage = new Storage();
    for (const text of given) {
      const plan = await read(text);
      out.push(await said(async () => (await new Memory(storage, "0.1", "0.3").answer(plan, [])).length));
    }"""
    plans = [
        plan_text(collection=str(i), epsilon="0.1", own=largest_weight(Fraction(1, 10))) for i in range(4)
    ]
    *sent, last = run(code, plans)
    assert sent == [14, 14, 14]  # in doubles 0.1 + 0.1 + 0.1 is above 0.3
    assert "spent all" in last


def test_of_two_tabs_one_draws_at_a_time() -> None:
    code = """
    const storage = new Storage(), plan = await read(given), waiting = [], held = [];
    let busy = Promise.resolve();
    const locks = { request: (name, act) => { held.push(name); return busy = busy.then(act); } };
    Object.defineProperty(globalThis, "navigator", { value: { locks }, configurable: true });
    for (let i = 0; i < 20; i += 1) waiting.push(new Memory(storage, 1, 1).answer(plan, []));
    out.push(held.length, new Set((await Promise.all(waiting)).map(toHex)).size);
    """
    assert run(code, plan_text()) == [20, 1]


def test_storage_that_keeps_nothing_stops_reporting() -> None:
    code = """const storage = { getItem: () => null, setItem: () => {} };
    out.push(await said(async () => new Memory(storage, 1, 1).answer(await read(given), [])));"""
    assert "did not keep" in run(code, plan_text())[0]


def test_a_source_that_runs_dry_is_no_source() -> None:
    assert "ran dry" in run("out.push(await said(() => below(1000, () => new Uint8Array(0))))", None)[0]


def test_everybody_can_answer() -> None:
    code = """const plan = await read(given);
    for (const rows of [[], [{ leaves: [99] }], [{ leaves: [NaN] }], [{ leaves: [1] }], [{ leaves: [3] }]])
      out.push(toHex(respond(plan, rows)).length);"""
    boxes = view("boxes", axes=[0], edges=[], boxes=[[0, 1], [2, 4]], domain=2, empty=False)
    assert run(code, plan_text(boxes, tau=1)) == [28] * 5


def test_values_become_the_leaves_that_python_finds() -> None:
    axes: list[dict[str, Any]] = [
        {"name": "even", "leaves": 6, "lower": 20, "width": 10, "null_leaf": 4, "other_leaf": 5},
        {"name": "text", "leaves": 4, "values": ["false", "true", "7"], "other_leaf": 3},
        {"name": "bins", "leaves": 5, "starts": [0, 5, 9], "upper": 20, "scale": 1, "other_leaf": 3, "null_leaf": 4},
        {"name": "key", "leaves": 3, "keys": {"7": 0, "x": 1}, "missing_leaf": 2},
        {"name": "day", "leaves": 3, "starts": [0, 31], "upper": 58, "type": "date", "other_leaf": 2},
        {"name": "hour", "leaves": 3, "starts": [0, 700], "upper": 1400, "type": "timestamp", "grain": "hour",
         "other_leaf": 2},
    ]  # fmt: skip
    amounts = [
        {"name": "m", "lower": -30, "upper": 70, "scale": 1},
        {"name": "n", "lower": 2, "upper": 9, "scale": 0},
    ]
    values = [None, True, False, 7, "7", "x", 2.5, -2.5, "0.45", "-0.45", 1.99, "2.1e0", "1e400", "-1e400", 65, "",
              "abc", 1e300, "1970-02-01", "1970-01-31", "1970-03-01", "1970-13-01", "1970-02-01T05:30",
              "1970-01-02 00:00:00", "1970-01-30T04:00:00+01:00", "1970-02-28T23:59:59Z", "24:00",
              0.05, "0.25", " 3 "]  # fmt: skip
    changes = {"axes": axes, "measures": amounts}
    grid = view(edges=[[0, 6]], domain=2)
    records = [{**{a["name"]: v for a in axes}, "m": v, "n": v} for v in values]
    one_axis = [{**changes, "axes": [{**a, "other_leaf": None, "missing_leaf": None}]} for a in axes]
    code = "for (const [plan, records] of given) out.push(toRows(await read(plan), records))"
    plans = [plan_text(grid, **changes)]
    plans += [plan_text(view(edges=[[0, c["axes"][0]["leaves"]]], domain=2), **c) for c in one_axis]
    found = run(code, [[plan, records] for plan in plans])
    for text, rows in zip(plans, found, strict=True):
        expected = to_rows(plan_of(**json.loads(text)), records)
        assert [(tuple(r["leaves"]), tuple(r["measures"])) for r in rows] == expected


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
