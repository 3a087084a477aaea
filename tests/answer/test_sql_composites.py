"""Errors of what an outer statement makes of noisy groups: equal values have equal errors, however they are spelt."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.composites.measure import STATEMENTS
from benchmarks.composites.star import Publish, clinic
from dpsql.errors import NotSupportedError, ProgrammingError, UnknownName
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import OpenReleases
from dpsql.intervals.linear import LinearNumbers, Weights, largest_cells
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.planner.block import Linear
from dpsql.sql.parse import parse
from dpsql.sql.rewrite import split_statement

LINEAR, RATIO = 1e-9, 0.01

WARDS = "(SELECT ward, COUNT(*) AS n, SUM(cost) AS s, AVG(cost) AS m FROM clinic GROUP BY ward) AS g"
DAYS = "(SELECT day, COUNT(*) AS n, SUM(cost) AS s FROM clinic GROUP BY day) AS g"
CTE = "WITH d AS (SELECT day, COUNT(*) AS n, SUM(cost) AS s FROM clinic GROUP BY day)"

ALIKE = {
    "sums of groups": (LINEAR, [
        "SELECT SUM(cost) FROM clinic", f"SELECT SUM(s) FROM {WARDS}", f"SELECT SUM(s) FROM {DAYS}",
        f"{CTE} SELECT MAX(day) * 0 + SUM(s) FROM d", f"{CTE} SELECT (SELECT SUM(s) FROM d)",
        "SELECT SUM(s) FROM (SELECT ward, day, SUM(cost) AS s FROM clinic GROUP BY 1, 2) AS g",
    ]),
    "sums of parts": (LINEAR, [
        f"SELECT AVG(s) * COUNT(*) FROM {DAYS}",
        "SELECT SUM(cost) FROM clinic WHERE day BETWEEN 1 AND 12", f"SELECT SUM(s) FROM {DAYS} WHERE day IS NOT NULL",
        "SELECT a + b FROM (SELECT SUM(cost) AS a FROM clinic WHERE day BETWEEN 1 AND 4) AS x, "
        "(SELECT SUM(cost) AS b FROM clinic WHERE day BETWEEN 5 AND 12) AS y",
        "SELECT SUM(s) FROM (SELECT SUM(cost) AS s FROM clinic WHERE day BETWEEN 1 AND 4 UNION ALL SELECT SUM(cost) "
        "FROM clinic WHERE day BETWEEN 5 AND 12) AS u",
        f"SELECT t FROM (SELECT day, SUM(s) OVER (ORDER BY day) AS t FROM {DAYS}) AS r WHERE day = 12",
    ]),
    "differences": (LINEAR, [
        "SELECT COUNT(*) FILTER (WHERE day = 5) - COUNT(*) FILTER (WHERE day = 4) FROM clinic",
        f"SELECT d FROM (SELECT day, n - LAG(n) OVER (ORDER BY day) AS d FROM {DAYS}) AS r WHERE day = 5",
        f"SELECT -d FROM (SELECT day, n - LEAD(n) OVER (ORDER BY day) AS d FROM {DAYS}) AS r WHERE day = 4",
        f"{CTE} SELECT a.n - b.n FROM d AS a JOIN d AS b ON a.day = b.day + 1 WHERE a.day = 5",
        f"{CTE} SELECT (SELECT n FROM d WHERE day = 5) - (SELECT n FROM d WHERE day = 4)",
        f"SELECT SUM(CASE WHEN day = 5 THEN n WHEN day = 4 THEN -n ELSE 0 END) FROM {DAYS}",
        f"SELECT SUM(n) FILTER (WHERE day = 5) - SUM(n) FILTER (WHERE day = 4) FROM {DAYS}",
    ]),
    "nothing": (LINEAR, [
        f"{CTE} SELECT a.n - b.n FROM d AS a JOIN d AS b USING (day) WHERE day = 1",
        f"SELECT SUM(n) - (SELECT COUNT(*) FROM clinic) FROM {DAYS}",
        f"SELECT SUM(n) - (SELECT SUM(n) FROM {WARDS}) FROM {DAYS}",
    ]),
    "sums of an axis": (LINEAR, [
        "SELECT SUM(day) FROM clinic", f"SELECT SUM(day * n) FROM {DAYS}",
        "SELECT SUM(day - 2) + 2 * COUNT(*) FILTER (WHERE day > 0) FROM clinic",
        "SELECT SUM(t) FROM (SELECT ward, SUM(day) AS t FROM clinic GROUP BY 1) AS g",
        "SELECT SUM(CASE WHEN day > 4 THEN day END) + SUM(day) FILTER (WHERE day <= 4) FROM clinic",
    ]),
    "an axis times a measure": (LINEAR, [
        "SELECT SUM(cost * day) FROM clinic", f"SELECT SUM(day * s) FROM {DAYS}",
        "SELECT SUM(day * 2 * cost) / 2 FROM clinic",
    ]),
    "the mean of an axis": (RATIO, [
        "SELECT AVG(day) FROM clinic", f"SELECT SUM(day * n) / SUM(n) FROM {DAYS} WHERE day IS NOT NULL",
    ]),
    "a mean": (RATIO, [
        "SELECT AVG(cost) FROM clinic", "SELECT SUM(cost) / COUNT(*) FROM clinic",
        f"SELECT SUM(s) / SUM(n) FROM {DAYS}",
        f"SELECT SUM(m * n) / SUM(n) FROM {WARDS}", f"SELECT 1 / (SUM(n) / SUM(s)) FROM {WARDS}",
        "SELECT (SELECT SUM(cost) FROM clinic) / (SELECT COUNT(*) FROM clinic)",
        "SELECT AVG(cost) - 20 + 20 FROM clinic",
    ]),
    "a share": (RATIO, [
        "SELECT COUNT(*) FILTER (WHERE ward = 'a') / COUNT(*) FROM clinic",
        f"SELECT r FROM (SELECT ward, n / SUM(n) OVER () AS r FROM {WARDS}) AS q WHERE ward = 'a'",
        "SELECT COUNT(*) / (SELECT COUNT(*) FROM clinic) FROM clinic WHERE ward = 'a'",
        f"SELECT SUM(n) FILTER (WHERE ward = 'a') / SUM(n) FROM {WARDS}",
        f"SELECT SUM(CASE WHEN ward = 'a' THEN r END) FROM (SELECT ward, n / SUM(n) OVER () AS r FROM {WARDS}) AS q",
        f"SELECT CASE WHEN SUM(n) <> 0 THEN SUM(n) FILTER (WHERE ward = 'a') / SUM(n) ELSE 0 END FROM {WARDS}",
        f"SELECT 1 - SUM(n) FILTER (WHERE ward <> 'a' OR ward IS NULL) / SUM(n) FROM {WARDS}",
    ]),
    "a root": (RATIO, [
        "SELECT SQRT(COUNT(*)) FROM clinic", f"SELECT SQRT(SUM(n)) FROM {DAYS}",
        "SELECT COUNT(*) / SQRT(COUNT(*)) FROM clinic", "SELECT SQRT((SELECT COUNT(*) FROM clinic))",
    ]),
    "a difference of means": (RATIO, [
        "SELECT AVG(cost) FILTER (WHERE ward = 'a') - AVG(cost) FILTER (WHERE ward = 'b') FROM clinic",
        "SELECT (SELECT AVG(cost) FROM clinic WHERE ward = 'a') - (SELECT AVG(cost) FROM clinic WHERE ward = 'b')",
        f"SELECT SUM(CASE ward WHEN 'a' THEN m WHEN 'b' THEN -m END) FROM {WARDS}",
        f"SELECT -d FROM (SELECT ward, m - LAG(m) OVER (ORDER BY ward) AS d FROM {WARDS}) AS q WHERE ward = 'b'",
    ]),
}  # fmt: skip
"""Spellings of one value, and how near their errors are."""

UNDEFINED = {
    f"SELECT MAX(n) + 1 FROM {DAYS}": "MAX picks among noisy values",
    f"SELECT m FROM (SELECT MAX(n) AS m FROM {DAYS}) AS t": "MAX picks among noisy values",
    f"SELECT MAX(n) FROM {DAYS} UNION ALL SELECT MIN(n) FROM {DAYS}": "MAX picks among noisy values",
    f"SELECT (SELECT MIN(n) FROM {DAYS}) AS m": "MIN picks among noisy values",
    f"SELECT MAX(n) FROM {DAYS} WHERE n > 5": "rows were picked by a noisy value",
    f"SELECT MAX(n) FILTER (WHERE n > 5) FROM {DAYS}": "FILTER picks rows by a noisy value",
    f"SELECT MAX(n) OVER () FROM {DAYS}": "MAX picks among noisy values",
    f"SELECT MAX(CASE WHEN n > 5 THEN n END) FROM {DAYS}": "MAX picks among noisy values",
    f"SELECT RANK() OVER (ORDER BY n) FROM {DAYS}": "a window orders or partitions rows by a noisy value",
    f"SELECT CASE WHEN n > 1250 THEN n ELSE 0 END FROM {DAYS}": "CASE chooses by a noisy value",
    f"SELECT SUM(n) FROM (SELECT n FROM {DAYS} WHERE n > 1000) AS f": "rows were picked by a noisy value",
    f"SELECT SUM(n) FROM (SELECT n FROM {DAYS} ORDER BY n DESC LIMIT 3) AS f": "rows were picked by a noisy value",
    f"SELECT SUM(n) FILTER (WHERE s > 9) FROM {DAYS}": "FILTER picks rows by a noisy value",
    f"SELECT SUM(DISTINCT n) FROM {DAYS}": "which noisy values there are",
    f"SELECT n, COUNT(*) FROM {DAYS} GROUP BY n": "GROUP BY compares noisy values",
    f"SELECT n FROM {DAYS} UNION SELECT n FROM {DAYS}": "UNION compares rows",
    f"SELECT DISTINCT n * 2 FROM {DAYS}": "DISTINCT compares rows",
    f"SELECT SIN(SUM(n)) FROM {DAYS}": "SIN of a noisy value",
    "SELECT SIN(COUNT(*)) FROM clinic": "SIN of a noisy value",
    "SELECT RANK() OVER (ORDER BY COUNT(*)) FROM clinic GROUP BY ward": "a window orders or partitions rows by a noisy",
    "SELECT CASE WHEN COUNT(*) > 3 THEN 1 END FROM clinic": "CASE chooses by a noisy value",
    f"SELECT day FROM {DAYS} WHERE day = (SELECT day FROM {DAYS} ORDER BY n DESC LIMIT 1)": "",
    f"SELECT (SELECT n FROM {DAYS} ORDER BY n DESC LIMIT 1) - 5": "in a subquery rows were picked",
}
"""Statements whose error depends on which values noise made large, and the reason given; none where it is no number."""


@pytest.fixture(scope="module")
def publish(tmp_path_factory: pytest.TempPathFactory) -> Publish:
    return clinic(tmp_path_factory.mktemp("clinic"))


@pytest.fixture(scope="module")
def answerer(publishes: None, publish: Publish) -> Iterator[ReleaseEngine]:
    found = publish(ExactNoise(insecure_test_entropy(7)), "one.dpsql")
    yield found
    found.release.close()


@pytest.mark.parametrize(
    "value", ["COUNT(*)", "SUM(cost)", "2 * SUM(cost) FILTER (WHERE day < 5) - COUNT(*)"]
)
def test_a_value_row_by_row_errs_as_a_composite_of_one_cell_a_row(
    answerer: ReleaseEngine, value: str
) -> None:
    text = f"SELECT ward, day, {value} FROM clinic GROUP BY 1, 2"
    statement = split_statement(parse(text, ""), answerer.schema, text)
    form, relation = statement.forms[-1][0], answerer.answer_block(statement.blocks[0])
    answered = relation.answered_for(form)
    assert isinstance(form, Linear) and answered is not None
    numbers = LinearNumbers.of_form(form, answered)
    rows = np.arange(numbers.count)
    cells = {key: Weights(rows, rows.copy(), weights.weight) for key, weights in numbers.terms.items()}
    composite = LinearNumbers(numbers.count, cells)
    assert all(weights.by_row for weights in numbers.reads.values())
    assert not any(weights.by_row for weights in composite.reads.values())
    assert composite.variances.noise == pytest.approx(numbers.variances.noise, rel=LINEAR)
    assert numbers.variances.noise.min() > 0
    largest = [largest_cells(each.reads, each.count) for each in (numbers, composite)]
    assert largest[0] == pytest.approx(largest[1], rel=LINEAR)


@pytest.mark.parametrize("name", ALIKE)
def test_spellings_have_equal_values_and_equal_errors(answerer: ReleaseEngine, name: str) -> None:
    near, texts = ALIKE[name]
    results = [answerer.query(text) for text in texts]
    values = [float(result.scalar()) for result in results]
    assert values == pytest.approx([values[0]] * len(values), rel=1e-6, abs=1e-6)
    for text, result in zip(texts, results, strict=True):
        error, low, high = result.stderr_rows[0][0], *(ends[0][0] for ends in result.interval_rows())
        assert result.noise_rows[0][0] == pytest.approx(results[0].noise_rows[0][0], rel=near, abs=1e-4), text
        assert error == pytest.approx(results[0].stderr_rows[0][0], rel=0.05, abs=1e-3), (
            text
        )  # tails of Laplace noise
        assert low is not None and low <= values[0] + 1e-3 and high >= values[0] - 1e-3, text
        assert high - low == pytest.approx(2 * 1.959964 * error, rel=1e-6, abs=1e-3), text


@pytest.mark.parametrize(("text", "why"), UNDEFINED.items())
def test_what_noise_chooses_has_no_error_and_says_why(answerer: ReleaseEngine, text: str, why: str) -> None:
    result = answerer.query(text)
    assert all(value is None for row in result.stderr_rows for value in row[:1])
    said = list(result.undefined.values())
    assert bool(why) == bool(said) == ("has no error" in str(result))
    assert all(
        why in each and each in str(result) and any(each in line for line in result.plan) for each in said
    )


def test_functions_of_an_error_follow_the_outer_statement(answerer: ReleaseEngine) -> None:
    inside = answerer.query(
        f"SELECT SUM(n), DP_STDERR(SUM(n)) AS e, DP_INTERVAL_LOW(SUM(n), 0.9), DP_MODEL_BOUND(SUM(n)) FROM {DAYS}"
    )
    beside = answerer.query(f"SELECT SUM(n) FROM {DAYS}")
    _, error, low, bound = inside.rows[0]
    assert error == pytest.approx(beside.stderr_rows[0][0]) and bound == 0
    assert low == pytest.approx(beside.interval_rows(0.9)[0][0][0])
    for clause in (
        "HAVING DP_STDERR(SUM(n)) > 0",
        "ORDER BY DP_STDERR(t) DESC",
    ):
        text = f"SELECT day > 6 AS late, SUM(n) AS t, DP_STDERR(SUM(n)) FROM {DAYS} GROUP BY 1 {clause}"
        rows = answerer.query(text).rows
        assert len(rows) == 3 and all(row[2] > 0 for row in rows), clause
    kept = answerer.query(f"SELECT day FROM {DAYS} WHERE n > 1e6 * DP_STDERR(n - s)").rows
    assert kept == ()
    windows = answerer.query(f"SELECT DP_STDERR(n / SUM(n) OVER ()) FROM {DAYS}")
    share = answerer.query(f"SELECT n / SUM(n) OVER () FROM {DAYS}")
    assert [row[0] for row in windows.rows] == pytest.approx([row[0] for row in share.stderr_rows])


def test_whether_answers_differ(answerer: ReleaseEngine) -> None:
    same = "SELECT DP_DIFFERS(COUNT(*), (SELECT COUNT(*) FROM clinic)) FROM clinic"
    assert answerer.query(same).scalar() is False
    far = "SELECT DP_DIFFERS(COUNT(*) FILTER (WHERE age < 20), COUNT(*) FILTER (WHERE age < 80)) FROM clinic"
    assert answerer.query(far).scalar() is True
    days = answerer.query(
        f"SELECT n - LAG(n) OVER (ORDER BY day) AS d, DP_DIFFERS(n, LAG(n) OVER (ORDER BY day), 0.8) FROM {DAYS}"
    )
    lows, highs = days.interval_rows(0.8)
    for (change, differs), low, high in zip(days.rows[1:], lows[1:], highs[1:], strict=True):
        if change is None:  # days that the catalog does not know are no day after another
            assert differs is None and low[0] is None
            continue
        assert differs == (low[0] > 0 or high[0] < 0)
    assert days.rows[0][1] is None
    assert {row[1] for row in days.rows} == {None, True, False}
    with pytest.raises(ProgrammingError, match="takes two values"):
        answerer.query("SELECT DP_DIFFERS(COUNT(*)) FROM clinic")


FIRST, SECOND = ('"clinic (one.dpsql)"', '"clinic (two.dpsql)"')


@pytest.mark.usefixtures("publishes")
def test_whether_named_releases_differ(publish: Publish, answerer: ReleaseEngine) -> None:
    other = publish(ExactNoise(insecure_test_entropy(8)), "two.dpsql")
    both = OpenReleases((answerer.release, other.release), (answerer, other))
    alone = [answerer.query("SELECT COUNT(*), DP_STDERR(COUNT(*), 'noise') FROM visit").rows[0], other.query(
        "SELECT COUNT(*), DP_STDERR(COUNT(*), 'noise') FROM visit").rows[0]]  # fmt: skip
    apart = "SELECT x - y, DP_STDERR(x - y, 'noise'), DP_DIFFERS(x, y), DP_DIFFERS(x, 3 * y) FROM "
    apart += (
        f"(SELECT COUNT(*) AS x FROM {FIRST}.visit) AS p, (SELECT COUNT(*) AS y FROM {SECOND}.clinic) AS q"
    )
    difference, error, differs, far = both.query(apart).rows[0]
    assert difference == pytest.approx(alone[0][0] - alone[1][0])
    assert error == pytest.approx(math.hypot(alone[0][1], alone[1][1]))  # their noises are independent
    low, high = (ends[0][0] for ends in both.query(apart).interval_rows())
    assert differs is (low > 0 or high < 0) and far is True
    days = both.query(
        f"SELECT p.day, DP_DIFFERS(p.n, q.n) AS d, p.n - q.n AS apart FROM (SELECT day, COUNT(*) AS n FROM "
        f"{FIRST}.visit GROUP BY 1) AS p JOIN "
        f"(SELECT day, COUNT(*) AS n FROM {SECOND}.visit GROUP BY 1) AS q ON p.day = q.day"
    )
    lows, highs = days.interval_rows()
    assert [row[1] for row in days.rows] == [
        low[2] > 0 or high[2] < 0 for low, high in zip(lows, highs, strict=True)
    ]
    assert both.query(f"SELECT COUNT(*) FROM {SECOND}.visit").scalar() == alone[1][0]
    with pytest.raises(NotSupportedError, match="rows of clinic"):
        both.query(f"SELECT COUNT(*) FROM {FIRST}.visit AS v JOIN {SECOND}.person AS p ON v.id = p.id")
    with pytest.raises(UnknownName, match=r'qualify them, for instance "clinic \(one\.dpsql\)"\.table'):
        both.query("SELECT COUNT(*) FROM visit")
    other.release.close()


@pytest.mark.parametrize("value", [
    "COUNT(*) FILTER (WHERE age < 40) / COUNT(*) FILTER (WHERE day < 5)",
    "COUNT(*) FILTER (WHERE age < 40) - COUNT(*) FILTER (WHERE day < 5)",
    "SUM(cost) FILTER (WHERE age < 40) / COUNT(*) FILTER (WHERE day < 5)",
])  # fmt: skip
def test_functions_of_an_error_take_values_of_two_views(answerer: ReleaseEngine, value: str) -> None:
    parts = [part.strip() for part in re.split(" [-/] ", value)]
    inside = answerer.query(f"SELECT DP_STDERR({value}), DP_INTERVAL_LOW({value}) FROM clinic")
    beside = answerer.query(f"SELECT {value} FROM clinic")
    assert not inside.undefined
    assert inside.rows[0] == pytest.approx((beside.stderr_rows[0][0], beside.interval_rows()[0][0][0]))
    differs = answerer.query(f"SELECT DP_DIFFERS({parts[0]}, {parts[1]}) FROM clinic").scalar()
    apart = answerer.query(f"SELECT {parts[0]} - {parts[1]} FROM clinic").interval_rows()
    assert differs is (apart[0][0][0] > 0 or apart[1][0][0] < 0)
    outside = answerer.query(f"SELECT DP_STDERR(a) FROM (SELECT {value} AS a FROM clinic) AS t")
    assert outside.scalar() == pytest.approx(inside.rows[0][0])


def test_a_near_denominator_has_the_interval_of_fieller(answerer: ReleaseEngine) -> None:
    """A quotient that is not known as one, since it is multiplied by 1 as a quotient, has the quotient's interval."""
    few = "COUNT(*) FILTER (WHERE ward IS NULL AND age BETWEEN 80 AND 89)"
    plain = f"SELECT x / y FROM (SELECT COUNT(*) FILTER (WHERE day < 3) AS x, {few} AS y FROM clinic) AS q"
    hidden = plain.replace("x / y", "x / y * (x / x)")
    ends = [answerer.query(text).interval_rows(0.95) for text in (plain, hidden)]
    (low, high), (other_low, other_high) = ((a[0][0], b[0][0]) for a, b in ends)
    assert (other_low, other_high) == pytest.approx((low, high), rel=1e-6)
    delta = answerer.query(plain).noise_rows[0][0]
    assert high - low > 1.01 * 2 * 1.96 * delta  # so near that the delta method is too short


