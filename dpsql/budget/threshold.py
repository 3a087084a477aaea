"""Weights and thresholds of keys that nobody listed, in exact integers.

A person of d keys gives each of at most k of them the weight W(min(d, k)); a key is shown if the sum of its weights and
discrete Gaussian noise of sigma^2 reach T.

| here | there | unit |
|---|---|---|
| `UNIT` | the weight of a person's only key | 2^-20 of a person |
| `key_weight` | W(d) = floor(sqrt(2^40 / d)) | the same |
| `key_threshold` | T, the least integer with d Q((T - W(d) - 1) / sigma) <= delta for every d = 1 .. k | the same |

**Privacy**: W(d)^2 d <= 2^40, so one person moves the sums of keys that others hold by at most 2^40 in squares. A key
that she alone holds passes T with chance Pr[N_Z >= T - W(d)] <= Q((T - W(d) - 1) / sigma) (Canonne, Kamath and Steinke
2020), and d of them together with chance at most delta. Floats say where to look; decimals decide, on the safe side.
**Source**: docs/method/keys.md, "The step".
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from statistics import NormalDist

from dpsql.budget.curve import upper_tail
from dpsql.errors import PrivacyError

UNIT = 1 << 20
"""Weights count in parts of one person: the only key of somebody weighs 2^20."""

SQUARED_SENSITIVITY = UNIT * UNIT

MOST_WEIGHED = 1_000
"""Largest number of one person's keys that may weigh; W stays above 3 10^4."""

_SPARE = 30  # digits of a tail below those of delta


def key_weight(keys: int) -> int:
    """Weight of each key of a person with so many keys.

    Args:
        keys: how many of her keys weigh, at least 1.

    >>> key_weight(1), key_weight(2), key_weight(50)
    (1048576, 741455, 148291)
    """
    return math.isqrt(SQUARED_SENSITIVITY // keys)


@lru_cache(maxsize=64)
def key_threshold(sigma2: Fraction, delta: Fraction, per_unit: int) -> int:
    """The least weight with noise at which a key is shown.

    Args:
        sigma2: of the noise on each sum of weights.
        delta: the most chance with which keys of one person alone are shown, above 0.
        per_unit: keys of one person that weigh.

    Returns:
        T, in units of 2^-20 of a person.

    Raises:
        PrivacyError: delta leaves no room, or per_unit is out of range.

    **Privacy**: T - 1 breaks the bound for some d.
    """
    if not 0 < delta < Fraction(1, 10) or not 1 <= per_unit <= MOST_WEIGHED:
        raise PrivacyError("keys cannot be chosen: no delta is left for them", hint="raise `key_delta`")
    sigma = math.sqrt(sigma2)
    near = {keys: key_weight(keys) + 1 - sigma * _quantile(delta, keys) for keys in range(1, per_unit + 1)}
    counts = sorted(near, key=lambda keys: -near[keys])

    def suffices(threshold: int) -> bool:
        return all(_chance(threshold, keys, sigma2, delta) <= delta for keys in counts)

    high = math.ceil(near[counts[0]])
    step = 1
    while not suffices(high):
        high, step = high + step, 2 * step
    low, step = high - 1, 1
    while suffices(low):
        high, low, step = low, low - step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if suffices(middle) else (middle, high)
    return high


def _quantile(delta: Fraction, keys: int) -> float:
    """About where a normal tail is delta / keys: below 0."""
    return NormalDist().inv_cdf(float(delta / keys))


@lru_cache(maxsize=4096)
def _chance(threshold: int, keys: int, sigma2: Fraction, delta: Fraction) -> Fraction:
    """An upper bound of d Q((T - W(d) - 1) / sigma)."""
    return min(Fraction(1), keys * passing_chance(threshold, key_weight(keys), sigma2, delta))


def passing_chance(threshold: int, weight: int, sigma2: Fraction, delta: Fraction) -> Fraction:
    """An upper bound of Q((T - H - 1) / sigma), the chance that one sum of weights reaches the threshold.

    Args:
        threshold: T.
        weight: H.
        sigma2: of the noise.
        delta: to whose digits the bound is near.
    """
    distance = threshold - weight - 1
    if distance < 0:
        return Fraction(1)
    digits = _SPARE + math.ceil(-math.log10(delta))
    return upper_tail(Fraction(distance * distance) / sigma2, digits)
