"""What statements mean, on a star whose answers are known: without noise they are plain DuckDB's, or are refused.

Statements stand in `plain_sql.sql` and `dialects.sql`, in the words of DuckDB or of other systems; the clock of a
statement is its request's, and columns without a name are called as their dialect calls them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.errors import DataError, NotSupportedError, NoViewError, RawRowsError, SqlSyntaxError, UnknownName
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import open_session
from dpsql.release.request import Request
from dpsql.results.render import text_table
from dpsql.sql.parse import parse
from tests.release_fixture import AGES, make_rows
from tests.statements import sections

VARIANCE = 1e-18
ROWS = make_rows()
FILE = sections(Path(__file__).with_name("plain_sql.sql"))
SUMS = [text for text, _ in FILE["sums"]]
FROM = "FROM sales s JOIN customer c ON s.customer_id = c.customer_id"
PRICED = "FROM sales JOIN product USING (product_id)"
Rows = Iterable[tuple[Any, ...]]


def equal(one: object, other: object) -> bool:
    """Equal values; SUM over no row is 0 here and NULL there."""
    numbers = [
        float(value or 0) for value in (one, other) if isinstance(value, (int, float, Decimal, type(None)))
    ]
    if len(numbers) == 2:
        return math.isclose(*numbers, rel_tol=1e-7, abs_tol=1e-6)
    return str(one) == str(other)


def missing(rows: Rows, among: Rows) -> list[tuple[Any, ...]]:
    """Rows that equal none of others."""
    return [row for row in rows if not any(all(map(equal, row, mine)) for mine in among)]


@pytest.mark.parametrize(
    ("text", "plain"), [*((text, text) for text, _ in FILE["as they are"]), *FILE["translated"]]
)
def test_spellings_of_other_systems_equal_plain_sql(
    answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, text: str, plain: str
) -> None:
    got, want = answerer.query(text).rows, raw.execute(plain).fetchall()
    assert want and len(got) >= len(want)
    assert not missing(want, got), got


@pytest.mark.parametrize("text", [text for name in ("sums", "beside answers") for text, _ in FILE[name]])
def test_sums_of_axes_and_rows_beside_answers_equal_plain_sql(
    answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, text: str
) -> None:
    result, want = answerer.query(text), raw.execute(text).fetchall()
    assert want
    assert text not in SUMS or not result.undefined
    assert not missing(want, result.rows), result.rows
    assert all(equal(mine[-1], 0) for mine in missing(result.rows, want))


@pytest.mark.parametrize("text", [text for text, _ in FILE["in order"]])
def test_rows_come_as_from_duckdb(text: str, answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection) -> None:
    want, got = _plain(raw.execute(text).fetchall()), _plain(answerer.query(text).rows)
    ordered = "ORDER BY" in text.rsplit(")", 1)[-1]
    assert got == want if ordered else sorted(got, key=repr) == sorted(want, key=repr)


def _plain(rows: Rows) -> list[tuple[Any, ...]]:
    """Numbers as rounded floats, so that 3, 3.0 and Decimal(3) are alike."""
    return [
        tuple(round(float(v), 6) if isinstance(v, (int, float, Decimal)) else v for v in row) for row in rows
    ]


@pytest.mark.parametrize("text", [text for text, _ in FILE["bins of several values"]])
def test_bins_of_several_values_are_bounded(
    answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, text: str
) -> None:
    result, want = answerer.query(text), raw.execute(text).fetchall()
    assert any("have several values" in note for note in result.notes)
    keyed = {row[0]: (row, bounds) for row, bounds in zip(result.rows, result.model_bound, strict=True)}
    for key, *values in want:
        row, bounds = keyed[key]
        for mine, plain, bound in zip(row[1:], values, bounds[1:], strict=True):
            assert bound is not None
            assert abs(float(mine) - float(plain)) <= bound + 1e-6, (text, mine, plain, bound)
    assert any(bound for bounds in result.model_bound for bound in bounds)


def test_one_value_a_bin_has_no_bound_to_tell(answerer: ReleaseEngine) -> None:
    result = answerer.query("SELECT SUM(age), AVG(age) FROM customer")
    assert result.model_bound == ((0.0, 0.0),)
    assert [note for note in result.notes if "values of customer.age outside its declared range" in note]


def test_a_catalog_that_refuses_cut_bins_refuses_spreading_too(answerer: ReleaseEngine) -> None:
    strict = ReleaseEngine(answerer.release, on_partial_bin="refuse")
    with pytest.raises(NoViewError, match=r"bins of product\.price with several values"):
        strict.query(f"SELECT SUM(price) {PRICED}")
    assert strict.query(f"SELECT SUM(price // 5) {PRICED}").rows


@pytest.mark.parametrize(("text", "plain"), FILE["errors alike"])
def test_errors_are_those_of_the_plain_spelling(answerer: ReleaseEngine, text: str, plain: str) -> None:
    mine, want = answerer.query(text), answerer.query(plain)
    assert float(mine.scalar()) == pytest.approx(float(want.scalar()))
    # where ages beyond the bounds may be meant they have more cases in one spelling than in the other
    near = pytest.approx(want.stderr_rows[0][0], rel=2e-2 if "age" in plain else 1e-6)
    assert mine.stderr_rows[0][0] == near
    function = answerer.query(text.replace("SELECT ", "SELECT DP_STDERR(", 1).replace(" FROM", ") FROM", 1))
    assert float(function.scalar()) == near


def test_a_total_over_what_noise_picked_says_so(answerer: ReleaseEngine) -> None:
    top = f"(SELECT c.region AS r__, COUNT(*) AS n__ {FROM} GROUP BY c.region ORDER BY n__ DESC LIMIT 2) AS t"
    result = answerer.query(f"SELECT COUNT(*) AS n {FROM} JOIN {top} ON region = r__")
    assert result.stderr_rows == ((None,),)
    assert result.undefined == {"n": "SUM: rows were picked by a noisy value"}


@pytest.mark.parametrize(("text", "reason"), [*FILE["refused with a reason"], *FILE["refused"]])
def test_what_would_mean_something_else_is_refused_with_a_true_reason(
    answerer: ReleaseEngine, text: str, reason: str
) -> None:
    with pytest.raises(NotSupportedError, match=reason or None):
        answerer.query(text)


@pytest.mark.parametrize("text", ["SELECT SUM(region) FROM customer", "SELECT SUM(sold_on) FROM sales"])
def test_texts_and_days_are_not_added_up(answerer: ReleaseEngine, text: str) -> None:
    with pytest.raises(DataError, match="types of its columns"):
        answerer.query(text)


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
    assert answerer.query("SELECT COUNT(*) FROM customer WHERE age IS NOT NULL").scalar() == len(
        ROWS["customer"]
    )
    assert answerer.query("SELECT COUNT(*) FROM customer WHERE age IS NULL").scalar() == 0
    known = answerer.query("SELECT COUNT(*) FROM customer WHERE age > 0")
    assert known.scalar() == pytest.approx(len(ROWS["customer"]) - others)
    assert known.interval_rows()[1][0][0] > len(ROWS["customer"]) - 0.5  # all of them may be old


def test_parts_add_up_to_the_whole(answerer: ReleaseEngine) -> None:
    for key in ("region", "age", "region, age", "age % 3"):
        parts = answerer.query(f"SELECT {key}, COUNT(*) AS n, SUM(amount) FROM shop GROUP BY {key}").rows
        assert sum(row[-2] for row in parts) == answerer.query("SELECT COUNT(*) FROM sales").scalar()


def test_groups_come_in_catalog_order(answerer: ReleaseEngine) -> None:
    rows = answerer.query("SELECT region, COUNT(*) FROM shop GROUP BY region").rows
    assert [row[0] for row in rows] == ["north", "south", "east", "west", None]


def test_wide_table_is_left_joined(answerer: ReleaseEngine) -> None:
    assert answerer.query("SELECT COUNT(*) FROM shop").scalar() == len(ROWS["sales"])
    for nothing in ("LIMIT 0", "WHERE 1 = 0", "AS q WHERE (0 = 1) AND q.age > 30"):
        answer = answerer.query(f"SELECT * FROM shop {nothing}")
        assert {"amount", "age", "region", "category", "department"} <= {*answer.columns} and not answer.rows
    joined = answerer.query("SELECT c.*, * FROM customer c JOIN sales USING (customer_id) LIMIT 0").columns
    assert joined[:3] == joined[3:6] and joined.count("customer_id") == 2


@pytest.mark.parametrize(("sql", "error"), [
    ("SELECT agee FROM customer", UnknownName), ("SELECT age FROM customer", RawRowsError),
    ("SELECT", SqlSyntaxError), ("SELECT *", SqlSyntaxError), ("SELECT * FROM customer WHERE 1 = 1", RawRowsError),
    ("SELECT * FROM customer WHERE 1 = 1.0", RawRowsError), ("SELECT * FROM customer WHERE '1' = 1", RawRowsError),
])  # fmt: skip
def test_the_first_thing_that_is_wrong_is_the_error(
    answerer: ReleaseEngine, sql: str, error: type[Exception]
) -> None:
    """A misspelt column was told that a release has no rows, and SELECT alone in DuckDB's words."""
    with pytest.raises(error):
        answerer.query(sql)