A = "COUNT(*) FILTER (WHERE ward = 'a')"
OVER_ZERO = {
    "rows": (f"(COUNT(*) + {A}) / {A}", f"(COUNT(*) + {A}) / COUNT(*)"),
    "sums": (f"(SUM(cost) - {A}) / {A}", f"(SUM(cost) - {A}) / COUNT(*)"),
}


@pytest.mark.parametrize("shape", ["{0}", "q", "q * 1.0", "q - q + q"])
@pytest.mark.parametrize("kind", OVER_ZERO)
def test_a_denominator_of_exactly_0_is_null_and_leaves_other_rows_alone(
    answerer: ReleaseEngine, kind: str, shape: str
) -> None:
    """In ward a both quotients are one; elsewhere the first one's denominator is 0 under any noise. No numpy warns."""
    value, other = OVER_ZERO[kind]
    results = []
    for quotient in (value, other):
        text = f"SELECT ward, {quotient} AS q FROM clinic GROUP BY ward"
        if "q" in shape:
            text = f"SELECT ward, {shape} AS v FROM ({text}) AS t"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            result = answerer.query(f"{text} ORDER BY ward")
            (low, high), error = result.interval_rows(0.95), result.stderr_rows
            results.append([
                (row[1], e[1], a[1], b[1]) for row, e, a, b in zip(result.rows, error, low, high, strict=True)
            ])  # fmt: skip
    assert results[0][0] == pytest.approx(results[1][0], rel=RATIO)
    assert results[0][1:] == [(None,) * 4] * 3
    assert all(None not in row for row in results[1])


