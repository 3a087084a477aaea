"""Budgets as integers over a common denominator.

A row r of a strategy gets s_r units: the noise on the integer H_r x is discrete Laplace of rate s_r / t.
Adding or removing one count in cell l changes row r by H_rl, so the release is (max_l sum_r |H_rl| s_r /
t)-DP: the largest *path sum* must not exceed the cap, which strategies check when they are made and audits
check on what a file holds (`NoiseDistribution.largest_column`). A measure with sensitivity M multiplies t, not s.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError, PrivacyError

IntArray: TypeAlias = npt.NDArray[np.int64]

DENOMINATOR = 1 << 30
HEADROOM = 512  # the samplers' headroom: a draw exceeds 512 scales with probability below 10^-222
_COARSEST = 1 << 12  # below it one unit is more than 0.02 % of epsilon 1 and splits become coarse


def cap_units(epsilon: Fraction, denominator: int = DENOMINATOR) -> int:
    """Epsilon in whole units, rounded down.

    Args:
        epsilon: what may be spent.
        denominator: units per epsilon 1.

    Returns:
        floor(epsilon * denominator), at least 1.

    Raises:
        PrivacyError: epsilon is less than one unit.

    >>> cap_units(Fraction(1, 10))
    107374182
    """
    cap = epsilon.numerator * denominator // epsilon.denominator
    if cap < 1:
        raise PrivacyError(
            f"epsilon is below one unit, 1/{denominator}", hint="give a larger epsilon or share"
        )
    return cap


def scaled_denominator(sensitivity: int) -> int:
    """The units per epsilon 1 for a measure that one row may change by up to `sensitivity`.

    Args:
        sensitivity: M >= 1 in stored integer units, weights included.

    Returns:
        t: the largest power of two <= 2^30 with 512 t M < 2^63. The sampler's denominator is t M.

    Raises:
        InternalError: M < 1.
        PrivacyError: t would be below 2^12; says what to change.

    >>> scaled_denominator(1) == 2**30, scaled_denominator(25_000 << 20) == 2**19
    (True, True)
    """
    if sensitivity < 1:
        raise InternalError("a measure has no sensitivity", hint="a published measure must be able to change")
    largest = ((1 << 63) - 1) // (HEADROOM * sensitivity)
    denominator = min(DENOMINATOR, 1 << (largest.bit_length() - 1) if largest else 0)
    if denominator < _COARSEST:
        raise PrivacyError(
            "the bounds of a measure are too wide for 64-bit integers at its scale",
            hint="narrow lower and upper, lower its scale, or lower max_ids",
        )
    return denominator


def combine(cap: int, budgets: Sequence[tuple[IntArray, int]]) -> IntArray:
    """Units of every combination of rows, one row per axis.

    Args:
        cap: units that the whole view may spend.
        budgets: per axis the rows' relative integer budgets b (int64[p_i]) and their largest path sum B.

    Returns:
        int64[p_1, ..., p_d]: s = floor(... floor(floor(cap b_1 / B_1) b_2 / B_2) ...); 0 = not measured.

    Raises:
        InternalError: a negative budget, or one above its total.

    **Privacy**: the largest path sum of the product strategy is at most `cap`: along each axis, flooring
    only lowers, and the exact path sum of b_i / B_i is at most 1.

    >>> combine(1000, [(np.array([1, 2]), 3), (np.array([1, 1]), 2)]).tolist()
    [[166, 166], [333, 333]]
    """
    units = np.asarray(cap, dtype=np.int64)
    for relative, total in budgets:
        axis_budget = np.asarray(relative, dtype=np.int64)
        if axis_budget.size and (int(axis_budget.min()) < 0 or int(axis_budget.max()) > total):
            raise InternalError("an axis budget is outside 0 to its total", hint="check the axis strategy")
        units = _times_ratio(units[..., np.newaxis], axis_budget, total, cap)
    return units


def _times_ratio(value: IntArray, part: IntArray, total: int, cap: int) -> IntArray:
    """floor(value * part / total) with 0 <= part <= total, without leaving int64."""
    if cap * total < 1 << 63:
        return value * part // total
    if total * total >= 1 << 63:  # value = quotient * total + rest, and rest * part < total^2
        raise InternalError("an axis budget total is above 2^31", hint="scale the axis budgets down")
    quotient, rest = np.divmod(value, total)
    return quotient * part + rest * part // total
