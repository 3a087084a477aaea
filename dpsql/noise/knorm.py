"""Exact draws of integer vectors with P(z) proportional to exp(-N(z)), N a norm: the K-norm mechanism.

| here | there | unit |
|---|---|---|
| `bounds` (M_0 .. M_{d-1}) | how far one unit moves each number | stored units |
| size(z) | max_j \\|z_j\\| / M_j | units |
| `joint_rows` | one vector of d numbers a row, P(z) ~ exp(-(s/t) size(z)) | |

COUNT and SUM of the same rows move together, so one draw of their pair pays once for what two draws pay twice.

A draw takes no exact value: the sum is made after it. The number of tries depends on coins alone and is independent
of the values that are kept, so the time of a draw reveals nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpsql.errors import InternalError
from dpsql.noise.coins import BLOCK, BoolArray, Entropy, IntArray, check_denominator, rational_coin
from dpsql.noise.laplace import discrete_laplace

_SLACK = 2.0**-48
"""Of the larger term of an exponent: some eight correctly rounded operations err by less than 2^-49 of it."""


def joint_rows(units: IntArray, denominator: int, bounds: Sequence[int], entropy: Entropy) -> IntArray:
    """Independent vectors of d numbers with P(z) proportional to exp(-(s/t) max_j |z_j| / M_j).

    Each number is drawn by the d-th part of the rate and the vector kept with the chance that is missing, which is
    exp(-(s/t) (max - mean)) of |z_j| / M_j: a maximum is never below a mean. About d^d / d! tries.

    Args:
        units: int64, any shape, each >= 1; s.
        denominator: t >= 1; 512 t d max M_j < 2^63.
        bounds: M_j >= 1, one a number.
        entropy: where uniform bytes come from.

    Returns:
        int64, shape (d, *units.shape).

    Raises:
        InternalError: a row without budget, or scales that int64 does not hold.

    **Privacy**: added to integer vectors of which one unit moves one by w (x_0, .., x_{d-1}), |x_j| <= M_j and w in
    [0, 1], row r is w s_r / t - DP, for all d numbers together.

    **Source**: docs/method/noise.md, "Joint rows"; Hardt and Talwar (2010), Awan and Slavkovic (2020).
    """
    units = np.asarray(units, dtype=np.int64)
    numbers = len(bounds)
    if numbers < 1 or min(bounds) < 1:
        raise InternalError("a joint draw needs a positive bound for each of its numbers")
    check_denominator(denominator * numbers * max(bounds))
    flat = units.reshape(-1)
    if numbers == 1:
        return discrete_laplace(units, denominator * bounds[0], entropy)[np.newaxis]
    noise = np.empty((numbers, flat.size), dtype=np.int64)
    for start in range(0, flat.size, BLOCK):
        pending = np.arange(start, min(start + BLOCK, flat.size))
        while pending.size:
            scale = flat[pending]
            draws = np.stack(
                [discrete_laplace(scale, denominator * numbers * bound, entropy) for bound in bounds]
            )
            kept = _excess_coin(draws, scale, denominator, bounds, entropy)
            noise[:, pending[kept]] = draws[:, kept]
            pending = pending[~kept]
    return noise.reshape(numbers, *units.shape)


def _excess_coin(
    draws: IntArray, units: IntArray, denominator: int, bounds: Sequence[int], entropy: Entropy
) -> BoolArray:
    """Bernoulli(exp(-(s/t) (max_j |z_j| / M_j - mean_j |z_j| / M_j))) for each column of `draws`."""
    sizes = np.abs(draws).astype(np.float64) / np.array(bounds, dtype=np.float64)[:, np.newaxis]
    largest = sizes.max(axis=0)
    rate = units.astype(np.float64) / denominator

    def exact(index: int) -> Fraction:
        parts = [Fraction(abs(int(z)), bound) for z, bound in zip(draws[:, index], bounds, strict=True)]
        return Fraction(int(units[index]), denominator) * (max(parts) - sum(parts, Fraction(0)) / len(parts))

    # The difference cancels: its error is bounded by the maximum, not by itself.
    return rational_coin(rate * (largest - sizes.mean(axis=0)), rate * largest * _SLACK, exact, entropy)
