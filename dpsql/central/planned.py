"""Parts of a plan: axes with their strategies, and the statistics of a release before they are drawn.

Equal axes with equal strategies are one axis of the release.

| here | there | unit |
|---|---|---|
| `PlannedStatistic.charge` | share of the view times share of the measure | epsilon, or mu^2 where delta > 0 |
| `PlannedStatistic.spend` | what the noise is drawn for, in its own currency | epsilon (Laplace), mu^2 (Gaussian) |
| `PlannedStatistic.sensitivity` | M: what one unit changes, tau times a row's reach | stored integers |
| `family` | statistics of one table and one measure, which agree on what they share | - |

**Privacy**: strategies follow from numbers of leaves and declared workloads, both public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import NamedTuple

from dpsql.axis.model import Axis
from dpsql.budget import NEIGHBOURS, Currency, currency_at, share_of_cap
from dpsql.catalog.catalog import Catalog, StarTable, StarView
from dpsql.catalog.graph import ResolvedAxis, ResolvedMeasure
from dpsql.catalog.model import AxisSpec, Privacy
from dpsql.central.axes import AxisMaker, declared_workload
from dpsql.ledger.identity import SpendLine
from dpsql.matrices import AxisVariance
from dpsql.matrices.distinct import PeopleBounds
from dpsql.matrices.estimated import partner_of
from dpsql.matrices.kronecker import AxisSplit
from dpsql.matrices.reading import Together
from dpsql.matrices.strategy import Strategy, axis_budgets
from dpsql.mechanisms.designs import Family
from dpsql.mechanisms.designs.measurement import DrawParameters, MeasuredAxis, Measurement
from dpsql.mechanisms.designs.product import PRODUCT
from dpsql.mechanisms.designs.question import DesignProblem, FamilyAxis, FamilyChoice, Grains
from dpsql.mechanisms.distribution import NoiseDistribution, as_laplace, law_for
from dpsql.mechanisms.offers import AxisChoice
from dpsql.tree import Workload


@dataclass(frozen=True)
class Bounds:
    """A measure's public bounds in integers of 10^-scale, both inclusive."""

    lower: int
    upper: int
    scale: int

    @property
    def mid(self) -> int:
        """The centre that sums are published around.

        >>> Bounds(0, 5, 0).mid
        2
        """
        return (self.lower + self.upper) // 2

    @property
    def reach(self) -> int:
        """The most that a row's centred value can be, at least 1.

        >>> Bounds(0, 5, 0).reach
        3
        """
        return max(self.upper - self.mid, self.mid - self.lower, 1)

    @property
    def width(self) -> int:
        """The distance of the bounds, at least 1."""
        return max(1, self.upper - self.lower)

    def wider(self, widths: int) -> Bounds:
        """Bounds so many widths further apart on either side.

        >>> Bounds(0, 5, 0).wider(2)
        Bounds(lower=-10, upper=15, scale=0)
        """
        return replace(self, lower=self.lower - widths * self.width, upper=self.upper + widths * self.width)


@dataclass(frozen=True)
class PlannedAxis:
    """An axis together with what will be measured on it, and the ranges that it was chosen for (None: all)."""

    resolved: ResolvedAxis
    axis: Axis
    choice: AxisChoice
    workload: Workload | None = None

    @property
    def strategy(self) -> Strategy:
        """Strategy of the axis."""
        return self.choice.strategy

    def measured(self, model: AxisVariance) -> MeasuredAxis:
        """The axis as a family is estimated on it, with this variance model."""
        missing, split = self.axis.missing_leaf, AxisSplit(model)
        partner = None if missing is None else partner_of(self.axis.path, missing, split)
        return MeasuredAxis(self.strategy, split, self.choice.name, partner)


class AxisPlanner:
    """The axes planned so far; equal axes with one strategy are one.

    Args:
        make_axis: builds an axis from public facts.
        grains: how fine full rows of integers may be.
    """

    def __init__(self, make_axis: AxisMaker, grains: Grains) -> None:
        self._make = make_axis
        self._grains = grains
        self._made: dict[ResolvedAxis, Axis] = {}
        self._family_axes: dict[tuple[object, ...], FamilyAxis] = {}
        self.entries: list[PlannedAxis] = []

    def axis(self, resolved: ResolvedAxis) -> Axis:
        """The axis of a resolved name, built once."""
        if resolved not in self._made:
            self._made[resolved] = self._make(resolved)
        return self._made[resolved]

    def family_axis(self, resolved: ResolvedAxis, spec: AxisSpec) -> FamilyAxis:
        """The axis as mechanisms see it; the same one wherever the same is asked of it."""
        key = resolved, spec.workload
        if key not in self._family_axes:
            axis = self.axis(resolved)
            workload = declared_workload(spec, resolved, axis)
            self._family_axes[key] = FamilyAxis(
                axis.name, axis.leaves, workload, self._grains, len(axis.special), axis.names
            )
        return self._family_axes[key]

    def placed(self, resolved: ResolvedAxis, choice: AxisChoice, workload: Workload | None) -> int:
        """The axis's id in the release."""
        for i, planned in enumerate(self.entries):
            if planned.resolved == resolved and planned.choice is choice:
                return i
        self.entries.append(PlannedAxis(resolved, self.axis(resolved), choice, workload))
        return len(self.entries) - 1


