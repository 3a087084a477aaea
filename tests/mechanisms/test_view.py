"""One view, drawn: noiseless views come back exactly, and the predicted variance is the observed one."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.reconcile import component_variances
from dpsql.matrices.strategy import axis_budgets
from dpsql.mechanisms.axis.dense import dense_strategy, sine_strategy, workload_gram
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.tents import tents
from dpsql.mechanisms.axis.tree import lue_dptree
from dpsql.mechanisms.designs.measurement import mean_square
from dpsql.mechanisms.distribution import GAUSSIAN
from dpsql.mechanisms.offers import draw_view, law_of, leaf_estimates
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy
from dpsql.tree import Workload, kary_tree
from tests.thinned import by_default

pytestmark = pytest.mark.long

STRATEGIES = [
    [lue_dptree(kary_tree(12, 3))],
    [lue_dptree(kary_tree(7, 2)), lue_dptree(kary_tree(9, 3))],
    [tents(40, (6,)), lue_dptree(kary_tree(5, 5))],
    [lue_dptree(kary_tree(3, 2)), lue_dptree(kary_tree(4, 2)), lue_dptree(kary_tree(2, 2))],
]


GAUSSIAN = [
    [dense_strategy(12)],
    [dense_strategy(7), leaf_strategy(3, 2)],
    [sine_strategy(30)],
    [lue_dptree(kary_tree(9, 3), law=GAUSSIAN)],
]


@pytest.mark.parametrize(("strategies", "largest", "spend", "sensitivity"), [
    *((each, 10**9, Fraction(1, 3), 17) for each in STRATEGIES),
    *((each, 10**6, Fraction(1, 40), 5) for each in GAUSSIAN),
])  # fmt: skip
def test_without_noise_the_histogram_comes_back_exactly(strategies, largest, spend, sensitivity):
    histogram = np.random.default_rng(1).integers(-largest, largest, size=[s.leaves for s in strategies])
    view = draw_view(histogram, strategies, spend, sensitivity, ZeroNoise())
    assert np.array_equal(leaf_estimates(view, strategies), histogram)


@pytest.mark.parametrize(
    "strategies", [*GAUSSIAN[:2], *(pytest.param(s, marks=pytest.mark.slow) for s in GAUSSIAN[2:])]
)
def test_gaussian_estimates_spread_as_predicted(strategies):
    check_spread(strategies, lambda x, noise: draw_view(x, strategies, Fraction(1, 40), 3, noise))


@pytest.mark.parametrize("strategies", by_default(STRATEGIES, 1))
@pytest.mark.parametrize(
    ("epsilon", "sensitivity"), [(Fraction(1, 2), 3), pytest.param(Fraction(3), 1, marks=pytest.mark.slow)]
)
def test_laplace_estimates_spread_as_predicted(strategies, epsilon, sensitivity):
    check_spread(strategies, lambda x, noise: draw_view(x, strategies, epsilon, sensitivity, noise))


@pytest.mark.parametrize("strategies", [*STRATEGIES[:2], *GAUSSIAN])
@pytest.mark.parametrize("spend", [Fraction(1, 40), Fraction(4)])
def test_what_a_draw_will_state_is_what_it_states(strategies, spend):
    """Discreteness included, which is a large part where noise is small."""
    histogram = np.zeros([s.leaves for s in strategies], dtype=np.int64)
    view = draw_view(histogram, strategies, spend, 1, ExactNoise(insecure_test_entropy(3)))
    known = law_of(strategies).variance_at_unit_budget(axis_budgets(strategies), spend, 1)
    assert view.variance_at_unit_budget == pytest.approx(known, rel=1e-9)


def check_spread(strategies, draw):
    rng = np.random.default_rng(2)
    noise = ExactNoise(insecure_test_entropy(20251121))
    shape = [s.leaves for s in strategies]
    masks = [rng.integers(0, 2, size=(6, n)).astype(float) for n in shape]
    for mask in masks:
        mask[0] = mask[:, 0] = 1.0
    errors = []
    for _ in range(600):
        view = draw(np.zeros(shape, np.int64), noise)
        estimate = leaf_estimates(view, strategies)
        letters = "abcdef"[: len(shape)]
        terms = ",".join("g" + letter for letter in letters)
        errors.append(np.einsum(f"{letters},{terms}->g", estimate, *masks))
    splits = tuple(AxisSplit(s.solver) for s in strategies)
    ids = tuple(range(len(splits)))
    components = component_variances(
        [(ids, view.variance_at_unit_budget)], {i: s.total for i, s in enumerate(splits)}
    )
    predicted = ProductReading(splits, components).covariance(masks).noise
    observed = np.var(np.array(errors), axis=0)
    # 600 runs of roughly normal errors: a sample variance is within 25% five times in a million
    np.testing.assert_allclose(observed, predicted, rtol=0.25)
    assert abs(np.mean(observed / predicted) - 1) < 0.1


@pytest.mark.parametrize("n", [1, 2, 7, 40])
def test_mean_squares_of_range_sums_are_a_quadratic_form(n: int) -> None:
    rng = np.random.default_rng(n)
    value, lo = rng.normal(3, 1, n), rng.integers(0, n, 30)
    workload = Workload(lo, rng.integers(lo + 1, n + 1), rng.random(30))
    for ranges in (None, workload):
        gram = workload_gram(n, ranges, uniform=0.0)
        assert mean_square(value, ranges) == pytest.approx(value @ gram @ value, rel=1e-12)
