"""Which strategy an axis gets: what the catalog names, or the one with the least exact expected error.

An axis that stands alone in its views is asked for ranges. An axis that shares its views with others is
asked for its total as often as for ranges, because a query that uses only the other axes needs it; a
strategy without a root would answer those worst.

**Privacy**: a function of the number of leaves and of public facts alone.
"""

from __future__ import annotations

from functools import lru_cache

from dpsql.errors import CatalogError
from dpsql.mechanisms.axis.dense import DENSE_SCALE
from dpsql.mechanisms.axis.leaves import identity
from dpsql.mechanisms.axis.question import AxisChoice, AxisQuestion, Candidate, least
from dpsql.mechanisms.axis.registry import MECHANISMS, all_offers
from dpsql.mechanisms.axis.sine import SINE_SCALE
from dpsql.mechanisms.law import LAPLACE, NoiseLaw
from dpsql.tree import Workload

TINY = 2
"""Up to this many leaves nothing beats measuring each leaf."""

WHOLE = 0.5
"""How often a query on an axis that shares its views asks for the axis's total."""

CRUMB = 1 / 128
"""Inner nodes of a shared axis with less of the budget than this are left out: their precision is under
1/16,384 of the axis's, and a product of such shares over three axes would round to no budget at all."""


COARSEST = 1 << 6
"""Dense rows rounded to 1/64 cost a few percent of the variance; coarser ones are not worth measuring."""

COARSE = "lue_dptree"
"""What an axis gets where rows of large integers would not fit."""

AUTO = ("auto", "gaussian")
"""The catalog's words that leave the strategy open."""


def axis_strategy(
    n: int,
    mechanism: str,
    *,
    shared: bool,
    law: NoiseLaw = LAPLACE,
    workload: Workload | None = None,
    scale: int = DENSE_SCALE,
) -> AxisChoice:
    """The strategy of one axis.

    Args:
        n: number of leaves.
        mechanism: the catalog's word, or `auto`.
        shared: whether the axis stands in views with other axes.
        law: the noise.
        workload: the ranges asked; None means all ranges, equally often.
        scale: dense rows are rounded to multiples of 1 / scale; below `COARSEST` there are none.

    Returns:
        The choice.

    Raises:
        CatalogError: the mechanism is not one that measures an axis on its own.
    """
    if workload is None:
        return _for_all_ranges(n, mechanism, shared, law, scale)
    return _for_workload(n, mechanism, shared, law, scale, workload)


def auto_strategy(
    n: int,
    workload: Workload | None = None,
    law: NoiseLaw = LAPLACE,
    whole: float = 0.0,
    scale: int = DENSE_SCALE,
) -> AxisChoice:
    """The best strategy for one axis.

    Args:
        n: number of leaves, at least 1.
        workload: the ranges asked; None means all ranges, equally often.
        law: the noise.
        whole: the part of the questions that asks for the total instead, in [0, 1).
        scale: dense rows are rounded to multiples of 1 / scale.

    Returns:
        The winner, its error and its runners-up.

    Raises:
        InterfaceError: for an axis without leaves, or ranges that lie outside of it.

    **Privacy** Reads no data: the arguments are public.
    """
    return least(all_offers(AxisQuestion(n, law, workload, whole, scale)))


@lru_cache(maxsize=64)  # a stream plans the same axes at every append
def _for_all_ranges(n: int, mechanism: str, shared: bool, law: NoiseLaw, scale: int) -> AxisChoice:
    return _for_workload(n, mechanism, shared, law, scale, None)


def _for_workload(
    n: int, mechanism: str, shared: bool, law: NoiseLaw, scale: int, workload: Workload | None
) -> AxisChoice:
    question = AxisQuestion(n, law, workload, WHOLE if shared else 0.0, max(scale, COARSEST))
    choice = _choose(mechanism, question)
    room = scale if shared or scale < COARSEST else SINE_SCALE
    if choice.strategy.grain > room:
        choice = _choose(COARSE, question)
    return choice._replace(strategy=choice.strategy.for_products(CRUMB)) if shared else choice


def _choose(mechanism: str, question: AxisQuestion) -> AxisChoice:
    if question.leaves <= TINY:
        return _alone(identity(question))
    if mechanism in AUTO:
        return least(all_offers(question))
    named = {word: make for each in MECHANISMS for word, make in each.NAMED.items()}
    if mechanism in named:
        made = named[mechanism](question)
        if question.allows(made.strategy.law):
            return _alone(made)
    raise CatalogError(f"mechanism `{mechanism}` does not fit this release", hint="write `mechanism: auto`")


def _alone(made: Candidate) -> AxisChoice:
    return AxisChoice(made.strategy, made.name, made.error)
