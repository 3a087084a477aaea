"""A measurement: how the statistics of one family are drawn and estimated together.

A family is the statistics of one table and one measure that tell the same totals. Whoever plans, draws, publishes,
predicts or audits a statistic asks its measurement and never which one it is.

| here | what it is |
|---|---|
| `DrawParameters` | what a draw is made with: strategies, law, spend, sensitivity |
| `LinearRows` | rows fixed before the draw, so that an audit can compute them again |
| `AxisWorkload` | one axis as random ranges see it |
| `MeasurementFacts` | what is known of it before it draws |

**Privacy**: `Measurement.draw` is the one place where cells meet noise; all else is public or post-processing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from dpsql.matrices import AxisVariance, mean_variance
from dpsql.matrices.estimated import Estimated, Integers, Partner, reconcile_with_partners
from dpsql.matrices.kronecker import AxisSplit
from dpsql.matrices.model import Components
from dpsql.matrices.reading import Together
from dpsql.matrices.reconcile import Subset, ViewEstimate, component_variances, subsets
from dpsql.matrices.strategy import AxisBudget, SparseRows, Strategy, axis_budgets, measure_view
from dpsql.mechanisms.distribution import NoiseDistribution, NoisyRows
from dpsql.mechanisms.offers import leaf_estimates
from dpsql.noise import Noise
from dpsql.tree import Exact, FloatArray, IntArray, Noisy, Workload


class DrawParameters(NamedTuple):
    """Parameters of the draw of one statistic.

    Args:
        strategies: one for each axis.
        law: the noise.
        spend: what the noise is drawn for, in the law's own currency.
        sensitivity: the most that one privacy unit changes the sum of |cells|, in drawn integers.
        beside: the first statistic of the view as drawn, where this is another one.
    """

    strategies: Sequence[Strategy]
    law: NoiseDistribution
    spend: Fraction
    sensitivity: int
    beside: NoisyRows | None = None


class ChargeLine(NamedTuple):
    """One line of the ledger.

    Args:
        words: what is drawn, beside the view and the measure; may be empty.
        share: the part of the statistic's charge.
    """

    words: str
    share: Fraction


class DrawnMember(NamedTuple):
    """One statistic of a family after its draw.

    Args:
        axes: its axis ids.
        view: its noisy integers.
        factor: what estimates of drawn integers are multiplied by.
        shift: what is added to them then, in the statistic's shape.
    """

    axes: Subset
    view: NoisyRows
    factor: float = 1.0
    shift: FloatArray | None = None

    @property
    def variance_at_unit_budget(self) -> float:
        """Variance of a row of whole budget, in squared units of the measure."""
        return self.view.variance_at_unit_budget * self.factor**2

    def scaled(self, leaves: FloatArray) -> FloatArray:
        """Estimates of drawn integers in units of the measure."""
        scaled = leaves * self.factor
        return scaled if self.shift is None else scaled + self.shift


class MeasuredAxis(NamedTuple):
    """One axis of a release: what is measured on it, with its variance model and in words; its dimension, where rows
    may lack a partner there."""

    strategy: Strategy
    split: AxisSplit
    words: str
    partner: Partner | None = None


@dataclass(frozen=True, eq=False)
class AxisWorkload:
    """One axis as random ranges u see it: its variance model C, of spread g and total k, and the ranges declared.

    Args:
        model: the variance model.
        workload: the ranges declared, None for all.
    """

    model: AxisVariance
    workload: Workload | None

    @cached_property
    def mean(self) -> float:
        """Mean variance of all ranges at unit noise."""
        return mean_variance(self.model)

    @cached_property
    def split(self) -> AxisSplit:
        """The model, with its total apart."""
        return AxisSplit(self.model)

    @cached_property
    def share(self) -> float:
        """Mean of (g.u)^2 over the declared ranges."""
        return mean_square(self.split.spread, self.workload)

    @cached_property
    def residual(self) -> float:
        """Mean of u' C u - k (g.u)^2 over the declared ranges, at least 0."""
        return max(mean_variance(self.model, self.workload) - self.split.total * self.share, 0.0)


