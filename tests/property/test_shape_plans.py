"""A statement whose shape was asked before is answered as one that was never asked: rows, errors, notes, refusals.

Constants take empty ranges, NULL, values out of domain, cut bins, and ranges that another view answers better.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest

from dpsql.executor import margin_cache
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import OpenReleases
from dpsql.release import Release, open_release, structure
from dpsql.release.request import Request
from dpsql.sql import statement_cache as shapes
from tests.property.test_sql_shapes import told
from tests.release_fixture import make_rows, write_fixture

pytestmark = pytest.mark.long

PEOPLE = "FROM sales JOIN customer USING (customer_id)"
GOODS = "FROM sales JOIN product USING (product_id)"


def age(draw: random.Random) -> str:
    return str(draw.choice([draw.randrange(15, 43), draw.randrange(18, 40), 0, 999999]))


def price(draw: random.Random) -> str:
    return str(draw.randrange(0, 31))


def day(draw: random.Random) -> str:
    return (date(2024, 12, 20) + timedelta(draw.randrange(120))).isoformat()


def region(draw: random.Random) -> str:
    return draw.choice(["north", "south", "east", "west", "nowhere", ""])


Draw = Callable[[random.Random], str]
SHAPES: dict[str, tuple[str, tuple[Draw, ...]]] = {
    "range": (f"SELECT COUNT(*) {PEOPLE} WHERE age >= {{}} AND age < {{}}", (age, age)),
    "several views": ("SELECT COUNT(*) FROM sales WHERE sold_on BETWEEN '{}' AND '{}'", (day, day)),
    "cut bins": (f"SELECT COUNT(*), SUM(amount) {GOODS} WHERE price BETWEEN {{}} AND {{}}", (price, price)),
    "groups": (f"SELECT region, COUNT(*), AVG(amount) {PEOPLE} WHERE age BETWEEN {{}} AND {{}} GROUP BY 1", (age, age)),
    "grouped by the range": (f"SELECT age / 5, SUM(qty) {PEOPLE} WHERE age >= {{}} GROUP BY 1 ORDER BY 1", (age,)),
    "a list": (f"SELECT COUNT(*), SUM(amount) {PEOPLE} WHERE region IN ('{{}}', '{{}}')", (region, region)),
    "or": (f"SELECT COUNT(*) {PEOPLE} WHERE region = '{{}}' OR age > {{}}", (region, age)),
    "nobody": (f"SELECT COUNT(*) {PEOPLE} WHERE NOT region > '{{}}' AND age <> {{}}", (region, age)),
    "conditions": (
        f"SELECT COUNT(*), COUNT(*) FILTER (WHERE region = 'north'), SUM(CASE WHEN age > 20 THEN 1 ELSE 0 END) {PEOPLE}"
        " WHERE age < {}", (age,),
    ),
    "months": (
        "SELECT DATE_TRUNC('month', sold_on) AS m, COUNT(*) AS n FROM sales WHERE sold_on >= '{}' AND sold_on < '{}' "
        "GROUP BY 1 ORDER BY n DESC LIMIT 2", (day, day),
    ),
}  # fmt: skip
"""Statements with places for constants, and what draws each of them."""
FEW, MANY = 24, 2000


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return open_release(write_fixture(tmp_path_factory.mktemp("star") / "f.dpsql", make_rows(sales=300), 1.0))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Release:
    """A release of another star, opened beside it."""
    beside = open_release(
        write_fixture(tmp_path_factory.mktemp("star") / "g.dpsql", make_rows(sales=100), 1.0)
    )
    beside.meta.catalog["name"] = "market"
    return beside


def together(release: Release, other: Release, answerer: Callable[[Release], ReleaseEngine]) -> OpenReleases:
    """Both, asked as one; nothing is kept of an answerer without shapes."""
    opened = OpenReleases((release, other), (answerer(release), answerer(other)))
    if answerer is unkept and opened.router is not None:
        shapes = {c: Unkept(s.schema) for c, s in opened.router._shapes.items()}
        opened.router.__dict__["_shapes"] = shapes
    return opened


class Unkept(shapes.Shapes):
    """Shapes that keep nothing."""

    def filled(self, text: str, dialect: str) -> None:
        return None


def unkept(release: Release) -> ReleaseEngine:
    """An answerer that reads and plans every statement anew."""
    answerer = ReleaseEngine(release)
    answerer._shapes = Unkept(answerer.schema)
    return answerer


def compared(release: Release, name: str, number: int, seed: int) -> Counter[str]:
    """Ask a shape both ways; what came of it."""
    text, draws = SHAPES[name]
    draw, kept, anew, seen = random.Random(seed), ReleaseEngine(release), unkept(release), Counter[str]()
    for _ in range(number):
        asked = text.format(*(constant(draw) for constant in draws))
        filled = kept._shapes.filled(asked, "") is not None
        answer, fresh = told(kept, asked), told(anew, asked)
        assert answer == fresh, asked
        seen["filled" if filled else "read"] += 1
        seen["refused" if "class" in fresh else "answered"] += 1
        seen.update(fresh["provenance"]["views"] if "provenance" in fresh else ())
        anew._results.clear()
    return seen


@pytest.mark.parametrize("name", SHAPES)
def test_a_kept_plan_answers_as_a_fresh_one(release: Release, name: str) -> None:
    seen = compared(release, name, FEW, 1)
    assert seen["filled"] > FEW / 2, seen


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", SHAPES)
def test_two_thousand_constants_a_shape(release: Release, name: str) -> None:
    seen = compared(release, name, MANY, random.SystemRandom().randrange(2**32))
    assert seen["filled"] > 0.9 * MANY, seen
    assert seen["refused"] if name == "cut bins" else seen["answered"], seen


@pytest.mark.parametrize("name", ["range", "several views", "cut bins", "groups", "or"])
def test_releases_that_are_open_together_keep_shapes(release: Release, other: Release, name: str) -> None:
    text, draws = SHAPES[name]
    text = text.replace("FROM sales", "FROM shop.sales").replace("JOIN ", "JOIN shop.")
    draw, filled = random.Random(3), 0
    kept = together(release, other, ReleaseEngine)
    for _ in range(FEW // 2):
        asked = text.format(*(constant(draw) for constant in draws))
        router = kept.router
        assert router is not None
        filled += router._filled(asked, "duckdb") is not None
        assert told(kept, asked) == told(together(release, other, unkept), asked), asked
    assert filled > FEW / 4


def test_margins_add_up_what_comes_again(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    text, _ = SHAPES["range"]
    answerer, sums, of_margin = ReleaseEngine(release), list[object](), margin_cache._added
    monkeypatch.setattr(margin_cache, "_added", lambda *given: sums.append(of_margin(*given)) or sums[-1])
    for low, high in ((20, 30), (21, 31), (22, 32), (30, 39)):
        answerer.query(text.format(low, high))
    assert len(sums) == 2 and None not in sums  # the third and the fourth
    answerer.query(text.format(30, 20))
    assert sums[2:] == [None]  # no leaf: as any statement


def test_what_is_kept_is_bound_to_settings_and_role(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted margin of one role is no other's."""
    text, _ = SHAPES["range"]
    answerer, planned, totals = ReleaseEngine(release), list[str](), structure.Margins.totals
    monkeypatch.setattr(structure.Margins, "totals", lambda *given: planned.append("") or totals(*given))
    for number, role in enumerate(("", "", "", "ada", "ada", "bob")):
        with Request(role=role).working():
            answerer.query(text.format(20 + number, 31 + number))
    assert len(planned) == 3


def test_a_margin_of_damaged_sums_is_not_used(release: Release, tmp_path: Path) -> None:
    source = structure.NodeTable("node_combination_0", "estimate", (0,), len(release.statistics[0].axes))
    right = release.connection.cursor().execute(source.margin()).fetchnumpy()
    trees = [release.tree(release.statistics[0].axes[0])]
    totals = structure.Margins().totals(source, trees, lambda sql: right)
    assert totals is not None and totals[-1] == right["estimate"][right["a0"] == 0]
    wrong = right["estimate"] + (right["a0"] == 3)
    for damaged in (
        {**right, "estimate": wrong},
        {name: values[:-1] for name, values in right.items()},
        {**right, "a0": right["a0"] + 1},
        {**right, "estimate": right["estimate"] + 2**61},
    ):
        assert structure.Margins().totals(source, trees, lambda sql, d=damaged: d) is None
