"""Budgets: texts that are accepted and refused, shares, units, and the tight conversion to rho."""

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
    cap_units,
    combine,
    delta_of,
    epsilon_of,
    gaussian_rho,
    gaussian_sigma2,
    parse_delta,
    parse_epsilon,
    pure_rho,
    rho_of,
    scaled_denominator,
    share_out,
)
from dpsql.budget.units import HEADROOM
from dpsql.errors import DataError, Error, InterfaceError, InternalError, PrivacyError


@pytest.mark.parametrize(
    "text, epsilon",
    [
        ("1", Fraction(1)),
        ("0.1", Fraction(1, 10)),
        (" 1e-2 ", Fraction(1, 100)),
        ("1/3", Fraction(1, 3)),
        (".5", Fraction(1, 2)),
        ("+2.", Fraction(2)),
        (4, Fraction(4)),
        (Fraction(2, 7), Fraction(2, 7)),
    ],
)
def test_epsilon_is_exact(text, epsilon):
    assert parse_epsilon(text) == epsilon


@pytest.mark.parametrize(
    "text, error",
    [
        ("0", PrivacyError),
        ("-1", PrivacyError),
        (0, PrivacyError),
        ("1e400", PrivacyError),
        ("1001", PrivacyError),
        ("NaN", DataError),
        ("inf", DataError),
        ("-inf", DataError),
        ("abc", DataError),
        ("", DataError),
        ("1/0", DataError),
        ("1e999999999", DataError),  # a million digits must not be computed
        ("1_000", DataError),
        ("9" * 5000, DataError),
        ("\u0661", DataError),  # a digit of another script
    ],
)
def test_epsilon_refused(text, error):
    with pytest.raises(error) as caught:
        parse_epsilon(text)
    message = str(caught.value)
    assert "epsilon" in message and "\n" not in message and len(message) < 200


@pytest.mark.parametrize("value", [0.1, float("nan"), float("inf"), True, None, [1]])
def test_floats_and_other_types_are_refused_with_the_reason(value):
    with pytest.raises(InterfaceError, match="text"):
        parse_epsilon(value)


def test_the_float_message_shows_what_the_float_is():
    with pytest.raises(InterfaceError, match="3602879701896397/36028797018963968"):
        parse_epsilon(0.1)


def test_delta():
    assert parse_delta("0") == 0
    assert parse_delta("1e-6") == Fraction(1, 10**6)
    for text in ("1", "-1e-9", "2", "abc", "nan"):
        with pytest.raises(Error, match="delta"):
            parse_delta(text)


def test_shares_add_up_exactly():
    thirds = {name: Fraction(1, 3) for name in "abc"}
    assert sum(share_out(Fraction(1, 10), thirds, whole=True).values()) == Fraction(1, 10)
    assert share_out(Fraction(2), {"a": Fraction(1, 4)}, whole=False) == {"a": Fraction(1, 2)}


@pytest.mark.parametrize(
    "shares, whole",
    [(["0.5", "0.4"], True), (["0.5", "0.6"], False), (["1", "0"], True), (["1.5", "-0.5"], True)],
)
def test_shares_refused(shares, whole):
    with pytest.raises(PrivacyError, match="share"):
        share_out(Fraction(1), {i: Fraction(s) for i, s in enumerate(shares)}, whole=whole)


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
    log_reached = (
        (orders - 1) * (orders * float(rho) - eps) + orders * np.log1p(-1 / orders) - np.log(orders - 1)
    )
    assert log_reached.min() == pytest.approx(log_delta, abs=1e-6)
    assert (log_reached.min() - log_delta) < 1e-6
    assert delta_of(rho, Fraction(epsilon)) <= float(delta) * (1 + 1e-12)
    assert delta_of(rho * Fraction(1001, 1000), Fraction(epsilon)) > float(delta)


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
    assert gaussian_rho(sigma2, 9) <= rho < gaussian_rho(sigma2 - Fraction(1, 1 << 20), 9)
    assert pure_rho(Fraction(1, 2)) == Fraction(1, 8)
