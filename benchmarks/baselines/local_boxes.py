"""AHEAD's LLE for boxes over several axes: a tree for each pair of axes, maximum entropy over the parts of a box.

AHEAD has the right inverse-variance weights; a circulated code has them wrong.
**Source**: seed 001, section 4.5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from benchmarks.baselines.maxent import box_share, pair_keys, quarters
from benchmarks.local.simulated import histogram_of_boxes
from benchmarks.local.simulated import tally as tally_of
from dpsql.client.plan import largest_weight
from dpsql.local import ahead
from dpsql.local.oracles.oracle import FloatArray, estimate

Pairs = dict[tuple[int, int], FloatArray]
SWEEPS = 300
"""Most sweeps of maximum entropy; pairs that disagree never settle."""


def adaptive(
    leaves: np.ndarray, sizes: Sequence[int], epsilon: str, rng: np.random.Generator
) -> tuple[np.ndarray, FloatArray]:
    """AHEAD over all axes at once: its finest boxes and their shares from all rounds.

    Returns:
        Boxes (cells, axes, 2) and shares.
    """
    own = largest_weight(Fraction(epsilon))
    rounds, boxes = ahead.round_count(sizes), ahead.first_boxes(sizes)
    theta, done = ahead.threshold(len(leaves), own, sizes), []
    asked = rng.integers(0, rounds, size=len(leaves))
    for number in range(rounds):
        flat = np.ravel_multi_index(tuple(leaves[asked == number].T), tuple(sizes))
        histogram = np.bincount(flat, minlength=math.prod(sizes)).reshape(tuple(sizes))
        oracle = ahead.box_oracle(boxes, own)
        tally = tally_of(oracle, histogram_of_boxes(boxes, histogram), rng).astype(float)
        done.append(ahead.close_round(boxes, estimate(oracle, tally, flat.size), flat.size))
        boxes = ahead.next_boxes(done[-1], theta)
    return done[-1].boxes, ahead.finest_shares(done)


def by_pairs(
    leaves: np.ndarray, sizes: Sequence[int], epsilon: str, boxes: np.ndarray, rng: np.random.Generator
) -> FloatArray:
    """AHEAD, LLE: a tree for every pair of axes, an equal part of the people each."""
    keys, pairs = pair_keys(len(sizes)), {}
    drawn = rng.integers(0, len(keys), size=len(leaves))
    for number, (i, j) in enumerate(keys):
        own = [sizes[i], sizes[j]]
        cells, shares = adaptive(leaves[drawn == number][:, [i, j]], own, epsilon, rng)
        pairs[i, j] = ahead.spread_evenly(cells, shares, own)
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
