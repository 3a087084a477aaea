"""Noise: shapes, refusals, exact coins, variances, and the marks on sources that are not private."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.noise import ExactNoise, ZeroNoise, discrete, insecure_test_entropy, os_entropy
from dpsql.noise.discrete import (
    _exact_coin,
    _filtered_exp_coin,
    below,
    discrete_gaussian,
    discrete_laplace,
    exp_coin,
    laplace_variance,
)


class Script:
    """Entropy that replays given 63-bit words."""

    def __init__(self, words):
        self.words = list(words)

    def __call__(self, size):
        count = size // 8
        taken, self.words = self.words[:count], self.words[count:]
        return (np.array(taken, dtype=np.uint64) << np.uint64(1)).astype("<u8").tobytes()


def test_shapes_and_types():
    units = np.arange(1, 13, dtype=np.int64).reshape(3, 4)
    noise = discrete_laplace(units, 100, os_entropy())
    assert noise.shape == (3, 4) and noise.dtype == np.int64
    assert discrete_laplace(np.empty(0, dtype=np.int64), 100, os_entropy()).shape == (0,)
    assert discrete_gaussian(Fraction(5), 7, os_entropy()).shape == (7,)
    assert discrete_gaussian(Fraction(5), 0, os_entropy()).size == 0


def test_the_test_source_gives_the_bytes_of_its_generator():
    source, generator = insecure_test_entropy(5), np.random.default_rng(5)
    for size in (8, 3, 4, 12, 1, 16_000, 16_390, 5, 40_000, 8):
        assert source(size) == generator.bytes(size)


def test_more_draws_than_one_block():
    noise = discrete_laplace(np.full(300_001, 1 << 20, dtype=np.int64), 1 << 30, insecure_test_entropy(1))
    assert noise.size == 300_001
    assert abs(noise.std() / float(laplace_variance(1 << 20, 1 << 30)) ** 0.5 - 1) < 0.02
    assert discrete_gaussian(Fraction(9), 140_000, insecure_test_entropy(1)).size == 140_000


@pytest.mark.parametrize("units, denominator", [([0], 8), ([-1], 8), ([1], 0), ([1], 1 << 54)])
def test_laplace_refuses(units, denominator):
    with pytest.raises(InternalError, match=";"):
        discrete_laplace(np.array(units), denominator, os_entropy())


@pytest.mark.parametrize("sigma2", [Fraction(0), Fraction(-1), Fraction(1, 1 << 70), Fraction(1 << 110)])
def test_gaussian_refuses(sigma2):
    with pytest.raises(InternalError, match=";"):
        discrete_gaussian(sigma2, 1, os_entropy())


def test_largest_denominator_and_variance_stay_in_int64():
    top = (1 << 54) - 1
    noise = discrete_laplace(np.full(20_000, 1, dtype=np.int64), top, insecure_test_entropy(2))
    assert abs(np.abs(noise.astype(float)).mean() / top - 1) < 0.05
    wide = discrete_gaussian(Fraction(1 << 100, 3), 20_000, insecure_test_entropy(3))
    assert abs(wide.astype(float).std() / (2**100 / 3) ** 0.5 - 1) < 0.05


def test_an_entropy_source_that_runs_dry_is_noticed():
    with pytest.raises(InternalError, match="too few bytes"):
        discrete_laplace(np.ones(4, dtype=np.int64), 8, lambda size: b"\0" * (size - 1))


def test_uniform_integers_reject_the_incomplete_block():
    top = 1 << 63
    last_whole = top - top % 3 - 1
    assert below(3, 1, Script([last_whole])).tolist() == [last_whole % 3]
    assert below(3, 1, Script([last_whole + 1, 4])).tolist() == [1]  # the first word is drawn again
    assert below(4, 2, Script([7, 8])).tolist() == [3, 0]


def test_exp_coin_by_enumeration():
    """Over all rolls of the first four uniforms heads have the series of e^(-u/t), in fractions."""
    numerator, denominator, depth = 2, 3, 4
    chance = Fraction(0)
    rolls = [range(denominator * k) for k in range(1, depth + 1)]
    for roll in itertools.product(*rolls):
        heads = list(itertools.takewhile(lambda x: x < numerator, roll))
        if len(heads) == depth:
            continue  # undecided within the depth; at most x^4 / 4!
        coin = exp_coin(np.array([numerator]), denominator, Script(roll))
        assert bool(coin[0]) == (len(heads) % 2 == 0)
        chance += Fraction(int(coin[0]), math.prod(len(r) for r in rolls))
    exact = math.exp(-numerator / denominator)
    assert exact - (numerator / denominator) ** 4 / 24 <= chance <= exact


def test_exact_coin_draws_bits_until_it_is_decided():
    half = 1 << 52
    assert _exact_coin(half - 1, Fraction(1, 2), lambda size: b"\xff" * size)
    assert not _exact_coin(half, Fraction(1, 2), lambda size: b"\0" * size)
    third = (1 << 53) // 3  # the first 53 bits of 1/3: open until more bits come
    assert _exact_coin(third, Fraction(1, 3), lambda size: b"\0" * size)
    assert not _exact_coin(third, Fraction(1, 3), lambda size: b"\xff" * size)


def test_the_exact_path_of_the_filter_has_the_same_law():
    """With the slack as wide as the coin every coin is decided by fractions; the law stays e^-g."""
    size, gamma = 20_000, Fraction(3, 10)
    exponent, slack, rounds = np.full(size, 0.3), np.ones(size), np.ones(size)
    coins = _filtered_exp_coin(
        np.arange(size), exponent, slack, rounds, lambda item: gamma, insecure_test_entropy(4)
    )
    from scipy import stats  # half a second of imports that `make quick` pays for one line

    assert stats.binomtest(int(coins.sum()), size, math.exp(-0.3)).pvalue > 1e-6


@pytest.mark.parametrize("rate", [5.0, 1.0, 0.1, 1e-3])
def test_laplace_variance_is_the_sum(rate):
    x = np.arange(1, 60_000)
    with np.errstate(under="ignore"):
        weight = np.exp(-rate * x)
    total = 2 * (weight * x.astype(float) ** 2).sum() / (1 + 2 * weight.sum())
    assert laplace_variance(rate, 1) == pytest.approx(total, rel=1e-9)


def test_laplace_variance_at_the_ends():
    assert laplace_variance(1, 1 << 54) == pytest.approx(2.0 * 4.0**54, rel=1e-9)
    assert laplace_variance(5_000, 1) == 0.0
    # 2/a^2 is 8 % high at a = 1
    assert float(laplace_variance(1, 1)) == pytest.approx(2.0 / 1.08614, rel=1e-4)


def test_marks():
    assert not ExactNoise(os_entropy()).insecure
    assert ExactNoise(insecure_test_entropy(1)).insecure
    assert ZeroNoise().insecure
    assert not ZeroNoise().laplace(np.ones((2, 3), dtype=np.int64), 4).any()
    assert ZeroNoise().gaussian(Fraction(4), 5).tolist() == [0] * 5


def test_test_entropy_repeats_and_the_real_one_does_not():
    units = np.full(50, 1, dtype=np.int64)
    first = ExactNoise(insecure_test_entropy(1)).laplace(units, 1 << 20)
    assert np.array_equal(first, ExactNoise(insecure_test_entropy(1)).laplace(units, 1 << 20))
    one, two = (ExactNoise(os_entropy()).gaussian(Fraction(10**9), 50) for _ in range(2))
    assert not np.array_equal(one, two)


@pytest.mark.parametrize("sigma2", [Fraction(3, 2), Fraction(9)])
def test_a_gaussian_decided_by_fractions_has_its_law(
    sigma2: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Floats decide nearly all coins. With a slack of a quarter fractions decide most, and the law stays."""
    monkeypatch.setattr(discrete, "_SLACK", 0.25)
    size = 20_000
    draws = discrete_gaussian(sigma2, size, insecure_test_entropy(19))
    points = np.arange(-40, 41)
    law = np.exp(-(points**2) / (2 * float(sigma2)))
    law /= law.sum()
    assert np.var(draws) == pytest.approx(float(law @ points**2), rel=5 * math.sqrt(2 / size))
    for point in range(5):
        chance = law[40 + point]
        assert abs(np.mean(draws == point) - chance) < 5 * math.sqrt(chance / size)


