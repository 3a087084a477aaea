"""A measurement: how the statistics of one family are drawn and estimated together.

A family is the statistics of one table and one measure that tell the same totals. Whoever plans, draws, publishes,
predicts or audits a statistic asks its measurement and never which one it is.

| here | what it is |
|---|---|
| `Terms` | what a draw is made with: strategies, law, spend, sensitivity |
| `LinearRows` | rows fixed before the draw, so that an audit can compute them again |
| `AxisWorkload` | one axis as random ranges see it |
| `Alone` | what a measurement answers that leaves nothing to its draw and agrees with nobody |

**Privacy**: `Measurement.draw` is the one place where cells meet noise; all else is public or post-processing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import prod
from typing import NamedTuple, Protocol, Self

import numpy as np

from dpsql.mechanisms.axis.dense import workload_gram
from dpsql.mechanisms.axis.strategy import AxisStrategy
from dpsql.mechanisms.law import NoiseLaw, NoisyRows
from dpsql.noise import Noise
from dpsql.tree import Exact, FloatArray, IntArray, Noisy, Workload
from dpsql.variance import AxisVariance, mean_variance
from dpsql.variance.kronecker import AxisSplit
from dpsql.variance.reading import Together
from dpsql.variance.reconcile import Subset, ViewEstimate, subsets


class Terms(NamedTuple):
    """What one statistic is drawn with.

    Args:
        strategies: one for each axis.
        law: the noise.
        spend: what the noise is drawn for, in the law's own currency.
        sensitivity: the most that one privacy unit changes the sum of |cells|, in drawn integers.
        beside: the first statistic of the view as drawn, where this is another one.
    """

    strategies: Sequence[AxisStrategy]
    law: NoiseLaw
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


class DrawnAxis(NamedTuple):
    """An axis whose rows the draw itself chose: the variance model and what was measured, in words."""

    model: AxisVariance
    words: str


class DrawnMember(NamedTuple):
    """One statistic of a family after its draw."""

    axes: Subset
    view: NoisyRows


class RangeParts(NamedTuple):
    """Means over an axis's ranges u at unit noise, with C = the model, g its spread, k its total.

    Args:
        rest: of u' C u - k (g.u)^2, at least 0.
        share: of (g.u)^2.
    """

    rest: float
    share: float


@dataclass(frozen=True, eq=False)
class AxisWorkload:
    """One axis as random ranges see it: its variance model and the ranges declared, None for all."""

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
    def parts(self) -> RangeParts:
        """Means over the declared ranges."""
        split = self.split
        gram = workload_gram(len(split.spread), self.workload, uniform=0.0)
        share = float(split.spread @ gram @ split.spread)
        return RangeParts(max(mean_variance(self.model, self.workload) - split.total * share, 0.0), share)


def range_variance(
    components: Mapping[Subset, float], axes: Subset, asked: Mapping[int, AxisWorkload]
) -> float:
    """Mean variance of a random range on each of some axes.

    Args:
        components: variance factor of each set of axes, of all subsets of `axes`.
        axes: where ranges are asked.
        asked: by axis.
    """
    range_means = {axis: asked[axis].parts for axis in axes}
    return sum(
        components[subset]
        * prod(range_means[axis].rest if axis in subset else range_means[axis].share for axis in axes)
        for subset in subsets(axes)
    )


class StatisticShare(NamedTuple):
    """The axes of one statistic of a family, and what it is given: its charge, or the variance of a row."""

    axes: Subset
    amount: float


def asked_sets(charges: Sequence[StatisticShare]) -> dict[Subset, float]:
    """How often each set of axes is asked for ranges: every axis of a view half the time, views by their charges."""
    frequencies: dict[Subset, float] = {}
    for axes, charge in charges:
        for subset in subsets(axes):
            frequencies[subset] = frequencies.get(subset, 0.0) + charge / 2 ** len(axes)
    return frequencies


class LinearRows(Protocol):
    """Integer rows over a statistic's cells, known before anything is drawn."""

    def shape(self, strategies: Sequence[AxisStrategy]) -> tuple[int, ...]:
        """How the stored integers are laid out."""

    def known(self, strategies: Sequence[AxisStrategy]) -> int:
        """How many different sums of cells the rows tell; rows beyond them tell how large the noise is."""

    def budgets(self, terms: Terms) -> IntArray:
        """The integer budget of every row, in that shape.

        Raises:
            PrivacyError: spend or sensitivity leave no room for integer budgets.
        """

    def largest_column(self, budget: IntArray, terms: Terms) -> int:
        """The largest weighted column sum of stored budgets; an audit holds it against `column_cap`."""

    def column_cap(self, terms: Terms) -> int:
        """The most that it may be for the spend to hold."""

    def measure(self, cells: IntArray, strategies: Sequence[AxisStrategy]) -> IntArray:
        """The rows of some cells in exact integers modulo 2^64.

        **Privacy** Raw where the cells are: never leaves publishing without noise.
        """

    def weights(self, strategies: Sequence[AxisStrategy]) -> FloatArray:
        """The share of a whole budget that each row has, to be multiplied with rows of `shape`."""

    def leaf_estimates(self, view: NoisyRows, strategies: Sequence[AxisStrategy]) -> FloatArray:
        """What these rows alone tell of the cells, shape (n_1, .., n_d)."""


