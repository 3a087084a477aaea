"""Trees: nodes with an integer budget each; LUE-DPTree's budgets, cut trees, and SC's shapes.

Square-root trees and the trees with searched budgets (`optimised_tree`) are nodes with budgets too: they differ in the
tree and in the budgets. Estimates are best linear unbiased (`matrices.tree.blue`).

**LUE-DPTree**: budgets follow how often a node is used, on any tree.

    here      there              meaning
    split     CNP + NPBD         share of each node
    blue      PA_BLUE + CRC      consistent estimates (`matrices.tree`)
    use       p_x                how often a random range uses the node (`tree.coverage`)

The seed minimises the error before least squares. The split is in closed form and O(n); the better split for the error
after least squares is in `optimised_tree`. The seed's coefficients a and b divide by 0 where a node is never used; its
(3.3) must visit children before parents, (3.10) and (3.11) add over children and not over leaves, and by its own rule
its worked errors are 8.2389 and 15.1752.

Where ranges are declared, trees are also tried whose nodes end where the ranges end: a range of a query log is a few
nodes of such a tree, where an even tree would cover it with several nodes on each of its levels. Borders that the log
uses often cut the axis into parts; a k-ary tree over the parts stands above k-ary trees inside each part.

**SC**: a tree whose left spine is k-ary and whose other nodes choose their own arity greedily. A node off the spine
takes the arity w in [k, largest] for which the w-ary subtree below it has the least sum of use probabilities,
H(l, r, w). All nodes of a level choose at once. Budgets are equal along a path; the sensitivity is the measured depth,
never the length of the spine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dpsql.errors import CatalogError, InternalError
from dpsql.matrices.strategy import Strategy, integer_root, rows_of_ones
from dpsql.matrices.tree import TreeVariance
from dpsql.mechanisms.axis.dense import reaches
from dpsql.mechanisms.distribution import LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import (
    FEWEST_LEAVES,
    AxisCandidate,
    AxisChoice,
    AxisProblem,
    NamedAxisMechanism,
    Offer,
    Proposal,
    Refusal,
    Word,
    alone,
    best,
    candidate,
)
from dpsql.tree import (
    FloatArray,
    IntArray,
    Tree,
    Workload,
    coverage,
    grow,
    kary_tree,
    levels_tree,
    split_evenly,
    tree_from_arrays,
)

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
    rows = rows_of_ones(tree.n, tree.lo[node], tree.hi[node])
    solver = TreeVariance(tree, (units / total) ** 2)
    shape, budget = [tree.lo, tree.hi, tree.parent], units[node]
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

    **Source** docs/method/views.md, "A budget for each node"; docs/method/views.md, "The split theorem".

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
_LONGEST_ARITIES = {1: (16,), 2: (3,)}  # two trees of 2^20 leaves would take half a gigabyte
LONG_LOG = 1 << 12
"""The same with a log, whose ranges are evaluated one by one."""
_LONG_LOG_ARITIES = (2, 4, 8, 16)
_TREE_LEAVES = 1 << 17  # beyond this trees have lost by a quarter, and take as long as all the rest
TENT_LEAVES = 1 << 18
"""Leaves up to which a release of tents is made and asked in 1 GB; a tree of 2^20 leaves takes less, and 40% more
variance."""


def refuses_trees(question: AxisProblem) -> str:
    """Reason why no tree is offered, or an empty string."""
    if question.joint is not None and question.workload is None and question.leaves <= TENT_LEAVES:
        return "a joint tree has less error on all ranges"
    if question.leaves < FEWEST_LEAVES:
        return f"takes axes of {FEWEST_LEAVES} leaves or more"
    if reaches(question) and question.workload is None:  # all ranges are asked
        return "the dense optimum has less error than any rows"
    if question.leaves > _TREE_LEAVES and (question.law != LAPLACE or question.leaves <= TENT_LEAVES):
        return f"loses by a quarter from {_TREE_LEAVES} leaves on"
    return ""


def arities(question: AxisProblem) -> tuple[int, ...]:
    """The arities tried on an axis."""
    tried: tuple[int, ...] = ARITIES
    if question.workload is None and question.leaves > LONG:
        by_norm = _LONGEST_ARITIES if question.leaves > TENT_LEAVES else _LONG_ARITIES
        tried = by_norm[question.law.norm]
    elif question.workload is not None and question.leaves > LONG_LOG:
        tried = _LONG_LOG_ARITIES
    return tuple(k for k in tried if k <= question.leaves)


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

    **Source** docs/method/views.md, "A budget for each node".
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
    if len(tried) > 1 and question.leaves > LONG:
        tried = list(arities(question))
    trees = ((k, shape.grow(question.leaves, k)) for k in tried)
    winner = best(on_trees(question, trees, f"{shape.words} k={{}}"))
    return AxisChoice(winner.strategy, winner.name, winner.error)


def on_trees(question: AxisProblem, trees: Iterable[tuple[int, Tree]], words: str) -> Iterator[AxisCandidate]:
    """The seed's mechanism on trees of several arities, one at a time; `words` takes the arity."""
    for k, tree in trees:
        strategy = lue_dptree(tree, question.workload, law=question.law, whole=question.whole)
        yield candidate(strategy, words.format(k), question)


