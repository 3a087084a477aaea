"""The time axis that serves every question: batches, blocks of batches, blocks of blocks, with a chain on top.

Every batch is measured on its own, and every block of batches once more when it closes. The top level is a
chain of blocks without end, so a row pays its path once however long the stream runs, and nothing refuses at
a horizon. Estimates are best linear unbiased (BLUE): inside a closed block the day measurements and the
block measurement correct each other; days of an open block stand alone until it closes. Closed nodes never
reopen. Without blocks each batch stands alone.

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

**Privacy**: a row lies in one node of each level, so it pays sum(budgets) / sum(budgets) = 1.
**Source**: docs/method/streams.md, "Blocks of batches".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise, product
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.matrices import AxisVariance
from dpsql.matrices.leaves import IdentityVariance
from dpsql.matrices.tree import TreeVariance
from dpsql.mechanisms.continual.nodes import window_starts
from dpsql.mechanisms.continual.time_strategy import (
    Emission,
    Frozen,
    Kinds,
    NamedTimeStrategy,
    NodeRead,
    StreamProblem,
    TimeCandidate,
    TimeOffer,
    TimeStrategy,
    check_rows,
    only,
    refuse_past,
    share_variance,
)
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.mechanisms.offers import Refusal
from dpsql.tree import FloatArray, IntArray, Tree, tree_from_arrays


@dataclass(frozen=True)
class TimeTreeStrategy:
    """Node sizes that are measured, with the budget of each level.

    Args:
        law: the noise.
        spans: batches per node of each level, finest first; each divides the next. Single batches alone: (1,).
        budgets: integer share of each level, >= 1; a row spends all of them, so their sum is the whole
            budget.
    """

    kind: ClassVar[str] = "tree"
    ahead: ClassVar[None] = None
    horizon: ClassVar[None] = None
    law: NoiseDistribution
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
    def name(self) -> str:
        if len(self.spans) == 1:
            return "each batch on its own"
        blocks = ", ".join(map(str, self.spans[1:]))
        return f"batches and blocks of {blocks}, budgets {':'.join(map(str, self.budgets))}"

    def emissions(self, batch: int) -> tuple[Emission, ...]:
        """See `TimeStrategy`. Node numbers interleave the levels, so they never clash.

        >>> from dpsql.mechanisms.distribution import LAPLACE
        >>> tree = TimeTreeStrategy(LAPLACE, (1, 4), (6, 4))
        >>> [(e.level, e.lo, e.hi, str(e.reads[0].share)) for e in tree.emissions(3)]
        [(0, 3, 4, '3/5'), (1, 0, 4, '2/5')]
        """
        refuse_past(self, batch)
        length, emissions = batch + 1, []
        for level, (span, budget) in enumerate(zip(self.spans, self.budgets, strict=True)):
            if length % span == 0:
                node = (length // span - 1) * len(self.spans) + level
                read = NodeRead(node, 1, Fraction(budget, sum(self.budgets)), length + 1)
                emissions.append(Emission(level, length - span, length, (read,)))
        return tuple(emissions)

    def needed(self, batches: int) -> tuple[int, ...]:
        return tuple(sorted({batches // span * span for span in self.spans}))

    def shares(self) -> tuple[Fraction, Fraction]:
        return Fraction(min(self.budgets), sum(self.budgets)), Fraction(max(self.budgets), sum(self.budgets))

    def price(self, batches: int) -> Fraction:
        """See `TimeStrategy`. At each level the dearest way to be in so many batches is to fill blocks.

        >>> from dpsql.mechanisms.distribution import GAUSSIAN
        >>> str(TimeTreeStrategy(GAUSSIAN, (1, 4), (6, 4)).price(6))
        '58/5'
        """
        paid = (
            budget * (batches // span * span**self.law.norm + (batches % span) ** self.law.norm)
            for span, budget in zip(self.spans, self.budgets, strict=True)
        )
        return Fraction(sum(paid), sum(self.budgets))

    def estimate(self, batches: int, published: NDArray[np.generic]) -> FloatArray:
        length = np.arange(1, batches + 1)
        level = np.nonzero(np.stack([length % span == 0 for span in self.spans], axis=1))[1]  # of each number
        noisy = check_rows(published, level.size)
        edges = self.edges(batches)
        return time_blue(edges, self.level_variance, [noisy[level == i] for i in range(len(edges))])

    def variance(self, batches: int) -> AxisVariance:
        """See `TimeStrategy`. The closed nodes as a tree under one root that is not measured."""
        weight = 1 / self.level_variance[::-1]  # precision per unit noise, coarsest level first
        if len(self.spans) == 1 or batches < self.spans[1]:
            return IdentityVariance(batches, float(1 / weight[-1]))
        bounds = [edges for edges in reversed(self.edges(batches)) if edges.size > 1]
        lo, hi = [np.array([0])], [np.array([batches])]
        precision, parent = [np.array([0.0])], [np.array([-1])]
        if bounds[0].size == 2 and bounds[0][1] == batches:  # the root is itself a closed node
            bounds, precision = bounds[1:], [weight[len(self.spans) - len(bounds), None]]
        start = 0  # number of the first node of the level above
        for edges, node_precision in zip(bounds, weight[len(self.spans) - len(bounds) :], strict=True):
            above = np.append(lo[-1], hi[-1][-1])  # nodes past the last closed one hang from the root
            place = np.searchsorted(above, edges[:-1], side="right") - 1
            parent.append(np.where(place < lo[-1].size, start + place, 0))
            start += lo[-1].size
            lo.append(edges[:-1])
            hi.append(edges[1:])
            precision.append(np.full(edges.size - 1, node_precision))
        low, high = np.concatenate(lo), np.concatenate(hi)
        tree = tree_from_arrays(low, high, np.concatenate(parent))
        return TreeVariance(tree, _in_order(tree, low, high, np.concatenate(precision)))

    def errors(self, batches: int) -> TreeErrors:
        levels = self.law.error_at_unit_budget * self.level_variance
        return TreeErrors(self.spans, levels, time_variance(self.edges(batches), levels))

    def frozen(self) -> dict[str, Any]:
        return {"spans": list(self.spans), "budgets": list(self.budgets)}

    @property
    def level_variance(self) -> FloatArray:
        """Noise variance of one node of each level, against a node that spends all."""
        return share_variance(self.law, np.array(self.budgets) / sum(self.budgets))

    def edges(self, batches: int) -> tuple[IntArray, ...]:
        """Boundaries of the closed nodes of each level once `batches` batches have arrived."""
        return tuple(np.arange(0, batches // span + 1, dtype=np.int64) * span for span in self.spans)


class TreeErrors(NamedTuple):
    """Errors of a tree, exact and in O(n) a level.

    Args:
        spans: batches per node of each level.
        levels: variance of one node of each level.
        axis: the covariance of all batches.
    """

    spans: tuple[int, ...]
    levels: FloatArray
    axis: TimeVariance

    def running(self) -> float:
        return float(self.running_totals().mean())

    def running_totals(self) -> FloatArray:
        """Variance of the total so far at each batch, asked on the spot, when open blocks lack theirs.

        >>> from dpsql.mechanisms.distribution import LAPLACE
        >>> TimeTreeStrategy(LAPLACE, (1, 2), (1, 1)).errors(3).running_totals().round(4).tolist()
        [8.0, 5.3333, 13.3333]
        """
        length = np.arange(1, self.axis.n + 1, dtype=np.int64)
        value = np.zeros(self.axis.n)
        closed = 0.0  # variance of a closed node of this level, given all below it
        for level, (span, variance) in enumerate(zip(self.spans, self.levels.tolist(), strict=True)):
            below = closed * (span // self.spans[level - 1]) if level else np.inf
            closed = variance if level == 0 else below * variance / (below + variance)
            top = level + 1 == len(self.spans)
            count = length // span if top else length % self.spans[level + 1] // span
            value += count * closed
        return value

    def prefix(self) -> float:
        stop = np.arange(1, self.axis.n + 1)
        return float(self.axis.ranges(np.zeros_like(stop), stop).mean())

    def range(self) -> float:
        """See `TimeErrors`. Without visiting them.

        Leaf i lies in (i + 1)(n - i) ranges. A node's term is gain * (A(t) - A(s))^2 with A its running alpha,
        and the sum of squared differences over all pairs of the n + 1 positions is (n + 1) sum A^2 - (sum A)^2.
        """
        n, axis = self.axis.n, self.axis
        place = np.arange(n, dtype=np.float64)
        value = float(np.diff(axis.leaf) @ ((place + 1) * (n - place)))
        for edges, alpha, gain in zip(axis.edges, axis.alpha, axis.gain, strict=True):
            if gain.size:
                value -= float(gain @ _pair_sums(n, edges, alpha))
        return value / (n * (n + 1) / 2)

    def window(self, length: int) -> float:
        start = np.arange(window_starts(self.axis.n, length))
        return float(self.axis.ranges(start, start + length).mean())


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


def _level_gain(
    start: IntArray, stop: IntArray, edges: IntArray, alpha: FloatArray, gain: FloatArray, full: FloatArray
) -> FloatArray:
    """Reduction of each range's variance by the block measurements of one level.

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
    fits: list[tuple[FloatArray, FloatArray]] = [  # per level: best estimate from below, and its variance
        (np.asarray(measured[0], dtype=np.float64), np.full(len(measured[0]), float(variances[0])))
    ]
    sums: list[tuple[FloatArray, IntArray]] = []
    levels = zip(edges[:-1], edges[1:], variances[1:], measured[1:], strict=True)
    for below, bounds, variance, noisy in levels:
        value, value_variance = fits[-1]
        cut = np.searchsorted(below, bounds)
        total = _segments(value, cut)
        spread = _segments(value_variance, cut)
        weight = _tall(spread / (spread + variance), total)
        fits.append((total + weight * (noisy - total), variance * spread / (variance + spread)))
        sums.append((total, cut))
    best = fits[-1][0]
    for (value, value_variance), (total, cut) in zip(reversed(fits[:-1]), reversed(sums), strict=True):
        count = np.diff(cut)
        spread = np.repeat(_segments(value_variance, cut), count)
        share = _tall(value_variance[: cut[-1]] / spread, value)
        fixed = value.copy()
        fixed[: cut[-1]] += share * np.repeat(best - total, count, axis=0)
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


