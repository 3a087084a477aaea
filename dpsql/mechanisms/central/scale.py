"""Totals with a high bound, the centre of a measure, and the ratio that gives shapes their scale.

Views are published with a low bound, so that their noise is small; what the bound leaves out is mostly one
common factor. One total with a high bound is published beside them, and the ratio of the two removes it.

| here | there | unit |
|---|---|---|
| `draw_total` | N_hi, S_hi | rows, stored integers |
| `high_bound` | tau_hi, C: about 3 q.9(n), 3 q.9(S) | the same |
| `centre` | mid = S_hi / N_hi within [2%, 98%] of the clip range | stored integers |
| `Ratio` | R: N_hi, and S_hi, over the inverse-variance mean of the views' totals | 1 |

**Source**: docs/method/user_level.md, "Shape and scale", "Totals with a high bound", "Centre".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp, isqrt, log, sqrt
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from dpsql.mechanisms.law import NoiseLaw
from dpsql.noise import Noise

HIGH = 3
"""The high bound is this many times q.9 where nobody is seen."""

LIGHT_TAIL = 1.2
"""Noise counts more than the predicted bias, since real tails may be lighter than log-normal ones."""

NORMAL = NormalDist()

APPLY = 1.1
"""A smaller ratio is not worth its own error."""

SEEN, CLEAR = 3.0, 10.0
"""Standard errors that both totals must be above 0 before their ratio is used: of rows, of a measure."""

ROWS_SAY = 2 / 3
"""The say of rows in the ratio, beside that of the measures."""


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


class Estimate(NamedTuple):
    """A number with its standard error."""

    value: float
    sd: float


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


def high_bound(half: float, ninth: float, people: float, unit_noise: float) -> int:
    """The bound of a total with the least predicted error, bias and noise together.

    Amounts per person are taken for log-normal with the two released quantiles; of that law the part above a
    bound is known in closed form. Against three times q.9 the total of Online Retail errs by 9% rather than 10.5%.

    Args:
        half: q.5 of the amount per person, released.
        ninth: q.9.
        people: how many there seem to be, released.
        unit_noise: noise SD of the total for a bound of 1.

    Returns:
        A bound between 1.5 and 8 times q.9, an integer of at least 1.

    >>> high_bound(10.0, 35.0, 5581.0, 17.1)
    122
    """
    spread = max(log(max(ninth / half, 1.0)) / NORMAL.inv_cdf(0.9), 0.05) if half > 0 else 1.0
    mean = half * exp(spread**2 / 2)

    def predicted(bound: float) -> float:
        far = log(bound / half) / spread
        left_out = mean * NORMAL.cdf(spread - far) - bound * NORMAL.cdf(-far)
        return (people * left_out) ** 2 + LIGHT_TAIL * (unit_noise * bound) ** 2

    if half <= 0 or ninth <= 0 or people <= 0:
        return max(1, round(HIGH * ninth))
    candidates = [ninth * step / 8 for step in range(12, 65)]
    best: float = min(candidates, key=predicted)
    return max(1, round(best))


def draw_total(exact: int, bound: int, amount: Fraction, law: NoiseLaw, noise: Noise) -> NoisyTotal:
    """Add noise to a total to which each person adds at most `bound` in absolute value.

    Args:
        exact: the total.
        bound: its sensitivity.
        amount: what may be spent, in the law's own currency.
        law: the noise's law.
        noise: where noise comes from.

    **Privacy**: epsilon-DP or rho-zCDP.
    """
    drawn = law.draw_bounded(np.array([exact], np.int64), bound, amount, noise)
    return NoisyTotal(int(drawn.value[0]), drawn.sd, bound)


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
    """How far a typical value is from the centre: 9/20 of the most that a standard deviation can be.

    Values in [lower, upper] with mean mid deviate by at most sqrt((mid - lower)(upper - mid)) (Bhatia, Davis).
    The 9/20 was best on FoodMart (real deviation 0.34 of the most) and Online Retail (0.39).

    >>> spread(650, 0, 2500)
    493
    """
    return max(isqrt(81 * (mid - lower) * (upper - mid) // 400), 1)


def ratio(rows: NoisyTotal, low: Estimate, sums: Sequence[tuple[NoisyTotal, Estimate]] = ()) -> Ratio:
    """R with its error and its rule.

    Rows alone would give N_hi over the views' rows. A measure's total gives the same factor over again, with noise of
    its own: together they are less noisy. Rows keep two thirds of the say, since large buyers also buy
    dear, so that the bound of a sum leaves out more.

    Args:
        rows: N_hi, or the public number of rows with sd 0.
        low: the views' total of weighted rows.
        sums: S_hi of each measure with the views' weighted sum of it; those lost in noise have no say.

    Returns:
        The ratio; 1 where it is below 1.1 or where a total is not clearly above 0.
    """
    if rows.value <= SEEN * rows.sd or low.value <= SEEN * low.sd:
        return Ratio(1.0, 0.0, None)
    clear = [(h, t) for h, t in sums if rows.sd and h.value > CLEAR * h.sd and t.value > CLEAR * t.sd]
    share = ROWS_SAY if clear else 1.0
    shares = [share, *((1.0 - share) / len(clear) for _ in clear)]
    pairs = [(rows, low), *clear]
    measured = sum(w * h.value / t.value for w, (h, t) in zip(shares, pairs, strict=True))
    if measured < APPLY:
        return Ratio(1.0, 0.0, measured)
    squares = [
        (w * h.value / t.value) ** 2 * ((h.sd / h.value) ** 2 + (t.sd / t.value) ** 2)
        for w, (h, t) in zip(shares, pairs, strict=True)
    ]
    return Ratio(measured, sqrt(sum(squares)) / measured, measured)


def pooled(estimates: Sequence[Estimate]) -> Estimate:
    """The inverse-variance mean of independent estimates.

    >>> pooled([Estimate(1.0, 1.0), Estimate(3.0, 1.0)]).value
    2.0
    """
    precision = [1.0 / max(e.sd**2, 1e-12) for e in estimates]
    value = sum(p * e.value for p, e in zip(precision, estimates, strict=True)) / sum(precision)
    return Estimate(value, sqrt(1.0 / sum(precision)))
