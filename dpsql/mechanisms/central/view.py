"""Measure one view: exact integers from the histogram, noise once, estimates of the leaves.

| here | there | unit |
|---|---|---|
| `strategies[i]` | A_i with integer budgets b_i, totals B_i | rows x leaves of axis i |
| `budget` | s = floor(floor(cap b_1 / B_1) b_2 / B_2) .. | epsilon in units of 1/t |
| `denominator` | t' = t M | 1/epsilon per budget unit |
| `unit_variance` | c_A: row variance at full axis budgets | (stored unit)^2 |

A view is measured by the Kronecker product of its axes' strategies: row (r_1, .., r_d) is the product
of integer rows and gets its own integer budget s. The histogram, the products and the noise are int64;
the first float appears after the noisy integers exist.

**Privacy**: one unit changes one cell, or several cells by at most `sensitivity` in sum, so row r changes
by at most |H_r| per cell and the loss is at most sum_r |H_rl| s_r / t <= epsilon for every cell l, which
is what `Strategy` and `combine` guarantee in integers. Under zCDP the same holds for squares.
**Source**: central.md sections 1, 2 and 5; reliability.md section 1 (N1-N5).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.budget import cap_units, combine, gaussian_sigma2, scaled_denominator
from dpsql.errors import PrivacyError
from dpsql.mechanisms.central.strategy import Strategy, estimate, measure
from dpsql.noise import Noise, laplace_variance

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]


SMALLEST_RATIO = 1e-9
"""At budgets of hundreds discrete noise is 0 for all practical purposes; a variance of 0 would divide by 0."""


@dataclass(frozen=True)
class NoisyView:
    """One view's noisy integers as drawn.

    Args:
        value: shape (rows_1, .., rows_d).
        budget: integer budget of each row combination, the same shape.
        unit_variance: c_A, the noise variance of a row combination times the product of its squared axis
            budgets, in squared stored units.
        sensitivity: the most that one unit changes the sum of |cells|, in stored units.
    """

    value: IntArray
    budget: IntArray
    unit_variance: float
    sensitivity: int


def draw_laplace(
    histogram: IntArray, strategies: Sequence[Strategy], epsilon: Fraction, sensitivity: int, noise: Noise
) -> NoisyView:
    """Measure a view under pure epsilon-DP.

    Args:
        histogram: exact integer leaf combinations, shape (n_1, .., n_d).
        strategies: one for each axis, norm 1.
        epsilon: what the view may spend.
        sensitivity: the most that one privacy unit changes the sum of |cells|, in stored units.
        noise: where noise comes from.

    Returns:
        Noisy integers with their exact budgets.

    Raises:
        PrivacyError: epsilon or sensitivity leave no room for integer budgets.

    **Privacy**: epsilon-DP for neighbours that differ in one unit's rows.
    """
    budget, cap, denominator = _laplace_budget(strategies, epsilon, sensitivity)
    exact = _measure_all(histogram, strategies)
    noisy = noise.laplace(budget.ravel(), denominator, exact.ravel()).reshape(budget.shape)
    return NoisyView(noisy, budget, _laplace_unit(budget, cap, denominator, strategies), sensitivity)


def _laplace_budget(
    strategies: Sequence[Strategy], epsilon: Fraction, sensitivity: int
) -> tuple[IntArray, int, int]:
    """Integer budget of every row combination, their cap, and the noise's denominator."""
    t = scaled_denominator(sensitivity)
    cap = cap_units(epsilon, t)
    budget = combine(cap, [(strategy.budget, strategy.total) for strategy in strategies])
    if not budget.all():
        raise PrivacyError(
            f"the view's epsilon is too small to be shared out over {len(strategies)} axes of this size",
            hint="give the view a larger share, fewer axes, or `mechanism: identity`",
        )
    return budget, cap, t * sensitivity


def expected_unit_variance(
    strategies: Sequence[Strategy], norm: int, spend: Fraction, sensitivity: int
) -> float:
    """The `unit_variance` that a draw will have, known before anything is drawn.

    Args:
        strategies: one for each axis.
        norm: 1 for Laplace, 2 for Gaussian noise.
        spend: epsilon (norm 1) or rho (norm 2).
        sensitivity: the most that one privacy unit changes the sum of |cells|.

    Returns:
        c_A in squared stored units.

    Raises:
        PrivacyError: what `draw_laplace` would raise for these budgets.

    **Privacy** Reads no data.
    """
    if norm == 2:
        return float(Fraction(sensitivity**2) / (2 * spend))
    budget, cap, denominator = _laplace_budget(strategies, spend, sensitivity)
    return _laplace_unit(budget, cap, denominator, strategies)


def planned_budget(strategies: Sequence[Strategy], norm: int, spend: Fraction, sensitivity: int) -> IntArray:
    """The integer budget of every row combination that a draw will store; arguments as above.

    **Privacy** Reads no data; an audit holds it against what a release stores.
    """
    if norm == 1:
        return _laplace_budget(strategies, spend, sensitivity)[0]
    budget = np.ones([strategy.rows for strategy in strategies], dtype=np.int64)
    for axis, strategy in enumerate(strategies):
        budget = budget * _along(strategy.budget, axis, len(strategies))
    return budget


