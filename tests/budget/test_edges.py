"""Budgets at the edge of what is possible, and their words."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpsql.budget import currency_at
from dpsql.budget.curve import mu2_of
from dpsql.errors import PrivacyError


def test_an_epsilon_that_is_used_up_by_rounding_is_too_small() -> None:
    """2^-49 goes to what floats leave open."""
    with pytest.raises(PrivacyError, match="epsilon is too small for Gaussian noise"):
        mu2_of(Fraction(1, 1 << 49), Fraction(1, 10**6))


def test_a_currency_says_its_delta_and_no_other() -> None:
    assert currency_at(Fraction(1, 10**6), Fraction(0)).at_delta == " at delta 1e-06"
    assert currency_at(Fraction(0), Fraction(0)).at_delta == ""