def currency_of(privacy: Privacy) -> Currency:
    """The currency of a catalog's lineage."""
    return currency_at(privacy.delta, privacy.key_delta)


def law_of(catalog: Catalog) -> NoiseDistribution:
    """The noise of a release: Gaussian under a delta, 1.77 times smaller there."""
    return law_for(currency_of(catalog.privacy))


def spend_of(catalog: Catalog, charge: Fraction, law: NoiseDistribution) -> Fraction:
    """Spend that a charge buys under the catalog's neighbours."""
    currency = currency_of(catalog.privacy)
    return law.affordable(currency.drawn(charge, NEIGHBOURS[catalog.privacy.neighbours]), currency)


def charged(privacy: Privacy) -> Fraction:
    """Charge of one release of a catalog, in its lineage's currency.

    **Privacy**: of `releases` equal shares of the cap, each rounded down, all together stay within it.
    """
    currency = currency_of(privacy)
    if privacy.releases is not None:
        return share_of_cap(privacy.cap, currency, privacy.releases)
    assert privacy.epsilon is not None
    return currency.counted(privacy.epsilon)


@dataclass(frozen=True)
class Step:
    """One draw that is not a statistic.

    Args:
        of: the counted table.
        kind: what is drawn, in words.
        measure: what it is made for where there are several; else empty.
        spend: what the noise is drawn for, in its own currency.
        charge: what the ledger is charged.
        delta: what it is charged of the lineage's `key_delta`.
    """

    of: str
    kind: str
    measure: str
    spend: Fraction
    charge: Fraction
    delta: Fraction = Fraction(0)

    @property
    def purpose(self) -> str:
        """Purpose in the ledger's line."""
        return f"{self.of}: {self.kind}" + (f" of {self.measure}" if self.measure else "")


def set_name(of: str, axes: Sequence[str], cubes: Sequence[str] = ()) -> str:
    """The name of a set that no view names; no declared view can be called so.

    >>> set_name("sales", ["customer.age", "day"]), set_name("sales", ["day"], ["people"])
    ('(sales by customer.age, day)', '(sales by day, cube people)')
    """
    cube = f", cube {' and '.join(cubes)}" if cubes else ""
    return f"({of} by {', '.join(axes)}{cube})" if axes else f"({of} in all{cube})"


