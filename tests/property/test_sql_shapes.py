"""A statement whose shape was asked before is answered, noted and refused word for word as one that is read.

Its plan is kept too: rows, errors and notes are those of a statement that was never asked. Constants take empty ranges,
NULL, values out of domain, cut bins, and ranges that another view answers better.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.errors import Error
from dpsql.executor import margin_cache
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import OpenReleases
from dpsql.release import Release, open_release, structure
from dpsql.release.request import Request
from dpsql.sql import statement_cache
from dpsql.sql.statement_cache import Constant, StatementShape, shape_of
from tests.release_fixture import make_rows, write_fixture
from tests.thinned import by_default

pytestmark = pytest.mark.long

OTHERS = {
    "whole": ["0", "1", "2", "5", "10", "18", "20", "21", "25", "30", "39", "40", "2025", "999999999999999999"],
    "decimal": ["0.5", "20.0", "12.25", "100.0", "25.5"],
    "day": ["2025-01-01", "2025-01-31", "2025-02-15", "2025-03-31", "2024-12-31", "2026-01-01"],
    "instant": ["2025-01-01 00:00:00", "2025-02-01 12:30:00", "2025-03-01 00:00:00"],
    "text": ["north", "south", "food", "drinks", "tea", "nowhere", "", "%o%", "month", "2025-01-1"],
}  # fmt: skip
"""Constants by their kind: few, so that some are equal and some lie outside of every domain."""

PEOPLE = "FROM sales s JOIN customer c ON s.customer_id = c.customer_id"
GOODS = "FROM sales s JOIN product p ON s.product_id = p.product_id JOIN category k USING (category_id)"
WORDS = (
    "age >= 20", "age < 30", "age BETWEEN 20 AND 29", "c.age IN (20, 21, 25)", "NOT (age = 18)", "20 < age",
    "age <> -1", "age > 20.0", "age > 20", "age % 5 = 1", "age + 1 > 21", "CAST(age AS DOUBLE) > 20.5",
    "region = 'north'", "region IN ('north', 'south')", "region <> 'north'", "region LIKE '%o%'",
    "NOT region > 'north'",
    "region IS NOT NULL", "COALESCE(region, 'none') = 'north'", "age >= '20'", "region = 5",
    "(CASE WHEN age < 20 THEN 1 ELSE 2 END) = 1", "(age, region) IN ((20, 'north'), (21, 'south'))",
)  # fmt: skip
OF_GOODS = (
    "sold_on >= DATE '2025-01-31'", "sold_on < CAST('2025-02-15' AS DATE)", "sold_on = '2025-01-01'",
    "sold_on BETWEEN '2025-01-01' AND '2025-01-31'", "sold_on < CAST('2025-02-01 12:30:00' AS TIMESTAMP)",
    "EXTRACT(MONTH FROM sold_on) = 2", "sold_on >= DATE '2025-01-01' + INTERVAL 5 DAY", "department = 'food'",
    "category >= 'tea'", "price < 20", "price BETWEEN 5 AND 10", "price * 2 <= 20", "YEAR(sold_on) = 2025",
)  # fmt: skip
FORMS = (
    "SELECT COUNT(*) AS n, SUM(amount) {source} WHERE {where}",
    "SELECT AVG(qty), COUNT(*) FILTER (WHERE amount IS NOT NULL) {source} WHERE {where}",
    "SELECT {key}, COUNT(*) AS n {source} WHERE {where} GROUP BY 1 HAVING COUNT(*) > 2 ORDER BY n DESC LIMIT 3",
    "WITH t AS (SELECT {key} AS g, COUNT(*) AS n {source} WHERE {where} GROUP BY 1) SELECT g, n FROM t WHERE n > 5",
    "SELECT COUNT(*) FROM (SELECT * {source} WHERE {where}) AS v WHERE {where}",
    "SELECT 1 AS a, COUNT(*) {source} WHERE {where} UNION ALL SELECT 2, COUNT(*) {source} WHERE {other}",
    "SELECT n / SUM(n) OVER () FROM (SELECT {key} AS g, COUNT(*) AS n {source} WHERE {where} GROUP BY 1) AS v",
    "SELECT {key}, COUNT(*) {source} WHERE {where} AND 1 = 1 GROUP BY ROLLUP(1)",
    "SELECT MEDIAN({key}), DP_STDERR(COUNT(*)) {source} WHERE {where}",
    "SELECT missing {source} WHERE {where}",
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A statement of any form over one of two joins."""
    source, words, keys = draw(st.sampled_from([
        (PEOPLE, WORDS, ("region", "age", "age / 5", "CASE WHEN age < 30 THEN 'young' END")),
        (GOODS, OF_GOODS, ("department", "DATE_TRUNC('month', sold_on)", "price // 5")),
    ]))  # fmt: skip
    word = st.sampled_from(words)
    joined = st.builds("{} {} {}".format, word, st.sampled_from(["AND", "OR"]), word)
    where = st.one_of(
        word, joined, st.builds("({}) AND {}".format, joined, word), st.builds("NOT ({})".format, joined)
    )
    form, key = draw(st.sampled_from(FORMS)), draw(st.sampled_from(keys))
    return form.format(source=source, where=draw(where), other=draw(where), key=key)


