"""FDA: Fenwick nodes over time with the optimal budgets, in O(log N) per node.

Node i (batch numbers from 1, since lowbit needs them) covers the lowbit(i) batches that end with batch i, as
a half-open 0-based interval [i - lowbit(i), i). The prefix of t batches reads one node per one-bit of t. A batch
publishes its own node, so what is kept are the exact sums at the ends of one chain of nodes.

The shares come from closed forms. Inside a complete block of 2^m - 1 nodes the middle node takes a part of the
budget that depends on m alone; the nodes left of it share the rest, those right of it are a problem of their own. So
about 2 log2(N) integers hold all budgets, and they are what is frozen.

| here                 | seed 004                     | unit                                   |
|----------------------|------------------------------|----------------------------------------|
| `fenwick_nodes(n)`   | M and B, algorithms 5.2, 5.3 | node i - 1 is row i of M, column i of B |
| `FdaStrategy.share`  | lambda_i                     | fraction of epsilon (Gaussian: of mu^2)|
| `_block_error`       | err_m                        | sum of w_i / lambda_i^2, w_i = uses    |

**Privacy**: a node's budget is taken off what the nodes inside it may spend, in integers, so the budgets over any batch
add up to at most 2^30.
**Source**: docs/method/streams.md, "Fenwick nodes" and "FDA".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from dpsql.mechanisms.continual.subtraction import NoiseNodes, PrefixStrategy
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
    exponent,
    only,
    refuse_past,
)
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.mechanisms.offers import Refusal
from dpsql.tree import FloatArray, IntArray

Number = TypeVar("Number", int, IntArray)


def lowbit(number: Number) -> Number:
    """The value of the lowest one-bit of a positive integer, or of each in an array.

    **Source**: docs/method/streams.md, "Fenwick nodes".

    >>> lowbit(10), lowbit(np.array([1, 6, 8])).tolist()
    (2, [1, 2, 8])
    """
    return number & -number


def fenwick_nodes(horizon: int) -> NoiseNodes:
    """The Fenwick nodes of `horizon` batches, with the prefixes that read them and the nesting.

    Node i is read by the prefixes i .. i + lowbit(i) - 1 and lies inside node i + lowbit(i).

    Raises:
        ValueError: when the horizon is below 1.
    """
    if horizon < 1:
        raise ValueError("the horizon must be at least one batch")
    number = np.arange(1, horizon + 1, dtype=np.int64)
    size = lowbit(number)
    above = number + size
    parent = np.where(above <= horizon, above - 1, -1)
    stop = np.minimum(number + size, horizon + 1)
    return NoiseNodes(horizon, number - size, number, number, stop, np.ones(horizon, np.int64), parent)


@dataclass(frozen=True)
class FdaStrategy(PrefixStrategy):
    """Fenwick nodes with the budgets of least mean prefix error, by parts of 2^30; `fda_strategy` makes them.

    Each batch publishes the node that ends with it.

    Args:
        law: the noise.
        horizon: number of batches planned for, at least 1.
        corners: for each one-bit of the horizon, the highest first: the part that the node over its block takes.
        blocks: entry m: the part of what is left that the middle node of a complete block of 2^(m + 1) - 1 nodes takes.
    """

    kind: ClassVar[str] = "fda"
    law: NoiseDistribution
    horizon: int
    corners: tuple[int, ...]
    blocks: tuple[int, ...]

    def __post_init__(self) -> None:
        """Refuse parts that are not parts."""
        fit = (
            len(self.corners) == self.horizon.bit_count()
            and len(self.blocks) == self.horizon.bit_length() - 1
        )
        if not fit or not all(0 < share <= UNIT for share in (*self.corners, *self.blocks)):
            raise ValueError("the parts of FDA's budget do not fit its horizon")

    def share(self, number: int) -> Fraction:
        """lambda_i, in O(log horizon) steps.

        **Source**: docs/method/streams.md, "FDA".

        >>> from dpsql.mechanisms.distribution import LAPLACE
        >>> [round(float(fda_strategy(LAPLACE, 3).share(i)), 6) for i in (1, 2, 3)]
        [0.442493, 0.557507, 1.0]
        """
        if not 1 <= number <= self.horizon:
            raise ValueError(f"node {number} is not one of 1..{self.horizon}")
        place, corners = number, zip(_one_bits(self.horizon), self.corners, strict=True)
        level, node_share = next(corners)
        while place > 1 << level:  # what lies right of a node is a problem of its own
            place -= 1 << level
            level, node_share = next(corners)
        remaining = UNIT
        while place != 1 << level:
            remaining, place = (
                (remaining, place - (1 << level)) if place > 1 << level else (remaining - node_share, place)
            )
            level -= 1
            node_share = remaining * self.blocks[level] // UNIT
        return Fraction(node_share, UNIT)

    def node_shares(self) -> FloatArray:
        """Spend of every node (float64[horizon], entry i - 1 is node i)."""
        blocks = []
        for high, corner in zip(_one_bits(self.horizon), self.corners, strict=True):
            block, remaining = np.empty(1 << high, dtype=np.int64), np.array([UNIT - corner], dtype=np.int64)
            block[-1] = corner
            for level in reversed(range(high)):
                node_share = remaining * self.blocks[level] // UNIT
                block[(1 << level) - 1 :: 1 << (level + 1)] = node_share
                remaining = np.stack([remaining - node_share, remaining], axis=1).reshape(-1)
            blocks.append(block)
        return np.asarray(np.concatenate(blocks) / UNIT)

    def frozen(self) -> dict[str, Any]:
        return {"horizon": self.horizon, "corners": list(self.corners), "blocks": list(self.blocks)}

    @property
    def nodes(self) -> NoiseNodes:
        return fenwick_nodes(self.horizon)

    def emissions(self, batch: int) -> tuple[Emission, ...]:
        refuse_past(self, batch)
        length = batch + 1
        size = lowbit(length)
        read = NodeRead(batch, 1, self.share(length), length + 1)
        return (Emission(size.bit_length() - 1, length - size, length, (read,)),)

    def needed(self, batches: int) -> tuple[int, ...]:
        """The ends of the nodes that the prefix of all batches so far reads.

        >>> from dpsql.mechanisms.distribution import LAPLACE
        >>> fda_strategy(LAPLACE, 100).needed(11)
        (0, 8, 10, 11)
        """
        ends = [batches]
        while ends[-1] > 0:
            ends.append(ends[-1] - lowbit(ends[-1]))
        return tuple(reversed(ends))

    def shares(self) -> tuple[Fraction, Fraction]:
        shares = self.node_shares()
        return self.share(int(shares.argmin()) + 1), self.share(int(shares.argmax()) + 1)

    def estimate(self, batches: int, published: NDArray[np.generic]) -> FloatArray:
        """See `TimeStrategy`. Batches are differences of prefixes, which are sums of published nodes."""
        noisy = check_rows(published, batches)
        prefix = np.concatenate([np.zeros((1, *noisy.shape[1:])), noisy])
        for length in range(1, batches + 1):
            prefix[length] += prefix[length - lowbit(length)]
        return np.diff(prefix, axis=0)


def fda_strategy(law: NoiseDistribution, horizon: int) -> FdaStrategy:
    """FDA for so many batches: the split theorem on Fenwick nodes, in closed form.

    **Source**: docs/method/streams.md, "FDA".
    """
    power, corners, remaining = exponent(law), [], horizon
    for level in _one_bits(horizon):
        remaining -= 1 << level
        corners.append(_part(level, remaining + 1.0, power))
    blocks = [_part(level, float(1 << level), power) for level in range(horizon.bit_length() - 1)]
    return FdaStrategy(law, horizon, tuple(corners), tuple(blocks))


def _one_bits(number: int) -> list[int]:
    """Positions of the one-bits, the highest first."""
    return [level for level in reversed(range(number.bit_length())) if number >> level & 1]


def _part(level: int, uses: float, power: float) -> int:
    """Share that a node over a complete block of 2^level - 1 nodes takes for itself, of 2^30, rounded down."""
    below, node_cost = _block_error(level, power) ** power, uses**power
    return int(node_cost / (below + node_cost) * UNIT)


@lru_cache(maxsize=256)
def _block_error(level: int, power: float) -> float:
    """err_m: the optimum for 2^m - 1 batches. Cached: it depends on m alone."""
    if level == 0:
        return 0.0
    block = _block_error(level - 1, power)
    return float((block**power + float(1 << (level - 1)) ** power) ** (1 / power)) + block


def _fda(question: StreamProblem) -> FdaStrategy:
    return fda_strategy(question.law, question.batches)


def _thawed(law: NoiseDistribution, frozen: Frozen) -> FdaStrategy:
    corners, blocks = (tuple(map(int, frozen[name])) for name in ("corners", "blocks"))
    return FdaStrategy(law, int(frozen["horizon"]), corners, blocks)


NAMED: Mapping[str, NamedTimeStrategy] = {"fda": only(_fda, tuned=False)}
KINDS: Kinds = {"fda": _thawed}


def offers(question: StreamProblem) -> Iterator[TimeOffer | Refusal]:
    """The optimal budgets."""
    yield dense_offer(question, "fda", _fda)
