"""The general split theorem: how one privacy budget is shared out over nested nodes.

A *laminar family* is a forest of nodes; every row of data lies in the nodes of one root-to-leaf path and
pays the sum of their shares. Node i is used with weight w_i (how often workload queries read it), and its
noise variance falls as share^-2 (Laplace, shares of epsilon) or share^-1 (Gaussian, shares of rho). The
split that minimises the weighted total variance is closed form, bottom-up once and top-down once:

    T_i = (w_i^a + S_i^a)^(1/a)     S_i = sum of T over the children     a = 1/3 (Laplace) or 1/2 (Gaussian)
    share_i = s_i w_i^a / (w_i^a + S_i^a)        what a child may still spend = s_i S_i^a / (w_i^a + S_i^a)

It serves LUE-DPTree's tree over an axis and FDA's Fenwick nodes over time alike. The KKT conditions hold for
the result, so it is the optimum and not a heuristic.

| here     | LUE-DPTree (seed 000) | FDA (seed 004)          | unit                     |
|----------|-----------------------|-------------------------|--------------------------|
| weight   | p_x, coverage         | B(:, i)' B(:, i)        | none                     |
| share    | eps_x / eps           | lambda_i                | fraction of the budget   |
| optimum  | pre-BLUE error / 2    | err, trace(B'B Sigma^-2)| variance at unit budget  |
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

LAPLACE = 1 / 3
"""Exponent when shares are of epsilon and variance is share^-2."""
GAUSSIAN = 1 / 2
"""Exponent when shares are of rho and variance is share^-1."""


class Split(NamedTuple):
    """An optimal split.

    Attributes:
        shares: float64[n], the part of each root's budget that each node spends; 0 where the weight is 0.
        optimum: float64[n], T_i, the least weighted variance of the subtree of i at budget 1.
    """

    shares: FloatArray
    optimum: FloatArray


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
    raise ValueError("the parents hold a cycle")


def optimal_split(parent: ArrayLike, weight: ArrayLike, exponent: float) -> Split:
    """The split of one budget per root that minimises sum of weight_i * variance_i, and what it reaches.

    Args:
        parent: int[n], the parent of each node, -1 at roots; any order, any shape.
        weight: float[n] >= 0, how much the variance of each node counts.
        exponent: `LAPLACE` (variance share^-2) or `GAUSSIAN` (variance share^-1).

    Returns:
        `Split` with the shares and the optimum of each subtree; at unit budget the weighted variance of the
        whole is the sum of `optimum` over the roots.

    Raises:
        ValueError: when the shapes differ, a weight is negative or not finite, or the exponent is not in (0,
            1).

    **Privacy**: shares along every root-to-leaf path add up to at most 1 (up to float rounding; integer
    budgets are rounded down and checked by the caller). Weights must be public: they may depend on the
    workload, never on data.

    **Source**: docs/method/streams.md, "The split theorem".

    >>> split = optimal_split([1, -1, -1], [1, 2, 1], LAPLACE)         # the Fenwick tree over three batches
    >>> split.shares.round(6).tolist(), round(float(split.optimum[1:].sum()), 6)
    ([0.442493, 0.557507, 1.0], 12.541966)
    """
    above = np.asarray(parent, dtype=np.int64)
    uses = np.asarray(weight, dtype=np.float64)
    if above.shape != uses.shape or above.ndim != 1:
        raise ValueError("parent and weight must be vectors of one length")
    if not 0 < exponent < 1:
        raise ValueError("the exponent must lie between 0 and 1")
    if uses.size and not (np.isfinite(uses).all() and uses.min() >= 0):
        raise ValueError("weights must be finite and not negative")
    depth = node_depth(above)
    order = np.argsort(depth, kind="stable")
    levels = np.split(order, np.cumsum(np.bincount(depth))[:-1]) if depth.size else []
    return _two_passes(above, uses**exponent, exponent, levels)


def split_budget(parent: ArrayLike, weight: ArrayLike, exponent: float) -> FloatArray:
    """The shares of `optimal_split` alone: float64[n], fractions of each root's budget."""
    return optimal_split(parent, weight, exponent).shares


def _two_passes(above: IntArray, own: FloatArray, exponent: float, levels: list[IntArray]) -> Split:
    """Bottom-up optimum and top-down shares, one vectorised step a level; `own` is weight^exponent."""
    optimum = np.zeros(own.size)
    below = np.zeros(own.size)  # S_i while going up
    for nodes in reversed(levels):
        below[nodes] **= exponent
        optimum[nodes] = (own[nodes] + below[nodes]) ** (1 / exponent)
        inner = nodes[above[nodes] >= 0]
        np.add.at(below, above[inner], optimum[inner])
    norm = own + below
    left = np.ones(own.size)  # what a node's subtree may spend
    for nodes in levels[1:]:
        up = above[nodes]
        ratio = np.divide(below[up], norm[up], out=np.zeros(nodes.size), where=norm[up] > 0)
        left[nodes] = left[up] * ratio
    shares = np.divide(left * own, norm, out=np.zeros(own.size), where=norm > 0)
    return Split(shares, optimum)
