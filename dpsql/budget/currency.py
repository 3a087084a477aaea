"""What is spent, and how it adds up: epsilon where delta is 0, rho under a delta.

A `Currency` answers for its amounts: how much an epsilon of the catalog is, what noise a charge may be drawn for
under a neighbour relation, and what people are told. Which laws a currency pays for is said by
`mechanisms.law.laws_for`.

rho-zCDP implies (epsilon, delta)-DP with delta = min over alpha > 1 of
exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha - 1).
*Any* alpha certifies a pair. Floats only look for a good alpha; what is returned is computed for that alpha
in decimal arithmetic of 60 digits, moved by a margin to the safe side and rounded there.

**Source**: docs/method/noise.md, "From epsilon and delta to rho"; Bun, Steinke (2016) for the currency.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from math import isqrt
from typing import ClassVar, NamedTuple, Protocol

from dpsql.budget.units import DENOMINATOR
from dpsql.errors import PrivacyError

_DIGITS = Context(prec=60)
_MARGIN = Decimal(10) ** -40  # ten to the 15 or more times what 60 digits can be off by
_GRAIN = 10**18  # rho and epsilon are multiples of 10^-18: short texts, exact in the ledger
_ROOM_GRAIN = 10**9
_SIGMA_GRAIN = 1 << 20


class Neighbours(NamedTuple):
    """Which sets of rows must not be told apart: those that are a few moves of one unit away.

    Args:
        name: the catalog's word.
        moves: units that are added or removed on the way from one to the other.
    """

    name: str
    moves: int


NEIGHBOURS = {each.name: each for each in (Neighbours("add_remove", 1), Neighbours("replace_one", 2))}


class Promised(NamedTuple):
    """What a release promises: epsilon at delta, and the rho that implies it under a delta."""

    epsilon: Fraction
    delta: Fraction
    rho: Fraction | None = None


class Currency(Protocol):
    """What a lineage counts: amounts that add up to what all releases together promise.

    **Source**: docs/method/noise.md, "How budgets add up".
    """

    @property
    def name(self) -> str:
        """What files call it."""

    @property
    def delta(self) -> Fraction:
        """The delta at which every epsilon is meant."""

    @property
    def at_delta(self) -> str:
        """What follows an epsilon in a sentence."""

    def counted(self, epsilon: Fraction, /) -> Fraction:
        """The largest amount that implies an epsilon, by the conversion that releases use."""

    def epsilon(self, amount: Fraction, /) -> Fraction:
        """The epsilon that an amount implies, rounded up."""

    def room(self, amount: Fraction, /) -> Fraction:
        """The largest epsilon of one more release that an amount still holds, rounded down."""

    def drawn(self, charge: Fraction, neighbours: Neighbours) -> Fraction:
        """The amount that noise may be drawn for, one unit added or removed, if a charge covers all neighbours.

        **Privacy**: a chain of `moves` steps that each cost at most this costs at most the charge.
        """

    def pure(self, amount: Fraction, /) -> Fraction:
        """The largest epsilon of a pure draw within an amount."""

    def concentrated(self, amount: Fraction) -> Fraction:
        """The rho of a zero-concentrated draw within an amount.

        Raises:
            PrivacyError: there is none.
        """

    def promise(self, amount: Fraction) -> Promised:
        """What a release that spent an amount says of it."""


@dataclass(frozen=True)
class Epsilon:
    """Pure differential privacy: epsilons add up."""

    name: ClassVar[str] = "epsilon"
    delta: ClassVar[Fraction] = Fraction(0)
    at_delta: ClassVar[str] = ""

    def counted(self, amount: Fraction, /) -> Fraction:
        """The same: amounts are epsilons."""
        return amount

    epsilon = room = pure = counted

    def drawn(self, charge: Fraction, neighbours: Neighbours) -> Fraction:
        """A part for each move."""
        return charge / neighbours.moves

    def concentrated(self, amount: Fraction) -> Fraction:
        """None: Gaussian noise is not pure."""
        raise PrivacyError("Gaussian noise needs a delta above 0", hint="write privacy.delta, or auto")

    def promise(self, amount: Fraction) -> Promised:
        """Epsilon alone."""
        return Promised(amount, self.delta)


@dataclass(frozen=True)
class Rho:
    """Zero-concentrated differential privacy, told as an epsilon at one delta: rhos add up, epsilons do not.

    >>> rho = Rho(Fraction(1, 10**6))
    >>> rho.room(rho.counted(Fraction(4))) <= 4 <= rho.epsilon(rho.counted(Fraction(4))) + Fraction(1, 10**9)
    True
    """

    delta: Fraction
    name: ClassVar[str] = "rho"

    @property
    def at_delta(self) -> str:
        """` at delta 1e-06`."""
        return f" at delta {float(self.delta):g}"

    def counted(self, epsilon: Fraction) -> Fraction:
        """See `rho_of`."""
        return rho_of(epsilon, self.delta)

    def epsilon(self, amount: Fraction) -> Fraction:
        """See `epsilon_of`."""
        return epsilon_of(amount, self.delta)

    def room(self, amount: Fraction) -> Fraction:
        """In steps of 10^-9."""
        room = Fraction(math.floor(self.epsilon(amount) * _ROOM_GRAIN), _ROOM_GRAIN)
        return room if room <= 0 or self.counted(room) <= amount else room - Fraction(1, _ROOM_GRAIN)

    def drawn(self, charge: Fraction, neighbours: Neighbours) -> Fraction:
        """Costs grow with the square of the moves."""
        return charge / neighbours.moves**2

    def pure(self, amount: Fraction) -> Fraction:
        """The largest epsilon with epsilon^2 / 2 <= rho."""
        return Fraction(isqrt(2 * amount.numerator * DENOMINATOR**2 // amount.denominator), DENOMINATOR)

    def concentrated(self, amount: Fraction) -> Fraction:
        """The same."""
        return amount

    def promise(self, amount: Fraction) -> Promised:
        """Epsilon at delta, and the rho that implies one at every other delta too."""
        return Promised(self.epsilon(amount), self.delta, amount)


def currency_at(delta: Fraction) -> Currency:
    """The currency of a lineage whose epsilons are meant at a delta."""
    return Rho(delta) if delta else Epsilon()


@lru_cache(maxsize=256)
def rho_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest rho (rounded down) such that rho-zCDP implies (epsilon, delta)-DP.

    Args:
        epsilon: > 0.
        delta: 0 < delta < 1.

    Returns:
        rho, a multiple of 10^-18 and a proven lower bound.

    Raises:
        PrivacyError: delta is 0 (pure budgets stay in epsilon) or the pair leaves no rho at all.

    >>> float(rho_of(Fraction(1), Fraction(1, 10**6)))  # doctest: +ELLIPSIS
    0.0243...
    """
    _check_delta(delta)
    slope = _alphas(lambda order: -_rho_at(order, float(epsilon), float(delta)))
    best = max(_exact_rho_at(order, epsilon, delta) for order in slope)
    rho = Fraction(math.floor((Fraction(best) - Fraction(_MARGIN)) * _GRAIN), _GRAIN)
    if rho <= 0:
        raise PrivacyError(
            "epsilon and delta are too small for any rho", hint="give a larger epsilon or delta"
        )
    return rho