AxisWorkloads = Mapping[int, AxisWorkload]
"""By axis."""

MemberVariances = Sequence[tuple[Subset, float]]
"""Axes of each statistic of a family, and its variance of a row of whole budget."""


def mean_square(value: FloatArray, workload: Workload | None) -> float:
    """Mean over ranges of the square of the range's sum.

    Args:
        value: of each leaf, shape (n,).
        workload: the ranges declared; None means all ranges, equally often.

    >>> mean_square(np.array([1.0, 2.0]), None) == (1 + 4 + 9) / 3
    True
    """
    prefix = np.concatenate([[0.0], np.cumsum(value)])
    if workload is None:
        # All pairs of n + 1 ends: their squared differences add up to n + 1 times the squared deviations.
        return float(2 * ((prefix - prefix.mean()) ** 2).sum() / len(value))
    return float(np.average((prefix[workload.hi] - prefix[workload.lo]) ** 2, weights=workload.weight))


def range_variance(components: Mapping[Subset, float], axes: Subset, asked: AxisWorkloads) -> float:
    """Mean variance of a random range on each of some axes.

    Args:
        components: variance factor of each set of axes, of all subsets of `axes`.
        axes: where ranges are asked.
        asked: by axis.
    """
    return sum(
        components[subset]
        * prod(asked[axis].residual if axis in subset else asked[axis].share for axis in axes)
        for subset in subsets(axes)
    )


class StatisticShare(NamedTuple):
    """The axes of one statistic of a family, and what it is given: its charge, or the variance of a row."""

    axes: Subset
    amount: float


def asked_sets(charges: Sequence[StatisticShare]) -> dict[Subset, float]:
    """Frequency of range questions over each set of axes: every axis of a view half the time, views by their
    charges."""
    frequencies: dict[Subset, float] = {}
    for axes, charge in charges:
        for subset in subsets(axes):
            frequencies[subset] = frequencies.get(subset, 0.0) + charge / 2 ** len(axes)
    return frequencies


