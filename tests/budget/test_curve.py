"""The exact Gaussian curve: bounds against other code, and what may not be left out of the accounting.

`delta_of` here adds up the discrete Gaussian itself, so the tests show that the claims hold for what is drawn, and that
without the slack of 4 they do not.
"""

from __future__ import annotations

import math
import time
from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dpsql.budget import curve
from dpsql.budget.curve import GRAIN, SLACK, delta_bounds, epsilon_of, gaussian_sigma2, mu2_of
from dpsql.errors import PrivacyError

pytestmark = pytest.mark.long

MILLIONTH = Fraction(1, 10**6)
PAIRS = [
    ("1", "1e-6", "0.056028963825260487"),
    ("1", "1e-9", "0.033114830490173198"),
    ("0.1", "1e-6", "0.000758707757054767"),
    ("3", "1e-6", "0.419549658558058366"),
]
ZCDP = {"1": 0.024356, "0.1": 0.000321, "3": 0.185070}
"""rho of the tight conversion from zero-concentrated DP, at delta 1e-6."""


@pytest.mark.parametrize("epsilon, delta, mu2", PAIRS)
def test_the_headline_conversions(epsilon: str, delta: str, mu2: str) -> None:
    assert mu2_of(Fraction(epsilon), Fraction(delta)) == Fraction(mu2)


@pytest.mark.parametrize("epsilon, gain", [("1", 1.15021), ("0.1", 1.18161), ("3", 1.13349)])
def test_variance_falls_against_zero_concentrated_accounting(epsilon: str, gain: float) -> None:
    assert float(mu2_of(Fraction(epsilon), MILLIONTH)) / (2 * ZCDP[epsilon]) == pytest.approx(gain, rel=2e-3)


@pytest.mark.parametrize("epsilon", [Fraction(1, 1000), Fraction(3), Fraction(150)])
def test_a_conversion_is_the_last_grain_and_asks_few_wide_values(
    monkeypatch: pytest.MonkeyPatch, epsilon: Fraction
) -> None:
    delta, left, asked = Fraction(1, 10**9), epsilon - Fraction(2, 1 << 50), []

    def over(mu2: Fraction) -> bool:
        return Fraction(delta_bounds(mu2, left, 60)[1]) > (1 - Fraction(1, 1 << 50)) * delta

    bounds = curve.delta_bounds
    monkeypatch.setattr(curve, "delta_bounds", lambda *each: asked.append(each) or bounds(*each))
    mu2 = mu2_of.__wrapped__(epsilon, delta)
    assert not over(mu2)
    assert over(mu2 + Fraction(1, GRAIN))
    assert epsilon_of.__wrapped__(mu2, delta) <= epsilon
    assert len(asked) <= 40, "bisection alone takes 130"


@pytest.mark.parametrize("epsilon", ["0.1", "40", "500", "2000", "9999", "10000", "1000000"])
@pytest.mark.parametrize("power", [1, 6, 15, 99])
def test_every_cap_converts_within_a_second_and_to_the_last_grain(epsilon: str, power: int) -> None:
    """The largest cap of a catalog is 10,000. By sums as wide as e^epsilon, 2,000 took 9.6 s and 9,999 had no end."""
    cap, delta = Fraction(epsilon), Fraction(1, 10**power)
    start = time.process_time()
    mu2 = mu2_of.__wrapped__(cap, delta)
    back = epsilon_of.__wrapped__(mu2, delta)
    assert time.process_time() - start <= 1
    left, most = cap - Fraction(2, 1 << 50), (1 - Fraction(1, 1 << 50)) * delta
    assert (
        exact_delta(mu2, left, power + 60) <= most < exact_delta(mu2 + Fraction(1, GRAIN), left, power + 60)
    )
    assert back <= cap


def test_terms_follow_from_delta_and_not_from_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    operations: list[int] = []

    class Counted(Context):
        def multiply(self, *operands: Decimal) -> Decimal:
            operations.append(self.prec)
            return super().multiply(*operands)

    monkeypatch.setattr(curve, "Context", Counted)
    counts = []
    for epsilon in ("100", "9999", "1000000"):
        operations.clear()
        mu2_of.__wrapped__(Fraction(epsilon), MILLIONTH)
        counts.append(len(operations))
        assert max(operations) <= 250, "digits of the widest number"
    assert max(counts) <= 20_000


