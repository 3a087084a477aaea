"""Prefixes over time as signed sums of nested noise nodes: nodes that are taken away, and FDA's Fenwick nodes.

Several strategies answer the prefix of t batches with the noise of a few nested nodes: Fenwick nodes, or nodes
of a k-ary tree that are added and subtracted. From the batches that a node covers, the prefixes that read it (always
one interval of prefix lengths) and its sign follow the optimal budgets, every mean error in closed form, and the
covariance of the batches.

| here             | seed 004               | LUE-DPTree (seed 000) | unit                                          |
|------------------|------------------------|-----------------------|-----------------------------------------------|
| lo, hi           | row i of M             | -                     | batches, half-open, 0-based                   |
| first, stop      | column i of B          | -                     | prefix lengths 0..N that read the node        |
| uses, weight     | B(:, i)' B(:, i)       | p_x, coverage         | how often the node is read                    |
| share            | lambda_i               | eps_x / eps           | fraction of the budget                        |
| variance         | 1 / lambda_i^2         | -                     | noise of variance 1 on a node that spends all |

**Nodes that are taken away.**
Written with digits between -(k-1)/2 and (k-1)/2, a prefix length t needs about k/4 nodes a level instead of
k/2: it rounds t to the nearest multiple of each k^l and adds or takes away whole nodes to get there. A node
that reaches past t is no obstacle: at batch t the exact prefix is published plus the signed *noise* of those nodes, so
only the noise must be drawn ahead, and it stays in the private state until its last use.

Budgets come from the split theorem (`axis.tree.split`) with the use counts as weights; nodes in the middle of their
parent are never read and spend nothing. Budgets are planned for a horizon: past it the strategy refuses. They are
integers, frozen with the stream.

**FDA**: Fenwick nodes with the optimal budgets, in O(log N) per node.

Node i (batch numbers from 1, since lowbit needs them) covers the lowbit(i) batches that end with batch i, as
a half-open 0-based interval [i - lowbit(i), i). The prefix of t batches reads one node per one-bit of t. A batch
publishes its own node, so what is kept are the exact sums at the ends of one chain of nodes.

At epsilon 1 the squared errors of N prefixes add up to 2 err(N) under Laplace noise, with err(0) = 0 and
err(2^k + r) = (err(2^k - 1)^(1/3) + (r + 1)^(1/3))^3 + err(r).

The shares come from closed forms. Inside a complete block of 2^m - 1 nodes the middle node takes a part of the
budget that depends on m alone; the nodes left of it share the rest, those right of it are a problem of their own. So
about 2 log2(N) integers hold all budgets, and they are what is frozen.

| here                 | seed 004                     | unit                                   |
|----------------------|------------------------------|----------------------------------------|
| `fenwick_nodes(n)`   | M and B, algorithms 5.2, 5.3 | node i - 1 is row i of M, column i of B |
| share of a read      | lambda_i                     | fraction of epsilon (Gaussian: of mu^2)|
| `_block_error`       | err_m                        | sum of w_i / lambda_i^2, w_i = uses    |

**Privacy**: what is published is a function of the nodes' noisy sums, since a prefix's exact sum equals the signed sum
of the exact sums of the nodes it reads. The budgets of a path add up to at most 2^30, checked in integers;
under FDA a node's budget is taken off what the nodes inside it may spend.
**Source**: docs/method/views.md, "Nodes that are taken away", "Fenwick nodes" and "FDA".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.matrices.model import PrefixVariance
from dpsql.matrices.strategy import rows_of_ones
from dpsql.mechanisms.axis.tree import split
from dpsql.mechanisms.continual import time_tree
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.mechanisms.offers import Refusal
from dpsql.tree import FloatArray, IntArray, Tree, breadth_first


@dataclass(frozen=True, eq=False)
class NoiseNodes:
    """Nested nodes over the batches 0..horizon-1; column arrays of one length.

    Attributes:
        horizon: number of batches that the budget was planned for.
        lo, hi: the batches [lo, hi) that each node covers.
        first, stop: the prefix lengths t in [first, stop) that read the node.
        sign: +1 or -1, how those prefixes read it.
        parent: number of the enclosing node that is read, -1 at roots.
    """

    horizon: int
    lo: IntArray
    hi: IntArray
    first: IntArray
    stop: IntArray
    sign: IntArray
    parent: IntArray

    @property
    def uses(self) -> IntArray:
        """Number of prefixes that read each node (int64)."""
        return self.stop - self.first

    @cached_property
    def forest(self) -> tuple[Tree, IntArray]:
        """The nodes below a root that nothing reads, and the place of each node in that tree."""
        lo, hi = np.append(self.lo, 0), np.append(self.hi, self.hi.max())
        parent = np.append(np.where(self.parent < 0, self.lo.size, self.parent), -1)
        tree, place = breadth_first(lo, hi, parent)
        return tree, place[:-1]


@dataclass(frozen=True, eq=False)
class NodeVariance:
    """Variance model of batches, differences of prefixes that read nested nodes; stored as `PrefixVariance` is.

    Sparse, so that planning for some thousand batches is fast.

    Args:
        n: number of batches.
        first, stop: the prefix lengths t in [first, stop) that read each node; past n they do not count.
        variance: noise of each node.
    """

    n: int
    first: IntArray
    stop: IntArray
    variance: FloatArray
    kind: ClassVar[str] = PrefixVariance.kind

    @cached_property
    def reads(self) -> tuple[IntArray, IntArray]:
        """The nodes that each prefix reads, one prefix after the other, and where those of each length begin."""
        uses = self.stop - self.first
        node = np.repeat(np.arange(uses.size), uses)
        length = np.arange(node.size) - np.repeat(np.cumsum(uses) - uses - self.first, uses)
        order = np.argsort(length, kind="stable")
        return node[order], np.searchsorted(length[order], np.arange(self.n + 2))

    def ranges(self, lo: ArrayLike, hi: ArrayLike) -> FloatArray:
        """Variance of each half-open range: of the nodes that exactly one of its two prefixes reads."""
        lo, hi = np.broadcast_arrays(*(np.atleast_1d(np.asarray(end, np.int64)) for end in (lo, hi)))
        node, begin = self.reads
        total = np.zeros(len(lo))
        for prefix, other in ((lo, hi), (hi, lo)):
            count = begin[prefix + 1] - begin[prefix]
            query = np.repeat(np.arange(len(lo)), count)
            read = node[np.arange(len(query)) - np.repeat(np.cumsum(count) - count - begin[prefix], count)]
            alone = (other[query] < self.first[read]) | (other[query] >= self.stop[read])
            total += np.bincount(query, self.variance[read] * alone, len(lo))
        return total

    def quadratic(self, masks: ArrayLike) -> FloatArray:
        """u' C u for each row of masks: a node counts with the step of u between its first prefix and its last."""
        u = np.pad(np.asarray(masks, np.float64), ((0, 0), (0, 1)))
        return np.asarray((u[:, self.first - 1] - u[:, self.stop - 1]) ** 2 @ self.variance, np.float64)

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """Those of the dense model."""
        jumps = np.zeros((self.n + 2, self.variance.size))
        column = np.arange(self.variance.size)
        jumps[self.first, column] += 1
        jumps[self.stop, column] -= 1
        change = jumps[1 : self.n + 1]
        return PrefixVariance(np.asarray((change * self.variance) @ change.T)).columns()


