"""Nested noise nodes over time: how the budget is split over them, how exact what they answer is; signed nodes.

Several strategies answer the prefix of t batches with the noise of a few nested nodes: Fenwick nodes (`fda`), or nodes
of a k-ary tree that are added and subtracted. From the batches that a node covers, the prefixes that read it (always
one interval of prefix lengths) and its sign follow the optimal budgets, every mean error in closed form, and the
covariance of the batches.

**The split theorem.** In a forest of nested nodes every row pays the shares of one path. Node i is used with weight
w_i, and its noise variance falls as share^-2 (Laplace, shares of epsilon) or share^-1 (Gaussian, shares of mu^2). The
split of least weighted variance is closed form, bottom-up once and top-down once; the KKT conditions hold for it:

    T_i = (w_i^a + S_i^a)^(1/a)     S_i = sum of T over the children     a = 1/3 (Laplace) or 1/2 (Gaussian)
    share_i = s_i w_i^a / (w_i^a + S_i^a)        what a child may still spend = s_i S_i^a / (w_i^a + S_i^a)

| here             | seed 004               | LUE-DPTree (seed 000) | unit                                          |
|------------------|------------------------|-----------------------|-----------------------------------------------|
| lo, hi           | row i of M             | -                     | batches, half-open, 0-based                   |
| first, stop      | column i of B          | -                     | prefix lengths 0..N that read the node        |
| uses, weight     | B(:, i)' B(:, i)       | p_x, coverage         | how often the node is read                    |
| share            | lambda_i               | eps_x / eps           | fraction of the budget                        |
| variance         | 1 / lambda_i^2         | -                     | noise of variance 1 on a node that spends all |
| optimum          | err                    | pre-BLUE error / 2    | variance at unit budget                       |

**Nodes that are taken away.**
Written with digits between -(k-1)/2 and (k-1)/2, a prefix length t needs about k/4 nodes a level instead of
k/2: it rounds t to the nearest multiple of each k^l and adds or takes away whole nodes to get there. A node
that reaches past t is no obstacle: at batch t the exact prefix is published plus the signed *noise* of those nodes, so
only the noise must be drawn ahead, and it stays in the private state until its last use.

Budgets come from the general split theorem with the use counts as weights; nodes in the middle of their
parent are never read and spend nothing. Budgets are planned for a horizon: past it the strategy refuses. They are
integers, frozen with the stream.

**Privacy**: what is published is a function of the nodes' noisy sums, since a prefix's exact sum equals the signed sum
of the exact sums of the nodes it reads. The budgets of a path add up to at most 2^30, checked in integers.
**Source**: docs/method/streams.md, "Nodes that are taken away".
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpsql.matrices.leaves import PrefixVariance
from dpsql.mechanisms.continual.time_strategy import (
    UNIT,
    Emission,
    Frozen,
    Kinds,
    NamedTimeStrategy,
    NodeRead,
    SettledEstimates,
    StreamProblem,
    TimeOffer,
    check_rows,
    dense_offer,
    exponent,
    only,
    refuse_past,
    share_variance,
)
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.mechanisms.offers import Refusal
from dpsql.tree import FloatArray, IntArray


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

    def within(self, batches: int) -> NoiseNodes:
        """The same nodes as the prefixes of the first batches alone read them."""
        first, stop = np.minimum(self.first, batches + 1), np.minimum(self.stop, batches + 1)
        return replace(self, horizon=batches, first=first, stop=stop)


@dataclass(frozen=True, eq=False)
class NodeVariance:
    """Variance model of batches, differences of prefixes that read nested nodes; stored as `PrefixVariance` is.

    Sparse, so that planning for some thousand batches is fast.

    Args:
        nodes: as the prefixes of these batches read them.
        variance: noise of each node.
    """

    nodes: NoiseNodes
    variance: FloatArray
    kind: ClassVar[str] = PrefixVariance.kind

    @property
    def n(self) -> int:
        return self.nodes.horizon

    @cached_property
    def reads(self) -> tuple[IntArray, IntArray]:
        """The nodes that each prefix reads, one prefix after the other, and where those of each length begin."""
        uses, first = self.nodes.uses, self.nodes.first
        node = np.repeat(np.arange(uses.size), uses)
        length = np.arange(node.size) - np.repeat(np.cumsum(uses) - uses - first, uses)
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
            alone = (other[query] < self.nodes.first[read]) | (other[query] >= self.nodes.stop[read])
            total += np.bincount(query, self.variance[read] * alone, len(lo))
        return total

    def quadratic(self, masks: ArrayLike) -> FloatArray:
        """u' C u for each row of masks: a node counts with the step of u between its first prefix and its last."""
        u = np.pad(np.asarray(masks, np.float64), ((0, 0), (0, 1)))
        steps = u[:, self.nodes.first - 1] - u[:, self.nodes.stop - 1]
        return np.asarray(steps**2 @ self.variance, np.float64)

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """Those of the dense model."""
        jumps = np.zeros((self.n + 2, self.variance.size))
        column = np.arange(self.variance.size)
        jumps[self.nodes.first, column] += 1
        jumps[self.nodes.stop, column] -= 1
        change = jumps[1 : self.n + 1]
        return PrefixVariance(np.asarray((change * self.variance) @ change.T)).columns()


