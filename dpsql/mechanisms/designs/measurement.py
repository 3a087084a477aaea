"""A measurement: how the statistics of one family are drawn and estimated together.

A family is the statistics of one table and one measure that tell the same totals. Whoever plans, draws, publishes,
predicts or audits a statistic asks its measurement and never which one it is.

| here | what it is |
|---|---|
| `DrawParameters` | what a draw is made with: strategies, law, spend, sensitivity |
| `LinearRows` | rows fixed before the draw, so that an audit can compute them again |
| `AxisWorkload` | one axis as random ranges see it |
| `MeasurementFacts` | what is known of it before it draws |

Counts and sums of one view that the same rows of the table move are several numbers by one pure draw.

Where a measure may be NULL, its count of values and the count of all rows are not drawn as such:

| statistics of the view | drawn | COUNT(*) | COUNT(x) |
|---|---|---|---|
| count, count(x), x if it is summed | n_0 = rows with NULL by itself; (n_1 = other rows, x) as one | n_0 + n_1 | n_1 |
| count, count(x_j), others | (count, g_j = 2 count(x_j) - count, others) as one | count | (count + g_j) / 2 |

COUNT(x) of the second line is stored in halves of a row.

No row moves the number of rows with NULL and the sum, so each has the whole epsilon. Variances at epsilon 1: of the
first line COUNT(*) 6, COUNT(x) and SUM(x) 4 each (4 and 2 without the sum); of the second V = (d + 1)(d + 2) / 3 for d
numbers, as of any joint draw, where a draw for each number has 2 d^2, and COUNT(x) V / 2. Numbers of one draw are
uncorrelated.

Each number has a draw of its own in streams (their noise may be drawn ahead, and their state holds it statistic by
statistic), with reported columns (the channel is undone statistic by statistic), with `max_ids: auto`, and for
mechanisms that select by noisy numbers.

**Privacy**: docs/privacy.md, "Several numbers by one draw". `Measurement.draw` is the one place where cells meet noise;
all else is public or post-processing.
**Source**: docs/method/rows.md, "Joint rows", "Rows with NULL".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import NamedTuple, Protocol

import numpy as np

from dpsql.errors import InternalError
from dpsql.matrices import AxisVariance, mean_variance
from dpsql.matrices.estimated import Estimated, Integers, Partner, reconcile_with_partners
from dpsql.matrices.kronecker import AxisSplit
from dpsql.matrices.model import Components
from dpsql.matrices.reading import Together
from dpsql.matrices.reconcile import Subset, ViewEstimate, subsets
from dpsql.matrices.strategy import NullCount, Strategy, axis_budgets, measure_view
from dpsql.mechanisms.distribution import (
    Laplace,
    NoiseDistribution,
    NoisyRows,
    NoisyView,
    as_laplace,
    refined,
    signed_sum,
)
from dpsql.noise import Noise
from dpsql.noise.knorm import MOST_DRAWN, expected_tries
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


def range_variance(
    components: Mapping[Subset, float], axes: Subset, asked: Mapping[int, AxisWorkload]
) -> float:
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


class LinearRows(Protocol):
    """Integer rows over a statistic's cells, known before anything is drawn."""

    def shape(self, strategies: Sequence[Strategy]) -> tuple[int, ...]:
        """Layout of the stored integers."""

    def known(self, strategies: Sequence[Strategy]) -> int:
        """Number of independent sums of cells that the rows measure; further rows reveal the size of the noise."""

    def budgets(self, terms: DrawParameters) -> IntArray:
        """The integer budget of every row, in that shape.

        Raises:
            PrivacyError: spend or sensitivity leave no room for integer budgets.
        """

    def largest_column(self, budget: IntArray, terms: DrawParameters) -> int:
        """The largest weighted column sum of stored budgets; an audit holds it against `column_cap`."""

    def column_cap(self, terms: DrawParameters) -> int:
        """The most that it may be for the spend to hold."""

    def measure(self, cells: IntArray, strategies: Sequence[Strategy]) -> IntArray:
        """The rows of some cells in exact integers modulo 2^64.

        **Privacy** Raw where the cells are: never leaves publishing without noise.
        """

    def weights(self, strategies: Sequence[Strategy]) -> FloatArray:
        """The share of a whole budget that each row has, to be multiplied with rows of `shape`."""

    def leaf_estimates(self, view: NoisyRows, strategies: Sequence[Strategy]) -> FloatArray:
        """Estimates of the cells from these rows alone, shape (n_1, .., n_d)."""


