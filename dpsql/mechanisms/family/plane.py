"""Two axes together by product hats: exact integers, noise once, estimates of the cells.

| here | there | unit |
|---|---|---|
| `strategy` | rows H: each cell times its weight, then the hats; largest column sum B = `total` | rows x cells |
| s | floor(cap / B), the same for every row | epsilon in units of 1/t |
| `denominator` | t M | 1/epsilon per budget unit |
| `unit_variance` | c: variance of a row over B^2 | (stored unit)^2 |

**Privacy**: one unit changes the cells by at most M in L1, so the rows move by at most B M together and the loss is at
most B s / t <= cap / t <= epsilon. The sums, the budgets and the noise are integers.
**Source**: docs/method/views.md, "Product hats".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import ClassVar

import numpy as np

from dpsql.budget import cap_units, scaled_denominator
from dpsql.errors import PrivacyError
from dpsql.mechanisms.axis.gram import workload_gram
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.question import AxisChoice
from dpsql.mechanisms.axis.strategy import AxisStrategy
from dpsql.mechanisms.central.product_hats import (
    ProductHats,
    estimate_plane,
    measure_plane,
    plane_variance,
    rows_of,
)
from dpsql.mechanisms.central.reconcile import Measured, Subset
from dpsql.mechanisms.family.measurement import (
    AskedAxis,
    Compared,
    DrawnAxis,
    DrawnMember,
    LinearRows,
    Part,
    Terms,
    apart,
)
from dpsql.mechanisms.law import SMALLEST_RATIO, NoisyRows, NoisyView
from dpsql.noise import Noise, laplace_variance
from dpsql.tree import FloatArray, IntArray
from dpsql.variance.plane import PlaneVariance, kernel_starts


@dataclass(frozen=True)
class Plane:
    """Two axes together. See `Measurement` and `LinearRows` for what its methods answer.

    Args:
        hats: the rows over both axes.
        compared: how measuring them one by one compared.
    """

    hats: ProductHats
    compared: Compared
    parts: ClassVar[tuple[Part, ...]] = (Part("", Fraction(1)),)
    biased: ClassVar[bool] = False

    @property
    def linear(self) -> LinearRows:
        """These rows."""
        return self

    def kin(self, view: str) -> str:
        """Its variance is no sum of products, so it cannot be averaged with other views."""
        return view

    def words(self, strategies: Sequence[str]) -> str:
        """Of both axes."""
        return self.compared.name

    def axis_choices(self, leaves: Sequence[int]) -> tuple[AxisChoice, ...] | None:
        """Leaves, with the hats' half-widths for words."""
        return tuple(
            AxisChoice(LeafStrategy(n), f"product hats of half-width {half}", *self.compared[1:3])
            for n, half in zip(leaves, self.hats.half_widths, strict=True)
        )

    def row_count(self, strategies: Sequence[AxisStrategy]) -> int:
        """Cells and hats."""
        return rows_of(self.hats)

    def unit_variance(self, terms: Terms) -> float:
        """All rows have one noise."""
        return plane_unit_variance(self.hats, terms.spend, terms.sensitivity)

    def joint_variance(self) -> PlaneVariance:
        """A diagonal and a low rank."""
        return plane_variance(self.hats)

    def mean_variance(
        self,
        axes: Subset,
        unit: float,
        family: Sequence[tuple[Subset, float]],
        asked: Mapping[int, AskedAxis],
    ) -> float:
        """Over random rectangles."""
        first, second = (workload_gram(n) for n in self.hats.leaf.shape)
        return unit * self.joint_variance().mean_variance(first, second)

    def draw(self, cells: IntArray, terms: Terms, noise: Noise) -> NoisyRows:
        """One draw over cells and hats."""
        return draw_plane(cells, self.hats, terms.spend, terms.sensitivity, noise)

    def drawn_axis(self, view: NoisyRows) -> DrawnAxis | None:
        """Nothing is left to the draw."""
        return None

    def estimates(
        self, family: Sequence[DrawnMember], strategies: Mapping[int, AxisStrategy]
    ) -> list[FloatArray]:
        """Least squares over both axes."""
        return [plane_estimates(view, self.hats) for _, view in family]

    def components(
        self, family: Sequence[tuple[Subset, float]], totals: Mapping[int, float]
    ) -> dict[Subset, float]:
        """One for both axes."""
        return dict(family)

    def agreed(
        self, family: Sequence[Measured], totals: Mapping[int, float], spreads: Mapping[int, FloatArray]
    ) -> list[FloatArray]:
        """There is no other view to agree with."""
        return apart(family)

    def shape(self, strategies: Sequence[AxisStrategy]) -> tuple[int, ...]:
        """One line of cells and hats."""
        return (rows_of(self.hats),)

    def budgets(self, terms: Terms) -> IntArray:
        """All the same."""
        return plane_budget(self.hats, terms.spend, terms.sensitivity)

    def largest_column(self, budget: IntArray, terms: Terms) -> int:
        """Over cells."""
        return largest_plane_column(self.hats, budget)

    def measure(self, cells: IntArray, strategies: Sequence[AxisStrategy]) -> IntArray:
        """The weighted cells, then the hats."""
        return measure_plane(self.hats, cells)

    def weights(self, strategies: Sequence[AxisStrategy]) -> FloatArray:
        """All the same."""
        return np.full(rows_of(self.hats), 1.0 / self.hats.total)

    def leaf_estimates(self, view: NoisyRows, strategies: Sequence[AxisStrategy]) -> FloatArray:
        """Least squares over both axes."""
        return plane_estimates(view, self.hats)


