"""Answers across tables whose totals have a scale each: two tables are drawn apart, and their errors never cancel."""

from __future__ import annotations

import os

import numpy as np
import pytest

from benchmarks.answers.totals import owned
from dpsql.executor.engine import ReleaseEngine
from tests.releases import published, seeded
from tests.thinned import by_default
from tests.two_facts_star import write_rows

pytestmark = pytest.mark.usefixtures("publishes")

TOTALS = "FROM (SELECT COUNT(*) AS n FROM loans) AS a, (SELECT COUNT(*) AS n FROM fines) AS b"


@pytest.fixture(scope="module", params=by_default(["desk", "geometric", "foodmart"], 1))
def answers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ReleaseEngine:
    """A star made for it, a made-up one of another law, and sales of two years of a chain of shops."""
    data = os.environ.get("DPSQL_DATA", "")
    if request.param == "foodmart" and not data:
        pytest.skip("DPSQL_DATA names no folder")
    rows, rng = owned(request.param, data), np.random.default_rng(1)
    return published(write_rows(tmp_path_factory.mktemp(request.param), *rows, rng), seeded(1))


def errors(answers: ReleaseEngine, value: str, part: str = "scale") -> tuple[float, float]:
    ((number, error),) = answers.query(
        f"SELECT {value} AS v, DP_STDERR({value}, '{part}') AS e {TOTALS}"
    ).rows
    return number, error


def test_scales_of_two_tables_add_up_in_squares(answers: ReleaseEngine) -> None:
    (loans, of_loans), (fines, of_fines) = (errors(answers, value) for value in ("a.n", "b.n"))
    assert min(of_loans / loans, of_fines / fines) > 0.01, "both totals have a scale of their own"
    together = (of_loans**2 + of_fines**2) ** 0.5
    assert errors(answers, "a.n - b.n")[1] == pytest.approx(together)
    assert errors(answers, "a.n + b.n")[1] == pytest.approx(together)
    ratio, of_ratio = errors(answers, "b.n * 1.0 / a.n")
    assert of_ratio == pytest.approx(ratio * ((of_loans / loans) ** 2 + (of_fines / fines) ** 2) ** 0.5)


def test_a_difference_is_longest_where_one_table_has_more_and_the_second_less(answers: ReleaseEngine) -> None:
    """Tails: each total reaches farther up than down, so their difference has both ends of one table's longer side."""
    ends = {
        value: [side.iloc[0, 0] for side in answers.query(f"SELECT {value} AS v {TOTALS}").interval(0.95)]
        for value in ("a.n", "b.n", "a.n - b.n", "a.n + b.n")
    }
    arms = {
        value: (errors(answers, value)[0] - low, high - errors(answers, value)[0])
        for value, (low, high) in ends.items()
    }
    (down_a, up_a), (down_b, up_b) = arms["a.n"], arms["b.n"]
    assert up_a > down_a and up_b > down_b
    assert arms["a.n - b.n"] == pytest.approx(((down_a**2 + up_b**2) ** 0.5, (up_a**2 + down_b**2) ** 0.5))
    assert arms["a.n + b.n"] == pytest.approx(((down_a**2 + down_b**2) ** 0.5, (up_a**2 + up_b**2) ** 0.5))


def test_one_table_still_shares_its_scale(answers: ReleaseEngine) -> None:
    ((share, scale),) = answers.query(
        "SELECT a.n * 1.0 / b.n AS v, DP_STDERR(a.n * 1.0 / b.n, 'scale') AS e FROM (SELECT COUNT(*) AS n FROM loans "
        "WHERE kind = 1) AS a, (SELECT COUNT(*) AS n FROM loans) AS b"
    ).rows
    assert 0 < share < 1
    assert scale == pytest.approx(0.0, abs=1e-9)
