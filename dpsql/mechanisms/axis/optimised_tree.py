"""Tree budgets that minimise the error after least squares, over all ranges or declared ones.

The mean variance of all ranges is O(n) on a tree: it needs the sum of prefix variances and one quadratic
form, and both pass upwards as a few numbers per node. Running the same recursion backwards gives the
gradient. Declared ranges have their own loss and gradient, in `asked_loss`. The objective is not convex and a
node without budget is a stationary point, so the search starts from several splits and keeps the best.

    per node     one variable a node: the fraction of its path's rest that it keeps
    per level    one variable a level
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dpsql.mechanisms.axis import dense
from dpsql.mechanisms.axis.arities import arities, refuses_trees
from dpsql.mechanisms.axis.asked_loss import asked_loss, asked_ranges
from dpsql.mechanisms.axis.cut_tree import LOG_ARITIES, cut_trees
from dpsql.mechanisms.axis.descent import Objective, minimise
from dpsql.mechanisms.axis.lue_dptree import likely_best, split
from dpsql.mechanisms.axis.question import AxisQuestion, Candidate, Offer, Refusal, candidate
from dpsql.mechanisms.axis.tree import LEAF_SHARE, tree_strategy
from dpsql.mechanisms.law import LAPLACE, NoiseLaw
from dpsql.tree import FloatArray, IntArray, Tree, Workload, coverage, kary_tree
from dpsql.variance.tree import inner_levels

_FAR = 30.0  # logits beyond this round to a budget of 0 or 1


class _Pass(NamedTuple):
    """What passes upwards; each of shape (size,). Sums run over prefixes that end inside the node."""

    s: FloatArray  # variance of the node's sum from below
    first: FloatArray  # sum of a
    second: FloatArray  # sum of a^2
    prefixes: FloatArray  # sum of r
    overlap: FloatArray  # a of the mask t_j = n - j
    square: FloatArray  # r of that mask


class _Family(NamedTuple):
    """The inner nodes of a level with their children, and sums over the children."""

    parents: IntArray
    children: slice
    first: IntArray  # offset of each parent's first child
    of: IntArray  # index of each child's parent
    left: FloatArray  # sum of s over earlier siblings
    spread: FloatArray  # S, sum of s
    one: FloatArray  # sum of (leaves left + first)
    two: FloatArray  # sum of (leaves left^2 + 2 left first + second)
    overlap: FloatArray
    gain: FloatArray


def all_range_loss(tree: Tree, weight: FloatArray, whole: float = 0.0) -> tuple[float, FloatArray]:
    """Mean variance over all ranges after least squares, and its gradient, in O(n).

    Args:
        tree: the shape.
        weight: 1 / variance of each node's measurement, shape (size,), positive at leaves.
        whole: weight of the total of the axis against the mean of all ranges, in [0, 1].

    Returns:
        (mean variance for unit noise, gradient with respect to the weights, shape (size,)).
    """
    n, leaves = tree.n, tree.leaves
    s = 1 / weight[leaves]
    mask = np.arange(n, 0, -1.0)
    up = _Pass(*(np.zeros(tree.size) for _ in _Pass._fields))
    for field, value in zip(up, (s, s, s * s, s, s * mask, s * mask**2), strict=True):
        field[leaves] = value
    families = [_upwards(tree, weight, up, parents, first) for parents, first in inner_levels(tree)]
    pairs = n * (n + 1) / 2
    ranges = ((n + 1) * up.prefixes[0] - up.square[0]) / pairs
    loss = (1 - whole) * ranges + whole * up.s[0]
    down = _Pass(*(np.zeros(tree.size) for _ in _Pass._fields))
    down.prefixes[:] = (1 - whole) * (n + 1) / pairs  # both sums have the same adjoint at every node
    down.square[:] = (whole - 1) / pairs
    down.s[0] = whole
    gradient = np.zeros(tree.size)
    for family in reversed(families):
        _downwards(tree, weight, up, down, gradient, family)
    total = down.s + down.first + 2 * up.s * down.second + down.prefixes
    total = total[leaves] + down.overlap[leaves] * mask + down.square[leaves] * mask**2
    gradient[leaves] = -total * s * s
    return float(loss), gradient


def _upwards(tree: Tree, weight: FloatArray, up: _Pass, parents: IntArray, first: IntArray) -> _Family:
    """One level of the recursion of `variance.tree`, summed over prefixes."""
    count = tree.child_count[parents]
    children = slice(int(first[0]), int(first[-1] + count[-1]))
    offset, of = first - first[0], np.repeat(np.arange(len(parents)), count)
    leaves = (tree.hi - tree.lo)[children]
    before = np.cumsum(up.s[children]) - up.s[children]
    left = before - before[offset][of]

    def add(value: FloatArray) -> FloatArray:
        total: FloatArray = np.add.reduceat(value, offset)
        return total

    spread, overlap = add(up.s[children]), add(up.overlap[children])
    one = add(leaves * left + up.first[children])
    two = add(leaves * left**2 + 2 * left * up.first[children] + up.second[children])
    w = weight[parents]
    gain = 1 / (1 + w * spread)
    up.s[parents] = gain * spread
    up.first[parents] = gain * one
    up.second[parents] = gain**2 * two
    up.prefixes[parents] = add(leaves * left + up.prefixes[children]) - w * gain * two
    up.overlap[parents] = gain * overlap
    up.square[parents] = add(up.square[children]) - w * gain * overlap**2
    return _Family(parents, children, offset, of, left, spread, one, two, overlap, gain)


def _downwards(
    tree: Tree, weight: FloatArray, up: _Pass, down: _Pass, gradient: FloatArray, family: _Family
) -> None:
    """The same level backwards: adjoints of the parents give those of the children and of the weights."""
    x, children, of, gain = family.parents, family.children, family.of, family.gain
    w, two, overlap = weight[x], family.two, family.overlap
    to_gain = down.s[x] * family.spread + down.first[x] * family.one + 2 * down.second[x] * gain * two
    to_gain += -down.prefixes[x] * w * two + down.overlap[x] * overlap - down.square[x] * w * overlap**2
    gradient[x] = -gain * (down.prefixes[x] * two + down.square[x] * overlap**2)
    gradient[x] -= to_gain * family.spread * gain**2
    to_spread = down.s[x] * gain - to_gain * w * gain**2
    to_two = down.second[x] * gain**2 - down.prefixes[x] * w * gain
    to_one = down.first[x] * gain
    leaves = (tree.hi - tree.lo)[children]
    inner = family.left * leaves + up.first[children]
    to_left = leaves * (to_one[of] + down.prefixes[x][of]) + 2 * to_two[of] * inner
    through = np.cumsum(to_left)
    last = np.append(family.first[1:], len(through)) - 1
    down.s[children] = to_spread[of] + through[last][of] - through
    down.first[children] = to_one[of] + 2 * family.left * to_two[of]
    down.second[children] = to_two[of]
    down.overlap[children] = (gain * (down.overlap[x] - 2 * down.square[x] * w * overlap))[of]


def _shares(tree: Tree, logit: FloatArray) -> tuple[FloatArray, FloatArray]:
    """What each node keeps of the whole, and the fraction it keeps of its path's rest; shape (size,)."""
    keeps = 1 / (1 + np.exp(-np.clip(logit, -_FAR, _FAR)))
    keeps[tree.is_leaf] = 1.0
    left = np.ones(tree.size)
    for part in tree.level_slices[1:]:
        above = tree.parent[part]
        left[part] = left[above] * (1 - keeps[above])
    return left * keeps, keeps


