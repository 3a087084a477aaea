"""Nodes of a tree, each with an integer budget of its own; estimates add up along the tree.

LUE-DPTree, Struct-Construct, square-root trees and the trees with searched budgets are all of these: they differ
in the tree and in the budgets. Estimates are best linear unbiased, in two passes: upwards, a node's own measurement and
the sum of its children's estimates are averaged by inverse variance; downwards, what the parent knows better is handed
to the children in proportion to their variances.

**Source** docs/method/axis.md, "Least squares on a tree": the same estimate as LUE-DPTree's alpha,
beta, c, d recursion, without dividing by the budget of an inner node, which may be zero here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.matrices.strategy import Strategy, integer_root, rows_of_ones
from dpsql.matrices.tree import TreeVariance
from dpsql.mechanisms.axis.dense import reaches
from dpsql.mechanisms.axis.strategy import FEWEST_LEAVES, AxisProblem
from dpsql.mechanisms.distribution import LAPLACE, NoiseDistribution
from dpsql.tree import FloatArray, IntArray, Tree, tree_from_arrays

TOTAL = 1 << 20  # fine enough that rounding budgets costs under 1e-4 of the error
LEAF_SHARE = 2.0**-10  # leaves with less are so noisy that the variances of ranges lose their digits


def measured_nodes(tree: Tree, units: IntArray, total: int, norm: int) -> Strategy:
    """Nodes of a tree with integer budgets.

    Args:
        tree: the shape, with the nodes that are not measured.
        units: integer budget of each node, 0 where it is not measured, shape (size,).
        total: bound of the path sums.
        norm: of the noise.

    Raises:
        InternalError: if a path spends more than `total`.
    """
    node = np.flatnonzero(units)
    rows, solver = (
        rows_of_ones(tree.n, tree.lo[node], tree.hi[node]),
        TreeVariance(tree, (units / total) ** 2),
    )
    shape, budget = np.array([tree.lo, tree.hi, tree.parent]), units[node]
    stored = {"tree": shape, "node": node, "budget": budget, "total": total, "norm": norm}
    return Strategy("tree", stored, rows, budget, total, norm, solver)


def stored_nodes(
    tree: Sequence[npt.ArrayLike], node: npt.ArrayLike, budget: npt.ArrayLike, total: int, norm: int
) -> Strategy:
    """`measured_nodes` as they were stored: a tree's arrays, and the budgets of some of its nodes."""
    shape = tree_from_arrays(*tree)
    units = np.zeros(shape.size, np.int64)
    units[np.asarray(node, np.int64)] = budget
    return measured_nodes(shape, units, total, norm)


def without_crumbs(strategy: Strategy, crumb: float) -> Strategy:
    """A strategy for views with other axes: nodes with less of the budget than `crumb` leave it to the leaves below."""
    if not isinstance(strategy.solver, TreeVariance):
        return strategy
    tree, share = strategy.solver.tree, np.zeros(strategy.solver.tree.size)
    share[strategy.solver.weight > 0] = strategy.budget / strategy.total
    return tree_strategy(tree, np.where(share < crumb, 0.0, share), strategy.total, strategy.norm)


def tree_strategy(tree: Tree, budget: FloatArray, total: int = TOTAL, norm: int = 1) -> Strategy:
    """Measure the nodes of a tree, with real budgets rounded to integers.

    Inner budgets are rounded down; each leaf takes all that its path has left, so nothing is wasted. Where
    a leaf would get less than `LEAF_SHARE`, all inner nodes get a little less. An inner node whose budget
    rounds to 0 is not measured.

    Args:
        tree: the shape.
        budget: relative budgets of the nodes, shape (size,); path sums of their powers (the norm) are at
            most 1. Leaf budgets are not read.
        total: the integer that stands for the whole budget.
        norm: of the noise.

    Returns:
        The strategy, rows in node order.

    Raises:
        InternalError: if the inner nodes spend more than the whole.
    """
    real = np.where(tree.is_leaf, 0.0, np.asarray(budget, np.float64)) ** norm
    largest_sum = float(path_sums(tree, real).max())
    if largest_sum > 1 + 1e-9:
        raise InternalError(f"a tree of {tree.n} leaves spends more than its budget on inner nodes")
    shrink = min(1.0, (1 - LEAF_SHARE) / largest_sum) if largest_sum > 0 else 1.0
    units = np.floor((shrink * real) ** (1 / norm) * (total - 1)).astype(np.int64)
    remaining = total**norm - path_sums(tree, units**norm)[tree.leaves]
    units[tree.leaves] = integer_root(remaining, norm)
    return measured_nodes(tree, units, total, norm)


