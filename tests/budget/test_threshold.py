"""Weights and thresholds of keys against the method's vectors, and T - 1 against the bound."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest

from dpsql.budget import gaussian_sigma2, threshold
from dpsql.budget.threshold import (
    MOST_WEIGHED,
    SQUARED_SENSITIVITY,
    UNIT,
    key_threshold,
    key_weight,
    passing_chance,
)
from dpsql.errors import PrivacyError

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "keys_threshold.json").read_text())


def tail(threshold: int, keys: int, sigma2: Fraction) -> mpmath.mpf:
    """d Q((T - W(d) - 1) / sigma), by another library in 60 digits."""
    with mpmath.workdps(60):
        sigma = mpmath.sqrt(mpmath.mpf(sigma2.numerator) / sigma2.denominator)
        return keys * mpmath.erfc((threshold - key_weight(keys) - 1) / sigma / mpmath.sqrt(2)) / 2


def test_weights_are_those_of_the_vectors_and_no_person_weighs_too_much() -> None:
    assert VECTORS["unit"] == UNIT
    assert {int(keys): key_weight(int(keys)) for keys in VECTORS["weights"]} == {
        int(keys): weight for keys, weight in VECTORS["weights"].items()
    }
    for keys in range(1, 10_001):
        assert key_weight(keys) ** 2 * keys <= SQUARED_SENSITIVITY < (key_weight(keys) + 1) ** 2 * keys


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: case["mu2"] + " " + case["delta"])
def test_a_threshold_is_the_least_that_keeps_the_bound(case: dict[str, Any]) -> None:
    delta, per_unit = Fraction(case["delta"]), case["per_unit"]
    sigma2 = gaussian_sigma2(Fraction(case["mu2"]), SQUARED_SENSITIVITY)
    assert sigma2 == Fraction(case["sigma2"])
    threshold = key_threshold(sigma2, delta, per_unit)
    assert threshold == case["threshold"]
    with mpmath.workdps(60):
        limit = mpmath.mpf(delta.numerator) / delta.denominator
        worst = max(tail(threshold, keys, sigma2) for keys in range(1, per_unit + 1))
        assert worst <= limit
        assert float(worst / limit) == pytest.approx(case["spent_of_delta"], rel=1e-9)
        assert max(tail(threshold - 1, keys, sigma2) for keys in range(1, per_unit + 1)) > limit


@pytest.mark.parametrize("sigma2, delta, per_unit", [(50, "1e-2", 1), (400, "1e-3", 3), (1000, "1e-4", 2)])
def test_exact_sums_of_the_discrete_gaussian_stay_within_delta(
    sigma2: int, delta: str, per_unit: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With weights of a few integers, the chance itself is added up: at most delta, for every number of keys."""
    import dpsql.budget.threshold as threshold

    monkeypatch.setattr(threshold, "SQUARED_SENSITIVITY", 36)
    threshold._chance.cache_clear()
    limit = threshold.key_threshold.__wrapped__(Fraction(sigma2), Fraction(delta), per_unit)
    line = np.arange(-400, 401)
    law = np.exp(-(line**2) / (2 * sigma2))
    law /= law.sum()
    for keys in range(1, per_unit + 1):
        chance = keys * law[line >= limit - threshold.key_weight(keys)].sum()
        assert chance <= float(Fraction(delta))
    threshold._chance.cache_clear()


@pytest.mark.parametrize("delta, per_unit", [("0", 1), ("1e-6", 0), ("1/2", 3), ("1/10", 1)])
def test_without_room_there_is_no_threshold(delta: str, per_unit: int) -> None:
    with pytest.raises(PrivacyError, match="no delta is left"):
        key_threshold(Fraction(10**12), Fraction(delta), per_unit)


def test_deltas_below_a_tenth_have_a_threshold() -> None:
    assert key_threshold(Fraction(10**12), Fraction(99, 1000), 1) > UNIT
    with pytest.raises(PrivacyError, match="no delta is left"):
        key_threshold(Fraction(10**12), Fraction(1, 10**6), MOST_WEIGHED + 1)


def test_thresholds_of_small_deltas_are_the_least() -> None:
    """Tails of 60 digits and more."""
    sigma2, delta = Fraction(10**12), Fraction(1, 10**60)
    threshold = key_threshold(sigma2, delta, 2)
    with mpmath.workdps(200):
        worst = {t: max(tail(t, keys, sigma2) for keys in (1, 2)) for t in (threshold - 1, threshold)}
        assert worst[threshold] <= mpmath.mpf(10) ** -60 < worst[threshold - 1]


def test_a_weight_above_the_threshold_passes_for_certain() -> None:
    delta = Fraction(1, 10**6)
    assert passing_chance(UNIT, UNIT, Fraction(UNIT), delta) == 1
    half = passing_chance(UNIT + 1, UNIT, Fraction(UNIT), delta)
    assert 0 <= half - Fraction(1, 2) <= Fraction(2, 10**36)


@pytest.mark.parametrize("off", ["-0.01", "0.01", "-0.00001", "0.00001"])
def test_a_search_from_a_bad_guess_ends_at_the_same_threshold(
    off: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = (Fraction(UNIT), Fraction(1, 10**6), 3)
    known, quantile = key_threshold(*asked), threshold._quantile
    monkeypatch.setattr(threshold, "_quantile", lambda delta, keys: quantile(delta, keys) * (1 + float(off)))
    assert key_threshold.__wrapped__(*asked) == known
