"""One number a batch, a noisy weighted sum of the last batches, for a stream without an end.

Batch t publishes sum over i < p of c_i x_(t-i). The rows are cut after p batches, so every column has the same finite
norm for ever: one sigma, no horizon. Windows of batches err the same at all times; totals grow slowly.

**Privacy**: every number spends 1 / G of mu^2, G = c_0^2 + .. + c_(p-1)^2. A row of any batch moves the p numbers from
its own on by c_0, c_1, .., so it pays 1 in all, however long the stream runs. The last p exact sums stay in the private
state for as long as the stream lives.
**Source**: docs/method/streams.md, "Rows without an end".

Rows that weigh each batch by how long ago it was: how they are decoded, and how exact what they answer is.

Batch t publishes sum over j of c_(t-j) d_j x_j plus noise. So its numbers are the batches, each times its factor d_j,
through a causal filter c, and decoding runs them through the inverse filter. Decoding is forward substitution, one
operation after the other, so that an audit gets the same floats on any machine; transforms would not.

| here | there | unit |
|---|---|---|
| rows | c | int64[p], from the batch itself backwards; 0 further back |
| factors | d | int64[n], of each batch |
| kernel | power series of 1 / c | a batch per published number |

**Source**: docs/method/streams.md, "Spectral rows".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.matrices.filtered import FilterVariance
from dpsql.mechanisms.continual.nodes import window_starts
from dpsql.mechanisms.continual.time_strategy import (
    Emission,
    Frozen,
    Kinds,
    NamedTimeStrategy,
    NodeRead,
    StreamProblem,
    TimeOffer,
    check_rows,
    refuse_past,
)
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.mechanisms.offers import Refusal
from dpsql.tree import FloatArray, IntArray

LARGEST = 1 << 31
"""What rows and factors stay below, so that products of two stay exact in 64 bits."""
ROOM = 1 << 62
"""What squared column norms stay below, for the same reason."""


def integers(stored: Sequence[Any]) -> IntArray:
    """Positive leading integers of a filter or of factors, as they were frozen.

    Raises:
        ValueError, TypeError: they are none.
    """
    values = np.array([int(value) for value in stored], dtype=np.int64)
    if values.size < 1 or int(values[0]) < 1 or int(np.abs(values).max()) >= LARGEST:
        raise ValueError("rows and factors are integers, the first above 0")
    return values


def energies(rows: IntArray) -> list[int]:
    """c_0^2, c_0^2 + c_1^2, .. as whole numbers of any size."""
    return list(accumulate(int(c) ** 2 for c in rows))


def decoded(rows: IntArray, published: FloatArray) -> FloatArray:
    """The numbers that a filter's outputs came from; forward substitution, O(n p).

    >>> decoded(np.array([2, 1]), np.array([2.0, 1.0, 2.0])).tolist()
    [1.0, 0.0, 1.0]
    """
    value, count = np.array(published, dtype=np.float64), len(published)
    scale = rows.astype(np.float64) / float(rows[0])
    for place in range(count - 1):
        stop = min(count, place + rows.size)
        value[place + 1 : stop] -= np.multiply.outer(scale[1 : stop - place], value[place])
    return np.asarray(value / float(rows[0]))


def filter_variance(rows: IntArray, factors: NDArray[np.generic], norm: int) -> FilterVariance:
    """Variance of decoded batches, against a node that spends all.

    Args:
        rows: the filter.
        factors: of the batches that are public.
        norm: variance of each number against such a node.
    """
    kernel = decoded(rows, np.eye(1, len(factors))[0]) * float(rows[0])
    return FilterVariance(kernel, float(norm) ** 0.5 / float(rows[0]) / factors.astype(np.float64))


Held = Callable[[IntArray, IntArray], FloatArray]
"""Batches i <= j -> in how many questions of a kind both are."""


class FilterErrors(NamedTuple):
    """Errors of filtered noise, summed over pairs of batches lag by lag; a prefix never changes after its batch.

    Args:
        model: of the batches.
        unit: variance of a node that spends all.
    """

    model: FilterVariance
    unit: float

    def running(self) -> float:
        return self.prefix()

    def prefix(self) -> float:
        n = self.model.n
        return self._mean(lambda i, j: np.asarray(n - j, np.float64), n, n)

    def range(self) -> float:
        n = self.model.n
        return self._mean(lambda i, j: np.asarray((i + 1.0) * (n - j)), n, n * (n + 1) // 2)

    def window(self, length: int) -> float:
        starts = window_starts(self.model.n, length)

        def held(i: IntArray, j: IntArray) -> FloatArray:
            return np.asarray(np.minimum(i, starts - 1.0) - np.maximum(j - length + 1.0, 0) + 1, np.float64)

        return self._mean(held, length, starts)

    def _mean(self, joint_count: Held, reach: int, questions: int) -> float:
        place, total = np.arange(self.model.n), 0.0
        for lag, pairs in enumerate(self.model.lags(reach)):
            apart = pairs.size
            total += (2 if lag else 1) * float(pairs @ np.maximum(joint_count(place[:apart], place[lag:]), 0))
        return self.unit * total / questions


def shared(rows: IntArray) -> Iterator[IntArray]:
    """Inner products of two columns, exactly, lag by lag: sum over k < m of c_k c_(k + lag), m = 1, 2, .."""
    for lag in range(rows.size):
        yield np.cumsum(rows[: rows.size - lag] * rows[lag:])


def largest_sum(values: IntArray, count: int) -> int:
    """The greatest sum of the `count` largest numbers of a row, exactly.

    Args:
        values: int64[rows, n], none negative.
        count: at least 1.
    """
    count = min(count, values.shape[1])
    top = np.partition(values, values.shape[1] - count, axis=1)[:, -count:]
    high, low = (top >> 31).sum(axis=1), (top & (LARGEST - 1)).sum(axis=1)
    return max((int(h) << 31) + int(small) for h, small in zip(high, low, strict=True))


def met(batches: int, largest: int, norm: int) -> Fraction:
    """The price of several batches: each meets at most what the one that meets most does.

    **Source**: docs/privacy/streams.md, "2. The whole life costs one budget".
    """
    return min(Fraction(batches * largest, norm), Fraction(batches**2))


@dataclass(frozen=True, eq=False)
class EndlessStrategy:
    """Integer rows that weigh the last batches by their age.

    Args:
        law: the noise; Gaussian.
        rows: int64[p], c: of the batch itself, of the one before, and so on.
    """

    kind: ClassVar[str] = "endless"
    ahead: ClassVar[None] = None
    horizon: ClassVar[None] = None
    law: NoiseDistribution
    rows: IntArray

    def __post_init__(self) -> None:
        """Refuse rows whose squares could leave 64 bits."""
        if self.norm >= ROOM:
            raise ValueError("the rows are too large")

    @cached_property
    def norm(self) -> int:
        """G: the squared norm of every column."""
        return energies(self.rows)[-1]

    @property
    def name(self) -> str:
        return f"spectral over the last {self.rows.size} batches"

    @property
    def share(self) -> Fraction:
        """Spend of each number in mu^2, for a row that counts with weight 1 in it."""
        return Fraction(1, self.norm)

    def emissions(self, batch: int) -> tuple[Emission, ...]:
        refuse_past(self, batch)
        length = batch + 1
        weights = self.rows[:length][::-1]
        return (
            Emission(
                0, length - weights.size, length, (NodeRead(batch, 1, self.share, length + 1),), weights
            ),
        )

    def needed(self, batches: int) -> tuple[int, ...]:
        return tuple(range(max(0, batches + 1 - self.rows.size), batches + 1))

    def shares(self) -> tuple[Fraction, Fraction]:
        return self.share, self.share

    def price(self, batches: int) -> Fraction:
        """See `TimeStrategy`.

        Columns of batches that lie l apart have r_l in common, and each batch has at most two others at a distance.

        >>> from dpsql.mechanisms.distribution import GAUSSIAN
        >>> strategy = EndlessStrategy(GAUSSIAN, np.array([2, 1]))
        >>> str(strategy.price(1)), str(strategy.price(2)), str(strategy.price(3))
        ('1', '14/5', '27/5')
        """
        if batches == 1:
            return Fraction(1)
        r = np.abs([int(sums[-1]) for sums in shared(self.rows)])
        overlaps = np.concatenate([r[:1], np.repeat(r[1:], 2)])
        return met(batches, largest_sum(overlaps[None], batches), self.norm)

    def estimate(self, batches: int, published: NDArray[np.generic]) -> FloatArray:
        """See `TimeStrategy`. O(t p)."""
        return decoded(self.rows, check_rows(published, batches))

    def variance(self, batches: int) -> FilterVariance:
        return filter_variance(self.rows, np.ones(batches), self.norm)

    def errors(self, batches: int) -> FilterErrors:
        return FilterErrors(self.variance(batches), self.law.error_at_unit_budget)

    def frozen(self) -> dict[str, Any]:
        return {"rows": self.rows.tolist()}


def _thawed(law: NoiseDistribution, frozen: Frozen) -> EndlessStrategy:
    return EndlessStrategy(law, integers(frozen["rows"]))


NAMED: Mapping[str, NamedTimeStrategy] = {}
KINDS: Kinds = {"endless": _thawed}


def offers(question: StreamProblem) -> Iterator[TimeOffer | Refusal]:
    """None of its own: `spectral` makes its rows."""
    return iter(())