def node_depth(parent: ArrayLike) -> IntArray:
    """Depth of every node of a forest, by pointer doubling.

    Args:
        parent: int[n], the parent of each node, -1 at roots; any order.

    Returns:
        int64[n], 0 at roots.

    Raises:
        ValueError: when a parent is out of range or the pointers hold a cycle.

    >>> node_depth([1, 2, -1, 2]).tolist()
    [2, 1, 0, 1]
    """
    above = np.asarray(parent, dtype=np.int64)
    n = above.size
    if n and (above.min() < -1 or above.max() >= n):
        raise ValueError("a parent must be -1 or the number of a node")
    jump = np.append(np.where(above < 0, n, above), n)  # one sentinel above all roots
    depth: IntArray = (jump != n).astype(np.int64)
    for _ in range(n.bit_length() + 1):
        if (jump == n).all():
            return np.asarray(depth[:n])
        depth += depth[jump]
        jump = jump[jump]
    raise ValueError("the parents form a cycle")


def optimal_split(
    parent: ArrayLike, weight: ArrayLike, law: NoiseDistribution
) -> tuple[FloatArray, FloatArray]:
    """The split of one budget per root that minimises sum of weight_i * variance_i, and what it reaches.

    Args:
        parent: int[n], the parent of each node, -1 at roots; any order, any shape.
        weight: float[n] >= 0, how much the variance of each node counts.
        law: the noise; shares are of what it spends.

    Returns:
        Shares, float64[n], the part of each root's budget that each node spends, 0 where the weight is 0; and
        optima, float64[n], T_i, the least weighted variance of the subtree of i at budget 1. That of the whole is their
        sum over the roots.

    Raises:
        ValueError: when the shapes differ, or a weight is negative or not finite.

    **Privacy**: shares along every root-to-leaf path add up to at most 1 (up to float rounding; integer
    budgets are rounded down and checked by the caller). Weights must be public: they may depend on the
    workload, never on data.

    **Source**: docs/method/streams.md, "The split theorem".

    >>> from dpsql.mechanisms.distribution import LAPLACE
    >>> shares, optimum = optimal_split([1, -1, -1], [1, 2, 1], LAPLACE)  # the Fenwick tree over three batches
    >>> shares.round(6).tolist(), round(float(optimum[1:].sum()), 6)
    ([0.442493, 0.557507, 1.0], 12.541966)
    """
    above = np.asarray(parent, dtype=np.int64)
    uses = np.asarray(weight, dtype=np.float64)
    if above.shape != uses.shape or above.ndim != 1:
        raise ValueError("parent and weight must be vectors of one length")
    if uses.size and not (np.isfinite(uses).all() and uses.min() >= 0):
        raise ValueError("weights must be finite and not negative")
    depth = node_depth(above)
    order = np.argsort(depth, kind="stable")
    levels = np.split(order, np.cumsum(np.bincount(depth))[:-1]) if depth.size else []
    return _two_passes(above, uses ** exponent(law), exponent(law), levels)


