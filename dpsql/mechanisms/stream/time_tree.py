"""The time axis that dpsql ships: days, blocks of days, blocks of blocks, with an unbounded chain on top.

Every batch is measured on its own, and every block of batches once more when it closes. The top level is a
chain of blocks without end, so a row pays its path once however long the stream runs, and nothing refuses at
a horizon. Estimates are best linear unbiased (BLUE): inside a closed block the day measurements and the
block measurement correct each other; days of an open block stand alone until it closes. Closed nodes never
reopen.

The covariance after BLUE is the leaves' own variances minus one rank-one term a node:

    C = diag(v) - sum over closed nodes b of gain_b * alpha_b alpha_b'        gain = w / (1 + w S)

with w the precision of the node's measurement, S the variance of its total as its children know it, and
alpha_b the covariance of each leaf with that total. Kept as running sums, this gives any range in one
look-up a level.

| here    | meaning                                                       | unit                        |
|---------|---------------------------------------------------------------|-----------------------------|
| spans   | batches per node, level by level, finest first; 1 is the day  | batches                     |
| budgets | integer share of each level                                   | of sum(budgets)             |
| edges   | boundaries of the nodes of one level                          | batches, half-open, 0-based |
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike

from dpsql.mechanisms.laminar import FloatArray, IntArray
from dpsql.mechanisms.stream.laminar import Currency, unit_variance


@dataclass(frozen=True)
class TimePlan:
    """Which node sizes are measured and what each level may spend.

    Attributes:
        spans: batches per node of each level, finest first; each divides the next. Increments alone: (1,).
        budgets: integer share of each level, >= 1; a row spends all of them, so their sum is the whole
            budget.
    """

    spans: tuple[int, ...] = (1,)
    budgets: tuple[int, ...] = (1,)

    def __post_init__(self) -> None:
        """Refuse spans that do not nest and levels without a budget."""
        if not self.spans or self.spans[0] != 1 or len(self.spans) != len(self.budgets):
            raise ValueError("spans start with 1 and every level needs its budget")
        if any(b % a or b <= a for a, b in pairwise(self.spans)):
            raise ValueError("each span must be a multiple of the one below")
        if min(self.budgets) < 1:
            raise ValueError("every level needs a budget of at least 1")

    @property
    def total(self) -> int:
        """The sum of the levels' budgets: what every row pays, whatever the length of the stream."""
        return sum(self.budgets)

    def variances(self, currency: Currency) -> FloatArray:
        """Noise variance of one node of each level at epsilon = 1 (pure) or rho = 1/2 (zCDP)."""
        return unit_variance(np.array(self.budgets) / self.total, currency)

    def edges(self, batches: int) -> tuple[IntArray, ...]:
        """Boundaries of the closed nodes of each level once `batches` batches have arrived."""
        return tuple(np.arange(0, batches // span + 1, dtype=np.int64) * span for span in self.spans)


@dataclass(frozen=True)
class TimeVariance:
    """Variance of range answers over a time axis after BLUE; build it with `time_variance`.

    Attributes:
        leaf: float64[n + 1], running sum of the leaves' own variances.
        edges: per inner level, the boundaries of its closed nodes (int64).
        alpha: per inner level, running sum over the leaves of alpha (float64[n + 1]).
        gain: per inner level, gain of each node (float64).
        full: per inner level, running sum of gain * S^2 over whole nodes (float64).
    """

    leaf: FloatArray
    edges: tuple[IntArray, ...]
    alpha: tuple[FloatArray, ...]
    gain: tuple[FloatArray, ...]
    full: tuple[FloatArray, ...]

    @property
    def n(self) -> int:
        """Number of batches on the axis."""
        return int(self.leaf.size - 1)

    def ranges(self, lo: ArrayLike, hi: ArrayLike) -> FloatArray:
        """Variance of the sums over the batches [lo, hi), vectorised; 0 where lo == hi.

        Args:
            lo, hi: int arrays with 0 <= lo <= hi <= n.

        Raises:
            ValueError: when a range leaves the axis.
        """
        start, stop = np.asarray(lo, dtype=np.int64), np.asarray(hi, dtype=np.int64)
        if start.size and (start.min() < 0 or stop.max() > self.n or (start > stop).any()):
            raise ValueError("a range must lie inside the batches that have arrived")
        value = self.leaf[stop] - self.leaf[start]
        for edges, alpha, gain, full in zip(self.edges, self.alpha, self.gain, self.full, strict=True):
            if gain.size:
                value = value - _level_gain(start, stop, edges, alpha, gain, full)
        return np.where(start < stop, value, 0.0)

    def covariance(self, lo: ArrayLike, hi: ArrayLike, lo2: ArrayLike, hi2: ArrayLike) -> FloatArray:
        """Covariance of the sums over [lo, hi) and [lo2, hi2), by polarisation of the range variance."""

        def between(a: ArrayLike, b: ArrayLike) -> FloatArray:
            return self.ranges(np.minimum(a, b), np.maximum(a, b))

        value: FloatArray = (between(lo, hi2) + between(hi, lo2) - between(lo, lo2) - between(hi, hi2)) / 2
        return value


def _level_gain(
    start: IntArray, stop: IntArray, edges: IntArray, alpha: FloatArray, gain: FloatArray, full: FloatArray
) -> FloatArray:
    """What the block measurements of one level take off the variance of each range.

    A range meets at most two nodes of a level in part; the nodes between them lie inside it.
    """
    nodes = gain.size
    first = np.minimum(np.searchsorted(edges, start, side="right") - 1, nodes - 1)
    last = np.minimum(np.searchsorted(edges, stop, side="right") - 1, nodes)  # where stop lies
    left = alpha[np.clip(edges[first + 1], start, stop)] - alpha[start]
    right = alpha[stop] - alpha[np.maximum(edges[last], start)]
    inside = gain[first] * left**2
    apart = last > first
    tail = gain[np.minimum(last, nodes - 1)] * right**2 * (last < nodes)
    between = full[np.maximum(last, first + 1)] - full[first + 1]
    return np.asarray(inside + np.where(apart, between + tail, 0.0))


def time_variance(edges: Sequence[IntArray], variances: Sequence[float] | FloatArray) -> TimeVariance:
    """The covariance of a time axis after BLUE, in running sums, O(n) a level.

    Args:
        edges: boundaries of the closed nodes of each level, finest first; level 0 is the batches 0..n.
            Calendar blocks of unequal length are fine as long as the levels nest.
        variances: noise variance of one node of each level.

    Raises:
        ValueError: when the levels do not nest.
    """
    n = int(edges[0][-1])
    share = np.full(n, float(variances[0]))  # covariance of a leaf with its node, before the node's update
    leaf = np.concatenate(([0.0], np.cumsum(share)))
    inner, alphas, gains, fulls = [], [], [], []
    for below, bounds, variance in zip(edges[:-1], edges[1:], variances[1:], strict=True):
        if not np.isin(bounds, below).all():
            raise ValueError("the boundaries of a level must be boundaries of the level below")
        closed = int(bounds[-1])
        alpha = np.concatenate(([0.0], np.cumsum(share[:closed]), np.zeros(n - closed)))
        alpha[closed + 1 :] = alpha[closed]
        total = np.diff(alpha[bounds])
        gain = 1.0 / (variance + total)
        inner.append(bounds)
        alphas.append(alpha)
        gains.append(gain)
        fulls.append(np.concatenate(([0.0], np.cumsum(gain * total**2))))
        share = share.copy()
        share[:closed] *= np.repeat(variance * gain, np.diff(bounds))
    return TimeVariance(leaf, tuple(inner), tuple(alphas), tuple(gains), tuple(fulls))


def time_blue(
    edges: Sequence[IntArray],
    variances: Sequence[float] | FloatArray,
    measured: Sequence[IntArray | FloatArray],
) -> FloatArray:
    """Best linear unbiased estimates of the batches from all closed nodes, one pass up and one down.

    Args:
        edges: boundaries of the closed nodes of each level, finest first (as for `time_variance`).
        variances: noise variance of one node of each level.
        measured: per level, the noisy sums of its closed nodes; further axes may follow the first (shape
            (nodes, ...)) and must already be best estimates inside each time node.

    Returns:
        float64[n, ...], estimates of the batches; sums over nodes are the best estimates of the nodes.

    **Privacy**: post-processing of the noisy sums.
    """
    known: list[tuple[FloatArray, FloatArray]] = [  # per level: best estimate from below, and its variance
        (np.asarray(measured[0], dtype=np.float64), np.full(len(measured[0]), float(variances[0])))
    ]
    sums: list[tuple[FloatArray, IntArray]] = []
    levels = zip(edges[:-1], edges[1:], variances[1:], measured[1:], strict=True)
    for below, bounds, variance, noisy in levels:
        value, own = known[-1]
        cut = np.searchsorted(below, bounds)
        total = _segments(value, cut)
        spread = _segments(own, cut)
        weight = _tall(spread / (spread + variance), total)
        known.append((total + weight * (noisy - total), variance * spread / (variance + spread)))
        sums.append((total, cut))
    best = known[-1][0]
    for (value, own), (total, cut) in zip(reversed(known[:-1]), reversed(sums), strict=True):
        count = np.diff(cut)
        spread = np.repeat(_segments(own, cut), count)
        part = _tall(own[: cut[-1]] / spread, value)
        fixed = value.copy()
        fixed[: cut[-1]] += part * np.repeat(best - total, count, axis=0)
        best = fixed
    return best


def _segments(values: FloatArray, cut: IntArray) -> FloatArray:
    """Sums of `values` between consecutive positions of `cut`, along the first axis."""
    if cut.size < 2:
        return np.zeros((0, *values.shape[1:]))
    return np.add.reduceat(values[: cut[-1]], cut[:-1], axis=0)


def _tall(vector: FloatArray, like: FloatArray) -> FloatArray:
    """A vector over nodes, shaped to multiply an array whose first axis is the nodes."""
    return vector.reshape(-1, *([1] * (like.ndim - 1)))
