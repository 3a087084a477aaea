"""Exact budgets: currencies whose amounts add up, and amounts as integer units of a draw.

| here | there | unit |
|---|---|---|
| `cap` | floor(eps t) | 1 / t of epsilon per unit of count |
| `units` (s) | eps_r = s_r / t | the same |
| `mu2` | squared parameter of the Gaussian pair N(0, 1), N(mu, 1) | |

No float takes part in what is spent: a float-normalised split overspends in about four trees of ten.

**Currencies**: epsilon where delta is 0, mu^2 under a delta. A `Currency` answers for its amounts: how much an epsilon
of the catalog is, what noise a charge may be drawn for under a neighbour relation, and what people are told.
`mechanisms.distribution.law_for` says which noise it pays for.

mu^2 is what discrete Gaussians cost on the exact Gaussian curve (`curve`). It adds up over draws and releases, also
when what is asked next follows from what was seen. A lineage has one currency, fixed when it is opened: taking the
better of two afterwards would only promise twice the delta.

**Units**: budgets as integers over a common denominator. A row r of a strategy gets s_r units: the noise on the integer
H_r x is discrete Laplace of rate s_r / t. Adding or removing one count in cell l changes row r by H_rl, so the release
is (max_l sum_r |H_rl| s_r / t)-DP: the largest *path sum* must not exceed the cap, which strategies check when they are
made and audits check on what a file holds (`Laplace.largest_column`). A measure with sensitivity M multiplies
t, not s.

**Source**: docs/method/rows.md, "From epsilon and delta to mu^2".
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from dpsql.budget.curve import epsilon_of, mu2_of
from dpsql.errors import InternalError, PrivacyError

_ROOM_GRAIN = 10**9


class Neighbours(NamedTuple):
    """Neighbour relation: data sets within a few moves of one unit.

    Args:
        name: the catalog's word.
        moves: units that are added or removed on the way from one to the other.
    """

    name: str
    moves: int


NEIGHBOURS = {
    relation.name: relation for relation in (Neighbours("add_remove", 1), Neighbours("replace_one", 2))
}


class Promised(NamedTuple):
    """Privacy promise of a release: epsilon at delta, and under a delta the mu^2 that implies it."""

    epsilon: Fraction
    delta: Fraction
    mu2: Fraction | None = None


@dataclass(frozen=True)
class Epsilon:
    """Pure differential privacy: epsilons add up. Amounts are epsilons; methods as of `Mu2`."""

    name: ClassVar[str] = "epsilon"
    delta: ClassVar[Fraction] = Fraction(0)
    at_delta: ClassVar[str] = ""

    def counted(self, amount: Fraction, /) -> Fraction:
        return amount

    epsilon = payable = counted

    def drawn(self, charge: Fraction, neighbours: Neighbours) -> Fraction:
        """A part for each move."""
        return charge / neighbours.moves

    def promise(self, amount: Fraction) -> Promised:
        return Promised(amount, self.delta)


@dataclass(frozen=True)
class Mu2:
    """Gaussian differential privacy, told as an epsilon at one delta: mu^2 adds up, epsilons do not.

    Args:
        delta: of the lineage, at which its epsilons are meant.
        key_delta: the part of it that choosing keys may spend; the curve has the rest.

    >>> mu2 = Mu2(Fraction(1, 10**6))
    >>> mu2.payable(mu2.counted(Fraction(4))) <= 4 <= mu2.epsilon(mu2.counted(Fraction(4))) + Fraction(1, 10**9)
    True
    """

    delta: Fraction
    key_delta: Fraction = Fraction(0)
    name: ClassVar[str] = "mu2"

    @property
    def at_delta(self) -> str:
        """` at delta 1e-06`."""
        return f" at delta {float(self.delta):g}"

    def counted(self, epsilon: Fraction, /) -> Fraction:
        """The largest amount that implies an epsilon, by the conversion that releases use."""
        return mu2_of(epsilon, self.delta - self.key_delta)

    def epsilon(self, amount: Fraction, /) -> Fraction:
        """The epsilon that an amount implies, rounded up."""
        return epsilon_of(amount, self.delta - self.key_delta)

    def payable(self, amount: Fraction, /) -> Fraction:
        """The largest epsilon of one more release that an amount still holds, rounded down to steps of 10^-9."""
        room = Fraction(math.floor(self.epsilon(amount) * _ROOM_GRAIN), _ROOM_GRAIN)
        return room if room <= 0 or self.counted(room) <= amount else room - Fraction(1, _ROOM_GRAIN)

    def drawn(self, charge: Fraction, neighbours: Neighbours) -> Fraction:
        """The amount that noise may be drawn for, one unit added or removed, if a charge covers all neighbours.

        **Privacy**: costs grow with the square of the moves: a chain of `moves` steps that each cost at most this costs
        at most the charge.
        """
        return charge / neighbours.moves**2

    def promise(self, amount: Fraction) -> Promised:
        """Promise of a release that spent an amount: epsilon at delta, and mu^2, which implies one at every delta."""
        return Promised(self.epsilon(amount), self.delta, amount)


Currency: TypeAlias = Epsilon | Mu2
"""Currency of a lineage: amounts that add up to the promise of all its releases together.

**Source**: docs/method/rows.md, "How budgets add up".
"""

GRAINS = 2**40 * 3**4 * 5**20
"""Parts of 1 that ledgers count: about 8e27, so that the largest cap, 10^4, stays far inside HUGEINT (1.7e38)."""


def share_of_cap(cap: Fraction, currency: Currency, releases: int) -> Fraction:
    """Charge of each of some releases of one lineage that share its cap equally.

    Args:
        cap: an epsilon.
        currency: of the lineage.
        releases: how many.

    Returns:
        An amount in the lineage's currency: the cap's, divided, rounded down to a whole grain. So many fit, one more
        does not.

    >>> share_of_cap(Fraction(4), Epsilon(), 12)
    Fraction(1, 3)
    """
    return Fraction(math.floor(currency.counted(cap) * GRAINS) // releases, GRAINS)


def currency_at(delta: Fraction, key_delta: Fraction) -> Currency:
    """The currency of a lineage whose epsilons are meant at a delta, of which choosing keys may spend a part."""
    return Mu2(delta, key_delta) if delta else Epsilon()


KEY_GRAINS = 10**30
"""Parts of 1 in which ledgers count the delta of chosen keys: fine beside every delta, and far inside HUGEINT."""


def key_delta_of(charge: Fraction, limit: Fraction, key_delta: Fraction) -> Fraction:
    """Part of its lineage's `key_delta` that a release may spend, in proportion to its charge.

    Args:
        charge: of the release, in the lineage's currency.
        limit: the cap in the same currency.
        key_delta: of the lineage.

    Returns:
        A multiple of 10^-30, rounded down, so that the parts of all releases stay within `key_delta`.
    """
    return Fraction(math.floor(key_delta * charge / limit * KEY_GRAINS), KEY_GRAINS)


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
