"""Tree budgets that minimise the error after least squares, over all ranges or declared ones.

The objective (`tree_loss`) is not convex and a node without budget is a stationary point, so the search by descent
(limited-memory BFGS with backtracking) starts from several splits and keeps the best. A descent moves all nodes at
once, so some of a level may keep a budget where others lose theirs, which of them by its last bits. Its end is
therefore tried without each level, and descended from again while that gains. Sums are numpy's own, never those of
BLAS, whose order is another on each family of processors.

    per node     one variable a node: the fraction of its path's rest that it keeps
    per level    one variable a level
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from math import sqrt

import numpy as np

from dpsql.mechanisms.axis import dense
from dpsql.mechanisms.axis.tree import (
    LEAF_SHARE,
    LOG_ARITIES,
    arities,
    cut_trees,
    even_trees,
    refuses_trees,
    split_budgets,
    tree_strategy,
)
from dpsql.mechanisms.axis.tree_loss import Objective, range_loss
from dpsql.mechanisms.distribution import LAPLACE, LAWS, NoiseDistribution
from dpsql.mechanisms.offers import (
    AxisCandidate,
    AxisProblem,
    NamedAxisMechanism,
    Offer,
    Proposal,
    Refusal,
    candidate,
)
from dpsql.tree import FloatArray, IntArray, Tree, Workload, coverage, kary_tree

_FAR = 30.0  # logits beyond this round to a budget of 0 or 1
_GAIN = 1e-6  # a level is dropped for a larger part of the loss, which no rounding makes


def _shares(tree: Tree, logit: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Share that each node keeps of the whole, and of its path's rest; shape (size,)."""
    keeps = 1 / (1 + np.exp(-np.clip(logit, -_FAR, _FAR)))
    keeps[tree.is_leaf] = 1.0
    return tree.remaining(keeps) * keeps, keeps


def share_loss(
    tree: Tree, logit: FloatArray, law: NoiseDistribution, loss: Objective
) -> tuple[float, FloatArray]:
    """A loss as a function of the logits of what each node keeps; leaf logits do nothing.

    Leaves count with at least the share that `tree_strategy` leaves them, which also keeps the loss's digits.
    """
    share, keeps = _shares(tree, logit)
    floor = np.where(tree.is_leaf, LEAF_SHARE, 0.0)
    weight = np.maximum(share, floor) ** (2 / law.norm)
    value, gradient = loss(weight)
    pull = np.where(share >= floor, gradient * weight * (2 / law.norm), 0.0)  # d loss / d log share
    below = np.zeros(tree.size)
    for parents, children, first, *_ in tree.inner_levels:
        below[parents] = np.add.reduceat(pull[children] + below[children], first)
    return value, np.where(tree.is_leaf, 0.0, pull * (1 - keeps) - keeps * below)


LEVEL_STEPS = 60
"""Most steps of a search over one budget a level."""


def optimise_levels(
    tree: Tree, law: NoiseDistribution = LAPLACE, whole: float = 0.0
) -> tuple[FloatArray, float]:
    """Budgets that depend on the level alone, for all ranges equally often, started with and without the root.

    Args:
        tree: the shape.
        law: the noise.
        whole: weight of the total against the mean of the ranges.

    Returns:
        (budgets, shape (size,), mean variance for unit noise).
    """
    equal = -np.log(np.maximum(tree.depth - np.arange(tree.depth) - 1.0, 0.5))
    no_root = equal.copy()
    no_root[0] = -8.0
    return _search(tree, law, range_loss(tree, None, whole), tree.level, (equal, no_root), LEVEL_STEPS)


def optimise_nodes(
    tree: Tree,
    law: NoiseDistribution = LAPLACE,
    whole: float = 0.0,
    workload: Workload | None = None,
    steps: int = 200,
    tries: int = 3,
) -> tuple[FloatArray, float]:
    """Budgets of every node.

    Args:
        tree, law, whole: as of `optimise_levels`.
        workload: the ranges asked; None means all ranges, equally often.
        steps: most steps of each search.
        tries: the most starts taken, the likeliest first.

    Returns:
        As of `optimise_levels`.
    """
    starts = [_logits(tree, budget, law) for budget in _starts(tree, law, whole, workload)[:tries]]
    return _search(tree, law, range_loss(tree, workload, whole), np.arange(tree.size), starts, steps)


