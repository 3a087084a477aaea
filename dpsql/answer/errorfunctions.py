"""Functions of an answer's error, such as `DP_STDERR(x)`: one table.

| to add one | |
|---|---|
| its value | a function of estimated numbers and a level, one value for each |
| its name | an entry of `ERRORS`: SQL knows it, the shell completes it, `make reference` writes it into docs/sql.md |

A function of an error is a function of the release alone, and NULL where nothing bounds the error.

**Privacy**: post-processing of a release.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from dpsql.answer.answered import nullable
from dpsql.answer.errorbars import quantile
from dpsql.answer.estimated import Estimated
from dpsql.answer.leafsets import FloatArray
from dpsql.answer.scaled import Parts
from dpsql.variance.model import Covariance

if TYPE_CHECKING:
    from dpsql.answer.quantiles import Prefix

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
    of_quantile: Callable[[Prefix, float], Any] | None = None
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
        found = nullable(self.values(numbers, level))
        return [None if value is None else bool(value) for value in found] if self.compares else found


def _noise(numbers: Estimated, level: float) -> FloatArray:
    return numbers.noise()


def _beside(part: Callable[[Parts], FloatArray]) -> Callable[[Estimated, float], FloatArray]:
    """A part beside the noise; 0 where shapes were not scaled, NaN where the noise is not defined."""

    def of(numbers: Estimated, level: float) -> FloatArray:
        parts, noise = numbers.beside(), numbers.noise()
        found = np.zeros_like(noise) if parts is None else np.sqrt(part(parts))
        return np.where(np.isnan(noise), np.nan, found)

    return of


def _stderr(numbers: Estimated, level: float) -> FloatArray:
    return np.hypot(numbers.noise(), _scale(numbers, level))


def _low(numbers: Estimated, level: float) -> FloatArray:
    return _ends(numbers, level, 0, lambda parts: parts.down)


def _high(numbers: Estimated, level: float) -> FloatArray:
    return _ends(numbers, level, 1, lambda parts: parts.up)


def _ends(numbers: Estimated, level: float, side: int, tail: Callable[[Parts], FloatArray]) -> FloatArray:
    """One end of the interval: of the noise, widened by what may be off beside it."""
    z = numbers.z(level)
    end, parts = numbers.ends(z)[side], numbers.beside()
    inside = numbers.variance(lambda covariance: covariance.within_leaf)
    if parts is None and not np.any(inside):
        return end
    beside = 0.0 if parts is None else parts.scale + parts.spread + tail(parts)
    middle = numbers.central()
    more = z * np.sqrt(beside + inside)
    return np.where(np.isnan(end), np.nan, middle + (2 * side - 1) * np.hypot(end - middle, more))


def _differs(numbers: Estimated, level: float) -> FloatArray:
    """1 where the interval of a difference leaves 0 out."""
    low, high = _low(numbers, level), _high(numbers, level)
    return np.where(np.isnan(low) | np.isnan(high), np.nan, (low > 0) | (high < 0))


_scale = _beside(lambda parts: parts.scale)


def _part(of: Callable[[Covariance], FloatArray | float]) -> Callable[[Estimated, float], FloatArray]:
    """One part of a variance, as a standard error."""
    return lambda numbers, level: np.sqrt(numbers.variance(of))


PARTS = {
    "noise": ErrorFunction("what was drawn, and what the channel of a reported column adds", _noise),
    "channel": ErrorFunction(
        "the channel of a reported column alone", _part(lambda covariance: covariance.channel)
    ),
    "scale": ErrorFunction("noise of the total that shapes are scaled to", _scale),
    "spread": ErrorFunction(
        "groups whose units own more or less than others", _beside(lambda parts: parts.spread)
    ),
    "tail": ErrorFunction(
        "rows of the few who own most; of its longer side", _beside(lambda parts: parts.tail)
    ),
    "within_leaf": ErrorFunction(
        "where rows lie inside of leaves that were measured as wholes (`blocks`)",
        _part(lambda covariance: covariance.within_leaf),
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
MODEL_BOUND = ErrorFunction(
    "the most that cutting a bin may add, beside the noise", lambda numbers, level: numbers.moved()
)
BIAS_HINT = ErrorFunction(
    "about which share of the rows bounding left out", lambda numbers, level: numbers.left_out()
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
