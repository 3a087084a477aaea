"""AHEAD's LLE for boxes over several axes: a tree for each pair of axes, maximum entropy over the parts of a box.

AHEAD has the right inverse-variance weights; a circulated code has them wrong.
**Source**: seed 001, section 4.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.baselines.maxent import box_share, pair_keys, quarters
from benchmarks.local.axis import adaptive_rounds
from dpsql.local import ahead
from dpsql.local.oracles.oracle import FloatArray

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