def _starts(
    tree: Tree, law: NoiseDistribution, total_share: float, workload: Workload | None
) -> list[FloatArray]:
    """Budgets to start from.

    Nodes that a short log never uses get no budget from LUE-DPTree's split, and never any by descent; so a log
    is first joined with all ranges.
    """
    use = coverage(tree, workload, total_share)
    if workload is None:
        return [split_budgets(tree, use, law), optimise_levels(tree, law, total_share)[0]]
    equal = np.where(tree.level == 0, 0.0, 1.0 / max(1, tree.depth - 1)) ** (1 / law.norm)
    return [split_budgets(tree, use / 2 + coverage(tree) / 2, law), equal, split_budgets(tree, use, law)]


def _search(
    tree: Tree,
    law: NoiseDistribution,
    loss: Objective,
    of: IntArray,
    starts: Sequence[FloatArray],
    steps: int,
) -> tuple[FloatArray, float]:
    """The best end of several searches over logits; node x keeps what variable of[x] says."""

    def objective(logit: FloatArray) -> tuple[float, FloatArray]:
        value, gradient = share_loss(tree, logit[of], law, loss)
        return value, np.bincount(of, gradient, len(logit)).astype(np.float64)

    level = np.zeros(len(starts[0]), np.int64)
    level[of] = tree.level
    ends = (_without_useless_levels(objective, start, level, steps) for start in starts)
    best, value = min(ends, key=lambda end: end[1])
    share = _shares(tree, best[of])[0]
    return share ** (1 / law.norm), value


def _without_useless_levels(
    objective: Objective, start: FloatArray, level: IntArray, steps: int
) -> tuple[FloatArray, float]:
    """The end of a descent that gains nothing from taking all budget of one level away.

    Args:
        objective: logits, shape (d,) -> (value, gradient of shape (d,)).
        start: logits, shape (d,).
        level: the level of each variable, shape (d,); the deepest one holds leaves alone.
        steps: most steps of each descent; a level goes at most once, so there are as many descents as levels at most.

    Returns:
        The logits, shape (d,), and their value.
    """
    point, value = minimise(objective, start, steps)
    inner = set(range(int(level.max())))
    while inner:
        without = {x: np.where(level == x, -_FAR, point) for x in sorted(inner)}
        values = {x: objective(logit)[0] for x, logit in without.items()}
        useless = min(values, key=lambda x: values[x])
        if values[useless] >= value * (1 - _GAIN):
            break
        inner.remove(useless)
        point, value = minimise(objective, without[useless], steps)
    return point, value


def _logits(tree: Tree, budget: FloatArray, law: NoiseDistribution) -> FloatArray:
    """The logits whose shares are the given budgets."""
    share, remaining = budget**law.norm, np.ones(tree.size)
    for nodes in tree.level_slices[1:]:
        above = tree.parent[nodes]
        remaining[nodes] = remaining[above] - share[above]
    keeps = np.clip(share / np.maximum(remaining, 1e-300), 1e-6, 1 - 1e-6)
    logit: FloatArray = np.log(keeps / (1 - keeps))
    return np.where(tree.is_leaf, 0.0, logit)


NAMED: Mapping[str, NamedAxisMechanism] = {}

_ARITIES = (4, 8, 16)  # the best arity is near one of them
_LEAVES = 1024  # budgets per node take 0.2 s a tree here
_LOG_SEARCH = ((1024, 80, 2), (1 << 12, 60, 1))
"""Leaves (a quarter of the ranges, if more) up to which a log is searched for, steps and starts: half a second."""


def offers(question: AxisProblem) -> Iterator[Proposal]:
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
        yield Offer(name, 0.0, lambda: _over_all_ranges(question.leaves, question.law.norm, question.whole))


