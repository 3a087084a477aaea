"""Budgets at the edge of what is possible, and their words."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.budget import Epsilon, Mu2, cap_units, combine, currency_at, gaussian_sigma2, key_delta_of
from dpsql.budget.curve import mu2_of
from dpsql.errors import InternalError, PrivacyError


def test_an_epsilon_that_is_used_up_by_rounding_is_too_small() -> None:
    """2^-49 goes to what floats leave open."""
    with pytest.raises(PrivacyError, match="epsilon is too small for Gaussian noise"):
        mu2_of(Fraction(1, 1 << 49), Fraction(1, 10**6))


def test_a_pair_of_which_no_grain_is_left_is_too_small() -> None:
    """mu is about epsilon over 5 here, and mu^2 below 10^-18."""
    with pytest.raises(PrivacyError, match="epsilon and delta are too small"):
        mu2_of(Fraction(1, 10**9), Fraction(1, 10**20))


def test_a_total_whose_square_leaves_64_bits_is_refused() -> None:
    with pytest.raises(InternalError, match=r"above 2\^31"):
        combine(1 << 40, [(np.ones(1, np.int64), 3_100_000_000)])


def test_a_currency_says_its_delta_and_no_other() -> None:
    assert currency_at(Fraction(1, 10**6), Fraction(0)).at_delta == " at delta 1e-06"
    assert currency_at(Fraction(0), Fraction(0)).at_delta == ""


def test_one_unit_of_epsilon_is_two_to_the_minus_thirty() -> None:
    assert cap_units(Fraction(1, 1 << 30)) == 1
    with pytest.raises(PrivacyError):
        cap_units(Fraction(1, 1 << 31))


def test_keys_spend_no_delta_where_none_is_set_aside() -> None:
    assert Mu2(Fraction(1, 10**6)).key_delta == 0


def test_each_currency_s_own_amounts_stay_as_they_are() -> None:
    amount = Fraction(3, 7)
    assert Mu2(Fraction(1, 10**6)).gaussian(amount) == amount
    assert Epsilon().pure(amount) == Epsilon().counted(amount) == amount


def test_a_part_of_the_keys_delta_is_a_multiple_of_a_grain_rounded_down() -> None:
    part = key_delta_of(Fraction(1), Fraction(3), Fraction(1, 10**6))
    assert part == Fraction(333333333333333333333333, 10**30)


def test_payable_is_the_last_grain_that_an_amount_pays_for() -> None:
    currency, grain = Mu2(Fraction(1, 10**6)), Fraction(1, 10**9)
    for amount in (Fraction(1, 1000), Fraction(1, 20), Fraction(9, 7)):
        room = currency.payable(amount)
        assert currency.counted(room) <= amount < currency.counted(room + grain)


def test_a_variance_is_rounded_up_to_the_next_grain() -> None:
    """7/3 + 4, in units of 2^-20."""
    assert gaussian_sigma2(Fraction(3), 7) == Fraction(6640982, 1 << 20)
