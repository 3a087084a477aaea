"""LUE-DPTree: budgets that follow how often a node is used, on any tree.

    here      there              meaning
    split     CNP + NPBD         share of each node (module `tree`)
    blue      PA_BLUE + CRC      consistent estimates (module `tree`)
    use       p_x                how often a random range uses the node (`tree.coverage`)

The seed minimises the error before least squares. The split is in closed form and O(n); the better split
for the error after least squares is in `optimised_tree`.

Where ranges are declared, trees are also tried whose nodes end where the ranges end: a range of a query log is a few
nodes of such a tree, where an even tree would cover it with several nodes on each of its levels. Borders that the log
uses often cut the axis into parts; a k-ary tree over the parts stands above k-ary trees inside each part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from dpsql.errors import CatalogError
from dpsql.matrices.strategy import Strategy
from dpsql.mechanisms.axis.strategy import (
    AxisChoice,
    AxisProblem,
    Candidate,
    NamedAxisMechanism,
    Proposal,
    Word,
    best,
    candidate,
)
from dpsql.mechanisms.axis.tree import (
    LONG_LOG,
    TOTAL,
    arities,
    refuses_trees,
    split_budgets,
    tree_strategy,
)
from dpsql.mechanisms.distribution import LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import Offer, Refusal
from dpsql.tree import (
    IntArray,
    Tree,
    Workload,
    coverage,
    kary_tree,
    levels_tree,
    split_evenly,
    tree_from_arrays,
)


def lue_dptree(
    tree: Tree,
    workload: Workload | None = None,
    total: int = TOTAL,
    law: NoiseDistribution = LAPLACE,
    whole: float = 0.0,
) -> Strategy:
    """The seed's mechanism on a given tree: coverage, split, integer budgets.

    Args:
        tree: the shape.
        workload: the ranges asked; None means all ranges.
        total: the integer that stands for the whole budget.
        law: the noise.
        whole: the part of the questions that asks for the total instead.

    **Source** docs/method/axis.md, "A budget for each node".
    """
    return tree_strategy(tree, split_budgets(tree, coverage(tree, workload, whole), law), total, law.norm)


class TreeShape(NamedTuple):
    """A shape of trees that a catalog may name.

    Args:
        name: its word.
        words: in words, before the arity.
        grow: leaves and arity -> the tree.
        arities: those that it may have.
    """

    name: str
    words: str
    grow: Callable[[int, int], Tree]
    arities: range


SHAPES = (
    TreeShape("kary", "LUE-DPTree", kary_tree, range(2, 1025)),
    TreeShape("binary", "binary LUE-DPTree", kary_tree, range(2, 3)),
    TreeShape("levels", "LUE-DPTree of even levels", levels_tree, range(2, 1025)),
)

LARGEST = 32
"""Arities up to this one are tried where the catalog names none."""


def named(question: AxisProblem, word: Word) -> AxisChoice:
    """A tree of the shape and arity that the catalog names; of what it leaves open, what errs least."""
    shape = next((shape for shape in SHAPES if shape.name == word.shape), SHAPES[0])
    if word.arity and word.arity not in shape.arities:
        raise CatalogError(
            f"a {shape.name} tree has {shape.arities[-1]} children a node at most, not {word.arity}",
            hint="leave out `arity`, or write `tree: kary`",
        )
    largest_arity = max(2, min(question.leaves, LARGEST))
    tried = [word.arity] if word.arity else [k for k in shape.arities if k <= largest_arity]
    trees = {k: shape.grow(question.leaves, k) for k in tried}
    winner = best(on_trees(question, trees, f"{shape.words} k={{}}").values())
    return AxisChoice(winner.strategy, winner.name, winner.error)


NAMED: Mapping[str, NamedAxisMechanism] = {word: NamedAxisMechanism(named) for word in ("lue_dptree", "tree")}


def on_trees(question: AxisProblem, trees: Mapping[int, Tree], words: str) -> dict[int, Candidate]:
    """The seed's mechanism on trees of several arities; `words` takes the arity."""
    return {
        k: candidate(
            lue_dptree(tree, question.workload, law=question.law, whole=question.whole),
            words.format(k),
            question,
        )
        for k, tree in trees.items()
    }


def even_trees(question: AxisProblem) -> dict[int, Candidate]:
    """The same on even trees of the arities that are tried."""
    return on_trees(
        question, {k: kary_tree(question.leaves, k) for k in arities(question)}, "LUE-DPTree k={}"
    )


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
        lo, hi, parent_index = split_evenly(lo[inner], hi[inner], np.full(len(inner), k))
        los.append(lo)
        his.append(hi)
        parents.append(node[inner][parent_index])
        node, size = size + np.arange(len(lo)), size + len(lo)
    return tree_from_arrays(np.concatenate(los), np.concatenate(his), np.concatenate(parents))


def cut_trees(question: AxisProblem) -> dict[int, Tree]:
    """Cut trees by arity; none where no border is used often."""
    if question.workload is None:
        return {}
    cuts = log_borders(question.leaves, question.workload)
    arities = LOG_ARITIES if question.leaves <= LONG_LOG else LOG_ARITIES[-1:]
    return {k: cut_tree(question.leaves, k, cuts) for k in arities if len(cuts)}


def offers(question: AxisProblem) -> Iterator[Proposal]:
    """LUE-DPTree at its best arity, and on cut trees."""
    even, cut, words = (
        "LUE-DPTree",
        "LUE-DPTree, cut at the log's borders",
        "LUE-DPTree k={}, cut at the log's borders",
    )
    reason = refuses_trees(question)
    yield Refusal(even, reason) if reason else Offer(even, 0.0, lambda: best(even_trees(question).values()))
    reason = reason or ("" if cut_trees(question) else "no border is asked often")
    yield (
        Refusal(cut, reason)
        if reason
        else Offer(cut, 0.0, lambda: best(on_trees(question, cut_trees(question), words).values()))
    )
