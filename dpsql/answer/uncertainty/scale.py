"""What an answer may be off by beside its noise, where shapes were scaled to totals: scale, spread and tail.

| part | what it is | who shares it |
|---|---|---|
| scale | noise of the total that shapes are scaled to | all counts and sums of a measure |
| spread | groups whose people own more or less than others | questions about the same groups |
| tail | rows of the few who own most, above every bound; longer on the side of more | all of them |
| shift | estimated bias from a declared bound (`dpsql.answer.uncertainty.beyond`) | all of a table |

An answer is a form of counts and sums, so it changes by its derivatives: with C and S the part of an answer's
derivative that follows a count's or a sum's own size,

    scale      C^2 rel_N^2 + S^2 rel_S^2 + 2 C S (rel_N^2 + rel_S^2 - rel_A^2) / 2
    spread     of the counts and centred sums that it reads; a count moves a sum by the average A of its rows

so that an average has A^2 rel_A^2 and what its centred sum has, and a share of a total has no scale at all.

An error without an upper end (`RelativeError.up` is None) opens an end of each answer that it moves: the error of rows
towards the sign of C + S, for sums then grow with the rows, that of a mean towards the sign of S. The variance of an
open end is infinite.

**Privacy**: published values alone.
**Source**: docs/method/user_level.md, "Intervals that hold the plain answer".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dpsql.answer.answered import Answered
from dpsql.answer.block import Linear, Noisy, Term, terms_of
from dpsql.answer.leafsets import NEAR, FloatArray
from dpsql.answer.plan import Box, presence
from dpsql.answer.uncertainty.beyond import Moving, Reach, by_table, conditions_of, reach_of
from dpsql.answer.uncertainty.partial_bins import value_bounds
from dpsql.release.format import MeasureScale, RelativeError, ScaleMeta
from dpsql.star.graph import PEOPLE
from dpsql.variance.model import Covariance


@dataclass(frozen=True, eq=False)
class Parts:
    """Variances beside the noise, each of shape (rows,) in squared units of the answer.

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
        """The tail's longer side."""
        return np.maximum(self.down + self.shift_low**2, self.up + self.shift_high**2)

    @staticmethod
    def beyond(reach: Reach) -> Parts:
        """Of rows beyond a declared bound."""
        none = np.zeros_like(reach.up)
        return Parts(none, none, reach.down, reach.up, reach.shift_low, reach.shift_high)

    @staticmethod
    def joined(components: Sequence[Parts]) -> Parts | None:
        """Of several tables or releases; None of none."""
        if not components:
            return None
        columns = zip(*(component._fields() for component in components), strict=True)
        return Parts(*(np.asarray(sum(column), np.float64) for column in columns))

    def _fields(self) -> tuple[FloatArray, ...]:
        return self.scale, self.spread, self.down, self.up, self.shift_low, self.shift_high


Sizes = Mapping[MeasureScale, FloatArray]
"""The part of an answer that follows the size of each factor."""


def parts_of(form: Noisy, answered: Answered) -> Parts | None:
    """What a form may be off by beside its noise; None where its table has no scale and no measured rows beyond.

    What people report has its weight of rows in its noise (`linear.Weight`).
    """
    release = answered.errors.release
    if release.meta.local is not None or not any(map(follows_scale, terms_of(form))):
        return None
    scale, components = release.scales.get(answered.plan.view.of), []
    slopes = _slopes(form, answered)
    if scale is not None:
        off = _shares_off(slopes, answered)
        components.append(common_parts(_sizes(slopes, answered, scale), off.spread, off.tail))
    numbers = len(answered.errors.index[0]) if answered.errors.index else 1
    rows, places = np.arange(numbers), conditions_of(list(slopes))
    moving = [Moving(answered, term, places[term], rows, rows, slope) for term, slope in slopes.items()]
    components += [Parts.beyond(reach_of(lines, numbers, measured)) for measured, lines in by_table(moving)]
    return Parts.joined(components)


def common_parts(sizes: Sizes, spread: FloatArray | float, tail: FloatArray | float) -> Parts:
    """The parts of answers, from what follows the size of each factor and what their shares may be off by."""
    noise = _common(sizes, lambda error, sign: np.full_like(sign, error.noise))
    sides = [_common(sizes, _towards(way)) for way in (-1.0, 1.0)]
    down, up = (
        np.where(_is_open(sizes, way), np.inf, np.maximum(np.maximum(side - noise, 0.0) + tail, 0.0))
        for side, way in zip(sides, (-1.0, 1.0), strict=True)
    )
    none = np.zeros_like(noise)
    return Parts(noise, np.maximum(spread, 0.0), down, up, none, none)


def _is_open(sizes: Sizes, way: float) -> npt.NDArray[np.bool_]:
    """Whether nothing bounds answers on one side: towards less (-1) or more (1)."""
    net = sum(sizes.values(), np.zeros(1))
    gross = sum(map(np.abs, sizes.values()), np.zeros(1))
    grows = way * net > NEAR * gross
    open_rows = np.zeros(len(gross), bool)
    for factor, size in sizes.items():
        apart = bool(factor.measure) and factor.mean_error.up is None
        if apart:
            open_rows = open_rows | (way * size > 0)
        elif factor.error.up is None:
            open_rows = open_rows | (grows & (size != 0))
    return open_rows