def test_same_text_same_answer(answerer: ReleaseEngine) -> None:
    text = "SELECT region, AVG(amount) FROM shop GROUP BY 1"
    assert answerer.query(text) is answerer.query(text)
    assert ReleaseEngine(answerer.release).query(text).rows == answerer.query(text).rows


DIALECTS = sections(Path(__file__).with_name("dialects.sql"))


def of_dialects(kind: str) -> list[tuple[str, str, str]]:
    """(dialect, its words, what is expected of them) of each section of a kind."""
    names = {name: name.removeprefix(f"{kind} of ") for name in DIALECTS if name.startswith(kind)}
    return [(dialect, text, expected) for name, dialect in names.items() for text, expected in DIALECTS[name]]


@pytest.mark.parametrize(("dialect", "key", "plain"), of_dialects("keys"))
def test_a_key_means_what_its_dialect_says(
    answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, dialect: str, key: str, plain: str
) -> None:
    text = f"SELECT {{}} AS k, COUNT(*) AS n {FROM} WHERE region IS NOT NULL GROUP BY 1 ORDER BY 1"
    found = answerer.query(text.format(key), dialect=dialect).rows
    want = {repr(_number(k)): n for k, n in raw.execute(text.format(plain)).fetchall()}
    assert {repr(_number(k)): n for k, n in found if n} == pytest.approx(want, abs=1e-4)