def exact_delta(mu2: Fraction, epsilon: Fraction, digits: int = 150) -> Fraction:
    """delta_G by another road: erfc of another library, rounded down."""
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(400):
        mu, e = mpmath.sqrt(mpmath.mpf(mu2.numerator) / mu2.denominator), mpmath.mpf(epsilon.numerator)
        e /= epsilon.denominator
        value = mpmath.ncdf(mu / 2 - e / mu) - mpmath.exp(e) * mpmath.ncdf(-mu / 2 - e / mu)
        return Fraction(int(mpmath.floor(value * mpmath.mpf(10) ** digits)), 10**digits)


@settings(max_examples=60)
@given(
    st.fractions(Fraction(1, 10**4), 40, max_denominator=10**6),
    st.fractions(0, 9, max_denominator=10**4),
)
@example(Fraction(1, 10**4), Fraction(1, 10**4))
def test_bounds_hold_the_exact_delta(mu2: Fraction, deviations: Fraction) -> None:
    epsilon = deviations * Fraction(math.sqrt(mu2))
    low, high = delta_bounds(mu2, epsilon, 60)
    assert Fraction(low) <= exact_delta(mu2, epsilon) <= Fraction(high)
    assert Fraction(high) - Fraction(low) <= Fraction(3, 10**60)


@pytest.mark.parametrize("epsilon, delta, mu2", PAIRS)
def test_a_little_more_would_pass_delta(epsilon: str, delta: str, mu2: str) -> None:
    low, _ = delta_bounds(Fraction(mu2) + Fraction(1, 10**15), Fraction(epsilon), 60)
    assert Fraction(low) > Fraction(delta)


@settings(max_examples=25)
@given(st.fractions(Fraction(1, 1000), 20, max_denominator=1000), st.integers(1, 12))
def test_there_and_back_never_gains(epsilon: Fraction, digits: int) -> None:
    delta = Fraction(1, 10**digits)
    mu2 = mu2_of(epsilon, delta)
    assert (
        epsilon_of(mu2, delta) - Fraction(1, GRAIN)
        < epsilon
        < epsilon_of(mu2 + Fraction(2, GRAIN), delta) + Fraction(1, 10**12)
    )
    assert mu2_of(epsilon + Fraction(1, 10), delta) > mu2


@pytest.mark.parametrize("epsilon, delta, mu2", PAIRS)
def test_another_accountant_agrees(epsilon: str, delta: str, mu2: str) -> None:
    import dp_accounting  # two seconds of imports, and `make quick` runs nothing that needs it

    accountant = dp_accounting.pld.PLDAccountant(value_discretization_interval=1e-4)
    accountant.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(Fraction(mu2))))
    assert accountant.get_epsilon(float(delta)) == pytest.approx(float(epsilon), rel=2e-3)


def test_nothing_spent_promises_nothing() -> None:
    assert epsilon_of(Fraction(0), MILLIONTH) == 0


def test_mu2_without_delta_is_refused() -> None:
    for convert in (mu2_of, epsilon_of):
        with pytest.raises(PrivacyError, match="delta"):
            convert(Fraction(1), Fraction(0))


def test_gaussian_spends() -> None:
    mu2 = mu2_of(Fraction(1), MILLIONTH)
    sigma2 = gaussian_sigma2(mu2, 9)
    assert 9 / (sigma2 - SLACK) <= mu2 < 9 / (sigma2 - SLACK - Fraction(1, 1 << 20))
    assert gaussian_sigma2(Fraction(100), 1) == 5  # the proof needs 5 at least


def discrete(sigma2: float, reach: int) -> np.ndarray:
    """P(N_Z(0, sigma2) = x) for |x| <= reach."""
    weight = np.exp(-(np.arange(-reach, reach + 1, dtype=np.longdouble) ** 2) / (2 * sigma2))
    return weight / weight.sum()


def delta_of(sigma2: float, shift: int, epsilon: float) -> float:
    """The exact delta of one discrete Gaussian whose integer moves by `shift`."""
    reach = int(40 * math.sqrt(sigma2)) + shift
    law = discrete(sigma2, reach)
    there, here = law[shift:], law[: len(law) - shift]
    return float(np.maximum(here - np.exp(np.longdouble(epsilon)) * there, 0).sum())


