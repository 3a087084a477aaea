"""Budgets: units, currencies, and the tight conversion to rho."""

from __future__ import annotations

import math
from fractions import Fraction

import dp_accounting
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import given
from hypothesis import strategies as st

from dpsql import noise
from dpsql.budget import (
    DENOMINATOR,
    NEIGHBOURS,
    Epsilon,
    Rho,
    cap_units,
    combine,
    epsilon_of,
    gaussian_sigma2,
    rho_of,
    scaled_denominator,
)
from dpsql.budget.units import HEADROOM
from dpsql.errors import InternalError, PrivacyError
from dpsql.mechanisms.law import GAUSSIAN, laws_for


def test_caps_are_rounded_down():
    assert cap_units(Fraction(1)) == DENOMINATOR
    assert cap_units(Fraction(1, 3), 10) == 3
    with pytest.raises(PrivacyError, match="below one unit"):
        cap_units(Fraction(1, DENOMINATOR + 1))


@given(st.integers(1, 1 << 43))
def test_scaled_denominator_is_the_largest_that_fits(sensitivity):
    def fits(t):
        return t <= DENOMINATOR and HEADROOM * t * sensitivity < 1 << 63

    try:
        t = scaled_denominator(sensitivity)
    except PrivacyError:
        assert not fits(1 << 12)
        return
    assert t & (t - 1) == 0 and t >= 1 << 12 and fits(t) and not fits(2 * t)


def test_scaled_denominator_names_the_measure():
    with pytest.raises(PrivacyError, match=r"sales\.amount.*lower its scale"):
        scaled_denominator(1 << 60, "sales.amount")
    with pytest.raises(InternalError):
        scaled_denominator(0)
    assert HEADROOM == noise.HEADROOM  # the sampler and the denominators count on the same headroom


def test_combine_is_the_floor_of_floors():
    rng = np.random.default_rng(1)
    for total in (7, 1 << 20, (1 << 31) - 1):
        b, c = rng.integers(0, total, 40, endpoint=True), rng.integers(0, 1 << 20, 30)
        units = combine(1000 << 30, [(b, total), (c, 1 << 20)])
        for i in range(40):
            for j in range(30):
                first = (1000 << 30) * int(b[i]) // total
                assert units[i, j] == first * int(c[j]) // (1 << 20)


def test_combine_refuses():
    with pytest.raises(InternalError):
        combine(5, [(np.array([3]), 2)])
    with pytest.raises(InternalError):
        combine(5, [(np.array([-1]), 2)])
    with pytest.raises(InternalError):
        combine(1 << 40, [(np.array([1]), 1 << 40)])


PAIRS = [("1", "1e-6"), ("0.1", "1e-6"), ("0.5", "1e-9"), ("2", "1e-5"), ("4", "1e-6"), ("10", "1e-8")]


def test_the_headline_conversion():
    rho = rho_of(Fraction(1), Fraction(1, 10**6))
    assert Fraction(243, 10_000) < rho < Fraction(244, 10_000)
    assert float(1 / (2 * rho)) == pytest.approx(20.5, abs=0.05)


@pytest.mark.parametrize("epsilon, delta", PAIRS)
def test_rho_is_a_lower_bound_by_an_independent_certificate(epsilon, delta):
    """Some order alpha proves that rho-zCDP gives (epsilon, delta): searched here on a plain grid."""
    rho, eps, log_delta = rho_of(Fraction(epsilon), Fraction(delta)), float(epsilon), math.log(float(delta))
    orders = 1 + np.geomspace(1e-3, 1e6, 200_001)
    rest = orders * np.log1p(-1 / orders) - np.log(orders - 1)
    reached = ((orders - 1) * (orders * float(rho) - eps) + rest).min()
    assert reached == pytest.approx(log_delta, abs=1e-6) and reached - log_delta < 1e-6
    assert ((orders - 1) * (orders * float(rho) * 1.001 - eps) + rest).min() > log_delta


@pytest.mark.parametrize("epsilon, delta", PAIRS)
def test_conversion_agrees_with_dp_accounting(epsilon, delta):
    """rho-zCDP is a Gaussian of noise multiplier 1 / sqrt(2 rho) to its RDP accountant."""
    rho = rho_of(Fraction(epsilon), Fraction(delta))
    accountant = rdp.RdpAccountant(orders=1 + np.geomspace(1e-2, 1e4, 4_001))
    accountant.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * rho)))
    assert accountant.get_epsilon(float(delta)) == pytest.approx(float(epsilon), rel=1e-4)
    exact = dp_accounting.pld.PLDAccountant()
    exact.compose(dp_accounting.GaussianDpEvent(1 / math.sqrt(2 * rho)))
    assert exact.get_epsilon(float(delta)) < float(epsilon)  # a Gaussian alone is better than its rho says


@given(st.fractions(Fraction(1, 1000), 50, max_denominator=1000), st.integers(1, 12))
def test_there_and_back_never_gains(epsilon, digits):
    delta = Fraction(1, 10**digits)
    rho = rho_of(epsilon, delta)
    back = epsilon_of(rho, delta)
    assert back == pytest.approx(float(epsilon), rel=1e-5)
    assert rho_of(back, delta) >= rho or back < epsilon
    assert rho_of(epsilon + Fraction(1, 10), delta) > rho


def test_rho_without_delta_is_refused():
    for convert in (rho_of, epsilon_of):
        with pytest.raises(PrivacyError, match="delta"):
            convert(Fraction(1), Fraction(0))


def test_gaussian_spends():
    rho = rho_of(Fraction(1), Fraction(1, 10**6))
    sigma2 = gaussian_sigma2(rho, 9)
    assert 9 / (2 * sigma2) <= rho < 9 / (2 * (sigma2 - Fraction(1, 1 << 20)))


@pytest.mark.parametrize("relation", NEIGHBOURS.values(), ids=lambda relation: relation.name)
def test_a_chain_of_moves_costs_no_more_than_the_charge(relation):
    """Group privacy: k moves of epsilon cost k epsilon, of rho k^2 rho; one more move would pass the charge."""
    charge, k = Fraction(1, 7), relation.moves
    assert k * Epsilon().drawn(charge, relation) == charge
    assert k**2 * Rho(Fraction(1, 10**6)).drawn(charge, relation) == charge
    assert [each.moves for each in NEIGHBOURS.values()] == [1, 2]


@given(st.fractions(Fraction(1, 10**6), 50, max_denominator=10**6))
def test_a_pure_draw_fits_into_rho_and_no_larger_one_does(rho):
    bought = Rho(Fraction(1, 10**6)).pure(rho)
    assert bought**2 / 2 <= rho < (bought + Fraction(1, DENOMINATOR)) ** 2 / 2


def test_epsilon_pays_for_no_gaussian_draw():
    assert [law.name for law in laws_for(Epsilon())] == ["Laplace"]
    assert [law.name for law in laws_for(Rho(Fraction(1, 10**6)))] == ["Gaussian", "Laplace"]
    with pytest.raises(PrivacyError, match="delta above 0"):
        GAUSSIAN.bought(Fraction(1), Epsilon())
