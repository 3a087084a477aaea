"""The recipe for `max_ids: auto`: views with a low bound and one weight per person, scaled to totals with a high bound.

Read `settle_table` from the top. Every number that leaves the engine is noised at once, by the draw whose
ledger line is the step of the same name; what a step decides is computed from released numbers alone.

    bounds, totals and centres  selection.py        tau, N and S of each measure, mid
    norms per unit (zCDP)       clipping.py         K
    views                       clipping.py         weighted cells
    factors                     factors.py          R = N over the total of the views, one for each measure
    groups                      here                deviation of a group's share; post-processing

Views are reconciled family by family, as the release will be (`ReconciledViews`), before anything is scaled.

COUNT = R_N c and SUM = R_S (y + mid c). A release stores counts, and sums around mid, so beside R_S y the stored sum
has (R_S - R_N) mid c.

**Privacy**: docs/privacy/people.md.
**Source**: docs/method/rows.md, "Shape and scale", "Intervals that cover the exact answer";
docs/method/views.md, "Views that share axes".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import hypot, sqrt
from typing import NamedTuple

import numpy as np

from dpsql.central.planned import PlannedStatistic, ReleasePlan
from dpsql.contributions.clipping import CLIPPINGS
from dpsql.contributions.constants import TASTE
from dpsql.contributions.factors import Scaled, TotalsFactor, factors
from dpsql.contributions.histogram import PeopleEstimate, pooled, spread
from dpsql.contributions.norm_clipping import UNIT
from dpsql.contributions.selection import RecipeChoices, RecipeTable, choose_bounds
from dpsql.matrices.kronecker import ProductReading
from dpsql.matrices.scaled import Spread, parts_of
from dpsql.mechanisms.designs.measurement import DrawnMember
from dpsql.mechanisms.distribution import NoisyView
from dpsql.tree import FloatArray


@dataclass(frozen=True)
class TableScale:
    """The scale of one table, as a release states it.

    Args:
        of: the counted table.
        choices: the recipe's choices.
        factors: R of each measure by name; of rows under the empty name.
        public_rows: whether the exact number of rows was used.
    """

    of: str
    choices: RecipeChoices
    factors: Mapping[str, TotalsFactor]
    public_rows: bool


class Corrected(NamedTuple):
    """Numbers stored of one statistic beside its scaled leaf estimates.

    Args:
        leaves: what is added to them, in the statistic's shape.
        spread: deviations of shares of the whole.
    """

    leaves: FloatArray
    spread: Spread


@dataclass(frozen=True)
class DrawnRecipe:
    """One table's statistics, drawn, each by its index in the plan.

    Args:
        statistics: as they were settled.
        views: their noisy integers.
        corrected: what is added to the scaled estimates, and deviations of shares.
        scale: the table's scale.
    """

    statistics: Mapping[int, PlannedStatistic]
    views: Mapping[int, NoisyView]
    corrected: Mapping[int, Corrected]
    scale: TableScale


def settle_table(table: RecipeTable) -> DrawnRecipe:
    """Choose the bounds of one table and draw its views.

    Args:
        table: the table; its rows are placed.

    Returns:
        Settled statistics, their noisy views and the table's scale.

    **Privacy**: spends the table's steps and the shares of its views, each once.
    """
    clipping = CLIPPINGS[table.law]
    choices = choose_bounds(table, partial(clipping.cell_variance, table.plan))
    table = table.centred(choices.mids)
    clipped = clipping.draw(table, choices)
    views = {i: each.view for i, each in clipped.items()}
    reconciled = reconcile_views(table.plan, views)
    scaled = ScaledViews(reconciled, scale_factors(table, choices, reconciled))
    settled = {
        i: replace(
            s, tau=choices.tau, sensitivity=clipped[i].reach, unit=UNIT, factor=scaled.factor(s).value / UNIT,
            noise_mid=s.mid * scaled.factor(s).value / scaled.factors[""].value,
        )
        for i, s in table.statistics.items()
    }  # fmt: skip
    few = max(1.0, (1 - choices.quantile) * choices.owned.people * table.stands_for / 2)
    corrected = {i: scaled.corrected(i, few) for i in views}
    scale = TableScale(table.of, choices, scaled.factors, table.public_rows)
    return DrawnRecipe(settled, views, corrected, scale)


def scale_factors(
    table: RecipeTable, choices: RecipeChoices, views: ReconciledViews
) -> Mapping[str, TotalsFactor]:
    """R of rows and of each measure.

    Args:
        table: the table, around its centres.
        choices: its totals with a high bound.
        views: its views with a low bound.
    """
    rows = Scaled(choices.rows, views.total("count"))
    measures = {}
    for name, high in choices.sums.items():
        known = f"count({name})"
        counted, centred = views.total(known if views.of(known) else "count"), views.total(name)
        mid = choices.mids[name]
        low = PeopleEstimate(centred.value + mid * counted.value, hypot(centred.sd, mid * counted.sd))
        mean = low.value / counted.value if counted.value else 0.0
        apart = hypot(centred.sd, (mean - mid) * counted.sd)
        measures[name] = Scaled(high, low, apart / abs(low.value) if low.value else 1.0, choices.uneven[name])
    scaled = dict(factors(rows, measures, public_rows=table.public_rows))
    nullable = sorted(
        {s.measure.name for s in table.statistics.values()} & {f"count({name})" for name in measures}
    )
    return scaled | {name: scaled[""].of_known(views.total(name), rows.low) for name in nullable}


@dataclass(frozen=True, eq=False)
class ReconciledViews:
    """The views of one table, in units of a weight of 1 and of the measure.

    Args:
        plan: the release.
        leaves: leaf estimates of each statistic, by index in the plan.
        readings: the variance model of each, without factors.
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
        """The total of a measure; views that stand alone have totals of their own, which are pooled."""
        if measure not in self._totals:
            families = {s.family: i for i, s in self.of(measure).items()}
            self._totals[measure] = pooled(
                [
                    PeopleEstimate(float(self.leaves[i].sum()), sqrt(self.readings[i].components[()]))
                    for i in families.values()
                ]
            )
        return self._totals[measure]


