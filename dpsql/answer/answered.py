"""Terms of a block on one plan: their values, and how far each form of them may be off."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpsql.answer.bias import bias_hint
from dpsql.answer.block import ErrorOf, Linear, Noisy, Ratio, Term
from dpsql.answer.cuts import average_of, most_moved, ratio_moved, value_bounds
from dpsql.answer.errorbars import LAPLACE_KURTOSIS, Errors, quantile
from dpsql.answer.leafsets import FloatArray
from dpsql.answer.plan import Plan, presence
from dpsql.answer.recombine import Lookup, recombine
from dpsql.answer.weight import weight_error
from dpsql.release import Release
from dpsql.release.format import UNIT

NULL_LEVEL = 0.95
"""An AVG is NULL when its count's interval at this level holds 0."""


@dataclass(frozen=True, eq=False)
class Answered:
    """Terms of a block, answered on one plan.

    Args:
        plan: the plan.
        totals: term -> value for each group, flat.
        lookups: the statements that ran.
        errors: variances for the groups that are shown.
        cuts: term -> most that cutting a bin may add to it, for each group.
    """

    plan: Plan
    totals: dict[Term, FloatArray]
    lookups: tuple[Lookup, ...]
    errors: Errors
    cuts: dict[Term, FloatArray]

    def value(self, form: Linear) -> FloatArray:
        """A linear form for each group shown."""
        rows = len(self.errors.index[0]) if self.errors.index else 1
        total = np.full(rows, form.constant)
        for term, weight in form.weights:
            total = total + weight * self.totals[term]
        return total

    def parts(self, form: Noisy) -> tuple[FloatArray, FloatArray]:
        """(value, 1) of a linear form, (numerator, denominator) of a ratio."""
        if isinstance(form, Linear):
            return self.value(form), np.ones(1)
        return self.value(form.above), self.value(form.below)

    def cut(self, form: Linear) -> FloatArray:
        """The most that cutting bins may add to a linear form, for each group shown."""
        rows = len(self.errors.index[0]) if self.errors.index else 1
        return sum((abs(weight) * self.cuts[term] for term, weight in form.weights), np.zeros(rows))

    @cached_property
    def kurtosis(self) -> float:
        """Excess kurtosis to allow for: pure releases draw Laplace noise, one draw a node combination.

        What people report for themselves errs like a sum over all of them, which is normal.
        """
        reported = "local" in self.errors.release.meta
        pure = not reported and any(s.currency == "epsilon" for s in self.plan.view.statistics.values())
        fewest = min((int(np.prod(each.nodes)) for each in self.lookups), default=1)
        rows = max(1, int(np.prod(self.plan.shape)))
        return LAPLACE_KURTOSIS / max(1.0, fewest / rows) if pure else 0.0

    def z(self, level: float) -> float:
        """Standard errors on each side of an answer."""
        return quantile(level, self.kurtosis)


def terms_of(value: object) -> list[Term]:
    """The noisy terms of a value."""
    if isinstance(value, Linear):
        return [term for term, _ in value.weights]
    if isinstance(value, Ratio):
        return [*terms_of(value.above), *terms_of(value.below)]
    if isinstance(value, ErrorOf):
        return terms_of(value.form)
    return []


def answer_terms(
    plan: Plan, terms: Sequence[Term], index: tuple[np.ndarray, ...], release: Release
) -> Answered:
    """Recombine every statistic that the terms read, once, and add up."""
    wanted: dict[int, dict[Any, None]] = {}
    for term in terms:
        for statistic in _statistics(plan, term):
            wanted.setdefault(statistic, {}).update(dict.fromkeys(plan.boxes_of(term.condition)))
    lookups, found, cut = [], {}, {}
    for statistic, boxes in wanted.items():
        if boxes:
            asked, found[statistic], cut[statistic] = recombine(plan, statistic, list(boxes), release)
            lookups.append(asked)
    totals = {term: _total(plan, term, found, index) for term in terms}
    cuts = {term: _cut(plan, term, cut, index, release) for term in terms}
    return Answered(plan, totals, tuple(lookups), Errors(plan, release, index), cuts)


