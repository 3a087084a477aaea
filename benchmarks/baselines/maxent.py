"""Maximum entropy: the least committed share of a box over m axes that agrees with known shares of pairs.

Each axis is cut in two, inside and outside the queried range; iterative proportional fitting scales the
2^m cells until every pair's four cells agree.
**Source**: docs/method/local.md, "Maximum entropy".
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import numpy as np

from dpsql.local.oracles.oracle import FloatArray

TOLERANCE = 1e-5


def box_share(pairs: Mapping[tuple[int, int], FloatArray], axes: int, limit: int = 1000) -> float:
    """Share of the box "inside on every axis".

    Args:
        pairs: for each pair i < j, non-negative (2, 2) shares; index 1 is inside.
        axes: number of axes m.
        limit: most sweeps.

    Returns:
        The share.

    Example:
        >>> even = np.full((2, 2), 0.25)
        >>> round(box_share({(0, 1): even, (0, 2): even, (1, 2): even}, 3), 6)
        0.125
    """
    return float(fit_cells(pairs, axes, limit)[(1,) * axes])


def fit_cells(pairs: Mapping[tuple[int, int], FloatArray], axes: int, limit: int = 1000) -> FloatArray:
    """All 2^m cells by iterative proportional fitting, stopped when a sweep moves no cell by 1e-5 / 2^m."""
    cells = np.full((2,) * axes, 1 / 2**axes)
    for _ in range(limit):
        before = cells.copy()
        for (i, j), wanted in pairs.items():
            others = tuple(k for k in range(axes) if k not in (i, j))
            held = cells.sum(axis=others)
            factor = np.divide(wanted, held, out=np.zeros((2, 2)), where=held > 0)
            shape = [2 if k in (i, j) else 1 for k in range(axes)]
            cells = cells * factor.reshape(shape)
        if float(np.abs(cells - before).max()) < TOLERANCE / 2**axes:
            break
    return cells


def quarters(joint: FloatArray, first: slice, second: slice) -> FloatArray:
    """Cut a pair's joint shares in four: [0, 0] outside on both axes, [1, 1] inside on both."""
    inside = float(joint[first, second].sum())
    row, column = float(joint[first].sum()), float(joint[:, second].sum())
    total = float(joint.sum())
    cut = np.array([[total - row - column + inside, column - inside], [row - inside, inside]])
    return np.asarray(np.maximum(cut, 0.0))


def pair_keys(axes: int) -> list[tuple[int, int]]:
    """All pairs of axes."""
    return list(itertools.combinations(range(axes), 2))
