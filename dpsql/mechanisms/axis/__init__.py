"""Strategies of one axis: one module for each, and the choice among them.

Read in this order: `matrices.strategy` (integer rows with a solver), `mechanisms.offers` (the problem of an axis),
`leaves` (the simplest strategy), then the lists here: all that there are, and which one an axis gets.

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

from dpsql.errors import CatalogError, InternalError
from dpsql.matrices.strategy import Strategy
from dpsql.mechanisms import offers
from dpsql.mechanisms.axis import dense, joint_tree, leaves, optimised_tree, tents, tree
from dpsql.mechanisms.axis.dense import (
    DENSE_SCALE,
    SINE_SCALE,
    ZERO_SUM,
    dense_rows,
    sine_strategy,
    zero_sum_rows,
)
from dpsql.mechanisms.axis.joint_tree import joint_strategy
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.tents import interval_strategy
from dpsql.mechanisms.axis.tree import stored_nodes, without_crumbs
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution
from dpsql.tree import Workload

MECHANISMS: tuple[offers.AxisMechanism, ...] = (
    leaves, tents, dense, joint_tree, tree, optimised_tree,
)  # fmt: skip

STRATEGIES: dict[str, Callable[..., Strategy]] = {
    "identity": leaf_strategy, "tree": stored_nodes, "joint_tree": joint_strategy, "intervals": interval_strategy,
    "dense": dense_rows, "sine": sine_strategy, ZERO_SUM: zero_sum_rows,
}  # fmt: skip
"""Constructors by the kind of what they make, which stores their arguments."""


def all_offers(question: offers.AxisProblem) -> Iterator[offers.Proposal]:
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

AUTO = offers.Word("auto")

COARSE = offers.Word("lue_dptree")
"""What an axis gets where rows of large integers would not fit."""


def auto_strategy(
    n: int,
    workload: Workload | None = None,
    law: NoiseDistribution = LAPLACE,
    whole: float = 0.0,
    scale: int = DENSE_SCALE,
    joint: offers.JointCells | None = None,
) -> offers.AxisChoice:
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
    return offers.least(all_offers(offers.AxisProblem(n, law, workload, whole, scale, joint)))


def words() -> Mapping[str, offers.NamedAxisMechanism]:
    """Catalog words for the axes of a view."""
    automatic = {
        "auto": offers.NamedAxisMechanism(_best),
        "gaussian": offers.NamedAxisMechanism(_best, (GAUSSIAN,)),
    }
    return automatic | {word: named for mechanism in MECHANISMS for word, named in mechanism.NAMED.items()}


def _best(question: offers.AxisProblem, word: offers.Word) -> offers.AxisChoice:
    return offers.least(all_offers(question))


def laws_of(word: offers.Word) -> tuple[NoiseDistribution, ...]:
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


def axis_strategy(question: offers.AxisProblem, word: offers.Word, shared: bool) -> offers.AxisChoice:
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


_AllRanges = tuple[int, NoiseDistribution, float, int, offers.JointCells | None]
"""A question that a cache can hold: leaves, law, whole, scale and joint of an `AxisProblem`."""


@lru_cache(
    maxsize=1 << 10
)  # a stream plans the same axes at every append, a plan three times what its views share
def _for_all_ranges(
    mechanisms: tuple[offers.AxisMechanism, ...], question: _AllRanges, word: offers.Word, shared: bool
) -> offers.AxisChoice:
    leaves, law, whole, scale, joint = question
    return _chosen(offers.AxisProblem(leaves, law, None, whole, scale, joint), word, shared)


@lru_cache(maxsize=1 << 10)  # a plan by a noisy signal asks for the unbiased optimum, and its draw again
def _best_of_all_ranges(
    mechanisms: tuple[offers.AxisMechanism, ...], question: _AllRanges
) -> offers.AxisChoice:
    leaves, law, whole, scale, joint = question
    return offers.least(all_offers(offers.AxisProblem(leaves, law, None, whole, scale, joint)))


def _chosen(original: offers.AxisProblem, word: offers.Word, shared: bool) -> offers.AxisChoice:
    question = replace(original, scale=max(original.scale, COARSEST))
    choice = _choose(word, question)
    room = original.scale if shared or original.scale < COARSEST else SINE_SCALE
    if choice.strategy.entry_scale > room:
        choice = _choose(COARSE, question)
    return choice._replace(strategy=without_crumbs(choice.strategy, CRUMB)) if shared else choice


def _choose(word: offers.Word, question: offers.AxisProblem) -> offers.AxisChoice:
    laws_of(word)
    if question.leaves <= TINY:
        return offers.alone(leaf_strategy(question.leaves, question.law.norm), "identity", question)
    return words()[word.name].choose(question, word)
