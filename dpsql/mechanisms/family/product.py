"""Each axis by a strategy of its own: a row of the view is a product of the axes' rows.

Views that share axes are reconciled part by part.

**Privacy**: docs/privacy.md; budgets are products over axes, as the law combines them.
**Source**: docs/method/views.md, "Products of axes".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import ClassVar

import numpy as np

from dpsql.mechanisms.axis.question import AxisChoice
from dpsql.mechanisms.axis.strategy import AxisStrategy, axis_budgets, leaf_estimates, measure_view, row_count
from dpsql.mechanisms.central.reconcile import Measured, Subset, component_variances, reconcile
from dpsql.mechanisms.family.measurement import (
    AskedAxis,
    Compared,
    DrawnAxis,
    DrawnMember,
    LinearRows,
    Part,
    Terms,
    shaped,
)
from dpsql.mechanisms.law import NoisyRows
from dpsql.noise import Noise
from dpsql.tree import FloatArray, IntArray
from dpsql.variance.plane import PlaneVariance


@dataclass(frozen=True)
class Product:
    """Axes one by one. See `Measurement` and `LinearRows` for what its methods answer.

    Args:
        compared: how measuring two axes together compared, where it was tried.
    """

    compared: Compared | None = None
    parts: ClassVar[tuple[Part, ...]] = (Part("", Fraction(1)),)
    biased: ClassVar[bool] = False

    @property
    def linear(self) -> LinearRows:
        """These rows."""
        return self

    def kin(self, view: str) -> str:
        """All views of a table are one family."""
        return ""

    def words(self, strategies: Sequence[str]) -> str:
        """Of each axis."""
        return " x ".join(strategies)

    def axis_choices(self, leaves: Sequence[int]) -> tuple[AxisChoice, ...] | None:
        """Each axis chooses."""
        return None

    def row_count(self, strategies: Sequence[AxisStrategy]) -> int:
        """All products."""
        return prod(self.shape(strategies))

    def unit_variance(self, terms: Terms) -> float:
        """As the law says."""
        return terms.law.unit_variance(axis_budgets(terms.strategies), terms.spend, terms.sensitivity)

    def joint_variance(self) -> PlaneVariance | None:
        """A product of axes."""
        return None

    def mean_variance(
        self,
        axes: Subset,
        unit: float,
        family: Sequence[tuple[Subset, float]],
        asked: Mapping[int, AskedAxis],
    ) -> float:
        """Of the view by itself, before it is reconciled."""
        return unit * prod(asked[axis].mean for axis in axes)

    def draw(self, cells: IntArray, terms: Terms, noise: Noise) -> NoisyRows:
        """Measure exactly, then one draw of the law."""
        exact, budgets = measure_view(cells, terms.strategies), axis_budgets(terms.strategies)
        return terms.law.draw(exact, budgets, terms.spend, terms.sensitivity, noise)

    def drawn_axis(self, view: NoisyRows) -> DrawnAxis | None:
        """Nothing is left to the draw."""
        return None

    def estimates(
        self, family: Sequence[DrawnMember], strategies: Mapping[int, AxisStrategy]
    ) -> list[FloatArray]:
        """Every view by itself."""
        return [leaf_estimates(view, [strategies[axis] for axis in axes]) for axes, view in family]

    def components(
        self, family: Sequence[tuple[Subset, float]], totals: Mapping[int, float]
    ) -> dict[Subset, float]:
        """Averaged by precision over the views that hold a part."""
        return component_variances(family, totals)

    def agreed(
        self, family: Sequence[Measured], totals: Mapping[int, float], spreads: Mapping[int, FloatArray]
    ) -> list[FloatArray]:
        """Reconciled part by part."""
        return reconcile(family, totals, spreads)

    def shape(self, strategies: Sequence[AxisStrategy]) -> tuple[int, ...]:
        """Rows of each axis."""
        return tuple(row_count(strategy) for strategy in strategies)

    def budgets(self, terms: Terms) -> IntArray:
        """As the law combines those of the axes."""
        return terms.law.budgets(axis_budgets(terms.strategies), terms.spend, terms.sensitivity)

    def largest_column(self, budget: IntArray, terms: Terms) -> int:
        """As the law adds up."""
        rows = [strategy.entries() for strategy in terms.strategies]
        return terms.law.largest_column(budget, rows, axis_budgets(terms.strategies))

    def measure(self, cells: IntArray, strategies: Sequence[AxisStrategy]) -> IntArray:
        """Axis by axis."""
        return measure_view(cells, strategies)

    def weights(self, strategies: Sequence[AxisStrategy]) -> FloatArray:
        """Products of the axes' shares."""
        weight = np.ones(self.shape(strategies))
        for place, strategy in enumerate(strategies):
            weight = weight * shaped(strategy.budget / strategy.total, place, len(strategies))
        return weight

    def leaf_estimates(self, view: NoisyRows, strategies: Sequence[AxisStrategy]) -> FloatArray:
        """Least squares axis by axis."""
        return leaf_estimates(view, strategies)


PRODUCT = Product()
