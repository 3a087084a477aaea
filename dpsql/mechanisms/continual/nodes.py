"""Nested noise nodes over time: what they cost, how the budget is split over them, how exact what they answer is.

Several strategies answer the prefix of t batches with the noise of a few nested nodes: Fenwick nodes, or nodes of a
k-ary tree that are added and subtracted. What they have in common is held here: which batches a node covers, which
prefixes read it (always one interval of prefix lengths), and with which sign. From that alone follow the optimal
budgets, every mean error in closed form, and the covariance of the batches.

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
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpsql.matrices.leaves import PrefixVariance
from dpsql.mechanisms.continual.time_strategy import exponent
from dpsql.mechanisms.distribution import NoiseDistribution
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

    def covariance(self, variance: FloatArray) -> PrefixVariance:
        """The variance model of the batches, differences of consecutive prefixes, for noise of such variances.

        Dense: meant for some thousand batches, as the horizons of such strategies are.
        """
        jumps = np.zeros((self.horizon + 2, self.lo.size))
        column = np.arange(self.lo.size)
        jumps[self.first, column] += 1
        jumps[self.stop, column] -= 1
        change = jumps[1 : self.horizon + 1]
        return PrefixVariance(np.asarray((change * variance) @ change.T))


class NodeErrors(NamedTuple):
    """Errors of answers that are differences of two prefixes; a prefix never changes after its batch.

    Args:
        nodes: the nodes that the prefixes of all batches read.
        variance: of each, at epsilon 1 or mu^2 1.
    """

    nodes: NoiseNodes
    variance: FloatArray

    def running(self) -> float:
        return self.prefix()

    def prefix(self) -> float:
        return float(self.variance @ self.nodes.uses) / self.nodes.horizon

    def range(self) -> float:
        """See `TimeErrors`. A node counts where exactly one of the two prefixes reads it."""
        pairs = self.nodes.uses * (self.nodes.horizon + 1.0 - self.nodes.uses)
        return float(self.variance @ pairs) / (self.nodes.horizon * (self.nodes.horizon + 1) / 2)

    def window(self, length: int) -> float:
        first, stop, starts = self.nodes.first, self.nodes.stop, window_starts(self.nodes.horizon, length)

        def count(lo: IntArray, hi: IntArray) -> IntArray:  # starts in both intervals
            return np.asarray(np.maximum(np.minimum(hi, starts) - np.maximum(lo, 0), 0))

        once = count(first, stop) + count(first - length, stop - length) - 2 * count(first, stop - length)
        return float(self.variance @ once) / starts


def window_starts(batches: int, length: int) -> int:
    """Number of windows of some length.

    Raises:
        ValueError: none fits.
    """
    if not 1 <= length <= batches:
        raise ValueError("a window must hold at least one batch and fit into the horizon")
    return batches - length + 1


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
