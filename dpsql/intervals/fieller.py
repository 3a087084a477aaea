"""Quantiles of noise, and intervals of quotients: the delta method, and Fieller's interval near a denominator of 0.

**Privacy**: published values alone.
"""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist
from typing import overload

import numpy as np

from dpsql.planner.axis_query import FloatArray

LAPLACE_KURTOSIS = 3.0
FAR = 10.0
"""Standard errors between a denominator and 0 from which the delta method is good enough."""


@lru_cache(maxsize=256)
def _quantiles(level: float) -> tuple[float, float]:
    """Two-sided quantiles of normal and of Laplace noise with standard deviation 1, the latter never the smaller."""
    normal = NormalDist().inv_cdf(0.5 + level / 2)
    return normal, max(normal, -math.log(1.0 - level) / math.sqrt(2.0))


@overload
def quantile(level: float, kurtosis: float = 0.0) -> float: ...
@overload
def quantile(level: float, kurtosis: FloatArray) -> FloatArray: ...
def quantile(level: float, kurtosis: float | FloatArray = 0.0) -> float | FloatArray:
    """Standard errors on each side of an answer that hold it with probability `level`.

    One Laplace draw has heavier tails than a normal one (2.118 against 1.960 at 95%); a sum of many is
    normal. Between the two it goes linearly in the excess kurtosis, and never below the normal quantile.

    Args:
        level: in (0, 1).
        kurtosis: excess kurtosis of the noise: 0 for normal, 3 for one Laplace draw, 3/m for a sum of m; one number
            or an array.

    Returns:
        The factor, in the shape of `kurtosis`.

    >>> round(quantile(0.95), 3), round(quantile(0.95, 3.0), 3)
    (1.96, 2.118)
    """
    normal, laplace = _quantiles(level)
    factor = normal + np.clip(np.divide(kurtosis, LAPLACE_KURTOSIS), 0.0, 1.0) * (laplace - normal)
    return factor if isinstance(kurtosis, np.ndarray) else float(factor)


RESIDUE = 1e-9
"""Part of two numbers below which their difference is taken for 0; rounding leaves some 1e-14 of them."""


def laplace_kurtosis(largest: FloatArray, variance: FloatArray) -> FloatArray:
    """Excess kurtosis of Laplace noise: that of as many equal draws as make up the variance.

    It depends on what an answer is, not on how it is spelt or which stored nodes are added up.

    Args:
        largest: variance that the cell with the largest weight adds (`Errors.largest`).
        variance: of the noise.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        share = np.where(variance > 0, largest / variance, 0.0)
    return LAPLACE_KURTOSIS * np.clip(share, 0.0, 1.0)


def quotient(above: FloatArray, below: FloatArray) -> FloatArray:
    """above / below, NaN where the denominator is 0."""
    ratio: FloatArray = np.divide(above, below, out=np.full(len(above), np.nan), where=below != 0)
    return ratio


def fieller(
    above: FloatArray,
    below: FloatArray,
    va: FloatArray,
    cab: FloatArray,
    vb: FloatArray,
    z: float | FloatArray,
) -> tuple[FloatArray, FloatArray]:
    """Fieller's interval of a ratio of two normal numbers.

    Args:
        above, below: numerator and denominator.
        va, cab, vb: their variances and covariance.
        z: standard errors on each side.

    Returns:
        (low, high), NaN where the denominator's own interval holds 0.

    >>> low, high = fieller(*(np.array([x]) for x in (10.0, 5.0, 0.0, 0.0, 0.25)), 2.0)
    >>> round(float(low[0]), 3), round(float(high[0]), 3)
    (1.667, 2.5)
    """
    square, noise = below**2, z**2 * vb
    a = square - noise
    b = above * below - z**2 * cab
    c = above**2 - z**2 * va
    with np.errstate(divide="ignore", invalid="ignore"):
        root = np.sqrt(np.maximum(b**2 - a * c, 0.0))
        # A denominator that is as large as its own margin: the sign of what is left hangs on the last bits.
        good = a > RESIDUE * (square + noise)
        return np.where(good, (b - root) / a, np.nan), np.where(good, (b + root) / a, np.nan)
