"""From (epsilon, delta) to rho and back by the tight conversion, with a certificate for each result.

rho-zCDP implies (epsilon, delta)-DP with delta = min over alpha > 1 of
exp((alpha - 1)(alpha rho - epsilon)) (1 - 1/alpha)^alpha / (alpha - 1).
*Any* alpha certifies a pair. Floats only look for a good alpha; what is returned is computed for that alpha
in decimal arithmetic of 60 digits, moved by a margin to the safe side and rounded there.

**Source**: docs/method/noise.md, "From epsilon and delta to rho"; Bun, Steinke (2016) for the currency.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Context, Decimal
from fractions import Fraction

from dpsql.errors import PrivacyError

_DIGITS = Context(prec=60)
_MARGIN = Decimal(10) ** -40  # ten to the 15 or more times what 60 digits can be off by
_GRAIN = 10**18  # rho and epsilon are multiples of 10^-18: short texts, exact in the ledger
_SIGMA_GRAIN = 1 << 20


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


def delta_of(rho: Fraction, epsilon: Fraction) -> float:
    """The delta that rho-zCDP gives at epsilon; a float for reports, never for spending.

    Args:
        rho: > 0.
        epsilon: >= 0.

    Returns:
        delta, at most 1.
    """
    low, high = float(rho), float(epsilon)

    def log_delta(order: float) -> float:
        return (order - 1) * (order * low - high) + order * math.log1p(-1 / order) - math.log(order - 1)

    return math.exp(min(0.0, min(log_delta(float(order)) for order in _alphas(log_delta))))


def pure_rho(epsilon: Fraction) -> Fraction:
    """What an epsilon-DP line costs in rho: epsilon^2 / 2, exactly.

    >>> pure_rho(Fraction(1, 10))
    Fraction(1, 200)
    """
    return epsilon * epsilon / 2


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


def gaussian_rho(sigma2: Fraction, squared_sensitivity: int) -> Fraction:
    """What discrete Gaussian noise with this parameter spends: squared sensitivity / (2 sigma^2), exactly."""
    return Fraction(squared_sensitivity) / (2 * sigma2)


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