@dataclass(frozen=True)
class PlannedStatistic:
    """A statistic before it is drawn.

    Args:
        view, of: the view and the table whose rows it counts.
        measure: what is counted or summed.
        axes: axis ids, increasing.
        law: the noise.
        spend: what the noise is drawn for: epsilon under Laplace noise, mu^2 under Gaussian.
        charge: what the ledger is charged, in the release's currency.
        tau: rows of one unit that count; 0 while they are not chosen.
        bounds: the measure's bounds, or None for counts.
        mid: the centre that a sum is published around; 0 for counts.
        sensitivity: the most that one unit changes the statistic, in the measure's own units, rounded up.
        unit: drawn integers that make one of these units: 1, or 2^20 where rows have weights.
        factor: what the drawn integers are multiplied by to estimate the answer.
        grain: what exact integers are multiplied by before the draw (`Laplace.noise_refinement`).
        noise_mid: what the noise of its rows is multiplied by in a sum; None where that is `mid`.
        measurement: how it is drawn and estimated.
        people_bounds: between which lines the people of a cell lie, of cells whose people have weights.
    """

    view: str
    of: str
    measure: ResolvedMeasure
    axes: tuple[int, ...]
    law: NoiseDistribution
    spend: Fraction
    charge: Fraction
    tau: int
    bounds: Bounds | None
    mid: int
    sensitivity: int
    unit: int = 1
    factor: float = 1.0
    noise_refinement: int = 1
    noise_mid: float | None = None
    measurement: Measurement = PRODUCT
    people_bounds: PeopleBounds | None = None

    def bounded_to(self, rows: int) -> PlannedStatistic:
        """The same where one unit may add so many rows."""
        return replace(self, tau=rows, sensitivity=rows * (self.bounds.reach if self.bounds else 1))

    @property
    def drawn_sensitivity(self) -> int:
        """The sensitivity in the integers that are drawn."""
        return self.sensitivity * self.unit * self.noise_refinement

    @property
    def family(self) -> tuple[str, str, str]:
        """Statistics of one family estimate the same margins; some kinds of views stay alone."""
        name = self.measurement.facts.family
        return self.of, self.measure.name, self.view if name is None else name

    @property
    def counts_units(self) -> bool:
        """True if it counts privacy units, each once; else it counts or sums rows."""
        return not self.measure.name.sums_rows

    @property
    def joint(self) -> tuple[str, Measurement]:
        """Key of the variance model that the statistics share, where their axes are measured together."""
        return self.view, self.measurement

    @property
    def lines(self) -> list[tuple[str, Fraction]]:
        """Purpose and charge of its draws."""
        purpose = f"view {self.view}: {self.measure.name}"
        draws = self.measurement.facts.parts
        return [(f"{purpose}, {words}" if words else purpose, self.charge * share) for words, share in draws]

    def terms(self, axes: Sequence[PlannedAxis]) -> DrawParameters:
        """Draw parameters, given the release's axes."""
        strategies = [axes[axis].strategy for axis in self.axes]
        return DrawParameters(strategies, self.law, self.spend, self.drawn_sensitivity)

    def needed_refinement(self, axes: Sequence[PlannedAxis]) -> int:
        """The grain that its noise needs, given the release's axes.

        1 where it is not known yet how many rows count, and for people, whose rows are drawn one by one.
        """
        if not self.tau or self.counts_units:
            return 1
        terms = self.terms(axes)
        return terms.law.noise_refinement(axis_budgets(terms.strategies), terms.spend, terms.sensitivity)

    def variance_at_unit_budget(self, axes: Sequence[PlannedAxis]) -> float:
        """Variance of a row of whole budget, in squared stored integers, given the release's axes."""
        return self.measurement.variance_at_unit_budget(self.terms(axes)) * self.factor**2


def lowered(
    catalog: Catalog, statistics: Sequence[PlannedStatistic], of: str, share: Fraction
) -> list[PlannedStatistic]:
    """The statistics of a release, those of one table with a share of their charges taken away."""

    def reduced(s: PlannedStatistic) -> PlannedStatistic:
        remaining = s.charge * (1 - share)
        return replace(s, charge=remaining, spend=spend_of(catalog, remaining, s.law))

    return [reduced(s) if s.of == of else s for s in statistics]


class UnitQuery(NamedTuple):
    """Query of one table's views about its privacy units.

    Args:
        catalog: of the release.
        table: the table whose rows say who.
        views: its views that count units, each with what it may spend on them, in the release's currency.
        rows: the release's statistics of rows, on whose axes units are counted.
        planner: the release's axes; gains those that only units are counted on.
        question: the table's views of rows; its law is used.
    """

    catalog: Catalog
    table: StarTable
    views: Sequence[tuple[StarView, Fraction]]
    rows: Sequence[PlannedStatistic]
    planner: AxisPlanner
    question: DesignProblem

    @property
    def law(self) -> NoiseDistribution:
        """The noise of the release."""
        return self.question.law