def test_without_the_slack_the_claim_is_false() -> None:
    """One count at (1, 1e-6), and the same in units of 1 / 64: a lattice effect of order 1 / sigma^2."""
    mu2 = float(mu2_of(Fraction(1), MILLIONTH))
    assert delta_of(1 / mu2, 1, 1.0) == pytest.approx(1.0197e-6, rel=1e-3)
    assert delta_of(64**2 / mu2, 64, 1.0) > 1e-6
    assert delta_of(1 / mu2 + SLACK, 1, 1.0) < 1e-6
    assert 0.999e-6 < delta_of(64**2 / mu2 + SLACK, 64, 1.0) < 1e-6


@pytest.mark.parametrize("seed", range(4))
def test_many_rows_stay_below_the_claim(seed: int) -> None:
    """Rows of several strengths, composed by another accountant's discrete Gaussians, rounded against us."""
    from dp_accounting.pld import privacy_loss_distribution as pld

    rng = np.random.default_rng(seed)
    shifts = rng.integers(1, 7, rng.integers(2, 7)).tolist()
    share, mu2 = rng.dirichlet(np.ones(len(shifts))) + 0.05, 0.25
    share = share / share.sum()
    composed = None
    for shift, part in zip(shifts, share, strict=True):
        sigma = math.sqrt(shift**2 / (mu2 * part) + SLACK)
        one = pld.from_discrete_gaussian_mechanism(
            sigma, sensitivity=shift, value_discretization_interval=5e-5, truncation_bound=14 * int(sigma + 1)
        )
        composed = one if composed is None else composed.compose(one)
    assert composed is not None
    for epsilon in (0.5, 1.0):
        _, claim = delta_bounds(Fraction(mu2), Fraction(epsilon), 30)
        assert composed.get_delta_for_epsilon(epsilon) <= float(claim)


def worst_adaptive(sigma2: int, budget: int, rounds: int, epsilon: float) -> float:
    """The largest delta of an adversary who chooses each integer shift after seeing what was drawn.

    A state is what is left of the budget in squared shifts and the log likelihood ratio so far, a sum of
    (2 x d - d^2) / (2 sigma2): an integer over 2 sigma2. `budget` squared shifts cost budget / (sigma2 - slack).
    """
    reach = int(9 * math.sqrt(sigma2))
    law = discrete(float(sigma2), reach).astype(float)
    widest = rounds * (2 * reach * math.isqrt(budget) + budget)
    ratios = np.arange(-2 * widest, 2 * widest + 1)
    stop = np.maximum(0.0, 1.0 - np.exp(epsilon - ratios / (2 * sigma2)))
    value = [stop] * (budget + 1)
    for _ in range(rounds):
        later, value = value, []
        for left in range(budget + 1):
            choices = [stop]
            for shift in range(1, math.isqrt(left) + 1):
                moves = 2 * np.arange(-reach, reach + 1) * shift + shift * shift
                after = later[left - shift * shift]
                choices.append(sum(p * np.roll(after, -move) for p, move in zip(law, moves, strict=True)))
            value.append(np.maximum.reduce(choices))
    return float(value[budget][2 * widest])


@pytest.mark.parametrize(
    ("sigma2", "budget", "rounds", "expected", "false_without_slack"),
    [(100, 9, 5, 5.492e-5, True), (36, 4, 4, 2.061e-4, False)],
)
def test_an_adaptive_adversary_stays_below_the_claim(
    sigma2: int, budget: int, rounds: int, expected: float, false_without_slack: bool
) -> None:
    epsilon = Fraction(1)
    worst = worst_adaptive(sigma2, budget, rounds, float(epsilon))
    _, claim = delta_bounds(Fraction(budget, sigma2 - SLACK), epsilon, 30)
    low, _ = delta_bounds(Fraction(budget, sigma2), epsilon, 30)
    assert worst <= float(claim)
    assert (worst > float(low)) == false_without_slack
    assert worst == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize(("slack", "bound"), [(0.3, 1.1e-2), (0.5, 2.1e-4), (1.0, 1.1e-8)])
