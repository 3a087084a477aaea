"""Leaves of a tree by one draw: noise whose size counts the sums of all nodes, so that no node needs noise of its own.

The rows are the leaves. `shares` are what the levels have of the budget: a record moves one node a level, so the whole
draw costs their sum (`noise.knorm.joint_trees`). `auto` takes it in pure views, on an ordered axis alone
or alongside axes whose leaves are measured one by one, where its exact error is least and the draws can be had.

| here | meaning | unit |
|---|---|---|
| `TOTAL` | what the shares add up to; the search moves whole parts, so that all machines find the same | - |
| `LIMITS` | most expected leaf draws of one view, by how many numbers a draw has | draws |

**Privacy**: docs/privacy.md, "Trees by one draw".
**Source**: docs/method/rows.md, "Joint trees".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

from dpsql.errors import InternalError
from dpsql.matrices import mean_variance
from dpsql.matrices.strategy import LevelShares, Strategy, rows_of_ones
from dpsql.matrices.tree import LevelMoments, LevelVariance, level_moments, level_weights
from dpsql.mechanisms.distribution import LAPLACE
from dpsql.mechanisms.offers import (
    FEWEST_LEAVES,
    AxisProblem,
    NamedAxisMechanism,
    Offer,
    Proposal,
    Refusal,
    candidate,
)

TOTAL = 1 << 12
COARSE = 0.1
"""Step of the search's grids: .08% of an error, where optima are flat."""

LIMITS: Mapping[int, int] = {1: 1 << 26, 2: 1 << 24}
"""A draw of one number takes about .8 us, of a pair 4 us. For three numbers and more a draw's variance on a tree is
not known."""

_LONGEST = 1 << 16
_PADDED = 1.1
_ARITIES = range(2, 7)
_ONE_LEVEL = 12
LEAF_SHARE = TOTAL // 64
"""The least share of the leaves."""


def tree_moments(levels: LevelShares) -> LevelMoments:
    """Of node sums where all shares together are an epsilon of 1, in the limit of small ones."""
    return level_moments(levels.arities, levels.rates(TOTAL))


def tree_draws(levels: LevelShares, numbers: int) -> float:
    """Expected leaf draws of one tree of so many numbers."""
    return prod(levels.arities) * tree_moments(levels).draws ** numbers


def tree_variance(levels: LevelShares, leaves: int) -> LevelVariance:
    """By level, of the first leaves; half of the variance at epsilon 1, as of every model under Laplace noise."""
    weights = level_weights(levels.arities, tree_moments(levels).variance / LAPLACE.error_at_unit_budget)
    return LevelVariance(leaves, levels.arities, levels.shares, weights)


def joint_strategy(leaves: int, arities: Sequence[int], shares: Sequence[int]) -> Strategy:
    """Leaves drawn together.

    Args:
        leaves: n.
        arities, shares: of the levels, the root's first; leaves beyond n are drawn and dropped.

    Raises:
        InternalError: the levels spend more than the whole, or have fewer leaves than the axis.

    **Privacy** A leaf's column is one row, and one node a level: shares add up to `TOTAL` at most.
    """
    levels, leaf = LevelShares(tuple(arities), tuple(shares)), np.arange(leaves)
    if not levels.fits(leaves, TOTAL):
        raise InternalError(f"a joint tree on {leaves} leaves is more sensitive than declared")
    stored = {"leaves": leaves, **levels._asdict()}
    rows, budget = rows_of_ones(leaves, leaf, leaf + 1), np.full(leaves, levels.shares[-1], np.int64)
    solver = tree_variance(levels, leaves)
    return Strategy("joint_tree", stored, rows, budget, TOTAL, LAPLACE.norm, solver, levels=levels)


NAMED: Mapping[str, NamedAxisMechanism] = {}

NAME = "joint tree"


def offers(question: AxisProblem) -> Iterator[Proposal]:
    """The best shares on the best of a few shapes, where leaves may be drawn together."""
    cells = question.joint
    if cells is None or question.law != LAPLACE:
        return
    if question.leaves < FEWEST_LEAVES:
        yield Refusal(NAME, f"takes axes of {FEWEST_LEAVES} leaves or more")
    elif question.leaves * cells.trees > LIMITS[cells.numbers] or question.leaves > _LONGEST:
        yield Refusal(NAME, "needs too many draws here")
    elif cells.room < 2 * question.leaves * TOTAL / LEAF_SHARE:
        yield Refusal(NAME, "needs a larger share, or narrower bounds: sums of noise would not fit 64 bits")
    else:
        levels = _levels(question)
        if tree_draws(levels, cells.numbers) * cells.trees > LIMITS[cells.numbers]:
            yield Refusal(NAME, "needs too many draws here")
        else:
            words = "x".join(str(arity) for arity in levels.arities)
            name = f"{NAME} {words}, {tree_moments(levels).draws ** cells.numbers:.3g} draws a leaf"
            yield Offer(
                NAME, 0.0, lambda: candidate(joint_strategy(question.leaves, *levels), name, question)
            )