class LinearRows:
    """Integer rows over a statistic's cells that are fixed before the draw: products of the axes' rows.

    Measurements that choose their rows by a draw predict by the product; rows over other cells name their own budgets,
    entries and sums of cells.
    """

    def row_budgets(self, strategies: Sequence[Strategy]) -> list[AxisBudget]:
        """Relative budgets along each axis of the stored integers."""
        return axis_budgets(strategies)

    def entries(self, strategies: Sequence[Strategy]) -> Sequence[SparseRows | None]:
        """Rows along each axis of the stored integers, None where they are not written down."""
        return [strategy.entries() for strategy in strategies]

    def measure(self, cells: IntArray, strategies: Sequence[Strategy]) -> IntArray:
        """The rows of some cells in exact integers modulo 2^64.

        **Privacy** Raw where the cells are: never leaves publishing without noise.
        """
        return measure_view(cells, strategies)

    def known(self, strategies: Sequence[Strategy]) -> int:
        """Number of independent sums of cells that the rows measure; further rows reveal the size of the noise."""
        return prod(strategy.leaves for strategy in strategies)

    def leaf_estimates(self, view: NoisyRows, strategies: Sequence[Strategy]) -> FloatArray:
        """Least-squares estimates of the cells from these rows alone, shape (n_1, .., n_d)."""
        return leaf_estimates(view, strategies)

    def shape(self, strategies: Sequence[Strategy]) -> tuple[int, ...]:
        """Layout of the stored integers."""
        return tuple(len(axis.budget) for axis in self.row_budgets(strategies))

    def row_count(self, strategies: Sequence[Strategy]) -> int:
        return prod(self.shape(strategies))

    def words(self, strategies: Sequence[str]) -> str:
        return " x ".join(strategies)

    def budgets(self, terms: DrawParameters) -> IntArray:
        """The integer budget of every row, in that shape, as the law combines those of the axes.

        Raises:
            PrivacyError: spend or sensitivity leave no room for integer budgets.
        """
        return terms.law.budgets(self.row_budgets(terms.strategies), terms.spend, terms.sensitivity)

    def largest_column(self, budget: IntArray, terms: DrawParameters) -> int:
        """The largest weighted column sum of stored budgets; an audit holds it against `column_cap`."""
        rows, axes = self.entries(terms.strategies), self.row_budgets(terms.strategies)
        return terms.law.largest_column(budget, rows, axes, self.column_cap(terms))

    def column_cap(self, terms: DrawParameters) -> int:
        """The most that it may be for the spend to hold."""
        return terms.law.column_cap(self.row_budgets(terms.strategies), terms.spend, terms.sensitivity)

    def weights(self, strategies: Sequence[Strategy]) -> FloatArray:
        """The share of a whole budget that each row has, to be multiplied with rows of `shape`."""
        axes, weight = self.row_budgets(strategies), np.ones(self.shape(strategies))
        for place, axis in enumerate(axes):
            weight = weight * shaped(axis.budget / axis.total, place, len(axes))
        return weight

    def variance_at_unit_budget(self, terms: DrawParameters) -> float:
        return terms.law.variance_at_unit_budget(
            self.row_budgets(terms.strategies), terms.spend, terms.sensitivity
        )

    def mean_variance(
        self, axes: Subset, unit: float, family: MemberVariances, asked: AxisWorkloads
    ) -> float:
        """Of the view by itself, before it is reconciled."""
        return unit * prod(asked[axis].mean for axis in axes)

    def components(self, family: MemberVariances, totals: Mapping[int, float]) -> dict[Subset, float]:
        """Averaged by precision over the views that hold a part."""
        return component_variances(family, totals)

    def draw(self, cells: Exact, terms: DrawParameters, noise: Noise) -> NoisyRows:
        """Measure exactly, then one draw of the law.

        **Privacy**: the spend, for neighbours that differ in one unit's rows.
        """
        exact, axes = Exact(self.measure(cells, terms.strategies)), self.row_budgets(terms.strategies)
        return terms.law.draw(exact, axes, terms.spend, terms.sensitivity, noise)


DrawReplay = Callable[[Noisy, DrawParameters], NoisyRows]
"""Restores a draw whose rows its own noisy numbers chose, from its integers in stored order and public facts alone.

Raises InternalError where there are too many integers, or too few.
"""


class MeasurementFacts(NamedTuple):
    """Facts about a measurement before it draws.

    Args:
        parts: what a draw spends; shares add up to 1.
        reading: how its statistics answer, by the name of the reading.
        family: statistics of one table and measure that have this in common are one family; None where each view
            stands alone.
        biased: whether estimates are biased by more than bounding.
        linear: its rows over the statistic's cells; None where they depend on what is drawn, or are no rows over
            cells.
        replay: what makes its draws again where `linear` cannot; None where nothing does.
        listed: positions of axes along which estimates do not add up, with how many there are.
        model: the variance model of all axes together, where it is no product of axes.
    """

    parts: tuple[ChargeLine, ...]
    reading: str
    family: str | None = None
    biased: bool = False
    linear: LinearRows | None = None
    replay: DrawReplay | None = None
    listed: Mapping[int, int] = MappingProxyType({})
    model: Together | None = None


