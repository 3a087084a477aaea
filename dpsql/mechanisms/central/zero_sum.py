"""The estimates of all sets of axes that were measured together by zero-sum rows (`axis.zero_sum`).

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

import numpy as np

from dpsql.errors import InternalError
from dpsql.mechanisms.axis.residual_axis import ResidualAxis
from dpsql.mechanisms.axis.strategy import AxisStrategy, estimate, measure
from dpsql.mechanisms.central.residual import Subset, closed_downwards
from dpsql.mechanisms.law import NoisyView
from dpsql.tree import FloatArray, IntArray


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
    drawn: Mapping[Subset, NoisyView], strategies: Mapping[int, AxisStrategy]
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
        total = total + deviations[part].reshape([strategies[a].leaves if a in part else 1 for a in axes]) / away
    return np.asarray(total, np.float64)


def _measured(leaves: IntArray, part: Subset, axes: Subset, strategies: Mapping[int, AxisStrategy]) -> IntArray:
    """What measuring a part of some leaves would have given without noise."""
    rows = leaves.sum(axis=tuple(place for place, axis in enumerate(axes) if axis not in part))
    for place, axis in enumerate(part):
        rows = measure(strategies[axis], rows, place)
    return np.asarray(rows, np.int64)
