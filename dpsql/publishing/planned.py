"""What a plan is made of: the statistics of a release before they are drawn.

| here | there | unit |
|---|---|---|
| `PlannedStatistic.charge` | share of the view times share of the measure | epsilon, or rho where delta > 0 |
| `PlannedStatistic.spend` | what the noise is drawn for, in its own currency | epsilon (Laplace), rho (Gaussian) |
| `PlannedStatistic.sensitivity` | M: what one unit changes, tau times the measure's reach | stored integers |
| `family` | statistics of one table and one measure, which agree on what they share | - |
| `shape` | part of the views' budget of a `max_ids: auto` table; its noise scale is chosen at publish | - |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from dpsql.catalog.measures import ResolvedMeasure
from dpsql.catalog.model import Catalog
from dpsql.mechanisms.axis.strategy import AxisStrategy
from dpsql.mechanisms.central.whitened import UNIT
from dpsql.mechanisms.family.measurement import Measurement, Terms
from dpsql.mechanisms.family.product import PRODUCT
from dpsql.mechanisms.law import NoiseLaw
from dpsql.publishing.measures import Bounds
from dpsql.publishing.planned_axes import PlannedAxis
from dpsql.publishing.userlevel_plan import Step
from dpsql.variance.plane import PlaneVariance


class Groups(NamedTuple):
    """Factors of the groups along one axis of a view, relative to its table's ratio.

    Args:
        axis: id of the axis.
        factors: one for each leaf.
    """

    axis: int
    factors: tuple[float, ...]


@dataclass(frozen=True)
class Settled:
    """What the recipe for `max_ids: auto` chose for a statistic, from released values alone.

    Args:
        mid: the centre of the measure; 0 for counts.
        sensitivity: the most that one unit changes the statistic, in its mechanism's norm, rounded up.
        factor: what the drawn integers are multiplied by: the ratio R over the units of a weight.
        groups: further factors by group, for `calibrate: per_group`.
    """

    mid: int
    sensitivity: int
    factor: float
    groups: Groups | None = None


@dataclass(frozen=True)
class PlannedStatistic:
    """A statistic before it is drawn.

    Args:
        view, of: the view and the table whose rows it counts.
        measure: what is counted or summed.
        axes: axis ids, increasing.
        law: the noise.
        spend: what the noise is drawn for: epsilon under Laplace noise, rho under Gaussian.
        charge: what the ledger is charged, in the release's currency.
        tau: rows kept of one unit; 0 where `max_ids: auto` has not chosen yet.
        bounds: the measure's bounds, or None for counts.
        shape: for `max_ids: auto`, the statistic's part of what all views of the table spend, else 0.
        settled: for `max_ids: auto`, what was chosen at publish.
        measurement: how it is drawn and estimated.
        calibrated: for `calibrate: per_group`, which has factors of its own.
        weighted: whether rows are drawn with weights, in units of 2^-20.
    """

    view: str
    of: str
    measure: ResolvedMeasure
    axes: tuple[int, ...]
    law: NoiseLaw
    spend: Fraction
    charge: Fraction
    tau: int
    bounds: Bounds | None
    shape: Fraction = Fraction(0)
    settled: Settled | None = None
    measurement: Measurement = PRODUCT
    calibrated: bool = False
    weighted: bool = False

    @property
    def mid(self) -> int:
        """The centre that a sum is published around; 0 for counts."""
        if self.settled is not None:
            return self.settled.mid
        return self.bounds.mid if self.bounds else 0

    @property
    def factor(self) -> float:
        """What the drawn integers are multiplied by to estimate the answer."""
        if self.settled is not None:
            return self.settled.factor
        return 1.0 / UNIT if self.weighted else 1.0

    @property
    def drawn_sensitivity(self) -> int:
        """The sensitivity in the integers that are drawn."""
        return self.sensitivity * (UNIT if self.weighted else 1)

    @property
    def sensitivity(self) -> int:
        """The most that one unit changes the cells, in L1."""
        if self.settled is not None:
            return self.settled.sensitivity
        return self.tau * (self.bounds.reach if self.bounds else 1)

    @property
    def family(self) -> tuple[str, str, str]:
        """Statistics of one family estimate the same margins; some kinds of views stay alone."""
        return self.of, self.measure.name, self.view if self.calibrated else self.measurement.kin(self.view)

    @property
    def lines(self) -> list[tuple[str, Fraction]]:
        """Purpose and charge of its draws."""
        purpose = f"view {self.view}: {self.measure.name}"
        parts = self.measurement.parts
        return [(f"{purpose}, {words}" if words else purpose, self.charge * share) for words, share in parts]

    def terms(self, axes: Sequence[PlannedAxis]) -> Terms:
        """What it is drawn with, given the release's axes."""
        strategies = [axes[axis].strategy for axis in self.axes]
        return Terms(strategies, self.law, self.spend, self.drawn_sensitivity)

    def unit_variance(self, axes: Sequence[PlannedAxis]) -> float:
        """Variance of a row of whole budget, in squared stored integers, given the release's axes."""
        return self.measurement.unit_variance(self.terms(axes)) * self.factor**2


@dataclass(frozen=True)
class ReleasePlan:
    """All that a release will measure."""

    catalog: Catalog
    axes: tuple[PlannedAxis, ...]
    statistics: tuple[PlannedStatistic, ...]
    steps: tuple[Step, ...] = ()

    @property
    def lines(self) -> list[tuple[str, Fraction]]:
        """Purpose and charge of everything that is drawn, in the release's currency."""
        return [
            *((step.purpose, step.charge) for step in self.steps),
            *(line for s in self.statistics for line in s.lines),
        ]

    @property
    def joint(self) -> dict[str, PlaneVariance]:
        """The variance model of each view whose axes are measured together, by view."""
        models = [(s.view, s.measurement.joint_variance()) for s in self.statistics]
        return {view: model for view, model in models if model is not None}

    @property
    def families(self) -> list[list[int]]:
        """Positions of the statistics, family by family."""
        members: dict[tuple[str, str, str], list[int]] = {}
        for position, statistic in enumerate(self.statistics):
            members.setdefault(statistic.family, []).append(position)
        return list(members.values())

    def shape(self, statistic: PlannedStatistic) -> tuple[int, ...]:
        """Leaves of each of the statistic's axes."""
        return tuple(self.axes[axis].axis.leaves for axis in statistic.axes)

    def strategies(self, statistic: PlannedStatistic) -> list[AxisStrategy]:
        """What is measured on each of the statistic's axes."""
        return [self.axes[axis].strategy for axis in statistic.axes]
