"""The exact Gaussian curve: what noise of discrete Gaussians costs at a delta, in mu^2.

*Example.* Epsilon 1 at delta 1e-6 is mu^2 = 0.05603. One unit of a count then has noise of variance 17.85; by rho-zCDP
and its conversion it would have 20.53.

If on every history sum_r d_r^2 / (sigma_r^2 - `SLACK`) <= mu^2 for the differences d_r of the integers that noise is
added to, then all of them together are (epsilon, delta)-DP wherever

    delta_G(mu, epsilon - 2 H) <= e^-H delta,     delta_G(mu, e) = Q(e / mu - mu / 2) - e^e Q(e / mu + mu / 2)

Q(a) = P(N(0, 1) > a), H = 2^-50. Everything is decimal arithmetic wide enough for what cancels, moved by a margin to
the safe side and rounded there; floats only say where to look.

| here | there | unit |
|---|---|---|
| `mu2_of` | the largest mu^2 for epsilon at delta | multiple of 10^-18, rounded down |
| `epsilon_of` | the least epsilon of mu^2 at delta | multiple of 10^-18, rounded up |
| `pure_of` | the largest epsilon of a pure draw that costs mu^2 | multiple of 2^-30, rounded down |
| `gaussian_sigma2` | sigma^2 that spends mu^2 | multiple of 2^-20, rounded up |

**Privacy**: docs/privacy/gaussian.md has the proof; `SLACK` and H are the price of integers. Without them the claim
is false.
**Source**: docs/method/noise.md, "From epsilon and delta to mu^2".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache

from dpsql.budget.units import DENOMINATOR
from dpsql.errors import PrivacyError

SLACK = 4
"""What a discrete Gaussian's variance parameter must have above that of the continuous one it is compared with."""

GRAIN = 10**18
"""mu^2 and epsilon are multiples of 10^-18: short texts, exact in the ledger."""

_H = Fraction(1, 1 << 50)
_SIGMA_GRAIN = 1 << 20
_SPARE_DIGITS = 30
_LOST_DIGITS = 8  # more than a sum of fewer than 10^6 terms, each rounded, can lose


@lru_cache(maxsize=256)
def mu2_of(epsilon: Fraction, delta: Fraction) -> Fraction:
    """The largest mu^2 (rounded down) that implies (epsilon, delta)-DP.

    Args:
        epsilon: > 0.
        delta: 0 < delta < 1.

    Returns:
        mu^2, a multiple of 10^-18 and a proven lower bound.

    Raises:
        PrivacyError: delta is 0 (pure budgets stay in epsilon), or the pair leaves no room at all.

    >>> float(mu2_of(Fraction(1), Fraction(1, 10**6)))  # doctest: +ELLIPSIS
    0.0560...
    """
    _check_delta(delta)
    left = epsilon - 2 * _H
    if left <= 0:
        raise PrivacyError("epsilon is too small for Gaussian noise", hint="give a larger epsilon")
    # rho-zCDP holds epsilon = mu^2 / 2 + mu sqrt(2 log(1 / delta)): a float near the answer, which bounds then decide.
    spread = math.sqrt(-2 * math.log(delta))
    near = (math.sqrt(spread * spread + 2 * float(left)) - spread) ** 2

    def over(grains: int) -> float:
        return _over(Fraction(grains, GRAIN), left, delta)

    low, high = 0, math.ceil(near * GRAIN)
    while over(high) <= 0:
        low, high = high, 2 * high + 1
    low = _edge(over, low, high)
    if not low:
        raise PrivacyError(
            "epsilon and delta are too small for Gaussian noise", hint="give a larger epsilon or delta"
        )
    return Fraction(low, GRAIN)