def epsilon_of(rho: Fraction, delta: Fraction) -> Fraction:
    """The smallest epsilon (rounded up) such that rho-zCDP implies (epsilon, delta)-DP.

    Args:
        rho: >= 0.
        delta: 0 < delta < 1.

    Returns:
        epsilon, a multiple of 10^-18 and a proven upper bound.

    Raises:
        PrivacyError: delta is 0.
    """
    _check_delta(delta)
    orders = _alphas(lambda order: order * float(rho) - _log_term(order, float(delta)))
    best = min(_exact_epsilon_at(order, rho, delta) for order in orders)
    return max(Fraction(0), Fraction(math.ceil((Fraction(best) + Fraction(_MARGIN)) * _GRAIN), _GRAIN))


def gaussian_sigma2(rho: Fraction, squared_sensitivity: int) -> Fraction:
    """The variance parameter that spends at most rho, rounded up to a multiple of 2^-20.

    Args:
        rho: > 0.
        squared_sensitivity: the exact squared L2 sensitivity of the integer vector.

    Returns:
        sigma^2 >= squared_sensitivity / (2 rho).

    **Privacy**: discrete Gaussian noise with this parameter is rho-zCDP.
    """
    exact = Fraction(squared_sensitivity) / (2 * rho)
    return Fraction(math.ceil(exact * _SIGMA_GRAIN), _SIGMA_GRAIN)


def _check_delta(delta: Fraction) -> None:
    if not 0 < delta < 1:
        raise PrivacyError("rho needs a delta above 0 and below 1", hint="with delta 0 spend epsilon instead")


def _log_term(order: float, delta: float) -> float:
    """(log delta + log(alpha - 1) - alpha log(1 - 1/alpha)) / (alpha - 1)."""
    return (math.log(delta) + math.log(order - 1) - order * math.log1p(-1 / order)) / (order - 1)


def _rho_at(order: float, epsilon: float, delta: float) -> float:
    return (epsilon + _log_term(order, delta)) / order


def _exact_log_term(order: Decimal, delta: Fraction) -> Decimal:
    exact_delta = _DIGITS.divide(Decimal(delta.numerator), Decimal(delta.denominator))
    below = order - 1
    shrink = _DIGITS.subtract(below.ln(_DIGITS), order.ln(_DIGITS))  # log(1 - 1/alpha)
    top = _DIGITS.add(exact_delta.ln(_DIGITS), below.ln(_DIGITS))
    return _DIGITS.divide(_DIGITS.subtract(top, _DIGITS.multiply(order, shrink)), below)


def _exact_rho_at(order: Decimal, epsilon: Fraction, delta: Fraction) -> Decimal:
    exact_epsilon = _DIGITS.divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))
    return _DIGITS.divide(_DIGITS.add(exact_epsilon, _exact_log_term(order, delta)), order)


def _exact_epsilon_at(order: Decimal, rho: Fraction, delta: Fraction) -> Decimal:
    exact_rho = _DIGITS.divide(Decimal(rho.numerator), Decimal(rho.denominator))
    return _DIGITS.subtract(_DIGITS.multiply(order, exact_rho), _exact_log_term(order, delta))


def _alphas(loss: Callable[[float], float]) -> list[Decimal]:
    """Orders around the minimum of `loss`: golden-section search over log(alpha - 1), then short decimals.

    The optimum is flat, so five significant digits lose 1e-10 of it; short decimals make the choice, and
    with it the exact result, the same on every machine.
    """
    low, high = math.log(1e-6), math.log(1e12)
    ratio = (math.sqrt(5) - 1) / 2
    while high - low > 1e-9:
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        if loss(1 + math.exp(left)) < loss(1 + math.exp(right)):
            high = right
        else:
            low = left
    centre = Decimal(f"{math.exp((low + high) / 2):.4e}")
    step = Decimal(1).scaleb(centre.adjusted() - 4)
    return [1 + centre + step * move for move in (-2, -1, 0, 1, 2)]
