"""One number a batch, a noisy weighted sum of the last batches, for a stream without an end.

Batch t publishes sum over i < p of c_i x_(t-i). The rows are cut after p batches, so every column has the same finite
norm for ever: one sigma, no horizon. Windows of batches err the same at all times; totals grow slowly.

**Privacy**: every number spends 1 / G of mu^2, G = c_0^2 + .. + c_(p-1)^2. A row of any batch moves the p numbers from
its own on by c_0, c_1, .., so it pays 1 in all, however long the stream runs. The last p exact sums stay in the private
state for as long as the stream lives.
**Source**: docs/method/streams.md, "Rows without an end".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.matrices.filtered import FilterVariance
from dpsql.mechanisms.continual.filters import (
    ROOM,
    FilterErrors,
    decoded,
    energies,
    filter_variance,
    integers,
    largest_sum,
    met,
    shared,
)
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
