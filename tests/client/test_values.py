"""One written grammar (docs/in-your-app.md), two clients: the same texts are the same values in both."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks.local.wild import AXES, UNITS, read_by_javascript, read_by_python, wild_texts
from dpsql.client.device import leaf_of, units
from dpsql.client.plan import read_axis
from tests.client.test_client_js_hostile import CLIENT, NODE, run

ROOT = Path(__file__).parents[2]
VECTORS: dict[str, Any] = json.loads((ROOT / "tests" / "vectors" / "values.json").read_text())
BOUNDS = ((0, -1000, 1000), (2, -100_000, 100_000))
GRAINS = ("day", "hour", "second")
FAR = 10**14


def at(unit: int | None, grain: str) -> dict[str, Any]:
    """An axis whose one leaf is a unit; without a unit, one that holds every unit."""
    low, high = (-FAR, FAR) if unit is None else (unit, unit)
    kind = {"type": "date"} if grain == "day" else {"type": "timestamp", "grain": grain}
    return {"name": "t", "leaves": 2, "starts": [low], "upper": high, "other_leaf": 1, **kind}


def asked() -> list[tuple[dict[str, Any], str, int]]:
    """Every vector of moments and categories: an axis, a text, and its leaf."""
    rows = [
        (at(unit, grain), text, int(unit is None))
        for text, *told in VECTORS["moments"]["rows"]
        for grain, unit in zip(GRAINS, told, strict=True)
    ]
    categories = VECTORS["categories"]
    return rows + [(categories["axis"], text, leaf) for text, leaf in categories["rows"]]


def test_the_python_client_reads_the_vectors() -> None:
    for text, *told in VECTORS["numbers"]["rows"]:
        assert [units(text, *three) for three in BOUNDS] == told, text
    for axis, text, leaf in asked():
        assert leaf_of(read_axis(axis), text) == leaf, (axis, text)


@pytest.mark.skipif(NODE is None, reason="no node on this machine")
def test_the_javascript_client_reads_the_vectors() -> None:
    code = f"""const {{ leafOf, units }} = await import("{(CLIENT / "dpsql-rows.js").as_uri()}");
    const [numbers, bounds, asked] = given;
    out.push(numbers.map(([text, ...told]) => bounds.map((three) => units(text, ...three))));
    out.push(asked.map(([axis, text]) => leafOf(axis, text)));"""
    numbers = VECTORS["numbers"]["rows"]
    steps, leaves = run(code, [numbers, BOUNDS, asked()])
    assert steps == [told for _, *told in numbers]
    assert leaves == [leaf for _, _, leaf in asked()]


@pytest.mark.skipif(NODE is None, reason="no node on this machine")
def test_ten_thousand_wild_texts_are_read_alike() -> None:
    texts = wild_texts(10_000, seed=20261122)
    mine, theirs = read_by_python(texts), read_by_javascript(texts)
    assert [text for text, a, b in zip(texts, mine, theirs, strict=True) if a != b] == []
    numbers = sum(row[len(AXES)] is not None for row in mine)
    moments = sum(row[4] != 4 for row in mine)
    assert numbers > 1500
    assert moments > 500
    assert len(set(texts)) > 9000


@pytest.mark.skipif(NODE is None, reason="no node on this machine")
def test_values_that_are_no_texts_are_read_alike() -> None:
    values = [None, True, False, 7, 7.0, 7.5, -0.0, 1e16, 1e21, 1e22, 123456789012345680000.0, 5e-324, 1e-5, 1e-7, 0.1,
              1.005, 2.675, -1e300, 20.0, 26.999999999999996, 27, 27.5, [], {},
              [5], ["north"], 2**53 - 1, -(2**53)]  # fmt: skip
    assert read_by_python(values) == read_by_javascript(values)


def test_every_example_of_the_page_is_read_as_it_says() -> None:
    page = (ROOT / "docs" / "in-your-app.md").read_text()
    table = re.findall(r"^\| `([^`]*)` \| (-?[0-9.]+|no number) \|$", page, flags=re.M)
    assert len(table) >= 8
    for text, told in table:
        wanted = None if told == "no number" else units(told, 3, -(10**9), 10**9)
        assert units(text, 3, -(10**9), 10**9) == wanted, text
    moments = re.findall(r"^\| `([^`]*)` \| ([0-9]{4}-[0-9T:-]+|no time) \|$", page, flags=re.M)
    assert len(moments) >= 6
    for text, told in moments:
        for unit in (None, *([] if told == "no time" else [told])):
            axis = read_axis(at(None, "second"))
            assert leaf_of(axis, text) == int(told == "no time")
            if unit is not None:
                assert seconds(text) == seconds(unit)


def seconds(text: str) -> int:
    """The second that a text names, found by halving."""
    low, high = -(10**12), 10**12
    while high - low > 1:
        middle = (low + high) // 2
        axis = {**at(None, "second"), "starts": [-FAR, middle], "leaves": 3, "other_leaf": 2}
        low, high = (middle, high) if leaf_of(read_axis(axis), text) == 1 else (low, middle)
    return low


def test_bounds_of_wild_measures_are_those_of_plans() -> None:
    assert all(scale <= 18 and abs(low) < 2**53 and high < 2**53 for scale, low, high in UNITS)
