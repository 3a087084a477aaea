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

from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple

from dpsql.catalog.measures import ResolvedMeasure
from dpsql.catalog.model import Catalog
from dpsql.mechanisms.axis.strategy import AxisStrategy, axis_budgets
from dpsql.mechanisms.central.adapted import PARTS
from dpsql.mechanisms.central.product_hats import ProductHats
from dpsql.mechanisms.central.whitened import UNIT
from dpsql.mechanisms.law import NoiseLaw
from dpsql.publishing.hats import Together
from dpsql.publishing.measures import Bounds
from dpsql.publishing.planned_axes import PlannedAxis
from dpsql.publishing.userlevel_plan import Step


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
        method: the data-dependent mechanism, or an empty string.
        calibrated: for `calibrate: per_group`, which has factors of its own.
        weighted: whether rows are drawn with weights, in units of 2^-20.
        residual: whether only what its set of axes has beyond its subsets is measured.
        together: how the view's two axes are measured, where that was a choice.
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
    method: str = ""
    calibrated: bool = False
    weighted: bool = False
    residual: bool = False
    together: Together | None = None

    @property
    def hats(self) -> ProductHats | None:
        """The rows over both axes, where they are not measured one by one."""
        return self.together.hats if self.together is not None else None

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
    def family(self) -> tuple[str, str]:
        """Statistics of one family estimate the same margins; some kinds of views stay alone."""
        alone = f" in {self.view}" if self.method or self.calibrated or self.hats is not None else ""
        return self.of, self.measure.name + alone + (" by sets" if self.residual else "")

    @property
    def lines(self) -> list[tuple[str, Fraction]]:
        """Purpose and charge of its draws."""
        purpose = f"view {self.view}: {self.measure.name}" + (", residual" if self.residual else "")
        parts = PARTS.get(self.method, ())
        return [(f"{purpose}, {what}", self.charge * share) for what, share in parts] or [
            (purpose, self.charge)
        ]


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
    def planes(self) -> dict[str, ProductHats]:
        """The rows of each view whose two axes are measured together, by view."""
        return {s.view: s.hats for s in self.statistics if s.hats is not None}

    def shape(self, statistic: PlannedStatistic) -> tuple[int, ...]:
        """Leaves of each of the statistic's axes."""
        return tuple(self.axes[axis].axis.leaves for axis in statistic.axes)

    def unit_variance(self, statistic: PlannedStatistic) -> float:
        """Row variance at full axis budgets, of axes that are measured one by one, in drawn integers."""
        axes = axis_budgets(self.strategies(statistic))
        return statistic.law.unit_variance(axes, statistic.spend, statistic.drawn_sensitivity)

    def strategies(self, statistic: PlannedStatistic) -> list[AxisStrategy]:
        """What is measured on each of the statistic's axes."""
        return [self.axes[axis].strategy for axis in statistic.axes]
