"""From low views and factors to what a release holds beside them: corrections of groups, and how far shares are off.

Views are reconciled family by family, as the release will be (`Agreed`), before anything is scaled.

COUNT = R_N c + d and SUM = R_S (y + mid c) + dy + mid d. A release stores counts, and sums around mid, so beside
R_S y the stored sum has (R_S - R_N) mid c + dy.

| here | there | unit |
|---|---|---|
| `Correction` | d, dy with v_g and v_k, of the groups of one axis | rows, stored units |
| `Corrected.leaves` | what is added to R times the leaf estimates | rows, stored units |
| `Corrected.spread` | v_g, v_k, i2 and the rows in few hands, per statistic | the same, squared |

**Privacy**: functions of released values alone.
**Source**: docs/method/user_level.md, "Differences", "Intervals that cover the exact answer";
docs/method/views.md, "Views that share axes".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod, sqrt
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.family.differences import (
    Correction,
    DifferenceNoise,
    RangeVariance,
    carried,
    corrected,
    fitted,
    groups_of,
    interaction,
    parts_of,
)
from dpsql.mechanisms.family.measurement import DrawnMember
from dpsql.mechanisms.family.people import PeopleEstimate, pooled, spread
from dpsql.mechanisms.family.pooling import TotalsFactor
from dpsql.mechanisms.family.whitened import UNIT
from dpsql.mechanisms.law import NoisyView
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.publishing.userlevel.shapes import Differences
from dpsql.variance.kronecker import ProductReading
from dpsql.variance.scaled import GroupsOff, Spread

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Agreed:
    """The views of one table, in units of a weight of 1 and of the measure.

    Args:
        plan: the release.
        leaves: leaf estimates of each statistic, by index in the plan.
        readings: how it answers, without factors.
    """

    plan: ReleasePlan
    leaves: Mapping[int, FloatArray]
    readings: Mapping[int, ProductReading]
    _totals: dict[str, PeopleEstimate] = field(default_factory=dict, repr=False)

    def of(self, measure: str) -> dict[int, PlannedStatistic]:
        """The statistics of a measure by index."""
        return {
            i: self.plan.statistics[i] for i in self.leaves if self.plan.statistics[i].measure.name == measure
        }

    def total(self, measure: str) -> PeopleEstimate:
        """The total of a measure; views that stand alone have totals of their own."""
        if measure not in self._totals:
            self._totals[measure] = self._total(measure)
        return self._totals[measure]

    def _total(self, measure: str) -> PeopleEstimate:
        families = {s.family: i for i, s in self.of(measure).items()}
        return pooled(
            [
                PeopleEstimate(float(self.leaves[i].sum()), sqrt(self.readings[i].components[()]))
                for i in families.values()
            ]
        )

    def margin(self, measure: str, axis: int) -> GroupSums:
        """Sums of the groups of one axis, from any view that holds it."""
        i, s = next((i, s) for i, s in self.of(measure).items() if axis in s.axes)
        place = s.axes.index(axis)
        away = tuple(position for position in range(len(s.axes)) if position != place)
        value = np.asarray(self.leaves[i].sum(axis=away), np.float64)
        return GroupSums(value, partial(range_variance, self.readings[i], place))

    def cell_variance(self, index: int) -> float:
        """Mean variance of the cells of a statistic."""
        return mean_variance(self.readings[index], tuple(range(len(self.plan.statistics[index].axes))))


@dataclass(frozen=True, eq=False)
class GroupSums:
    """Estimates of groups with the standard error of a typical one.

    Args:
        value: shape (n,).
        variance: first groups and ends of ranges -> variances of their sums.
    """

    value: FloatArray
    variance: RangeVariance

    @property
    def sd(self) -> float:
        """Root mean square of the groups'."""
        place = np.arange(self.value.size)
        return sqrt(self.variance(place, place + 1).mean())


