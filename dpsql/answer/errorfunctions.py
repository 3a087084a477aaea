"""Functions of an answer's error, such as `DP_STDERR(x)`: one table.

| to add one | |
|---|---|
| its value | a function of a form, its answers and a level, one number a group |
| its name | an entry of `ERRORS`: SQL knows it, the shell completes it, `make reference` writes it into docs/sql.md |

A function of an error is a function of the release alone, and NULL where nothing bounds the error.

**Privacy**: post-processing of a release.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.answer.answered import Answered, central
from dpsql.answer.block import Linear, Noisy, Ratio
from dpsql.answer.cuts import average_of, ratio_moved, value_bounds
from dpsql.answer.errorbars import quantile, weight_error
from dpsql.answer.leafsets import FloatArray

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
        of_quantile: running counts of one group and a level -> its value of a quantile; None where it has none.
    """

    summary: str
    of: Callable[[Noisy, Answered, float], FloatArray]
    takes_level: bool = False
    of_quantile: Callable[[Prefix, float], Any] | None = None

    # what is no number is NULL, and is not worth a warning
    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def values(self, form: Noisy, answered: Answered, level: float) -> FloatArray:
        """One value for each group; NaN where it is not defined, or where the form itself is NULL."""
        found = self.of(form, answered, level)
        return (
            np.where(np.isnan(central(form, answered)), np.nan, found) if isinstance(form, Ratio) else found
        )


def _stderr(form: Noisy, answered: Answered, level: float) -> FloatArray:
    return answered.errors.stderr(form, *answered.parts(form))


def _low(form: Noisy, answered: Answered, level: float) -> FloatArray:
    return answered.errors.interval(form, *answered.parts(form), answered.z(level))[0]


def _high(form: Noisy, answered: Answered, level: float) -> FloatArray:
    return answered.errors.interval(form, *answered.parts(form), answered.z(level))[1]


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
    rows = len(answered.parts(form)[0])
    share = 0.0 if scale is None else np.nan if scale.left_out is None else scale.left_out
    return np.full(rows, share)


def _scale(form: Noisy, answered: Answered, level: float) -> FloatArray:
    """Ratios do not see the scale, and a weight of rows is part of the standard error already."""
    release = answered.errors.release
    scale, above = release.scales.get(answered.plan.view.of), answered.parts(form)[0]
    if scale is None or isinstance(form, Ratio) or weight_error(release):
        return np.zeros(len(above))
    return np.abs(above - form.constant) * scale.relative_error


STDERR = ErrorFunction("standard error of the noise", _stderr)
LOW = ErrorFunction(
    "low end of the interval that holds the answer without noise with this chance",
    _low, takes_level=True, of_quantile=lambda prefix, level: prefix.value(-quantile(level)),
)  # fmt: skip
HIGH = ErrorFunction(
    "its high end", _high, takes_level=True, of_quantile=lambda prefix, level: prefix.value(quantile(level))
)
MODEL_BOUND = ErrorFunction("the most that cutting a bin may add, beside the noise", _model_bound)
BIAS_HINT = ErrorFunction("about which share of the rows bounding left out", _bias_hint)
SCALE = ErrorFunction("what the error of a table's common scale adds beside the standard error", _scale)
"""Part of `Result.scale_error`; it has no name in SQL."""

ERRORS = {
    "dp_stderr": STDERR, "dp_interval_low": LOW, "dp_interval_high": HIGH, "dp_model_bound": MODEL_BOUND,
    "dp_bias_hint": BIAS_HINT,
}  # fmt: skip
"""Every function of an error by its name in SQL."""
