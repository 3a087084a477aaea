"""The exact Gaussian curve: what noise of discrete Gaussians costs at a delta, in mu^2.

*Example.* Epsilon 1 at delta 1e-6 is mu^2 = 0.05603. One unit of a count then has noise of variance 17.85; by rho-zCDP
and its conversion it would have 20.53.

If on every history sum_r d_r^2 / (sigma_r^2 - `SLACK`) <= mu^2 for the differences d_r of the integers that noise is
added to, then all of them together are (epsilon, delta)-DP wherever

    delta_G(mu, epsilon - 2 H) <= e^-H delta,     delta_G(mu, e) = Q(e / mu - mu / 2) - e^e Q(e / mu + mu / 2)

Q(a) = P(N(0, 1) > a), H = 2^-50. Everything is decimal arithmetic wide enough for what cancels, moved by a margin to
the safe side and rounded there; floats only say where to look. With phi the density of N(0, 1) and R = Q / phi,
delta_G(mu, e) = Q(e / mu - mu / 2) - phi(e / mu - mu / 2) R(e / mu + mu / 2): digits and terms follow from delta and
not from epsilon, so a cap of 10,000 takes no longer than one of 10.

| here | there | unit |
|---|---|---|
| `mu2_of` | the largest mu^2 for epsilon at delta | multiple of 10^-18, rounded down |
| `epsilon_of` | the least epsilon of mu^2 at delta | multiple of 10^-18, rounded up |
| `gaussian_sigma2` | sigma^2 that spends mu^2 | multiple of 2^-20, rounded up |

A Laplace number would cost (2 Q^-1(1 / (1 + e^epsilon)))^2 of mu^2, about (pi / 2) epsilon^2, and have pi times the
variance of a Gaussian one. So under a delta all noise is Gaussian, and mechanisms whose noise is Laplace are refused.

**Privacy**: docs/privacy/delta.md has the proof; `SLACK` and H are the price of integers. Without them the claim
is false.
**Source**: docs/method/rows.md, "From epsilon and delta to mu^2".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal
from fractions import Fraction
from functools import lru_cache

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
    usable_epsilon = epsilon - 2 * _H
    if usable_epsilon <= 0:
        raise PrivacyError("epsilon is too small for Gaussian noise", hint="give a larger epsilon")
    # rho-zCDP holds epsilon = mu^2 / 2 + mu sqrt(2 log(1 / delta)): a float near the answer, which bounds then decide.
    spread = math.sqrt(-2 * math.log(delta))
    near = (math.sqrt(spread * spread + 2 * float(usable_epsilon)) - spread) ** 2

    def over(grains: int) -> float:
        return _over(Fraction(grains, GRAIN), usable_epsilon, delta)

    low, high = 0, max(math.ceil(near * GRAIN), 1)
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
    smallest = math.ceil(2 * _H * GRAIN)  # below it nothing is left of epsilon
    low, high = smallest - 1, smallest + math.ceil(above * GRAIN)

    def over(below: int) -> float:
        return _over(mu2, Fraction(-below, GRAIN) - 2 * _H, delta)

    while over(-high) > 0:
        low, high = high, 2 * high
    return Fraction(-_edge(over, -high, -low), GRAIN)


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


def upper_tail(square: Fraction, digits: int) -> Fraction:
    """An upper bound of Q(a) = P(N(0, 1) > a), at most 2 10^-digits above it.

    Args:
        square: a^2, for a >= 0.
        digits: >= 1.

    >>> round(float(upper_tail(Fraction(4), 20)), 9)
    0.022750132
    """
    wide = _context_of(digits, math.sqrt(square))
    value = wide.multiply(_density(square, wide), _mills(_root(square, wide), digits + 1, wide))
    return Fraction(wide.add(value, _unit(-digits)))


def delta_bounds(mu2: Fraction, epsilon: Fraction, digits: int) -> tuple[Decimal, Decimal]:
    """Bounds of delta_G(mu, epsilon) that lie 2 10^-digits apart.

    Args:
        mu2: > 0.
        epsilon: >= 0.
        digits: >= 1.
    """
    mu = math.sqrt(mu2)
    wide = _context_of(digits, float(epsilon) / mu + mu / 2)
    root, exact = _root(mu2, wide), _decimal(epsilon, wide)
    ratio, half = wide.divide(exact, root), wide.divide(root, Decimal(2))
    near, distant = wide.subtract(ratio, half), wide.add(ratio, half)
    # e^epsilon phi(distant) = phi(near), so neither e^epsilon nor a tail that small is ever computed.
    density = _density((epsilon - mu2 / 2) ** 2 / mu2, wide)
    upper = wide.multiply(density, _mills(wide.abs(near), digits + 1, wide))
    upper = wide.subtract(Decimal(1), upper) if near < 0 else upper
    value = wide.subtract(upper, wide.multiply(density, _mills(distant, digits + 1, wide)))
    margin = _unit(-digits)
    return wide.subtract(value, margin), wide.add(value, margin)


def _over(mu2: Fraction, epsilon: Fraction, delta: Fraction) -> float:
    """The logarithm of delta_G(mu, epsilon) over (1 - H) delta: above 0, or not above it for certain."""
    digits = _SPARE_DIGITS + math.ceil(-math.log10(delta))
    _, above = delta_bounds(mu2, epsilon, digits)
    limit = (1 - _H) * delta
    excess = Fraction(above) / limit - 1
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
    previous, last, slow = (high, over(high)), (low, math.nan), 0
    while high - low > 1:
        guess, width = _crossing(previous, last), high - low
        probe = (low + high) // 2 if guess is None or slow == MOST_SLOW else guess
        probe = min(max(probe, low + 1), high - 1)
        previous, last = last, (probe, over(probe))
        low, high = (probe, high) if last[1] <= 0 else (low, probe)
        slow = slow + 1 if 2 * (high - low) > width and slow < MOST_SLOW else 0
    return low


MOST_SLOW = 6
"""Secants that may leave more than half of a range before it is halved."""


def _crossing(first: tuple[int, float], second: tuple[int, float]) -> int | None:
    """Zero of the line through two points; None where there is none."""
    rise = second[1] - first[1]
    step = -second[1] / rise * (second[0] - first[0]) if rise else math.nan
    return second[0] + math.floor(step) if math.isfinite(step) else None


def _mills(x: Decimal, digits: int, wide: Context) -> Decimal:
    """Mills' ratio Q(x) / phi(x) for x >= 0 with an absolute error below 10^-digits.

    For large x it is the asymptotic series (1 - 1/x^2 + 3/x^4 - 15/x^6 ..) / x, whose partial sums lie on alternate
    sides: the error is below the first term that is left out, and the least term is below e^-(x^2/2). For small x it is
    sqrt(pi / 2) e^(x^2/2) - (x + x^3/3 + x^5/15 ..), whose terms have one sign. Neither takes more than about
    5 (digits + 30) terms, however large x is.

    Args:
        x: >= 0.
        digits: of the error.
        wide: from `_context_of`, for this number of digits and an argument of at least x.
    """
    square, tolerance = wide.multiply(x, x), _unit(-digits - _SPARE_DIGITS // 2)
    if float(square) / 2 > _natural(digits):
        total, term, odd = Decimal(0), wide.divide(Decimal(1), x), 1
        while wide.abs(term) > tolerance:
            total = wide.add(total, term)
            term = wide.divide(wide.multiply(term, Decimal(-odd)), square)
            odd += 2
        return total
    term, total, odd = x, x, 1
    # What is left after a term whose successors halve is below that term.
    while 2 * square > odd + 2 or term > tolerance:
        odd += 2
        term = wide.divide(wide.multiply(term, square), Decimal(odd))
        total = wide.add(total, term)
    density = _density_of(square, wide)
    return wide.subtract(wide.divide(Decimal("0.5"), density), total)


def _density(square: Fraction, wide: Context) -> Decimal:
    """phi at the root of a square."""
    return _density_of(_decimal(square, wide), wide)


def _density_of(square: Decimal, wide: Context) -> Decimal:
    circle = wide.sqrt(wide.multiply(Decimal(2), _pi(wide.prec)))
    return wide.divide(wide.exp(wide.divide(square, Decimal(-2))), circle)


def _natural(digits: int) -> float:
    """Half the square from which on the asymptotic series of `_mills` reaches its error."""
    return (digits + _SPARE_DIGITS) * math.log(10)


def _unit(exponent: int) -> Decimal:
    """A power of ten."""
    return Decimal((0, (1,), exponent))


def _context_of(digits: int, argument: float) -> Context:
    """Arithmetic for `_mills` up to an argument: wide enough for what cancels in the series that it takes there."""
    cancelled = min(argument * argument / 2, _natural(digits + 1)) / math.log(10)
    return _context(digits + 2 * _SPARE_DIGITS + math.ceil(cancelled))


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
    scale = 10 ** (digits + _LOST_DIGITS)

    def arctan(divisor: int) -> int:
        power, total, odd, sign = scale // divisor, 0, 1, 1
        while power:
            total += sign * (power // odd)
            power //= divisor * divisor
            odd, sign = odd + 2, -sign
        return total

    scaled = 4 * (4 * arctan(5) - arctan(239))
    return _context(digits).divide(Decimal(scaled), Decimal(scale))


def _check_delta(delta: Fraction) -> None:
    if not 0 < delta < 1:
        raise PrivacyError(
            "Gaussian noise needs a delta above 0 and below 1", hint="with delta 0 spend epsilon instead"
        )