def test_a_discrete_gaussian_is_a_rounded_continuous_one_up_to_a_factor(slack: float, bound: float) -> None:
    """The lemma of the proof where its factor can be seen: sigma^2 = 5, slacks far below 4."""
    sigma2, reach, fine = 5.0, 12, 400
    law = discrete(sigma2, 80).astype(float)[80 - reach : 80 + reach + 1]
    y = np.arange(-reach, reach + 1)
    x = np.arange(-60 * fine, 60 * fine + 1) / fine
    variance = sigma2 - slack
    density = np.exp(-(x**2) / (2 * variance)) / math.sqrt(2 * math.pi * variance) / fine
    theta = sum(np.exp(-((k - x) ** 2) / (2 * slack)) for k in range(-70, 71))
    rounded = [float((density * np.exp(-((k - x) ** 2) / (2 * slack)) / theta).sum()) for k in y]
    assert np.abs(np.log(rounded / law)).max() <= bound


@pytest.mark.parametrize("digits", [12, 40, 80])
@pytest.mark.parametrize("tenths", [0, 1, 7, 30, 64, 91, 144, 200, 333])
def test_mills_ratio_errs_less_than_it_says(digits: int, tenths: int) -> None:
    """Both series, beside the argument where one takes over from the other, against 400 digits of mpmath."""
    mpmath = pytest.importorskip("mpmath")
    x = Decimal(tenths) / 10
    value = curve._mills(x, digits, curve._context_of(digits, float(x)))
    with mpmath.workdps(400):
        exact = mpmath.ncdf(-mpmath.mpf(tenths) / 10) / mpmath.npdf(mpmath.mpf(tenths) / 10)
        assert abs(mpmath.mpf(str(value)) - exact) < mpmath.mpf(10) ** -digits


@pytest.mark.parametrize("exponent", [16, 20, 40])
def test_the_smallest_epsilon_is_two_losses_of_the_grid(exponent: int) -> None:
    smallest = math.ceil(2 * curve._H * GRAIN)
    assert epsilon_of(Fraction(1, 10**exponent), MILLIONTH) == Fraction(smallest, GRAIN)


@pytest.mark.parametrize(
    "mu2, epsilon",
    [("400", "1"), ("2500", "30"), ("400", "200"), ("10000", "4000"), ("1e-6", "1e-3"), ("4", "0")],
)
@pytest.mark.parametrize("digits", [15, 60])
def test_bounds_of_delta_hold_it_where_much_cancels(mu2: str, epsilon: str, digits: int) -> None:
    low, high = delta_bounds(Fraction(mu2), Fraction(epsilon), digits)
    exact = exact_delta(Fraction(mu2), Fraction(epsilon))
    assert Fraction(low) <= exact + Fraction(1, 10**150) and exact <= Fraction(high)
    width = (Fraction(high) - Fraction(low)) * 10**digits
    assert width == pytest.approx(2, rel=1e-9)  # but for the last place


@pytest.mark.parametrize("epsilon", ["1e-16", "1776e-18"])
def test_an_epsilon_of_which_nothing_is_left_is_refused(epsilon: str) -> None:
    with pytest.raises(PrivacyError, match="too small for Gaussian noise"):
        mu2_of(Fraction(epsilon), MILLIONTH)


def test_an_epsilon_of_which_next_to_nothing_is_left_is_delta_s() -> None:
    epsilon = Fraction(1777, GRAIN)
    mu2 = mu2_of(epsilon, MILLIONTH)
    assert mu2 > 0 and epsilon_of(mu2, MILLIONTH) == epsilon


@pytest.mark.parametrize("mu2", ["0.05", "1", "17"])
def test_an_epsilon_is_the_least_that_the_curve_proves(mu2: str) -> None:
    """Less what the integer noise may lose of it, 2 H, it has at most (1 - H) delta; a grain less has more."""
    epsilon, lost = epsilon_of(Fraction(mu2), MILLIONTH), 2 * curve._H
    limit = (1 - curve._H) * MILLIONTH
    assert exact_delta(Fraction(mu2), epsilon - lost) <= limit
    assert exact_delta(Fraction(mu2), epsilon - Fraction(1, GRAIN) - lost) > limit * (1 - Fraction(1, 10**20))


def test_a_delta_far_below_is_a_number() -> None:
    assert -math.inf < curve._over(Fraction(1, 10**12), Fraction(10), MILLIONTH) < 0
