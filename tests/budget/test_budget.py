"""Budgets: units and currencies, and what lies at the edge of what is possible."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.budget import (
    DENOMINATOR,
    GRAINS,
    HEADROOM,
    KEY_GRAINS,
    NEIGHBOURS,
    Epsilon,
    Mu2,
    cap_units,
    combine,
    currency_at,
    key_delta_of,
    scaled_denominator,
    share_of_cap,
)
from dpsql.budget.curve import epsilon_of, gaussian_sigma2, mu2_of
from dpsql.errors import InternalError, PrivacyError
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, law_for
from dpsql.noise import discrete


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


def test_the_coarsest_denominator_is_the_last_that_is_taken():
    widest = ((1 << 63) - 1) // (HEADROOM << 12)
    assert scaled_denominator(widest) == 1 << 12
    with pytest.raises(PrivacyError, match="too wide"):
        scaled_denominator(widest + 1)


def test_scaled_denominator_names_the_remedy():
    with pytest.raises(PrivacyError, match=r"too wide.*scale"):
        scaled_denominator(1 << 60)
    with pytest.raises(InternalError):
        scaled_denominator(0)
    assert HEADROOM == discrete.HEADROOM  # the sampler and the denominators count on the same headroom


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


@pytest.mark.parametrize("relation", NEIGHBOURS.values(), ids=lambda relation: relation.name)
def test_a_chain_of_moves_costs_no_more_than_the_charge(relation):
    """Group privacy: k moves of epsilon cost k epsilon, of mu^2 k^2 mu^2; one more move would pass the charge."""
    charge, k = Fraction(1, 7), relation.moves
    assert k * Epsilon().drawn(charge, relation) == charge
    assert k**2 * Mu2(Fraction(1, 10**6)).drawn(charge, relation) == charge
    assert [each.moves for each in NEIGHBOURS.values()] == [1, 2]


def test_each_currency_pays_for_its_own_law_alone():
    mu2 = Mu2(Fraction(1, 10**6))
    assert law_for(Epsilon()) == LAPLACE and law_for(mu2) == GAUSSIAN
    assert LAPLACE.affordable(Fraction(1), Epsilon()) == GAUSSIAN.affordable(Fraction(1), mu2) == 1
    with pytest.raises(PrivacyError, match="delta above 0"):
        GAUSSIAN.affordable(Fraction(1), Epsilon())
    with pytest.raises(PrivacyError, match="for delta 0"):
        LAPLACE.affordable(Fraction(1), mu2)


@pytest.mark.parametrize("delta", [Fraction(0), Fraction(1, 10**6)])
@pytest.mark.parametrize("releases", [1, 3, 7, 365])
def test_so_many_shares_of_a_cap_fit_and_one_more_does_not(delta: Fraction, releases: int) -> None:
    currency = currency_at(delta, Fraction(0))
    share = share_of_cap(Fraction(4), currency, releases)
    limit = currency.counted(Fraction(4))
    assert (share * GRAINS).denominator == 1
    assert releases * share <= limit < (releases + 1) * share
    assert limit - releases * share < Fraction(releases + 1, GRAINS), "less than a grain a share is lost"


@pytest.mark.parametrize("parts", [1, 2, 7, 12])
def test_parts_of_a_key_delta_stay_within_it(parts: int) -> None:
    key_delta, limit = Fraction(1, 10**7), Fraction(701, 1000)
    part = key_delta_of(limit / parts, limit, key_delta)
    assert (part * KEY_GRAINS).denominator == 1
    assert key_delta - Fraction(parts, KEY_GRAINS) < parts * part <= key_delta


@given(st.fractions(Fraction(1, 1000), 5, max_denominator=10**5))
def test_payable_is_the_largest_whole_step_that_an_amount_pays(amount: Fraction) -> None:
    currency = Mu2(Fraction(1, 10**6), Fraction(0))
    room, step = currency.payable(amount), Fraction(1, 10**9)
    assert (room / step).denominator == 1
    assert currency.counted(room) <= amount < currency.counted(room + 2 * step)


def test_grains_hold_usual_parts_of_an_epsilon_exactly() -> None:
    """Decimals, halves, thirds to a 81st: such shares add up to their cap without a grain lost."""
    assert all(
        (Fraction(1, parts) * GRAINS).denominator == 1 for parts in (2**40, 3**4, 10**20, 12, 27 * 365 // 73)
    )
    assert 10**4 * GRAINS < 1.7e38


def test_a_pure_amount_promises_itself() -> None:
    assert Epsilon().promise(Fraction(1, 3)) == (Fraction(1, 3), 0, None)


def test_a_lineage_with_private_keys_promises_what_is_left_of_its_delta() -> None:
    """Keys spend their part of delta; the noise is judged at the rest, in both directions."""
    delta, keys = Fraction(1, 10**6), Fraction(4, 10**7)
    currency, amount = Mu2(delta, keys), Fraction(1, 20)
    assert currency.epsilon(amount) == epsilon_of(amount, delta - keys) > epsilon_of(amount, delta)
    assert currency.counted(Fraction(1)) == mu2_of(Fraction(1), delta - keys) < mu2_of(Fraction(1), delta)
    assert currency.promise(amount).delta == delta


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


def test_amounts_of_a_currency_itself_stay_as_they_are() -> None:
    amount = Fraction(3, 7)
    assert Mu2(Fraction(1, 10**6)).key_delta == 0
    assert Epsilon().counted(amount) == Epsilon().payable(amount) == amount