def _levels(question: AxisProblem) -> LevelShares:
    def objective(model: LevelVariance) -> float:
        return mean_variance(model, question.workload, question.whole)

    return TreeSearch(question.leaves, objective, question.whole).best()


def _shapes(n: int, padded: float = _PADDED) -> list[tuple[int, ...]]:
    """Arities, increasing or decreasing, whose product is n or up to a tenth more; more than that if there are none."""
    longest = int(padded * n)

    def lists(below: int, least: int) -> Iterator[tuple[int, ...]]:
        if n <= below <= longest:
            yield ()
        for arity in _ARITIES:
            if arity >= least and below * arity <= longest:
                yield from ((arity, *lower) for lower in lists(below * arity, arity))

    shapes = set(lists(1, 2)) | ({(n,)} if n <= _ONE_LEVEL else set())
    return sorted({order for shape in shapes for order in (shape, shape[::-1])}) or _shapes(n, padded + 0.1)


class _RatedTree(NamedTuple):
    tree: LevelShares
    error: float

    def price(self) -> float:
        """The error, .4% more for each level: levels cost draws."""
        return self.error * 1.004 ** len(self.tree.arities)


@dataclass(frozen=True)
class TreeSearch:
    """Descent over whole shares of a few shapes: parts of `TOTAL` go between a level and the leaves.

    Args:
        leaves: n.
        objective: mean variance of what is asked; linear in the weights of the levels.
        whole: about how often long ranges are asked as a whole; the root's share starts there.
    """

    leaves: int
    objective: Callable[[LevelVariance], float]
    whole: float

    def best(self) -> LevelShares:
        """The levels of least error."""
        starts = [self.start(arities) for arities in _shapes(self.leaves)]
        shapes = sorted(starts, key=_RatedTree.price)
        flat = [shape for shape in shapes if 4 ** (len(shape.tree.arities) - 1) < self.leaves]
        tried = dict.fromkeys((*shapes[:2], *flat[:1]))
        return min((self.descend(shape) for shape in tried), key=_RatedTree.price).tree

    def error(self, tree: LevelShares) -> float:
        """The objective on a coarse grid."""
        moments = level_moments(tree.arities, tree.rates(TOTAL), 0, COARSE)
        weights = level_weights(tree.arities, moments.variance)
        return self.objective(LevelVariance(self.leaves, tree.arities, tree.shares, weights))

    def start(self, arities: tuple[int, ...]) -> _RatedTree:
        """Levels alike, the leaves twice as much, the root little unless it is asked for."""
        rough = [1.2 * 2 * self.whole or 0.12, *[1.0] * (len(arities) - 1), 2.0]
        shares = [int(TOTAL * level / sum(rough)) for level in rough]
        shares[-1] += TOTAL - sum(shares)
        tree = LevelShares(arities, tuple(shares))
        return _RatedTree(tree, self.error(tree))

    def descend(self, best: _RatedTree) -> _RatedTree:
        """Steps of 1/32 of the whole, then of a quarter of that, .. as long as one of them gains."""
        search, step = replace(self, objective=self._by_level(best.tree)), TOTAL // 32
        while step:
            gained = best
            for level in range(len(best.tree.arities)):
                for moved in (step, -step):
                    gained = search._walk(gained, level, moved)
            if gained is best:
                step //= 4
            best = gained
        return best

    def _by_level(self, tree: LevelShares) -> Callable[[LevelVariance], float]:
        """The objective on one shape: a mean of variances is linear in what the levels weigh."""
        units = np.eye(len(tree.shares))
        means = [self.objective(LevelVariance(self.leaves, *tree, unit)) for unit in units]
        return lambda model: float(np.dot(means, model.weights))

    def _walk(self, best: _RatedTree, level: int, moved: int) -> _RatedTree:
        while True:
            shares = list(best.tree.shares)
            shares[level] += moved
            shares[-1] -= moved
            if shares[level] < 0 or shares[-1] < LEAF_SHARE:
                return best
            tree = LevelShares(best.tree.arities, tuple(shares))
            error = self.error(tree)
            if not error < best.error * (1 - 1e-9):
                return best
            best = _RatedTree(tree, error)
