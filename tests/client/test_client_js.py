"""The JavaScript client draws the same bytes as the Python one. Needs Node; skips where there is none."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dpsql.catalog import parse_catalog
from dpsql.client import Row, respond
from dpsql.client.device import draw_round
from dpsql.client.entropy import below
from dpsql.client.oracles import block, grr, olh, oue, space_of, wave
from dpsql.client.plan import read_plan
from dpsql.errors import DataError
from dpsql.local.survey import column_of
from dpsql.local.survey import plan_of as collected_plan
from tests.local_plans import W1, InsecureTestEntropy, all_kinds, plan_of, plan_text, view

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "local.json").read_text())["client_stream"]
REPORTED = """
dpsql: 1
name: shop
privacy: {lineage: p, cap: 9, unit: customer.id, epsilon: 1}
tables:
  customer: {role: dimension, key: id, private: true, columns: {
    age: {type: int, lower: 18, upper: 87, out_of_domain: drop, cuts: {width: 5},
          reported: {epsilon: 1, collection: ages, mechanism: MECHANISM}}}}
  sales: {role: fact, foreign_keys: {id: customer}, max_ids: 4, columns: {day: {type: int, lower: 0, upper: 3}}}
views:
  days: {of: sales, axes: [customer.age, sales.day], measures: [count]}
"""
NODE = shutil.which("node")
SCRIPT = Path(__file__).parents[2] / "clients" / "js" / "stream.js"
pytestmark = [pytest.mark.skipif(NODE is None, reason="no node on this machine"), pytest.mark.long]


def run(request: dict[str, Any]) -> dict[str, Any]:
    done = subprocess.run(
        [str(NODE), str(SCRIPT)], input=json.dumps(request), capture_output=True, text=True, check=True
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def agree(seed: str, text: str, people: list[list[dict[str, Any]]]) -> None:
    """Both clients draw one report of each person's rows, byte for byte."""
    out = run({"seed": seed, "own": W1, "plan": text, "people": people})
    plan, entropy = read_plan(text.encode()), InsecureTestEntropy(seed.encode())
    rows = [[Row(tuple(r["leaves"]), tuple(r.get("measures", ()))) for r in person] for person in people]
    assert out["plan_reports"] == [respond(plan, own, entropy).hex() for own in rows]


