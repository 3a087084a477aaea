"""The sine-transform strategy V^(1/4), its rows rounded to integers and measured exactly.

A matrix that the sine transform makes diagonal is a Toeplitz matrix less a Hankel one, so n numbers hold all n^2
entries, and measuring is a convolution:

    A_ij = t(|i - j|) - t(i + j),  i, j = 1..n,    t(d) = 1/(n + 1) sum_k w_k cos(pi k d / (n + 1))

| here | there | unit |
|---|---|---|
| `weight` | w_k, eigenvalues of V^(1/4) over the largest column norm | 1 |
| `table` | T(d) = rint(D t(d)), d = 0..2n + 1 | 1 / D |
| `scale` | D | - |

The convolution is one multiplication of long decimal numbers: entry i of a sequence becomes the digits i k to
i k + k - 1, with k so large that no sum of products reaches over its digits. Python's decimals multiply such numbers
exactly, by a number-theoretic transform, in about n log n steps; nothing there is a float.

**Privacy** The table is a public matrix of integers, B_ij = T(|i - j|) - T(i + j), and B x is computed without a float.
Columns of D A have norm at most D; two roundings an entry and the float error of the table, 1/100 at most, move n
entries by at most 1.01 each. So a column of B has norm at most D + 1.01 sqrt(n), which `l2_bound` says.
**Source** docs/method/views.md, "Sine rows".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation, Overflow, Rounded
from functools import lru_cache
from math import ceil, sqrt
from typing import NamedTuple

import numpy as np

from dpsql.errors import InternalError
from dpsql.matrices.intervals import SineVariance, column_norm, cosine_sums, weight
from dpsql.matrices.strategy import LIMIT, Strategy
from dpsql.mechanisms.axis.dense import DENSE_LEAVES
from dpsql.mechanisms.distribution import GAUSSIAN
from dpsql.mechanisms.offers import AxisProblem, NamedAxisMechanism, Offer, Proposal, Refusal, candidate
from dpsql.tree import IntArray

_DIGITS = 9  # turned into an integer at a time


def convolve(a: IntArray, b: IntArray, largest: int) -> IntArray:
    """The sums c_k = sum_i a_i b_(k - i), exactly.

    Args:
        a, b: int64, shapes (n,) and (m,), at least one entry each.
        largest: a bound on every |c_k|, |a_i| and |b_i|, below 2^62.

    Returns:
        int64, shape (n + m - 1,).

    >>> convolve(np.array([1, -2]), np.array([3, 4]), 10).tolist()
    [3, -2, -8]
    """
    limbs = -(-len(str(2 * largest + 1)) // _DIGITS)
    count, digits = len(a) + len(b) - 1, limbs * _DIGITS
    context = Context(prec=digits * (count + 2), Emax=MAX_EMAX, Emin=MIN_EMIN,
                      traps=[Inexact, Rounded, InvalidOperation, Overflow])  # fmt: skip
    product = context.multiply(_number(a, limbs, context), _number(b, limbs, context))
    # A bound added to every entry leaves no negative digits; what is above the last entry is dropped.
    lifted = context.add(product, Decimal(f"{largest:0{digits}d}" * count))
    return _entries(format(lifted, "f"), count, limbs) - largest


def _number(values: IntArray, limbs: int, context: Context) -> Decimal:
    """sum_i values_i 10^(9 limbs i)."""
    positive, negative = (_digits(np.maximum(signed, 0), limbs) for signed in (values, -values))
    return context.subtract(positive, negative)


def _digits(values: IntArray, limbs: int) -> Decimal:
    """The number whose groups of digits are the values, the first one lowest."""
    text = np.empty((len(values), limbs * _DIGITS), np.uint8)
    quotient = values[::-1]
    for limb in range(limbs - 1, -1, -1):
        quotient, lower = np.divmod(quotient, 10**_DIGITS)
        digits = lower.astype(np.uint32)  # divided three times as fast as 64 bits
        for place in range(_DIGITS * (limb + 1) - 1, _DIGITS * limb - 1, -1):
            digits, text[:, place] = np.divmod(digits, np.uint32(10))
    text += ord("0")
    return Decimal(text.tobytes().decode("ascii"))


def _entries(text: str, count: int, limbs: int) -> IntArray:
    """The groups of digits of a number as integers, the lowest group first."""
    width = limbs * _DIGITS
    padded = text.rjust(count * width, "0")[-count * width :]
    digits = np.frombuffer(padded.encode("ascii"), np.uint8).reshape(count, width)
    entries = np.zeros(count, np.int64)
    for place in range(width):  # one at a time: all digits as 64 bits would be 600 MB at a million leaves
        entries *= 10
        entries += digits[:, place] - ord("0")
    return entries[::-1].copy()


NAMED: Mapping[str, NamedAxisMechanism] = {}

_LIMB = 16  # bits of a part of numbers that are too large to be multiplied at once

SINE_SCALE = 1 << 20  # the rounding term sqrt(n) is 0.1% of the sensitivity at a million leaves


def l2_bound(n: int, scale: int) -> int:
    """An integer that no column norm of the integer rows passes.

    **Privacy** 1e-9 covers the rounding of `column_norm`, 1.01 that of the entries.
    """
    return ceil(scale * (1 + 1e-9) + 1.01 * sqrt(n))


@lru_cache(maxsize=2)
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
    entry_bound = 2 * int(np.abs(entries).max())
    if entry_bound * n << _LIMB >= LIMIT:
        raise InternalError(f"sine rows of {n} leaves have too large entries")
    largest = entry_bound * max(1, int(np.abs(x).astype(object).sum(axis=0).max()))
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


class SineRows(NamedTuple):
    """The integer rows of a table; n^2 of them, too many to be written down.

    Args:
        cells: n.
        scale: D.
    """

    cells: int
    scale: int

    def measure(self, x: IntArray) -> IntArray:
        return measure_sine(x, self.scale)

    def column_bound(self, budget: IntArray, norm: int) -> int:
        """The square of the proven bound of `l2_bound`; budgets are 1."""
        return l2_bound(self.cells, self.scale) ** 2


def sine_strategy(leaves: int, scale: int = SINE_SCALE) -> Strategy:
    """V^(1/4) of all ranges, for axes too long for dense rows.

    Args:
        leaves: n.
        scale: D; products with the rows of other axes would not fit in 64 bits.

    **Privacy** `total` is the proven bound of `l2_bound` on the column norms of the integer rows.
    """
    total = l2_bound(leaves, scale)
    solver = SineVariance(leaves, column_norm(leaves) * (total / scale) ** 2)
    stored, rows = {"leaves": leaves, "scale": scale}, SineRows(leaves, scale)
    budget = np.ones(leaves, np.int64)
    # Rows are estimated by a matrix close to theirs; each round leaves about a millionth of what was wrong.
    return Strategy("sine", stored, rows, budget, total, GAUSSIAN.norm, solver, scale, refinements=2)


def offers(question: AxisProblem) -> Iterator[Proposal]:
    """The sine transform, on axes too long for dense rows."""
    name = "sine transform"
    if question.law != GAUSSIAN:
        yield Refusal(name, f"is for {GAUSSIAN.name} noise")
    elif question.leaves <= DENSE_LEAVES:
        yield Refusal(name, "the dense optimum has less error")
    else:
        yield Offer(name, 0.0, lambda: candidate(sine_strategy(question.leaves), name, question))
