"""Nodes of a tree, each with an integer budget of its own; estimates add up along the tree.

LUE-DPTree, Struct-Construct, square-root trees and the trees with searched budgets are all of these: they differ
in the tree and in the budgets. Estimates are best linear unbiased, in two passes: upwards, a node's own measurement and
the sum of its children's estimates are averaged by inverse variance; downwards, what the parent knows better is handed
to the children in proportion to their variances.

**Source** docs/method/axis.md, "Least squares on a tree": the same estimate as LUE-DPTree's alpha,
beta, c, d recursion, without dividing by the budget of an inner node, which may be zero here.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np

from dpsql.errors import InternalError
from dpsql.matrices.tree import TreeVariance, node_spread
from dpsql.mechanisms.axis.dense import reaches
from dpsql.mechanisms.axis.strategy import (
    FEWEST_LEAVES,
    AxisProblem,
    AxisStrategy,
    Frozen,
    check_sensitivity,
)
from dpsql.mechanisms.distribution import LAPLACE, LAWS, NoiseDistribution
from dpsql.mechanisms.integer_rows import SparseRows, integer_root, rows_of_ones
from dpsql.tree import FloatArray, IntArray, Tree, tree_from_arrays

TOTAL = 1 << 20  # fine enough that rounding budgets costs under 1e-4 of the error
LEAF_SHARE = 2.0**-10  # leaves with less are so noisy that the variances of ranges lose their digits


@dataclass(frozen=True, eq=False)
class TreeStrategy:
    """Measured nodes of a tree. See `AxisStrategy` for what its methods answer.

    Args:
        tree: the shape, with the nodes that are not measured.
        node: the node that each row measures, increasing, shape (p,).
        budget: integer budget of each row, shape (p,).
        total: bound of the path sums.
        law: the noise.

    Raises:
        InternalError: if a path spends more than `total`.
    """

    tree: Tree
    node: IntArray
    budget: IntArray
    total: int
    law: NoiseDistribution
    kind: ClassVar[str] = "tree"
    entry_scale: ClassVar[int] = 1
    refinements: ClassVar[int] = 1

    def __post_init__(self) -> None:
        """Refuse a tree whose paths spend more than it says."""
        check_sensitivity(self, self.entries().column_bound(self.budget, self.law.norm))

    @property
    def leaves(self) -> int:
        return self.tree.n

    @cached_property
    def precision(self) -> FloatArray:
        """Precision of each node's measurement, 0 where a node is not measured; shape (size,)."""
        weight = np.zeros(self.tree.size)
        weight[self.node] = (self.budget / self.total) ** 2
        return weight

    def measure_columns(self, x: IntArray) -> IntArray:
        """Sums over the nodes' intervals."""
        return self.entries().measure(x)

    def estimate_columns(self, y: FloatArray) -> FloatArray:
        """Least squares along the tree, in two passes."""
        nodes = np.zeros((self.tree.size, y.shape[1]))
        nodes[self.node] = y
        return blue(self.tree, self.precision, nodes)[self.tree.leaves]

    def variance(self) -> TreeVariance:
        return TreeVariance(self.tree, self.precision)

    def entries(self) -> SparseRows:
        """Ones on the nodes' intervals."""
        return rows_of_ones(self.tree.n, self.tree.lo[self.node], self.tree.hi[self.node])

    def for_products(self, crumb: float) -> AxisStrategy:
        """The same tree with negligible inner budgets left to the leaves below them."""
        share = np.zeros(self.tree.size)
        share[self.node] = self.budget / self.total
        return tree_strategy(self.tree, np.where(share < crumb, 0.0, share), self.total, self.law)

    def frozen(self) -> dict[str, Any]:
        """The shape and the budgets."""
        shape = [self.tree.lo.tolist(), self.tree.hi.tolist(), self.tree.parent.tolist()]
        return {
            "tree": shape, "node": self.node.tolist(), "budget": self.budget.tolist(), "total": self.total,
            "norm": self.law.norm,
        }  # fmt: skip

    @classmethod
    def thawed(cls, frozen: Frozen) -> Self:
        tree = tree_from_arrays(*(np.array(array, np.int64) for array in frozen["tree"]))
        node, budget = (np.array(frozen[name], np.int64) for name in ("node", "budget"))
        return cls(tree, node, budget, int(frozen["total"]), LAWS[frozen["norm"]])


def tree_strategy(
    tree: Tree, budget: FloatArray, total: int = TOTAL, law: NoiseDistribution = LAPLACE
) -> TreeStrategy:
    """Measure the nodes of a tree, with real budgets rounded to integers.

    Inner budgets are rounded down; each leaf takes all that its path has left, so nothing is wasted. Where
    a leaf would get less than `LEAF_SHARE`, all inner nodes get a little less. An inner node whose budget
    rounds to 0 is not measured.

    Args:
        tree: the shape.
        budget: relative budgets of the nodes, shape (size,); path sums of their powers (the law's norm) are at
            most 1. Leaf budgets are not read.
        total: the integer that stands for the whole budget.
        law: the noise.

    Returns:
        The strategy, rows in node order.

    Raises:
        InternalError: if the inner nodes spend more than the whole.
    """
    norm = law.norm
    real = np.where(tree.is_leaf, 0.0, np.asarray(budget, np.float64)) ** norm
    largest_sum = float(path_sums(tree, real).max())
    if largest_sum > 1 + 1e-9:
        raise InternalError(f"a tree of {tree.n} leaves spends more than its budget on inner nodes")
    shrink = min(1.0, (1 - LEAF_SHARE) / largest_sum) if largest_sum > 0 else 1.0
    units = np.floor((shrink * real) ** (1 / norm) * (total - 1)).astype(np.int64)
    remaining = total**norm - path_sums(tree, units**norm)[tree.leaves]
    units[tree.leaves] = integer_root(remaining, law.norm)
    node = np.flatnonzero(units > 0)
    return TreeStrategy(tree, node, units[node], total, law)


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


def blue(tree: Tree, weight: FloatArray, y: FloatArray) -> FloatArray:
    """Weighted least squares under the constraint that a node is the sum of its children.

    Args:
        tree: the shape.
        weight: 1 / variance of each node's measurement, shape (size,); 0 for a node that was not
            measured, positive at leaves.
        y: measurements, shape (size, m); not read where the weight is 0.

    Returns:
        Estimates of all nodes, shape (size, m); inner nodes are the sums of their children.

    Raises:
        InternalError: if a leaf has no weight.

    **Privacy** Post-processing of noisy measurements.

    **Source** docs/method/axis.md, "Least squares on a tree".
    """
    spread, gain = node_spread(tree, weight)
    best = np.where(weight[:, None] > 0, y, 0.0)
    below = np.zeros_like(best)
    for parents, children, first, *_ in tree.inner_levels:
        below[parents] = np.add.reduceat(best[children], first, axis=0)
        share = gain[parents, None]  # of the children; the rest is the node's own
        best[parents] = share * below[parents] + (1 - share) * best[parents]
    for parents, children, first, of, _ in reversed(tree.inner_levels):
        total = np.add.reduceat(spread[children], first)
        correction = (best[parents] - below[parents]) / total[:, None]
        best[children] += spread[children, None] * correction[of]
    return best


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
