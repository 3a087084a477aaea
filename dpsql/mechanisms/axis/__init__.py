"""Strategies of one axis: one module for each, and the choice among them.

Read in this order: `matrices.strategy` (integer rows with a solver), `strategy` (the problem of an axis), `leaves` (the
simplest strategy), then the lists here: all that there are, and which one an axis gets.

Both lists are closed: a mechanism without its proof in this project has no place in them. An axis gets what the
catalog names, or the strategy with the least exact expected error. One that stands alone in its views is asked for
ranges. One that shares its views with others is asked for its total as often as for ranges, because a query that uses
only the other axes needs it; a strategy without a root would answer those worst.

**Privacy**: a function of the number of leaves and of public facts alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from dpsql.errors import CatalogError, InternalError
from dpsql.matrices.circulant import half_angles, sine_transform
from dpsql.matrices.strategy import Strategy
from dpsql.mechanisms.axis import (
    dense,
    joint_tree,
    leaves,
    optimised_tree,
    sine,
    tents,
    tree,
)
from dpsql.mechanisms.axis.dense import (
    DENSE_LEAVES,
    DENSE_SCALE,
    ZERO_SUM,
    dense_rows,
    workload_gram,
    zero_sum_rows,
)
from dpsql.mechanisms.axis.joint_tree import joint_strategy
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.sine import SINE_SCALE, sine_strategy
from dpsql.mechanisms.axis.strategy import (
    AxisChoice,
    AxisMechanism,
    AxisProblem,
    JointCells,
    NamedAxisMechanism,
    Proposal,
    Word,
    alone,
)
from dpsql.mechanisms.axis.tents import interval_strategy
from dpsql.mechanisms.axis.tree import stored_nodes, without_crumbs
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution
from dpsql.mechanisms.offers import least
from dpsql.tree import FloatArray, Workload

MECHANISMS: tuple[AxisMechanism, ...] = (
    leaves, tents, dense, sine, joint_tree, tree, optimised_tree,
)  # fmt: skip

STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "identity": leaf_strategy, "tree": stored_nodes, "joint_tree": joint_strategy, "intervals": interval_strategy,
    "dense": dense_rows, "sine": sine_strategy, ZERO_SUM: zero_sum_rows,
}  # fmt: skip
"""Constructors by the kind of what they make, which stores their arguments."""


def all_offers(question: AxisProblem) -> Iterator[Proposal]:
    """Offers and refusals of every mechanism."""
    for mechanism in MECHANISMS:
        yield from mechanism.offers(question)


def thaw(kind: str, frozen: Mapping[str, Any]) -> Strategy:
    """The strategy that was stored.

    Args:
        kind: the strategy's `kind`.
        frozen: what its `frozen` gave.

    Raises:
        InternalError: no strategy is called that.
    """
    if kind not in STRATEGIES:
        raise InternalError(f"no strategy is called {kind!r}", hint="use the version that wrote it")
    return STRATEGIES[kind](**frozen)


TINY = 2
"""Up to this many leaves nothing beats measuring each leaf."""

WHOLE = 0.5
"""How often a query on an axis that shares its views asks for the axis's total."""

CRUMB = 1 / 128
"""Inner nodes of a shared axis with less of the budget than this are left out: their precision is under
1/16,384 of the axis's, and a product of such shares over three axes would round to no budget at all."""

COARSEST = 1 << 6
"""Dense rows rounded to 1/64 cost a few percent of the variance; coarser ones are not worth measuring."""

AUTO = Word("auto")

COARSE = Word("lue_dptree")
"""What an axis gets where rows of large integers would not fit."""


def auto_strategy(
    n: int,
    workload: Workload | None = None,
    law: NoiseDistribution = LAPLACE,
    whole: float = 0.0,
    scale: int = DENSE_SCALE,
    joint: JointCells | None = None,
) -> AxisChoice:
    """The best strategy for one axis.

    Args:
        n: number of leaves, at least 1.
        workload: the ranges asked; None means all ranges, equally often.
        law: the noise.
        whole: the part of the questions that asks for the total instead, in [0, 1).
        scale: dense rows are rounded to multiples of 1 / scale.
        joint: what is drawn, where all leaves may be drawn together.

    Returns:
        The winner, its error and its runners-up.

    Raises:
        InterfaceError: for an axis without leaves, or ranges that lie outside of it.

    **Privacy** Reads no data: the arguments are public.
    """
    if workload is None:
        return _best_of_all_ranges(MECHANISMS, (n, law, whole, scale, joint))
    return least(all_offers(AxisProblem(n, law, workload, whole, scale, joint)))


def words() -> Mapping[str, NamedAxisMechanism]:
    """Catalog words for the axes of a view."""
    automatic = {"auto": NamedAxisMechanism(_best), "gaussian": NamedAxisMechanism(_best, (GAUSSIAN,))}
    return automatic | {word: named for mechanism in MECHANISMS for word, named in mechanism.NAMED.items()}


def _best(question: AxisProblem, word: Word) -> AxisChoice:
    return least(all_offers(question))


