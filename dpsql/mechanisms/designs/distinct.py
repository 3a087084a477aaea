"""Distinct people: gaps along one axis, and single cells with one weight a person.

A statistic here is drawn over its own cells, not over those of rows: each person adds 1 to everybody's row and 1 to
each of her gaps (`variance.distinct`), or her weight to each cell that she touches.

| here | there | unit |
|---|---|---|
| `Gaps` | budget of a gap proportional to its length; lengths of a person's gaps add up to n + 1 | - |
| `Touched` | each person's weight W with W^2 d <= U^2 K (mu^2) or W d <= U K (epsilon) | 2^-20 |
| `terms.sensitivity` | 1; for cells 2^20 sqrt(K), or 2^20 K | drawn integers |

**Privacy**: a row of budget b out of B is drawn at b / B of the spend for a change of 1. The rows that one person
touches have budgets that add up to B exactly, so together they spend what the statistic may, under either law: pure
epsilons and mu^2 add up. A person's cells are d integers of W each: sqrt(d) W in L2, d W in L1.
**Source**: docs/method/views.md, "Ranges by gaps", "Cells".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import isqrt, prod

import numpy as np

from dpsql.matrices import distinct
from dpsql.matrices.estimated import Estimated
from dpsql.matrices.reconcile import Subset
from dpsql.matrices.strategy import Strategy
from dpsql.mechanisms.designs import measurement
from dpsql.mechanisms.distribution import NoiseDistribution, NoisyRows, NoisyView, joined, picked
from dpsql.noise import Noise
from dpsql.tree import Exact

LONGEST = 64
"""Leaves of the longest axis of gaps: 2,144 gaps and 2,080 ranges a cell of the other axes."""

UNIT = 1 << 20
"""Integers that make a person of weight 1."""


class BoundedRows(measurement.OwnParts):
    """Rows of one budget that one person changes by so much at most, in the law's own norm."""

    def variance_at_unit_budget(self, terms: measurement.DrawParameters) -> float:
        return terms.law.bounded_noise(terms.sensitivity, terms.spend) ** 2


