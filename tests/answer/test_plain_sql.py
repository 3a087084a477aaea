"""What statements mean on a star whose answers are known: what is said beside rows, and the clock.

Rows, errors and refusals stand in `statements/fixture.sql`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from dpsql.errors import NotSupportedError, NoViewError
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import open_session
from dpsql.planner.plan import disjoint_boxes
from dpsql.planner.schema import Expression, Predicate, every, some
from dpsql.results.render import text_table
from tests.answer.test_statements import NOON, at
from tests.release_fixture import AGES, make_rows

VARIANCE = 1e-18
ROWS = make_rows()
FROM = "FROM sales s JOIN customer c ON s.customer_id = c.customer_id"
PRICED = "FROM sales JOIN product USING (product_id)"


def test_a_catalog_that_refuses_cut_bins_refuses_spreading_too(answerer: ReleaseEngine) -> None:
    strict = ReleaseEngine(answerer.release, on_partial_bin="refuse")
    with pytest.raises(NoViewError, match=r"bins of product\.price with several values"):
        strict.query(f"SELECT SUM(price) {PRICED}")
    assert strict.query(f"SELECT SUM(price // 5) {PRICED}").rows


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


def test_a_total_over_what_noise_picked_says_so(answerer: ReleaseEngine) -> None:
    top = f"(SELECT c.region AS r__, COUNT(*) AS n__ {FROM} GROUP BY c.region ORDER BY n__ DESC LIMIT 2) AS t"
    result = answerer.query(f"SELECT COUNT(*) AS n {FROM} JOIN {top} ON region = r__")
    assert result.stderr_rows == ((None,),)
    assert result.undefined == {"n": "SUM: rows were picked by a noisy value"}


def test_ages_beyond_the_bounds_that_an_or_may_mean_are_a_group(answerer: ReleaseEngine) -> None:
    text = "SELECT age, COUNT(*) FROM sales JOIN customer USING (customer_id)"
    text += " WHERE 17 > age OR age IN (17, 19) GROUP BY 1"
    result = answerer.query(text)
    (low, high), rows = result.interval_rows(), dict(result.rows)
    assert rows.keys() == {19, None} and rows[19] == pytest.approx(69) and low[1][1] == 0 < high[1][1]


def test_whole_numbers_without_noise_are_printed_as_such(answerer: ReleaseEngine) -> None:
    text = "SELECT FLOOR(age / 10) * 10 AS decade, COUNT(*) AS n FROM customer WHERE age BETWEEN 20 AND 39 GROUP BY 1"
    lines = text_table(answerer.query(text)).splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["20", "30"]


def test_out_of_domain_is_not_null(answerer: ReleaseEngine) -> None:
    others = sum(row["age"] not in AGES for row in ROWS["customer"])
    assert others > 0
    known = answerer.query("SELECT COUNT(*) FROM customer WHERE age IS NOT NULL")
    assert known.scalar() == len(ROWS["customer"])
    known = answerer.query("SELECT COUNT(*) FROM customer WHERE age > 0")
    assert known.scalar() == pytest.approx(len(ROWS["customer"]) - others)
    assert known.interval_rows()[1][0][0] > len(ROWS["customer"]) - 0.5  # all of them may be old


def test_parts_add_up_to_the_whole(answerer: ReleaseEngine) -> None:
    for key in ("region", "age", "region, age", "age % 3"):
        parts = answerer.query(f"SELECT {key}, COUNT(*) AS n, SUM(amount) FROM shop GROUP BY {key}").rows
        assert sum(row[-2] for row in parts) == answerer.query("SELECT COUNT(*) FROM sales").scalar()


def test_the_wide_table_has_all_columns(answerer: ReleaseEngine) -> None:
    for nothing in ("LIMIT 0", "WHERE 1 = 0", "AS q WHERE (0 = 1) AND q.age > 30"):
        answer = answerer.query(f"SELECT * FROM shop {nothing}")
        assert {"amount", "age", "region", "category", "department"} <= {*answer.columns} and not answer.rows
    joined = answerer.query("SELECT c.*, * FROM customer c JOIN sales USING (customer_id) LIMIT 0").columns
    assert joined[:3] == joined[3:6] and joined.count("customer_id") == 2


def test_same_text_same_answer(answerer: ReleaseEngine) -> None:
    text = "SELECT region, AVG(amount) FROM shop GROUP BY 1"
    assert answerer.query(text) is answerer.query(text)
    assert ReleaseEngine(answerer.release).query(text).rows == answerer.query(text).rows


def test_nothing_is_kept_from_another_moment(answerer: ReleaseEngine, fixture_file: Path) -> None:
    text = "SELECT COUNT(*) AS n FROM shop WHERE sold_on < CURRENT_DATE AND sold_on > DATE '2024-01-01'"
    later = NOON.replace(month=3)
    for asker in (answerer, open_session([fixture_file]), open_session([fixture_file] * 2)):
        counts = []
        for moment in (NOON, later, NOON):
            for asked in (text, text.replace("2024", str(moment.month + 2000))):
                with at(moment).working():
                    counts.append(asker.query(asked).rows[0][0])
        assert counts[0] == counts[1] == counts[4] == counts[5] < counts[2] == counts[3], counts


def test_every_call_of_a_statement_is_one_moment(answerer: ReleaseEngine) -> None:
    with at(NOON).working():
        row = answerer.query(
            "SELECT NOW() = CURRENT_TIMESTAMP, NOW() - NOW() = INTERVAL '0 day', CURRENT_DATE"
        ).rows[0]
        (shown,) = answerer.query('SELECT cast(NOW() as TIMESTAMP) AS "COL"').rows  # as Tableau asks it
    assert row == (True, True, NOON.date())
    assert shown == (NOON.replace(tzinfo=None, microsecond=0),)