def settled(size: FloatArray, gross: FloatArray) -> FloatArray:
    """Sizes, 0 where what they are added up from cancels: a share of a total has none.

    Args:
        size: of answers.
        gross: the same, absolute values added up.
    """
    return np.where(np.abs(size) <= NEAR * gross, 0.0, size)


def follows_scale(term: Term) -> bool:
    """Whether a term was scaled to a total: rows and sums are, people are counted as they are."""
    return term.measure != PEOPLE


def _slopes(form: Noisy, answered: Answered) -> dict[Term, FloatArray]:
    """By how much the answer of each group moves with each of its terms."""
    above, below = answered.parts(form)
    rows = len(answered.errors.index[0]) if answered.errors.index else 1
    if isinstance(form, Linear):
        return {term: np.full(rows, weight) for term, weight in form.weights}
    slopes: dict[Term, FloatArray] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = above / below
        for term, weight in form.above.weights:
            slopes[term] = slopes.get(term, 0.0) + weight / below
        for term, weight in form.below.weights:
            slopes[term] = slopes.get(term, 0.0) - ratio * weight / below
    return {term: np.broadcast_to(slope, rows) for term, slope in slopes.items()}


def _sizes(slopes: Mapping[Term, FloatArray], answered: Answered, scale: ScaleMeta) -> Sizes:
    """Terms with one factor, added up."""
    net: dict[MeasureScale, FloatArray] = {}
    gross: dict[MeasureScale, FloatArray] = {}
    for term, slope in slopes.items():
        if not follows_scale(term):
            continue
        factor, size = scale.measure(term.measure), slope * answered.totals[term]
        net[factor] = net.get(factor, 0.0) + size
        gross[factor] = gross.get(factor, 0.0) + np.abs(size)
    return {factor: settled(size, gross[factor]) for factor, size in net.items()}


Side = Callable[[RelativeError, FloatArray], FloatArray]
"""A relative error as a function of the sign of what it moves."""


def _towards(way: float) -> Side:
    """The side on which an answer grows (1) or shrinks (-1); an open one is counted by `_is_open`."""

    def side(error: RelativeError, sign: FloatArray) -> FloatArray:
        return np.where(way * sign > 0, error.down if error.up is None else error.up, error.down)

    return side


def _common(sizes: Sizes, side: Side) -> FloatArray:
    """Variance of an answer by its factors: their own errors, and what an average says of two of them."""
    rows = next((size for size in sizes.values()), np.zeros(1))
    total = np.zeros_like(rows, dtype=np.float64)
    counts = next((factor for factor in sizes if not factor.measure), None)
    of_rows = {factor: side(factor.error, np.sign(size)) for factor, size in sizes.items()}
    for factor, size in sizes.items():
        total = total + (size * of_rows[factor]) ** 2
    for factor, size in sizes.items():
        if counts is not None and factor is not counts:
            apart = side(factor.mean_error, np.sign(size))
            shared = (of_rows[counts] ** 2 + of_rows[factor] ** 2 - apart**2) / 2
            total = total + 2 * sizes[counts] * size * shared
    summed = [factor for factor in sizes if factor.measure]
    for i, factor in enumerate(summed):
        for second in summed[:i]:  # two measures are alike as far as each is like the rows
            apart = np.hypot(
                *(
                    side(measure_scale.mean_error, np.sign(sizes[measure_scale]))
                    for measure_scale in (factor, second)
                )
            )
            shared = (of_rows[factor] ** 2 + of_rows[second] ** 2 - apart**2) / 2
            total = total + 2 * sizes[factor] * sizes[second] * shared
    variance: FloatArray = np.maximum(total, 0.0)
    return variance


def _shares_off(slopes: Mapping[Term, FloatArray], answered: Answered) -> Covariance:
    """Spread and tail of what a form reads; each read has a slope a group."""
    reads: dict[tuple[int, Box], FloatArray] = {}

    def add(statistic: int, boxes: tuple[Box, ...], slope: FloatArray) -> None:
        for box in boxes:
            reads[statistic, box] = reads.get((statistic, box), 0.0) + slope

    plan = answered.plan
    for term, slope in slopes.items():
        statistic, boxes = plan.view.statistics[term.measure], tuple(plan.boxes_for(term))
        add(statistic.id, boxes, slope * 10.0**-statistic.scale)
        count = presence(term.measure, plan.view)
        if statistic.noise_mid is not None and count is not None and count.id != statistic.id:
            add(count.id, boxes, slope * average(answered, term))
    spread = tail = np.zeros(len(answered.errors.index[0]) if answered.errors.index else 1)
    for (statistic_id, box), slope in reads.items():
        for (other_id, second), weight in reads.items():
            if statistic_id == other_id:
                covariance = answered.errors.product(statistic_id, box, second)
                spread, tail = (
                    spread + slope * weight * covariance.spread,
                    tail + slope * weight * covariance.tail,
                )
    return Covariance(np.zeros(1), spread, tail)


def average(answered: Answered, term: Term) -> FloatArray:
    """The average value of a scaled sum's rows, group by group, within what the catalog allows."""
    statistic = answered.plan.view.statistics[term.measure]
    count = presence(term.measure, answered.plan.view)
    assert count is not None
    rows = answered.totals[replace(term, measure=count.measure)]
    low, high = value_bounds(statistic, answered.errors.release)
    sums = answered.totals[term]
    middle = np.divide(sums, rows, out=np.zeros_like(sums), where=rows > 0)
    return np.clip(middle, low, high)