class DrawReplay(Protocol):
    """Makes a draw again whose rows its own noisy numbers chose."""

    def restored(self, value: Noisy, terms: Terms) -> NoisyRows:
        """What a draw was, from its integers in stored order and public facts alone.

        Raises:
            InternalError: there are too many integers, or too few.
        """


class Measurement(Protocol):
    """A way to measure the statistics of a family."""

    @property
    def parts(self) -> tuple[ChargeLine, ...]:
        """What a draw spends, fixed before it; shares add up to 1."""

    @property
    def biased(self) -> bool:
        """Whether estimates are biased by more than bounding."""

    @property
    def linear(self) -> LinearRows | None:
        """Its rows over the statistic's cells; None where they depend on what is drawn, or are no rows over cells."""

    @property
    def replay(self) -> DrawReplay | None:
        """What makes its draws again where `linear` cannot; None where nothing does."""

    @property
    def reading(self) -> str:
        """How its statistics answer, by the name of the reading."""

    @property
    def listed(self) -> Mapping[int, int]:
        """Positions of axes along which estimates do not add up, with how many there are."""

    def kin(self, view: str) -> str:
        """What statistics of one table and measure must have in common to be one family.

        Args:
            view: the statistic's view; part of the answer where a view stays alone.
        """

    def words(self, strategies: Sequence[str]) -> str:
        """What is measured, in words, from the words of each axis."""

    def row_count(self, strategies: Sequence[AxisStrategy]) -> int:
        """About how many integers will be drawn."""

    def unit_variance(self, terms: Terms) -> float:
        """Variance of a row of whole budget, in squared drawn integers; errors as of `draw`."""

    def joint_variance(self) -> Together | None:
        """The variance model of all axes together, where it is no product of axes."""

    def mean_variance(
        self,
        axes: Subset,
        unit: float,
        family: Sequence[tuple[Subset, float]],
        asked: Mapping[int, AxisWorkload],
    ) -> float:
        """Predicted mean variance of a random range on every axis of one statistic.

        Args:
            axes: the statistic's.
            unit: its variance of a row of whole budget.
            family: (axes, that variance) of every statistic of the family.
            asked: by axis.
        """

    def draw(self, cells: Exact, terms: Terms, noise: Noise) -> NoisyRows:
        """Measure one statistic, once.

        Args:
            cells: exact integers, shape (n_1, .., n_d).
            terms: what is spent on them.
            noise: where noise comes from.

        Raises:
            PrivacyError: spend or sensitivity leave no room for integer budgets.

        **Privacy**: the spend, for neighbours that differ in one unit's rows.
        """

    def beside(self) -> Measurement:
        """How the statistics of a view are measured that follow its first."""

    def settled(self, view: NoisyRows) -> Measurement:
        """What estimates and reads a draw: itself where nothing was left to it."""

    def drawn_axis(self, view: NoisyRows) -> DrawnAxis | None:
        """What a draw settled of the statistic's one axis, or None."""

    def estimates(
        self, family: Sequence[DrawnMember], strategies: Mapping[int, AxisStrategy]
    ) -> list[FloatArray]:
        """Leaf estimates of every statistic of a family, before `agreed`.

        Args:
            family: what was drawn.
            strategies: by axis.
        """

    def components(
        self, family: Sequence[tuple[Subset, float]], totals: Mapping[int, float]
    ) -> dict[Subset, float]:
        """Variance factor of each set of axes once the family agrees.

        Args:
            family: (axes, variance of a row of whole budget) of each statistic.
            totals: variance of each axis's total at unit noise.
        """

    def agreed(
        self, family: Sequence[ViewEstimate], totals: Mapping[int, float], spreads: Mapping[int, FloatArray]
    ) -> list[FloatArray]:
        """Leaf estimates of every statistic that tell the same totals.

        Args:
            family: leaf estimates of each statistic.
            totals: as of `components`.
            spreads: how a correction of an axis's total is spread over its leaves.
        """


class Alone:
    """What most measurements answer alike: nothing is left to a draw, and no other view is agreed with."""

    def kin(self, view: str) -> str:
        return view

    def beside(self) -> Self:
        return self

    def settled(self, view: NoisyRows) -> Self:
        """Nothing is left to the draw."""
        return self

    def drawn_axis(self, view: NoisyRows) -> DrawnAxis | None:
        """Nothing is left to the draw."""
        return None

    def components(
        self, family: Sequence[tuple[Subset, float]], totals: Mapping[int, float]
    ) -> dict[Subset, float]:
        return dict(family)

    def agreed(
        self, family: Sequence[ViewEstimate], totals: Mapping[int, float], spreads: Mapping[int, FloatArray]
    ) -> list[FloatArray]:
        """There is no other view to agree with."""
        return [member.estimate for member in family]


def shaped(values: FloatArray, place: int, axes: int) -> FloatArray:
    """A vector along one of so many axes, for products over all of them."""
    return np.asarray(values.reshape([-1 if axis == place else 1 for axis in range(axes)]))


def mean_error(
    measurement: Measurement,
    drawn: Sequence[StatisticShare],
    sets: Mapping[Subset, float],
    asked: Mapping[int, AxisWorkload],
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
