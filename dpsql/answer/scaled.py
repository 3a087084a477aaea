"""What an answer may be off by beside its noise, where shapes were scaled to totals: scale, spread and tail.

| part | what it is | who shares it |
|---|---|---|
| scale | noise of the total that shapes are scaled to | all counts and sums of a measure |
| spread | groups whose people own more or less than others | questions about the same groups |
| tail | rows of the few who own most, above every bound; longer on the side of more | all of them |

An answer is a form of counts and sums, so it changes by its derivatives: with C and S the part of an answer's
derivative that follows a count's or a sum's own size,

    scale      C^2 rel_N^2 + S^2 rel_S^2 + 2 C S (rel_N^2 + rel_S^2 - rel_A^2) / 2
    spread     of the counts and centred sums that it reads; a count moves a sum by the average A of its rows

so that an average has A^2 rel_A^2 and what its centred sum has, and a share of a total has no scale at all.

**Privacy**: published values alone.
**Source**: docs/method/user_level.md, "Intervals that hold the plain answer".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from dpsql.answer.answered import Answered
from dpsql.answer.block import Linear, Noisy, Term, terms_of
from dpsql.answer.cuts import value_bounds
from dpsql.answer.leafsets import FloatArray
from dpsql.answer.plan import Box, presence
from dpsql.release.format import MeasureScale, RelativeError, ScaleMeta
from dpsql.star.graph import PEOPLE
from dpsql.variance.model import Covariance


@dataclass(frozen=True, eq=False)
class Parts:
    """Variances beside the noise, each of shape (rows,) in squared units of the answer.

    Args:
        scale: the common factor's noise.
        spread: of groups.
        down, up: the tail, towards less and more.
    """

    scale: FloatArray
    spread: FloatArray
    down: FloatArray
    up: FloatArray

    @property
    def tail(self) -> FloatArray:
        """The tail's longer side."""
        return np.maximum(self.down, self.up)


Sizes = Mapping[MeasureScale, FloatArray]
"""The part of an answer that follows the size of each factor."""


def parts_of(form: Noisy, answered: Answered) -> Parts | None:
    """What a form may be off by beside its noise; None where its table has no scale.

    What people report has its weight of rows in its noise (`errorbars.Weight`).
    """
    release = answered.errors.release
    scale = release.scales.get(answered.plan.view.of)
    if scale is None or release.meta.local is not None or not any(map(follows_scale, terms_of(form))):
        return None
    slopes = _slopes(form, answered)
    off = _shares_off(slopes, answered)
    return common_parts(_sizes(slopes, answered, scale), off.spread, off.tail)


def common_parts(sizes: Sizes, spread: FloatArray | float, tail: FloatArray | float) -> Parts:
    """The parts of answers, from what follows the size of each factor and what their shares may be off by."""
    noise = _common(sizes, lambda error, sign: np.full_like(sign, error.noise))
    sides = [_common(sizes, _towards(way)) for way in (-1.0, 1.0)]
    down, up = (np.maximum(side - noise, 0.0) + tail for side in sides)
    return Parts(noise, np.maximum(spread, 0.0), np.maximum(down, 0.0), np.maximum(up, 0.0))


def follows_scale(term: Term) -> bool:
    """Whether a term was scaled to a total: rows and sums are, people are counted as they are."""
    return term.measure != PEOPLE


def _slopes(form: Noisy, answered: Answered) -> dict[Term, FloatArray]:
    """By how much the answer of each group moves with each of its terms."""
    above, below = answered.parts(form)
    rows = len(answered.errors.index[0]) if answered.errors.index else 1
    if isinstance(form, Linear):
        return {term: np.full(rows, weight) for term, weight in form.weights}
    found: dict[Term, FloatArray] = {}
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = above / below
        for term, weight in form.above.weights:
            found[term] = found.get(term, 0.0) + weight / below
        for term, weight in form.below.weights:
            found[term] = found.get(term, 0.0) - ratio * weight / below
    return {term: np.broadcast_to(slope, rows) for term, slope in found.items()}


def _sizes(slopes: Mapping[Term, FloatArray], answered: Answered, scale: ScaleMeta) -> Sizes:
    """Terms with one factor, added up."""
    found: dict[MeasureScale, FloatArray] = {}
    for term, slope in slopes.items():
        if not follows_scale(term):
            continue
        own = scale.measure(term.measure)
        found[own] = found.get(own, 0.0) + slope * answered.totals[term]
    return found


Side = Callable[[RelativeError, FloatArray], FloatArray]
"""A relative error as a function of the sign of what it moves."""


def _towards(way: float) -> Side:
    """The side on which an answer grows (1) or shrinks (-1)."""
    return lambda error, sign: np.where(way * sign > 0, error.up, error.down)


def _common(sizes: Sizes, side: Side) -> FloatArray:
    """Variance of an answer by its factors: their own errors, and what an average says of two of them."""
    rows = next((size for size in sizes.values()), np.zeros(1))
    total = np.zeros_like(rows, dtype=np.float64)
    counts = next((own for own in sizes if not own.measure), None)
    of_rows = {own: side(own.error, np.sign(size)) for own, size in sizes.items()}
    for own, size in sizes.items():
        total = total + (size * of_rows[own]) ** 2
    for own, size in sizes.items():
        if counts is not None and own is not counts:
            apart = side(own.mean_error, np.sign(size))
            shared = (of_rows[counts] ** 2 + of_rows[own] ** 2 - apart**2) / 2
            total = total + 2 * sizes[counts] * size * shared
    summed = [own for own in sizes if own.measure]
    for i, own in enumerate(summed):
        for other in summed[:i]:  # two measures are alike as far as each is like the rows
            apart = np.hypot(*(side(each.mean_error, np.sign(sizes[each])) for each in (own, other)))
            shared = (of_rows[own] ** 2 + of_rows[other] ** 2 - apart**2) / 2
            total = total + 2 * sizes[own] * sizes[other] * shared
    found: FloatArray = np.maximum(total, 0.0)
    return found


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
        for (other, second), weight in reads.items():
            if statistic_id == other:
                found = answered.errors.product(statistic_id, box, second)
                spread, tail = spread + slope * weight * found.spread, tail + slope * weight * found.tail
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