def node_budgets(nodes: NoiseNodes, law: NoiseDistribution) -> IntArray:
    """The budgets of least mean prefix error over the horizon, in units of 2^-30 of the spend, rounded down.

    **Source**: docs/method/views.md, "The split theorem", with the use counts as weights.
    """
    tree, place = nodes.forest
    uses = np.zeros(tree.size)
    uses[place] = nodes.uses
    return np.floor(split(tree, uses, law)[place] * time_tree.UNIT).astype(np.int64)


def prefix_strategy(
    kind: str,
    stored: Mapping[str, Any],
    law: NoiseDistribution,
    nodes: NoiseNodes,
    budget: IntArray,
    apart: bool,
) -> time_tree.TimeStrategy:
    """Strategy whose prefixes are signed sums of nested nodes.

    Args:
        kind, stored: the constructor, and its arguments.
        law: the noise.
        nodes: those that prefixes read.
        budget: int64[nodes], in units of 2^-30 of the spend.
        apart: whether each batch publishes the node that ends with it, which its prefix is the first to read; else it
            publishes its whole prefix, with noise of nodes that later batches read again.

    Raises:
        ValueError: budgets that do not fit the nodes, or that a row of some batch cannot pay.
    """
    if budget.shape != nodes.lo.shape or budget.min() < 1 or budget.max() > time_tree.UNIT:
        raise ValueError("every node needs a budget of at least 1, and of the total at most")
    if rows_of_ones(int(nodes.hi.max()), nodes.lo, nodes.hi).column_bound(budget, 1) > time_tree.UNIT:
        raise ValueError("the budgets of a path add up to more than the total")
    # the first batch of what each batch publishes
    start = nodes.lo if apart else np.zeros(nodes.horizon, np.int64)

    def released(batch: int) -> tuple[time_tree.Emission, ...]:
        length, lo = batch + 1, int(start[batch])
        if apart:
            level = (length - lo).bit_length() - 1
            return (
                time_tree.own_node(batch, level, lo, length, Fraction(int(budget[batch]), time_tree.UNIT)),
            )
        reads = tuple(
            time_tree.NodeRead(
                int(i), int(nodes.sign[i]), Fraction(int(budget[i]), time_tree.UNIT), int(nodes.stop[i])
            )
            for i in np.flatnonzero((nodes.first <= length) & (length < nodes.stop))
        )
        return (time_tree.Emission(0, lo, length, reads),)

    def needed(batches: int) -> tuple[int, ...]:
        # where the sums begin that the prefix of all batches so far is made of
        ends = [batches]
        while ends[-1] > 0:
            ends.append(int(start[ends[-1] - 1]))
        return tuple(reversed(ends))

    def estimate(batches: int, published: NDArray[np.generic]) -> FloatArray:
        noisy = time_tree.check_rows(published, batches)
        prefix = np.concatenate([np.zeros((1, *noisy.shape[1:])), noisy])
        for length in range(1, batches + 1):
            prefix[length] += prefix[start[length - 1]]
        return np.diff(prefix, axis=0)

    def variance(batches: int) -> NodeVariance:
        first, stop = np.minimum(nodes.first, batches + 1), np.minimum(nodes.stop, batches + 1)
        return NodeVariance(batches, first, stop, time_tree.share_variance(law, budget / time_tree.UNIT))

    shares = Fraction(int(budget.min()), time_tree.UNIT), Fraction(int(budget.max()), time_tree.UNIT)
    return time_tree.TimeStrategy(
        kind, stored, f"{kind} over {nodes.horizon} batches", law, shares, released, needed, estimate, variance,
        time_tree.in_one_node(law), nodes.horizon,
    )  # fmt: skip


