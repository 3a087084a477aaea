"""How far an answer may be off because bins were cut, beside the noise.

| here | there | unit |
|---|---|---|
| `misplaced` | d: sum over cut cells of N max(w, 1 - w) | rows, or the sum of their measure |
| N | published mass of a cut cell | the same |
| w | the part of a cut cell that is taken: that of its atoms which the predicate keeps | 1 |
| reach | most that one row's measure can be away from 0, or from an average r | measure |

A cut cell's N rows are taken as spread evenly, so w N of them count; they may lie all on one side. COUNT is off by at
most d of the rows. SUM of values of one sign is off by at most d of the sum itself, since a part of it lies between 0
and all of it; of values of both signs, by d of the rows times the reach. An average r = a / b of values in [low, high]
is off by at most d reach / (b - d), d of its rows, reach = max(high - r, r - low): a row on the wrong side moves
it by the row's distance from r alone. It is never off by more than the reach, since the true average is in [low, high].

Masses are the published ones, so a bound has their noise; it is cut at 0 once they are added up.

**Privacy**: released numbers and public bounds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.answer.block import Linear, Ratio, Term
from dpsql.answer.leafsets import FloatArray, masks
from dpsql.answer.plan import Plan
from dpsql.release import Release, StatisticMeta


@dataclass(frozen=True)
class Interpolated:
    """What of an axis is cut.

    Args:
        axis: its position in the view.
        bins: bins of which a part is taken.
        share: part of all that is taken on this axis which lies in them, counted in bins.
    """

    axis: int
    bins: int
    share: float


def interpolated(plan: Plan, terms: Sequence[Term]) -> tuple[Interpolated, ...]:
    """The cut axes of a plan, over all groups and conditions.

    Args:
        plan: the plan.
        terms: what it answers.
    """
    boxes = {box for term in terms for box in plan.boxes_of(term.condition)}
    found = []
    for axis, cells in enumerate(plan.cells):
        if not cells.cut:
            continue
        taken = [masks(cells, truths) for truths in {box[axis] for box in boxes}]
        partly = [(mask > 0) & (mask < 1) for mask in taken]
        bins = np.unique(np.concatenate([np.nonzero(each)[1] for each in partly])) if partly else ()
        if len(bins):
            inside = sum(float(mask[part].sum()) for mask, part in zip(taken, partly, strict=True))
            found.append(Interpolated(axis, len(bins), inside / sum(float(mask.sum()) for mask in taken)))
    return tuple(found)


def overall(cut: Sequence[Interpolated]) -> float:
    """The part of all that is taken, over all axes together, that lies in cut bins.

    >>> overall([Interpolated(0, 1, 0.5), Interpolated(1, 2, 0.5)])
    0.75
    """
    return 1.0 - float(np.prod([1.0 - each.share for each in cut])) if cut else 0.0


def is_count(measure: str) -> bool:
    """Whether a statistic counts rows."""
    return measure == "count" or measure.startswith("count(")


def value_bounds(statistic: StatisticMeta, release: Release) -> tuple[float, float]:
    """The smallest and largest value of a measure, as the catalog declares it; (1, 1) for counts."""
    if is_count(statistic.measure):
        return 1.0, 1.0
    table, _, column = statistic.measure.rpartition(".")
    entry = release.meta["catalog"]["tables"].get(table) or {}
    declared = (entry.get("columns") or {}).get(column) or (entry.get("measures") or {}).get(column) or {}
    if not isinstance(declared, Mapping) or "lower" not in declared or "upper" not in declared:
        wide = abs(statistic.mid) + statistic.sensitivity  # an older file: never less than the bounds
        return -wide / 10.0**statistic.scale, wide / 10.0**statistic.scale
    return float(declared["lower"]), float(declared["upper"])


def most_moved(statistic: StatisticMeta, misplaced: Mapping[str, FloatArray], release: Release) -> FloatArray:
    """The most that a count or sum may be off.

    Args:
        statistic: what is counted or summed.
        misplaced: measure -> mass that may lie on the wrong side, as stored; of the statistic and of its rows.
        release: says which values a measure may have.

    Returns:
        The bound of each group, at least 0; NaN for a measure of both signs without a count of its rows.
    """
    own = misplaced[statistic.measure]
    rows = next((mass for measure, mass in misplaced.items() if is_count(measure)), None)
    if is_count(statistic.measure):
        return np.asarray(np.maximum(own, 0.0))
    low, high = value_bounds(statistic, release)
    if low >= 0 or high <= 0:
        total = (own + (0.0 if rows is None else statistic.mid * rows)) / 10.0**statistic.scale
        return np.asarray(np.maximum(total if low >= 0 else -total, 0.0))
    if rows is None:
        return np.where(own == 0, 0.0, np.nan)
    return np.asarray(np.maximum(rows, 0.0) * max(-low, high))


def ratio_moved(
    above: FloatArray,
    below: FloatArray,
    moved: tuple[FloatArray, FloatArray],
    bounds: tuple[float, float] | None,
) -> FloatArray:
    """The most that a ratio may be off: |a'/b' - a/b| <= (da + |a/b| db) / (|b| - db), an average by less.

    Args:
        above, below: the ratio's parts.
        moved: how far each of them may be off.
        bounds: smallest and largest value, for the average of one measure; else None.

    Returns:
        The bound of each group; NaN where the denominator may be 0 and nothing else bounds the ratio.
    """
    da, db = moved
    ratio = np.divide(above, below, out=np.zeros(len(above)), where=below != 0)
    room = np.abs(below) - db
    if bounds is None:
        over, found = da + np.abs(ratio) * db, np.full(len(above), np.nan)
        return np.asarray(np.divide(over, room, out=found, where=room > 0), np.float64)
    reach = np.maximum(np.abs(bounds[1] - ratio), np.abs(ratio - bounds[0])) * (db > 0)
    return np.asarray(
        np.minimum(reach, np.divide(reach * db, room, out=reach.copy(), where=room > 0)), np.float64
    )


def average_of(form: Ratio) -> tuple[Term, float] | None:
    """The one measure that a ratio is the average of, with its factor; None for any other ratio."""
    one = isinstance(form.above, Linear) and len(form.above.weights) == 1 and not form.above.constant
    if not (form.mean and one and len(form.below.weights) == 1 and not form.below.constant):
        return None
    (term, factor), (_, of) = form.above.weights[0], form.below.weights[0]
    return term, factor / of


def cut_notes(
    plan: Plan, terms: Sequence[Term], cuts: Mapping[Term, FloatArray], release: Release
) -> list[str]:
    """The same in words: which axes, and how far counts and sums may be off in the group that is off most."""
    cut = interpolated(plan, terms)
    if not cut or not terms:
        return []
    axes = ", ".join(
        f"{each.bins} bin{'s' * (each.bins > 1)} of {release.axes[plan.view.axes[each.axis]].name}"
        for each in cut
    )
    most: dict[str, float] = {}
    for term in terms:
        largest = float(np.max(cuts[term], initial=0.0))
        most[term.measure] = max(most.get(term.measure, 0.0), largest)
    each = ", ".join(
        f"{measure} by an unknown amount" if value != value else f"{measure} by up to {value:.4g}"
        for measure, value in most.items()
    )
    return [f"{axes} cut: interpolating them may put off {each}, beside the noise"]
