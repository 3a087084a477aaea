"""Errors of what an outer statement makes of noisy groups: equal values have equal errors, however they are spelt."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from benchmarks.composites.measure import STATEMENTS, clinic
from benchmarks.coverage import Publish
from dpsql.errors import NotSupportedError, ProgrammingError, UnknownName
from dpsql.executor.engine import ReleaseEngine
from dpsql.federation.session import OpenReleases
from dpsql.intervals.linear import LinearNumbers, Weights, largest_cells
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.planner.block import Linear
from dpsql.sql.parse import parse
from dpsql.sql.rewrite import split_statement
from tests.statements import sections

LINEAR, RATIO = 1e-9, 0.01
RATIOS = ("the mean of an axis", "a mean", "a share", "a root", "a difference of means")
"""Sections whose errors are alike to RATIO; those of sums and differences are to LINEAR."""

DAYS = "(SELECT day, COUNT(*) AS n, SUM(cost) AS s FROM clinic GROUP BY day) AS g"

FILE = sections(Path(__file__).with_name("composites.sql"))


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


@pytest.mark.parametrize("name", [name for name in FILE if name != "undefined"])
def test_spellings_have_equal_values_and_equal_errors(answerer: ReleaseEngine, name: str) -> None:
    near, texts = RATIO if name in RATIOS else LINEAR, [text for text, _ in FILE[name]]
    results = [answerer.query(text) for text in texts]
    values = [float(result.scalar()) for result in results]
    assert values == pytest.approx([values[0]] * len(values), rel=1e-6, abs=1e-6)
    for text, result in zip(texts, results, strict=True):
        error, low, high = result.stderr_rows[0][0], *(ends[0][0] for ends in result.interval_rows())
        assert result.noise_rows[0][0] == pytest.approx(results[0].noise_rows[0][0], rel=near, abs=1e-4), text
        # tails of Laplace noise
        assert error == pytest.approx(results[0].stderr_rows[0][0], rel=0.05, abs=1e-3), text
        assert low is not None and low <= values[0] + 1e-3 and high >= values[0] - 1e-3, text
        assert high - low == pytest.approx(2 * 1.959964 * error, rel=1e-6, abs=1e-3), text


@pytest.mark.parametrize(("text", "why"), FILE["undefined"])
def test_what_noise_chooses_has_no_error_and_says_why(answerer: ReleaseEngine, text: str, why: str) -> None:
    """No reason where what is shown is no number."""
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
