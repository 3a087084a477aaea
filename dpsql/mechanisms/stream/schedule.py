"""What each batch publishes under a strategy: which sums, with which noise, and what to remember for later.

One `Emission` is one noisy number per cell: the exact sum over the batches [lo, hi) (weighted, for Toeplitz) plus
signed noise nodes. A noise node is drawn at its first use and, for k-ary subtraction, kept until its last.
Positions are prefix lengths: before batch b (0-based) b batches have arrived, after it b + 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpsql.mechanisms.laminar import IntArray
from dpsql.mechanisms.stream import laminar, toeplitz
from dpsql.mechanisms.stream.choose import StreamStrategy, node_shares, prefix_nodes
from dpsql.mechanisms.stream.fenwick import fda_budget, lowbit
from dpsql.mechanisms.stream.laminar import Currency, NoiseNodes
from dpsql.mechanisms.stream.time_tree import TimePlan

UNIT = 1 << 30
"""Integer budget of a whole path where shares are not already integers."""


class Read(NamedTuple):
    """One noise node that an emission reads.

    Attributes:
        node: its number within the strategy; a number names one draw per cell, for ever.
        sign: +1 or -1.
        budget, total: the node spends budget/total of epsilon (pure) or of rho (zCDP).
        until: the first prefix length that no longer reads it.
    """

    node: int
    sign: int
    budget: int
    total: int
    until: int


@dataclass(frozen=True)
class Emission:
    """One noisy sum.

    Attributes:
        level: size class of the node, 0 the finest.
        lo, hi: batches [lo, hi) that the exact sum covers.
        reads: the noise nodes added.
        weights: int64[hi - lo] factors of the batches, or None for a plain sum.
    """

    level: int
    lo: int
    hi: int
    reads: tuple[Read, ...]
    weights: IntArray | None = None


def emissions(strategy: StreamStrategy, currency: Currency, batch: int) -> tuple[Emission, ...]:
    """What batch number `batch` (0-based) publishes.

    Args:
        strategy: the strategy as fixed when the release was made.
        currency: what the budgets are shares of.
        batch: the arriving batch.

    Returns:
        The emissions, finest level first; at least one.

    Raises:
        ValueError: past the horizon of a strategy that has no budget left there.

    **Privacy**: over any batch, the budgets of the distinct noise nodes of all emissions that cover it add up to at
    most `total`.

    >>> plan = StreamStrategy("time_tree", 8, TimePlan((1, 4), (6, 4)))
    >>> [(e.level, e.lo, e.hi, e.reads[0].budget) for e in emissions(plan, "pure", 3)]
    [(0, 3, 4, 6), (1, 0, 4, 4)]
    """
    if batch < 0 or (batch >= strategy.horizon and not strategy.unbounded):
        raise ValueError(f"{strategy.kind} was planned for {strategy.horizon} batches and has no budget left")
    length = batch + 1
    if strategy.plan is not None:
        return _closing(strategy.plan, length)
    if strategy.kind == "toeplitz":
        weights = toeplitz.integer_coefficients(strategy.horizon)[:length][::-1]
        return (Emission(0, 0, length, (Read(batch, 1, 1, 1, length + 1),), weights),)
    if strategy.kind == "prefix":
        return (Emission(0, 0, length, _subtraction_reads(strategy, currency, length)),)
    budget, total = _fenwick_budget(strategy, currency, length)
    size = lowbit(length)
    read = Read(batch, 1, budget, total, length + 1)
    return (Emission(size.bit_length() - 1, length - size, length, (read,)),)


def open_starts(strategy: StreamStrategy, batches: int) -> tuple[int, ...]:
    """The prefix lengths whose exact sums later emissions still need, after so many batches.

    >>> open_starts(StreamStrategy("fda", 100), 11)
    (0, 8, 10, 11)
    """
    if strategy.plan is not None:
        return tuple(sorted({batches // span * span for span in strategy.plan.spans}))
    if strategy.kind == "toeplitz":
        return tuple(range(batches + 1))
    chain = {0, batches}
    while strategy.kind in ("fenwick", "fda") and batches > 0:
        chain.add(batches)
        batches -= lowbit(batches)
    return tuple(sorted(chain))


def _closing(plan: TimePlan, length: int) -> tuple[Emission, ...]:
    """The time nodes that close at a prefix length; node numbers interleave the levels, so they never clash."""
    found = []
    for level, (span, budget) in enumerate(zip(plan.spans, plan.budgets, strict=True)):
        if length % span == 0:
            node = (length // span - 1) * len(plan.spans) + level
            read = Read(node, 1, budget, plan.total, length + 1)
            found.append(Emission(level, length - span, length, (read,)))
    return tuple(found)


def _fenwick_budget(strategy: StreamStrategy, currency: Currency, number: int) -> tuple[int, int]:
    """Budget of a Fenwick node; rounded down, so a path of them stays within the unit."""
    if strategy.kind == "fenwick":
        return 1, strategy.horizon.bit_length()
    share = fda_budget(strategy.horizon, number, laminar.exponent_of(currency))
    return int(share * UNIT), UNIT


@lru_cache(maxsize=8)
def _subtraction_table(strategy: StreamStrategy, currency: Currency) -> tuple[NoiseNodes, IntArray]:
    """Nodes and checked integer budgets of a subtraction strategy; public and costly, so kept."""
    nodes = prefix_nodes(strategy)
    return nodes, laminar.integer_budgets(nodes.parent, node_shares(strategy, currency), UNIT)


def _subtraction_reads(strategy: StreamStrategy, currency: Currency, length: int) -> tuple[Read, ...]:
    nodes, budget = _subtraction_table(strategy, currency)
    reading = np.flatnonzero((nodes.first <= length) & (length < nodes.stop))
    return tuple(Read(int(i), int(nodes.sign[i]), int(budget[i]), UNIT, int(nodes.stop[i])) for i in reading)
