"""One smooth fit of a few axes together, from every view that touches them.

Pairs' grids say how axes hang together, one-axis trees say where the mass is; fitting one positive table
to all of them beats fitting pairs first and joining by maximum entropy, because each view's noise is
weighed once.

| here        | there                              | unit |
|-------------|------------------------------------|------|
| table       | p = softmax(features @ weights)    | shares of all cells of the set |
| features    | main effects and interactions, in `lattice` | |
| `Strength`  | l1, l2, r                          | weights of the roughness penalties |

What three axes do together is held much more loosely than pairs (`WIDE_BEND`, `WIDE_RIDGE`): how smooth pairs are says
nothing about it. With the pairs' own penalties a wave that only three axes show was 10% too flat at epsilon 5, and no
redrawn reports told; held loosely it errs a sixth of that, in squares, and its posterior variance is honest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.local.lattice import Model
from dpsql.mechanisms.local.logs import softmax
from dpsql.mechanisms.oracles.oracle import FloatArray

IntArray = NDArray[np.int64]
WIDE_BEND = 1.0
WIDE_RIDGE = 0.01
"""Penalties of interactions of three axes or more, in squared logarithms: a lattice point may well be a factor of e off
the line through its neighbours."""

CLOSE = 1e-5
"""Relative gain of a step below which a fit is done: a hundredth of a unit of log-likelihood changes no answer."""


@dataclass(frozen=True)
class Marginal:
    """Cells of one view, restricted to the axes of the set.

    Args:
        axes: positions inside the set, increasing.
        edges: cell boundaries per axis.
        shares: unbiased shares, shape (cells per axis, ...).
        variance: their variances, same shape.
    """

    axes: tuple[int, ...]
    edges: tuple[IntArray, ...]
    shares: FloatArray
    variance: FloatArray


class Strength(NamedTuple):
    """Weights of |D^3 main|^2 / 2, of |D^2 pair|^2 / 2 along both lattice axes, and of the pairs' ridge."""

    main: float
    pair: float
    ridge: float


def marginal_of(table: FloatArray, marginal: Marginal) -> FloatArray:
    """Add a table over the set's axes up to a view's cells."""
    pooled = table.sum(axis=tuple(a for a in range(table.ndim) if a not in marginal.axes))
    for position, edges in enumerate(marginal.edges):
        pooled = np.add.reduceat(pooled, edges[:-1], axis=position)
    return np.asarray(pooled)


def fit(
    model: Model, views: Sequence[Marginal], strength: Strength, start: FloatArray | None = None
) -> FloatArray:
    """Fit the table by Gauss-Newton steps with Levenberg damping and a gradient test.

    Args:
        model: features of the set.
        views: what was observed.
        strength: penalties.
        start: weights to start from; zeros (an even table) if None.

    Returns:
        The fitted weights; `table_of` turns them into shares.
    """
    weights = np.zeros(model.features.shape[1]) if start is None else start
    stiff = _stiffness(model, strength)
    damping, easier = 1e-3, 6.0
    value, slope, curve = _objective(model, views, stiff, weights)
    goal = 1e-6 * max(float(np.abs(slope).max()), 1.0)
    for _ in range(60):
        if float(np.abs(slope).max()) < goal or damping > 1e8:
            break
        held = np.diag(curve)
        step = np.linalg.solve(curve + np.diag(damping * held + 1e-9 * held.mean()), -slope)
        tried = weights + np.clip(step, -4, 4)
        if _value(model, views, stiff, tried) <= value:
            before, weights, damping, easier = value, tried, max(damping / easier, 1e-9), 6.0
            value, slope, curve = _objective(model, views, stiff, weights)
            if before - value < CLOSE * (1 + abs(value)):
                break
        else:
            damping, easier = damping * 5, 1.0  # what just failed is not tried again at once
    return weights


def posterior(model: Model, views: Sequence[Marginal], strength: Strength, weights: FloatArray) -> FloatArray:
    """Posterior spread of a fitted table, the penalties read as a normal prior of the weights.

    Over boxes it is close to the mean square error, the pull of the penalties included (Nychka 1988 on smoothing
    splines), where fits to redrawn reports only show the noise.

    Args:
        model: features of the set.
        views: what was observed.
        strength: penalties of the fit.
        weights: the fit.

    Returns:
        A factor of the covariance of all cells, shape (*sizes, weights): covariance = factor factor'.
    """
    _, _, curve = _objective(model, views, _stiffness(model, strength), weights)
    curve += 1e-9 * float(np.diag(curve).mean()) * np.eye(weights.size)
    flat = table_of(model, weights).reshape(-1)
    moved = (model.features - flat @ model.features) * flat[:, None]
    factor = np.linalg.solve(np.linalg.cholesky(curve), moved.T).T
    return np.asarray(factor.reshape(*model.sizes, -1))


def table_of(model: Model, weights: FloatArray) -> FloatArray:
    """Shares of all cells, shape `sizes`."""
    return softmax(model.features @ weights).reshape(model.sizes)


def _stiffness(model: Model, strength: Strength) -> FloatArray:
    ridge = np.select([model.width == 1, model.width == 2], [1e-3, strength.ridge], WIDE_RIDGE)
    return np.asarray(
        strength.main * model.rough_main.T @ model.rough_main
        + strength.pair * model.rough_pair.T @ model.rough_pair
        + WIDE_BEND * model.rough_wide.T @ model.rough_wide
        + np.diag(ridge)
    )


def _value(model: Model, views: Sequence[Marginal], stiff: FloatArray, weights: FloatArray) -> float:
    table = table_of(model, weights)
    misfit = sum(float(np.sum((marginal_of(table, v) - v.shares) ** 2 / v.variance)) for v in views)
    return misfit / 2 + float(weights @ stiff @ weights) / 2


def _objective(
    model: Model, views: Sequence[Marginal], stiff: FloatArray, weights: FloatArray
) -> tuple[float, FloatArray, FloatArray]:
    """Value, gradient and Gauss-Newton curvature."""
    table = table_of(model, weights)
    flat = table.reshape(-1)
    moved = (model.features - flat @ model.features) * flat[:, None]
    pooled: dict[tuple[int, ...], FloatArray] = {}
    value = float(weights @ stiff @ weights) / 2
    slope, curve = stiff @ weights, stiff.copy()
    for view in views:
        if view.axes not in pooled:
            others = tuple(a for a in range(len(model.sizes)) if a not in view.axes)
            pooled[view.axes] = moved.reshape((*model.sizes, -1)).sum(axis=others)
        residual = (marginal_of(table, view) - view.shares).reshape(-1)
        precision = 1 / view.variance.reshape(-1)
        jacobian = _in_cells(pooled[view.axes], view)
        value += float(residual @ (precision * residual)) / 2
        slope = slope + jacobian.T @ (precision * residual)
        curve += jacobian.T @ (jacobian * precision[:, None])
    return value, slope, curve


def _in_cells(pooled: FloatArray, view: Marginal) -> FloatArray:
    for position, edges in enumerate(view.edges):
        if len(edges) <= pooled.shape[position]:
            pooled = np.add.reduceat(pooled, edges[:-1], axis=position)
    return np.asarray(pooled.reshape(-1, pooled.shape[-1]))
