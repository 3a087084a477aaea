"""A statement filled from another one's shape is answered, noted and refused word for word as one that is read."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.errors import Error
from dpsql.executor.engine import ReleaseEngine
from dpsql.release import Release, open_release
from dpsql.sql import statement_cache
from dpsql.sql.statement_cache import Constant, StatementShape, shape_of
from tests.release_fixture import make_rows, write_fixture

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


@pytest.fixture(scope="module")
def release(tmp_path_factory: pytest.TempPathFactory) -> Release:
    return open_release(write_fixture(tmp_path_factory.mktemp("star") / "f.dpsql", make_rows(sales=300), 1.0))


def test_filled_statements_are_told_as_those_that_are_read(release: Release) -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=20, deadline=None)
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
