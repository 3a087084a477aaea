"""SC: a tree whose left spine is k-ary and whose other nodes choose their own arity greedily.

A node off the spine takes the arity w in [k, largest] for which the w-ary subtree below it has the least
sum of use probabilities, H(l, r, w). All nodes of a level choose at once. Budgets are equal along a path;
the sensitivity is the measured depth, never the length of the spine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np

from dpsql.mechanisms.axis.question import AxisQuestion, Candidate, Offer, Refusal, candidate
from dpsql.mechanisms.axis.tree import TreeStrategy, tree_strategy
from dpsql.mechanisms.law import LAPLACE
from dpsql.tree import FloatArray, IntArray, Tree, coverage, grow, kary_tree, split_evenly


def subtree_use(n: int, lo: IntArray, hi: IntArray, k: int) -> FloatArray:
    """H without the node itself: the use of all nodes below each interval, split k-ary to the leaves.

    Args:
        n: number of leaves of the axis; all ranges are equally likely.
        lo: starts, shape (m,).
        hi: stops, shape (m,).
        k: the arity.

    Returns:
        Sums of use probabilities, shape (m,).

    **Source** docs/method/axis.md, "Which tree: SC".
    """
    total, root = np.zeros(len(lo)), np.arange(len(lo))
    while len(lo):
        inner = hi - lo > 1
        lo, hi, root = lo[inner], hi[inner], root[inner]
        above = (lo + 1) * (n - hi + 1)
        lo, hi, which = split_evenly(lo, hi, np.full(len(lo), k, np.int64))
        use = ((lo + 1) * (n - hi + 1) - above[which]) / (n * (n + 1) / 2)
        root = root[which]
        total += np.bincount(root, use, len(total))
    return total


def struct_construct(n: int, k: int, largest: int = 20) -> Tree:
    """The tree of SC for all ranges.

    Args:
        n: number of leaves.
        k: arity of the left spine, at least 2.
        largest: the largest arity tried, at least k.

    Returns:
        The tree, longer segments first.

    **Source** docs/method/axis.md, "Which tree: SC". The text puts shorter segments first in one place; then the spine
    is not the longest path and noise scaled to it would be too small.
    """
    return grow(n, lambda lo, hi: _choose(n, lo, hi, k, largest))


def _choose(n: int, lo: IntArray, hi: IntArray, k: int, largest: int) -> IntArray:
    """The arity of each interval: k on the left spine, else the least H; shape (m,)."""
    best, arity = np.full(len(lo), np.inf), np.full(len(lo), k, np.int64)
    for w in range(k, largest + 1):
        use = subtree_use(n, lo, hi, w)
        arity = np.where(use < best, w, arity)
        best = np.minimum(use, best)
    return np.where(lo == 0, k, arity)


def equal_error(tree: Tree) -> float:
    """Mean variance over all ranges before least squares, equal budgets, Laplace noise at epsilon 1.

    **Source** docs/method/axis.md, "Which tree: SC", with the measured depth as sensitivity.
    """
    return float(2 * tree.depth**2 * coverage(tree).sum())


def best_struct_construct(n: int, largest: int = 20) -> Tree:
    """SC on the arity 2..largest whose plain k-ary tree has the least expected error.

    **Source** docs/method/axis.md, "Which tree: SC".
    """
    arities = range(2, max(2, min(n, largest)) + 1)
    k = min(arities, key=lambda arity: equal_error(kary_tree(n, arity)))
    return struct_construct(n, k, largest)


def equal_strategy(tree: Tree, total: int = 1 << 20) -> TreeStrategy:
    """Equal budgets on every level (Hay; SC)."""
    return tree_strategy(tree, np.full(tree.size, 1 / tree.depth), total)


def named(question: AxisQuestion) -> Candidate:
    """SC's tree for all ranges."""
    return candidate(equal_strategy(best_struct_construct(question.leaves)), "Struct-Construct", question)


NAMED: Mapping[str, Callable[[AxisQuestion], Candidate]] = {"struct_construct": named}


def offers(question: AxisQuestion) -> Iterator[Offer | Refusal]:
    """Never unasked."""
    better = "is had by name; LUE-DPTree errs less"
    yield Refusal("Struct-Construct", better if question.allows(LAPLACE) else f"is for {LAPLACE.name} noise")