class Measurement(Protocol):
    """A way to measure the statistics of a family."""

    @property
    def facts(self) -> MeasurementFacts:
        """Facts known before a draw."""

    def words(self, strategies: Sequence[str]) -> str:
        """Measurement in words, from the words of each axis."""

    def row_count(self, strategies: Sequence[Strategy]) -> int:
        """About how many integers will be drawn."""

    def variance_at_unit_budget(self, terms: DrawParameters) -> float:
        """Variance of a row of whole budget, in squared drawn integers; errors as of `draw`."""

    def mean_variance(
        self, axes: Subset, unit: float, family: MemberVariances, asked: AxisWorkloads
    ) -> float:
        """Predicted mean variance of a random range on every axis of one statistic.

        Args:
            axes: the statistic's.
            unit: its variance of a row of whole budget.
            family: (axes, that variance) of every statistic of the family.
            asked: by axis.
        """

    def components(self, family: MemberVariances, totals: Mapping[int, float]) -> dict[Subset, float]:
        """Variance factor of each set of axes once the family agrees.

        Args:
            family: (axes, variance of a row of whole budget) of each statistic.
            totals: variance of each axis's total at unit noise.
        """

    def draw(self, cells: Exact, terms: DrawParameters, noise: Noise) -> NoisyRows:
        """Measure one statistic, once.

        Args:
            cells: exact integers, shape (n_1, .., n_d).
            terms: what is spent on them.
            noise: where noise comes from.

        Raises:
            PrivacyError: spend or sensitivity leave no room for integer budgets.

        **Privacy**: the spend, for neighbours that differ in one unit's rows.
        """

    def estimate(self, family: Sequence[DrawnMember], axes: Mapping[int, MeasuredAxis]) -> list[Estimated]:
        """Estimates of every statistic of a family, which agree on what they share.

        Args:
            family: what was drawn.
            axes: by id.
        """


class OwnParts:
    """Statistics of a measurement that share no part: each keeps its own variance."""

    def components(self, family: MemberVariances, totals: Mapping[int, float]) -> dict[Subset, float]:
        return dict(family)


def estimated(
    measurement: Measurement,
    family: Sequence[DrawnMember],
    leaves: Sequence[FloatArray],
    axes: Mapping[int, MeasuredAxis],
    *,
    agree: bool = False,
) -> list[Estimated]:
    """Estimates of a family.

    Args:
        measurement: what drew it.
        family: what was drawn.
        leaves: estimates of each statistic by itself, in drawn integers.
        axes: by id.
        agree: whether estimates are averaged part by part, so that all tell the same margins and the same rows without
            a partner; else each stays as it is.
    """
    facts, totals = measurement.facts, {i: axis.split.total for i, axis in axes.items()}
    factors = measurement.components(
        [(member.axes, member.variance_at_unit_budget) for member in family], totals
    )
    views = [
        ViewEstimate(member.axes, member.scaled(cells), member.variance_at_unit_budget)
        for member, cells in zip(family, leaves, strict=True)
    ]
    spreads = {i: axis.split.spread for i, axis in axes.items()} if agree else {}
    partners = {i: axis.partner for i, axis in axes.items() if agree and axis.partner is not None}
    settled = agree and reconcile_with_partners(views, totals, spreads, partners)
    return [
        Estimated(
            cells,
            facts.reading,
            own_components(factors, member.axes),
            Integers(member.view.value, member.view.budget),
            measurement.words([axes[axis].words for axis in member.axes]),
            facts.biased,
            facts.model,
            partners=partners,
        )
        for member, cells in zip(family, settled or [view.estimate for view in views], strict=True)
    ]


def own_components(factors: Mapping[Subset, float], axes: Subset) -> Components:
    """A family's variance factors of the sets that some axes hold, by the axes' positions."""
    return {
        tuple(axes.index(axis) for axis in subset): factor
        for subset, factor in factors.items()
        if set(subset) <= set(axes)
    }


def shaped(values: FloatArray, place: int, axes: int) -> FloatArray:
    """A vector along one of so many axes, for products over all of them."""
    return np.asarray(values.reshape([-1 if axis == place else 1 for axis in range(axes)]))


def mean_error(
    measurement: Measurement,
    drawn: Sequence[StatisticShare],
    sets: Mapping[Subset, float],
    asked: AxisWorkloads,
) -> float:
    """Mean predicted variance of a family's answers.

    Args:
        measurement: what measures it.
        drawn: the variance of a row of whole budget of each statistic.
        sets: set of axes -> how often ranges on these axes are asked.
        asked: by axis.
    """
    components = measurement.components(drawn, {i: axis.split.total for i, axis in asked.items()})
    total_weight = sum(sets.values())
    return sum(
        weight / total_weight * range_variance(components, subset, asked) for subset, weight in sets.items()
    )