def even_trees(question: AxisProblem) -> Iterator[AxisCandidate]:
    """The same on even trees of the arities that are tried."""
    trees = ((k, kary_tree(question.leaves, k)) for k in arities(question))
    return on_trees(question, trees, "LUE-DPTree k={}")


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

    **Source** docs/method/views.md, "Which tree: SC".
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

    **Source** docs/method/views.md, "Which tree: SC". The text puts shorter segments first in one place; then the spine
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

    **Source** docs/method/views.md, "Which tree: SC", with the measured depth as sensitivity.
    """
    return float(2 * tree.depth**2 * coverage(tree, workload).sum())


def best_struct_construct(n: int, largest: int = 20, workload: Workload | None = None) -> Tree:
    """SC on the arity 2..largest whose plain k-ary tree has the least expected error.

    **Source** docs/method/views.md, "Which tree: SC".
    """
    arities = range(2, max(2, min(n, largest)) + 1)
    k = min(arities, key=lambda arity: equal_error(kary_tree(n, arity), workload))
    return struct_construct(n, k, largest, workload)


def equal_strategy(tree: Tree, total: int = 1 << 20) -> Strategy:
    """Equal budgets on every level (Hay; SC)."""
    return tree_strategy(tree, np.full(tree.size, 1 / tree.depth), total)


def named_struct_construct(question: AxisProblem, word: Word) -> AxisChoice:
    """SC's tree for the ranges asked."""
    tree = best_struct_construct(question.leaves, workload=question.workload)
    return alone(equal_strategy(tree), "Struct-Construct", question)


NAMED: Mapping[str, NamedAxisMechanism] = {
    "lue_dptree": NamedAxisMechanism(named), "tree": NamedAxisMechanism(named),
    "struct_construct": NamedAxisMechanism(named_struct_construct, (LAPLACE,)),
}  # fmt: skip


def offers(question: AxisProblem) -> Iterator[Proposal]:
    """LUE-DPTree at its best arity, and on cut trees; SC never unasked."""
    even, cut = "LUE-DPTree", "LUE-DPTree, cut at the log's borders"
    words = "LUE-DPTree k={}, cut at the log's borders"
    reason = refuses_trees(question)
    yield Refusal(even, reason) if reason else Offer(even, 0.0, lambda: best(even_trees(question)))
    reason = reason or ("" if cut_trees(question) else "no border is asked often")
    yield (
        Refusal(cut, reason)
        if reason
        else Offer(cut, 0.0, lambda: best(on_trees(question, cut_trees(question).items(), words)))
    )
    unasked = "is used by name only; LUE-DPTree has less error"
    yield Refusal("Struct-Construct", unasked if question.law == LAPLACE else f"is for {LAPLACE.name} noise")
