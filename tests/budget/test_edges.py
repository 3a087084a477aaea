"""Budgets at the edge of what is possible, and their words."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpsql.budget import Mu2, cap_units, currency_at
from dpsql.budget.curve import mu2_of
from dpsql.errors import PrivacyError


def test_an_epsilon_that_is_used_up_by_rounding_is_too_small() -> None:
    """2^-49 goes to what floats leave open."""
    with pytest.raises(PrivacyError, match="epsilon is too small for Gaussian noise"):
        mu2_of(Fraction(1, 1 << 49), Fraction(1, 10**6))


def test_a_currency_says_its_delta_and_no_other() -> None:
    assert currency_at(Fraction(1, 10**6), Fraction(0)).at_delta == " at delta 1e-06"
    assert currency_at(Fraction(0), Fraction(0)).at_delta == ""


def test_one_unit_of_epsilon_is_two_to_the_minus_thirty() -> None:
    assert cap_units(Fraction(1, 1 << 30)) == 1
    with pytest.raises(PrivacyError):
        cap_units(Fraction(1, 1 << 31))


def test_keys_spend_no_delta_where_none_is_set_aside() -> None:
    assert Mu2(Fraction(1, 10**6)).key_delta == 0
