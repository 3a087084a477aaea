"""Functions of an answer's error, such as `DP_STDERR(x)`: one table.

| to add one | |
|---|---|
| its value | a function of estimated numbers and a level, one value for each |
| its name | an entry of `ERRORS`: SQL knows it, the shell completes it, `make docs` writes it into docs/sql.md |

A function of an error is a function of the release alone, and NULL where nothing bounds the error.

**Privacy**: post-processing of a release.

Intervals of functions of one noisy value: images of the value's own interval.

An interval that covers x with some chance has an image that covers f(x) with the same chance at least, however f bends
and however near to 0 it is; an interval by f's derivative does not. For x = 4 +- 10, SQRT(x) is 2 with [0, 3.7]; by the
derivative it would be 2 +- 2.5.

A value that cannot lie beyond a bound, such as a variance below 0, keeps the length of its other side where noise took
it there: -3 +- 2 is 0 with [0, 2], not 0 without an error.

**Estimated numbers**: what a function of an error may ask of them, whatever they are made of. Quantiles of noise, and
intervals of quotients: the delta method, and Fieller's interval near a denominator of 0.

**Privacy**: published values alone.
**Source**: docs/method/views.md, "Functions of a noisy value".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from statistics import NormalDist
from typing import Any, NamedTuple, Protocol, overload

import numpy as np

from dpsql.matrices.model import Covariance
from dpsql.planner.axis_query import FloatArray

LAPLACE_KURTOSIS = 3.0
NORMAL, DAY = 1.959964, timedelta(days=1)
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

    def cut_ends(self) -> Sequence[tuple[Estimated, Estimated]]:
        """The least and the largest numbers that rows of cut bins may make, NaN where nothing bounds them.

        Once with the noise of each corner: cut bins taken whole, left out, or either; nothing where no bin is cut.
        """

    def share_beyond(self) -> FloatArray:
        """Share of the rows beyond the contribution bound; NaN where it is not measured, or noise hides it."""


QuantileEnds = Callable[[float], tuple[Any, Any]]
"""A level -> the interval of a quantile of one group, None where nothing bounds an end."""


def quantile_stderr(ends: QuantileEnds, level: float) -> float | None:
    """Half of the 95% interval over 1.96: of a normal value its standard error; in days of dates and times."""
    low, high = ends(DEFAULT_LEVEL)
    if low is None or high is None or isinstance(low, str | bool):
        return None
    width: timedelta | float = high - low
    return (width / DAY if isinstance(width, timedelta) else float(width)) / (2 * NORMAL)


def nullable(values: FloatArray) -> list[float | None]:
    """NaN and infinity as None."""
    return [value if math.isfinite(value) else None for value in values.tolist()]


class Ends(NamedTuple):
    """Numbers and the ends of their intervals: infinite where open, NaN where not defined."""

    low: FloatArray
    middle: FloatArray
    high: FloatArray

    def mapped(self, function: Callable[[FloatArray], FloatArray]) -> Ends:
        """Under a function that never falls."""
        return Ends(function(self.low), function(self.middle), function(self.high))

    def turned(self) -> Ends:
        """-x."""
        return Ends(-self.high, -self.middle, -self.low)


def image(curve: Curved, ends: tuple[FloatArray, FloatArray]) -> tuple[FloatArray, FloatArray]:
    """The ends of a function's interval.

    Args:
        curve: the function and what it is of.
        ends: of its argument's interval.
    """
    low, high = ends
    numbers = Ends(low, curve.argument.central(), high)
    with np.errstate(all="ignore"):  # LN of 0 is open, 1/0 too
        for step, constant in zip(curve.steps, curve.constants, strict=True):
            numbers = STEPS[step](numbers, constant)
    return numbers.low, numbers.high


def _times(x: Ends, by: FloatArray) -> Ends:
    products = [np.where(by == 0, 0.0, by * end) for end in x]
    return Ends(np.minimum(products[0], products[2]), products[1], np.maximum(products[0], products[2]))


def _at_least(x: Ends, bound: FloatArray) -> Ends:
    return x.mapped(lambda end: np.where(np.isnan(end), np.nan, np.fmax(end, bound)))


def _always_at_least(x: Ends, bound: FloatArray) -> Ends:
    cut = _at_least(x, bound)
    return cut._replace(high=cut.middle + (x.high - x.middle))


def _absolute(x: Ends, _: FloatArray) -> Ends:
    low, middle, high = map(np.abs, x)
    inside = (x.low < 0) & (x.high > 0)
    return Ends(np.where(inside, 0.0, np.minimum(low, high)), middle, np.maximum(low, high))


def _reciprocal(x: Ends, _: FloatArray) -> Ends:
    """1 / x; not defined where 0 lies inside, open where it is an end."""
    inside = (x.low < 0) & (x.high > 0)
    low, high = np.where(inside, np.nan, 1.0 / x.high), np.where(inside, np.nan, 1.0 / x.low)
    return Ends(np.where(x.high == 0, -np.inf, low), 1.0 / x.middle, np.where(x.low == 0, np.inf, high))


def _power(x: Ends, by: FloatArray) -> Ends:
    """x^p; of an even p what |x| gives, of a fraction that of what is not negative."""
    size = np.abs(by)
    even, odd = size % 2 == 0, size % 2 == 1
    absolute, positive = _absolute(x, by), x.mapped(lambda end: np.maximum(end, 0.0))
    based = [np.where(even, a, b) for a, b in zip(absolute, positive, strict=True)]
    signed = [np.sign(end) * np.abs(end) ** size for end in x]
    raised = Ends(*(np.where(odd, s, np.power(b, size)) for s, b in zip(signed, based, strict=True)))
    return Ends(*(np.where(by < 0, a, b) for a, b in zip(_reciprocal(raised, by), raised, strict=True)))


def _monotone(function: Callable[[FloatArray], FloatArray]) -> Callable[[Ends, FloatArray], Ends]:
    return lambda x, _: x.mapped(function)


STEPS: dict[str, Callable[[Ends, FloatArray], Ends]] = {
    "times": _times, "plus": lambda x, by: x.mapped(lambda end: end + by),
    "at_least": _at_least, "at_most": lambda x, bound: _at_least(x.turned(), -bound).turned(),
    "always_at_least": _always_at_least,
    "always_at_most": lambda x, bound: _always_at_least(x.turned(), -bound).turned(),
    "sqrt": _monotone(lambda end: np.sqrt(np.maximum(end, 0.0))), "cbrt": _monotone(np.cbrt),
    "exp": _monotone(np.exp), "ln": _monotone(lambda end: np.log(np.maximum(end, 0.0))),
    "abs": _absolute, "reciprocal": _reciprocal, "power": _power,
}  # fmt: skip
"""Functions by name: numbers with their ends, and a constant for each -> the same of the function."""


DEFAULT_LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class ErrorFunction:
    """One thing that is known of a value's error.

    Args:
        summary: what it gives, for docs/sql.md.
        of: estimated numbers and a level -> one value for each; NaN where it is not defined.
        takes_level: whether a level may follow the value in SQL.
        parts: by the name that may follow the value in SQL instead.
        of_quantile: intervals of one group's quantile and a level -> its value; None where it has none.
        compares: whether it takes two values and is a function of their difference.
        type: DuckDB's type of its values.
    """

    summary: str
    of: Callable[[Estimated, float], FloatArray]
    takes_level: bool = False
    of_quantile: Callable[[QuantileEnds, float], Any] | None = None
    parts: Mapping[str, ErrorFunction] = field(default_factory=dict)
    compares: bool = False
    type: str = "DOUBLE"

    # what is no number is NULL, and is not worth a warning
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def values(self, numbers: Estimated, level: float) -> FloatArray:
        """One value for each number; NaN where it is not defined, or where the number itself is NULL."""
        return np.where(np.isnan(numbers.central()), np.nan, self.of(numbers, level))

    def column(self, numbers: Estimated, level: float) -> list[Any]:
        """The same as a column of `type`, None for NaN."""
        values = nullable(self.values(numbers, level))
        return [None if value is None else bool(value) for value in values] if self.compares else values


def _beyond_noise(
    component: Callable[[ErrorComponents], FloatArray],
) -> Callable[[Estimated, float], FloatArray]:
    """A part beside the noise; 0 where shapes were not scaled, NaN where the noise is not defined."""

    def of(numbers: Estimated, level: float) -> FloatArray:
        components, noise = numbers.beyond_noise(), numbers.noise()
        error = np.zeros_like(noise) if components is None else np.sqrt(component(components))
        return np.where(np.isnan(noise), np.nan, error)

    return of


LEVELS = 2
"""Levels whose intervals numbers keep: that of standard errors, and the one that is asked."""


def interval(numbers: Estimated, level: float) -> Interval:
    """The interval of the exact answer over all rows: of the noise, widened by what else may be off, cut bins too.

    Every error that is shown comes from here. An interval is cut to the values that the exact answer can have
    (`dpsql.intervals.possible`), but never so far that the number itself lies outside.
    """
    return _both_ends(numbers, level).possible


def _both_ends(numbers: Estimated, level: float) -> BothEnds:
    ends = numbers.intervals.get(level)
    if ends is None:
        ends = _interval(numbers, level)
        if len(numbers.intervals) >= LEVELS:
            numbers.intervals.clear()
        numbers.intervals[level] = ends
    return ends


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a denominator of 0: NaN and infinity
def _with_cut_bins(numbers: Estimated, ends: Interval, level: float) -> Interval:
    """An interval, out to those of the least and of the largest number that rows of cut bins may make."""
    for least, most in numbers.cut_ends():
        # The ends have their cut bins placed; quotients of averages would otherwise be cut again without end.
        low, high = _of_noise(least, level).low, _of_noise(most, level).high
        low = np.minimum(ends.low, np.where(np.isnan(low), -np.inf, low))
        ends = Interval(low, np.maximum(ends.high, np.where(np.isnan(high), np.inf, high)))
    return ends


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a denominator of 0: NaN and infinity
def _interval(numbers: Estimated, level: float) -> BothEnds:
    ends = _of_noise(numbers, level)
    if numbers.curve is not None:
        return BothEnds(ends, ends)
    ends, possible = _with_cut_bins(numbers, ends, level), numbers.possible(level)
    return BothEnds(ends, ends if possible is None else _within(ends, numbers.central(), possible))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a denominator of 0: NaN and infinity
def _of_noise(numbers: Estimated, level: float) -> Interval:
    """The interval of noise and of what bounding left out, cut bins as they are interpolated."""
    middle, curve = numbers.central(), numbers.curve
    if curve is not None:
        low, high = image(curve, interval(curve.argument, level))
        return Interval(np.minimum(low, middle), np.maximum(high, middle))
    z, components = numbers.z(level), numbers.beyond_noise()
    inside = numbers.variance(lambda covariance: covariance.within_leaf)
    none = np.zeros(len(middle))
    tails = (none, none) if components is None else (components.down, components.up)
    shifts = (none, none) if components is None else (components.shift_low, components.shift_high)
    common = none if components is None else components.scale + components.spread
    ends = list[FloatArray]()
    for sign, end, tail, shift in zip((-1.0, 1.0), numbers.ends(z), tails, shifts, strict=True):
        noise, added_margin = np.abs(end - middle), z * np.sqrt(common + tail + inside)
        # What bounding left out moves one end away from the noise's, and never inside of it.
        wide = np.maximum(noise, sign * shift + np.hypot(noise, added_margin))
        exact = np.where((added_margin == 0) & (shift == 0), end, middle + sign * wide)
        ends.append(np.where(np.isnan(end), np.nan, exact))
    return Interval(*ends)


def _within(ends: Interval, middle: FloatArray, possible: ValueRange) -> Interval:
    """Cut intervals to what is possible; each keeps the number itself and a possible value inside.

    A count of -30 +- 20 has the interval [-30, 0]. An end that is not defined is what is possible.
    """
    low, high = np.minimum(possible.low, middle), np.maximum(possible.high, middle)
    return Interval(
        np.where(np.isinf(low), ends.low, np.minimum(np.fmax(ends.low, low), possible.high)),
        np.where(
            np.isinf(high),
            np.maximum(ends.high, possible.low),
            np.maximum(np.fmin(ends.high, high), possible.low),
        ),
    )


def _stderr(numbers: Estimated, level: float) -> FloatArray:
    """Half of an interval over the normal quantile of 95%; infinite where an end is open.

    A count near 0 is no surer for being cut at 0: it is half of the whole interval, of the cut one where no other has
    ends.
    """
    (low, high), (least, most) = _both_ends(numbers, level)
    whole = high - low
    return np.where(np.isfinite(whole), whole, most - least) / (2 * quantile(DEFAULT_LEVEL))


def _differs(numbers: Estimated, level: float) -> FloatArray:
    """1 where the interval of a difference leaves 0 out."""
    low, high = interval(numbers, level)
    return np.where(np.isnan(low) | np.isnan(high), np.nan, (low > 0) | (high < 0))


def _part(of: Callable[[Covariance], FloatArray | float]) -> Callable[[Estimated, float], FloatArray]:
    """One part of a variance, as a standard error."""
    return lambda numbers, level: np.sqrt(numbers.variance(of))


PARTS = {
    "noise": ErrorFunction(
        "noise drawn, and noise of a reported column's channel; for quantiles, MIN and MAX the whole error",
        lambda numbers, level: numbers.noise(),
        of_quantile=quantile_stderr,
    ),
    "channel": ErrorFunction(
        "the channel of a reported column alone", _part(lambda covariance: covariance.channel)
    ),
    "scale": ErrorFunction(
        "noise of the total that shapes are scaled to", _beyond_noise(lambda parts: parts.scale)
    ),
    "spread": ErrorFunction(
        "groups whose units own more or less than others", _beyond_noise(lambda parts: parts.spread)
    ),
    "tail": ErrorFunction(
        "rows of the few who own most, beyond every bound; the mean of both sides",
        _beyond_noise(lambda parts: parts.tail),
    ),
    "within_leaf": ErrorFunction(
        "where rows lie inside leaves that were measured as wholes (`blocks`)",
        _part(lambda covariance: covariance.within_leaf),
    ),
}
"""Standard errors by what they come from. Whoever adds answers up takes these, never `DP_STDERR`."""

STDERR = ErrorFunction(
    "half of the 95% interval divided by 1.96, NULL where an end is open; or the standard error of one part",
    _stderr, parts=PARTS,
    of_quantile=quantile_stderr,
)  # fmt: skip
LOW = ErrorFunction(
    "low end of the interval that covers the exact answer over all rows with this chance",
    lambda numbers, level: interval(numbers, level).low,
    takes_level=True,
    of_quantile=lambda ends, level: ends(level)[0],
)
HIGH = ErrorFunction(
    "its high end",
    lambda numbers, level: interval(numbers, level).high,
    takes_level=True,
    of_quantile=lambda ends, level: ends(level)[1],
)
MODEL_BOUND = ErrorFunction(
    "the most that cutting a bin may add; a part of the interval",
    lambda numbers, level: numbers.interpolation_bound(),
    of_quantile=lambda ends, level: 0.0,
)
BIAS_HINT = ErrorFunction(
    "approximate share of rows that bounding left out; NULL where it was not measured, or noise hides it",
    lambda numbers, level: numbers.share_beyond(),
)
DIFFERS = ErrorFunction(
    "whether two values differ by more than their errors explain: their difference's interval leaves out 0",
    _differs, takes_level=True, compares=True, type="BOOLEAN",
)  # fmt: skip

FEW = ErrorFunction(
    "marks of the rule of small numbers (`small_numbers.marks`)", lambda numbers, _: numbers.noise() * 0
)
"""No SQL function: a grid of it says which numbers are hidden, and which are of perhaps too few people."""

ERRORS = {
    "dp_stderr": STDERR, "dp_interval_low": LOW, "dp_interval_high": HIGH, "dp_model_bound": MODEL_BOUND,
    "dp_bias_hint": BIAS_HINT, "dp_differs": DIFFERS,
}  # fmt: skip
"""Every function of an error by its name in SQL."""