def _pair_sums(n: int, edges: IntArray, alpha: FloatArray) -> FloatArray:
    """Per node of one level: the squared difference of its running alpha, summed over pairs of positions."""
    closed = int(edges[-1])
    rise = alpha[1 : closed + 1] - np.repeat(alpha[edges[:-1]], np.diff(edges))
    total = np.diff(alpha[edges])
    tail_length = (n - edges[1:]).astype(np.float64)  # positions past the node, where A stays at its total
    first = np.add.reduceat(rise, edges[:-1]) + total * tail_length
    second = np.add.reduceat(rise**2, edges[:-1]) + total**2 * tail_length
    return np.asarray((n + 1) * second - first**2)


def _in_order(tree: Tree, lo: IntArray, hi: IntArray, precision: FloatArray) -> FloatArray:
    """The nodes' precisions in the tree's order; no two nodes cover the same batches."""
    source, wanted = np.lexsort((hi, lo)), np.lexsort((tree.hi, tree.lo))
    out = np.empty(lo.size)
    out[wanted] = precision[source]
    return out


class TimeTreeShape(NamedTuple):
    """Batches per node of each level, and its budget."""

    spans: tuple[int, ...]
    budgets: tuple[int, ...]


ALONE = TimeTreeShape((1,), (1,))


