"""The noise has the law that it claims: chi-square per parameter set, and residuals over one publish."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from dpsql.noise import insecure_test_entropy
from dpsql.noise.discrete import discrete_gaussian, discrete_laplace, laplace_variance
from tests.thinned import by_default

LAPLACE = [  # (units, denominator): rates from 5 down to 1e-3, powers of two and not
    (5, 1), (1, 1), (2, 3), (1, 7), (3, 64), (1 << 29, 1 << 30), (12_345_678, 1 << 30), (1_073_742, 1 << 30),
    (999, 1_000_003 * 25), (1 << 20, (1 << 26) * 12_345),
]  # fmt: skip
GAUSSIAN = [
    Fraction(1, 10), Fraction(1, 2), Fraction(1), Fraction(7, 3), Fraction(20), Fraction(12_345, 7), Fraction(10**6),
]  # fmt: skip
LEAST_P = 1e-6


def laplace_p(units: int, denominator: int, draws: int, seed: int) -> float:
    noise = discrete_laplace(np.full(draws, units, dtype=np.int64), denominator, insecure_test_entropy(seed))
    rate = units / denominator
    return chi_square(noise, stats.dlaplace(rate).cdf, laplace_variance(units, denominator) ** 0.5)


def gaussian_p(sigma2: Fraction, draws: int, seed: int) -> float:
    noise = discrete_gaussian(sigma2, draws, insecure_test_entropy(seed))
    reach = int(40 * float(sigma2) ** 0.5) + 40
    support = np.arange(-reach, reach + 1)
    with np.errstate(under="ignore"):
        weight = np.exp(-(support.astype(float) ** 2) / (2 * float(sigma2)))
    below = np.cumsum(weight) / weight.sum()

    def cdf(x: np.ndarray) -> np.ndarray:
        return below[np.clip(x.astype(int) + reach, 0, 2 * reach)]

    return chi_square(noise, cdf, float((weight * support**2).sum() / weight.sum()) ** 0.5)


def chi_square(noise, cdf, deviation: float) -> float:
    """p value over about 60 bins of whole numbers, each with at least 5 expected draws."""
    edges = np.unique(np.round(np.linspace(-4, 4, 61) * float(deviation))).astype(np.int64)
    chance = np.diff(np.concatenate([[0.0], cdf(edges), [1.0]]))
    seen = np.bincount(np.searchsorted(edges, noise), minlength=edges.size + 1)
    expected = chance * noise.size
    rare = expected < 5
    if rare.any():
        expected = np.append(expected[~rare], expected[rare].sum())
        seen = np.append(seen[~rare], seen[rare].sum())
        expected, seen = expected[expected > 1e-9], seen[expected > 1e-9]
    return float(stats.chisquare(seen, expected * seen.sum() / expected.sum()).pvalue)


def sizes(parameters, quick):
    """Each parameter by a million draws in `make slow`, and some by a tenth of them."""
    return [*((each, 100_000) for each in quick), *by_default(((each, 1_000_000) for each in parameters), 0)]


@pytest.mark.parametrize(("rate", "draws"), sizes(LAPLACE, LAPLACE[1:8:3]))
def test_laplace_law(rate, draws):
    assert laplace_p(*rate, draws, seed=7) > LEAST_P


@pytest.mark.parametrize(("sigma2", "draws"), sizes(GAUSSIAN, GAUSSIAN[:6:2]))
def test_gaussian_law(sigma2, draws):
    assert gaussian_p(sigma2, draws, seed=8) > LEAST_P


def test_the_chi_square_finds_a_wrong_law():
    """A test that cannot fail shows nothing: rate 1.05 must not pass for rate 1."""
    noise = discrete_laplace(np.full(100_000, 105, dtype=np.int64), 100, insecure_test_entropy(3))
    assert chi_square(noise, stats.dlaplace(1.0).cdf, float(laplace_variance(1, 1)) ** 0.5) < LEAST_P


def residual_score(noise: np.ndarray, units: np.ndarray, denominator: int) -> float:
    """How many deviations the sum of |noise| is off, for the scales that were claimed."""
    rate = units / denominator
    mean = 1 / np.sinh(rate)  # E|X| of the discrete Laplace
    spread = laplace_variance(units, denominator) - mean**2
    return float((np.abs(noise) / mean - 1).sum() / np.sqrt((spread / mean**2).sum()))


@pytest.mark.parametrize("percent, found", [(100, False), (105, True), (95, True)])
def test_residuals_of_one_publish_find_a_scale_that_is_5_percent_off(percent, found):
    claimed = np.random.default_rng(5).integers(1 << 18, 1 << 28, 131_071)
    noise = discrete_laplace(claimed * percent // 100, 1 << 30, insecure_test_entropy(6))
    p = 2 * stats.norm.sf(abs(residual_score(noise, claimed, 1 << 30)))
    assert (p < 1e-10) == found


def test_draws_are_independent_of_each_other():
    """Neither neighbours in an array nor the two sides of a draw share their randomness."""
    noise = discrete_laplace(np.full(200_000, 1 << 24, dtype=np.int64), 1 << 30, insecure_test_entropy(9))
    for lag in (1, 2, 100_000):
        r = np.corrcoef(noise[:-lag], noise[lag:])[0, 1]
        assert abs(r) < 6 / (noise.size - lag) ** 0.5
    assert abs(noise.mean()) < 6 * float(laplace_variance(1 << 24, 1 << 30) / noise.size) ** 0.5