def draw_gaussian(
    histogram: IntArray, strategies: Sequence[Strategy], rho: Fraction, sensitivity: int, noise: Noise
) -> NoisyView:
    """Measure a view under rho-zCDP.

    Args:
        histogram: exact integer leaf combinations, shape (n_1, .., n_d).
        strategies: one for each axis, norm 2; their totals bound the L2 norm of a column, rounding included.
        rho: what the view may spend.
        sensitivity: the most that one privacy unit changes the sum of |cells|, in stored units.
        noise: where noise comes from.

    Returns:
        Noisy integers; `budget` is the product of the rows' budgets.

    **Privacy**: rho-zCDP. A row of budget product b gets sigma^2 = (M B / b)^2 / (2 rho), so the weighted L2
    distance between neighbours is at most M B sqrt(2 rho) / (M B).
    """
    whole = prod(strategy.total for strategy in strategies) * sensitivity
    return draw_gaussian_rows(histogram, strategies, Fraction(whole**2) / (2 * rho), sensitivity, noise)


def draw_gaussian_rows(
    histogram: IntArray, strategies: Sequence[Strategy], variance: Fraction, sensitivity: int, noise: Noise
) -> NoisyView:
    """Measure a view with Gaussian noise of a given strength.

    Args:
        histogram: exact integer leaf combinations, shape (n_1, .., n_d).
        strategies: one for each axis, norm 2.
        variance: sigma^2 of a row of budget product 1; a row of product b gets sigma^2 / b^2, rounded up.
        sensitivity: the most that one privacy unit changes the sum of |cells|, in stored units.
        noise: where noise comes from.

    Returns:
        Noisy integers; `budget` is the product of the rows' budgets.

    **Privacy**: for neighbours whose rows differ by d_r, sum_r (b_r d_r)^2 / (2 sigma^2)-zCDP.
    """
    budget = planned_budget(strategies, 2, variance, sensitivity)
    exact = _measure_all(histogram, strategies)
    noisy = np.zeros(budget.shape, dtype=np.int64)
    for share in np.unique(budget):
        where = budget == share
        sigma2 = gaussian_sigma2(Fraction(int(share) ** 2, 2) / variance, 1)
        noisy[where] = noise.gaussian(sigma2, int(np.count_nonzero(where)), exact[where])
    total = prod(strategy.total for strategy in strategies)
    return NoisyView(noisy, budget, float(variance / total**2), sensitivity)


def leaf_estimates(view: NoisyView, strategies: Sequence[Strategy]) -> FloatArray:
    """Best linear unbiased estimates of the leaf combinations.

    The estimate is refined on what is left of the integers after the rounded first estimate, so that float rounding
    stays relative to the noise and a noiseless view comes back exactly. Rows that are estimated by a matrix close to
    theirs (kind "sine") take one round more; each leaves about a millionth of what was wrong.

    Args:
        view: noisy integers.
        strategies: the axes' strategies.

    Returns:
        Estimates, shape (n_1, .., n_d).
    """
    rounds = 2 if any(strategy.kind == "sine" for strategy in strategies) else 1
    first = np.zeros([strategy.n for strategy in strategies], np.int64)
    left = view.value
    for _ in range(rounds):
        first = first + np.rint(_estimate_all(left.astype(np.float64), strategies)).astype(np.int64)
        left = view.value - _measure_all(first, strategies)
    return first + _estimate_all(left.astype(np.float64), strategies)


def _laplace_unit(budget: IntArray, cap: int, denominator: int, strategies: Sequence[Strategy]) -> float:
    """c_A of discrete Laplace rows.

    Budgets are floored and the noise is discrete, so the product form holds up to two small factors: the
    floors' (averaged by precision) and the discreteness' (its largest, so never understated).
    """
    ideal = np.float64(cap) * np.ones(budget.shape)
    for axis, strategy in enumerate(strategies):
        ideal = ideal * _along(strategy.budget / strategy.total, axis, len(strategies))
    real = budget.astype(np.float64)
    floors = float(np.average((ideal / real) ** 2, weights=ideal**2))
    ratio = laplace_variance(budget, denominator) * real**2 / (2.0 * float(denominator) ** 2)
    return 2.0 * (denominator / cap) ** 2 * floors * max(float(np.max(ratio)), SMALLEST_RATIO)


def _along(values: npt.NDArray[Any], axis: int, dimensions: int) -> npt.NDArray[Any]:
    """Values shaped so that they run along one axis."""
    shape = [1] * dimensions
    shape[axis] = -1
    return values.reshape(shape)


def _measure_all(histogram: IntArray, strategies: Sequence[Strategy]) -> IntArray:
    for axis, strategy in enumerate(strategies):
        histogram = measure(strategy, histogram, axis)
    return histogram


def _estimate_all(rows: FloatArray, strategies: Sequence[Strategy]) -> FloatArray:
    for axis, strategy in enumerate(strategies):
        rows = estimate(strategy, rows, axis)
    return rows
