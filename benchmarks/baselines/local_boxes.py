"""Baselines, several axes, local: HIO and AHEAD's two extensions (DE, LLE), answering boxes.

Every baseline of several axes is one function `answer(leaves, sizes, epsilon, boxes, rng) -> shares`: one row of
leaves a person, the leaves of each axis, boxes as half-open ranges of shape (queries, axes, 2).

| name       | people are split over | an answer |
|------------|-----------------------|-----------|
| HIO        | all level combinations, the root too | OUE nodes of every axis's minimal cover, multiplied out |
| AHEAD, DE  | rounds | one tree over all axes at once, 2^m children a node, even inside its finest boxes |
| AHEAD, LLE | pairs of axes, then rounds | a tree a pair; maximum entropy over the 2^m parts that a box cuts out |

HIO sends OUE at every size, as seed 001 tells it; where nobody could send so many bits, OLH has the same variance.
AHEAD has the right inverse-variance weights; a circulated code has them wrong.
**Source**: seed 001, sections 3.1 and 4.5; seed 003, section 2.3.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from benchmarks.baselines.maxent import box_share, pair_keys, quarters
from benchmarks.local.simulated import histogram_of_boxes
from benchmarks.local.simulated import tally as tally_of
from dpsql.client.plan import largest_weight
from dpsql.local.mechanisms import ahead
from dpsql.local.mechanisms.truncation import level_edges
from dpsql.local.oracles.aggregators import UnaryEncodingAggregator
from dpsql.local.oracles.oracle import FloatArray, Oracle, estimate

Answer = Callable[[np.ndarray, Sequence[int], str, np.ndarray, np.random.Generator], FloatArray]
Pairs = dict[tuple[int, int], FloatArray]
BRANCHING = 4
SWEEPS = 300
"""Most sweeps of maximum entropy; pairs that disagree never settle."""


class Piece(NamedTuple):
    """Nodes of one level that a range takes: the level (0 is the root), how many, and which leaves they hold."""

    level: int
    nodes: int
    held: np.ndarray


def pieces(low: int, high: int, leaves: int) -> list[Piece]:
    """The minimal cover of a range, coarse nodes first.

    Example:
        >>> [(p.level, p.nodes, p.held.nonzero()[0].tolist()) for p in pieces(3, 12, 16)]
        [(1, 2, [4, 5, 6, 7, 8, 9, 10, 11]), (2, 1, [3])]
    """
    if (low, high) == (0, leaves):
        return [Piece(0, 1, np.ones(leaves, dtype=bool))]
    left = np.zeros(leaves, dtype=bool)
    left[low:high] = True
    found = []
    for level, edges in enumerate(level_edges(leaves, BRANCHING), start=1):
        whole = np.logical_and.reduceat(left, edges[:-1])
        if whole.any():
            held = np.repeat(whole, np.diff(edges))
            found.append(Piece(level, int(whole.sum()), held))
            left = left & ~held
    return found


def hio(
    leaves: np.ndarray, sizes: Sequence[int], epsilon: str, boxes: np.ndarray, rng: np.random.Generator
) -> FloatArray:
    """HIO: each box from the level combinations that it takes, noise drawn in law for the sum of each's nodes."""
    oracle = UnaryEncodingAggregator(2, largest_weight(Fraction(epsilon)))
    depths = [len(level_edges(size, BRANCHING)) + 1 for size in sizes]
    drawn = rng.integers(0, math.prod(depths), size=len(leaves))
    order = np.argsort(drawn, kind="stable")
    grouped = leaves[order]
    first = np.searchsorted(drawn[order], np.arange(math.prod(depths) + 1))
    answers = np.zeros(len(boxes))
    for number, box in enumerate(boxes):
        for choice in itertools.product(*(pieces(*r, s) for r, s in zip(box.tolist(), sizes, strict=True))):
            group = int(np.ravel_multi_index(tuple(p.level for p in choice), depths))
            answers[number] += _nodes_share(oracle, grouped[first[group] : first[group + 1]], choice, rng)
    return answers


def _nodes_share(
    oracle: Oracle, leaves: np.ndarray, choice: Sequence[Piece], rng: np.random.Generator
) -> float:
    """Estimated share of one group in the product of the pieces; OUE's bits of different nodes are independent."""
    if not any(piece.level for piece in choice):
        return 1.0
    if len(leaves) == 0:
        return 0.0
    inside = np.ones(len(leaves), dtype=bool)
    for axis, piece in enumerate(choice):
        inside &= piece.held[leaves[:, axis]]
    own, nodes = int(inside.sum()), math.prod(piece.nodes for piece in choice)
    ones = rng.binomial(own, oracle.law.p) + rng.binomial(len(leaves) * nodes - own, oracle.law.q)
    return float((ones / len(leaves) - nodes * oracle.law.q) / (oracle.law.p - oracle.law.q))


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


def direct(
    leaves: np.ndarray, sizes: Sequence[int], epsilon: str, boxes: np.ndarray, rng: np.random.Generator
) -> FloatArray:
    """AHEAD, DE (on two axes: the quadtree)."""
    cells, shares = adaptive(leaves, sizes, epsilon, rng)
    low = np.maximum(boxes[:, None, :, 0], cells[None, :, :, 0])
    high = np.minimum(boxes[:, None, :, 1], cells[None, :, :, 1])
    part = np.maximum(high - low, 0) / (cells[:, :, 1] - cells[:, :, 0])[None]
    return np.asarray(part.prod(axis=2) @ shares)


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