def split(tree: Tree, use: FloatArray, law: NoiseDistribution = LAPLACE) -> FloatArray:
    """The shares of the spend that minimise the sum of use times variance, with path sums of 1: the split theorem.

    With e = 1/3 (Laplace: variance share^-2) or 1/2 (Gaussian: share^-1) each subtree costs t^(1/e) with
    t = use^e + (sum over children of t^(1/e))^e, and a node keeps the fraction use^e / t of what its path has left.

    Args:
        tree: the shape.
        use: how often each node is used, shape (size,), not negative.
        law: the noise.

    Returns:
        Shares, shape (size,); no 0/0 where use is 0, and a leaf keeps what its path has left.

    **Source** docs/method/axis.md, "A budget for each node"; docs/method/streams.md, "The split theorem".

    >>> from dpsql.tree import coverage, kary_tree
    >>> split(kary_tree(3, 3), coverage(kary_tree(3, 3))).round(4).tolist()
    [0.3433, 0.6567, 0.6567, 0.6567]
    """
    power = 1 + 2 / law.norm
    node_cost = np.maximum(use, 0.0) ** (1 / power)
    cost = node_cost.copy()
    for parents, children, first, *_ in tree.inner_levels:
        below = np.add.reduceat(cost[children] ** power, first)
        cost[parents] += below ** (1 / power)
    keeps = np.divide(node_cost, cost, out=np.where(tree.is_leaf, 1.0, 0.0), where=cost > 0)
    keeps[tree.is_leaf] = 1.0  # nothing below a leaf could use what it leaves
    return tree.remaining(keeps) * keeps


def split_budgets(tree: Tree, use: FloatArray, law: NoiseDistribution = LAPLACE) -> FloatArray:
    """The budgets whose powers, of the law's norm, are the shares of `split`; shape (size,)."""
    return np.asarray(split(tree, use, law) ** (1 / law.norm), np.float64)


Numbers = TypeVar("Numbers", IntArray, FloatArray)


def path_sums(tree: Tree, value: Numbers) -> Numbers:
    """Sum of `value` over each node and its ancestors, shape (size,)."""
    out = value.copy()
    for nodes in tree.level_slices[1:]:
        out[nodes] += out[tree.parent[nodes]]
    return out


ARITIES = (2, 3, 4, 6, 8, 10, 12, 16, 20, 24, 32)
LONG = 1 << 14
"""Leaves from which only arities are tried where the best one has been found."""
_LONG_ARITIES = {1: (12, 16), 2: (2, 3, 8, 12, 16)}  # by norm
LONG_LOG = 1 << 12
"""The same with a log, whose ranges are evaluated one by one."""
_LONG_LOG_ARITIES = (2, 4, 8, 16)
_TREE_LEAVES = 1 << 17  # beyond this trees have lost by a quarter, and take as long as all the rest


def refuses_trees(question: AxisProblem) -> str:
    """Reason why no tree is offered, or an empty string."""
    if question.joint is not None and question.workload is None:
        return "a joint tree has less error on all ranges"
    if question.leaves < FEWEST_LEAVES:
        return f"takes axes of {FEWEST_LEAVES} leaves or more"
    if reaches(question) and question.workload is None:  # all ranges are asked
        return "the dense optimum has less error than any rows"
    if question.leaves > _TREE_LEAVES:
        return f"loses by a quarter from {_TREE_LEAVES} leaves on"
    return ""


def arities(question: AxisProblem) -> tuple[int, ...]:
    """The arities tried on an axis."""
    tried: tuple[int, ...] = ARITIES
    if question.workload is None and question.leaves > LONG:
        tried = _LONG_ARITIES[question.law.norm]
    elif question.workload is not None and question.leaves > LONG_LOG:
        tried = _LONG_LOG_ARITIES
    return tuple(k for k in tried if k <= question.leaves)