@dataclass(frozen=True)
class ReleasePlan:
    """All that a release will measure.

    Args:
        catalog: the catalog.
        axes: its axes, by id.
        statistics: what is drawn of them.
        steps: what else is drawn.
        chosen: what measures each family of views, and what it was compared with.
    """

    catalog: Catalog
    axes: tuple[PlannedAxis, ...]
    statistics: tuple[PlannedStatistic, ...]
    steps: tuple[Step, ...] = ()
    chosen: tuple[Family, ...] = ()

    def refined(self) -> ReleasePlan:
        """The same with the grain of every statistic; estimates of one family are made from integers of one grain."""
        statistics = list(self.statistics)
        for members in self.families:
            noise_refinement = max(statistics[i].needed_refinement(self.axes) for i in members)
            for i in members:
                statistics[i] = replace(
                    statistics[i],
                    noise_refinement=noise_refinement,
                    factor=statistics[i].factor / noise_refinement,
                )
        return replace(self, statistics=tuple(statistics))

    @property
    def currency(self) -> Currency:
        """Currency of the lines."""
        return currency_of(self.catalog.privacy)

    @property
    def charge(self) -> Fraction:
        """Charge of the ledger, in its currency: a function of the catalog, independent of the values found in
        data.

        At least what `lines` add up to: some mechanisms round their parts down.
        """
        return charged(self.catalog.privacy)

    @property
    def decides(self) -> bool:
        """True if a draw decides which rows are drawn next, and so how much there is to count, keep and write.

        Bounds that are chosen (`max_ids: auto`) change what rows weigh and nothing else of the kind: how such a release
        ends does not hang on them.
        """
        rows = (s for s in self.statistics if not s.counts_units)
        return any(s.measurement.facts.linear is None for s in rows)

    @property
    def cells(self) -> int:
        """Number of leaf combinations over all statistics."""
        return sum(prod(self.shape(statistic)) for statistic in self.statistics)

    @property
    def lines(self) -> tuple[SpendLine, ...]:
        """Everything that is drawn, charged in the release's currency."""
        drawn = [(step.purpose, step.charge, step.delta) for step in self.steps]
        drawn += [(*line, Fraction(0)) for draw in self.draws for line in self.lines_of(draw)]
        currency = self.currency.name
        return tuple(SpendLine(purpose, amount, currency, delta) for purpose, amount, delta in drawn)

    def draw_of(self, i: int) -> list[int]:
        """That of `draws` which holds a statistic."""
        return next(draw for draw in self.draws if i in draw)

    def lines_of(self, draw: Sequence[int]) -> list[tuple[str, Fraction]]:
        """Purpose and charge of one of `draws`; a joint draw has one line."""
        members = [self.statistics[i] for i in draw]
        if len(members) == 1:
            return members[0].lines
        measures = " and ".join(s.measure.name for s in members)
        charge = sum((s.charge for s in members), Fraction(0))
        return [(f"view {members[0].view}: {measures} together", charge)]

    @property
    def draws(self) -> list[list[int]]:
        """Positions of the statistics, those of one joint draw together."""
        groups: dict[object, list[int]] = {}
        for i, s in enumerate(self.statistics):
            law = as_laplace(s.law)
            groups.setdefault((s.view, s.axes) if law and law.numbers > 1 else i, []).append(i)
        return list(groups.values())

    def compared(self, view: str) -> FamilyChoice | None:
        """Choice for a view that stands alone, where there was one."""
        for question, choice in self.chosen:
            if choice.runners_up and [family_view.name for family_view in question.views] == [view]:
                return choice
        return None

    @property
    def joint(self) -> dict[tuple[str, Measurement], Together]:
        """The variance model of each view whose axes are measured together, by view and measurement."""
        models = [(s.joint, s.measurement.facts.model) for s in self.statistics]
        return {place: model for place, model in models if model is not None}

    @property
    def families(self) -> list[list[int]]:
        """Positions of the statistics, family by family."""
        members: dict[tuple[str, str, str], list[int]] = {}
        for position, statistic in enumerate(self.statistics):
            members.setdefault(statistic.family, []).append(position)
        return list(members.values())

    def row_statistics(self, of: str) -> dict[int, PlannedStatistic]:
        """The statistics of one table's rows by their positions."""
        return {i: s for i, s in enumerate(self.statistics) if s.of == of and not s.counts_units}

    def unit_statistics(self, of: str) -> dict[int, PlannedStatistic]:
        """The statistics of the privacy units behind one table's rows by their positions."""
        return {i: s for i, s in enumerate(self.statistics) if s.of == of and s.counts_units}

    def by_view(self, of: str) -> list[list[int]]:
        """Positions of the statistics of one table's rows, view by view."""
        views: dict[str, list[int]] = {}
        for i, statistic in self.row_statistics(of).items():
            views.setdefault(statistic.view, []).append(i)
        return list(views.values())

    def step(self, of: str, kind: str, measure: str = "") -> Step | None:
        """The step of a table, if it has that one."""
        wanted = (of, kind, measure)
        return next((step for step in self.steps if (step.of, step.kind, step.measure) == wanted), None)

    def shape(self, statistic: PlannedStatistic) -> tuple[int, ...]:
        """Leaves of each of the statistic's axes."""
        return tuple(self.axes[axis].axis.leaves for axis in statistic.axes)

    def strategies(self, statistic: PlannedStatistic) -> list[Strategy]:
        """Strategies of the statistic's axes."""
        return [self.axes[axis].strategy for axis in statistic.axes]