def subtraction_nodes(horizon: int, arity: int, levels: int) -> NoiseNodes:
    """The nodes that the prefixes 0..horizon read, top level first.

    Args:
        horizon: planned number of batches, >= 1.
        arity: odd k >= 3, so that rounding to the nearest multiple has no ties.
        levels: number of node sizes 1, k, .., k^(levels - 1); the top level is a chain of any length.

    Raises:
        ValueError: when the arity is even or below 3, or horizon or levels are below 1.

    **Source**: docs/method/views.md, "Nodes that are taken away"; Andersson, Pagh, Steiner and
    Torkamani (2024), with the split theorem's budgets in place of uniform ones.

    >>> nodes = subtraction_nodes(4, 3, 2)
    >>> list(zip(nodes.lo.tolist(), nodes.hi.tolist(), nodes.sign.tolist(), nodes.uses.tolist()))
    [(0, 3, 1, 3), (0, 1, 1, 1), (2, 3, -1, 1), (3, 4, 1, 1)]
    """
    if arity < 3 or arity % 2 == 0 or horizon < 1 or levels < 1:
        raise ValueError("k-ary subtraction needs an odd arity >= 3, and a horizon and levels >= 1")
    nodes_by_level = [
        _level(horizon, arity, level, top=level == levels - 1) for level in reversed(range(levels))
    ]
    size = np.concatenate(
        [
            np.full(nodes.shape[1], arity**level, dtype=np.int64)
            for level, nodes in zip(reversed(range(levels)), nodes_by_level, strict=True)
        ]
    )
    index, first, stop, sign = np.concatenate(nodes_by_level, axis=1)
    lo = index * size
    return NoiseNodes(horizon, lo, lo + size, first, stop, sign, _parents(lo, size))


