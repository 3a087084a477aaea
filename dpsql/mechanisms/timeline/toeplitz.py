"""Square-root Toeplitz under Gaussian noise: every batch publishes one noisy weighted sum of all batches so far.

The matrix of all prefixes is the square of the lower triangular Toeplitz matrix C with entries
f_j = binom(2j, j) / 4^j, so publishing C x + Gaussian noise and multiplying by C again gives all prefixes
with nearly the least possible error. What is published are exact integers: entries round(2^20 f_j) on
integer counts, plus integer noise; the decoder uses those integers' own inverse, so rounding costs accuracy
(under 1e-6), never privacy. The integers follow from integer arithmetic alone, so nothing but the horizon is frozen.

The norm of a column grows with the horizon, so the budget is planned for N batches and the strategy refuses
past them. A batch needs all increments before it: O(t) work and private storage at batch t.

**Privacy**: every number spends 1 / sum c_j^2 of mu^2. A row of batch j moves the number of batch t by c_(t-j), so it
pays sum over t of c_(t-j)^2 / sum c^2 <= 1.
**Source**: docs/method/streams.md, "Square-root Toeplitz".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.errors import InterfaceError
from dpsql.mechanisms.law import GAUSSIAN, NoiseLaw
from dpsql.mechanisms.offers import Refusal
from dpsql.mechanisms.timeline.nodes import window_starts
from dpsql.mechanisms.timeline.strategy import (
    Emission,
    Frozen,
    Kinds,
    Named,
    Read,
    TimeOffer,
    TimeQuestion,
    check_rows,
    dense_offers,
    one_node,
    only,
    refuse_past,
)
from dpsql.tree import FloatArray, IntArray
from dpsql.variance import AxisVariance
from dpsql.variance.leaves import PrefixVariance

BITS = 20
"""Fraction bits of the integer coefficients: f_j >= 5e-4 up to a million batches, so each keeps 9 bits."""
GUARD = 64
"""Bits more while they are computed: a million roundings stay far below one."""


@dataclass(frozen=True)
class ToeplitzStrategy:
    """Rows of the square root of the prefix matrix.

    Args:
        law: the noise; Gaussian.
        horizon: number of batches planned for, at least 1.
    """

    kind: ClassVar[str] = "toeplitz"
    law: NoiseLaw
    horizon: int

    @property
    def name(self) -> str:
        """See `TimeStrategy`."""
        return f"toeplitz over {self.horizon} batches"

    @property
    def share(self) -> Fraction:
        """What each number spends of mu^2, for a row that counts with weight 1 in it."""
        return Fraction(1, sum(int(c) * int(c) for c in integer_coefficients(self.horizon)))

    def emissions(self, batch: int) -> tuple[Emission, ...]:
        """See `TimeStrategy`."""
        refuse_past(self, batch)
        length = batch + 1
        weights = integer_coefficients(self.horizon)[:length][::-1]
        return (Emission(0, 0, length, (Read(batch, 1, self.share, length + 1),), weights),)

    def needed(self, batches: int) -> tuple[int, ...]:
        """See `TimeStrategy`."""
        return tuple(range(batches + 1))

    def shares(self) -> tuple[Fraction, Fraction]:
        """See `TimeStrategy`."""
        return self.share, self.share

    def price(self, batches: int) -> Fraction:
        """See `TimeStrategy`.

        X = C'C has no negative entry, X_ij is at most r_|i-j|, the full autocorrelation of c, and r falls. So batches S
        pay sum over i, j in S of X_ij <= |S| (r_0 + r_1 + r_1 + r_2 + ..), |S| terms.
        """
        root, reach = integer_coefficients(self.horizon), range(min(batches, self.horizon))
        apart = [(i + 1) // 2 for i in reach]
        meet = sum(int(root[: root.size - lag] @ root[lag:]) for lag in apart)
        return min(len(reach) * meet * self.share, one_node(self.law, batches))

    def estimate(self, batches: int, published: NDArray[np.generic]) -> FloatArray:
        """See `TimeStrategy`. Forward substitution, O(t^2); t is a number of batches, and readers keep the result."""
        value = check_rows(published, batches).copy()
        coefficients = integer_coefficients(self.horizon)[:batches].astype(np.float64)
        scale = coefficients / coefficients[0]
        for place in range(batches - 1):
            value[place + 1 :] -= np.multiply.outer(scale[1 : batches - place], value[place])
        return np.asarray(value / coefficients[0])

    def variance(self, batches: int) -> AxisVariance:
        """See `TimeStrategy`. The first column of the inverse root is f_j - f_(j-1)."""
        root = root_coefficients(self.horizon)
        inverse = np.diff(root[:batches], prepend=0.0)
        place = np.subtract.outer(np.arange(batches), np.arange(batches))
        decode = np.where(place >= 0, inverse[np.maximum(place, 0)], 0.0)
        return PrefixVariance(decode @ decode.T * float((root**2).sum()))

    def errors(self, batches: int) -> ToeplitzErrors:
        """See `TimeStrategy`."""
        root = root_coefficients(self.horizon)
        return ToeplitzErrors(root[:batches], self.law.unit_error * float((root**2).sum()))

    def frozen(self) -> dict[str, Any]:
        """See `TimeStrategy`."""
        return {"horizon": self.horizon}


class ToeplitzErrors(NamedTuple):
    """Errors of what is read through the root; a prefix never changes after its batch.

    Args:
        root: float64[n], its first column.
        variance: of each published number, against a weight of 1.
    """

    root: FloatArray
    variance: float

    def running(self) -> float:
        """See `TimeErrors`."""
        return self.prefix()

    def prefix(self) -> float:
        """See `TimeErrors`."""
        return float(np.cumsum(self.root**2).mean()) * self.variance

    def range(self) -> float:
        """See `TimeErrors`. Per noise entry, (n + 1) sum c^2 - (sum c)^2."""
        n = self.root.size
        pairs = float(((n + 1) * np.cumsum(self.root**2) - np.cumsum(self.root) ** 2).sum())
        return pairs * self.variance / (n * (n + 1) / 2)

    def window(self, length: int) -> float:
        """See `TimeErrors`.

        A window that ends at t reads the `length` newest noise entries with f_i and the older ones with
        f_(i + length) - f_i.
        """
        starts = window_starts(self.root.size, length)
        fresh = float((self.root[:length] ** 2).sum())
        old = (self.root[length:] - self.root[: self.root.size - length]) ** 2
        return (fresh + float(np.cumsum(old).sum()) / starts) * self.variance


def root_coefficients(n: int) -> FloatArray:
    """f_0..f_{n-1} of the square root of the prefix matrix (float64[n]): f_j = f_{j-1} (2j - 1) / (2j).

    >>> root_coefficients(4).tolist()
    [1.0, 0.5, 0.375, 0.3125]
    """
    step = np.arange(1, n, dtype=np.float64)
    return np.concatenate(([1.0], np.cumprod((2 * step - 1) / (2 * step))))[:n]


@lru_cache(maxsize=8)
def integer_coefficients(n: int) -> IntArray:
    """The published matrix's first column, round(2^20 f_j) (int64[n]), by integer arithmetic alone.

    >>> integer_coefficients(3).tolist()
    [1048576, 524288, 393216]
    """
    value, found = 1 << (BITS + GUARD), []
    for place in range(n):
        found.append((value + (1 << (GUARD - 1))) >> GUARD)
        value = value * (2 * place + 1) // (2 * place + 2)
    return np.array(found, dtype=np.int64)


def _made(question: TimeQuestion) -> ToeplitzStrategy:
    """The one there is.

    Raises:
        InterfaceError: under Laplace noise.
    """
    if not question.allows(GAUSSIAN):
        raise InterfaceError("toeplitz needs Gaussian noise", hint="write auto, or give privacy.delta")
    return ToeplitzStrategy(question.law, question.batches)


def _thawed(law: NoiseLaw, frozen: Frozen) -> ToeplitzStrategy:
    return ToeplitzStrategy(law, int(frozen["horizon"]))


NAMED: Mapping[str, Named] = {"toeplitz": only(_made, tuned=False)}
KINDS: Kinds = {"toeplitz": _thawed}


def offers(question: TimeQuestion) -> Iterator[TimeOffer | Refusal]:
    """The one there is, under Gaussian noise."""
    if question.allows(GAUSSIAN):
        yield from dense_offers(question, {"toeplitz": _made})
    else:
        yield Refusal("toeplitz", "it needs Gaussian noise: allow a delta")