@lru_cache(maxsize=1024)
def epsilon_of(mu2: Fraction, delta: Fraction) -> Fraction:
    """The least epsilon (rounded up) that mu^2 implies at delta.

    Args:
        mu2: >= 0.
        delta: 0 < delta < 1.

    Returns:
        epsilon, a multiple of 10^-18 and a proven upper bound.

    Raises:
        PrivacyError: delta is 0.
    """
    _check_delta(delta)
    if mu2 <= 0:
        return Fraction(0)
    # As in `mu2_of`: an epsilon that is large enough, but for what floats lose.
    mu = math.sqrt(mu2)
    above = (mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))) * (1 + 1e-6) + 1e-15
    least = math.ceil(2 * _H * GRAIN)  # below it nothing is left of epsilon
    low, high = least - 1, least + math.ceil(above * GRAIN)

    def over(below: int) -> float:
        return _over(mu2, Fraction(-below, GRAIN) - 2 * _H, delta)

    while over(-high) > 0:
        low, high = high, 2 * high
    return Fraction(-_edge(over, -high, -low), GRAIN)


def pure_of(mu2: Fraction) -> Fraction:
    """The largest epsilon (rounded down) of a pure draw that costs at most mu^2.

    Every epsilon-DP pair of laws can be had from randomised response, which is a threshold of the Gaussian pair of
    mu = 2 Q^-1(1 / (1 + e^epsilon)). So epsilon = log(Q(-mu / 2) / Q(mu / 2)).

    Args:
        mu2: > 0.

    Returns:
        epsilon, a multiple of 2^-30.

    >>> float(pure_of(Fraction(15179, 10**4)))  # doctest: +ELLIPSIS
    0.9999...
    """
    half = float(mu2) / 4
    wide = _context(_SPARE_DIGITS + math.ceil(half / math.log(10)))
    tail = wide.add(_tail(wide.divide(_root(mu2, wide), Decimal(2)), wide), _margin(wide))
    found = wide.ln(wide.divide(wide.subtract(Decimal(1), tail), tail))
    lowered = wide.subtract(found, Decimal((0, (1,), -_SPARE_DIGITS // 2)))
    return Fraction(max(0, math.floor(Fraction(lowered) * DENOMINATOR)), DENOMINATOR)


def gaussian_sigma2(mu2: Fraction, squared_sensitivity: int) -> Fraction:
    """The variance parameter that spends at most mu^2, rounded up to a multiple of 2^-20.

    Args:
        mu2: > 0.
        squared_sensitivity: the exact squared L2 sensitivity of the integer vector.

    Returns:
        sigma^2 >= squared_sensitivity / mu^2 + 4, and at least 5.

    **Privacy**: discrete Gaussian noise with this parameter spends mu^2 of a lineage that adds mu^2 up.
    """
    exact = max(Fraction(1), Fraction(squared_sensitivity) / mu2) + SLACK
    return Fraction(math.ceil(exact * _SIGMA_GRAIN), _SIGMA_GRAIN)


def delta_bounds(mu2: Fraction, epsilon: Fraction, digits: int) -> tuple[Decimal, Decimal]:
    """Bounds of delta_G(mu, epsilon) that lie 2 10^-digits apart.

    Args:
        mu2: > 0.
        epsilon: >= 0.
        digits: >= 1.
    """
    mu = math.sqrt(mu2)
    far = float(epsilon) / mu + mu / 2
    wide = _context(digits + _SPARE_DIGITS + math.ceil((far * far / 2 + float(epsilon)) / math.log(10)))
    root, exact = _root(mu2, wide), _decimal(epsilon, wide)
    ratio, half = wide.divide(exact, root), wide.divide(root, Decimal(2))
    near, distant = _tail(wide.subtract(ratio, half), wide), _tail(wide.add(ratio, half), wide)
    value = wide.subtract(near, wide.multiply(wide.exp(exact), distant))
    margin = Decimal((0, (1,), -digits))
    return wide.subtract(value, margin), wide.add(value, margin)


def _over(mu2: Fraction, epsilon: Fraction, delta: Fraction) -> float:
    """The logarithm of delta_G(mu, epsilon) over (1 - H) delta: above 0, or not above it for certain."""
    digits = _SPARE_DIGITS + math.ceil(-math.log10(delta))
    _, above = delta_bounds(mu2, epsilon, digits)
    most = (1 - _H) * delta
    excess = Fraction(above) / most - 1
    if excess <= 0:
        return math.log1p(max(float(excess), -1 + 2**-53))
    return max(math.log1p(float(excess)), math.ulp(0.0))


def _edge(over: Callable[[int], float], low: int, high: int) -> int:
    """The last whole number at which an increasing function is not above 0.

    Secants find it: a value in wide arithmetic is dear, and bisection takes seventy of them where these take a dozen.

    Args:
        over: the function; its signs alone decide.
        low: where it is not above 0; it is not asked there.
        high: where it is above 0.
    """
    before, last, slow = (high, over(high)), (low, math.nan), 0
    while high - low > 1:
        guess, width = _crossing(before, last), high - low
        probe = (low + high) // 2 if guess is None or slow == MOST_SLOW else guess
        probe = min(max(probe, low + 1), high - 1)
        before, last = last, (probe, over(probe))
        low, high = (probe, high) if last[1] <= 0 else (low, probe)
        slow = slow + 1 if 2 * (high - low) > width and slow < MOST_SLOW else 0
    return low


MOST_SLOW = 6
"""Secants that may leave more than half of a range before it is halved."""


def _crossing(one: tuple[int, float], two: tuple[int, float]) -> int | None:
    """Where the line through two points is 0; None where it is nowhere."""
    rise = two[1] - one[1]
    step = -two[1] / rise * (two[0] - one[0]) if rise else math.nan
    return two[0] + math.floor(step) if math.isfinite(step) else None


def _tail(a: Decimal, wide: Context) -> Decimal:
    """Q(a) = 1/2 - phi(a) (a + a^3 / 3 + a^5 / 15 + ..), whose terms have one sign; absolute error < `_margin`."""
    square = wide.multiply(a, a)
    phi = wide.divide(
        wide.exp(wide.divide(square, Decimal(-2))), wide.sqrt(wide.multiply(Decimal(2), _pi(wide.prec)))
    )
    term, total, odd = a, a, 1
    # What is left after a term whose successors halve is below that term.
    least = Decimal((0, (1,), -wide.prec - 5))
    while 2 * square > odd + 2 or wide.abs(term) > least:
        odd += 2
        term = wide.divide(wide.multiply(term, square), Decimal(odd))
        total = wide.add(total, term)
    return wide.subtract(Decimal("0.5"), wide.multiply(phi, total))


def _margin(wide: Context) -> Decimal:
    return Decimal((0, (1,), _LOST_DIGITS - wide.prec))


def _context(digits: int) -> Context:
    # Decimal's operators use the thread's own context of 28 digits, so everything is asked of this one.
    return Context(prec=digits + _LOST_DIGITS, Emax=MAX_EMAX, Emin=MIN_EMIN)


def _decimal(value: Fraction, wide: Context) -> Decimal:
    return wide.divide(Decimal(value.numerator), Decimal(value.denominator))


def _root(value: Fraction, wide: Context) -> Decimal:
    return wide.sqrt(_decimal(value, wide))


@lru_cache(maxsize=64)
def _pi(digits: int) -> Decimal:
    """By Machin's formula in integers: pi / 4 = 4 arctan(1 / 5) - arctan(1 / 239)."""
    one = 10 ** (digits + _LOST_DIGITS)

    def arctan(divisor: int) -> int:
        power, total, odd, sign = one // divisor, 0, 1, 1
        while power:
            total += sign * (power // odd)
            power //= divisor * divisor
            odd, sign = odd + 2, -sign
        return total

    scaled = 4 * (4 * arctan(5) - arctan(239))
    return _context(digits).divide(Decimal(scaled), Decimal(one))


def _check_delta(delta: Fraction) -> None:
    if not 0 < delta < 1:
        raise PrivacyError(
            "Gaussian noise needs a delta above 0 and below 1", hint="with delta 0 spend epsilon instead"
        )
