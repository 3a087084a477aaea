"""Random arithmetic over noisy groups: no NaN and no infinity is in any answer, error or interval."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import Error
from dpsql.executor.engine import ReleaseEngine
from dpsql.release import open_release
from dpsql.results.result import Result
from tests.release_fixture import make_rows, write_fixture
from tests.thinned import by_default

pytestmark = pytest.mark.long

BASES = [
    "COUNT(*)", "SUM(amount)", "AVG(qty)", "COUNT(*) FILTER (WHERE region = 'nowhere')", "0", "1", "-0.5", "1e308",
    "(COUNT(*) - COUNT(*))", "SUM(amount) FILTER (WHERE age < 20)", "NULL", "CAST('nan' AS DOUBLE)", "EXP(999)",
]  # fmt: skip
BASE = st.sampled_from(BASES)
ODD = (
    "SELECT SUM(CASE WHEN ISNAN(x) OR ISINF(x) THEN 1 ELSE 0 END) AS odd FROM"
    " (SELECT region, {} AS x FROM shop GROUP BY region) t"
)
PAIRS = ["+", "-", "*", "/", "//", "%"]
CALLS = [
    "SQRT({})", "LN({})", "LOG10({})", "EXP({})", "POWER({}, 0.5)", "POWER({}, -1)", "-({})", "ABS({})", "CBRT({})",
    "ROUND({}, 2)", "CAST({} AS DOUBLE)", "ACOS({})", "TAN({})", "COALESCE({}, 0)", "NULLIF({}, 1)", "GREATEST({}, 1)",
    "CASE WHEN {} > 1 THEN 1 ELSE 2 END", "DEGREES({})", "MOD({}, 0)", "LOG2({})",
]  # fmt: skip


def deeper(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(PAIRS), inner),
        st.builds(lambda call, item: call.format(item), st.sampled_from(CALLS), inner),
        st.builds("CASE WHEN {} > 1 THEN {} ELSE {} END".format, inner, inner, inner),
    )


ITEM = st.recursive(BASE, deeper, max_leaves=6)
OUTER = [
    "SELECT region, {item} AS x FROM shop GROUP BY region",
    "SELECT region, {item} AS x FROM shop GROUP BY region HAVING {other} > 1 ORDER BY x DESC, {other}",
    "SELECT region, SUM({item}) OVER (ORDER BY {other}) AS x FROM shop GROUP BY region",
    "SELECT SUM(x), AVG(x), STDDEV(x), MAX(y), MEDIAN(x / y), CORR(x, y) FROM"
    " (SELECT region, {item} AS x, {other} AS y FROM shop GROUP BY region) t",
    "SELECT x / y AS q, COUNT(*) FROM"
    " (SELECT region, {item} AS x, {other} AS y FROM shop GROUP BY region) t GROUP BY q",
    "SELECT RANK() OVER (ORDER BY {item} DESC), DP_STDERR({item}), DP_INTERVAL_LOW({item}) FROM shop GROUP BY region",
    "SELECT 1 / (age - 20) AS k, {item} FROM shop GROUP BY k",
]


@pytest.fixture(scope="module", params=by_default([1.0, 1e-18, 1e6], 1))
def answerer(request: Any, tmp_path_factory: pytest.TempPathFactory) -> ReleaseEngine:
    path = tmp_path_factory.mktemp("star") / "fixture.dpsql"
    return ReleaseEngine(open_release(write_fixture(path, make_rows(), request.param)))


def unbounded(result: Result) -> list[Any]:
    """Numbers that are none, in rows and error bars."""
    grids = [
        result.rows,
        result.stderr_rows,
        *result.interval_rows(0.95),
        result.model_bound,
        *result.components.values(),
    ]
    cells = [value for grid in grids for row in grid for value in row]
    return [value for value in cells if isinstance(value, float) and not math.isfinite(value)]


@given(outer=st.sampled_from(OUTER), item=ITEM, other=ITEM)
def test_no_answer_is_nan_or_infinite(answerer: ReleaseEngine, outer: str, item: str, other: str) -> None:
    text = outer.format(item=item, other=other)
    try:
        result = answerer.query(text)
    except Error as error:
        assert "LIST_FILTER" not in str(error), text
        return
    assert unbounded(result) == [], text


@given(item=ITEM)
def test_no_statement_sees_one(answerer: ReleaseEngine, item: str) -> None:
    """Results are cleaned last of all; what ranks and compares on the way has none either."""
    try:
        assert answerer.query(ODD.format(item)).rows == ((0,),), item
    except Error as error:
        assert "LIST_FILTER" not in str(error), item


def test_a_missing_guard_is_found(answerer: ReleaseEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpsql.sql.rewrite.finite", lambda tree: tree)
    assert answerer.query(ODD.format("SUM(amount) / CAST('nan' AS DOUBLE)")).rows != ((0,),)
