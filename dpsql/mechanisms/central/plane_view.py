"""Measure a view of two axes by product hats: exact integers, noise once, estimates of the cells.

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

from fractions import Fraction
from itertools import product

import numpy as np

from dpsql.budget import cap_units, scaled_denominator
from dpsql.errors import PrivacyError
from dpsql.mechanisms.central.product_hats import ProductHats, estimate_plane, measure_plane, rows_of
from dpsql.mechanisms.law import SMALLEST_RATIO, NoisyView
from dpsql.noise import Noise, laplace_variance
from dpsql.tree import FloatArray, IntArray
from dpsql.variance.plane import kernel_starts


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


def plane_estimates(view: NoisyView, strategy: ProductHats) -> FloatArray:
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
