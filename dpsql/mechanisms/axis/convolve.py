"""Exact convolution of integers by one multiplication of long decimal numbers.

Entry i of a sequence becomes the digits i k to i k + k - 1 of a number, with k so large that no sum of products
reaches over its digits. Python's decimals multiply such numbers exactly, by a number-theoretic transform, in about
n log n steps. Nothing here is a float.
"""

from __future__ import annotations

from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal, Inexact, InvalidOperation, Overflow, Rounded

import numpy as np

from dpsql.tree import IntArray

_LIMB = 9  # digits that are turned into an integer at a time


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
    limbs = -(-len(str(2 * largest + 1)) // _LIMB)
    count, digits = len(a) + len(b) - 1, limbs * _LIMB
    context = Context(prec=digits * (count + 2), Emax=MAX_EMAX, Emin=MIN_EMIN,
                      traps=[Inexact, Rounded, InvalidOperation, Overflow])  # fmt: skip
    product = context.multiply(_number(a, limbs, context), _number(b, limbs, context))
    # A bound added to every entry leaves no negative digits; what is above the last entry is dropped.
    lifted = context.add(product, _number(np.full(count, largest), limbs, context))
    return _entries(format(lifted, "f"), count, limbs) - largest


def _number(values: IntArray, limbs: int, context: Context) -> Decimal:
    """sum_i values_i 10^(9 limbs i)."""
    positive, negative = (_digits(np.maximum(part, 0), limbs) for part in (values, -values))
    return context.subtract(positive, negative)


def _digits(values: IntArray, limbs: int) -> Decimal:
    """The number whose groups of digits are the values, the first one lowest."""
    text = np.empty((len(values), limbs * _LIMB), np.uint8)
    rest = values[::-1].copy()
    for place in range(limbs * _LIMB - 1, -1, -1):
        rest, text[:, place] = np.divmod(rest, 10)
    return Decimal((text + ord("0")).tobytes().decode("ascii"))


def _entries(text: str, count: int, limbs: int) -> IntArray:
    """The groups of digits of a number as integers, the lowest group first."""
    width = limbs * _LIMB
    padded = text.rjust(count * width, "0")[-count * width :]
    digits = np.frombuffer(padded.encode("ascii"), np.uint8).reshape(count, width).astype(np.int64) - ord("0")
    found = np.zeros(count, np.int64)
    for place in range(width):
        found = found * 10 + digits[:, place]
    return found[::-1].copy()