def exchanged(text: str, draw: random.Random) -> str:
    """The same statement with some constants exchanged for others of their kind."""
    shape = shape_of(text)
    assert shape is not None
    for constant in reversed(shape.constants):
        if draw.random() < 0.6:
            begin = constant.start + (constant.kind in ("day", "instant", "text"))
            text = text[:begin] + draw.choice(OTHERS[constant.kind]) + text[begin + len(constant.text) :]
    return text


def told(answerer: ReleaseEngine, text: str) -> dict[str, Any]:
    """All that a user sees of an answer, or of a refusal."""
    try:
        result = answerer.query(text)
    except Error as error:
        return {"class": type(error), "words": str(error), "hint": error.hint, "place": error.position,
                "caret": error.caret, "clause": error.clause, "nearest": error.nearest}  # fmt: skip
    seen = {"columns": result.columns, "types": result.types, "rows": result.rows, "provenance": result.provenance,
            "notes": result.notes, "flags": result.flags, "reads": result.reads, "ordered": result.ordered}  # fmt: skip
    return seen | {
        "stderr": result.stderr_rows, "interval": result.interval_rows(), "bound": result.model_bound,
        "undefined": dict(result.undefined), "plan": result.plan,
    }  # fmt: skip


def test_filled_statements_are_told_as_those_that_are_read(release: Release) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=20 if settings.default.max_examples > 30 else 8, deadline=None)
    @given(texts(), st.integers(0, 2**32))
    def compare(text: str, seed: int) -> None:
        draw, kept = random.Random(seed), ReleaseEngine(release)
        for _ in range(6):
            other = exchanged(text, draw)
            filled = kept._shapes.filled(other, "") is not None
            mine, fresh = told(kept, other), told(ReleaseEngine(release), other)
            assert mine == fresh, other
            seen["filled" if filled else "read"] += 1

    compare()
    assert seen["filled"] > 0, seen


def test_a_constant_is_exchanged_only_after_it_was_seen_to_change(release: Release) -> None:
    answerer = ReleaseEngine(release)
    text = "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE age >= {} AND age < {}"
    filled = []
    for low, high in ((20, 30), (21, 30), (22, 30), (22, 31), (23, 32), (18, 19)):
        filled.append(answerer._shapes.filled(text.format(low, high), "") is not None)
        answerer.query(text.format(low, high))
    assert filled == [False, False, True, False, True, True]


def test_what_a_parser_must_read_has_no_shape() -> None:
    for text in ("SELECT 1e5", "SELECT E'a'", "SELECT 'it''s'", "SELECT 1 -- 2", "SELECT /* 1 */ 2", "SELECT $$1$$",
                 "SELECT 'a\\'", "SELECT `1`", "SELECT [1]", "SELECT 0x1F", "SELECT .5", "SELECT 5.", "SELECT 1_000",
                 "SELECT '2025-02-30'", "SELECT ?", "SELECT '" + "x" * 201 + "'"):  # fmt: skip
        assert shape_of(text) is None, text
    assert shape_of('SELECT "it\'s 5", a1 FROM t2') == StatementShape('SELECT "it\'s 5", a1 FROM t2', ())
    assert shape_of("x=-5").constants == (Constant("whole", 3, "5"),)  # type: ignore[union-attr]


def test_equal_parts_are_not_taken_for_each_other(release: Release) -> None:
    answerer = ReleaseEngine(release)
    text = "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE age >= {} AND age >= {}"
    for low, high in ((20, 20), (25, 25), (20, 30), (30, 20), (22, 38), (38, 38), (19, 19)):
        asked = text.format(low, high)
        assert told(answerer, asked) == told(ReleaseEngine(release), asked), asked


