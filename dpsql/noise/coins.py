"""Exact coins and geometric draws: uniform integers from an entropy source turned into e^(-u/t).

Every uniform integer comes from an `Entropy`, a function from a number of bytes to that many bytes.
BernoulliExp of Canonne, Kamath and Steinke (2020), algorithm 1, is `exp_coin` here.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError

Entropy: TypeAlias = Callable[[int], bytes]
IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

HEADROOM = 512  # X reaches HEADROOM * t with probability e^-512 < 10^-222, so int64 holds every draw
BLOCK = 1 << 17  # draws at a time: the working arrays stay within a few MB
_TOP = 1 << 63


def check_denominator(denominator: int) -> None:
    """Refuse a t for which int64 would not hold every draw."""
    if denominator < 1 or HEADROOM * denominator >= 1 << 63:
        raise InternalError(
            "the noise scale does not fit 64-bit integers", hint="lower a measure's bounds or its scale"
        )


def words(size: int, entropy: Entropy) -> npt.NDArray[np.uint64]:
    """Uniform 63-bit integers."""
    raw = entropy(8 * size)
    if len(raw) != 8 * size:
        raise InternalError("the entropy source returned too few bytes", hint="use os_entropy()")
    return np.frombuffer(raw, dtype="<u8") >> np.uint64(1)


def below(bound: int, size: int, entropy: Entropy) -> IntArray:
    """Uniform integers in [0, bound): 63-bit words, those in the last incomplete block drawn again."""
    word = words(size, entropy)
    if bound & (bound - 1) == 0:
        return (word & np.uint64(bound - 1)).view(np.int64)
    remainder = word % np.uint64(bound)
    incomplete = word >= np.uint64(_TOP - _TOP % bound)
    if np.count_nonzero(incomplete):  # about bound / 2^63 of them
        again = np.flatnonzero(incomplete)
        remainder[again] = below(bound, again.size, entropy).view(np.uint64)
    return remainder.view(np.int64)


def exp_coin(numerator: IntArray, denominator: int, entropy: Entropy) -> BoolArray:
    """Bernoulli(exp(-u / t)), 0 <= u <= t: heads of u / (t k), k = 1, 2, ... until tails; accept an odd k."""
    accept = np.zeros(numerator.size, dtype=np.bool_)
    alive = np.arange(numerator.size)
    k = 1  # reaches k with probability at most 1 / (k - 1)!, so t k stays far inside the headroom
    while alive.size:
        heads = below(denominator * k, alive.size, entropy) < numerator
        if k % 2 == 1:
            accept[alive[~heads]] = True
        alive, numerator = alive[heads], numerator[heads]
        k += 1
    return accept


def geometric(denominator: int, size: int, entropy: Entropy) -> IntArray:
    """X ~ Geom(1 - e^(-1/t)): X = t V + U, V ~ Geom(1 - 1/e), P(U = u) proportional to e^(-u/t) on [0, t)."""
    remainder = np.empty(size, dtype=np.int64)
    pending = np.arange(size)
    while pending.size:
        trial = below(denominator, pending.size, entropy)
        accept = exp_coin(trial, denominator, entropy)
        remainder[pending[accept]] = trial[accept]
        pending = pending[~accept]
    times = np.zeros(size, dtype=np.int64)
    alive = np.arange(size)
    while alive.size:
        alive = alive[exp_coin(np.ones(alive.size, dtype=np.int64), 1, entropy)]
        times[alive] += 1
    return times * denominator + remainder


def rational_coin(
    exponent: FloatArray, slack: FloatArray, exact: Callable[[int], Fraction], entropy: Entropy
) -> BoolArray:
    """Bernoulli(exp(-g)) for rational g >= 0 of any size: m coins of exp(-g / m), m the first integer above g.

    Floats are a filter only: a coin that the slack leaves open is decided by exact fractions.

    Args:
        exponent: g in floats, one a coin.
        slack: a proven bound of |exponent - g|, with room for two more roundings of each exponent.
        exact: g of the coin at a position, called for open coins alone.
        entropy: where uniform bytes come from.

    Returns:
        Shape of `exponent`; True where the coin came up.
    """
    rounds = np.maximum(np.floor(exponent + slack), 0.0) + 1.0
    alive = np.arange(exponent.size)
    accept = np.zeros(exponent.size, dtype=np.bool_)
    done = 0
    while alive.size:
        alive = alive[_filtered_exp_coin(alive, exponent, slack, rounds, exact, entropy)]
        done += 1
        finished = rounds[alive] <= done
        accept[alive[finished]] = True
        alive = alive[~finished]
    return accept


def _filtered_exp_coin(
    items: npt.NDArray[np.intp],
    exponent: FloatArray,
    slack: FloatArray,
    rounds: FloatArray,
    exact: Callable[[int], Fraction],
    entropy: Entropy,
) -> BoolArray:
    """Bernoulli(exp(-g / m)) for the named items, by the same count of heads as `exp_coin`."""
    accept = np.zeros(items.size, dtype=np.bool_)
    alive = np.arange(items.size)
    k = 1
    while alive.size:
        indices = items[alive]
        share = rounds[indices] * k
        word = (words(alive.size, entropy) >> np.uint64(10)).astype(np.float64)  # 53 bits, exact in float
        middle, width = exponent[indices] / share, slack[indices] / share
        heads = (word + 1.0) * 2.0**-53 <= middle - width
        for j in np.flatnonzero(~heads & (word * 2.0**-53 < middle + width)):
            heads[j] = _exact_coin(int(word[j]), exact(int(indices[j])) / int(share[j]), entropy)
        accept[alive[~heads]] = k % 2 == 1
        alive = alive[heads]
        k += 1
    return accept


def _exact_coin(word: int, chance: Fraction, entropy: Entropy) -> bool:
    """Is a uniform real that starts with these 53 bits below `chance`? It draws bits until that is clear."""
    bits = 53
    while True:
        threshold = chance * (1 << bits)
        if word + 1 <= threshold:
            return True
        if word >= threshold:
            return False
        word = (word << 64) | int.from_bytes(entropy(8), "big")
        bits += 64