def _grid(batches: int) -> Iterator[TimeTreeShape]:
    """Spans and budgets on a coarse grid: neighbours on it differ by a few percent of error."""
    if 8 <= batches <= 5_000:
        for span, share in product((4, 7, 14, 20, 24, 28, 40, 60), (3, 4, 5, 6, 7, 8)):
            if 2 * span <= batches:
                yield TimeTreeShape((1, span), (share, 10 - share))
    if 60 <= batches <= 60_000:
        shares = ((4, 3, 3), (5, 3, 2), (3, 3, 4), (6, 2, 2))
        for span, above, budgets in product((7, 11, 14, 20, 28), (4, 8, 12), shares):
            if 2 * span * above <= batches:
                yield TimeTreeShape((1, span, span * above), budgets)
    if batches > 60:
        depths = (3,) if batches <= 5_000 else (4, 5) if batches > 60_000 else (4,)
        for depth, span, finest_budget in product(depths, (8, 12, 16), (3, 4, 6)):
            if 2 * span ** (depth - 1) <= batches:
                yield TimeTreeShape(
                    tuple(span**level for level in range(depth)), (finest_budget,) + (3,) * (depth - 1)
                )


def _best(question: StreamProblem, shapes: Iterable[TimeTreeShape]) -> TimeCandidate:
    trees = (question.candidate(TimeTreeStrategy(question.law, *shape)) for shape in shapes)
    return min(trees, key=lambda candidate: (candidate.error, candidate.name))


def _tree(question: StreamProblem) -> TimeStrategy:
    return _best(question, (ALONE, *_grid(question.batches))).strategy


def _thawed(law: NoiseDistribution, frozen: Frozen) -> TimeTreeStrategy:
    spans, budgets = (tuple(map(int, frozen[name])) for name in ("spans", "budgets"))
    return TimeTreeStrategy(law, spans, budgets)


NAMED: Mapping[str, NamedTimeStrategy] = {"tree": only(_tree, tuned=True)}
KINDS: Kinds = {"tree": _thawed}


def offers(question: StreamProblem) -> Iterator[TimeOffer | Refusal]:
    """Batches alone, and the blocks that err least."""
    yield TimeOffer("each batch on its own", 0.0, partial(_best, question, (ALONE,)))
    shapes = tuple(_grid(question.batches))
    if shapes:
        yield TimeOffer("blocks of batches", 0.0, partial(_best, question, shapes))
    else:
        yield Refusal("blocks of batches", f"{question.batches} batches are too few for blocks")
