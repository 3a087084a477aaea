"""One weight per person from the joint whitened norm of all that she adds to all views.

Bounding each view on its own pays for a worst case in every view at once, which nobody is. Here a person's rows
are measured through every view's own rows, each divided by the noise that the view will get, and the one joint
norm is clipped: w = min(1, K / nu). Everything is an exact integer: w counts 2^-20, so w c and w y do too.

| here | there | unit |
|---|---|---|
| `WhitenedStatistic.share` | b_v cf, b_v (1 - cf): adds up to at most 1 | part of mu^2_shape |
| `WhitenedStatistic.typical` | t_v^2, (t_v d)^2: what a typical person adds, squared | stored units squared |
| `coefficient` | ceil(2^p b / t^2) | per squared row |
| `norm` | 2^p nu_u^2 | - |
| `clip` | 2^p K^2 | - |
| `UNIT` | one weight of 1 | 2^-20 |

With c_u and y_u a person's histograms of rows and of centred values, A_v the view's rows, cf the counts' part, d the
spread of a value and m_i leaves on the axes along which a person's rows differ,

    nu_u^2 = sum over views of b_v [cf |A_v c_u|^2 / t_v^2 + (1 - cf) |A_v y_u|^2 / (t_v d)^2]
    t_v^2 = tau + tau^2 prod_i |A_i 1/m_i|^2

**Privacy**: docs/privacy/people.md. With N = sum_s c_s Q_s and W^2 N <= UNIT^2 K2, noise of variance
V_s = UNIT^2 K2 / (mu^2 c_s), which `Gaussian.draw_at` adds 4 to, spends sum_s W^2 Q_s / V_s <= mu^2, whatever the
coefficients are. A person's norm and weight depend on her rows and on released values alone.
**Source**: docs/method/rows.md, "One weight a person".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, isqrt, prod

from dpsql.errors import InternalError
from dpsql.matrices.strategy import Strategy, gathers

UNIT = 1 << 20
"""A weight of 1 in the units that are stored."""

LARGEST_NORM = 1 << 86
"""Norms from here on get weight 0, so that UNIT^2 times a norm stays inside 127 bits."""

LARGEST_VARIANCE = 1 << 106
"""sigma stays below 2^53, a tenth of a percent of what 64-bit draws hold."""

LARGEST_PURE = (1 << 22) - 1
"""T stays below 2^22, so that T in units of 2^-20 leaves 64-bit noise its headroom (rule N4)."""

_FINEST = 12  # the smallest coefficient is about 2^12, so that rounding up costs at most 2^-12 of it
_HIGHEST = 74  # 2^p at most: norms up to 2^12 times the typical one are told apart
_ROW_BITS = 16  # bits kept of a squared row of a strategy with large entries


@dataclass(frozen=True)
class WhitenedStatistic:
    """One statistic as the norm sees it.

    Args:
        share: its part of the shape's budget.
        typical: squared size of what a typical person adds, from released values and public facts.
        total: product of its strategies' totals: rows are integers of 1/total.
    """

    share: Fraction
    typical: Fraction
    total: int = 1

    @property
    def shift(self) -> int:
        """Squared rows are divided by 2^shift and rounded up, so that they stay small."""
        return max(0, 2 * (self.total.bit_length() - 1) - _ROW_BITS)


@dataclass(frozen=True)
class Whitening:
    """The coefficients of the joint norm.

    Args:
        parts: the statistics.
        coefficient: one positive integer for each.
        point: p; a typical person's norm is about 2^p.
    """

    parts: tuple[WhitenedStatistic, ...]
    coefficient: tuple[int, ...]
    point: int

    def largest_row(self, index: int) -> int:
        """The row value of a statistic from which on a person is left out (weight 0).

        Rows may be cut to it: one that reaches it makes the norm at least `LARGEST_NORM` by itself.
        """
        return isqrt((LARGEST_NORM << self.parts[index].shift) // self.coefficient[index]) + 1

    def variance(self, index: int, clip: int, mu2: Fraction) -> Fraction:
        """V of a row of budget 1 of one statistic, in squared stored units of 1 / UNIT.

        Args:
            index: the statistic.
            clip: 2^p K^2.
            mu2: what all statistics may spend together.

        **Privacy**: the statistics together spend mu2 at any coefficients; see the module.
        """
        scaled = (UNIT**2 * clip) << self.parts[index].shift
        return Fraction(scaled) / (mu2 * self.coefficient[index])

    def largest_clip(self, mu2: Fraction) -> int:
        """The largest 2^p K^2 at which every sigma stays inside 64-bit noise, at least 1.

        Args:
            mu2: what all statistics may spend together.
        """
        room = (LARGEST_VARIANCE / self.variance(i, 1, mu2) for i in range(len(self.parts)))
        return max(1, int(min(room)))


def whiten(parts: Sequence[WhitenedStatistic]) -> Whitening:
    """Integer coefficients, rounded up, at one common binary point.

    Args:
        parts: the statistics; their shares add up to at most 1.

    Returns:
        The whitening.

    Raises:
        InternalError: shares above 1, or a part without share or size.
    """
    if sum((statistic.share for statistic in parts), Fraction(0)) > 1:
        raise InternalError("the shares of a shape add up to more than 1")
    if not parts or any(statistic.share <= 0 or statistic.typical <= 0 for statistic in parts):
        raise InternalError("every statistic of a shape needs a share and a size")
    exact = [
        statistic.share * (1 << statistic.shift) / (statistic.typical * statistic.total**2)
        for statistic in parts
    ]
    smallest = min(exact)
    wanted = _FINEST + ceil(1 / smallest).bit_length()
    point = max(0, min(_HIGHEST, wanted))
    return Whitening(tuple(parts), tuple(ceil(coefficient * (1 << point)) for coefficient in exact), point)


def typical_square(strategies: Sequence[Strategy], sticky: Sequence[bool], tau: int) -> Fraction:
    """t_v^2: the squared norm of tau rows dealt evenly over a view's cells.

    Args:
        strategies: one for each axis.
        sticky: axes on which all rows of a person share one leaf.
        tau: rows of a typical person, released.

    Returns:
        tau + tau^2 prod of ||A_i 1/m_i||^2 over the axes that are not sticky; tau + tau^2 / m_v for leaves.

    **Privacy**: released values and public facts only.
    """
    gathered = [
        Fraction(1) if stuck else even_square(strategy)
        for strategy, stuck in zip(strategies, sticky, strict=True)
    ]
    return tau + tau**2 * prod(gathered, start=Fraction(1))


def even_square(strategy: Strategy) -> Fraction:
    """||H 1/n||^2 / total^2, budgets multiplied in: how much of one row dealt evenly over the leaves is seen.

    Where rows gather leaves it is a hair above the exact value.
    """
    rows = strategy.entries()
    if rows is None:
        raise InternalError("the rows of a shape are written down")
    square = int(((rows.sums().astype(object) * strategy.budget) ** 2).sum())
    return Fraction(square + gathers(strategy), (strategy.leaves * strategy.total) ** 2)


def pure_bound(tau: int, reach: int, spread: int) -> int:
    """T: the most that a person's weighted centred values may add up to.

    Args:
        tau: most weighted rows.
        reach: the most that one centred value can be.
        spread: how far a typical value is from the centre.

    Returns:
        min(tau reach, spread max(tau, 4 sqrt tau)), at least 1 and at most `LARGEST_PURE`.
    """
    return max(1, min(tau * reach, spread * max(tau, isqrt(16 * tau)), LARGEST_PURE))