def _two_passes(
    above: IntArray, own: FloatArray, power: float, levels: list[IntArray]
) -> tuple[FloatArray, FloatArray]:
    """Bottom-up optimum and top-down shares, one vectorised step a level; `own` is weight^exponent."""
    optimum = np.zeros(own.size)
    below = np.zeros(own.size)  # S_i while going up
    for nodes in reversed(levels):
        below[nodes] **= power
        optimum[nodes] = (own[nodes] + below[nodes]) ** (1 / power)
        inner = nodes[above[nodes] >= 0]
        np.add.at(below, above[inner], optimum[inner])
    norm = own + below
    remaining = np.ones(own.size)  # what a node's subtree may spend
    for nodes in levels[1:]:
        up = above[nodes]
        ratio = np.divide(below[up], norm[up], out=np.zeros(nodes.size), where=norm[up] > 0)
        remaining[nodes] = remaining[up] * ratio
    shares = np.divide(remaining * own, norm, out=np.zeros(own.size), where=norm > 0)
    return shares, optimum


def best_shares(nodes: NoiseNodes, law: NoiseDistribution) -> FloatArray:
    """The shares that minimise the mean prefix error over the horizon (float64, fractions of the budget).

    **Source**: docs/method/streams.md, "The split theorem", with the use counts as weights.
    """
    return optimal_split(nodes.parent, nodes.uses, law)[0]


def integer_budgets(parent: IntArray, shares: FloatArray, total: int) -> IntArray:
    """Shares as integer budgets whose path sums never pass `total`; rounded down, then checked in int64.

    Args:
        parent: int64[n], -1 at roots.
        shares: float64[n], fractions of the budget.
        total: the whole budget in integer units, for instance 2^30.

    Returns:
        int64[n], each >= 1 where its share is positive.

    Raises:
        ValueError: when a share is too small for the unit, or a path sum passes `total`.

    **Privacy**: the check is on the integers that are spent, not on the floats they came from.

    >>> integer_budgets(np.array([1, -1, -1]), np.array([0.442493, 0.557507, 1.0]), 1000).tolist()
    [442, 557, 1000]
    """
    budget = np.floor(shares * total).astype(np.int64)
    if ((shares > 0) & (budget < 1)).any():
        raise ValueError("a share is below one unit of the budget; raise the total")
    check_paths(parent, budget, total)
    return budget


def check_paths(parent: IntArray, budget: IntArray, total: int) -> None:
    """Refuse budgets of which those from a node up to its root add up to more than the total.

    Raises:
        ValueError: they do.
    """
    spent: IntArray = budget.copy()
    depth = node_depth(parent)
    for level in range(1, int(depth.max(initial=0)) + 1):
        nodes = np.flatnonzero(depth == level)
        spent[nodes] += spent[parent[nodes]]
    if int(spent.max(initial=0)) > total:
        raise ValueError("the budgets of a path add up to more than the total")


class PrefixStrategy(SettledEstimates, ABC):
    """Strategy whose prefixes are signed sums of nested nodes. See `TimeStrategy` for what its methods answer."""

    kind: ClassVar[str]
    ahead: ClassVar[None] = None
    horizon: int

    @property
    def name(self) -> str:
        return f"{self.kind} over {self.horizon} batches"

    @property
    @abstractmethod
    def nodes(self) -> NoiseNodes:
        """The nodes that prefixes read."""

    @abstractmethod
    def node_shares(self) -> FloatArray:
        """Spend of every node, shape (nodes,)."""

    def variance(self, batches: int) -> NodeVariance:
        return NodeVariance(self.nodes.within(batches), share_variance(self.law, self.node_shares()))