def _log_offers(name: str, question: AxisProblem, log: Workload) -> Iterator[Proposal]:
    size = max(question.leaves, len(log.lo) // 4)
    if size > _LOG_SEARCH[-1][0]:
        yield Refusal(name, "is searched on shorter axes, or for fewer ranges")
    elif dense.reaches(question):
        yield Refusal(name, "the dense optimum has less error on most logs")
    else:
        _, steps, tries = next(limit for limit in _LOG_SEARCH if size <= limit[0])
        yield Offer(name, 0.0, lambda: _searched(question, _log_trees(question), steps, tries))


@lru_cache(maxsize=128)  # views ask for one axis at several grains, which change nothing here
def _over_all_ranges(leaves: int, norm: int, total_share: float) -> AxisCandidate:
    question = AxisProblem(leaves, LAWS[norm], None, total_share, scale=1)
    return _searched(question, _even_trees(question), 120, 3)


def _even_trees(question: AxisProblem) -> dict[str, Tree]:
    """For all ranges: near the best arity of LUE-DPTree and a few others."""
    candidates = dict(zip(arities(question), even_trees(question), strict=True))
    likely = min(candidates, key=lambda k: candidates[k].error)
    return {f"k={k}": kary_tree(question.leaves, k) for k in sorted({*_ARITIES, likely} & candidates.keys())}


def _log_trees(question: AxisProblem) -> dict[str, Tree]:
    """For a log: even trees and trees cut at its borders."""
    cut = cut_trees(question)
    plain = [k for k in LOG_ARITIES[-2 if cut else 0 :] if k in arities(question)]
    trees = {f"k={k}": kary_tree(question.leaves, k) for k in plain}
    return trees | {f"k={k}, cut at the log's borders": tree for k, tree in cut.items()}


def _searched(question: AxisProblem, trees: Mapping[str, Tree], steps: int, tries: int) -> AxisCandidate:
    searched = {
        words: optimise_nodes(tree, question.law, question.whole, question.workload, steps, tries)
        for words, tree in trees.items()
    }
    words = min(searched, key=lambda key: searched[key][1])
    strategy = tree_strategy(trees[words], searched[words][0], norm=question.law.norm)
    return candidate(strategy, f"tree {words}, budgets per node", question)


def minimise(
    objective: Objective, start: FloatArray, steps: int = 100, memory: int = 8
) -> tuple[FloatArray, float]:
    """A local minimum near `start`.

    Args:
        objective: x, shape (d,) -> (value, gradient of shape (d,)).
        start: shape (d,).
        steps: most steps taken; fewer when progress falls under 1e-9 of the value.
        memory: steps that curvature is read from.

    Returns:
        The point, shape (d,), and its value; never worse than the start.

    >>> point, value = minimise(lambda x: (float(x @ x), 2 * x), np.ones(3))
    >>> value < 1e-12
    True
    """
    point, (value, slope) = start, objective(start)
    pairs: deque[tuple[FloatArray, FloatArray]] = deque(maxlen=memory)
    for _ in range(steps):
        way = -_newton(slope, pairs)
        descent = _product(way, slope)
        if descent >= 0:
            pairs.clear()
            way, descent = -slope, -_product(slope, slope)
        length = 1.0 if pairs else 1.0 / max(1e-12, float(np.abs(slope).max()))
        lower_point = _backtrack(objective, point, value, length * way, length * descent)
        if lower_point is None:
            break
        ahead, new_value, new_slope = lower_point
        step, bend = ahead - point, new_slope - slope
        if _product(step, bend) > 1e-12 * sqrt(_product(step, step) * _product(bend, bend)):
            pairs.append((step, bend))
        gained, point, value, slope = value - new_value, ahead, new_value, new_slope
        if gained <= 1e-9 * abs(value):
            break
    return point, value


def _backtrack(
    objective: Objective, point: FloatArray, value: float, step: FloatArray, descent: float
) -> tuple[FloatArray, float, FloatArray] | None:
    """Halve the step until it gains a part of what the slope promises; None if it never does."""
    for _ in range(30):
        ahead = point + step
        new_value, new_slope = objective(ahead)
        if new_value <= value + 1e-4 * descent:
            return ahead, new_value, new_slope
        step, descent = step / 2, descent / 2
    return None


def _newton(slope: FloatArray, pairs: deque[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """The inverse of the curvature seen so far, applied to the slope (two-loop recursion)."""
    way, used = slope.copy(), []
    for step, bend in reversed(pairs):
        rate = _product(step, way) / _product(step, bend)
        used.append(rate)
        way -= rate * bend
    if pairs:
        step, bend = pairs[-1]
        way *= _product(step, bend) / _product(bend, bend)
    for (step, bend), rate in zip(pairs, reversed(used), strict=True):
        way += (rate - _product(bend, way) / _product(step, bend)) * step
    return way


def _product(a: FloatArray, b: FloatArray) -> float:
    """The inner product, summed in one order on every processor (`@` leaves the order to BLAS)."""
    return float((a * b).sum())
