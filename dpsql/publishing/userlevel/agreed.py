"""The noisy views of one table once they agree: what the recipe reads totals and groups off.

Views are reconciled family by family, as the release will be (`reconcile`), before anything is scaled.

**Privacy**: post-processing of noisy integers and public facts.
**Source**: docs/method/views.md, "Views that share axes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from math import prod, sqrt

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.family.differences import RangeVariance
from dpsql.mechanisms.family.measurement import DrawnMember, MeasuredAxis
from dpsql.mechanisms.family.people import PeopleEstimate, pooled
from dpsql.mechanisms.family.whitened import UNIT
from dpsql.mechanisms.law import NoisyView
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.variance.kronecker import AxisSplit, ProductReading

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
    axes = {
        a: MeasuredAxis(planned.strategy, AxisSplit(planned.strategy.variance()), planned.choice.name)
        for a, planned in enumerate(plan.axes)
    }
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