def range_loss(tree: Tree, workload: Workload | None = None, whole: float = 0.0) -> Objective:
    """The mean variance of the ranges asked and its gradient, as a function of the nodes' weights.

    Args:
        tree: the shape.
        workload: the ranges asked; None means all ranges, equally often.
        whole: weight of the total of the axis against the mean of the ranges, in [0, 1].
    """
    if workload is None:
        return partial(all_range_loss, tree, whole=whole)
    return partial(asked_loss, asked_ranges(tree, workload, whole))


def share_loss(tree: Tree, logit: FloatArray, law: NoiseLaw, loss: Objective) -> tuple[float, FloatArray]:
    """A loss as a function of the logits of what each node keeps; leaf logits do nothing.

    Leaves count with at least the share that `tree_strategy` leaves them, which also keeps the loss's digits.
    """
    share, keeps = _shares(tree, logit)
    least = np.where(tree.is_leaf, LEAF_SHARE, 0.0)
    weight = np.maximum(share, least) ** (2 / law.norm)
    value, gradient = loss(weight)
    pull = np.where(share >= least, gradient * weight * (2 / law.norm), 0.0)  # d loss / d log share
    below = np.zeros(tree.size)
    for parents, first in inner_levels(tree):
        children = slice(int(first[0]), int(first[-1] + tree.child_count[parents[-1]]))
        below[parents] = np.add.reduceat((pull + below)[children], first - first[0])
    return value, np.where(tree.is_leaf, 0.0, pull * (1 - keeps) - keeps * below)


def optimise_levels(
    tree: Tree, law: NoiseLaw = LAPLACE, whole: float = 0.0, workload: Workload | None = None, steps: int = 60
) -> tuple[FloatArray, float]:
    """Budgets that depend on the level alone, started from equal ones with and without the root.

    Args:
        tree: the shape.
        law: the noise.
        whole: weight of the total against the mean of the ranges.
        workload: the ranges asked; None means all ranges, equally often.
        steps: most steps of each search.

    Returns:
        (budgets, shape (size,), mean variance for unit noise).
    """
    equal = -np.log(np.maximum(tree.depth - np.arange(tree.depth) - 1.0, 0.5))
    no_root = equal.copy()
    no_root[0] = -8.0
    loss = range_loss(tree, workload, whole)
    return _search(tree, law, loss, tree.level, (equal, no_root), steps)