@dataclass(frozen=True, eq=False)
class SubtractionStrategy(PrefixStrategy):
    """Prefixes of signed nodes of a k-ary tree.

    Args:
        law: the noise.
        horizon: number of batches planned for, at least 1.
        arity: k, odd and at least 3.
        levels: number of node sizes.
        budget: int64[n], of each node of `subtraction_nodes`, in units of 2^-30 of the spend.
    """

    kind: ClassVar[str] = "prefix"
    law: NoiseDistribution
    horizon: int
    arity: int
    levels: int
    budget: IntArray

    def __post_init__(self) -> None:
        """Refuse budgets that a row of some batch cannot pay."""
        if self.budget.shape != self.nodes.lo.shape or np.any(self.budget < 1):
            raise ValueError("every node needs a budget of at least 1")
        check_paths(self.nodes.parent, self.budget, UNIT)

    @cached_property
    def nodes(self) -> NoiseNodes:
        """The nodes that prefixes read."""
        return subtraction_nodes(self.horizon, self.arity, self.levels)

    def node_shares(self) -> FloatArray:
        return self.budget / UNIT

    def emissions(self, batch: int) -> tuple[Emission, ...]:
        refuse_past(self, batch)
        nodes, length = self.nodes, batch + 1
        reads = tuple(
            NodeRead(int(i), int(nodes.sign[i]), Fraction(int(self.budget[i]), UNIT), int(nodes.stop[i]))
            for i in np.flatnonzero((nodes.first <= length) & (length < nodes.stop))
        )
        return (Emission(0, 0, length, reads),)

    def needed(self, batches: int) -> tuple[int, ...]:
        return tuple(sorted({0, batches}))

    def shares(self) -> tuple[Fraction, Fraction]:
        return Fraction(int(self.budget.min()), UNIT), Fraction(int(self.budget.max()), UNIT)

    def estimate(self, batches: int, published: NDArray[np.generic]) -> FloatArray:
        """See `TimeStrategy`. Batches are differences of what is published."""
        noisy = check_rows(published, batches)
        return np.diff(noisy, axis=0, prepend=np.zeros((1, *noisy.shape[1:])))

    def frozen(self) -> dict[str, Any]:
        shape = {"horizon": self.horizon, "arity": self.arity, "levels": self.levels}
        return {**shape, "budget": self.budget.tolist()}


def subtraction_nodes(horizon: int, arity: int, levels: int) -> NoiseNodes:
    """The nodes that the prefixes 0..horizon read, top level first.

    Args:
        horizon: planned number of batches, >= 1.
        arity: odd k >= 3, so that rounding to the nearest multiple has no ties.
        levels: number of node sizes 1, k, .., k^(levels - 1); the top level is a chain of any length.

    Raises:
        ValueError: when the arity is even or below 3, or horizon or levels are below 1.

    **Source**: docs/method/streams.md, "Nodes that are taken away"; Andersson, Pagh, Steiner and
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
    return NoiseNodes(horizon, lo, lo + size, first, stop, sign, _parents(lo, size, arity))


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


def _parents(lo: IntArray, size: IntArray, arity: int) -> IntArray:
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
    law: NoiseDistribution, horizon: int, arity: int, levels: int
) -> SubtractionStrategy:
    """The strategy of one shape with the budgets of least mean prefix error."""
    nodes = subtraction_nodes(horizon, arity, levels)
    budget = integer_budgets(nodes.parent, best_shares(nodes, law), UNIT)
    return SubtractionStrategy(law, horizon, arity, levels, budget)


def best_subtraction(question: StreamProblem) -> SubtractionStrategy:
    """The arity and number of levels that err least, over the sensible few.

    >>> from dpsql.mechanisms.distribution import LAPLACE
    >>> from dpsql.mechanisms.continual.time_strategy import question_of
    >>> best = best_subtraction(StreamProblem(LAPLACE, 1023, (question_of("prefix", 1),)))
    >>> best.arity, best.levels
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


def _thawed(law: NoiseDistribution, frozen: Frozen) -> SubtractionStrategy:
    horizon, arity, levels = (int(frozen[name]) for name in ("horizon", "arity", "levels"))
    return SubtractionStrategy(law, horizon, arity, levels, np.array(frozen["budget"], dtype=np.int64))


NAMED: Mapping[str, NamedTimeStrategy] = {"prefix": only(best_subtraction, tuned=True)}
KINDS: Kinds = {"prefix": _thawed}


def offers(question: StreamProblem) -> Iterator[TimeOffer | Refusal]:
    """The shape that errs least."""
    yield dense_offer(question, "prefix", best_subtraction)
