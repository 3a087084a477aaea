"""Sets of axes, each measured once by zero-sum rows (`axis.zero_sum`), and estimated all together.

The rows are rounded to integers whose every row adds to zero exactly, so that what is measured on a set of axes stays
orthogonal to what is measured on its subsets, and the closed form stays exact.

| here | there | unit |
|---|---|---|
| `drawn[S]` | (kron over S of B_i) (histogram, added up over all other axes) + noise | integers |

**Privacy** Set S alone is rho_S-zCDP, as `law.Gaussian.draw` says; together they add up. Estimates are
post-processing.
**Source** docs/method/views.md, "Residual rows".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import ClassVar

import numpy as np

from dpsql.errors import InternalError
from dpsql.mechanisms.axis.question import AxisChoice
from dpsql.mechanisms.axis.residual_axis import ResidualAxis
from dpsql.mechanisms.axis.strategy import AxisStrategy, estimate, measure
from dpsql.mechanisms.central.reconcile import Measured
from dpsql.mechanisms.central.residual import Subset, closed_downwards
from dpsql.mechanisms.family.measurement import (
    AskedAxis,
    Compared,
    DrawnAxis,
    DrawnMember,
    LinearRows,
    Part,
    Terms,
    apart,
    range_variance,
)
from dpsql.mechanisms.family.product import PRODUCT
from dpsql.mechanisms.law import NoisyRows
from dpsql.noise import Noise
from dpsql.tree import FloatArray, IntArray
from dpsql.variance.plane import PlaneVariance


@dataclass(frozen=True)
class Residual:
    """What a set of axes has beyond its subsets. See `Measurement` for what its methods answer.

    A set by itself is a product of zero-sum rows; only all sets of a family together have leaf estimates.
    """

    parts: ClassVar[tuple[Part, ...]] = (Part("residual", Fraction(1)),)
    biased: ClassVar[bool] = False
    compared: ClassVar[Compared | None] = None

    @property
    def linear(self) -> LinearRows:
        """Products of the axes' rows."""
        return PRODUCT

    def kin(self, view: str) -> str:
        """All sets of a table are one family, and views that are measured otherwise another."""
        return "by sets"

    def words(self, strategies: Sequence[str]) -> str:
        """Of each axis."""
        return PRODUCT.words(strategies)

    def axis_choices(self, leaves: Sequence[int]) -> tuple[AxisChoice, ...] | None:
        """Each axis has zero-sum rows."""
        return None

    def row_count(self, strategies: Sequence[AxisStrategy]) -> int:
        """All products."""
        return PRODUCT.row_count(strategies)

    def unit_variance(self, terms: Terms) -> float:
        """As the law says."""
        return PRODUCT.unit_variance(terms)

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
        """Added up over the sets below."""
        return range_variance(dict(family), axes, asked)

    def draw(self, cells: IntArray, terms: Terms, noise: Noise) -> NoisyRows:
        """Products of zero-sum rows, drawn by the law."""
        return PRODUCT.draw(cells, terms, noise)

    def drawn_axis(self, view: NoisyRows) -> DrawnAxis | None:
        """Nothing is left to the draw."""
        return None

    def estimates(
        self, family: Sequence[DrawnMember], strategies: Mapping[int, AxisStrategy]
    ) -> list[FloatArray]:
        """Every set adds up its subsets."""
        leaves = residual_estimates(dict(family), strategies)
        return [leaves[member.axes] for member in family]

    def components(
        self, family: Sequence[tuple[Subset, float]], totals: Mapping[int, float]
    ) -> dict[Subset, float]:
        """Each set has its own."""
        return dict(family)

    def agreed(
        self, family: Sequence[Measured], totals: Mapping[int, float], spreads: Mapping[int, FloatArray]
    ) -> list[FloatArray]:
        """They agree from the start."""
        return apart(family)


RESIDUAL = Residual()


def axis_of(strategy: AxisStrategy) -> ResidualAxis:
    """The rows' Gram matrix, with their own total as the unit.

    Raises:
        InternalError: the strategy's rows are not written down.
    """
    entries = strategy.entries()
    if entries is None:
        raise InternalError("residual rows are written down")
    rows = entries.dense() / strategy.total
    return ResidualAxis(np.asarray(rows.T @ rows, np.float64))


def residual_estimates(
    drawn: Mapping[Subset, NoisyRows], strategies: Mapping[int, AxisStrategy]
) -> dict[Subset, FloatArray]:
    """Best linear unbiased leaf estimates of every set of axes from the measurements of all.

    The first estimates are rounded and what is left of the integers is estimated again, so that float rounding
    stays relative to the noise and a noiseless release comes back exactly.

    Args:
        drawn: the noisy integers of a family of sets closed downwards; axes of a set in increasing order.
        strategies: by axis.

    Returns:
        For each set an array with its axes' leaves; they agree on what they share, up to float rounding.
    """
    deviations = {part: _deviation(view.value, part, strategies) for part, view in drawn.items()}
    found = {}
    for axes in drawn:
        parts = closed_downwards([axes])
        first = np.rint(_added_up(deviations, parts, axes, strategies)).astype(np.int64)
        left = {
            part: _deviation(drawn[part].value - _measured(first, part, axes, strategies), part, strategies)
            for part in parts
        }
        found[axes] = np.asarray(first + _added_up(left, parts, axes, strategies), np.float64)
    return found


def _deviation(rows: IntArray, part: Subset, strategies: Mapping[int, AxisStrategy]) -> FloatArray:
    """Leaf estimates of what a set has beyond its subsets; they add to zero along every axis."""
    leaves = np.asarray(rows, np.float64)
    for place, axis in enumerate(part):
        leaves = estimate(strategies[axis], leaves, place)
    return leaves


def _added_up(
    deviations: Mapping[Subset, FloatArray],
    parts: Sequence[Subset],
    axes: Subset,
    strategies: Mapping[int, AxisStrategy],
) -> FloatArray:
    """Every part, spread evenly over the axes that it does not hold."""
    total = np.zeros([strategies[axis].leaves for axis in axes])
    for part in parts:
        away = float(np.prod([strategies[axis].leaves for axis in axes if axis not in part], initial=1.0))
        total = (
            total + deviations[part].reshape([strategies[a].leaves if a in part else 1 for a in axes]) / away
        )
    return np.asarray(total, np.float64)


def _measured(
    leaves: IntArray, part: Subset, axes: Subset, strategies: Mapping[int, AxisStrategy]
) -> IntArray:
    """What measuring a part of some leaves would have given without noise."""
    rows = leaves.sum(axis=tuple(place for place, axis in enumerate(axes) if axis not in part))
    for place, axis in enumerate(part):
        rows = measure(strategies[axis], rows, place)
    return np.asarray(rows, np.int64)
