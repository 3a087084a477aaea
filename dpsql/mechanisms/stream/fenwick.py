"""Fenwick nodes over time and FDA, the optimal budgets for them in O(log N) per node.

Node i (batch numbers from 1, since lowbit needs them) covers the lowbit(i) batches that end with batch i, as
a half-open 0-based interval [i - lowbit(i), i). The prefix of t batches reads one node per one-bit of t.
`fda_budget` gives the share lambda_i of any node for any planned number of batches N from closed forms, so a
stream needs no table and no solver.

| here                 | seed 004                     | unit                                   |
|----------------------|------------------------------|----------------------------------------|
| strategy_matrix(n)   | M, algorithm 5.2 (pt <= N)   | row i - 1 is node i                    |
| decoder_matrix(n)    | B, algorithm 5.3 gives B'    | row t - 1 is the prefix of t batches   |
| fda_budget(n, i)     | lambda_i                     | fraction of epsilon (zCDP: of rho)     |
| fda_error(n)         | err                          | sum of w_i / lambda_i^2, w_i = uses    |
"""

from __future__ import annotations

from functools import lru_cache
from typing import overload

import numpy as np

from dpsql.mechanisms.laminar import LAPLACE, FloatArray, IntArray
from dpsql.mechanisms.stream.laminar import NoiseNodes


@overload
def lowbit(number: int) -> int: ...
@overload
def lowbit(number: IntArray) -> IntArray: ...
def lowbit(number: int | IntArray) -> int | IntArray:
    """The value of the lowest one-bit of a positive integer, or of each in an array.

    **Source**: docs/method/streams.md, "Fenwick nodes".

    >>> lowbit(10), lowbit(np.array([1, 6, 8])).tolist()
    (2, [1, 2, 8])
    """
    return number & -number


def fenwick_nodes(horizon: int) -> NoiseNodes:
    """The Fenwick nodes of `horizon` batches, with the prefixes that read them and the nesting.

    Node i is read by the prefixes i .. i + lowbit(i) - 1 and lies inside node i + lowbit(i).

    Raises:
        ValueError: when the horizon is below 1.
    """
    if horizon < 1:
        raise ValueError("the horizon must be at least one batch")
    number = np.arange(1, horizon + 1, dtype=np.int64)
    size = lowbit(number)
    above = number + size
    parent = np.where(above <= horizon, above - 1, -1)
    stop = np.minimum(number + size, horizon + 1)
    return NoiseNodes(horizon, number - size, number, number, stop, np.ones(horizon, np.int64), parent)


def strategy_matrix(n: int) -> IntArray:
    """M: 1 where a node covers a batch (int64[n, n], row i - 1 is node i).

    **Source**: docs/method/streams.md, "Fenwick nodes".

    >>> strategy_matrix(3).tolist()
    [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    """
    nodes = fenwick_nodes(n)
    batch = np.arange(n)
    return ((nodes.lo[:, None] <= batch) & (batch < nodes.hi[:, None])).astype(np.int64)


def decoder_matrix(n: int) -> IntArray:
    """B: 1 where a prefix reads a node (int64[n, n], row t - 1 is the prefix of t); B M is all lower ones.

    **Source**: docs/method/streams.md, "Fenwick nodes".

    >>> decoder_matrix(3).tolist()
    [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    """
    nodes = fenwick_nodes(n)
    length = np.arange(1, n + 1)[:, None]
    return ((nodes.first <= length) & (length < nodes.stop)).astype(np.int64)


@lru_cache(maxsize=256)
def _complete_error(levels: int, exponent: float) -> float:
    """err_m: the optimum for 2^m - 1 batches. Cached: it depends on m alone."""
    if levels == 0:
        return 0.0
    block = _complete_error(levels - 1, exponent)
    return _join(block, float(1 << (levels - 1)), exponent) + block


def _join(below: float, uses: float, exponent: float) -> float:
    """The optimum of one node over a block: (below^a + uses^a)^(1/a)."""
    return float((below**exponent + uses**exponent) ** (1 / exponent))


def fda_error(n: int, exponent: float = LAPLACE) -> float:
    """The least sum of uses / lambda^2 over the prefixes of n batches; times 2 / epsilon^2, the total
    variance.

    Args:
        n: planned number of batches.
        exponent: `LAPLACE`, or `GAUSSIAN` for shares of rho (then the sum of uses / share).

    **Source**: docs/method/streams.md, "FDA", for every n = 2^k + r: err(n) = (err_k^a + (r + 1)^a)^(1/a) +
    err(r).

    >>> [round(fda_error(n), 6) for n in (1, 2, 3, 10)]
    [1.0, 8.0, 12.541966, 184.486444]
    """
    total = 0.0
    while n > 0:
        levels = n.bit_length() - 1
        rest = n - (1 << levels)
        total += _join(_complete_error(levels, exponent), rest + 1.0, exponent)
        n = rest
    return total


def fda_budget(n: int, number: int, exponent: float = LAPLACE) -> float:
    """lambda_i: the optimal share of node i when n batches are planned, in O(log n) steps.

    Args:
        n: planned number of batches.
        number: the node, 1..n (it closes with that batch).
        exponent: `LAPLACE`, or `GAUSSIAN` for shares of rho.

    Returns:
        The node's fraction of the budget, in (0, 1].

    Raises:
        ValueError: when the node is not one of 1..n.

    **Privacy**: the shares of the nodes over any batch add up to at most 1. Past n there is no budget left.

    **Source**: docs/method/streams.md, "FDA".

    >>> [round(fda_budget(3, i), 6) for i in (1, 2, 3)]
    [0.442493, 0.557507, 1.0]
    """
    if not 1 <= number <= n:
        raise ValueError(f"node {number} is not one of 1..{n}")
    scale = 1.0
    while True:
        levels = n.bit_length() - 1
        corner = 1 << levels
        if number > corner:  # the right block is independent of the left one
            number, n = number - corner, n - corner
            continue
        below = _complete_error(levels, exponent) ** exponent
        own = (n - corner + 1.0) ** exponent
        if number == corner:
            return float(scale * own / (below + own))
        scale *= below / (below + own)
        n = corner - 1


def fda_budgets(n: int, exponent: float = LAPLACE) -> FloatArray:
    """All n shares at once (float64[n], entry i - 1 is node i): each block is a smaller one, scaled.

    >>> fda_budgets(3).round(6).tolist()
    [0.442493, 0.557507, 1.0]
    """
    block = np.zeros(0)  # shares of 2^m - 1 batches
    blocks = [block]
    for levels in range(1, n.bit_length()):
        block = np.concatenate([_corner(levels - 1, float(1 << (levels - 1)), exponent, block), block])
        blocks.append(block)
    parts: list[FloatArray] = []
    while n > 0:
        levels = n.bit_length() - 1
        rest = n - (1 << levels)
        parts.append(_corner(levels, rest + 1.0, exponent, blocks[levels]))
        n = rest
    return np.concatenate(parts) if parts else block


def _corner(levels: int, uses: float, exponent: float, block: FloatArray) -> FloatArray:
    """The shares of a block of 2^levels - 1 nodes, scaled, followed by the node over it."""
    below = _complete_error(levels, exponent) ** exponent
    own = uses**exponent
    return np.append(block * (below / (below + own)), own / (below + own))
