"""Exact sums of raw integers, cut where 64 bits end, so that no data can make a statement fail.

Rows are not bounded in number, so no plan can promise that a sum fits. A sum is taken in HUGEINT and cut to
[-LARGEST, LARGEST]: cutting moves two sums no further apart, so a statistic's sensitivity stands.

**Privacy**: |cut(a) - cut(b)| <= |a - b| for every cell.
"""

from __future__ import annotations

LARGEST = 1 << 62
"""Far above every sum whose estimates a release can hold (2^42 at 2^-20)."""


def huge(value: int) -> str:
    """A HUGEINT literal.

    >>> huge(-3)
    '(-3)::HUGEINT'
    """
    return f"({value})::HUGEINT"


def cut_sum(value: str) -> str:
    """SQL of a BIGINT: the sum of an integer expression, cut; 0 where there is nothing to sum.

    >>> cut_sum("m0")[:24]
    'CAST(greatest(least(coal'
    """
    total = f"coalesce(sum(CAST({value} AS HUGEINT)), 0)"
    return f"CAST(greatest(least({total}, {huge(LARGEST)}), {huge(-LARGEST)}) AS BIGINT)"
