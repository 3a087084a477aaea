"""Integer rows that add to zero over an axis, and the estimates of all sets of axes that were measured with them.

The rows of `residual.residual_axis` are rounded to integers whose every row adds to zero exactly, so that what is
measured on a set of axes stays orthogonal to what is measured on its subsets, and the closed form stays exact.

| here | there | unit |
|---|---|---|
| B = `dense(strategy)` | R_i, rounded: B 1 = 0 | 1 / total |
| `total` | the largest column norm of B, rounded up | - |
| `gram` | X_i = B' B / total^2 | n x n |
| `drawn[S]` | (kron over S of B_i) (histogram, added up over all other axes) + noise | integers |

**Privacy** Set S alone is rho_S-zCDP, as `view.draw_gaussian` says; together they add up. Estimates are
post-processing.
**Source** central.md section 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isqrt

import numpy as np

from dpsql.mechanisms.central.gaussian import DENSE_SCALE
from dpsql.mechanisms.central.residual import ResidualAxis, Subset, closed_downwards, residual_axis
from dpsql.mechanisms.central.strategy import Strategy, dense, estimate, measure
from dpsql.mechanisms.central.view import NoisyView
from dpsql.tree import FloatArray, IntArray, Workload


def zero_sum_strategy(n: int, workload: Workload | None = None, scale: int = DENSE_SCALE) -> Strategy:
    """The best zero-sum rows of an axis for the declared ranges, in integers.

    Args:
        n: number of leaves, 2 to `gaussian.DENSE_LEAVES`.
        workload: the ranges asked; None means all ranges.
        scale: rows are rounded to multiples of about 1 / scale.

    Raises:
        InterfaceError: for an axis that is too short or too long.

    **Privacy** `total` is the exact largest column norm of the integer rows, rounded up.
    """
    entry = _rounded(scale * residual_axis(n, workload).rows)
    largest = int((entry * entry).sum(axis=0).max())
    total = isqrt(largest - 1) + 1
    return Strategy(
        kind="zero_sum", n=n, start=np.zeros(n, np.int64), stop=np.full(n, n), offset=n * np.arange(n + 1),
        entry=entry.ravel(), budget=np.ones(n, np.int64), total=total, norm=2,
    )  # fmt: skip


def _rounded(rows: FloatArray) -> IntArray:
    """Nearest integers whose every row adds to zero: what is over goes to the entries that were rounded most."""
    entry = np.rint(rows).astype(np.int64)
    for row, exact in zip(entry, rows, strict=True):
        over = int(row.sum())
        if over:
            most = np.argsort((exact - row) * np.sign(over))[: abs(over)]
            row[most] -= np.sign(over)
    return entry


def axis_of(strategy: Strategy) -> ResidualAxis:
    """The rows' Gram matrix, with their own total as the unit."""
    rows = dense(strategy) / strategy.total
    return ResidualAxis(np.asarray(rows.T @ rows, np.float64))


def residual_estimates(
    drawn: Mapping[Subset, NoisyView], strategies: Mapping[int, Strategy]
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


def _deviation(rows: IntArray, part: Subset, strategies: Mapping[int, Strategy]) -> FloatArray:
    """Leaf estimates of what a set has beyond its subsets; they add to zero along every axis."""
    leaves = np.asarray(rows, np.float64)
    for place, axis in enumerate(part):
        leaves = estimate(strategies[axis], leaves, place)
    return leaves


def _added_up(
    deviations: Mapping[Subset, FloatArray], parts: Sequence[Subset], axes: Subset, strategies: Mapping[int, Strategy]
) -> FloatArray:
    """Every part, spread evenly over the axes that it does not hold."""
    total = np.zeros([strategies[axis].n for axis in axes])
    for part in parts:
        away = float(np.prod([strategies[axis].n for axis in axes if axis not in part], initial=1.0))
        total = total + deviations[part].reshape([strategies[a].n if a in part else 1 for a in axes]) / away
    return np.asarray(total, np.float64)


def _measured(leaves: IntArray, part: Subset, axes: Subset, strategies: Mapping[int, Strategy]) -> IntArray:
    """What measuring a part of some leaves would have given without noise."""
    rows = leaves.sum(axis=tuple(place for place, axis in enumerate(axes) if axis not in part))
    for place, axis in enumerate(part):
        rows = measure(strategies[axis], rows, place)
    return np.asarray(rows, np.int64)