def reconcile_views(plan: ReleasePlan, views: Mapping[int, NoisyView]) -> ReconciledViews:
    """Estimate and reconcile drawn views.

    Args:
        plan: the release.
        views: noisy integers of one table, by index in the plan.
    """
    axes = {a: planned.measured(planned.strategy.solver) for a, planned in enumerate(plan.axes)}
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
    return ReconciledViews(plan, leaves, readings)


@dataclass(frozen=True)
class ScaledViews:
    """The views of one table with their factors.

    Args:
        views: reconciled.
        factors: by measure; of rows under the empty name.
    """

    views: ReconciledViews
    factors: Mapping[str, TotalsFactor]

    def factor(self, statistic: PlannedStatistic) -> TotalsFactor:
        """The one that a statistic is multiplied by."""
        return self.factors["" if statistic.bounds is None else statistic.measure.name]

    def rows_of(self, statistic: PlannedStatistic) -> str:
        """The measure that counts the rows of a statistic: of a sum that may be NULL, where it is known."""
        if statistic.bounds is None:
            return statistic.measure.name
        known = f"count({statistic.measure.name})"
        return known if self.views.of(known) else "count"

    def corrected(self, index: int, few: float) -> Corrected:
        """Leaves and deviations of one statistic.

        Of the rows beyond the low bound, U, a group may hold none or more than twice its share; none of this is noise.

        Args:
            index: of the statistic.
            few: H, about the number of people who own these rows.
        """
        statistic, rows_of = (
            self.views.plan.statistics[index],
            self.rows_of(self.views.plan.statistics[index]),
        )
        rows = next(
            self.views.leaves[i] for i, s in self.views.of(rows_of).items() if s.view == statistic.view
        )
        of_rows, bounds = self.factors[""].value, statistic.bounds
        size = 1.0 if bounds is None else float(spread(statistic.mid, bounds.lower, bounds.upper))
        beyond = max(0.0, 1 - 1 / of_rows) * of_rows * self.views.total(rows_of).value * size
        added = np.zeros_like(rows)
        if bounds is not None:
            added = (self.factor(statistic).value - of_rows) * statistic.mid * rows
        return Corrected(added, Spread(parts_of(rows), beyond**2 / few, (TASTE * beyond) ** 2))
