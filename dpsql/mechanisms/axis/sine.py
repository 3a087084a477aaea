"""The sine-transform strategy V^(1/4), its rows rounded to integers and measured exactly.

A matrix that the sine transform makes diagonal is a Toeplitz matrix less a Hankel one, so n numbers hold all n^2
entries, and measuring is a convolution:

    A_ij = t(|i - j|) - t(i + j),  i, j = 1..n,    t(d) = 1/(n + 1) sum_k w_k cos(pi k d / (n + 1))

| here | there | unit |
|---|---|---|
| `weight` | w_k, eigenvalues of V^(1/4) over the largest column norm | 1 |
| `table` | T(d) = rint(D t(d)), d = 0..2n + 1 | 1 / D |
| `scale` | D | - |

**Privacy** The table is a public matrix of integers, B_ij = T(|i - j|) - T(i + j), and B x is computed without a float.
Columns of D A have norm at most D; two roundings an entry and the float error of the table, 1/100 at most, move n
entries by at most 1.01 each. So a column of B has norm at most D + 1.01 sqrt(n), which `l2_bound` says.
**Source** docs/method/axis.md, "Sine rows".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import ceil, sqrt
from typing import Any, ClassVar, Self

import numpy as np

from dpsql.errors import InternalError
from dpsql.mechanisms.axis.convolve import convolve
from dpsql.mechanisms.axis.dense import DENSE_LEAVES
from dpsql.mechanisms.axis.question import AxisQuestion, Candidate, Offer, Refusal, candidate
from dpsql.mechanisms.axis.rows import LIMIT, SparseRows
from dpsql.mechanisms.axis.strategy import AxisStrategy, Frozen, check_sensitivity
from dpsql.mechanisms.law import GAUSSIAN, NoiseLaw
from dpsql.tree import FloatArray, IntArray
from dpsql.variance.sine import SineVariance, cosine_sums, half_angles, sine_transform

NAMED: Mapping[str, Callable[[AxisQuestion], Candidate]] = {}

_LIMB = 16  # bits of a part of numbers that are too large to be multiplied at once

SINE_SCALE = 1 << 20  # the rounding term sqrt(n) is 0.1% of the sensitivity at a million leaves


def column_norm(n: int) -> float:
    """The largest squared column norm of V^(1/4): the largest diagonal entry of V^(1/2)."""
    root = np.sqrt(n + 1) / (2 * half_angles(n))
    return float((root.sum() - cosine_sums(root)[2 : 2 * n + 1 : 2].min()) / (n + 1))


def weight(n: int, power: float) -> FloatArray:
    """Eigenvalues of V^(power) divided by maxcol^(4 power), shape (n,)."""
    root = np.sqrt(n + 1) / (2 * half_angles(n))  # eigenvalues of V^(1/2)
    values: FloatArray = (root / column_norm(n)) ** (2 * power)
    return values


def transform(x: FloatArray, power: float) -> FloatArray:
    """V^(power) x for each column of x, divided by maxcol^(4 power), shape (n, m).

    With power 1/4 the rows have columns of norm at most 1; with -1/4 it is their inverse.
    """
    return sine_transform(weight(len(x), power)[:, None] * sine_transform(x))


def l2_bound(n: int, scale: int) -> int:
    """An integer that no column norm of the integer rows passes.

    **Privacy** 1e-9 covers the rounding of `column_norm`, 1.01 that of the entries.
    """
    return ceil(scale * (1 + 1e-9) + 1.01 * sqrt(n))


def table(n: int, scale: int) -> IntArray:
    """T(d) for d = 0..2n + 1, int64."""
    return np.rint(scale / (n + 1) * cosine_sums(weight(n, 0.25))).astype(np.int64)


def measure_sine(x: IntArray, scale: int) -> IntArray:
    """B x for each column of x in exact integers modulo 2^64, shape (n, m).

    Args:
        x: integers, shape (n, m).
        scale: D.

    Raises:
        InternalError: the rows are too large, whatever x is.

    **Privacy** Raw: never leaves publishing without noise.
    """
    n = len(x)
    entries = table(n, scale)
    most = 2 * int(np.abs(entries).max())
    if most * n << _LIMB >= LIMIT:
        raise InternalError(f"sine rows of {n} leaves have too large entries")
    largest = most * max(1, int(np.abs(x).astype(object).sum(axis=0).max()))
    if largest >= LIMIT:
        return (measure_sine(x >> _LIMB, scale) << _LIMB) + measure_sine(x & (1 << _LIMB) - 1, scale)
    period = 2 * (n + 1)
    rows = np.empty_like(x)
    for column in range(x.shape[1]):
        odd = np.zeros(period, np.int64)
        odd[1 : n + 1] = x[:, column]
        odd[n + 2 :] = -x[::-1, column]
        sums = convolve(odd, entries, largest)
        sums[: len(sums) - period] += sums[period:]
        rows[:, column] = sums[1 : n + 1]
    return rows


def estimate_sine(y: FloatArray, scale: int) -> FloatArray:
    """A^-1 y / scale, shape (n, m): the leaves up to what rounding the rows changed, which a second pass takes out."""
    return transform(y, -0.25) / scale


@dataclass(frozen=True)
class SineStrategy:
    """V^(1/4) of all ranges, for axes too long for dense rows. See `AxisStrategy` for what its methods answer.

    Args:
        leaves: n.
        scale: D.

    **Privacy** `total` is the proven bound of `l2_bound` on the column norms of the integer rows.
    """

    leaves: int
    scale: int = SINE_SCALE
    kind: ClassVar[str] = "sine"
    law: ClassVar[NoiseLaw] = GAUSSIAN
    refinements: ClassVar[int] = 2
    """Rows are estimated by a matrix close to theirs; each round leaves about a millionth of what was wrong."""

    def __post_init__(self) -> None:
        """Refuse what is more sensitive than it says."""
        check_sensitivity(self, l2_bound(self.leaves, self.scale) ** 2)

    @property
    def budget(self) -> IntArray:
        """Ones."""
        return np.ones(self.leaves, np.int64)

    @property
    def total(self) -> int:
        """The proven bound of column norms."""
        return l2_bound(self.leaves, self.scale)

    @property
    def grain(self) -> int:
        """D: products with the rows of other axes would not fit in 64 bits."""
        return self.scale

    def measure_columns(self, x: IntArray) -> IntArray:
        """By convolution."""
        return measure_sine(x, self.scale)

    def estimate_columns(self, y: FloatArray) -> FloatArray:
        """By the transform of the rows before rounding."""
        return estimate_sine(y, self.scale)

    def variance(self) -> SineVariance:
        """See `AxisStrategy`."""
        return SineVariance(self.leaves, column_norm(self.leaves) * (self.total / self.scale) ** 2)

    def entries(self) -> SparseRows | None:
        """None: n^2 of them."""
        return None

    def gathers(self) -> bool:
        """Always."""
        return True

    def even_square(self) -> Fraction:
        """Not to be had.

        Raises:
            InternalError: always; no view that needs it gets this strategy.
        """
        raise InternalError("a sine strategy's rows are not written down", hint="write `mechanism: identity`")

    def for_products(self, crumb: float) -> AxisStrategy:
        """Itself."""
        return self

    def frozen(self) -> dict[str, Any]:
        """The scale; the rest follows from n."""
        return {"leaves": self.leaves, "scale": self.scale}

    @classmethod
    def thawed(cls, frozen: Frozen) -> Self:
        """See `AxisStrategy`."""
        return cls(int(frozen["leaves"]), int(frozen["scale"]))


def offers(question: AxisQuestion) -> Iterator[Offer | Refusal]:
    """The sine transform, on axes too long for dense rows."""
    name = "sine transform"
    if not question.allows(SineStrategy.law):
        yield Refusal(name, f"is for {SineStrategy.law.name} noise")
    elif question.leaves <= DENSE_LEAVES:
        yield Refusal(name, "the dense optimum errs less")
    else:
        yield Offer(name, 0.0, lambda: candidate(SineStrategy(question.leaves), name, question))