def _statistics(plan: Plan, term: Term) -> list[int]:
    statistic = plan.view.statistics[term.measure]
    if not statistic.mid and not any(cells.cut for cells in plan.cells):
        return [statistic.id]
    count = presence(term.measure, plan.view)
    return [statistic.id] + ([count.id] if count is not None else [])


def _total(
    plan: Plan, term: Term, found: dict[int, dict[Any, Any]], index: tuple[np.ndarray, ...]
) -> FloatArray:
    """(centred sum + mid * count) / 10^scale, added up in integers while they are whole."""
    statistic = plan.view.statistics[term.measure]
    used = _statistics(plan, term)
    units = np.zeros(len(index[0]) if index else 1, np.int64)
    for box in plan.boxes_of(term.condition):
        for which, factor in zip(used, (1, statistic.mid), strict=False):
            part = found[which][box]
            flat = part[index] if index else part.reshape(1)
            wide = (
                part.dtype == np.int64 and factor and np.max(np.abs(flat), initial=0) > 2**62 // abs(factor)
            )
            units = units + (flat.astype(np.float64) if wide else flat) * factor
    return np.asarray(units / UNIT / 10.0**statistic.scale, np.float64)


def _cut(
    plan: Plan, term: Term, cut: dict[int, dict[Any, Any]], index: tuple[np.ndarray, ...], release: Release
) -> FloatArray:
    """The most that cutting bins may add to a term, for each group; NaN where the view holds nothing to tell."""
    used = _statistics(plan, term)
    misplaced = {}
    for which in used:
        rows = np.zeros(len(index[0]) if index else 1)
        for box in plan.boxes_of(term.condition):
            part = cut[which][box]
            rows = rows + (part[index] if index else part.reshape(1)) / UNIT
        misplaced[release.statistics[which].measure] = rows
    return most_moved(plan.view.statistics[term.measure], misplaced, release)


@np.errstate(over="ignore", invalid="ignore")
def central(form: Noisy, answered: Answered) -> FloatArray:
    """The value of a form; NaN for an AVG whose count may be 0."""
    above, below = answered.parts(form)
    if isinstance(form, Linear):
        return above
    known = below != 0
    if form.mean:
        known &= np.abs(below) > answered.z(NULL_LEVEL) * np.sqrt(answered.errors.variance(form.below))
    found: FloatArray = np.divide(above, below, out=np.full(len(above), np.nan), where=known)
    return found


@np.errstate(
    over="ignore", invalid="ignore", divide="ignore"
)  # what is no number is NULL, and is not worth a warning
def error_values(what: str, form: Noisy, answered: Answered, level: float) -> FloatArray:
    """Standard error, one end of the interval or model bound of a form, NaN where it is not defined."""
    above, below = answered.parts(form)
    hidden = np.isnan(central(form, answered)) if isinstance(form, Ratio) else np.zeros(len(above), bool)
    if what == "model":
        return np.where(hidden, np.nan, cut_values(form, answered))
    if what == "scale":
        return np.where(hidden, np.nan, scale_values(form, answered))
    if what == "bias":
        return np.where(hidden, np.nan, bias_hint(answered.plan, answered.errors.release, len(above)))
    if what == "stderr":
        found = answered.errors.stderr(form, above, below)
    else:
        ends = answered.errors.interval(form, above, below, answered.z(level))
        found = ends[0] if what == "low" else ends[1]
    return np.where(hidden, np.nan, found)


def scale_values(form: Noisy, answered: Answered) -> FloatArray:
    """What the error of the table's common scale adds to counts and sums beside their standard error.

    Ratios do not see the scale, and a weight of rows is part of the standard error already.
    """
    release = answered.errors.release
    scale = release.scales.get(answered.plan.view.of)
    above, _ = answered.parts(form)
    if scale is None or isinstance(form, Ratio) or weight_error(release):
        return np.zeros(len(above))
    return np.abs(above - form.constant) * scale.relative_error


def cut_values(form: Noisy, answered: Answered) -> FloatArray:
    """The most that cutting bins may add to a form, for each group shown; NaN where nothing bounds it."""
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


def nullable(values: FloatArray) -> list[float | None]:
    """NaN and infinity as None."""
    return [value if math.isfinite(value) else None for value in values.tolist()]
