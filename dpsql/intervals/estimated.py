"""Estimated numbers: what a function of an error may ask of them, whatever they are made of.

**Privacy**: published values alone.

Quantiles of noise, and intervals of quotients: the delta method, and Fieller's interval near a denominator of 0.

**Privacy**: published values alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol, overload

import numpy as np

from dpsql.matrices.model import Covariance
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


class ValueRange(NamedTuple):
    """Range of possible exact answers, each end of shape (rows,); infinite where nothing bounds them."""

    low: FloatArray
    high: FloatArray


@dataclass(frozen=True, eq=False)
class ErrorComponents:
    """Variances beyond the noise, each of shape (rows,) in squared units of the answer.

    Args:
        scale: the common factor's noise.
        spread: of groups.
        down, up: the tail, towards less and more; infinite where nothing bounds it.
        shift_low, shift_high: estimated bias from a declared bound, in units of the answer, for either end.
    """

    scale: FloatArray
    spread: FloatArray
    down: FloatArray
    up: FloatArray
    shift_low: FloatArray
    shift_high: FloatArray

    @property
    def tail(self) -> FloatArray:
        """The mean of what both sides of a 95% interval would be by tail and shifts alone, in standard errors, squared.

        An interval is never shorter, so this part is no more than the whole.
        """
        z = quantile(0.95)
        below = np.maximum(z * np.sqrt(self.down) - self.shift_low, 0.0)
        above = np.maximum(z * np.sqrt(self.up) + self.shift_high, 0.0)
        return ((below + above) / (2 * z)) ** 2

    @staticmethod
    def joined(components: Sequence[ErrorComponents]) -> ErrorComponents | None:
        """Of several tables or releases; None of none."""
        if not components:
            return None
        columns = zip(*(component._fields() for component in components), strict=True)
        return ErrorComponents(*(np.asarray(sum(column), np.float64) for column in columns))

    def _fields(self) -> tuple[FloatArray, ...]:
        return self.scale, self.spread, self.down, self.up, self.shift_low, self.shift_high


class Curved(NamedTuple):
    """Numbers that are functions of other estimated numbers.

    Args:
        argument: the other numbers.
        steps: functions applied in turn, by their names in `image.STEPS`.
        constants: of each step, shape (rows,).
    """

    argument: Estimated
    steps: tuple[str, ...]
    constants: tuple[FloatArray, ...]


class Interval(NamedTuple):
    """Ends of intervals, each of shape (rows,): infinite where nothing bounds a number, NaN where not defined."""

    low: FloatArray
    high: FloatArray


class BothEnds(NamedTuple):
    """An interval as the errors make it, and cut to the values that the exact answer can have."""

    whole: Interval
    possible: Interval


class Estimated(Protocol):
    """Some noisy numbers and their errors; every array has shape (rows,)."""

    @property
    def intervals(self) -> dict[float, BothEnds]:
        """Those that were worked out last, by level."""

    @property
    def curve(self) -> Curved | None:
        """Curve behind the numbers, where their interval is an image."""

    def central(self) -> FloatArray:
        """The numbers; NaN where one is NULL."""

    def noise(self) -> FloatArray:
        """Standard errors of the noise; NaN where not defined."""

    def variance(self, of: Callable[[Covariance], FloatArray | float]) -> FloatArray:
        """One component of their variances."""

    def beyond_noise(self) -> ErrorComponents | None:
        """Variances beyond the noise; None where no shape was scaled, and no rows beyond a bound were measured."""

    def z(self, level: float) -> FloatArray:
        """Standard errors on each side of a number that cover it with this chance."""

    def ends(self, z: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Ends of the noise's interval of z standard errors; NaN where it is unbounded."""

    def possible(self, level: float) -> ValueRange | None:
        """Between which values the exact answers lie whatever the rows are; None where nothing is known of them."""

    def interpolation_bound(self) -> FloatArray:
        """The most that cutting bins may add."""

    def cut_ends(self) -> tuple[Estimated, Estimated] | None:
        """The least and the largest numbers that rows of cut bins may make, NaN where nothing bounds them.

        None where no bin is cut.
        """

    def share_beyond(self) -> FloatArray:
        """Share of the rows beyond the contribution bound; NaN where it is not measured, or noise hides it."""


class RunningCounts(Protocol):
    """Noisy counts along a column, of which a quantile is one value."""

    def ends(self, level: float) -> tuple[Any, Any]:
        """The interval of the quantile, None where nothing bounds it."""

    def stderr(self) -> float | None:
        """Its standard error; None where it has none."""


def nullable(values: FloatArray) -> list[float | None]:
    """NaN and infinity as None."""
    return [value if math.isfinite(value) else None for value in values.tolist()]
