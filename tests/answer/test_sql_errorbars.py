"""Error bars: against a simulated release, and against dense covariance."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from dpsql.errors import DataError, InterfaceError
from dpsql.executor.engine import ReleaseEngine
from dpsql.intervals.errorfunctions import fieller, quantile
from dpsql.release import open_release
from tests.interval_ends import belong
from tests.release_fixture import axis_plans, make_rows, write_fixture

VARIANCE = 4.0


def cells(*parts: int) -> float:
    """Standard error of a sum of so many independent leaf combinations."""
    return math.sqrt(VARIANCE * math.prod(parts))


LEAVES = [plan.meta.leaves for plan in axis_plans()]
AGE, REGION, CATEGORY, DAY = LEAVES[:4]
ONE_VALUE = [
    ("COUNT(*) FROM shop WHERE age BETWEEN 20 AND 29", cells(10, REGION, CATEGORY)),
    ("COUNT(*) FROM sales JOIN customer USING (customer_id) WHERE age BETWEEN 20 AND 29",
     cells(10, REGION - 1, CATEGORY)),
    ("COUNT(*) FROM shop WHERE age < 20 OR region = 'north'", cells(2 * REGION * CATEGORY + (AGE - 2) * CATEGORY)),
    # a sum is its centred sum and the count times the centre
    ("SUM(amount) FROM shop WHERE age = 20", math.sqrt(1.0 + 1250.0**2) / 100 * cells(1, REGION, CATEGORY)),
]  # fmt: skip


@pytest.mark.parametrize(("value", "error"), ONE_VALUE)
def test_disjoint_leaves_add_their_variances(answerer: ReleaseEngine, value: str, error: float) -> None:
    assert answerer.query(f"SELECT {value}").noise_rows[0][0] == pytest.approx(error)


def test_linear_combinations_keep_covariance(answerer: ReleaseEngine) -> None:
    whole, part = "COUNT(*)", "COUNT(*) FILTER (WHERE age = 20)"
    text = f"SELECT {whole} - {part}, {whole} + {part}, {part} - {part}, 2 * {part} FROM shop"
    row = answerer.query(text).noise_rows[0]
    rest, small = (AGE - 1) * REGION * CATEGORY, REGION * CATEGORY
    assert row[0] == pytest.approx(cells(rest))
    assert row[1] == pytest.approx(math.sqrt(VARIANCE * (rest + 4 * small)))
    assert row[2] == pytest.approx(0.0, abs=1e-6)
    assert row[3] == pytest.approx(2 * cells(small))


def test_ratio_by_the_delta_method(answerer: ReleaseEngine) -> None:
    text = "SELECT SUM(amount) / COUNT(*), AVG(amount), SUM(amount), COUNT(*) FROM sales"
    result = answerer.query(text)
    ratio, mean, _, count = result.rows[0]
    assert ratio == pytest.approx(mean)
    base = next(cells(*shape) for shape in [(DAY, CATEGORY)])
    centred = 1.0 / 100 * base
    want = math.sqrt(centred**2 + (mean - 12.5) ** 2 * base**2) / count
    assert result.noise_rows[0][1] == pytest.approx(want)
    assert result.noise_rows[0][0] == pytest.approx(want)
    assert result.stderr_rows[0][0] == result.stderr_rows[0][1] == pytest.approx(want, rel=0.01)


def test_the_standard_error_is_half_of_the_interval(answerer: ReleaseEngine) -> None:
    """One number at every interface; one draw of Laplace noise has heavier tails than its variance shows."""
    text = "SELECT category, COUNT(*), SUM(amount), AVG(amount), COUNT(*) / 7.0 FROM shop WHERE age = 20 GROUP BY 1"
    result = answerer.query(text)
    low, high = result.interval_rows(0.95)
    grids = zip(result.stderr_rows, result.rows, low, high, result.noise_rows, strict=True)
    for errors, row, least, most, noise in grids:
        for c in result.noisy:
            if errors[c] is not None:
                assert belong(errors[c], row[c], least[c], most[c])
                if least[c] > 0:  # else cut where a count ends
                    assert noise[c] <= errors[c] * (1 + 1e-9) <= 1.1 * noise[c]


def test_an_average_ends_at_the_bounds_of_its_measure(tmp_path: Path) -> None:
    """Nobody's amounts lie outside of what the catalog declares; SUM / COUNT is the same average."""
    found = ReleaseEngine(open_release(write_fixture(tmp_path / "loud.dpsql", make_rows(), 40.0)))
    text = "SELECT category, AVG(amount), SUM(amount) / COUNT(*) FROM shop GROUP BY 1"
    result = found.query(text)
    low, high = result.interval_rows(0.999)
    shown = [c for c, row in enumerate(result.rows) if row[1] is not None]
    assert shown
    for r in shown:
        assert low[r][1] >= min(-25.0, result.rows[r][1]) and high[r][1] <= max(25.0, result.rows[r][1])
        assert (low[r][1], high[r][1]) == pytest.approx((low[r][2], high[r][2]))
    found.release.close()


