"""Nested noise nodes over time, and the error of prefixes, ranges and windows that are read through them.

Several stream strategies answer the prefix of t batches with the noise of a few nested nodes: Fenwick nodes,
or nodes of a k-ary tree that are added and subtracted. What they have in common is held here: which batches
a node covers, which prefixes read it (always one interval of prefix lengths), and with which sign. From that
alone follow the optimal budgets and every mean error in closed form, without a matrix.

| here             | seed 004          | unit                                        |
|------------------|-------------------|---------------------------------------------|
| lo, hi           | row i of M        | batches, half-open, 0-based                 |
| first, stop      | column i of B     | prefix lengths 0..N that read the node      |
| uses             | B(:, i)' B(:, i)  | how many prefixes read the node             |
| noise_variance   | 2 / lambda_i^2    | at epsilon = 1 (Laplace) or rho = 1/2       |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dpsql.mechanisms.laminar import GAUSSIAN, LAPLACE, FloatArray, IntArray, node_depth, optimal_split

Currency = Literal["pure", "zcdp"]


@dataclass(frozen=True)
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
        """How many prefixes read each node (int64)."""
        return self.stop - self.first


def exponent_of(currency: Currency) -> float:
    """The split theorem's exponent: shares of epsilon for "pure", shares of rho for "zcdp"."""
    return LAPLACE if currency == "pure" else GAUSSIAN


def unit_variance(shares: FloatArray, currency: Currency) -> FloatArray:
    """Noise variance of nodes that spend these shares of epsilon = 1 (Laplace) or of rho = 1/2 (Gaussian).

    >>> unit_variance(np.array([1.0, 0.5]), "pure").tolist(), unit_variance(np.array([0.5]), "zcdp").tolist()
    ([2.0, 8.0], [2.0])
    """
    return 2.0 / shares**2 if currency == "pure" else 1.0 / shares


def best_shares(nodes: NoiseNodes, currency: Currency) -> FloatArray:
    """The shares that minimise the mean prefix error over the horizon (float64, fractions of the budget).

    **Source**: docs/method/streams.md, "The split theorem", with the use counts as weights.
    """
    return optimal_split(nodes.parent, nodes.uses, exponent_of(currency)).shares


def prefix_error(nodes: NoiseNodes, variance: FloatArray) -> float:
    """Mean variance of the answers to all prefixes 1..horizon."""
    return float(variance @ nodes.uses) / nodes.horizon


def worst_prefix_error(nodes: NoiseNodes, variance: FloatArray) -> float:
    """Largest variance of a prefix 1..horizon."""
    return float(prefix_variance(nodes, variance)[1:].max())


def prefix_variance(nodes: NoiseNodes, variance: FloatArray) -> FloatArray:
    """Variance of every prefix 0..horizon (float64[horizon + 1]): running sums of node entries and exits."""
    change = np.bincount(nodes.first, variance, nodes.horizon + 2)
    change -= np.bincount(nodes.stop, variance, nodes.horizon + 2)
    return np.maximum(np.cumsum(change)[: nodes.horizon + 1], 0.0)


def range_error(nodes: NoiseNodes, variance: FloatArray) -> float:
    """Mean variance of all ranges [s, t), 0 <= s < t <= horizon, read as differences of two prefixes.

    A node counts in a range exactly when one of the two prefixes reads it: uses * (horizon + 1 - uses) pairs.
    """
    pairs = nodes.uses * (nodes.horizon + 1.0 - nodes.uses)
    return float(variance @ pairs) / (nodes.horizon * (nodes.horizon + 1) / 2)


def window_error(nodes: NoiseNodes, variance: FloatArray, length: int) -> float:
    """Mean variance of all windows of `length` batches inside the horizon.

    Raises:
        ValueError: when no window of that length fits.
    """
    starts = nodes.horizon - length + 1
    if length < 1 or starts < 1:
        raise ValueError("a window must hold at least one batch and fit into the horizon")

    def count(lo: IntArray, hi: IntArray) -> IntArray:  # starts in both intervals
        return np.asarray(np.maximum(np.minimum(hi, starts) - np.maximum(lo, 0), 0))

    at_start = count(nodes.first, nodes.stop)
    at_end = count(nodes.first - length, nodes.stop - length)
    at_both = count(nodes.first, nodes.stop - length)
    return float(variance @ (at_start + at_end - 2 * at_both)) / starts


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
    if budget.size and int(path_sums(parent, budget).max()) > total:
        raise ValueError("the budgets of a path add up to more than the total")
    return budget


def path_sums(parent: IntArray, budget: IntArray) -> IntArray:
    """Sum of the budgets from each node up to its root (int64)."""
    spent: IntArray = budget.copy()
    depth = node_depth(parent)
    for level in range(1, int(depth.max(initial=0)) + 1):
        nodes = np.flatnonzero(depth == level)
        spent[nodes] += spent[parent[nodes]]
    return spent


def answer_prefixes(nodes: NoiseNodes, exact: IntArray, noise: IntArray) -> IntArray:
    """Noisy prefixes 0..horizon as integers: the exact running sums plus the signed noise of the nodes read.

    Args:
        nodes: the strategy's nodes.
        exact: int64[horizon], the increments.
        noise: int64[n], one draw per node.

    Returns:
        int64[horizon + 1]; entry 0 is 0.

    **Privacy**: every prefix is a function of the noisy node sums alone, since a prefix's exact sum equals
    the signed sum of the exact sums of the nodes it reads.
    """
    change = np.zeros(nodes.horizon + 2, dtype=np.int64)
    np.add.at(change, nodes.first, nodes.sign * noise)
    np.add.at(change, nodes.stop, -nodes.sign * noise)
    running = np.concatenate(([0], np.cumsum(np.asarray(exact, dtype=np.int64))))
    answers: IntArray = running + np.cumsum(change)[: nodes.horizon + 1]
    return answers
