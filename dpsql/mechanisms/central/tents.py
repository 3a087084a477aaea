"""Tents: overlapping triangular rows at a few widths, plus an identity with what is left of each column.

Inside the axis the hats of one level add up to 1, so a level is a smooth partition of the leaves. Hats
catch long ranges with fewer border effects than tree nodes: 473 against 586 (best tree) at 65,536 leaves.

    share rule   half-width h_l = c n^(l / (L + 1)) for levels l = 1 (fine) .. L (coarse); going from coarse
                 to fine, a hat takes the share 1 / (l + 1) of what is left at its peak.

Columns add up to exactly `total`, in integers, whatever the rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from dpsql.errors import InterfaceError
from dpsql.mechanisms.central.strategy import Strategy
from dpsql.tree import FloatArray, IntArray

WIDTHS = (1.25, 1.2, 1.3)  # c of the share rule: within 1% of each other, the best depends on n


def half_widths(reach: int, levels: int, width: float) -> tuple[int, ...]:
    """Half-widths of the share rule, fine to coarse; fewer where levels coincide or do not fit.

    Args:
        reach: the longest range asked, n for all ranges.
        levels: number of levels wanted, L.
        width: c, about 1.25.

    >>> half_widths(4096, 2, 1.25)
    (20, 320)
    """
    wanted = [round(width * reach ** (level / (levels + 1))) for level in range(1, levels + 1)]
    return tuple(h for h in sorted(set(wanted)) if h >= 2 and 2 * h - 1 <= reach)


def level_starts(n: int, h: int) -> IntArray:
    """First leaves of the full hats of half-width h, centred on the axis, shape (hats,)."""
    count = (n - (2 * h - 1)) // h + 1
    offset = (n - (2 * h - 1) - (count - 1) * h) // 2
    return offset + h * np.arange(count)


def hat(h: int) -> FloatArray:
    """Entries 1 - |t - (h - 1)| / h for t = 0..2h - 2."""
    return 1 - np.abs(np.arange(2 * h - 1) - (h - 1)) / h


def tents(n: int, widths: Sequence[int], total: int | None = None) -> Strategy:
    """Hats of the given half-widths with the shares of the rule, and the identity with the rest.

    Args:
        n: number of leaves.
        widths: half-widths, fine to coarse, each at least 2 with 2h - 1 <= n.
        total: the integer that stands for the whole budget; None picks a power of two that keeps the
            rounding of rows under 0.2% of the error.

    Returns:
        A strategy of kind "intervals": n rows of one leaf, then the hats; all budgets are 1.

    Raises:
        InterfaceError: for a hat that does not fit.

    **Privacy** A leaf's column adds up to exactly `total`; `Strategy` checks it.
    """
    if any(h < 2 or 2 * h - 1 > n for h in widths) or any(a >= b for a, b in pairwise(widths)):
        raise InterfaceError(f"hats of half-widths {tuple(widths)} do not fit an axis of {n} leaves")
    total = total or _power_of_two(max(256, 8 * max(widths, default=1)))
    left = np.ones(n)
    starts, stops, entries = [np.arange(n)], [np.arange(1, n + 1)], []
    for level in range(len(widths), 0, -1):
        h = widths[level - 1]
        start = level_starts(n, h)
        share = left[start + h - 1] / (level + 1)
        entry = np.floor(total * share[:, None] * hat(h) + 1e-9).astype(np.int64)
        np.subtract.at(left, start[:, None] + np.arange(2 * h - 1), share[:, None] * hat(h))
        starts.append(start)
        stops.append(start + 2 * h - 1)
        entries.append(entry)
    return _with_identity(n, np.concatenate(starts), np.concatenate(stops), entries, total)


def _power_of_two(least: int) -> int:
    """The least power of two that is not below `least`."""
    return 1 << (least - 1).bit_length()


def _with_identity(n: int, start: IntArray, stop: IntArray, hats: list[IntArray], total: int) -> Strategy:
    """Give each leaf what the hats leave of its column."""
    entry = np.concatenate([np.zeros(0, np.int64), *(part.ravel() for part in hats)])
    length = (stop - start)[n:]
    cell = np.arange(len(entry)) + np.repeat(start[n:] - (np.cumsum(length) - length), length)
    column = np.zeros(n, np.int64)
    np.add.at(column, cell, entry)
    return Strategy(
        kind="intervals", n=n, start=start, stop=stop,
        offset=np.concatenate([np.arange(n + 1), n + np.cumsum(length)]),
        entry=np.concatenate([total - column, entry]), budget=np.ones(len(start), np.int64), total=total,
    )  # fmt: skip
