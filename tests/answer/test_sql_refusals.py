"""Refusals: typed, one line, with clause, place and the way round."""

from __future__ import annotations

import pytest

from dpsql.errors import (
    Error,
    NotSupportedError,
    NoViewError,
    ProgrammingError,
    RawRowsError,
    SqlSyntaxError,
    UnknownName,
)
from dpsql.executor.engine import ReleaseEngine
from dpsql.planner.plan import disjoint_boxes
from dpsql.planner.terms import Expression, Predicate, every, some

CASES: list[tuple[str, type[Error], str, str]] = [
    ("SELECT * FROM sales", RawRowsError, "SELECT", "*"),
    ("SELECT COUNT(*) FROM sales ORDER BY 2", ProgrammingError, "ORDER BY", "2"),
    ("SELECT age, COUNT(*) FROM customer GROUP BY 1 ORDER BY 0", ProgrammingError, "ORDER BY", "0"),
    ("SELECT age, COUNT(*) FROM customer GROUP BY 1 ORDER BY 3 LIMIT 2", ProgrammingError, "ORDER BY", "3"),
    ("SELECT * FROM (SELECT age, COUNT(*) AS n FROM customer GROUP BY 1) ORDER BY 9 LIMIT 2",
     ProgrammingError, "ORDER BY", "9"),
    ("SELECT * FROM (SELECT COUNT(*) FROM shop) a UNION ALL SELECT * FROM (SELECT COUNT(*) FROM sales) b ORDER BY 2",
     ProgrammingError, "ORDER BY", "2"),
    ("SELECT COUNT(*) FROM nowhere", UnknownName, "FROM", "nowhere"),
    ("SELECT COUNT(*) FROM other.sales", UnknownName, "FROM", "other.sales"),
    ("SELECT COUNT(*) FROM customer WHERE agee > 3", UnknownName, "column", "agee"),
    ("SELECT COUNT(*) FROM sales s JOIN customer c USING (customer_id) WHERE x.age > 3", UnknownName, "FROM", "x.age"),
    ("SELECT a.region FROM customer a JOIN customer b ON a.age = b.age GROUP BY 1",
     NotSupportedError, "JOIN", "a.age = b.age"),
    ("SELECT COUNT(*) FROM sales s, customer c", NotSupportedError, "FROM", ""),
    ("SELECT COUNT(*) FROM sales s JOIN customer c ON s.qty = c.age", NotSupportedError, "JOIN", "s.qty = c.age"),
    ("SELECT COUNT(*) FROM sales s FULL JOIN customer c USING (customer_id)", NotSupportedError, "JOIN", ""),
    ("SELECT COUNT(*) FROM sales WHERE amount > 5", NoViewError, "WHERE", "amount"),
    ("SELECT age, COUNT(*) FROM customer", ProgrammingError, "SELECT", "age"),
    ("SELECT MAX(amount) FROM sales", NotSupportedError, "SELECT", "amount"),
    ("SELECT COUNT(DISTINCT customer_id) FROM sales", NotSupportedError, "SELECT", "customer_id"),
    ("SELECT SUM(DISTINCT amount) FROM sales", NotSupportedError, "SELECT", "SUM"),
    ("SELECT COUNT(*) FROM sales WHERE sold_on < current_time", NotSupportedError, "", ""),
    ("SELECT COUNT(*) FROM sales WHERE random() < 0.5", NotSupportedError, "", "random"),
    ("SELECT COUNT(*) FROM read_parquet('x')", NotSupportedError, "FROM", "read_parquet"),
    ("SELECT COUNT(*) FROM shop WHERE age > (SELECT AVG(qty) FROM sales WHERE sales.qty = shop.qty)",
     NotSupportedError, "subquery", "shop.qty"),
    ("SELECT COUNT(*) FROM sales s WHERE EXISTS (SELECT 1 FROM customer c)", NotSupportedError, "WHERE", ""),
    ("SELECT age, COUNT(*) FROM shop GROUP BY CUBE (age, age, age, age, age, age, age)",
     NotSupportedError, "GROUP BY", ""),
    ("SELECT DP_STDERR() FROM sales", ProgrammingError, "SELECT", ""),
    ("SELECT DP_INTERVAL_LOW(COUNT(*), 2) FROM sales", ProgrammingError, "SELECT", ""),
    ("SELECT COUNT(*) FROM", SqlSyntaxError, "statement", ""),
]  # fmt: skip


def test_a_word_of_sql_that_names_a_column_is_to_be_quoted(answerer: ReleaseEngine) -> None:
    with pytest.raises(SqlSyntaxError, match='quote it if it is a name \\("union"\\)'):
        answerer.query("SELECT COUNT(*) FROM sales WHERE union = 1")


@pytest.mark.parametrize("text, kind, clause, part", CASES, ids=[case[0][:50] for case in CASES])
def test_refused(text: str, kind: type[Error], clause: str, part: str, answerer: ReleaseEngine) -> None:
    with pytest.raises(kind) as caught:
        answerer.query(text)
    error = caught.value
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
