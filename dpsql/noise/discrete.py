"""The exact discrete Laplace with a scale per draw, its variance, and the exact discrete Gaussian.

| here | there | unit |
|---|---|---|
| `units` (s), `denominator` (t) | eps_i = s_i / t | budget per unit of count |
| `sigma2` | sigma^2 of N_Z(0, sigma^2), Canonne-Kamath-Steinke 2020 | counts squared |

A draw at a scale of its own costs no more than one at a shared scale: X ~ Geom(1 - e^(-1/t)) is sampled
alike for every draw, and floor(X / s) ~ Geom(1 - e^(-s/t)).

Candidates of the Gaussian come from the discrete Laplace of rate 1 / scale, scale = floor(sigma) + 1, and are accepted
with probability exp(-(|y| - sigma^2 / scale)^2 / (2 sigma^2)).
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.noise.coins import (
    BLOCK,
    BoolArray,
    Entropy,
    FloatArray,
    IntArray,
    below,
    check_denominator,
    geometric,
    rational_coin,
)


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

    **Source**: docs/method/noise.md, "Exact noise"; Canonne, Kamath, Steinke (2020), algorithm 2.

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

    **Source**: docs/method/noise.md, "Discrete Gaussian"; Canonne, Kamath, Steinke (2020), algorithm 3.
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