def draw_plane(
    histogram: IntArray, strategy: ProductHats, epsilon: Fraction, sensitivity: int, noise: Noise
) -> NoisyView:
    """Measure a view of two axes under pure epsilon-DP.

    Args:
        histogram: exact integer cells, shape (n1, n2).
        strategy: the rows.
        epsilon: what the view may spend.
        sensitivity: the most that one privacy unit changes the sum of |cells|, in stored units.
        noise: where noise comes from.

    Returns:
        Noisy integers, shape (rows,), with their exact budgets.

    Raises:
        PrivacyError: epsilon or sensitivity leave no room for integer budgets.

    **Privacy**: epsilon-DP for neighbours that differ in one unit's rows.
    """
    budget = plane_budget(strategy, epsilon, sensitivity)
    denominator = scaled_denominator(sensitivity) * sensitivity
    noisy = noise.laplace(budget, denominator, measure_plane(strategy, histogram))
    variance = plane_unit_variance(strategy, epsilon, sensitivity)
    return NoisyView(noisy, budget, variance, sensitivity)


def plane_budget(strategy: ProductHats, epsilon: Fraction, sensitivity: int) -> IntArray:
    """The integer budget of every row, shape (rows,); arguments and errors as above.

    **Privacy** Reads no data; an audit holds it against what a release stores.
    """
    share = cap_units(epsilon, scaled_denominator(sensitivity)) // strategy.total
    if share == 0:
        raise PrivacyError(
            f"the view's epsilon is too small to be shared out over {rows_of(strategy)} rows",
            hint="give the view a larger share, narrow the measure's bounds, or write `mechanism: auto`",
        )
    return np.full(rows_of(strategy), share, np.int64)


def plane_unit_variance(strategy: ProductHats, epsilon: Fraction, sensitivity: int) -> float:
    """The `unit_variance` that a draw will have: all rows have one noise, so it is exact. Reads no data."""
    share = plane_budget(strategy, epsilon, sensitivity)[:1]
    denominator = scaled_denominator(sensitivity) * sensitivity
    least = 2.0 * SMALLEST_RATIO * (denominator / float(share[0])) ** 2
    return max(float(laplace_variance(share, denominator)[0]), least) / strategy.total**2


def largest_plane_column(strategy: ProductHats, budget: IntArray) -> int:
    """The largest sum over rows of |H_r| s_r of any cell; what an audit holds against the cap.

    Args:
        strategy: the rows.
        budget: as stored, shape (rows,).
    """
    cells, shape = strategy.leaf.size, strategy.leaf.shape
    column = strategy.leaf * budget[:cells].reshape(shape)
    height, width = strategy.kernel.shape
    starts = [kernel_starts(n, length) for n, length in zip(shape, strategy.kernel.shape, strict=True)]
    for share, (a, b) in zip(budget[cells:], product(*starts), strict=True):
        column[a : a + height, b : b + width] += np.abs(strategy.kernel) * share
    return int(column.max())


def plane_estimates(view: NoisyRows, strategy: ProductHats) -> FloatArray:
    """Best linear unbiased estimates of the cells, shape (n1, n2).

    The estimate is refined once on what is left of the integers after the rounded first estimate, so that float
    rounding stays relative to the noise and a noiseless view comes back exactly.

    Args:
        view: noisy integers.
        strategy: the rows.
    """
    first = np.rint(estimate_plane(strategy, view.value)).astype(np.int64)
    left = view.value - measure_plane(strategy, first)
    return np.asarray(first + estimate_plane(strategy, left), np.float64)
