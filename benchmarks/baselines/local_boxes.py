"""AHEAD's LLE for boxes over several axes: a tree for each pair of axes, maximum entropy over the parts of a box.

AHEAD has the right inverse-variance weights; a circulated code has them wrong. Maximum entropy is the least committed
share of a box that agrees with known shares of pairs: each axis is cut in two, inside and outside the queried range,
and iterative proportional fitting scales the 2^m cells until every pair's four cells agree.
**Source**: seed 001, section 4.5; docs/method/local.md, "Maximum entropy".
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np

from benchmarks.local.axis import adaptive_rounds
from dpsql.local import ahead
from dpsql.local.oracles.oracle import FloatArray

TOLERANCE = 1e-5
Pairs = dict[tuple[int, int], FloatArray]
SWEEPS = 300
"""Most sweeps of maximum entropy; pairs that disagree never settle."""


def by_pairs(
    leaves: np.ndarray, sizes: Sequence[int], epsilon: str, boxes: np.ndarray, rng: np.random.Generator
) -> FloatArray:
    """AHEAD, LLE: a tree for every pair of axes, an equal part of the people each."""
    keys, pairs = pair_keys(len(sizes)), {}
    drawn = rng.integers(0, len(keys), size=len(leaves))
    for number, (i, j) in enumerate(keys):
        own, mine = [sizes[i], sizes[j]], leaves[drawn == number][:, [i, j]]
        rounds = ahead.round_count(own)
        asked = rng.integers(0, rounds, size=len(mine))
        flat = [np.ravel_multi_index(tuple(mine[asked == turn].T), tuple(own)) for turn in range(rounds)]
        tables = (np.bincount(each, minlength=math.prod(own)).reshape(own) for each in flat)
        pairs[i, j] = adaptive_rounds(tables, len(mine), own, epsilon, rng)
    return pair_answers(pairs, boxes)


def pair_answers(pairs: Pairs, boxes: np.ndarray) -> FloatArray:
    """Boxes from tables of all pairs: read off with two axes, by maximum entropy with more."""
    axes = boxes.shape[1]
    found = []
    for box in boxes.tolist():
        cuts = [slice(low, high) for low, high in box]
        if axes == 2:
            found.append(float(pairs[0, 1][tuple(cuts)].sum()))
            continue
        cut = {(i, j): quarters(table, cuts[i], cuts[j]) for (i, j), table in pairs.items()}
        found.append(box_share(cut, axes, SWEEPS))
    return np.array(found)


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
