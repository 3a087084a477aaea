"""LUE-DPTree: budgets that follow how often a node is used, on any tree.

    here      there              meaning
    split     CNP + NPBD         budget of each node
    blue      PA_BLUE + CRC      consistent estimates (module `blue`)
    use       p_x                how often a random range uses the node (`tree.coverage`)

The seed minimises the error before least squares. The split is in closed form and O(n); the better split
for the error after least squares is in `optimised_tree`.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from dpsql.errors import InternalError
from dpsql.mechanisms.central.strategy import Strategy, variance_model
from dpsql.tree import FloatArray, IntArray, Tree, Workload, coverage, kary_tree
from dpsql.variance import mean_variance
from dpsql.variance.tree import inner_levels

TOTAL = 1 << 20  # fine enough that rounding budgets costs under 1e-4 of the error
LEAF_SHARE = 2.0**-10  # leaves with less are so noisy that the variances of ranges lose their digits


def split(tree: Tree, use: FloatArray, norm: int = 1) -> FloatArray:
    """The budgets that minimise sum(use / budget^2) with a path sum of 1.

    With e = 1/3 (Laplace) each subtree costs t^3 with t = use^e + (sum over children of t^3)^e, and a node
    keeps the fraction use^e / t of what its path has left. For Gaussian noise the path sum is of squares;
    the same recursion then holds for the squared budgets with e = 1/2.

    Args:
        tree: the shape.
        use: how often each node is used, shape (size,), not negative.
        norm: 1 for Laplace, 2 for Gaussian noise.

    Returns:
        Budgets, shape (size,); their sums (norm 2: sums of squares) along each path are 1.

    **Source** LUE-DPTree, conclusion 3.5, algorithms 3.3 and 3.4 in closed form; no 0/0 where use is 0.

    >>> split(kary_tree(3, 3), coverage(kary_tree(3, 3))).round(4).tolist()
    [0.3433, 0.6567, 0.6567, 0.6567]
    """
    power = 3 if norm == 1 else 2
    own = np.maximum(use, 0.0) ** (1 / power)
    cost = own.copy()
    for parents, first in inner_levels(tree):
        stop = int(first[-1] + tree.child_count[parents[-1]])
        below = np.add.reduceat(cost[first[0] : stop] ** power, first - first[0])
        cost[parents] += below ** (1 / power)
    keeps = np.divide(own, cost, out=np.where(tree.is_leaf, 1.0, 0.0), where=cost > 0)
    keeps[tree.is_leaf] = 1.0  # nothing below a leaf could use what it leaves
    left = np.ones(tree.size)
    for part in tree.level_slices[1:]:
        above = tree.parent[part]
        left[part] = left[above] * (1 - keeps[above])
    budget: FloatArray = left * keeps
    return budget if norm == 1 else np.sqrt(budget)


def error_before_blue(use: FloatArray, budget: FloatArray) -> float:
    """Mean variance of a range summed from raw node values, Laplace noise at epsilon 1.

    **Source** LUE-DPTree, the doubled objective of eq. (3.6).
    """
    return float(2 * np.sum(use / budget**2))


def tree_strategy(tree: Tree, budget: FloatArray, total: int = TOTAL, norm: int = 1) -> Strategy:
    """Measure the nodes of a tree, with real budgets rounded to integers.

    Inner budgets are rounded down; each leaf takes all that its path has left, so nothing is wasted. Where
    a leaf would get less than `LEAF_SHARE`, all inner nodes get a little less. An inner node whose budget
    rounds to 0 is not measured.

    Args:
        tree: the shape.
        budget: relative budgets of the nodes, shape (size,); path sums (norm 1) or path sums of squares
            (norm 2) are at most 1. Leaf budgets are not read.
        total: the integer that stands for the whole budget.
        norm: 1 for Laplace, 2 for Gaussian noise.

    Returns:
        The strategy, rows in node order.

    Raises:
        InternalError: if the inner nodes spend more than the whole.
    """
    real = np.where(tree.is_leaf, 0.0, np.asarray(budget, np.float64)) ** norm
    most = float(_path_sums(tree, real).max())
    if most > 1 + 1e-9:
        raise InternalError(f"a tree of {tree.n} leaves spends more than its budget on inner nodes")
    shrink = min(1.0, (1 - LEAF_SHARE) / most) if most > 0 else 1.0
    units = np.floor((shrink * real) ** (1 / norm) * (total - 1)).astype(np.int64)
    left = total**norm - _path_sums(tree, units**norm)[tree.leaves]
    units[tree.leaves] = left if norm == 1 else _isqrt(left)
    node = np.flatnonzero(units > 0)
    return Strategy(
        kind="tree", n=tree.n, start=tree.lo[node], stop=tree.hi[node],
        offset=np.zeros(len(node) + 1, np.int64), entry=np.zeros(0, np.int64),
        budget=units[node], total=total, norm=norm, tree=tree, node=node,
    )  # fmt: skip


def _isqrt(value: IntArray) -> IntArray:
    """Integer square roots, rounded down exactly."""
    root = np.sqrt(value.astype(np.float64)).astype(np.int64)
    root -= root * root > value
    root += (root + 1) * (root + 1) <= value
    return root


Numbers = TypeVar("Numbers", IntArray, FloatArray)


def _path_sums(tree: Tree, value: Numbers) -> Numbers:
    """Sum of `value` over each node and its ancestors, shape (size,)."""
    out = value.copy()
    for part in tree.level_slices[1:]:
        out[part] += out[tree.parent[part]]
    return out


def lue_dptree(
    tree: Tree, workload: Workload | None = None, total: int = TOTAL, norm: int = 1, whole: float = 0.0
) -> Strategy:
    """The seed's mechanism on a given tree: coverage, split, integer budgets.

    Args:
        tree: the shape.
        workload: the ranges asked; None means all ranges.
        total: the integer that stands for the whole budget.
        norm: 1 for Laplace, 2 for Gaussian noise.
        whole: the part of the questions that asks for the total instead.

    **Source** LUE-DPTree, algorithm 3.8.
    """
    return tree_strategy(tree, split(tree, coverage(tree, workload, whole), norm), total, norm)


def best_lue_dptree(
    n: int, workload: Workload | None = None, largest: int = 32, norm: int = 1, whole: float = 0.0
) -> tuple[Strategy, int]:
    """LUE-DPTree on the k-ary tree, 2 <= k <= largest, with the least expected error after least squares.

    Returns:
        The strategy and its k.
    """
    arities = range(2, max(2, min(n, largest)) + 1)
    candidates = [(k, lue_dptree(kary_tree(n, k), workload, norm=norm, whole=whole)) for k in arities]
    k, best = min(candidates, key=lambda pair: mean_variance(variance_model(pair[1]), workload, whole))
    return best, k


def identity_strategy(n: int, norm: int = 1) -> Strategy:
    """Measure every leaf once, with the whole budget (Dwork)."""
    cell = np.arange(n)
    return Strategy(
        kind="identity", n=n, start=cell, stop=cell + 1, offset=np.zeros(n + 1, np.int64),
        entry=np.zeros(0, np.int64), budget=np.ones(n, np.int64), total=1, norm=norm,
    )  # fmt: skip
