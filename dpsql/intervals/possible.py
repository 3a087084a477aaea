"""Values that an exact answer can have whatever the rows are: a count is not below 0, a share lies between 0 and 1.

| number | lies between |
|---|---|
| sum of terms that rows can only raise | 0 and no end; turned round where rows can only lower them |
| quotient, each numerator made of rows of its denominator | the least and the largest a_i / b_i |

The second is the inequality of the mediant. With x_i >= 0 the denominator's terms, b_i their weights, all of one sign,
and each numerator's term between l x_i and h x_i,

    min (sum of l a / b_i) <= (sum of a y) / (sum of b_i x_i) <= max (sum of h a / b_i),    l x_i <= y <= h x_i

so a percentage lies in [0, 100], an average between the declared bounds of its measure, an average of several groups
too. Intervals meet what is possible; where nothing bounds the error it is all that is left of them.

| term of the numerator, of the term below it | l, h |
|---|---|
| the same rows, the same measure | 1, 1 |
| some of its rows, the same measure of values that are not negative | 0, 1 |
| a measure over all rows that are counted | the bounds that the catalog declares |
| a measure over some of them | the same, and 0 |

**Privacy**: the statement and the catalog; released numbers say no more than whether a number has a constant summand.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.intervals.errorfunctions import ValueRange
from dpsql.intervals.excess import has_values_beyond
from dpsql.intervals.linear import LinearNumbers, MeasuredTerm, Weights
from dpsql.intervals.reads import value_bounds
from dpsql.planner.axis_query import NEAR, FloatArray, IntArray, WeightedValues, reach, special_leaves
from dpsql.planner.schema import TRUE, conjuncts, in_domain

ROWS = 1 << 40
"""More than the rows of any block's answers."""

MOST_LINES = 1 << 20
"""Lines of a denominator above which no range is worked out: those of 1,024 groups that each follow all groups."""


class Between(NamedTuple):
    """Ends of a quotient of two terms."""

    low: float
    high: float


def row_values(key: MeasuredTerm) -> Between:
    """The least and the largest value that one row adds to a term: its measure's, times those of its factor."""
    plan, term = key.answered.plan, key.term
    low, high = value_bounds(plan.view.statistics[term.measure], key.answered.errors.release)
    if term.factor is None:
        return Between(low, high)
    if has_values_beyond(key):
        return Between(-np.inf, np.inf)
    factors = np.zeros(0)
    for box in plan.boxes_for(term):
        for at, taken in enumerate(box):
            if isinstance(taken, WeightedValues):
                factors = np.append(factors, _factor_values(key, at, taken))
    if not len(factors):
        return Between(0.0, 0.0)
    products = [value * factor for value in (low, high) for factor in (factors.min(), factors.max())]
    return Between(float(min(products)), float(max(products)))


def _factor_values(key: MeasuredTerm, at: int, taken: WeightedValues) -> FloatArray:
    """Ends of a factor's values in the leaves of an axis; rows without a value count for 0 and are left out."""
    plan = key.answered.plan
    low, high = reach(plan.cells[at], taken)
    special = list(special_leaves(key.answered.errors.release.axes[plan.questions[at].axis]))
    without = np.zeros(low.shape, bool)
    without[:, special] = (low[:, special] == 0) & (high[:, special] == 0)
    values = np.concatenate([low[~without], high[~without]])
    return np.asarray(values[np.isfinite(values)], np.float64)


def sum_range(values: FloatArray, numbers: LinearNumbers) -> ValueRange | None:
    """Range of possible sums of terms; None where rows move all of them both ways.

    Args:
        values: the sums, shape (numbers,).
        numbers: what they follow.
    """
    rises, falls = (np.zeros(numbers.count, bool) for _ in range(2))
    for key, weights in numbers.terms.items():
        np.logical_or.at(falls, weights.number, moves(key, weights, -1.0))
        np.logical_or.at(rises, weights.number, moves(key, weights, 1.0))
    plain = _without_constant(values, numbers)
    ends = np.where(plain & ~falls, 0.0, -np.inf), np.where(plain & ~rises, 0.0, np.inf)
    return ValueRange(*ends) if np.any(np.isfinite(ends)) else None


def moves(key: MeasuredTerm, weights: Weights, way: float) -> npt.NDArray[np.bool_]:
    """True if more rows of a term can move numbers towards more (1) or less (-1), line by line."""
    low, high = row_values(key)
    slope = way * weights.weight
    return np.asarray(np.where(slope > 0, high > 0, low < 0) & (slope != 0))


def _without_constant(values: FloatArray, numbers: LinearNumbers) -> npt.NDArray[np.bool_]:
    """True if numbers are sums of their terms and of nothing else, as rounding leaves them."""
    total, gross = np.zeros(numbers.count), np.zeros(numbers.count)
    for key, weights in numbers.terms.items():
        summand = weights.weight * key.answered.totals[key.term][weights.cell]
        total += weights.totals(summand, numbers.count)
        gross += weights.totals(np.abs(summand), numbers.count)
    return np.abs(values - total) <= NEAR * np.maximum(gross, 1.0)