def laws_of(word: Word) -> tuple[NoiseDistribution, ...]:
    """The noise that a word of the catalog has rows for.

    Raises:
        CatalogError: it measures no axis on its own.
    """
    named = words().get(word.name)
    if named is None:
        raise CatalogError(
            f"mechanism `{word.name}` measures no axis on its own", hint="write `mechanism: auto`"
        )
    return named.laws


def axis_strategy(question: AxisProblem, word: Word, shared: bool) -> AxisChoice:
    """The strategy of one axis of a view.

    Args:
        question: what is asked; its `scale` is the grain that rows may have here, and below `COARSEST` there are no
            dense ones.
        word: what the catalog names, for noise that it has rows for.
        shared: whether the axis stands in views with other axes.

    Raises:
        CatalogError: the mechanism is not one that measures an axis on its own.
    """
    if question.workload is None:
        all_ranges = question.leaves, question.law, question.whole, question.scale, question.joint
        return _for_all_ranges(MECHANISMS, all_ranges, word, shared)
    return _chosen(question, word, shared)


_AllRanges = tuple[int, NoiseDistribution, float, int, JointCells | None]
"""A question that a cache can hold: leaves, law, whole, scale and joint of an `AxisProblem`."""


@lru_cache(maxsize=64)  # a stream plans the same axes at every append
def _for_all_ranges(
    mechanisms: tuple[AxisMechanism, ...], question: _AllRanges, word: Word, shared: bool
) -> AxisChoice:
    leaves, law, whole, scale, joint = question
    return _chosen(AxisProblem(leaves, law, None, whole, scale, joint), word, shared)


@lru_cache(maxsize=64)  # a plan by a noisy signal asks for the unbiased optimum, and its draw again
def _best_of_all_ranges(mechanisms: tuple[AxisMechanism, ...], question: _AllRanges) -> AxisChoice:
    leaves, law, whole, scale, joint = question
    return least(all_offers(AxisProblem(leaves, law, None, whole, scale, joint)))


def _chosen(original: AxisProblem, word: Word, shared: bool) -> AxisChoice:
    question = replace(original, scale=max(original.scale, COARSEST))
    choice = _choose(word, question)
    room = original.scale if shared or original.scale < COARSEST else SINE_SCALE
    if choice.strategy.entry_scale > room:
        choice = _choose(COARSE, question)
    return choice._replace(strategy=without_crumbs(choice.strategy, CRUMB)) if shared else choice


def _choose(word: Word, question: AxisProblem) -> AxisChoice:
    laws_of(word)
    if question.leaves <= TINY:
        return alone(leaf_strategy(question.leaves, question.law.norm), "identity", question)
    return words()[word.name].choose(question, word)


def least_variance(n: int, workload: Workload | None = None, whole: float = 0.0) -> float:
    """A lower bound on the mean variance of a workload, for unit noise on rows of columns of L2 norm 1 or L1 norm 1.

    The SVD bound; on axes too long for it, what every single question needs. Rows whose columns have L1 norms of at
    most 1 have columns of L2 norms of at most 1 too: the entries are at most 1, so their squares add up to no more than
    they do. So what holds for every Gaussian strategy holds for every Laplace strategy at the same noise variance, and
    `auto` may leave out a law without looking at its strategies.

    **Source** docs/method/axis.md, "Dense rows for Gaussian noise"; Li and Miklau (2013).

    Args:
        n: number of leaves.
        workload: the ranges asked; None means all ranges.
        whole: the part of the questions that asks for the total instead, in [0, 1).

    >>> round(least_variance(256), 2)
    8.27
    """
    if workload is None:
        return _least_over_all_ranges(n, whole)
    if n > DENSE_LEAVES:
        return 1.0
    return max(1.0, _svd(_eigenvalues(workload_gram(n, workload, 0.0, whole))))


@lru_cache(maxsize=64)
def _least_over_all_ranges(n: int, total_share: float) -> float:
    ranges = (n + 1) / (4 * half_angles(n) ** 2) / (n * (n + 1) / 2)
    if not total_share or n > DENSE_LEAVES:  # roots grow with their matrices, so the total may be left out
        return max(1.0, (1 - total_share) * _svd(ranges))
    # In the sines that make V diagonal, ones are a vector on every other sine; the total touches no other.
    ones = sine_transform(np.ones((n, 1)))[::2, 0]
    touched = np.diag((1 - total_share) * ranges[::2]) + total_share * np.outer(ones, ones)
    return max(1.0, _svd(np.append(_eigenvalues(touched), (1 - total_share) * ranges[1::2])))


def _eigenvalues(s: FloatArray) -> FloatArray:
    return np.asarray(np.linalg.eigvalsh(s), np.float64)


def _svd(eigenvalues: FloatArray) -> float:
    """(sum of the square roots of V's eigenvalues)^2 / n."""
    return float(np.sqrt(np.maximum(eigenvalues, 0.0)).sum() ** 2 / len(eigenvalues))