@dataclass(frozen=True)
class Gaps(BoundedRows):
    """Everybody and each gap between the leaves of one axis. See `Measurement` for what its methods answer.

    Args:
        leaves: of each axis of the statistic.
        place: position of the axis of gaps; on each of the others a person has one leaf.
        norm: of the law that draws.
    """

    leaves: tuple[int, ...]
    place: int
    norm: int

    @property
    def model(self) -> distinct.GapModel:
        """Least squares on the axis."""
        return distinct.gap_model(self.leaves[self.place], self.norm)

    @property
    def cells(self) -> int:
        """Cells of the other axes."""
        return prod(self.leaves) // self.leaves[self.place]

    def words(self, strategies: Sequence[str]) -> str:
        return f"gaps between {self.leaves[self.place]} leaves"

    def row_count(self, strategies: Sequence[Strategy]) -> int:
        """Everybody and each gap, a cell of the other axes."""
        return self.cells * len(distinct.gap_weights(self.leaves[self.place]))

    @cached_property
    def facts(self) -> measurement.MeasurementFacts:
        """Ranges of the axis of gaps are stored one by one."""
        n, places = self.leaves[self.place], range(len(self.leaves))
        return measurement.MeasurementFacts(
            (measurement.ChargeLine("by gaps", Fraction(1)),),
            distinct.GapReading.name,
            listed={self.place: n * (n + 1) // 2},
            model=distinct.Single(
                distinct.GAPS, self.place, self.norm, self.leaves, tuple(int(i != self.place) for i in places)
            ),
        )

    def mean_variance(
        self, axes: Subset, unit: float, family: measurement.MemberVariances, asked: measurement.AxisWorkloads
    ) -> float:
        """Over all ranges; a random range of another axis takes about a third of its leaves."""
        return unit * self.model.mean_variance() * _third(self.leaves, [self.place])

    def draw(self, cells: Exact, terms: measurement.DrawParameters, noise: Noise) -> NoisyRows:
        """Rows of one budget together, each at its part of the spend.

        Args:
            cells: shape (cells of the other axes, 1 + gaps).
            terms: `sensitivity` is 1.
            noise: where noise comes from.

        **Privacy**: the spend. One person adds 1 to rows whose budgets add up to B; a draw of budget b costs b / B of
        it for each of them.
        """
        n = self.leaves[self.place]
        weights, places = distinct.gap_weights(n), np.arange(cells.size).reshape(cells.shape)
        drawn, order = [], []
        for weight in np.unique(weights).tolist():
            rows = np.flatnonzero(weights == weight)
            spend = terms.spend * Fraction(weight, distinct.gap_total(n))
            exact = Exact(cells[:, rows].ravel())
            drawn.append(terms.law.draw_bounded(exact, terms.sensitivity, spend, noise).value)
            order.append(places[:, rows].ravel())
        noisy = picked(joined(*drawn), np.argsort(np.concatenate(order)))
        budget = np.broadcast_to(weights, cells.shape)
        return NoisyView(noisy, budget.ravel(), self.variance_at_unit_budget(terms), terms.sensitivity)

    def estimate(
        self, family: Sequence[measurement.DrawnMember], axes: Mapping[int, measurement.MeasuredAxis]
    ) -> list[Estimated]:
        """People of every range, for each cell of the other axes."""
        other_leaves = [leaves for i, leaves in enumerate(self.leaves) if i != self.place]
        estimates = []
        for member in family:
            ranges = self.model.estimate(member.view.value.reshape(self.cells, -1).astype(np.float64))
            estimates.append(np.moveaxis(ranges.reshape(*other_leaves, -1), -1, self.place))
        return measurement.estimated(self, family, estimates, axes)


@dataclass(frozen=True)
class Touched(BoundedRows):
    """Single cells, each person with one weight. See `Measurement` for what its methods answer.

    Args:
        leaves: of each axis of the statistic.
        own: for each axis whether a person has one leaf there.
    """

    leaves: tuple[int, ...]
    own: tuple[bool, ...]

    @property
    def most(self) -> int:
        """The most cells that one person can touch."""
        return prod(
            leaves for leaves, single_leaf in zip(self.leaves, self.own, strict=True) if not single_leaf
        )

    def words(self, strategies: Sequence[str]) -> str:
        return "cells"

    def row_count(self, strategies: Sequence[Strategy]) -> int:
        return prod(self.leaves)

    @cached_property
    def facts(self) -> measurement.MeasurementFacts:
        """Leaves do not add up where a person may have several."""
        return measurement.MeasurementFacts(
            (measurement.ChargeLine("by cells", Fraction(1)),),
            distinct.TouchedReading.name,
            listed={
                i: n for i, (n, single) in enumerate(zip(self.leaves, self.own, strict=True)) if not single
            },
            model=distinct.Single(distinct.CELLS, -1, 0, self.leaves, tuple(map(int, self.own))),
        )

    def mean_variance(
        self, axes: Subset, unit: float, family: measurement.MemberVariances, asked: measurement.AxisWorkloads
    ) -> float:
        """Of one cell; a random range of a person's own axis takes about a third of its leaves."""
        return unit * _third(self.leaves, list(self.facts.listed))

    def draw(self, cells: Exact, terms: measurement.DrawParameters, noise: Noise) -> NoisyRows:
        """All cells, once; the law bounds the change of a person as if it were of one cell.

        **Privacy**: the spend, where `terms.sensitivity` is at least what one person adds in the law's own norm: noise
        depends on that norm of the change and on nothing else of it.
        """
        drawn = terms.law.draw_bounded(Exact(cells.ravel()), terms.sensitivity, terms.spend, noise)
        budget = np.ones(drawn.value.size, np.int64)
        return NoisyView(drawn.value, budget, drawn.sd**2, terms.sensitivity)

    def estimate(
        self, family: Sequence[measurement.DrawnMember], axes: Mapping[int, measurement.MeasuredAxis]
    ) -> list[Estimated]:
        """The cells as they are."""
        cells = [member.view.value.reshape(self.leaves).astype(np.float64) for member in family]
        return measurement.estimated(self, family, cells, axes)


def _third(leaves: Sequence[int], but: Sequence[int]) -> float:
    """Factor on a variance from adding up a random range of each axis: its mean length, (n + 2) / 3."""
    return prod((n + 2) / 3 for i, n in enumerate(leaves) if i not in but)


def cell_weight(touched: int, bound: int, law: NoiseDistribution) -> int:
    """A person's weight in units of 2^-20: the largest that keeps what she adds within the bound.

    Args:
        touched: d, the cells that she touches, at least 1.
        bound: K.
        law: W^2 d <= 2^40 K where budgets are squared, W d <= 2^20 K else.

    >>> from dpsql.mechanisms.distribution import GAUSSIAN
    >>> cell_weight(1, 4, GAUSSIAN) == UNIT, cell_weight(16, 4, GAUSSIAN) == UNIT // 2
    (True, True)
    """
    return min(UNIT, _root(UNIT**law.norm * bound // touched, law.norm))


def cell_reach(bound: int, law: NoiseDistribution) -> int:
    """The most that one person adds, in the law's own norm and units of 2^-20, rounded up.

    >>> from dpsql.mechanisms.distribution import GAUSSIAN
    >>> cell_reach(4, GAUSSIAN) == 2 * UNIT
    True
    """
    power: int = UNIT**law.norm * bound
    root = _root(power, law.norm)
    return root + int(root**law.norm < power)


def _root(value: int, norm: int) -> int:
    """The first or the square root, rounded down exactly."""
    return value if norm < 2 else isqrt(value)