def optimise_nodes(
    tree: Tree,
    law: NoiseLaw = LAPLACE,
    whole: float = 0.0,
    workload: Workload | None = None,
    steps: int = 200,
    tries: int = 3,
) -> tuple[FloatArray, float]:
    """Budgets of every node.

    Args:
        tree, law, whole, workload, steps: as of `optimise_levels`.
        tries: the most starts taken, the likeliest first.

    Returns:
        As of `optimise_levels`.
    """
    starts = [_logits(tree, budget, law) for budget in _starts(tree, law, whole, workload)[:tries]]
    return _search(tree, law, range_loss(tree, workload, whole), np.arange(tree.size), starts, steps)


def _starts(tree: Tree, law: NoiseLaw, whole: float, workload: Workload | None) -> list[FloatArray]:
    """Budgets to start from.

    Nodes that a short log never uses get no budget from LUE-DPTree's split, and never any by descent; so a log
    is first joined with all ranges.
    """
    use = coverage(tree, workload, whole)
    if workload is None:
        return [split(tree, use, law), optimise_levels(tree, law, whole)[0]]
    equal = np.where(tree.level == 0, 0.0, 1.0 / max(1, tree.depth - 1)) ** (1 / law.norm)
    return [split(tree, use / 2 + coverage(tree) / 2, law), equal, split(tree, use, law)]


def _search(
    tree: Tree, law: NoiseLaw, loss: Objective, of: IntArray, starts: Sequence[FloatArray], steps: int
) -> tuple[FloatArray, float]:
    """The best end of several searches over logits; node x keeps what variable of[x] says."""

    def objective(logit: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = share_loss(tree, logit[of], law, loss)
        return value, np.bincount(of, gradient, len(logit)).astype(np.float64)

    best, value = min((minimise(objective, start, steps) for start in starts), key=lambda end: end[1])
    share = _shares(tree, best[of])[0]
    return share ** (1 / law.norm), value


def _logits(tree: Tree, budget: FloatArray, law: NoiseLaw) -> FloatArray:
    """The logits whose shares are the given budgets."""
    share, left = budget**law.norm, np.ones(tree.size)
    for part in tree.level_slices[1:]:
        above = tree.parent[part]
        left[part] = left[above] - share[above]
    keeps = np.clip(share / np.maximum(left, 1e-300), 1e-6, 1 - 1e-6)
    logit: FloatArray = np.log(keeps / (1 - keeps))
    return np.where(tree.is_leaf, 0.0, logit)


NAMED: Mapping[str, Callable[[AxisQuestion], Candidate]] = {}

_ARITIES = (4, 8, 16)  # the best arity is near one of them
_LEAVES = 1024  # budgets per node take 0.2 s a tree here
_LOG_SEARCH = ((1024, 80, 2), (1 << 12, 60, 1))
"""Leaves (a quarter of the ranges, if more) up to which a log is searched for, steps and starts: half a second."""


def offers(question: AxisQuestion) -> Iterator[Offer | Refusal]:
    """The best budgets per node, where the search is short."""
    name = "tree, budgets per node"
    reason = refuses_trees(question)
    if reason:
        yield Refusal(name, reason)
    elif question.workload is not None:
        yield from _log_offers(name, question, question.workload)
    elif question.leaves > _LEAVES:
        yield Refusal(name, f"is searched up to {_LEAVES} leaves")
    else:
        yield Offer(name, 0.0, lambda: _searched(question))


def _log_offers(name: str, question: AxisQuestion, log: Workload) -> Iterator[Offer | Refusal]:
    size = max(question.leaves, len(log.lo) // 4)
    if size > _LOG_SEARCH[-1][0]:
        yield Refusal(name, "is searched on shorter axes, or for fewer ranges")
    elif dense.reaches(question):
        yield Refusal(name, "the dense optimum errs less on most logs")
    else:
        yield Offer(name, 0.0, lambda: _searched_log(question, log, size))


def _searched(question: AxisQuestion) -> Candidate:
    """For all ranges: near the best arity of LUE-DPTree and a few others."""
    likely, _ = likely_best(question)
    trees = {k: kary_tree(question.leaves, k) for k in sorted({*_ARITIES, likely} & set(arities(question)))}
    searched = {k: optimise_nodes(tree, question.law, question.whole, steps=120) for k, tree in trees.items()}
    k = min(searched, key=lambda arity: searched[arity][1])
    strategy = tree_strategy(trees[k], searched[k][0], law=question.law)
    return candidate(strategy, f"tree k={k}, budgets per node", question)


def _searched_log(question: AxisQuestion, log: Workload, size: int) -> Candidate:
    """For a log: even trees and trees cut at its borders."""
    _, steps, starts = next(limit for limit in _LOG_SEARCH if size <= limit[0])
    cut = cut_trees(question)
    plain = [k for k in LOG_ARITIES[-2 if cut else 0 :] if k in arities(question)]
    trees = {f"k={k}": kary_tree(question.leaves, k) for k in plain}
    trees |= {f"k={k}, cut at the log's borders": tree for k, tree in cut.items()}
    searched = {
        words: optimise_nodes(tree, question.law, question.whole, log, steps, starts)
        for words, tree in trees.items()
    }
    words = min(searched, key=lambda key: searched[key][1])
    strategy = tree_strategy(trees[words], searched[words][0], law=question.law)
    return candidate(strategy, f"tree {words}, budgets per node", question)
