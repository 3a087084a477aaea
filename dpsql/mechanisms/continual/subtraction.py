"""Nested noise nodes over time: how the budget is split over them, how exact what they answer is; signed nodes.

Several strategies answer the prefix of t batches with the noise of a few nested nodes: Fenwick nodes (`fda`), or nodes
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
from dpsql.mechanisms.axis.tree import path_sums, split
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
    only,
    refuse_past,
    share_variance,
)
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


def node_budgets(nodes: NoiseNodes, law: NoiseDistribution) -> IntArray:
    """The budgets of least mean prefix error over the horizon, in units of 2^-30 of the spend, rounded down.

    **Source**: docs/method/streams.md, "The split theorem", with the use counts as weights.
    """
    tree, place = nodes.forest
    uses = np.zeros(tree.size)
    uses[place] = nodes.uses
    return np.floor(split(tree, uses, law)[place] * UNIT).astype(np.int64)


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
        tree, place = self.nodes.forest
        spent = np.zeros(tree.size, np.int64)
        spent[place] = self.budget
        if path_sums(tree, spent).max() > UNIT:
            raise ValueError("the budgets of a path add up to more than the total")

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
    budget = node_budgets(subtraction_nodes(horizon, arity, levels), law)
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