def _number(value: object) -> object:
    return value if value is None or isinstance(value, str | bool) else round(float(value), 9)  # type: ignore[arg-type]


@pytest.mark.parametrize(("words", "plain"), [("ROLLUP", "ROLLUP (1, 2)"), ("CUBE", "CUBE (1, 2)")])
def test_with_rollup_has_the_totals(
    answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, words: str, plain: str
) -> None:
    text = f"SELECT c.region, c.age > 30, COUNT(*) AS n {FROM} GROUP BY "
    found = answerer.query(f"{text} c.region, 2 WITH {words}", dialect="mysql").rows
    exact = raw.execute(text + plain).fetchall()
    assert len(exact) > 8
    assert Counter((a, b, round(n)) for a, b, n in found if round(n)) == Counter(exact)


def test_integers_are_divided_outside_of_the_block_too(answerer: ReleaseEngine) -> None:
    text = f"SELECT a / 10 AS decade, SUM(n) FROM (SELECT age AS a, COUNT(*) AS n {FROM} GROUP BY 1) AS t GROUP BY 1"
    assert {key for key, _ in answerer.query(text, dialect="postgres").rows} == {1, 2, 3, None}
    assert answerer.query("SELECT 7 / 2", dialect="postgres").scalar() == 3
    assert answerer.query("SELECT 7 / 2").scalar() == 3.5


def test_a_sum_of_rounded_values_is_not_the_sum_of_the_values(answerer: ReleaseEngine) -> None:
    for call in ("SUM(CAST(amount AS INT))", "SUM(CAST(amount AS DECIMAL(9, 1)))"):
        with pytest.raises(NotSupportedError):
            answerer.query(f"SELECT {call} FROM sales")
    with pytest.raises(NotSupportedError):
        answerer.query("SELECT SUM(qty / 2) FROM sales", dialect="postgres")
    exact = answerer.query("SELECT SUM(amount), SUM(qty) FROM sales").rows
    assert (
        answerer.query("SELECT SUM(CAST(amount AS DOUBLE)), SUM(CAST(qty AS BIGINT)) FROM sales").rows
        == exact
    )


@pytest.mark.parametrize(("dialect", "call", "plain"), of_dialects("times"))
def test_times(
    answerer: ReleaseEngine, raw: duckdb.DuckDBPyConnection, dialect: str, call: str, plain: str
) -> None:
    text = "SELECT {} AS k, COUNT(*) AS n FROM sales GROUP BY 1"
    found = {str(k)[:10]: n for k, n in answerer.query(text.format(call), dialect=dialect).rows}
    assert found == {str(k)[:10]: n for k, n in raw.execute(text.format(plain)).fetchall()}


def test_weeks_of_another_count_are_refused(answerer: ReleaseEngine) -> None:
    with pytest.raises(NotSupportedError, match="ISO 8601"):
        answerer.query("SELECT WEEK(sold_on), COUNT(*) FROM sales GROUP BY 1", dialect="mysql")
    assert parse("SELECT WEEK(sold_on) FROM sales")


NOON = datetime(2025, 2, 15, 12, 0, 33, 250_000, tzinfo=UTC)
NOTE = "the time is 2025-02-15 12:00:33 UTC, when the statement began"


def at(moment: datetime) -> Request:
    request = Request()
    request.began = moment
    return request


@pytest.mark.parametrize(("dialect", "asked", "meant"), of_dialects("clocks"))
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


@pytest.mark.parametrize(("dialect", "items", "names"), of_dialects("names"))
def test_a_column_is_called_as_its_dialect_calls_it(
    answerer: ReleaseEngine, dialect: str, items: str, names: str
) -> None:
    text = f"SELECT {items.replace('amount_2', 'COUNT(*) AS Amount_2')} FROM shop"
    assert list(answerer.query(text, dialect=dialect).columns) == names.split(", ")


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
