"""Intervals of functions of one noisy value: images of the value's own interval.

An interval that covers x with some chance has an image that covers f(x) with the same chance at least, however f bends
and however near to 0 it is; an interval by f's derivative does not. For x = 4 +- 10, SQRT(x) is 2 with [0, 3.7]; by the
derivative it would be 2 +- 2.5.

A value that cannot lie beyond a bound, such as a variance below 0, keeps the length of its other side where noise took
it there: -3 +- 2 is 0 with [0, 2], not 0 without an error.

**Privacy**: published values alone.
**Source**: docs/method/views.md, "Functions of a noisy value".
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dpsql.intervals.estimated import Curved
from dpsql.planner.axis_query import FloatArray


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