Divisor = tuple[MeasuredTerm, IntArray, int]
"""A denominator's term, its lines' codes in order, and where its lines begin among all lines."""


def quotient_range(
    above: FloatArray, above_numbers: LinearNumbers, below: FloatArray, below_numbers: LinearNumbers
) -> ValueRange | None:
    """Range of possible quotients; None where no numerator is made of rows of its denominator.

    Args:
        above, below: numerators and denominators, shape (numbers,).
        above_numbers, below_numbers: what they follow.
    """
    count = above_numbers.count
    if sum(len(weights.number) for weights in below_numbers.terms.values()) > MOST_LINES:
        return None
    divisors, number, weight = _divisors(below_numbers)
    if not divisors:
        return None
    provable = _without_constant(above, above_numbers) & _without_constant(below, below_numbers)
    for sign in (1.0, -1.0):
        provable &= ~(np.bincount(number, sign * weight > 0, count) > 0) | ~(
            np.bincount(number, sign * weight < 0, count) > 0
        )
    low, high = np.zeros(len(number)), np.zeros(len(number))
    for key, weights in above_numbers.terms.items():
        # The denominator's term whose rows a numerator's term is made of, and their quotient's ends.
        candidates = ((divisor, _quotient_ends(key, divisor[0])) for divisor in divisors)
        matches = [(divisor, ends) for divisor, ends in candidates if ends is not None]
        match = min(matches, key=lambda match: match[1].high - match[1].low, default=None)
        if match is None:
            provable[weights.number[weights.weight != 0]] = False
            continue
        (_, divisor_codes, first), ends = match
        codes = weights.number * ROWS + weights.cell
        place = np.minimum(np.searchsorted(divisor_codes, codes), max(len(divisor_codes) - 1, 0))
        inside = divisor_codes[place] == codes if len(divisor_codes) else np.zeros(len(codes), bool)
        provable[weights.number[~inside & (weights.weight != 0)]] = False
        at = first + place[inside]
        ratio = weights.weight[inside] / weight[at]
        np.add.at(low, at, np.minimum(ratio * ends.low, ratio * ends.high))
        np.add.at(high, at, np.maximum(ratio * ends.low, ratio * ends.high))
    lowest, highest = np.full(count, np.inf), np.full(count, -np.inf)
    np.minimum.at(lowest, number, low)
    np.maximum.at(highest, number, high)
    provable &= lowest <= highest
    if not np.any(provable):
        return None
    return ValueRange(np.where(provable, lowest, -np.inf), np.where(provable, highest, np.inf))


def _divisors(numbers: LinearNumbers) -> tuple[list[Divisor], IntArray, FloatArray]:
    """Terms that rows can only raise, and the number and weight of every line; no terms where one is of both signs."""
    divisors, number, weight, first = list[Divisor](), list[IntArray](), list[FloatArray](), 0
    for key, weights in numbers.terms.items():
        if row_values(key).low < 0:
            return [], np.zeros(0, np.int64), np.zeros(0)
        order = np.lexsort((weights.cell, weights.number))
        order = order[weights.weight[order] != 0]
        codes = weights.number[order] * ROWS + weights.cell[order]
        divisors.append((key, codes, first))
        number.append(weights.number[order])
        weight.append(weights.weight[order])
        first += len(order)
    none = np.zeros(0, np.int64)
    return divisors, np.concatenate([none, *number]), np.concatenate([np.zeros(0), *weight])


def _quotient_ends(above: MeasuredTerm, below: MeasuredTerm) -> Between | None:
    """Between which multiples of one term another lies; None where it is not made of the same rows."""
    wanted, tests = ({*conjuncts(key.term.condition)} - {TRUE} for key in (below, above))
    if above.term.factor is not None:  # rows without a value of it count for 0
        tests.add(in_domain(above.term.factor))
    if above.block != below.block or not wanted <= tests or has_values_beyond(above):
        return None
    narrower = wanted != tests
    if (above.term.measure, above.term.factor) == (below.term.measure, below.term.factor):
        return Between(0.0 if narrower else 1.0, 1.0)
    measure, counted = below.term.measure, above.term.measure.counted
    if below.term.factor is not None or not (measure.counts_rows or measure == counted):
        return None
    low, high = row_values(above)
    nullable = counted in above.answered.plan.view.statistics
    every_row = above.term.measure.sums_rows and not above.term.measure.counts_values
    if narrower or not every_row or (nullable and measure.counts_rows):
        low, high = min(low, 0.0), max(high, 0.0)
    return Between(low, high)