class DrawReplay(Protocol):
    """Makes a draw again whose rows its own noisy numbers chose."""

    def restored(self, value: Noisy, terms: DrawParameters) -> NoisyRows:
        """Draw restored from its integers in stored order and public facts alone.

        Raises:
            InternalError: there are too many integers, or too few.
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

    def components(
        self, family: Sequence[tuple[Subset, float]], totals: Mapping[int, float]
    ) -> dict[Subset, float]:
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

    def components(
        self, family: Sequence[tuple[Subset, float]], totals: Mapping[int, float]
    ) -> dict[Subset, float]:
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


MOST_TRIES = 64
"""Mean tries of one vector above which a view's numbers have a draw each. Of any epsilon ten counts take at most 17,
sixteen 55, twenty-five 261 tries; the most of them at an epsilon of 11, 18 and 28."""
_RATES = 64

COUNT, COUNT_OF = "count", "count({})"
"""Names of the statistics that count all rows, and those where a measure is not NULL."""


def joint_laws(measures: Sequence[str], *, indicators: bool) -> list[Laplace]:
    """The noise of a view's statistics where one ledger line pays for all of them.

    Args:
        measures: names of the statistics.
        indicators: whether rows with NULL are told by a number of their own, where the view counts all rows too.
    """
    sums = [measure for measure in measures if measure != COUNT and COUNT_OF.format(measure) in measures]
    present = [m for m in measures if m.startswith(COUNT_OF.partition("{")[0])]
    law = Laplace(len(measures))
    if not (indicators and present and COUNT in measures):
        return [law] * len(measures)
    law = replace(law, apart=len(present) == 1 and len(measures) == 2 + len(sums))
    counts = {COUNT: NullCount.ROWS} | dict.fromkeys(present, NullCount.PRESENT)
    return [replace(law, counts=counts.get(measure, NullCount.NEITHER)) for measure in measures]


class DrawnNumbers(NamedTuple):
    """The numbers that are drawn in the place of the statistics of one ledger line; a position stands for both.

    Args:
        draws: positions of the numbers of each draw.
        taken: number i is `times` x_i - x_k: i -> (times, k).
        added: statistic i is number i plus number k: i -> k.
    """

    draws: tuple[tuple[int, ...], ...]
    taken: Mapping[int, tuple[int, int]]
    added: Mapping[int, int]

    def exact(self, cells: Sequence[Exact], i: int) -> Exact:
        """The exact cells of a number; counts are far below 2^62, so their differences are exact."""
        if i not in self.taken:
            return cells[i]
        times, k = self.taken[i]
        return Exact(times * cells[i] - cells[k])

    def bound(self, sensitivities: Sequence[int], i: int) -> int:
        """The most that one unit changes a number: an indicator as much as a count of all rows, in rows."""
        return min(sensitivities[i], sensitivities[self.taken[i][1]]) if i in self.taken else sensitivities[i]


def drawn_numbers(laws: Sequence[NoiseDistribution]) -> DrawnNumbers:
    """Numbers drawn for statistics with these distributions."""
    counts = [law.counts if law else NullCount.NEITHER for law in map(as_laplace, laws)]
    every = tuple(range(len(laws)))
    if NullCount.ROWS not in counts:
        return DrawnNumbers((every,), {}, {})
    rows = counts.index(NullCount.ROWS)
    present = [i for i in every if counts[i] is NullCount.PRESENT]
    if any(law and law.halves for law in map(as_laplace, laws)):
        return DrawnNumbers((every,), dict.fromkeys(present, (2, rows)), dict.fromkeys(present, rows))
    (with_value,) = present
    draws = ((rows,), tuple(i for i in every if i != rows))
    return DrawnNumbers(draws, {rows: (1, with_value)}, {rows: with_value})


def drawn_bounds(laws: Sequence[NoiseDistribution], sensitivities: Sequence[int]) -> list[tuple[int, ...]]:
    """M_j of the numbers of each draw, from the laws and the sensitivities of the statistics."""
    numbers = drawn_numbers(laws)
    return [tuple(numbers.bound(sensitivities, i) for i in draw) for draw in numbers.draws]


def too_many_tries(spend: Fraction, laws: Sequence[NoiseDistribution], sensitivities: Sequence[int]) -> bool:
    """True if statistics are drawn one by one: they are more than a draw holds, or it may take over
    `MOST_TRIES`.

    Args:
        spend: epsilon of the draw; none of its rows has a larger rate.
        laws, sensitivities: of each statistic.
    """
    if len(laws) > MOST_DRAWN:
        return True
    rates = [float(spend) / 1.5**i for i in range(_RATES)]  # more than two tries take rates above .5
    bounds = max(drawn_bounds(laws, sensitivities), key=len)
    return any(expected_tries(rate, bounds) > MOST_TRIES for rate in rates if rate > 0.5)


def mean_tries(budget: IntArray, denominator: int, bounds: tuple[int, ...]) -> float:
    """Mean number of tries of a view's vectors.

    Args:
        budget: s of each row combination, any shape.
        denominator: t.
        bounds: M_j of each number of the draw.
    """
    units, often = np.unique(budget, return_counts=True)
    grid = np.unique(np.geomspace(units[0], units[-1], _RATES)) if units.size > _RATES else units
    tries = [expected_tries(float(unit) / denominator, bounds) for unit in grid]
    return float(np.average(np.interp(units, grid, tries), weights=often))


def draw_together(cells: Sequence[Exact], terms: Sequence[DrawParameters], noise: Noise) -> list[NoisyView]:
    """Measure all numbers of a view by one draw, or by two where rows with NULL have their own.

    Args:
        cells: exact integers of each statistic, all of shape (n_1, .., n_d), in rows and units of sums.
        terms: of each statistic; they differ in sensitivity and in what they count alone.
        noise: where noise comes from.

    Raises:
        InternalError: numbers that do not share rows, law and spend.
        PrivacyError: spend or sensitivity leave no room for integer budgets.

    **Privacy**: the spend for all numbers together, for neighbours that differ in one unit's rows.
    """
    first, law = terms[0], shared_law([(t.law, t.spend) for t in terms])
    if any(t.strategies != first.strategies for t in terms):
        raise InternalError("numbers of one draw need the same rows")
    numbers, axes = drawn_numbers([t.law for t in terms]), axis_budgets(first.strategies)
    sensitivities, drawn = [t.sensitivity for t in terms], dict[int, NoisyView]()
    for draw in numbers.draws:
        cut = [refined(numbers.exact(cells, i), 1) for i in draw]
        rows = [Exact(measure_view(exact, first.strategies)) for exact in cut]
        bounds = [numbers.bound(sensitivities, i) for i in draw]
        drawn |= zip(draw, law.draw_together(rows, axes, first.spend, bounds, noise), strict=True)
    views = []
    for i, t in enumerate(terms):
        value = signed_sum(drawn[i].value, 1, drawn[numbers.added[i]].value if i in numbers.added else 0)
        variance = t.law.variance_at_unit_budget(axes, t.spend, t.sensitivity)
        views.append(NoisyView(value, drawn[i].budget, variance, t.sensitivity))
    return views


def shared_law(spends: Sequence[tuple[NoiseDistribution, Fraction]]) -> Laplace:
    """The noise of numbers that share one draw, from the law and the spend of each.

    Raises:
        InternalError: they do not share both, or it is not Laplace noise.
    """
    laws = [as_laplace(law) for law, _ in spends]
    shared = {law and replace(law, counts=NullCount.NEITHER) for law in laws}
    law = laws[0]
    if law is None or len(shared) > 1 or len({spend for _, spend in spends}) > 1:
        raise InternalError("numbers of one draw need the same rows, law and spend")
    return replace(law, counts=NullCount.NEITHER)
