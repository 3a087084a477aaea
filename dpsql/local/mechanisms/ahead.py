"""Adaptive trees in rounds: each round asks other people, and splits only cells that rise above the noise.

| here     | there | unit |
|----------|-------|------|
| fan-out  | B     | 2 per axis, 2^m in all |
| rounds   | c     | log2 of the largest axis |
| theta    | theta | a cell's share below which splitting costs more noise than it gains detail |

Weights are the inverse variances of all rounds solved together: the two-pass weights in circulation
forget that an unsplit cell is measured again and lose a factor of two.
**Source**: docs/method/local.md, "AHEAD" (1-D, 2-D, DE; LLE is a tree per pair and `maxent`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.local.mechanisms.blue import System, ViewReports, normsub, solve
from dpsql.local.oracles import UnaryEncodingAggregator
from dpsql.local.oracles.oracle import FloatArray, spread

IntArray = NDArray[np.int64]


class AheadRound(NamedTuple):
    """One round: boxes (cells, axes, 2) of half-open bounds, non-negative shares, reports, unbiased shares."""

    boxes: IntArray
    shares: FloatArray
    reports: float
    unbiased: FloatArray | None = None


def round_count(sizes: Sequence[int]) -> int:
    """Number of rounds, and of equal groups of people: log2 of the largest axis, rounded up."""
    return max(1, math.ceil(math.log2(max(sizes))))


def threshold(people: float, own: int, sizes: Sequence[int]) -> float:
    """theta = sqrt((B + 1) Var), Var of one cell in one round.

    Args:
        people: all people of all rounds.
        own: integer weight of the truth.
        sizes: leaves of each axis.

    Returns:
        The share above which a cell is split.
    """
    fan_out = 2 ** len(sizes)
    return math.sqrt((fan_out + 1) * spread(own) * round_count(sizes) / people)


def first_boxes(sizes: Sequence[int]) -> IntArray:
    """The first round's boxes: the whole domain split once along every axis."""
    domain = np.array([[[0, size] for size in sizes]], dtype=np.int64)
    return split(domain, np.ones(1, dtype=bool))


def split(boxes: IntArray, chosen: NDArray[np.bool_]) -> IntArray:
    """Halve the chosen boxes along every axis that is longer than one leaf; keep the others."""
    pieces = [boxes[~chosen]]
    grown = boxes[chosen]
    for axis in range(boxes.shape[1]):
        low, high = grown[:, axis, 0], grown[:, axis, 1]
        middle = (low + high) // 2
        left, right = grown.copy(), grown[middle > low].copy()
        left[:, axis, 1] = np.where(middle > low, middle, high)
        right[:, axis, 0] = middle[middle > low]
        grown = np.concatenate([left, right])
    pieces.append(grown)
    return np.concatenate(pieces)


def next_boxes(done: AheadRound, theta: float) -> IntArray:
    """The next round's boxes."""
    return split(done.boxes, done.shares > theta)


def close_round(boxes: IntArray, shares: FloatArray, reports: float) -> AheadRound:
    """Make a round's unbiased shares a proper histogram."""
    return AheadRound(boxes, normsub(shares), reports, shares)


def box_oracle(boxes: IntArray, own: int) -> UnaryEncodingAggregator:
    """AHEAD's oracle is OUE at every size, so that every round has the same variance."""
    return UnaryEncodingAggregator(len(boxes), own)


def finest_shares(rounds: Sequence[AheadRound]) -> FloatArray:
    """Shares of the last round's boxes from all rounds, by inverse variance under "shares sum to 1"."""
    last = rounds[-1].boxes
    size = len(last)
    precision, pull = np.zeros((size, size)), np.zeros(size)
    for done in rounds:
        inside = _inside(last, done.boxes)
        precision += done.reports * (inside[:, None] == inside[None, :])
        pull += done.reports * done.shares[inside]
    return solve(System(precision, pull)).shares


EVEN, EVEN_MORE = 12.0, 3.0
"""A box of sum s is taken for even up to a variance of s^2 / EVEN of the part that a mask of variance 1 takes: half of
it then errs by 14% of s, as if its slope were drawn from all slopes that leave no leaf negative. Each further axis
divides EVEN by EVEN_MORE, down to 1, all of s in one place: of three axes 12 left 85 to 94% of intervals that cover."""
REDRAWS = 16
"""Redrawn rounds behind the errors of non-negative shares."""


def box_groups(rounds: Sequence[AheadRound], own: int) -> list[ViewReports]:
    """Every round as a group of reports about the last round's boxes."""
    last = rounds[-1].boxes
    groups = []
    for done in rounds:
        design = np.asarray(
            _inside(last, done.boxes)[None, :] == np.arange(len(done.boxes))[:, None], np.float64
        )
        shares = done.shares if done.unbiased is None else done.unbiased
        groups.append(ViewReports(design, shares, done.reports, box_oracle(done.boxes, own)))
    return groups


def positive_boxes(rounds: Sequence[AheadRound]) -> FloatArray:
    """AHEAD's own estimate: proper histograms round by round, together by inverse variance, cut at zero."""
    return normsub(finest_shares(rounds))


def redrawn_errors(rounds: Sequence[AheadRound], own: int, rng: np.random.Generator) -> FloatArray:
    """Products of errors of `positive_boxes` when every round is redrawn around it, (boxes, boxes).

    Args:
        rounds: all rounds; their boxes stay as they are.
        own: integer weight of the truth.
        rng: source of pseudo-random numbers; this is post-processing and protects nobody.
    """
    shares, groups = positive_boxes(rounds), box_groups(rounds, own)
    total = np.zeros((shares.size, shares.size))
    for _ in range(REDRAWS):
        again = []
        for done, group in zip(rounds, groups, strict=True):
            cells = group.design @ shares
            noise = np.sqrt(group.oracle.structure(cells).diagonal / done.reports)
            again.append(
                close_round(done.boxes, cells + noise * rng.standard_normal(cells.size), done.reports)
            )
        off = positive_boxes(again) - shares
        total += np.outer(off, off) / REDRAWS
    return total


def _inside(fine: IntArray, coarse: IntArray) -> IntArray:
    """For each fine box, the coarse box that holds it."""
    covers = (coarse[None, :, :, 0] <= fine[:, None, :, 0]) & (fine[:, None, :, 1] <= coarse[None, :, :, 1])
    return np.asarray(np.argmax(covers.all(axis=2), axis=1), dtype=np.int64)


def spread_evenly(boxes: IntArray, shares: FloatArray, sizes: Sequence[int]) -> FloatArray:
    """Leaf shares when each box is even inside, shape `sizes`."""
    leaves = np.zeros(tuple(sizes))
    for box, share in zip(boxes, shares, strict=True):
        leaves[tuple(slice(lo, hi) for lo, hi in box)] = share / np.prod(box[:, 1] - box[:, 0])
    return leaves
