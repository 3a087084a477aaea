"""The clock of a statement, and what its dialect calls columns without a name."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import open_session
from dpsql.release.request import Request

VARIANCE = 1e-18
NOON = datetime(2025, 2, 15, 12, 0, 33, 250_000, tzinfo=UTC)
NOTE = "the time is 2025-02-15 12:00:33 UTC, when the statement began"


def at(moment: datetime) -> Request:
    request = Request()
    request.began = moment
    return request


CLOCKS = [
    ("postgres", "sold_on >= CURRENT_DATE - INTERVAL '30 days'", "sold_on >= DATE '2025-01-16'"),
    ("postgres", "sold_on >= CURRENT_DATE + (-40) * INTERVAL '1 DAY'", "sold_on >= DATE '2025-01-06'"),
    ("postgres", "sold_on < DATE_TRUNC('month', NOW())", "sold_on < DATE '2025-02-01'"),
    ("postgres", "sold_on < NOW()::date", "sold_on < DATE '2025-02-15'"),
    ("postgres", "sold_on = (LOCALTIMESTAMP AT TIME ZONE 'UTC')::date", "sold_on = DATE '2025-02-15'"),
    ("postgres", "sold_on = (NOW() AT TIME ZONE 'Pacific/Kiritimati')::date", "sold_on = DATE '2025-02-16'"),
    ("postgres",
     "sold_on >= (SELECT (DATE_TRUNC('day', CURRENT_TIMESTAMP AT TIME ZONE 'UTC') + (-9 || ' day')::INTERVAL))",
     "sold_on >= DATE '2025-02-06'"),
    ("mysql", "sold_on >= CURDATE() - INTERVAL 7 DAY", "sold_on >= DATE '2025-02-08'"),
    ("tsql", "sold_on >= DATEADD(day, -7, CAST(GETDATE() AS DATE))", "sold_on >= DATE '2025-02-08'"),
    ("snowflake", "sold_on >= DATEADD(day, -7, CURRENT_DATE())", "sold_on >= DATE '2025-02-08'"),
    ("bigquery", "sold_on >= DATE_SUB(CURRENT_DATE(), INTERVAL 7 DAY)", "sold_on >= DATE '2025-02-08'"),
    ("duckdb", "sold_on >= today() - 7", "sold_on >= DATE '2025-02-08'"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "asked", "meant"), CLOCKS)
def test_the_clock_is_the_moment_at_which_the_request_began(
    answerer: ReleaseEngine, dialect: str, asked: str, meant: str
) -> None:
    with at(NOON).working():
        found = answerer.query(f"SELECT COUNT(*) AS n FROM sales WHERE {asked}", dialect=dialect)
    want = answerer.query(f"SELECT COUNT(*) AS n FROM sales WHERE {meant}", dialect="postgres")
    assert found.rows == want.rows and 0 < want.rows[0][0] < 900
    assert NOTE in found.notes and found.provenance["moment"] == "2025-02-15 12:00:33"
    assert "moment" not in want.provenance


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


NAMES = [
    ("postgres", "COUNT(*), SUM(amount), amount_2, AVG(qty) AS \"Mean\", MAX(Age)",
     ["count", "sum", "amount_2", "Mean", "max"]),
    ("postgres", "COUNT(*)::float8, 1, 'a'::text, 2 * COUNT(*), COALESCE(SUM(qty), 0), CAST(1 AS INT)",
     ["count", "?column?", "text", "?column?", "coalesce", "int4"]),
    ("postgres", "CASE WHEN COUNT(*) > 1 THEN 1 END, CASE WHEN COUNT(*) > 1 THEN 1 ELSE SUM(qty) END, -COUNT(*)",
     ["case", "sum", "?column?"]),
    ("postgres",
     "ROUND(AVG(qty), 2), GREATEST(COUNT(*), 1), (SELECT COUNT(*) AS c FROM sales), COUNT(*) FILTER (WHERE age > 20)",
     ["round", "greatest", "c", "count"]),
    ("bigquery", "COUNT(*), SUM(amount) AS s, COUNT(*) + 1", ["f0_", "s", "f1_"]),
    ("trino", "COUNT(*), SUM(amount) AS s, COUNT(*) + 1", ["_col0", "s", "_col2"]),
    ("duckdb", "COUNT(*), SUM(amount)", ["count_star()", "sum(amount)"]),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "items", "names"), NAMES)
def test_a_column_is_called_as_its_dialect_calls_it(
    answerer: ReleaseEngine, dialect: str, items: str, names: list[str]
) -> None:
    text = f"SELECT {items.replace('amount_2', 'COUNT(*) AS Amount_2')} FROM shop"
    assert list(answerer.query(text, dialect=dialect).columns) == names


def test_a_name_without_quotes_is_folded_and_can_be_used(answerer: ReleaseEngine) -> None:
    inner = "SELECT REGION, COUNT(*), SUM(amount) FROM shop GROUP BY 1"
    found = answerer.query(
        f"SELECT Q.Region, Count, sum FROM ({inner}) Q ORDER BY count DESC", dialect="postgres"
    )
    assert list(found.columns) == ["region", "count", "sum"]
    assert [row[1] for row in found.rows] == sorted((row[1] for row in found.rows), reverse=True)
    found = answerer.query(
        'SELECT region AS "Region", COUNT(*) AS N FROM shop GROUP BY 1', dialect="postgres"
    )
    assert list(found.columns) == ["Region", "n"]
