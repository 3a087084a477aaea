"""One number a batch, a noisy weighted sum of all batches so far, for a stream whose end is known.

Batch t publishes sum over j <= t of c_(t-j) d_j x_j: integer rows c by how long ago a batch was, and an integer factor
d_j for each batch, since late batches are in fewer sums and may count more in each. Rows are square and lower
triangular, so what the first t numbers tell of the first t batches is all they ever tell: no answer changes later.

`toeplitz` is the square root of the matrix of all prefixes, c_j = round(2^20 binom(2j, j) / 4^j), with equal factors.
`spectral` (its own module) makes rows and factors for what is asked. Both are frozen as integers.

**Privacy**: every number spends 1 / G of mu^2, G the largest of d_j^2 (c_0^2 + .. + c_(N-1-j)^2). A row of batch j
moves the number of batch t by c_(t-j) d_j, so it pays the sum of their squares over G, at most 1.
**Source**: docs/method/streams.md, "Square-root Toeplitz" and "Spectral rows".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InterfaceError
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
    dense_offers,
    only,
    refuse_past,
)
from dpsql.mechanisms.distribution import GAUSSIAN, NoiseDistribution
from dpsql.mechanisms.offers import Refusal
from dpsql.tree import FloatArray, IntArray

BITS = 20
"""Fraction bits of the square root's integers: f_j >= 5e-4 up to a million batches, so each keeps 9 bits."""
GUARD = 64
"""Bits more while they are computed: a million roundings stay far below one."""


@dataclass(frozen=True, eq=False)
class ToeplitzStrategy:
    """Integer rows that weigh batches by their age, and a factor for each batch.

    Args:
        law: the noise; Gaussian.
        kind: what it is called.
        rows: int64[N], c: of the batch itself, of the one before, and so on.
        factors: int64[N], d: of batch 0, 1, ..
    """

    ahead: ClassVar[None] = None
    law: NoiseDistribution
    kind: str
    rows: IntArray
    factors: IntArray

    def __post_init__(self) -> None:
        """Refuse rows whose squares could leave 64 bits."""
        if self.rows.size != self.factors.size or int(self.factors.min()) < 1 or self.norm >= ROOM:
            raise ValueError("rows and factors do not fit each other")

    @cached_property
    def norm(self) -> int:
        """G: the largest squared norm of a column."""
        squares = energies(self.rows)
        return max(int(d) ** 2 * s for d, s in zip(self.factors, reversed(squares), strict=True))

    @property
    def horizon(self) -> int:
        return self.rows.size

    @property
    def name(self) -> str:
        return f"{self.kind} over {self.horizon} batches"

    @property
    def share(self) -> Fraction:
        """Spend of each number in mu^2, for a row that counts with weight 1 in it."""
        return Fraction(1, self.norm)

    def emissions(self, batch: int) -> tuple[Emission, ...]:
        refuse_past(self, batch)
        length = batch + 1
        weights = self.rows[:length][::-1] * self.factors[:length]
        return (Emission(0, 0, length, (NodeRead(batch, 1, self.share, length + 1),), weights),)

    def needed(self, batches: int) -> tuple[int, ...]:
        return tuple(range(batches + 1))

    def shares(self) -> tuple[Fraction, Fraction]:
        return self.share, self.share

    def price(self, batches: int) -> Fraction:
        """See `TimeStrategy`.

        X_ij is what the columns of batches i and j have in common. Batches S pay at most the sum over i, j in S of
        |X_ij|, so at most |S| times the largest sum of |S| numbers in a column of |X|.

        >>> strategy = ToeplitzStrategy(GAUSSIAN, "toeplitz", np.array([2, 1]), np.array([1, 1]))
        >>> str(strategy.price(1)), str(strategy.price(2)), str(strategy.price(30))
        ('1', '14/5', '14/5')
        """
        units = min(batches, self.horizon)
        if units == 1:
            return Fraction(1)
        together = np.zeros((self.horizon, self.horizon), dtype=np.int64)
        place = np.arange(self.horizon)
        for lag, sums in enumerate(shared(self.rows)):
            i, j = place[: sums.size], place[lag:]
            together[i, j] = together[j, i] = np.abs(sums[::-1] * self.factors[i] * self.factors[j])
        return met(units, largest_sum(together, units), self.norm)

    def estimate(self, batches: int, published: NDArray[np.generic]) -> FloatArray:
        """See `TimeStrategy`. O(t^2); t is a number of batches, and readers keep the result."""
        scaled_batches = decoded(self.rows[:batches], check_rows(published, batches))
        return scaled_batches / self.factors[:batches].reshape(-1, *[1] * (scaled_batches.ndim - 1))

    def variance(self, batches: int) -> FilterVariance:
        return filter_variance(self.rows[:batches], self.factors[:batches], self.norm)

    def errors(self, batches: int) -> FilterErrors:
        return FilterErrors(self.variance(batches), self.law.error_at_unit_budget)

    def frozen(self) -> dict[str, Any]:
        return {"rows": self.rows.tolist(), "factors": self.factors.tolist()}


@lru_cache(maxsize=8)
def integer_coefficients(n: int, bits: int = BITS) -> IntArray:
    """The square root's first column, round(2^bits f_j) (int64[n]), by integer arithmetic alone.

    f_0 = 1, f_j = f_(j-1) (2j - 1) / (2j).

    >>> integer_coefficients(3).tolist()
    [1048576, 524288, 393216]
    """
    value, coefficients = 1 << (bits + GUARD), []
    for place in range(n):
        coefficients.append((value + (1 << (GUARD - 1))) >> GUARD)
        value = value * (2 * place + 1) // (2 * place + 2)
    return np.array(coefficients, dtype=np.int64)


def square_root(law: NoiseDistribution, batches: int, bits: int = BITS) -> ToeplitzStrategy:
    """Rows of the square root of the prefix matrix."""
    rows = integer_coefficients(batches, min(bits, BITS))
    return ToeplitzStrategy(law, "toeplitz", rows, np.ones(batches, dtype=np.int64))


def gaussian_only(question: StreamProblem, word: str) -> None:
    """Refuse other noise for a strategy that was named.

    Raises:
        InterfaceError: under Laplace noise.
    """
    if not question.allows(GAUSSIAN):
        raise InterfaceError(f"{word} needs Gaussian noise", hint="write auto, or give privacy.delta")


def _made(question: StreamProblem) -> ToeplitzStrategy:
    """The one there is.

    Raises:
        InterfaceError: under Laplace noise.
    """
    gaussian_only(question, "toeplitz")
    return square_root(question.law, question.batches, question.bits)


def thawed(kind: str, law: NoiseDistribution, frozen: Frozen) -> ToeplitzStrategy:
    """The rows and factors of a kind that were stored."""
    return ToeplitzStrategy(law, kind, integers(frozen["rows"]), integers(frozen["factors"]))


NAMED: Mapping[str, NamedTimeStrategy] = {"toeplitz": only(_made, tuned=False)}
KINDS: Kinds = {"toeplitz": partial(thawed, "toeplitz")}


def offers(question: StreamProblem) -> Iterator[TimeOffer | Refusal]:
    """The square root, under Gaussian noise."""
    if question.allows(GAUSSIAN):
        yield from dense_offers(question, {"toeplitz": _made})
    else:
        yield Refusal("toeplitz", "it needs Gaussian noise: allow a delta")
