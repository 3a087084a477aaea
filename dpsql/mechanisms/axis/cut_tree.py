"""Trees whose nodes end where the declared ranges end.

A range of a query log is a few nodes of such a tree, where an even tree would cover it with several nodes on
each of its levels. Borders that the log uses often cut the axis into parts; a k-ary tree over the parts stands
above k-ary trees inside each part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dpsql.mechanisms.axis.arities import LONG_LOG, refuses_trees
from dpsql.mechanisms.axis.lue_dptree import lue_dptree
from dpsql.mechanisms.axis.question import AxisQuestion, Candidate, Offer, Refusal, candidate
from dpsql.tree import IntArray, Tree, Workload, kary_tree, split_evenly, tree_from_arrays

NAMED: Mapping[str, Callable[[AxisQuestion], Candidate]] = {}

LOG_ARITIES = (2, 4, 8)
"""Narrow trees suit logs, which leave many of their nodes without budget."""

OFTEN = 2.0
"""A border cuts the axis if ranges end there this many times as often as at an average border."""


def log_borders(n: int, workload: Workload) -> IntArray:
    """The borders inside the axis that the ranges end at often, in order.

    Args:
        n: number of leaves.
        workload: ranges inside the axis.

    >>> log_borders(9, Workload(np.array([0, 3]), np.array([3, 9]), np.ones(2))).tolist()
    [3]
    """
    use = np.bincount(workload.lo, workload.weight, n + 1) + np.bincount(workload.hi, workload.weight, n + 1)
    often = use > OFTEN * use.sum() / (n + 1)
    return np.flatnonzero(often[1:n]) + 1


def cut_tree(n: int, k: int, cuts: IntArray) -> Tree:
    """A k-ary tree over the parts between cuts, and k-ary trees inside the parts.

    Args:
        n: number of leaves.
        k: children per node, at least 2.
        cuts: borders inside the axis, increasing.

    >>> tree = cut_tree(5, 2, np.array([4]))
    >>> [f"{a}-{b}" for a, b in zip(tree.lo.tolist(), tree.hi.tolist())]
    ['0-5', '0-4', '4-5', '0-2', '2-4', '0-1', '1-2', '2-3', '3-4']
    """
    edges = np.concatenate([[0], cuts, [n]])
    top = kary_tree(len(edges) - 1, k)
    lo, hi, node, size = edges[:-1], edges[1:], top.leaves, top.size
    los, his, parents = [edges[top.lo]], [edges[top.hi]], [top.parent]
    while np.any(hi - lo > 1):
        inner = np.flatnonzero(hi - lo > 1)
        lo, hi, which = split_evenly(lo[inner], hi[inner], np.full(len(inner), k))
        los.append(lo)
        his.append(hi)
        parents.append(node[inner][which])
        node, size = size + np.arange(len(lo)), size + len(lo)
    return tree_from_arrays(np.concatenate(los), np.concatenate(his), np.concatenate(parents))


def cut_trees(question: AxisQuestion) -> dict[int, Tree]:
    """Cut trees by arity; none where no border is used often."""
    if question.workload is None:
        return {}
    cuts = log_borders(question.leaves, question.workload)
    arities = LOG_ARITIES if question.leaves <= LONG_LOG else LOG_ARITIES[-1:]
    return {k: cut_tree(question.leaves, k, cuts) for k in arities if len(cuts)}


def offers(question: AxisQuestion) -> Iterator[Offer | Refusal]:
    """LUE-DPTree on cut trees."""
    name = "LUE-DPTree, cut at the log's borders"
    reason = refuses_trees(question) or ("" if cut_trees(question) else "no border is asked often")
    yield Refusal(name, reason) if reason else Offer(name, 0.0, lambda: _best(question))


def _best(question: AxisQuestion) -> Candidate:
    made = []
    for k, tree in cut_trees(question).items():
        strategy = lue_dptree(tree, question.workload, law=question.law, whole=question.whole)
        made.append(candidate(strategy, f"LUE-DPTree k={k}, cut at the log's borders", question))
    return min(made, key=lambda each: each.error)
