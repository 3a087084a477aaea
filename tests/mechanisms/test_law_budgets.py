"""What laws say of budgets over several axes, in exact numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
from dpsql.mechanisms.integer_rows import AxisBudget
from dpsql.noise import ZeroNoise
from dpsql.tree import Exact

AXES = (AxisBudget(np.array([3, 1, 2], np.int64), 7), AxisBudget(np.array([5, 2], np.int64), 6))


def test_gaussian_columns_are_bounded_by_squared_totals() -> None:
    assert GAUSSIAN.column_cap(AXES, Fraction(1, 3), 9) == 42**2
    assert GAUSSIAN.largest_column(np.zeros(0, np.int64), (), AXES, 0) == 42**2


@pytest.mark.parametrize("spend, grain", [(Fraction(1), 128), (Fraction(4), 256), (Fraction(1, 4), 64)])
def test_a_grain_follows_the_row_of_largest_share(spend: Fraction, grain: int) -> None:
    """Shares of 3/7 and 5/6: the least power of two from 256 * 15/42 sqrt(spend)."""
    assert GAUSSIAN.noise_refinement(AXES, spend, 1) == grain


def test_a_view_says_the_variance_that_its_rows_are_drawn_with() -> None:
    drawn = GAUSSIAN.draw(Exact(np.zeros((3, 2), np.int64)), AXES, Fraction(1, 4), 10, ZeroNoise())
    assert drawn.variance_at_unit_budget == pytest.approx(400 + 4 * 15**2 / 42**2, rel=1e-12)
    assert drawn.variance_at_unit_budget == pytest.approx(
        GAUSSIAN.variance_at_unit_budget(AXES, Fraction(1, 4), 10), rel=1e-12
    )
    assert drawn.budget.tolist() == [[15, 6], [5, 2], [10, 4]]


def test_a_grain_of_rows_of_the_least_budget() -> None:
    """256/3 is below 128; budgets of 1 are what they are."""
    assert GAUSSIAN.noise_refinement([AxisBudget(np.ones(2, np.int64), 3)], Fraction(1), 1) == 128


def test_columns_of_rows_that_are_not_written_down_are_refused() -> None:
    with pytest.raises(InternalError, match="written down"):
        LAPLACE.largest_column(np.ones((3, 2), np.int64), [None, None], AXES, 9)