def test_a_root_has_the_root_of_the_interval(answerer: ReleaseEngine) -> None:
    """About half the error over the root; a root of a negative number is NULL and has none."""
    text = "SELECT COUNT(*) AS n, SQRT(COUNT(*)) AS r, SQRT(-4 * COUNT(*)) AS u FROM shop"
    result = answerer.query(text)
    (n, root, nothing), (error, half, none) = result.rows[0], result.stderr_rows[0]
    low, high = (math.sqrt(n + sign * 1.959964 * error) for sign in (-1, 1))
    assert root == pytest.approx(math.sqrt(n)) and half == pytest.approx((high - low) / (2 * 1.959964))
    assert nothing is None and none is None
    low, high = result.interval_rows(0.95)
    assert (high[0][1] - low[0][1]) / 2 == pytest.approx(1.959964 * half)


def test_avg_is_null_where_the_count_may_be_zero(answerer: ReleaseEngine) -> None:
    text = "SELECT AVG(amount) FROM shop WHERE age = 20 AND region = 'north' AND category = 'tea'"
    assert answerer.query(text).rows == ((None,),)
    assert answerer.query(text).stderr_rows == ((None,),)


def test_shapes_and_scalar(answerer: ReleaseEngine) -> None:
    result = answerer.query("SELECT region, COUNT(*), AVG(amount) FROM shop GROUP BY region")
    low, high = result.interval(0.95)
    assert result.df().shape == result.stderr.shape == low.shape == high.shape == (5, 3)
    assert low.iloc[:, 0].tolist() == high.iloc[:, 0].tolist() == result.df().iloc[:, 0].tolist(), (
        "labels are kept"
    )
    assert (low.iloc[0, 1] < result.rows[0][1] < high.iloc[0, 1]) and "±" in result._repr_html_()
    with pytest.raises(DataError, match="not one value"):
        result.scalar()
    with pytest.raises(InterfaceError):
        result.interval(1.5)


def test_quantiles_of_the_noise() -> None:
    assert quantile(0.95) == pytest.approx(1.959964, abs=1e-6)
    assert quantile(0.95, 3.0) == pytest.approx(2.11831, abs=1e-4)
    assert quantile(0.5, 3.0) == quantile(0.5)
    assert quantile(0.95) < quantile(0.95, 0.5) < quantile(0.95, 3.0)


def test_fieller_holds_the_ratio_95_of_100_times() -> None:
    draw = np.random.default_rng(4)
    above, below = 30.0 + draw.normal(0, 3, 20_000), 12.0 + draw.normal(0, 2, 20_000)
    ones = np.ones(20_000)
    low, high = fieller(above, below, 9 * ones, 0 * ones, 4 * ones, quantile(0.95))
    share = np.mean((low <= 2.5) & (high >= 2.5))
    assert 0.94 < share < 0.96
