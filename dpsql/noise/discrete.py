"""Exact coins, geometric draws and exponential reals; the discrete Laplace, a scale a draw, and the discrete Gaussian.

| here | there | unit |
|---|---|---|
| `units` (s), `denominator` (t) | eps_i = s_i / t | budget per unit of count |
| `sigma2` | sigma^2 of N_Z(0, sigma^2), Canonne-Kamath-Steinke 2020 | counts squared |

Every uniform integer comes from an `Entropy`, a function from a number of bytes to that many bytes, and is turned into
e^(-u/t). BernoulliExp of Canonne, Kamath and Steinke (2020), algorithm 1, is `exp_coin` here.

A draw at a scale of its own costs no more than one at a shared scale: X ~ Geom(1 - e^(-1/t)) is sampled
alike for every draw, and floor(X / s) ~ Geom(1 - e^(-s/t)).

Candidates of the Gaussian come from the discrete Laplace of rate 1 / scale, scale = floor(sigma) + 1, and are accepted
with probability exp(-(|y| - sigma^2 / scale)^2 / (2 sigma^2)).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import count
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError

Entropy: TypeAlias = Callable[[int], bytes]
IntArray: TypeAlias = npt.NDArray[np.int64]
FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
WordArray: TypeAlias = npt.NDArray[np.uint64]

HEADROOM = 512  # X reaches HEADROOM * t with probability e^-512 < 10^-222, so int64 holds every draw
BLOCK = 1 << 17  # draws at a time: the working arrays stay within a few MB
_TOP = 1 << 63


def check_denominator(denominator: int) -> None:
    """Refuse a t for which int64 would not hold every draw."""
    if denominator < 1 or HEADROOM * denominator >= 1 << 63:
        raise InternalError(
            "the noise scale does not fit 64-bit integers", hint="lower a measure's bounds or its scale"
        )


def full_words(size: int, entropy: Entropy) -> WordArray:
    """Uniform 64-bit integers."""
    raw = entropy(8 * size)
    if len(raw) != 8 * size:
        raise InternalError("the entropy source returned too few bytes", hint="use os_entropy()")
    return np.frombuffer(raw, dtype="<u8").astype(np.uint64, copy=False)


def words(size: int, entropy: Entropy) -> WordArray:
    """Uniform 63-bit integers."""
    return full_words(size, entropy) >> np.uint64(1)


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


class UniformReals:
    """Uniform reals in [0, 1): 128 bits of each are read at once, more where a decision needs them.

    Args:
        size: how many.
        entropy: where bits come from.
    """

    def __init__(self, size: int, entropy: Entropy) -> None:
        self.first, self.second = full_words(2 * size, entropy).reshape(2, -1).copy()
        self._entropy = entropy
        self._further: dict[int, list[int]] = {}

    def prefix(self, place: int, number: int) -> int:
        """The first 64 `number` bits of a real, as a whole number."""
        further = self._further.setdefault(place, [])
        while len(further) + 2 < number:
            further.append(int.from_bytes(self._entropy(8), "big"))
        bits = 0
        for word in [int(self.first[place]), int(self.second[place]), *further][:number]:
            bits = bits << 64 | word
        return bits

    def draw_again(self, places: npt.NDArray[np.intp]) -> None:
        """Draw the reals at these places anew."""
        self.first[places], self.second[places] = full_words(2 * places.size, self._entropy).reshape(2, -1)
        for place in self._further.keys() & set(places.tolist()) if self._further else ():
            del self._further[place]


def exp_bounds(exponent: Fraction, words_read: int) -> tuple[Fraction, Fraction]:
    """Partial sums of the alternating series of e^-x, 0 <= x <= 1: one below, one above, nearer than 2^(-64 words)."""
    terms, (top, bottom) = 24 * words_read + 1, (1, 1)  # (24 w)! > 2^(64 w)
    for k in range(terms, 0, -1):
        factor = exponent.denominator * k
        top, bottom = bottom * factor - exponent.numerator * top, bottom * factor
    last = (-exponent.numerator) ** terms
    sums = Fraction(top, bottom), Fraction(top - last, bottom)
    return min(sums), max(sums)


_EXP_TERMS = 21
_EXP_SLACK = 2.0**-49
"""Of e^-f by Horner's rule in `_exp_of_fractions`: each of its steps errs by 3 u at most (u = 2^-53, values lie in
[0, 1]) and passes the error before it on by f / k <= 1 / k, which adds up to less than 7 u; f itself is rounded by u,
the series ends at f^21 / 21! < u / 2^12: less than 9 u of 16 u. The rest is room for the sums that compare."""


def _exp_of_fractions(fraction: FloatArray) -> FloatArray:
    """e^-f in floats, 0 <= f <= 1, by + - * / alone, which every processor rounds alike."""
    value = np.ones_like(fraction)
    for k in range(_EXP_TERMS - 1, 0, -1):
        value = 1.0 - fraction / k * value
    return value


def _keep_fractions(reals: UniformReals, places: npt.NDArray[np.intp], entropy: Entropy) -> BoolArray:
    """Bernoulli(exp(-f)) for the reals f at these places, by one comparison each: its time does not depend on f."""
    word = full_words(places.size, entropy)
    middle = _exp_of_fractions(reals.first[places].astype(np.float64) * 2.0**-64)
    low = (word >> np.uint64(11)).astype(np.float64) * 2.0**-53  # 53 bits, exact in float
    heads = low + 2.0**-53 <= middle - _EXP_SLACK
    for j in np.flatnonzero(~heads & (low < middle + _EXP_SLACK)):
        heads[j] = _exact_exp_coin(int(word[j]), reals, int(places[j]), entropy)
    return heads


def _exact_exp_coin(word: int, reals: UniformReals, place: int, entropy: Entropy) -> bool:
    """Is a uniform real that starts with this word below exp(-f)? Bits of both are read until that is clear."""
    for read in count(1):
        scale, prefix = 1 << 64 * read, reals.prefix(place, read)
        if word + 1 <= exp_bounds(Fraction(prefix + 1, scale), read)[0] * scale:
            return True
        if word >= exp_bounds(Fraction(prefix, scale), read)[1] * scale:
            return False
        word = word << 64 | int.from_bytes(entropy(8), "big")
    raise AssertionError


_WHOLE_STEPS = np.array(
    sorted(int(exp_bounds(Fraction(1), 4)[0] ** k * 2**64) for k in range(1, 45)), dtype=np.uint64
)
"""floor(2^64 e^-k), the largest k first; of k = 44 it is 1."""


def _whole_parts(size: int, entropy: Entropy) -> IntArray:
    """Geometric integers with P(k or more) = e^-k: one word and one look into a table each, in the same time."""
    word = full_words(size, entropy)
    below = np.searchsorted(_WHOLE_STEPS, word, side="left")
    integer = (_WHOLE_STEPS.size - below).astype(np.int64)
    closed = np.minimum(below, _WHOLE_STEPS.size - 1)
    for j in np.flatnonzero((_WHOLE_STEPS[closed] == word) | (word == 0)):
        integer[j] = _exact_whole_part(int(word[j]), entropy)
    return integer


def _exact_whole_part(word: int, entropy: Entropy) -> int:
    """The number of k >= 1 with U < e^-k, U a uniform real that starts with this word."""
    for read in count(1):
        scale, (low, high) = 1 << 64 * read, exp_bounds(Fraction(1), read + 1)
        integer = 0
        while word + 1 <= low ** (integer + 1) * scale:
            integer += 1
        if word >= high ** (integer + 1) * scale:
            return integer
        word = word << 64 | int.from_bytes(entropy(8), "big")
    raise AssertionError


def exponentials(size: int, entropy: Entropy) -> tuple[IntArray, UniformReals]:
    """Independent exponential reals of mean 1: their whole parts, and their fractions as reals of which bits are read.

    P(floor X >= k) = e^-k, and the fraction, independent of it, has the density e^-f: a uniform real, kept with chance
    e^-f. How many were tried is independent of what is kept, and each try takes the same time, but for the few coins
    (less than one in 2^46) that floats leave open.

    Args:
        size: how many.
        entropy: where uniform bytes come from.
    """
    integer, fraction = _whole_parts(size, entropy), UniformReals(size, entropy)
    pending = np.arange(size)
    while pending.size:
        pending = pending[~_keep_fractions(fraction, pending, entropy)]
        fraction.draw_again(pending)
    return integer, fraction


def discrete_laplace(units: IntArray, denominator: int, entropy: Entropy) -> IntArray:
    """Independent exact discrete Laplace draws, each at its own scale.

    Args:
        units: int64, any shape, each >= 1; s_i. Draw i has P(x) proportional to exp(-|x| s_i / t).
        denominator: t >= 1, common to all draws, with 512 t < 2^63 (for sums t already holds the factor M).
        entropy: where uniform bytes come from.

    Returns:
        int64 array in the shape of `units`.

    Raises:
        InternalError: a measurement without budget, or a denominator that int64 does not hold.

    **Privacy**: added to an integer whose neighbours differ by at most 1, draw i is (s_i / t)-DP, exactly.

    **Source**: docs/method/rows.md, "Exact noise"; Canonne, Kamath, Steinke (2020), algorithm 2.

    >>> import os
    >>> discrete_laplace(np.full(3, 1 << 40, dtype=np.int64), 1 << 30, os.urandom).tolist()
    [0, 0, 0]
    """
    units = np.asarray(units, dtype=np.int64)
    check_denominator(denominator)
    if units.size and int(units.min()) < 1:
        raise InternalError("a measurement was given no budget", hint="leave rows without budget unmeasured")
    flat = units.reshape(-1)
    noise = np.empty(flat.size, dtype=np.int64)
    for start in range(0, flat.size, BLOCK):
        scale = flat[start : start + BLOCK]
        above, below = geometric(denominator, 2 * scale.size, entropy).reshape(2, -1)
        # Each side is floored before the difference: floor((X1 - X2) / s) has another law.
        noise[start : start + scale.size] = above // scale - below // scale
    return noise.reshape(units.shape)


def laplace_variance(units: npt.ArrayLike, denominator: int) -> FloatArray:
    """The exact variance of the discrete Laplace, 2 e^-a / (1 - e^-a)^2 with a = units / denominator.

    Args:
        units: s >= 1, any shape.
        denominator: t (with the factor M for sums).

    Returns:
        Variances in counts squared, in the shape of `units`; 2 / a^2 for small a, 0 for very large a.

    >>> float(laplace_variance(1, 1))
    1.8413471884155848
    """
    rate = np.asarray(units, dtype=np.float64) / denominator
    return np.asarray(2.0 * np.exp(-rate) / np.expm1(-rate) ** 2, dtype=np.float64)


_SLACK = 2.0**-48
"""Of the larger term of an exponent: its six correctly rounded operations err by less than 2^-49 of it."""
_SMALLEST = Fraction(1, 1 << 20)  # the grain of sigma^2; keeps the rounds of `rational_coin` exact in float


def discrete_gaussian(sigma2: Fraction, size: int, entropy: Entropy) -> IntArray:
    """Independent exact discrete Gaussian draws with one variance parameter.

    Args:
        sigma2: sigma^2 > 0, exact; P(x) proportional to exp(-x^2 / (2 sigma^2)).
        size: how many draws.
        entropy: where uniform bytes come from.

    Returns:
        int64 array of length `size`.

    Raises:
        InternalError: sigma^2 is not positive, or so large that int64 does not hold the draws.

    **Privacy**: added to integers with squared L2 sensitivity d, the vector costs mu^2 = d / (sigma^2 - 4).

    **Source**: docs/method/rows.md, "Discrete Gaussian"; Canonne, Kamath, Steinke (2020), algorithm 3.
    """
    if sigma2 < _SMALLEST:
        raise InternalError("a discrete Gaussian needs a positive variance", hint="give every view a share")
    scale = math.isqrt(math.floor(sigma2)) + 1
    check_denominator(scale)
    noise = np.empty(size, dtype=np.int64)
    for start in range(0, size, BLOCK):
        noise[start : start + BLOCK] = _gaussian_block(sigma2, scale, min(BLOCK, size - start), entropy)
    return noise


def _gaussian_block(sigma2: Fraction, scale: int, size: int, entropy: Entropy) -> IntArray:
    """Each pending position draws a candidate of its own until one is accepted."""
    noise = np.empty(size, dtype=np.int64)
    pending = np.arange(size)
    while pending.size:
        magnitude = geometric(scale, pending.size, entropy)
        negative = below(2, pending.size, entropy) == 1
        usable = np.flatnonzero(~(negative & (magnitude == 0)))  # -0 would count zero twice
        accepted = usable[_gaussian_coin(magnitude[usable], sigma2, scale, entropy)]
        noise[pending[accepted]] = np.where(negative[accepted], -magnitude[accepted], magnitude[accepted])
        still = np.ones(pending.size, dtype=np.bool_)
        still[accepted] = False
        pending = pending[still]
    return noise


def _gaussian_coin(magnitude: IntArray, sigma2: Fraction, scale: int, entropy: Entropy) -> BoolArray:
    """Bernoulli(exp(-g)), g = (|y| - c)^2 / (2 sigma2), c = sigma2 / scale.

    g is computed in float with a proven bound (each of the six operations is correctly rounded), used as a
    filter only: a coin that the bound leaves open (about one in 2^45) is decided with exact fractions.
    """
    centre, twice = float(sigma2 / scale), float(2 * sigma2)
    real = magnitude.astype(np.float64)
    exponent = (real - centre) ** 2 / twice
    slack = (real + centre) ** 2 / twice * _SLACK

    def exact(index: int) -> Fraction:
        return (int(magnitude[index]) - sigma2 / scale) ** 2 / (2 * sigma2)

    return rational_coin(exponent, slack, exact, entropy)
