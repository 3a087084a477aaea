"""Functions of an answer's error, such as `DP_STDERR(x)`: one table.

| to add one | |
|---|---|
| its value | a function of a form, its answers and a level, one number a group |
| its name | an entry of `ERRORS`: SQL knows it, the shell completes it, `make reference` writes it into docs/sql.md |

A function of an error is a function of the release alone, and NULL where nothing bounds the error.

**Privacy**: post-processing of a release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.answer.answered import Answered, central
from dpsql.answer.block import Linear, Noisy, Ratio, terms_of
from dpsql.answer.cuts import average_of, ratio_moved, value_bounds
from dpsql.answer.errorbars import quantile
from dpsql.answer.leafsets import FloatArray
from dpsql.answer.scaled import Parts, follows_scale, parts_of
from dpsql.variance.model import Covariance

if TYPE_CHECKING:
    from dpsql.answer.known import Prefix

DEFAULT_LEVEL = 0.95


@dataclass(frozen=True, eq=False)
class ErrorFunction:
    """One thing that is known of a value's error.

    Args:
        summary: what it gives, for docs/sql.md.
        of: a form, its answers and a level -> one value for each group; NaN where it is not defined.
        takes_level: whether a level may follow the value in SQL.
        parts: by the name that may follow the value in SQL instead.
        of_quantile: running counts of one group and a level -> its value of a quantile; None where it has none.
    """

    summary: str
    of: Callable[[Noisy, Answered, float], FloatArray]
    takes_level: bool = False
    of_quantile: Callable[[Prefix, float], Any] | None = None
    parts: Mapping[str, ErrorFunction] = field(default_factory=dict)

    # what is no number is NULL, and is not worth a warning
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def values(self, form: Noisy, answered: Answered, level: float) -> FloatArray:
        """One value for each group; NaN where it is not defined, or where the form itself is NULL."""
        found = self.of(form, answered, level)
        return (
            np.where(np.isnan(central(form, answered)), np.nan, found) if isinstance(form, Ratio) else found
        )


def _noise(form: Noisy, answered: Answered, level: float) -> FloatArray:
    return answered.errors.stderr(form, *answered.parts(form))


def _beside(part: Callable[[Parts], FloatArray]) -> Callable[[Noisy, Answered, float], FloatArray]:
    """A part beside the noise; 0 where shapes were not scaled, NaN where the noise is not defined."""

    def of(form: Noisy, answered: Answered, level: float) -> FloatArray:
        parts, noise = parts_of(form, answered), _noise(form, answered, level)
        found = np.zeros_like(noise) if parts is None else np.sqrt(part(parts))
        return np.where(np.isnan(noise), np.nan, found)

    return of


def _stderr(form: Noisy, answered: Answered, level: float) -> FloatArray:
    return np.hypot(_noise(form, answered, level), _scale(form, answered, level))


def _low(form: Noisy, answered: Answered, level: float) -> FloatArray:
    return _ends(form, answered, level, 0, lambda parts: parts.down)


def _high(form: Noisy, answered: Answered, level: float) -> FloatArray:
    return _ends(form, answered, level, 1, lambda parts: parts.up)


def _ends(
    form: Noisy, answered: Answered, level: float, side: int, tail: Callable[[Parts], FloatArray]
) -> FloatArray:
    """One end of the interval: of the noise, widened by what may be off beside it."""
    z = answered.z(level)
    end = answered.errors.interval(form, *answered.parts(form), z)[side]
    parts, inside = parts_of(form, answered), _part(form, answered, lambda covariance: covariance.within_leaf)
    if parts is None and not np.any(inside):
        return end
    beside = 0.0 if parts is None else parts.scale + parts.spread + tail(parts)
    middle = central(form, answered)
    more = z * np.sqrt(beside + inside)
    return np.where(np.isnan(end), np.nan, middle + (2 * side - 1) * np.hypot(end - middle, more))


def _model_bound(form: Noisy, answered: Answered, level: float) -> FloatArray:
    if isinstance(form, Linear):
        return answered.cut(form)
    release, average = answered.errors.release, average_of(form)
    bounds = None
    if average is not None:
        term, factor = average
        low, high = value_bounds(answered.plan.view.statistics[term.measure], release)
        bounds = (min(factor * low, factor * high), max(factor * low, factor * high))
    moved = answered.cut(form.above), answered.cut(form.below)
    return ratio_moved(*answered.parts(form), moved, bounds)


def _bias_hint(form: Noisy, answered: Answered, level: float) -> FloatArray:
    """1 - 1/R for every group; 0 where every row counts alike, NaN where noise hides it."""
    scale = answered.errors.release.scales.get(answered.plan.view.of)
    rows = any(map(follows_scale, terms_of(form)))
    left_out = 0.0 if scale is None or not rows else scale.measure("").left_out
    return np.full(len(answered.parts(form)[0]), np.nan if left_out is None else left_out)


_scale = _beside(lambda parts: parts.scale)


def _channel(form: Noisy, answered: Answered, level: float) -> FloatArray:
    return np.sqrt(_part(form, answered, lambda covariance: covariance.channel))


def _within_leaf(form: Noisy, answered: Answered, level: float) -> FloatArray:
    return np.sqrt(_part(form, answered, lambda covariance: covariance.within_leaf))


def _part(form: Noisy, answered: Answered, of: Callable[[Covariance], FloatArray | float]) -> FloatArray:
    """One part of the variance of a form."""
    return answered.errors.part_variance(of, form, *answered.parts(form))


PARTS = {
    "noise": ErrorFunction("what was drawn, and what the channel of a reported column adds", _noise),
    "channel": ErrorFunction("the channel of a reported column alone", _channel),
    "scale": ErrorFunction("noise of the total that shapes are scaled to", _scale),
    "spread": ErrorFunction(
        "groups whose units own more or less than others", _beside(lambda parts: parts.spread)
    ),
    "tail": ErrorFunction(
        "rows of the few who own most; of its longer side", _beside(lambda parts: parts.tail)
    ),
    "within_leaf": ErrorFunction(
        "where rows lie inside of leaves that were measured as wholes (`blocks`)", _within_leaf
    ),
}
"""Standard errors by what they come from; noise and scale make `DP_STDERR`, the last three more of the interval."""

STDERR = ErrorFunction("standard error of the noise and of the scale, or of one part", _stderr, parts=PARTS)
LOW = ErrorFunction(
    "low end of the interval that holds the plain answer over all rows with this chance",
    _low, takes_level=True, of_quantile=lambda prefix, level: prefix.value(-quantile(level)),
)  # fmt: skip
HIGH = ErrorFunction(
    "its high end", _high, takes_level=True, of_quantile=lambda prefix, level: prefix.value(quantile(level))
)
MODEL_BOUND = ErrorFunction("the most that cutting a bin may add, beside the noise", _model_bound)
BIAS_HINT = ErrorFunction("about which share of the rows bounding left out", _bias_hint)

ERRORS = {
    "dp_stderr": STDERR, "dp_interval_low": LOW, "dp_interval_high": HIGH, "dp_model_bound": MODEL_BOUND,
    "dp_bias_hint": BIAS_HINT,
}  # fmt: skip
"""Every function of an error by its name in SQL."""
