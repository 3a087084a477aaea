"""NULL where SQL in DuckDB gives NaN or infinity: a ratio over an empty group is as unknown as its average."""

from __future__ import annotations

import pytest

from dpsql.executor.engine import ReleaseEngine

VARIANCE = 1e-18


def groups(answerer: ReleaseEngine, item: str, rest: str = "") -> dict[str, object]:
    """An expression for each region."""
    text = f"SELECT region, {item} AS x FROM shop WHERE region IS NOT NULL GROUP BY region {rest}"
    return {row[0]: row[1] for row in answerer.query(text).rows}


EMPTY = "FILTER (WHERE region = 'north')"
"""Leaves nobody outside of the north."""


def test_it_passes_no_comparison_and_ranks_last(answerer: ReleaseEngine) -> None:
    ratio = f"SUM(amount) {EMPTY} / COUNT(*) {EMPTY}"
    assert set(groups(answerer, ratio, f"HAVING {ratio} > 0")) == {"north"}
    assert next(iter(groups(answerer, ratio, "ORDER BY x DESC"))) == "north"
    assert next(iter(groups(answerer, ratio, f"ORDER BY {ratio} DESC LIMIT 1"))) == "north"
    assert groups(answerer, f"RANK() OVER (ORDER BY {ratio} DESC)")["north"] == 1
    assert groups(answerer, f"CASE WHEN {ratio} > 0 THEN 'dear' ELSE 'cheap' END")["south"] == "cheap"
    assert set(groups(answerer, "COUNT(*)", f"QUALIFY {ratio} > 0 AND ROW_NUMBER() OVER () > 0")) == {"north"}


def test_statements_around_answers_have_none_either(answerer: ReleaseEngine) -> None:
    inner = f"SELECT region AS r, SUM(amount) {EMPTY} AS a, COUNT(*) {EMPTY} AS n FROM shop GROUP BY region"
    for text in (
        f"SELECT AVG(a / n), SUM(a / n), MAX(a / n) FROM ({inner}) t",
        f"WITH t AS ({inner}) SELECT a / n AS q FROM t WHERE a / n > 1",
        f"SELECT a / n + 1, COUNT(*) FROM ({inner}) t GROUP BY a / n HAVING a / n > 1",
        f"SELECT SUM(a / n) OVER (ORDER BY r ROWS UNBOUNDED PRECEDING) FROM ({inner}) t WHERE r = 'north'",
        f"SELECT (SELECT SUM(a / n) FROM ({inner}) t) AS s",
        f"SELECT a / n FROM ({inner}) t WHERE n > 0 UNION SELECT a / n FROM ({inner}) u WHERE a / n > 1",
    ):
        ((first, *_), *more) = answerer.query(text).rows
        assert first is not None, text
        assert 0 < float(first) < 1e6, text
        assert not more, text


def test_expressions_over_an_axis(answerer: ReleaseEngine) -> None:
    """1 / (price - price % 30 ..) divides by 0 on some values: they are in no comparison, and in the group NULL."""
    text = "SELECT COUNT(*) FROM shop WHERE 100 / (age - 20) > 1000"
    assert answerer.query(text).scalar() == pytest.approx(0.0, abs=1e-6)
    keys = [
        row[0] for row in answerer.query("SELECT 1 / (age - 20) AS k, COUNT(*) FROM shop GROUP BY k").rows
    ]
    assert None in keys
    assert all(key is None or abs(key) <= 1 for key in keys)
    assert answerer.query("SELECT MAX(1 / (age - 20)) FROM shop").rows == ((1.0,),)
    plan = answerer.explain(text)
    assert "condition: 100 / (customer_id.customer.age - 20) > 1000" in plan


def test_dates_and_long_chains_stay_as_they_are(answerer: ReleaseEngine) -> None:
    text = "SELECT d + INTERVAL 1 DAY - d AS x, d - DATE '2025-01-01' AS y FROM (SELECT MIN(sold_on) AS d FROM shop) t"
    assert [str(value) for value in answerer.query(text).rows[0]] == ["1 day, 0:00:00", "0"]
    chain = " + ".join(["n"] * 200)
    text = f"SELECT {chain} AS x FROM (SELECT COUNT(*) AS n FROM shop) t"
    assert answerer.query(text).rows[0][0] == pytest.approx(200 * 900)
    assert answerer.query(text.replace("+ n AS", "+ n / 0 AS")).rows == ((None,),)
    assert answerer.query(text.replace("n + n", "n / 0 + n", 1)).rows == ((None,),)