def _level(horizon: int, arity: int, level: int, *, top: bool) -> IntArray:
    """Rows index, first, stop, sign of the nodes of one level that some prefix reads.

    Prefix t rounds to the multiple q of the node size when |t - q size| <= (size - 1) / 2. A node left of its
    parent's middle is added for q in (index, middle], one right of it is taken away for q in (middle, index].
    """
    size = arity**level
    reach = (size - 1) // 2
    index = np.arange((horizon + reach) // size + (0 if top else arity), dtype=np.int64)
    if top:
        first, stop = (index + 1) * size - reach, np.full(index.size, horizon + 1)
        sign = np.ones(index.size, dtype=np.int64)
    else:
        middle = index // arity * arity + arity // 2
        is_left = index < middle
        first = (np.where(is_left, index, middle) + 1) * size - reach
        stop = np.where(is_left, middle, index) * size + reach + 1
        sign = np.where(is_left, 1, -1)
    stop = np.minimum(stop, horizon + 1)
    read = stop > first
    return np.stack([index[read], first[read], stop[read], sign[read]])


def _parents(lo: IntArray, size: IntArray) -> IntArray:
    """The nearest enclosing node that is read; past a middle node, which is not, its own parent."""
    parent = np.full(lo.size, -1, dtype=np.int64)
    sizes = np.unique(size)
    for step in sizes[:-1]:
        nodes = np.flatnonzero(size == step)
        for above in sizes[sizes > step]:
            todo = nodes[parent[nodes] < 0]
            start = np.flatnonzero(size == above)
            place = np.searchsorted(lo[start], lo[todo] // above * above)
            place = np.minimum(place, start.size - 1)
            enclosed = lo[start[place]] == lo[todo] // above * above
            parent[todo[enclosed]] = start[place[enclosed]]
    return parent


def subtraction_strategy(
    law: NoiseDistribution, horizon: int, arity: int, levels: int, budget: ArrayLike | None = None
) -> time_tree.TimeStrategy:
    """Prefixes of signed nodes of a k-ary tree.

    Args:
        law: the noise.
        horizon, arity, levels: as of `subtraction_nodes`.
        budget: of each node, in units of 2^-30 of the spend; None for those of least mean prefix error.
    """
    nodes = subtraction_nodes(horizon, arity, levels)
    units = node_budgets(nodes, law) if budget is None else np.asarray(budget, np.int64)
    stored = {"horizon": horizon, "arity": arity, "levels": levels, "budget": units}
    return prefix_strategy("prefix", stored, law, nodes, units, False)


def best_subtraction(question: time_tree.StreamProblem) -> time_tree.TimeStrategy:
    """The arity and number of levels that err least, over the sensible few.

    >>> from dpsql.mechanisms.distribution import LAPLACE
    >>> from dpsql.mechanisms.continual.time_tree import StreamProblem, question_of
    >>> best = best_subtraction(StreamProblem(LAPLACE, 1023, (question_of("prefix", 1),)))
    >>> best.stored["arity"], best.stored["levels"]
    (11, 3)
    """
    trials = []
    for levels in range(1, 9):
        middle = (2 * question.batches) ** (1 / levels)  # where k^levels / 2 is about the horizon
        for arity in sorted({max(3, int(middle * f) // 2 * 2 + 1) for f in (0.7, 0.85, 1.0, 1.15)}):
            if arity <= 41 and arity**levels <= 8 * question.batches * arity:
                strategy = subtraction_strategy(question.law, question.batches, arity, levels)
                trials.append((question.candidate(strategy).error, arity, levels, strategy))
    return min(trials, key=lambda trial: trial[:3])[3]


def fenwick_nodes(horizon: int) -> NoiseNodes:
    """The Fenwick nodes of `horizon` batches, with the prefixes that read them and the nesting.

    Node i is read by the prefixes i .. i + lowbit(i) - 1 and lies inside node i + lowbit(i).

    Raises:
        ValueError: when the horizon is below 1.
    """
    if horizon < 1:
        raise ValueError("the horizon must be at least one batch")
    number = np.arange(1, horizon + 1, dtype=np.int64)
    size = number & -number  # lowbit(i), the value of the lowest one-bit
    above = number + size
    parent = np.where(above <= horizon, above - 1, -1)
    stop = np.minimum(number + size, horizon + 1)
    return NoiseNodes(horizon, number - size, number, number, stop, np.ones(horizon, np.int64), parent)


def fda_strategy(
    law: NoiseDistribution,
    horizon: int,
    corners: Sequence[int] | None = None,
    blocks: Sequence[int] | None = None,
) -> time_tree.TimeStrategy:
    """Fenwick nodes with the budgets of least mean prefix error, by parts of 2^30; each batch publishes its node.

    Args:
        law: the noise.
        horizon: number of batches planned for, at least 1.
        corners: for each one-bit of the horizon, the highest first: the part that the node over its block takes.
        blocks: entry m: the part of what is left that the middle node of a complete block of 2^(m + 1) - 1 nodes takes.
            Without these parts they are those of the split theorem, in closed form.

    Raises:
        ValueError: parts that are not parts, or do not fit the horizon.

    **Source**: docs/method/views.md, "FDA".

    >>> from dpsql.mechanisms.distribution import LAPLACE
    >>> strategy = fda_strategy(LAPLACE, 3)
    >>> [round(float(strategy.emissions(batch)[0].reads[0].share), 6) for batch in range(3)]
    [0.442493, 0.557507, 1.0]
    >>> fda_strategy(LAPLACE, 100).needed(11)
    (0, 8, 10, 11)
    """
    nodes, power = fenwick_nodes(horizon), time_tree.exponent(law)
    ones = [level for level in reversed(range(horizon.bit_length())) if horizon >> level & 1]
    if corners is None or blocks is None:
        corners = [_part(level, horizon % (1 << level) + 1.0, power) for level in ones]
        blocks = [_part(level, float(1 << level), power) for level in range(horizon.bit_length() - 1)]
    fit = len(corners) == len(ones) and len(blocks) == horizon.bit_length() - 1
    if not fit or not all(0 < share <= time_tree.UNIT for share in (*corners, *blocks)):
        raise ValueError("the parts of FDA's budget do not fit its horizon")
    budget = [_block_budgets(high, corner, blocks) for high, corner in zip(ones, corners, strict=True)]
    stored = {"horizon": horizon, "corners": corners, "blocks": blocks}
    return prefix_strategy("fda", stored, law, nodes, np.concatenate(budget), True)


def _block_budgets(high: int, corner: int, blocks: Sequence[int]) -> IntArray:
    """Budgets of the 2^high nodes of a block, the last of which covers it."""
    budget, remaining = (
        np.empty(1 << high, dtype=np.int64),
        np.array([time_tree.UNIT - corner], dtype=np.int64),
    )
    budget[-1] = corner
    for level in reversed(range(high)):
        node_share = remaining * blocks[level] // time_tree.UNIT
        budget[(1 << level) - 1 :: 1 << (level + 1)] = node_share
        # nodes left of a middle node are inside of it; those right of it are a problem of their own
        remaining = np.stack([remaining - node_share, remaining], axis=1).reshape(-1)
    return budget


def _part(level: int, uses: float, power: float) -> int:
    """Share that a node over a complete block of 2^level - 1 nodes takes for itself, of 2^30, rounded down."""
    below, node_cost = _block_error(level, power) ** power, uses**power
    return int(node_cost / (below + node_cost) * time_tree.UNIT)


@lru_cache(maxsize=256)
def _block_error(level: int, power: float) -> float:
    """err_m: the optimum for 2^m - 1 batches. Cached: it depends on m alone."""
    if level == 0:
        return 0.0
    block = _block_error(level - 1, power)
    return float((block**power + float(1 << (level - 1)) ** power) ** (1 / power)) + block


def _fda(question: time_tree.StreamProblem) -> time_tree.TimeStrategy:
    return fda_strategy(question.law, question.batches)


NAMED: Mapping[str, time_tree.Choose] = {
    "fda": time_tree.only(_fda),
    "prefix": time_tree.only(best_subtraction),
}


def offers(question: time_tree.StreamProblem) -> Iterator[time_tree.TimeOffer | Refusal]:
    """FDA's nodes, and the shape of subtraction that errs least."""
    yield time_tree.dense_offer(question, "fda", _fda)
    yield time_tree.dense_offer(question, "prefix", best_subtraction)
