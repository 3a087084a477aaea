"""LUE-DPTree: budgets that follow how often a node is used, on any tree.

    here      there              meaning
    split     CNP + NPBD         budget of each node
    blue      PA_BLUE + CRC      consistent estimates (module `blue`)
    use       p_x                how often a random range uses the node (`tree.coverage`)

The seed minimises the error before least squares. The split is in closed form and O(n); the better split
for the error after least squares is in `optimised_tree`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dpsql.mechanisms.axis.arities import arities, refuses_trees
from dpsql.mechanisms.axis.question import AxisQuestion, Candidate, Offer, Refusal, candidate
from dpsql.mechanisms.axis.tree import TOTAL, TreeStrategy, tree_strategy
from dpsql.mechanisms.law import LAPLACE, NoiseLaw
from dpsql.tree import FloatArray, Tree, Workload, coverage, kary_tree
from dpsql.variance import mean_variance
from dpsql.variance.tree import inner_levels


def split(tree: Tree, use: FloatArray, law: NoiseLaw = LAPLACE) -> FloatArray:
    """The budgets that minimise sum(use / budget^2) with a path sum of 1.

    With e = 1/3 (Laplace) each subtree costs t^3 with t = use^e + (sum over children of t^3)^e, and a node
    keeps the fraction use^e / t of what its path has left. For Gaussian noise the path sum is of squares;
    the same recursion then holds for the squared budgets with e = 1/2: 1/e is 1 + 2 / norm.

    Args:
        tree: the shape.
        use: how often each node is used, shape (size,), not negative.
        law: the noise.

    Returns:
        Budgets, shape (size,); sums of their powers (the law's norm) along each path are 1.

    **Source** docs/method/axis.md, "A budget for each node"; no 0/0 where use is 0.

    >>> split(kary_tree(3, 3), coverage(kary_tree(3, 3))).round(4).tolist()
    [0.3433, 0.6567, 0.6567, 0.6567]
    """
    power = 1 + 2 / law.norm
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
    budget: FloatArray = (left * keeps) ** (1 / law.norm)
    return budget


def error_before_blue(use: FloatArray, budget: FloatArray) -> float:
    """Mean variance of a range summed from raw node values, Laplace noise at epsilon 1.

    **Source** docs/method/axis.md, "A budget for each node"; there half of it.
    """
    return float(2 * np.sum(use / budget**2))


def lue_dptree(
    tree: Tree,
    workload: Workload | None = None,
    total: int = TOTAL,
    law: NoiseLaw = LAPLACE,
    whole: float = 0.0,
) -> TreeStrategy:
    """The seed's mechanism on a given tree: coverage, split, integer budgets.

    Args:
        tree: the shape.
        workload: the ranges asked; None means all ranges.
        total: the integer that stands for the whole budget.
        law: the noise.
        whole: the part of the questions that asks for the total instead.

    **Source** docs/method/axis.md, "A budget for each node".
    """
    return tree_strategy(tree, split(tree, coverage(tree, workload, whole), law), total, law)


def best_lue_dptree(
    n: int, workload: Workload | None = None, largest: int = 32, law: NoiseLaw = LAPLACE, whole: float = 0.0
) -> tuple[TreeStrategy, int]:
    """LUE-DPTree on the k-ary tree, 2 <= k <= largest, with the least expected error after least squares.

    Returns:
        The strategy and its k.
    """
    arities = range(2, max(2, min(n, largest)) + 1)
    candidates = [(k, lue_dptree(kary_tree(n, k), workload, law=law, whole=whole)) for k in arities]
    k, best = min(candidates, key=lambda pair: mean_variance(pair[1].variance(), workload, whole))
    return best, k


def named(question: AxisQuestion) -> Candidate:
    """The best arity of all."""
    strategy, k = best_lue_dptree(question.leaves, question.workload, law=question.law, whole=question.whole)
    return candidate(strategy, f"LUE-DPTree k={k}", question)


NAMED: Mapping[str, Callable[[AxisQuestion], Candidate]] = {"lue_dptree": named, "tree": named}


def likely_best(question: AxisQuestion) -> tuple[int, Candidate]:
    """The best of the arities that are tried, with its k."""
    made = {}
    for k in arities(question):
        tree = lue_dptree(
            kary_tree(question.leaves, k), question.workload, law=question.law, whole=question.whole
        )
        made[k] = candidate(tree, f"LUE-DPTree k={k}", question)
    best = min(made, key=lambda k: made[k].error)
    return best, made[best]


def offers(question: AxisQuestion) -> Iterator[Offer | Refusal]:
    """LUE-DPTree at its best arity."""
    reason = refuses_trees(question)
    yield (
        Refusal("LUE-DPTree", reason)
        if reason
        else Offer("LUE-DPTree", 0.0, lambda: likely_best(question)[1])
    )
