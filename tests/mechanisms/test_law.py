"""The laws of noise: roots, grains, budgets over several axes, the spread of a number, what a joint draw refuses."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InternalError
from dpsql.matrices.strategy import AxisBudget, NullCount, axis_budgets, integer_root
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.distribution import (
    GAUSSIAN,
    LAPLACE,
    Laplace,
    nothing_drawn,
    published,
    refined,
    signed_sum,
)
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy
from dpsql.noise.discrete import laplace_variance
from dpsql.tree import Exact


@given(st.integers(0, math.isqrt((1 << 63) - 1)))
def test_integer_roots_are_exact_up_to_64_bits(root: int) -> None:
    value = [
        v for v in (root * root - 1, root * root, root * root + 1, root * (root + 2)) if 0 <= v < 1 << 63
    ]
    assert integer_root(np.array(value, np.int64), 2).tolist() == [math.isqrt(v) for v in value]
    assert integer_root(np.array([root]), 1).tolist() == [root]


@given(st.fractions(Fraction(1, 10**6), 10), st.integers(1, 10**6))
def test_a_grain_is_the_least_power_of_two_that_is_fine(spend: Fraction, sensitivity: int) -> None:
    grain = GAUSSIAN.noise_refinement((), spend, sensitivity)
    assert grain & (grain - 1) == 0 and (grain * sensitivity) ** 2 >= 65_536 * spend
    assert grain == 1 or (grain * sensitivity // 2) ** 2 < 65_536 * spend or sensitivity % 2
    assert LAPLACE.noise_refinement((), spend, sensitivity) == 1


@pytest.mark.parametrize(
    "spend, sensitivity, grain", [(1, 1, 256), (1, 2, 128), (4, 1, 512), (1, 256, 1), (9, 1, 1024)]
)
def test_grains_end_where_the_variance_is_just_fine(spend: int, sensitivity: int, grain: int) -> None:
    assert GAUSSIAN.noise_refinement((), Fraction(spend), sensitivity) == grain


def test_what_is_drawn_bounded_spreads_as_it_says() -> None:
    zeros = Exact(np.zeros(100_000, np.int64))
    for law, spend in ((GAUSSIAN, Fraction(2)), (GAUSSIAN, Fraction(1, 10**6)), (LAPLACE, Fraction(1, 2))):
        drawn = law.draw_bounded(zeros, 1, spend, ExactNoise(insecure_test_entropy(3)))
        error = 5 * math.sqrt((2 if law is GAUSSIAN else 5) / zeros.size)
        assert np.var(drawn.value) == pytest.approx(drawn.sd**2, rel=error)
    # No rounding where nothing is refined, whatever the noise.
    wide = GAUSSIAN.draw_bounded(Exact(np.zeros(2, np.int64)), 256, Fraction(1), ZeroNoise())
    assert wide.sd**2 == 256**2 + 4


def test_noise_of_a_bound_is_known_before_it_is_drawn() -> None:
    for law, spend, bound in (
        (GAUSSIAN, Fraction(1, 4), 1),
        (GAUSSIAN, Fraction(9), 60),
        (LAPLACE, Fraction(1, 100), 7),
    ):
        drawn = law.draw_bounded(Exact(np.zeros(1, np.int64)), bound, spend, ZeroNoise())
        assert law.bounded_noise(bound, spend) == pytest.approx(drawn.sd, rel=1e-4)


@pytest.mark.parametrize("exacts, sensitivities", [(2, 1), (1, 2), (1, 1), (3, 3)])
def test_a_joint_draw_has_the_numbers_that_it_was_made_for(exacts: int, sensitivities: int) -> None:
    cells, axes = [Exact(np.zeros(4, np.int64))] * exacts, axis_budgets([leaf_strategy(4)])
    with pytest.raises(InternalError, match="a draw of 2 numbers"):
        Laplace(2, 1).draw_together(cells, axes, Fraction(1), [1] * sensitivities, ZeroNoise())


def test_numbers_of_a_joint_draw_keep_their_rows_and_their_sensitivities() -> None:
    law, axes = Laplace(2, 1_000), axis_budgets([leaf_strategy(300), leaf_strategy(40)])
    count, total = (Exact(np.arange(12_000).reshape(300, 40) * scale) for scale in (1, 100))
    exact = law.draw_together([count, total], axes, Fraction(1), [1, 1_000], ZeroNoise())
    assert [view.value.tolist() for view in exact] == [count.tolist(), total.tolist()]
    assert [view.sensitivity for view in exact] == [1, 1_000]
    noise = ExactNoise(insecure_test_entropy(5))
    drawn = law.draw_together([count, total], axes, Fraction(1), [1, 1_000], noise)
    spread = [np.var(view.value - cells) for view, cells in zip(drawn, (count, total), strict=True)]
    stated = [law.variance_at_unit_budget(axes, Fraction(1), bound) for bound in (1, 1_000)]
    assert np.divide(spread, stated) == pytest.approx([1, 1], rel=5 * math.sqrt(3.5 / 12_000))


def test_one_number_alone_has_the_variance_of_its_law() -> None:
    axes = axis_budgets([leaf_strategy(3)])
    units = LAPLACE.budgets(axes, Fraction(1), 7)
    exact = float(laplace_variance(int(units[0]), LAPLACE.denominator(7) * 7))
    assert LAPLACE.variance_at_unit_budget(axes, Fraction(1), 7) == pytest.approx(exact, rel=1e-6)


def test_budgets_of_gaussian_views_are_products() -> None:
    axes = [AxisBudget(np.array(budget), 9, None) for budget in ([1, 2, 3], [5, 7])]
    assert GAUSSIAN.budgets(axes, Fraction(1), 1).tolist() == [[5, 7], [10, 14], [15, 21]]


def test_refined_integers_are_multiples_and_end_where_64_bits_do() -> None:
    far = [5, -7, 1 << 61, -(1 << 61)]
    assert refined(Exact(np.array(far)), 8).tolist() == [40, -56, 1 << 62, -(1 << 62)]


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


def test_nothing_drawn_has_no_numbers() -> None:
    assert nothing_drawn(2).shape == (0, 0)


def test_a_signed_sum_without_another_is_the_number() -> None:
    drawn = published(np.array([4, -3]))
    assert signed_sum(drawn, -1).tolist() == [-4, 3] and signed_sum(drawn, 1).tolist() == [4, -3]


def test_rows_with_null_add_their_own_draw_to_a_count_of_rows_alone() -> None:
    assert Laplace(3, apart=True).widening == 2
    assert Laplace(3, apart=True, counts=NullCount.ROWS).widening == 3
    assert Laplace(3, apart=True).name == "Laplace, 2 numbers a draw, rows with NULL by another"
    assert Laplace(2).name == "Laplace, 2 numbers a draw" and LAPLACE.name == "Laplace"
