"""Prefixes from a k-ary tree whose nodes may also be subtracted.

Written with digits between -(k-1)/2 and (k-1)/2, a prefix length t needs about k/4 nodes a level instead of
k/2: it rounds t to the nearest multiple of each k^l and adds or takes away whole nodes to get there. A node
that reaches
past t is no obstacle: at batch t the exact prefix is published plus the signed *noise* of those nodes, so
only the noise must be drawn ahead, and it stays in the private state until its last use.

Budgets come from the general split theorem with the use counts as weights; nodes in the middle of their
parent are never read and spend nothing. Budgets are planned for a horizon: past it the strategy refuses.
"""

from __future__ import annotations

import numpy as np

from dpsql.mechanisms.laminar import IntArray
from dpsql.mechanisms.stream.laminar import Currency, NoiseNodes, best_shares, prefix_error, unit_variance


def subtraction_nodes(horizon: int, arity: int, levels: int) -> NoiseNodes:
    """The nodes that the prefixes 0..horizon read, top level first.

    Args:
        horizon: planned number of batches, >= 1.
        arity: odd k >= 3, so that rounding to the nearest multiple has no ties.
        levels: number of node sizes 1, k, .., k^(levels - 1); the top level is a chain of any length.

    Raises:
        ValueError: when the arity is even or below 3, or horizon or levels are below 1.

    **Source**: docs/method/streams.md, "Nodes that are taken away"; Andersson, Pagh, Steiner and
    Torkamani (2024), with the split theorem's budgets in place of uniform ones.

    >>> nodes = subtraction_nodes(4, 3, 2)
    >>> list(zip(nodes.lo.tolist(), nodes.hi.tolist(), nodes.sign.tolist(), nodes.uses.tolist()))
    [(0, 3, 1, 3), (0, 1, 1, 1), (2, 3, -1, 1), (3, 4, 1, 1)]
    """
    if arity < 3 or arity % 2 == 0 or horizon < 1 or levels < 1:
        raise ValueError("k-ary subtraction needs an odd arity >= 3, and a horizon and levels >= 1")
    parts = [_level(horizon, arity, level, top=level == levels - 1) for level in reversed(range(levels))]
    size = np.concatenate(
        [
            np.full(part.shape[1], arity**level, dtype=np.int64)
            for level, part in zip(reversed(range(levels)), parts, strict=True)
        ]
    )
    index, first, stop, sign = np.concatenate(parts, axis=1)
    lo = index * size
    return NoiseNodes(horizon, lo, lo + size, first, stop, sign, _parents(lo, size, arity))


def _level(horizon: int, arity: int, level: int, *, top: bool) -> IntArray:
    """Rows index, first, stop, sign of the nodes of one level that some prefix reads.

    Prefix t rounds to the multiple q of the node size when |t - q size| <= (size - 1) / 2. A node left of its
    parent's middle is added for q in (index, middle], one right of it is taken away for q in (middle, index].
    """
    size = arity**level
    reach = (size - 1) // 2
    index = np.arange((horizon + reach) // size + (0 if top else arity), dtype=np.int64)
    if top:
        first, stop = (index + 1) * size - reach, np.full(index.size, horizon + 1)
        sign = np.ones(index.size, dtype=np.int64)
    else:
        middle = index // arity * arity + arity // 2
        left = index < middle
        first = (np.where(left, index, middle) + 1) * size - reach
        stop = np.where(left, middle, index) * size + reach + 1
        sign = np.where(left, 1, -1)
    stop = np.minimum(stop, horizon + 1)
    read = stop > first
    return np.stack([index[read], first[read], stop[read], sign[read]])


def _parents(lo: IntArray, size: IntArray, arity: int) -> IntArray:
    """The nearest enclosing node that is read; past a middle node, which is not, its own parent."""
    parent = np.full(lo.size, -1, dtype=np.int64)
    sizes = np.unique(size)
    for step in sizes[:-1]:
        nodes = np.flatnonzero(size == step)
        for above in sizes[sizes > step]:
            todo = nodes[parent[nodes] < 0]
            start = np.flatnonzero(size == above)
            place = np.searchsorted(lo[start], lo[todo] // above * above)
            place = np.minimum(place, start.size - 1)
            found = lo[start[place]] == lo[todo] // above * above
            parent[todo[found]] = start[place[found]]
    return parent


def best_subtraction(horizon: int, currency: Currency) -> tuple[int, int]:
    """The arity and number of levels with the least mean prefix error, over the sensible few.

    Returns:
        (arity, levels).

    >>> best_subtraction(1023, "pure")
    (11, 3)
    """
    best = (float("inf"), 3, 1)
    for levels in range(1, 9):
        middle = horizon ** (1 / levels) * 2 ** (1 / levels)  # where k^levels / 2 is about the horizon
        for arity in sorted({max(3, int(middle * f) // 2 * 2 + 1) for f in (0.7, 0.85, 1.0, 1.15)}):
            if arity > 41 or arity**levels > 8 * horizon * arity:
                continue
            nodes = subtraction_nodes(horizon, arity, levels)
            error = prefix_error(nodes, unit_variance(best_shares(nodes, currency), currency))
            best = min(best, (error, arity, levels))
    return best[1], best[2]
