"""Refusals: typed, one line, with clause, place and the way round."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql import errors
from dpsql.errors import NotSupportedError, NoViewError, SqlSyntaxError
from dpsql.executor.engine import ReleaseEngine
from dpsql.planner.plan import disjoint_boxes
from dpsql.planner.schema import Expression, Predicate, every, some
from tests.statements import sections

FILE = sections(Path(__file__).with_name("refusals.sql"))


def test_a_word_of_sql_that_names_a_column_is_to_be_quoted(answerer: ReleaseEngine) -> None:
    with pytest.raises(SqlSyntaxError, match='quote it if it is a name \\("union"\\)'):
        answerer.query("SELECT COUNT(*) FROM sales WHERE union = 1")


CASES = [(text, kind, place) for kind, statements in FILE.items() for text, place in statements]


@pytest.mark.parametrize("text, kind, place", CASES, ids=[case[0][:50] for case in CASES])
def test_refused(text: str, kind: str, place: str, answerer: ReleaseEngine) -> None:
    with pytest.raises(getattr(errors, kind)) as caught:
        answerer.query(text)
    error, (clause, _, part) = caught.value, place.partition(":")
    part = part.strip()
    assert "\n" not in str(error)
    assert error.exit_code == 1
    assert error.clause == clause
    if part:
        assert error.position is not None
        line, carets = error.caret.split("\n")
        marked = line[carets.index("^") : carets.rindex("^") + 1]
        assert part.split("(")[0] in marked or marked in part, (marked, error.caret)


def test_a_refusal_names_the_views_and_the_nearest_statement(answerer: ReleaseEngine) -> None:
    with pytest.raises(NoViewError) as caught:
        answerer.query("SELECT COUNT(*) FROM shop WHERE sold_on > DATE '2025-02-01' AND age > 20")
    assert "demand lacks sales.sold_on" in str(caught.value)
    assert "trend lacks" in str(caught.value)
    assert answerer.query(caught.value.nearest).rows


def test_too_many_boxes_names_the_cap() -> None:
    axes = [
        [Predicate(Expression(f"dp_c{axis} = {i}", frozenset({axis}))) for i in range(65)] for axis in (0, 1)
    ]
    pairs = [every([*pair]) for pair in zip(*axes, strict=True)]
    patterns = [tuple(i == value for i in range(65)) for value in range(65)]
    with pytest.raises(NotSupportedError, match="65 boxes over several axes, the limit is 64"):
        disjoint_boxes(some(pairs), axes, [patterns, patterns])
    assert len(disjoint_boxes(some(pairs[1:]), axes, [patterns, patterns])) == 64


def test_cut_bins_can_be_refused(answerer: ReleaseEngine) -> None:
    strict = ReleaseEngine(answerer.release, on_partial_bin="refuse")
    text = "SELECT COUNT(*) FROM sales JOIN product USING (product_id) WHERE price < {}"
    assert strict.query(text.format(15)).rows
    with pytest.raises(NoViewError, match=r"would cut a bin of product\.price"):
        strict.query(text.format(12))


def test_a_slow_statement_is_stopped(answerer: ReleaseEngine) -> None:
    from dpsql.errors import QueryTimeout
    from dpsql.executor.run import run
    from dpsql.release.request import Request

    with pytest.raises(QueryTimeout, match="stopped"), Request(0.2).working():
        run(answerer.release, "SELECT COUNT(*) FROM range(100000000000) t(i) WHERE i % 7 = 3")
