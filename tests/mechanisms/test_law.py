"""The laws of noise: roots, grains, the spread that goes with a number, and what a joint draw refuses."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InternalError
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.strategy import axis_budgets
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, Laplace, refined
from dpsql.mechanisms.integer_rows import AxisBudget, integer_root
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy, laplace_variance
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
    cells, axes = [Exact(np.zeros(4, np.int64))] * exacts, axis_budgets([LeafStrategy(4)])
    with pytest.raises(InternalError, match="a draw of 2 numbers"):
        Laplace(2, 1).draw_together(cells, axes, Fraction(1), [1] * sensitivities, ZeroNoise())


def test_numbers_of_a_joint_draw_keep_their_rows_and_their_sensitivities() -> None:
    law, axes = Laplace(2, 1_000), axis_budgets([LeafStrategy(300), LeafStrategy(40)])
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
    axes = axis_budgets([LeafStrategy(3)])
    units = LAPLACE.budgets(axes, Fraction(1), 7)
    exact = float(laplace_variance(int(units[0]), LAPLACE.denominator(7) * 7))
    assert LAPLACE.variance_at_unit_budget(axes, Fraction(1), 7) == pytest.approx(exact, rel=1e-6)


def test_budgets_of_gaussian_views_are_products() -> None:
    axes = [AxisBudget(np.array(budget), 9, None) for budget in ([1, 2, 3], [5, 7])]
    assert GAUSSIAN.budgets(axes, Fraction(1), 1).tolist() == [[5, 7], [10, 14], [15, 21]]


def test_refined_integers_are_multiples_and_end_where_64_bits_do() -> None:
    far = [5, -7, 1 << 61, -(1 << 61)]
    assert refined(Exact(np.array(far)), 8).tolist() == [40, -56, 1 << 62, -(1 << 62)]
