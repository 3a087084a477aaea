"""Functions of an answer's error, such as `DP_STDERR(x)`: one table.

| to add one | |
|---|---|
| its value | a function of estimated numbers and a level, one value for each |
| its name | an entry of `ERRORS`: SQL knows it, the shell completes it, `make docs` writes it into docs/sql.md |

A function of an error is a function of the release alone, and NULL where nothing bounds the error.

**Privacy**: post-processing of a release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsql.intervals.estimated import (
    BothEnds,
    ErrorComponents,
    Estimated,
    Interval,
    RunningCounts,
    ValueRange,
    nullable,
)
from dpsql.intervals.fieller import quantile
from dpsql.intervals.image import image
from dpsql.matrices.model import Covariance
from dpsql.planner.axis_query import FloatArray

DEFAULT_LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class ErrorFunction:
    """One thing that is known of a value's error.

    Args:
        summary: what it gives, for docs/sql.md.
        of: estimated numbers and a level -> one value for each; NaN where it is not defined.
        takes_level: whether a level may follow the value in SQL.
        parts: by the name that may follow the value in SQL instead.
        of_quantile: running counts of one group and a level -> its value of a quantile; None where it has none.
        compares: whether it takes two values and is a function of their difference.
        type: DuckDB's type of its values.
    """

    summary: str
    of: Callable[[Estimated, float], FloatArray]
    takes_level: bool = False
    of_quantile: Callable[[RunningCounts, float], Any] | None = None
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


def _noise(numbers: Estimated, level: float) -> FloatArray:
    return numbers.noise()


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
    cut = numbers.cut_ends()
    if cut is None:
        return ends
    # The ends have their cut bins placed; quotients of averages would otherwise be cut again without end.
    low, high = _of_noise(cut[0], level).low, _of_noise(cut[1], level).high
    low = np.minimum(ends.low, np.where(np.isnan(low), -np.inf, low))
    return Interval(low, np.maximum(ends.high, np.where(np.isnan(high), np.inf, high)))


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a denominator of 0: NaN and infinity
def _interval(numbers: Estimated, level: float) -> BothEnds:
    ends = _of_noise(numbers, level)
    if numbers.curve is not None:
        return BothEnds(ends, ends)
    ends, possible = _with_cut_bins(numbers, ends, level), numbers.possible()
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


def _low(numbers: Estimated, level: float) -> FloatArray:
    return interval(numbers, level).low


def _high(numbers: Estimated, level: float) -> FloatArray:
    return interval(numbers, level).high


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
        _noise,
        of_quantile=lambda prefix, level: prefix.stderr(),
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
    of_quantile=lambda prefix, level: prefix.stderr(),
)  # fmt: skip
LOW = ErrorFunction(
    "low end of the interval that covers the exact answer over all rows with this chance",
    _low, takes_level=True, of_quantile=lambda prefix, level: prefix.ends(level)[0],
)  # fmt: skip
HIGH = ErrorFunction(
    "its high end", _high, takes_level=True, of_quantile=lambda prefix, level: prefix.ends(level)[1]
)
MODEL_BOUND = ErrorFunction(
    "the most that cutting a bin may add; a part of the interval",
    lambda numbers, level: numbers.interpolation_bound(),
    of_quantile=lambda prefix, level: 0.0,
)
BIAS_HINT = ErrorFunction(
    "approximate share of rows that bounding left out; NULL where it was not measured, or noise hides it",
    lambda numbers, level: numbers.share_beyond(),
)
DIFFERS = ErrorFunction(
    "whether two values differ by more than their errors explain: their difference's interval leaves out 0",
    _differs, takes_level=True, compares=True, type="BOOLEAN",
)  # fmt: skip

ERRORS = {
    "dp_stderr": STDERR, "dp_interval_low": LOW, "dp_interval_high": HIGH, "dp_model_bound": MODEL_BOUND,
    "dp_bias_hint": BIAS_HINT, "dp_differs": DIFFERS,
}  # fmt: skip
"""Every function of an error by its name in SQL."""