def test_the_folder_s_own_tests_pass() -> None:
    done = subprocess.run(
        [str(NODE), "--test"], cwd=SCRIPT.parent, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_shared_stream_vectors() -> None:
    out = run(
        {
            "seed": "dpsql-test-1",
            "own": W1,
            "below": [2, 3, 5, 256, 257, 1000000],
            "grr": [[i % 5, 5] for i in range(12)],
            "oue": [[3, 25]],
            "views": [[3, 5, "GRR"], [4, 25, "OUE"], [5, 625, "OUE"]],
            "reports": [[2, 7, 311]] * 4,
            "plan_hash": "0102030405060708",
        }
    )
    assert out["below"] == VECTORS["below"]
    assert out["grr"] == VECTORS["grr"]
    assert out["oue"] == [VECTORS["oue"]]
    assert out["reports"] == VECTORS["reports"]


def test_hashes_waves_and_large_bounds_agree() -> None:
    bounds = [1, 2**31, 2**32 + 1, 2**47 + 12345, 2**48]
    hashed = [[item, 4] for item in (0, 1, 77, 65535, 2**24 - 1)]
    waves = [[i, 64, 12] for i in (0, 5, 63)] + [[None, 64, 12]] * 3
    out = run(
        {"seed": "wide", "own": W1, "below": bounds, "olh": hashed, "wave": waves, "oue": [[700, 2048]]}
    )
    entropy = InsecureTestEntropy(b"wide")
    assert out["below"] == [below(n, entropy) for n in bounds]
    assert out["oue"] == [oue(700, 2048, W1, entropy).hex()]
    assert out["olh"] == [list(olh(item, g, W1, entropy)) for item, g in hashed]
    assert out["wave"] == [wave(item, domain, reach, W1, entropy) for item, domain, reach in waves]


def test_blocks_of_designs_agree_with_each_other_and_with_the_vectors() -> None:
    vectors = json.loads((Path(__file__).parent.parent / "vectors" / "designs.json").read_text())
    asked = [row[:3] for row in vectors["draws"]]
    wanted = [row[3] for row in vectors["draws"]]
    entropy = InsecureTestEntropy(vectors["seed"].encode())
    assert [block(i, space_of(n, q), vectors["own"], entropy) for i, n, q in asked] == wanted
    assert run({"seed": vectors["seed"], "own": vectors["own"], "design": asked})["design"] == wanted


@pytest.mark.parametrize("mechanism", ["design", "tree", "auto"])
def test_reports_of_a_reported_column_agree(mechanism: str) -> None:
    """The plan of a real catalog: records become leaves, leaves become blocks, in both."""
    catalog = parse_catalog(REPORTED.replace("MECHANISM", mechanism), "shop.yaml")
    text = collected_plan(catalog, column_of(catalog, "customer.age")).decode()
    assert "DESIGN" in {view.oracle for view in read_plan(text.encode()).views}
    agree("ages", text, [[{"leaves": [i % 14]}] for i in range(120)] + [[], [{"leaves": [99]}]])


@pytest.mark.parametrize(
    "changes", [{"extra": 4}, {"extra": 1}, {"extra": 1031}, {"extra": 2, "domain": 1 << 15}]
)
def test_designs_that_are_none_are_refused_by_both(changes: dict[str, Any]) -> None:
    leaves = changes.get("domain", 16)
    axes = [{"name": "age", "leaves": leaves, "lower": 0, "width": 1}]
    grid = view(edges=[list(range(leaves + 1))], empty=False, domain=leaves, oracle="DESIGN", extra=3)
    sound = plan_text(grid, axes=axes)
    if leaves == 16:
        read_plan(sound.encode())
        run({"seed": "s", "own": W1, "plan": sound, "people": []})
    unsound = plan_text(grid | changes, axes=axes)
    with pytest.raises(DataError):
        read_plan(unsound.encode())
    with pytest.raises(subprocess.CalledProcessError):
        run({"seed": "s", "own": W1, "plan": unsound, "people": []})


def test_whole_reports_agree_for_every_kind_of_view() -> None:
    several = [([0, 0], [-9]), ([1, 2], [0]), ([2, 2], [3])]
    people: list[list[dict[str, Any]]] = [
        [], [{"leaves": [3, 1], "measures": [7]}],
        [{"leaves": leaves, "measures": measures} for leaves, measures in several],
    ]  # fmt: skip
    agree("people", plan_text(*all_kinds()), people * 40)


@pytest.mark.parametrize("changes", [{"rounds": 5}, {"rounds": 3, "round_shares": [100000, 1, 899999]}])
def test_rounds_agree_with_and_without_weights(changes: dict[str, Any]) -> None:
    text = plan_text(*all_kinds(), **changes)
    out = run({"seed": "rounds", "own": W1, "plan": text, "people": [], "rounds": 300})
    entropy, plan = InsecureTestEntropy(b"rounds"), plan_of(*all_kinds(), **changes)
    assert out["rounds"] == [draw_round(plan, entropy) for _ in range(300)]


def test_grr_edges() -> None:
    out = run({"seed": "edges", "own": 1 << 21, "grr": [[0, 1], [0, 2], [1, 2], [63, 64]]})
    entropy = InsecureTestEntropy(b"edges")
    assert out["grr"] == [grr(i, d, 1 << 21, entropy) for i, d in [(0, 1), (0, 2), (1, 2), (63, 64)]]


def test_reports_agree_where_a_plan_has_no_place_for_a_row() -> None:
    boxes = view("boxes", axes=[0], edges=[], boxes=[[0, 1], [2, 4]], domain=2, empty=False, share=2)
    views = [
        view(empty=False, domain=2),
        boxes,
        view("wave", edges=[[0, 1, 2, 3, 4]], oracle="WAVE", domain=4),
    ]
    people = [[], [{"leaves": [1, 0], "measures": [0]}], [{"leaves": [9, 0], "measures": [0]}]]
    agree("holes", plan_text(*views, tau=1), people * 40)