def test_many_groups_cost_no_more_than_their_sum(answerer: ReleaseEngine) -> None:
    """Cells of equal weight are one read: all cells of a view make one mask."""
    text = "SELECT SUM(n) FROM (SELECT ward, age // 10, COUNT(*) AS n FROM clinic GROUP BY 1, 2) AS g"
    result = answerer.query(text)
    plain = answerer.query("SELECT COUNT(*) FROM clinic WHERE age IS NOT NULL OR age IS NULL")
    assert result.stderr_rows[0][0] == pytest.approx(plain.stderr_rows[0][0], rel=LINEAR)


def test_every_statement_of_the_benchmark_has_errors(answerer: ReleaseEngine) -> None:
    for text in (text for group in STATEMENTS.values() for text in group):
        result = answerer.query(text)
        assert not result.undefined, text
        for row, errors in zip(result.rows, result.stderr_rows, strict=True):
            gaps = [
                value is None or name in result.gaps()
                for name, value in zip(result.columns, row, strict=True)
            ]
            assert gaps == [error is None for error in errors], text


@pytest.mark.slow
def test_errors_are_those_of_a_hundred_draws(publish: Publish) -> None:
    """The mean squared error of a difference of two views, and of a running sum, over draws of the noise."""
    texts = STATEMENTS["linear"][4], f"SELECT SUM(n) OVER (ORDER BY day) FROM {DAYS}"
    noise, values, errors = ExactNoise(insecure_test_entropy(3)), list[list[float]](), list[float]()
    for number in range(100):
        one = publish(noise, f"draw{number}.dpsql")
        rows = [row for text in texts for row in one.query(text).rows]
        values.append([float(row[0]) for row in rows])
        errors = errors or [row[0] for text in texts for row in one.query(text).stderr_rows]
        one.release.close()
    spread = np.std(np.array(values), axis=0, ddof=1)
    assert spread == pytest.approx(np.array(errors), rel=0.3)
