"""Pairs of what two lists of numbers follow, in blocks, and which of them are alike."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dpsql.answer.leafsets import IntArray
from dpsql.release.request import check

PAIRS = 1 << 18
"""Pairs that are worked out at once: 30 MB with what tells them apart."""


def pairs_of(left: IntArray, right: IntArray) -> Iterator[tuple[IntArray, IntArray]]:
    """Positions of all pairs with one number, in blocks of about `PAIRS`; the request is asked before each.

    >>> [[i.tolist(), j.tolist()] for i, j in pairs_of(np.array([0, 1, 1]), np.array([1, 0]))]
    [[[0, 1, 2], [1, 0, 0]]]
    """
    order = np.argsort(right, kind="stable")
    low = np.searchsorted(right[order], left, "left")
    many = np.searchsorted(right[order], left, "right") - low
    ends = np.cumsum(many)
    start = 0
    while start < len(left):
        check()
        offset = ends[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(ends, offset + PAIRS, "right")))
        i = np.repeat(np.arange(start, stop), many[start:stop])
        inside = np.arange(len(i)) + offset - np.repeat(ends[start:stop] - many[start:stop], many[start:stop])
        yield i, order[np.repeat(low[start:stop], many[start:stop]) + inside]
        start = stop


def distinct(columns: Sequence[IntArray], rows: int) -> tuple[IntArray, IntArray]:
    """First rows of the different rows of some columns of numbers from 0 on, and to which of them each row belongs."""
    code = np.zeros(rows, np.int64)
    for column in columns:
        size = int(column.max(initial=0)) + 1
        if int(code.max(initial=0)) > np.iinfo(np.int64).max // (size + 1):
            code = np.unique(code, return_inverse=True)[1].reshape(-1)
        code = code * size + column
    _, first, back = np.unique(code, return_index=True, return_inverse=True)
    return first, back.reshape(-1)