def test_a_refusal_is_that_of_the_statement_itself(release: Release) -> None:
    answerer, refused = ReleaseEngine(release), 0
    text = "SELECT COUNT(*) FROM sales JOIN product USING (product_id) WHERE price BETWEEN {} AND {}"
    for low, high in ((0, 19), (5, 24), (10, 29), (11, 12), (16, 17)):  # the last ones cut bins
        asked = text.format(low, high)
        filled = answerer._shapes.filled(asked, "") is not None
        fresh = told(ReleaseEngine(release), asked)
        assert told(answerer, asked) == fresh, asked
        refused += filled and "class" in fresh
    assert refused == 2


def test_the_guard_sees_what_is_filled_in(release: Release) -> None:
    answerer = ReleaseEngine(release)
    text = "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE region = '{}'"
    for word in ("north", "south", "east", "no\u202eth", "\ud800", "s\u00fcd", "\u20ac" * 200):
        assert told(answerer, text.format(word)) == told(ReleaseEngine(release), text.format(word)), word
    assert answerer._shapes.filled(text.format("s\u00fcd"), "") is not None
    assert answerer._shapes.filled(text.format("no\u202eth"), "") is None
    many = " AND ".join(["region <> '{0}'"] * 150)
    for word in ("a" * 100, "b" * 100, "c" * 100, "\u20ac" * 200):  # few characters, many bytes
        asked = f"SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE {many.format(word)}"
        assert told(answerer, asked) == told(ReleaseEngine(release), asked)


def test_what_the_catalog_derives_is_read_again(tmp_path: Path) -> None:
    release = open_release(write_fixture(tmp_path / "f.dpsql", make_rows(sales=50), 1.0))
    customer = release.meta.catalog["tables"]["customer"]
    customer["derive"] = {"adult": "age >= 21"}
    answerer = ReleaseEngine(release)
    asked = "SELECT COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE age >= {}"
    for age in (18, 19, 20, 22):
        answerer.query(asked.format(age))
    assert answerer._shapes.filled(asked.format(25), "") is not None
    assert answerer._shapes.filled(asked.format(21), "") is None


def test_shapes_are_few_and_stand_many_threads(release: Release, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statement_cache, "KEPT", 8)
    answerer = ReleaseEngine(release)
    wrong: list[str] = []

    def ask(number: int) -> None:
        draw = random.Random(number)
        for i in range(20):
            alias = f"n{draw.randrange(16)}" if i % 2 else "n"
            text = f"SELECT COUNT(*) AS {alias} FROM customer WHERE age >= {draw.randrange(18, 40)}"
            if answerer.query(text).rows != ReleaseEngine(release).query(text).rows:
                wrong.append(text)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert len(answerer._shapes._kept) == 8 == len(answerer._shapes._exchanged)


AGES = "FROM sales JOIN customer USING (customer_id)"
PRICES = "FROM sales JOIN product USING (product_id)"


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
    "range": (f"SELECT COUNT(*) {AGES} WHERE age >= {{}} AND age < {{}}", (age, age)),
    "several views": ("SELECT COUNT(*) FROM sales WHERE sold_on BETWEEN '{}' AND '{}'", (day, day)),
    "cut bins": (f"SELECT COUNT(*), SUM(amount) {PRICES} WHERE price BETWEEN {{}} AND {{}}", (price, price)),
    "groups": (f"SELECT region, COUNT(*), AVG(amount) {AGES} WHERE age BETWEEN {{}} AND {{}} GROUP BY 1", (age, age)),
    "grouped by the range": (f"SELECT age / 5, SUM(qty) {AGES} WHERE age >= {{}} GROUP BY 1 ORDER BY 1", (age,)),
    "a list": (f"SELECT COUNT(*), SUM(amount) {AGES} WHERE region IN ('{{}}', '{{}}')", (region, region)),
    "or": (f"SELECT COUNT(*) {AGES} WHERE region = '{{}}' OR age > {{}}", (region, age)),
    "nobody": (f"SELECT COUNT(*) {AGES} WHERE NOT region > '{{}}' AND age <> {{}}", (region, age)),
    "conditions": (
        f"SELECT COUNT(*), COUNT(*) FILTER (WHERE region = 'north'), SUM(CASE WHEN age > 20 THEN 1 ELSE 0 END) {AGES}"
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


class Unkept(statement_cache.Shapes):
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


@pytest.mark.parametrize("name", by_default(SHAPES, 2))
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


@pytest.mark.parametrize("name", by_default(["range", "several views", "cut bins", "groups", "or"], 2))
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
