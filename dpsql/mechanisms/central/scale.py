"""Totals with a high bound, the centre of a measure, and the ratio that gives shapes their scale.

Views are published with a low bound, so that their noise is small; what the bound leaves out is mostly one
common factor. One total with a high bound is published beside them, and the ratio of the two removes it.

| here | there | unit |
|---|---|---|
| `draw_total` | N_hi, S_hi | rows, stored integers |
| `high_bound` | tau_hi = 3 q.9(n), C = 3 q.9(S) | the same |
| `centre` | mid = S_hi / N_hi within [2%, 98%] of the clip range | stored integers |
| `Ratio` | R = N_hi / (inverse-variance mean of the views' totals) | 1 |

**Source**: userlevel.md, steps 2, 3 and 5.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import sqrt

import numpy as np

from dpsql.budget import cap_units, gaussian_sigma2, scaled_denominator
from dpsql.noise import Noise, laplace_variance

HIGH = 3
"""The high bound is this many times q.9."""

APPLY = 1.1
"""A smaller ratio is not worth its own error."""

SEEN = 3.0
"""Standard errors that both totals must be above 0 before their ratio is used."""


@dataclass(frozen=True)
class NoisyTotal:
    """A total with its bound.

    Args:
        value: noisy integer as drawn.
        sd: standard deviation of its noise; 0 where the total is public.
        bound: the most that one person adds.
    """

    value: int
    sd: float
    bound: int


@dataclass(frozen=True)
class Ratio:
    """The factor between the views' weighted rows and all rows.

    Args:
        value: R; 1 where it is not applied.
        error: its relative standard error; 0 where it is not applied.
        measured: R before the rule, or None where a total is lost in noise.
    """

    value: float
    error: float
    measured: float | None

    @property
    def applied(self) -> bool:
        """Whether answers are multiplied."""
        return self.value != 1.0


def high_bound(quantile: float) -> int:
    """Three times the 90% quantile, an integer of at least 1.

    >>> high_bound(35.2), high_bound(0.1)
    (106, 1)
    """
    return max(1, round(HIGH * quantile))


def draw_total(exact: int, bound: int, amount: Fraction, norm: int, noise: Noise) -> NoisyTotal:
    """Add noise to a total to which each person adds at most `bound` in absolute value.

    Args:
        exact: the total.
        bound: its sensitivity.
        amount: what may be spent: epsilon (norm 1) or rho (norm 2).
        norm: 1 for Laplace, 2 for Gaussian noise.
        noise: where noise comes from.

    **Privacy**: epsilon-DP or rho-zCDP.
    """
    if norm == 2:
        sigma2 = gaussian_sigma2(amount, bound**2)
        return NoisyTotal(exact + int(noise.gaussian(sigma2, 1)[0]), float(sigma2) ** 0.5, bound)
    t = scaled_denominator(bound)
    units = cap_units(amount, t)
    drawn = int(noise.laplace(np.array([units], dtype=np.int64), t * bound)[0])
    return NoisyTotal(exact + drawn, float(laplace_variance(units, t * bound)) ** 0.5, bound)


def centre(total: NoisyTotal, rows: NoisyTotal, lower: int, upper: int) -> int:
    """The integer that a measure is published around.

    Args:
        total: S_hi.
        rows: N_hi of the same rows.
        lower, upper: the measure's clip range.

    Returns:
        S_hi / N_hi, kept within [2%, 98%] of the range; its middle where no rows are seen.
    """
    if rows.value <= SEEN * rows.sd:
        return (lower + upper) // 2
    margin = (upper - lower) / 50
    return round(min(max(total.value / rows.value, lower + margin), upper - margin))


def spread(mid: int, lower: int, upper: int) -> int:
    """How far a typical value is from the centre: |mid|, and at least a tenth of the reach.

    Amounts spread about as wide as their mean. A measure centred near 0 would look constant without the tenth.
    """
    return max(abs(mid), max(upper - mid, mid - lower) // 10, 1)


def ratio(high: NoisyTotal, views: Sequence[tuple[float, float]]) -> Ratio:
    """R with its error and its rule.

    Args:
        high: N_hi, or the public number of rows with sd 0.
        views: (total, variance) of each view's weighted rows, independent.

    Returns:
        The ratio; 1 where it is below 1.1 or where a total is not clearly above 0.
    """
    precision = [1.0 / max(variance, 1e-12) for _, variance in views]
    low = sum(p * total for p, (total, _) in zip(precision, views, strict=True)) / sum(precision)
    low_sd = sqrt(1.0 / sum(precision))
    if high.value <= SEEN * high.sd or low <= SEEN * low_sd:
        return Ratio(1.0, 0.0, None)
    measured = high.value / low
    if measured < APPLY:
        return Ratio(1.0, 0.0, measured)
    return Ratio(measured, sqrt((high.sd / high.value) ** 2 + (low_sd / low) ** 2), measured)