def range_variance(reading: ProductReading, place: int, lo: IntArray, hi: IntArray) -> FloatArray:
    """Variances of sums over ranges of one axis, all of the others added up.

    Args:
        reading: of the view.
        place: of the axis.
        lo, hi: the ranges, half-open, shape (q,).
    """
    split = reading.axes[place]
    before = np.append(0.0, np.cumsum(split.spread))
    share = (before[hi] - before[lo]) ** 2
    rest = np.maximum(split.model.ranges(lo, hi) - split.total * share, 0.0)
    return np.asarray(reading.components[()] * share + reading.components[place,] * rest, np.float64)


def mean_variance(reading: ProductReading, places: tuple[int, ...]) -> float:
    """Mean variance of single groups of some axes, all of the others added up."""
    means = []
    for place, split in enumerate(reading.axes):
        n = split.model.n
        masks = np.eye(n) if place in places else np.ones((1, n))
        rest, share = split.parts(masks)
        means.append((float(rest.mean()), float(share.mean())))
    return sum(
        sigma2 * prod(rest if place in part else share for place, (rest, share) in enumerate(means))
        for part, sigma2 in reading.components.items()
    )


def agree(plan: ReleasePlan, views: Mapping[int, NoisyView]) -> Agreed:
    """Estimate and reconcile drawn views.

    Args:
        plan: the release.
        views: what was drawn of one table, by index in the plan.
    """
    axes = {a: planned.measured(planned.strategy.variance()) for a, planned in enumerate(plan.axes)}
    leaves: dict[int, FloatArray] = {}
    readings: dict[int, ProductReading] = {}
    for members in plan.families:
        if members[0] not in views:
            continue
        family = [DrawnMember(plan.statistics[i].axes, views[i], 1 / UNIT) for i in members]
        estimates = plan.statistics[members[0]].measurement.estimate(family, axes)
        for i, estimated in zip(members, estimates, strict=True):
            leaves[i] = estimated.leaves
            splits = tuple(axes[a].split for a in plan.statistics[i].axes)
            readings[i] = ProductReading(splits, estimated.components)
    return Agreed(plan, leaves, readings)


PULL = 2.0
"""kappa: how much more people whom differences do not show pull a group than those whom they do; they own most."""

TASTE = 0.8
"""lk: how far heavy people may all own the same things."""

APART = 0.5
"""How far cells may be off beyond their groups, as a part of what the low bound left out of them."""


CLEAR, LARGE = 3.0, 0.2
"""Standard errors, and part of a group, from which its correction says that it follows how much a unit owns."""


class Corrected(NamedTuple):
    """What a release holds of one statistic beside its scaled leaf estimates.

    Args:
        leaves: what is added to them, in the statistic's shape.
        spread: how far shares of the whole may be off.
    """

    leaves: FloatArray
    spread: Spread


@dataclass(frozen=True)
class Low:
    """The low views with their factors.

    Args:
        views: as they agree.
        factors: by measure; of rows under the empty name.
    """

    views: Agreed
    factors: Mapping[str, TotalsFactor]

    def factor(self, statistic: PlannedStatistic) -> TotalsFactor:
        """The one that a statistic is multiplied by."""
        return self.factors["" if statistic.bounds is None else statistic.measure.name]

    def rows_of(self, measure: str) -> str:
        """The statistic that counts the rows of a measure: its own where it may be NULL."""
        own = f"count({measure})"
        return own if self.views.of(own) else "count"

    def rows_in(self, index: int) -> int:
        """The statistic of the same view that counts the rows of a statistic's measure."""
        statistic = self.views.plan.statistics[index]
        if statistic.bounds is None:
            return index
        wanted = self.rows_of(statistic.measure.name)
        return next(i for i, s in self.views.of(wanted).items() if s.view == statistic.view)

    def apart(self, index: int) -> FloatArray:
        """(R_S - R_N) mid c: what a centred sum has of its rows, since both have factors of their own."""
        statistic, rows = self.views.plan.statistics[index], self.views.leaves[self.rows_in(index)]
        gap = self.factor(statistic).value - self.factors[""].value
        return gap * statistic.mid * rows


