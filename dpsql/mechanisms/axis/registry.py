"""All mechanisms of one axis, and all kinds of strategies.

Both lists are closed: a mechanism without its proof in this project has no place in them.
"""

from __future__ import annotations

from collections.abc import Iterator

from dpsql.errors import InternalError
from dpsql.mechanisms.axis import (
    cut_tree,
    dense,
    hb,
    leaves,
    lue_dptree,
    optimised_tree,
    sine,
    struct_construct,
    tents,
)
from dpsql.mechanisms.axis.dense import DenseStrategy
from dpsql.mechanisms.axis.intervals import IntervalStrategy
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.question import AxisQuestion, Mechanism, Offer, Refusal
from dpsql.mechanisms.axis.sine import SineStrategy
from dpsql.mechanisms.axis.strategy import AxisStrategy, Frozen
from dpsql.mechanisms.axis.tree import TreeStrategy
from dpsql.mechanisms.axis.zero_sum import ZeroSumStrategy

MECHANISMS: tuple[Mechanism, ...] = (
    leaves, tents, dense, sine, lue_dptree, hb, cut_tree, optimised_tree, struct_construct,
)  # fmt: skip

STRATEGIES: tuple[type[AxisStrategy], ...] = (
    LeafStrategy, TreeStrategy, IntervalStrategy, DenseStrategy, SineStrategy, ZeroSumStrategy,
)  # fmt: skip


def all_offers(question: AxisQuestion) -> Iterator[Offer | Refusal]:
    """What every mechanism has for a question."""
    for mechanism in MECHANISMS:
        yield from mechanism.offers(question)


def thaw(kind: str, frozen: Frozen) -> AxisStrategy:
    """The strategy that was stored.

    Args:
        kind: its class's `kind`.
        frozen: what its `frozen` gave.

    Raises:
        InternalError: no strategy is called that.
    """
    kinds = {strategy.kind: strategy for strategy in STRATEGIES}
    if kind not in kinds:
        raise InternalError(f"no strategy is called {kind!r}", hint="use the version that wrote it")
    return kinds[kind].thawed(frozen)