AWKWARD = [
    Fraction(1, 3),
    Fraction(10**9, 7),
    Fraction(1 << 100, 3),
    Fraction(5, 1 << 19),
    Fraction(355, 113),
]


@pytest.mark.parametrize("sigma2", AWKWARD)
def test_a_gaussian_exponent_is_as_near_as_its_filter_counts_on(
    sigma2: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two roundings are left for the filter, and floats use a good part of the slack: it is not slack for show."""
    asked = []

    def judged(exponent, slack, exact, entropy):
        asked.append((exponent, slack, exact))
        return np.ones(exponent.size, dtype=np.bool_)

    monkeypatch.setattr(discrete, "rational_coin", judged)
    discrete_gaussian(sigma2, 3_000, insecure_test_entropy(7))
    errors = []
    for exponent, slack, exact in asked:
        for index in range(exponent.size):
            error = abs(Fraction(float(exponent[index])) - exact(index))
            assert error + 2 * Fraction(float(exponent[index])) / (1 << 53) <= Fraction(float(slack[index]))
            errors.append(error and error / Fraction(float(slack[index])))
    assert len(errors) >= 3_000
    if sigma2.denominator & (sigma2.denominator - 1):
        assert max(errors) > Fraction(1, 1000)


def test_the_smallest_variance_is_the_grain() -> None:
    grain = Fraction(1, 1 << 20)
    assert not discrete_gaussian(grain, 5, insecure_test_entropy(1)).any()
    with pytest.raises(InternalError, match="positive variance"):
        discrete_gaussian(grain - Fraction(1, 1 << 60), 5, os_entropy())


def test_a_coin_whose_first_bits_hold_its_chance_is_never_decided_by_them() -> None:
    """e^-(1/4): the word at 1/4 says tails at once, so the coin comes up, and the word below it is heads."""
    chance = Fraction(1, 4)

    def coin(*word: int) -> bool:
        script = Script([number << 10 for number in word])
        one, width = np.ones(1), np.full(1, 2.0**-60)
        came_up = _filtered_exp_coin(np.arange(1), one / 4, width, one, lambda item: chance, script)
        assert not script.words
        return bool(came_up[0])

    assert coin(1 << 51)
    assert not coin((1 << 51) - 1, (1 << 53) - 1)  # heads, then tails