def _size(statistic: PlannedStatistic) -> float:
    """How far a value of a statistic typically is from its centre: 1 for rows."""
    bounds = statistic.bounds
    return 1.0 if bounds is None else float(spread(statistic.mid, bounds.lower, bounds.upper))


class MeasuredDifferences(NamedTuple):
    """What differences tell of one table.

    Args:
        statistics: what a release holds of each, by index in the plan.
        follows: names of the axes of which some group plainly follows how much a unit owns.
    """

    statistics: dict[int, Corrected]
    follows: tuple[str, ...]


def measured(low: Low, drawn: Differences, wide: float) -> MeasuredDifferences:
    """Groups are moved as far as they are seen to vary, and the rest is told.

    Args:
        low: the views.
        drawn: what R0 leaves out of them.
        wide: how many times as far off groups may be as if nothing that is left out was theirs.
    """
    off = _Off(low, agree(low.views.plan, drawn.views), drawn, wide)
    statistics = {i: off.corrected(i) for i in low.views.leaves}
    axes = low.views.plan.axes
    return MeasuredDifferences(statistics, tuple(dict.fromkeys(axes[a].axis.name for a in off.following())))


class _Off:
    """Differences of one table beside its low views."""

    def __init__(self, low: Low, views: Agreed, drawn: Differences, wide: float) -> None:
        self.low, self.views, self.drawn, self.wide = low, views, drawn, wide
        self.counts: dict[tuple[str, int], Correction] = {}

    def corrected(self, index: int) -> Corrected:
        """Corrections of one statistic, and how far its shares may be off."""
        statistic = self.views.plan.statistics[index]
        rows = self.low.views.leaves[self.low.rows_in(index)]
        groups = [self.group(statistic, axis) for axis in statistic.axes]
        moved = fitted(rows, [each.value for each in groups]) if groups else np.zeros_like(rows)
        rest = self.difference(statistic, self.low.views.leaves[index], rows, self.views.leaves[index],
                               self.views.leaves[self.low.rows_in(index)])  # fmt: skip
        reach, unseen = self.reach(statistic), self.unseen(statistic)
        cells = interaction(rest - moved, reach**2 * self.views.cell_variance(index)) * rows.size
        left = (self.left(statistic) * self.whole(statistic) * _size(statistic)) ** 2
        base = np.zeros_like(rows) if statistic.bounds is None else self.low.apart(index)
        pull = PULL * unseen / reach
        off = tuple(GroupsOff(each.variance, pull * each.value, each.halved) for each in groups)
        most = (APART * self.left_out(statistic)) ** 2
        shown = Spread(parts_of(rows), off, cells, most, left / self.drawn.few, TASTE**2 * left)
        return Corrected(base + moved, shown)

    def following(self) -> Iterator[int]:
        """Axes of which a group's rows are moved by a part of them that is large, and clear."""
        counts = self.low.views.of("count").values()
        for axis in dict.fromkeys(axis for s in counts for axis in s.axes):
            moved, low = self.counts["count", axis], self.low.views.margin("count", axis).value
            rows = self.low.factors[""].value * low + moved.value
            sd = np.sqrt(GroupsOff(moved.variance, np.zeros(low.size), moved.halved).alone(parts_of(low)))
            if np.any(
                (np.abs(moved.value) > CLEAR * sd) & (np.abs(moved.value) > LARGE * np.maximum(rows, 0.0))
            ):
                yield axis

    def group(self, statistic: PlannedStatistic, axis: int) -> Correction:
        """How the groups of one axis are moved."""
        name = statistic.measure.name
        if (name, axis) not in self.counts:
            rows_name = name if statistic.bounds is None else self.low.rows_of(name)
            low_rows, rows = (views.margin(rows_name, axis) for views in (self.low.views, self.views))
            low_sums, sums = (views.margin(name, axis) for views in (self.low.views, self.views))
            ordered = self.views.plan.axes[axis].axis.ordered
            groups = groups_of(low_rows.value, low_rows.sd, ordered=ordered)
            x = self.difference(statistic, low_sums.value, low_rows.value, sums.value, rows.value)
            reach = self.reach(statistic)
            noise = DifferenceNoise(
                lambda lo, hi: reach**2 * sums.variance(lo, hi), self.wide * self.left_out(statistic)
            )
            towards = None
            if statistic.bounds is not None:
                counts = self.group(self.rows_statistic(statistic), axis)
                scale = self.low.factors[""].value, self.low.factor(statistic).value
                towards = carried(groups, counts, low_sums.value, scale, statistic.mid)
            self.counts[name, axis] = corrected(groups, x, noise, towards)
        return self.counts[name, axis]

    def reach(self, statistic: PlannedStatistic) -> float:
        """ext: what the low bound left out, over what differences show of it: the rest has their profile."""
        return 1 + self.unseen(statistic)

    def rows_statistic(self, statistic: PlannedStatistic) -> PlannedStatistic:
        """One that counts the rows of a measure."""
        return next(iter(self.views.of(self.low.rows_of(statistic.measure.name)).values()))

    def difference(
        self,
        statistic: PlannedStatistic,
        low: FloatArray,
        low_rows: FloatArray,
        own: FloatArray,
        rows: FloatArray,
    ) -> FloatArray:
        """x: differences less their parts of the whole's, so that they add to 0, times `reach`."""
        reach = self.reach(statistic)
        if statistic.bounds is None:
            return reach * (own - self.part(statistic) * low)
        counts, mid = self.part(self.rows_statistic(statistic)), statistic.mid
        return reach * (own - self.part(statistic) * (low + mid * low_rows) + mid * counts * low_rows)

    def part(self, statistic: PlannedStatistic) -> float:
        """The whole's difference over the whole: pc of counts, pS of sums that are not centred."""
        low, own = (self.uncentred(views, statistic) for views in (self.low.views, self.views))
        return own / low if low else 0.0

    def uncentred(self, views: Agreed, statistic: PlannedStatistic) -> float:
        """The total of a statistic, its centre put back."""
        name = statistic.measure.name
        own = views.total(name).value
        return (
            own
            if statistic.bounds is None
            else own + statistic.mid * views.total(self.low.rows_of(name)).value
        )

    def whole(self, statistic: PlannedStatistic) -> float:
        """All rows of a statistic's measure."""
        name = (
            statistic.measure.name if statistic.bounds is None else self.low.rows_of(statistic.measure.name)
        )
        return self.low.factors[""].value * self.low.views.total(name).value

    def left_out(self, statistic: PlannedStatistic) -> float:
        """What low bounds leave out of all rows, times how large a value is."""
        return (1 - 1 / self.low.factors[""].value) * self.whole(statistic) * _size(statistic)

    def unseen(self, statistic: PlannedStatistic) -> float:
        """What differences do not show of what the low bound left out, over what they do show, at most 1.

        People beyond them may pull groups the same way: on the bundled shop, whose rich customers buy dear,
        differences move price ranges four tenths of the way, and show six tenths of what was left out.
        """
        left = self.left(statistic)
        shown = 1 - 1 / self.low.factor(statistic).value - left
        return 1.0 if shown <= left else left / shown

    def left(self, statistic: PlannedStatistic) -> float:
        """The part of the whole that neither views nor differences show; of a sum, at least that of its rows."""
        whole = self.low.factor(statistic).value * self.uncentred(self.low.views, statistic)
        shown = self.drawn.factor * self.uncentred(self.low.views, statistic) + self.uncentred(
            self.views, statistic
        )
        own = max(0.0, 1 - shown / whole) if whole else 0.0
        return own if statistic.bounds is None else max(own, self.left(self.rows_statistic(statistic)))
