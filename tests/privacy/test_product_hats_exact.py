"""Product hats spend what they may and no more: exact column sums, in fractions."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.budget import scaled_denominator
from dpsql.errors import InternalError, PrivacyError
from dpsql.mechanisms.family.measurement import Terms
from dpsql.mechanisms.family.plane import (
    ProductHats,
    best_product_hats,
    product_hats,
)
from dpsql.mechanisms.law import LAPLACE
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy

ONE = Terms((), LAPLACE, Fraction(1), 1)
PLANES = {
    "5 x 5": best_product_hats(5, 5, whole=0.5)[0],
    "8 x 13": best_product_hats(8, 13)[0],
    "16 x 17": best_product_hats(16, 17)[0],
    "7 x 11": product_hats(7, 11, 2, 4, 0.6),
}


@pytest.mark.parametrize("name", PLANES)
@pytest.mark.parametrize("epsilon", [Fraction(1, 7), Fraction(1), Fraction(10)])
@pytest.mark.parametrize("sensitivity", [1, 25_000, 3 << 20])
def test_no_cell_spends_more_than_epsilon(name: str, epsilon: Fraction, sensitivity: int):
    strategy = PLANES[name]
    shape = strategy.leaf.shape
    budget = strategy.budgets(Terms((), LAPLACE, epsilon, sensitivity))
    t = scaled_denominator(sensitivity)
    spent = []
    for cell in range(strategy.leaf.size):  # every column of the rows, as measuring really has it
        one = np.zeros(strategy.leaf.size, np.int64)
        one[cell] = sensitivity
        moved = strategy.measure(one.reshape(shape), ())
        scales = [Fraction(int(s), t * sensitivity) for s in budget]
        spent.append(sum((abs(int(m)) * s for m, s in zip(moved, scales, strict=True) if m), Fraction(0)))
    assert max(spent) <= epsilon
    assert min(spent) == max(spent)  # nothing is wasted on one cell rather than another
    assert max(spent) > epsilon * (1 - Fraction(strategy.total + 1, int(budget[0]) * strategy.total))


def test_overspending_rows_cannot_be_built():
    good = PLANES["7 x 11"]
    heavier = good.leaf.copy()
    heavier[3, 4] += 1
    with pytest.raises(InternalError):
        ProductHats(heavier, good.kernel, good.total)
    with pytest.raises(InternalError):
        ProductHats(good.leaf, good.kernel + 1, good.total)


def test_draws_store_the_budgets_and_a_draw_without_noise_is_exact():
    strategy = PLANES["8 x 13"]
    x = np.random.default_rng(1).integers(0, 50, (8, 13))
    exact = strategy.draw(x, ONE, ZeroNoise())
    noisy = strategy.draw(x, ONE, ExactNoise(insecure_test_entropy(2)))
    assert np.array_equal(exact.value, strategy.measure(x, ()))
    assert np.array_equal(exact.budget, strategy.budgets(ONE))
    assert np.all(noisy.budget == noisy.budget[0])
    assert np.count_nonzero(noisy.value != exact.value) > 100


def test_too_little_epsilon_for_integer_budgets_is_refused():
    with pytest.raises(PrivacyError, match="too small"):
        PLANES["5 x 5"].budgets(ONE._replace(spend=Fraction(1, 10**5)))
