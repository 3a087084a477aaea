"""SC: a tree whose left spine is k-ary and whose other nodes choose their own arity greedily.

A node off the spine takes the arity w in [k, largest] for which the w-ary subtree below it has the least
sum of use probabilities, H(l, r, w). All nodes of a level choose at once. Budgets are equal along a path;
the sensitivity is the measured depth, never the length of the spine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from dpsql.matrices.strategy import Strategy
from dpsql.mechanisms.axis.strategy import AxisChoice, AxisProblem, NamedAxisMechanism, Proposal, Word, alone
from dpsql.mechanisms.axis.tree import tree_strategy
from dpsql.mechanisms.distribution import LAPLACE
from dpsql.mechanisms.offers import Refusal
from dpsql.tree import FloatArray, IntArray, Tree, Workload, coverage, grow, kary_tree, split_evenly


class Containing:
    """Number of asked ranges that contain an interval, for many intervals at once.

    All ranges have a closed form. Declared ones are sorted by where they begin, and each power of two of them by where
    they end, so that a question is a few look-ups.

    Args:
        n: number of leaves.
        workload: the ranges asked; None means all ranges.
    """

    def __init__(self, n: int, workload: Workload | None) -> None:
        self.n = n
        self.whole: float = n * (n + 1) / 2
        # Ranges sorted by block and by where they end: a key that increases, and running sums of weights.
        self._blocks: list[tuple[IntArray, FloatArray]] = []
        self._starts = np.zeros(0, np.int64)
        if workload is None:
            return
        order = np.argsort(workload.lo, kind="stable")
        self._starts, end = np.asarray(workload.lo)[order], np.asarray(workload.hi)[order]
        weight = np.asarray(workload.weight, np.float64)[order]
        self.whole = float(weight.sum())
        for level in range(len(end).bit_length()):
            block = np.arange(len(end)) >> level
            inside = np.lexsort((-end, block))  # longest first inside a block
            sums = np.append(0.0, np.cumsum(weight[inside]))
            self._blocks.append((block * (n + 2) + (n + 1 - end[inside]), sums))

    def __call__(self, lo: IntArray, hi: IntArray) -> IntArray | FloatArray:
        """The number, or the weight, of ranges that hold each interval [lo, hi), shape (m,)."""
        if not self._blocks:
            return (lo + 1) * (self.n - hi + 1)
        first = np.searchsorted(self._starts, lo, side="right")  # ranges that begin in time
        total = np.zeros(len(lo))
        for level, (key, sums) in enumerate(self._blocks):
            used = (first >> level) & 1 == 1
            block = (first[used] >> level) - 1
            begin = block << level
            end = np.searchsorted(key, block * (self.n + 2) + (self.n + 1 - hi[used]), side="right")
            total[used] += sums[end] - sums[begin]
        return total


def subtree_use(asked: Containing, lo: IntArray, hi: IntArray, k: int) -> FloatArray:
    """H without the node itself: the use of all nodes below each interval, split k-ary to the leaves.

    Args:
        asked: the ranges asked.
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
        above = asked(lo, hi)
        lo, hi, parent_index = split_evenly(lo, hi, np.full(len(lo), k, np.int64))
        use = (asked(lo, hi) - above[parent_index]) / asked.whole
        root = root[parent_index]
        total += np.bincount(root, use, len(total))
    return total


def struct_construct(n: int, k: int, largest: int = 20, workload: Workload | None = None) -> Tree:
    """The tree of SC.

    Args:
        n: number of leaves.
        k: arity of the left spine, at least 2.
        largest: the largest arity tried, at least k.
        workload: the ranges asked; None means all ranges.

    Returns:
        The tree, longer segments first.

    **Source** docs/method/axis.md, "Which tree: SC". The text puts shorter segments first in one place; then the spine
    is not the longest path and noise scaled to it would be too small.
    """
    containing = Containing(n, workload)

    def arity(lo: IntArray, hi: IntArray) -> IntArray:
        best, arity = np.full(len(lo), np.inf), np.full(len(lo), k, np.int64)
        for w in range(k, largest + 1):
            use = subtree_use(containing, lo, hi, w)
            arity = np.where(use < best, w, arity)
            best = np.minimum(use, best)
        return np.where(lo == 0, k, arity)

    return grow(n, arity)


def equal_error(tree: Tree, workload: Workload | None = None) -> float:
    """Mean variance over the ranges asked before least squares, equal budgets, Laplace noise at epsilon 1.

    **Source** docs/method/axis.md, "Which tree: SC", with the measured depth as sensitivity.
    """
    return float(2 * tree.depth**2 * coverage(tree, workload).sum())


def best_struct_construct(n: int, largest: int = 20, workload: Workload | None = None) -> Tree:
    """SC on the arity 2..largest whose plain k-ary tree has the least expected error.

    **Source** docs/method/axis.md, "Which tree: SC".
    """
    arities = range(2, max(2, min(n, largest)) + 1)
    k = min(arities, key=lambda arity: equal_error(kary_tree(n, arity), workload))
    return struct_construct(n, k, largest, workload)


def equal_strategy(tree: Tree, total: int = 1 << 20) -> Strategy:
    """Equal budgets on every level (Hay; SC)."""
    return tree_strategy(tree, np.full(tree.size, 1 / tree.depth), total)


def named(question: AxisProblem, word: Word) -> AxisChoice:
    """SC's tree for the ranges asked."""
    tree = best_struct_construct(question.leaves, workload=question.workload)
    return alone(equal_strategy(tree), "Struct-Construct", question)


NAMED: Mapping[str, NamedAxisMechanism] = {"struct_construct": NamedAxisMechanism(named, (LAPLACE,))}


def offers(question: AxisProblem) -> Iterator[Proposal]:
    """Never unasked."""
    better = "is used by name only; LUE-DPTree has less error"
    yield Refusal("Struct-Construct", better if question.law == LAPLACE else f"is for {LAPLACE.name} noise")
