"""Prefixes from a k-ary tree whose nodes may also be subtracted.

Written with digits between -(k-1)/2 and (k-1)/2, a prefix length t needs about k/4 nodes a level instead of
k/2: it rounds t to the nearest multiple of each k^l and adds or takes away whole nodes to get there. A node
that reaches past t is no obstacle: at batch t the exact prefix is published plus the signed *noise* of those nodes, so
only the noise must be drawn ahead, and it stays in the private state until its last use.

Budgets come from the general split theorem with the use counts as weights; nodes in the middle of their
parent are never read and spend nothing. Budgets are planned for a horizon: past it the strategy refuses. They are
integers, frozen with the stream.

**Privacy**: what is published is a function of the nodes' noisy sums, since a prefix's exact sum equals the signed sum
of the exact sums of the nodes it reads. The budgets of a path add up to at most 2^30, checked in integers.
**Source**: docs/method/streams.md, "Nodes that are taken away".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.matrices import AxisVariance
from dpsql.mechanisms.continual.nodes import (
    NodeErrors,
    NoiseNodes,
    best_shares,
    check_paths,
    integer_budgets,
)
from dpsql.mechanisms.continual.time_strategy import (
    UNIT,
    Emission,
    Frozen,
    Kinds,
    NamedTimeStrategy,
    NodeRead,
    StreamProblem,
    TimeOffer,
    check_rows,
    dense_offer,
    one_node,
    only,
    refuse_past,
    share_variance,
)
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.mechanisms.offers import Refusal
from dpsql.tree import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class SubtractionStrategy:
    """Prefixes of signed nodes of a k-ary tree.

    Args:
        law: the noise.
        horizon: number of batches planned for, at least 1.
        arity: k, odd and at least 3.
        levels: number of node sizes.
        budget: int64[n], of each node of `subtraction_nodes`, in units of 2^-30 of the spend.
    """

    kind: ClassVar[str] = "prefix"
    ahead: ClassVar[None] = None
    law: NoiseDistribution
    horizon: int
    arity: int
    levels: int
    budget: IntArray

    def __post_init__(self) -> None:
        """Refuse budgets that a row of some batch cannot pay."""
        if self.budget.shape != self.nodes.lo.shape or np.any(self.budget < 1):
            raise ValueError("every node needs a budget of at least 1")
        check_paths(self.nodes.parent, self.budget, UNIT)

    @cached_property
    def nodes(self) -> NoiseNodes:
        """The nodes that prefixes read."""
        return subtraction_nodes(self.horizon, self.arity, self.levels)

    @property
    def name(self) -> str:
        return f"prefix over {self.horizon} batches"

    def emissions(self, batch: int) -> tuple[Emission, ...]:
        refuse_past(self, batch)
        nodes, length = self.nodes, batch + 1
        reads = tuple(
            NodeRead(int(i), int(nodes.sign[i]), Fraction(int(self.budget[i]), UNIT), int(nodes.stop[i]))
            for i in np.flatnonzero((nodes.first <= length) & (length < nodes.stop))
        )
        return (Emission(0, 0, length, reads),)

    def needed(self, batches: int) -> tuple[int, ...]:
        return tuple(sorted({0, batches}))

    def shares(self) -> tuple[Fraction, Fraction]:
        return Fraction(int(self.budget.min()), UNIT), Fraction(int(self.budget.max()), UNIT)

    def price(self, batches: int) -> Fraction:
        return one_node(self.law, batches)

    def estimate(self, batches: int, published: NDArray[np.generic]) -> FloatArray:
        """See `TimeStrategy`. Batches are differences of what is published."""
        noisy = check_rows(published, batches)
        return np.diff(noisy, axis=0, prepend=np.zeros((1, *noisy.shape[1:])))

    def variance(self, batches: int) -> AxisVariance:
        return self.nodes.within(batches).covariance(share_variance(self.law, self.budget / UNIT))

    def errors(self, batches: int) -> NodeErrors:
        variance = self.law.error_at_unit_budget * share_variance(self.law, self.budget / UNIT)
        return NodeErrors(self.nodes.within(batches), variance)

    def frozen(self) -> dict[str, Any]:
        shape = {"horizon": self.horizon, "arity": self.arity, "levels": self.levels}
        return {**shape, "budget": self.budget.tolist()}


def subtraction_nodes(horizon: int, arity: int, levels: int) -> NoiseNodes:
    """The nodes that the prefixes 0..horizon read, top level first.

    Args:
        horizon: planned number of batches, >= 1.
        arity: odd k >= 3, so that rounding to the nearest multiple has no ties.
        levels: number of node sizes 1, k, .., k^(levels - 1); the top level is a chain of any length.

    Raises:
        ValueError: when the arity is even or below 3, or horizon or levels are below 1.

    **Source**: docs/method/streams.md, "Nodes that are taken away"; Andersson, Pagh, Steiner and
    Torkamani (2024), with the split theorem's budgets in place of uniform ones.

    >>> nodes = subtraction_nodes(4, 3, 2)
    >>> list(zip(nodes.lo.tolist(), nodes.hi.tolist(), nodes.sign.tolist(), nodes.uses.tolist()))
    [(0, 3, 1, 3), (0, 1, 1, 1), (2, 3, -1, 1), (3, 4, 1, 1)]
    """
    if arity < 3 or arity % 2 == 0 or horizon < 1 or levels < 1:
        raise ValueError("k-ary subtraction needs an odd arity >= 3, and a horizon and levels >= 1")
    nodes_by_level = [
        _level(horizon, arity, level, top=level == levels - 1) for level in reversed(range(levels))
    ]
    size = np.concatenate(
        [
            np.full(nodes.shape[1], arity**level, dtype=np.int64)
            for level, nodes in zip(reversed(range(levels)), nodes_by_level, strict=True)
        ]
    )
    index, first, stop, sign = np.concatenate(nodes_by_level, axis=1)
    lo = index * size
    return NoiseNodes(horizon, lo, lo + size, first, stop, sign, _parents(lo, size, arity))


def _level(horizon: int, arity: int, level: int, *, top: bool) -> IntArray:
    """Rows index, first, stop, sign of the nodes of one level that some prefix reads.

    Prefix t rounds to the multiple q of the node size when |t - q size| <= (size - 1) / 2. A node left of its
    parent's middle is added for q in (index, middle], one right of it is taken away for q in (middle, index].
    """
    size = arity**level
    reach = (size - 1) // 2
    index = np.arange((horizon + reach) // size + (0 if top else arity), dtype=np.int64)
    if top:
        first, stop = (index + 1) * size - reach, np.full(index.size, horizon + 1)
        sign = np.ones(index.size, dtype=np.int64)
    else:
        middle = index // arity * arity + arity // 2
        is_left = index < middle
        first = (np.where(is_left, index, middle) + 1) * size - reach
        stop = np.where(is_left, middle, index) * size + reach + 1
        sign = np.where(is_left, 1, -1)
    stop = np.minimum(stop, horizon + 1)
    read = stop > first
    return np.stack([index[read], first[read], stop[read], sign[read]])


def _parents(lo: IntArray, size: IntArray, arity: int) -> IntArray:
    """The nearest enclosing node that is read; past a middle node, which is not, its own parent."""
    parent = np.full(lo.size, -1, dtype=np.int64)
    sizes = np.unique(size)
    for step in sizes[:-1]:
        nodes = np.flatnonzero(size == step)
        for above in sizes[sizes > step]:
            todo = nodes[parent[nodes] < 0]
            start = np.flatnonzero(size == above)
            place = np.searchsorted(lo[start], lo[todo] // above * above)
            place = np.minimum(place, start.size - 1)
            enclosed = lo[start[place]] == lo[todo] // above * above
            parent[todo[enclosed]] = start[place[enclosed]]
    return parent


def subtraction_strategy(
    law: NoiseDistribution, horizon: int, arity: int, levels: int
) -> SubtractionStrategy:
    """The strategy of one shape with the budgets of least mean prefix error."""
    nodes = subtraction_nodes(horizon, arity, levels)
    budget = integer_budgets(nodes.parent, best_shares(nodes, law), UNIT)
    return SubtractionStrategy(law, horizon, arity, levels, budget)


def best_subtraction(question: StreamProblem) -> SubtractionStrategy:
    """The arity and number of levels that err least, over the sensible few.

    >>> from dpsql.mechanisms.distribution import LAPLACE
    >>> from dpsql.mechanisms.continual.time_strategy import question_of
    >>> best = best_subtraction(StreamProblem(LAPLACE, 1023, (question_of("prefix", 1),)))
    >>> best.arity, best.levels
    (11, 3)
    """
    trials = []
    for levels in range(1, 9):
        middle = (2 * question.batches) ** (1 / levels)  # where k^levels / 2 is about the horizon
        for arity in sorted({max(3, int(middle * f) // 2 * 2 + 1) for f in (0.7, 0.85, 1.0, 1.15)}):
            if arity <= 41 and arity**levels <= 8 * question.batches * arity:
                strategy = subtraction_strategy(question.law, question.batches, arity, levels)
                trials.append((question.candidate(strategy).error, arity, levels, strategy))
    return min(trials, key=lambda trial: trial[:3])[3]


def _thawed(law: NoiseDistribution, frozen: Frozen) -> SubtractionStrategy:
    horizon, arity, levels = (int(frozen[name]) for name in ("horizon", "arity", "levels"))
    return SubtractionStrategy(law, horizon, arity, levels, np.array(frozen["budget"], dtype=np.int64))


NAMED: Mapping[str, NamedTimeStrategy] = {"prefix": only(best_subtraction, tuned=True)}
KINDS: Kinds = {"prefix": _thawed}


def offers(question: StreamProblem) -> Iterator[TimeOffer | Refusal]:
    """The shape that errs least."""
    yield dense_offer(question, "prefix", best_subtraction)
