"""The exact discrete Laplace with a scale per draw, and its variance.

| here | there | unit |
|---|---|---|
| `units` (s), `denominator` (t) | eps_i = s_i / t | budget per unit of count |

A draw at a scale of its own costs no more than one at a shared scale: X ~ Geom(1 - e^(-1/t)) is sampled
alike for every draw, and floor(X / s) ~ Geom(1 - e^(-s/t)).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.noise.coins import BLOCK, Entropy, FloatArray, IntArray, check_denominator, geometric


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
