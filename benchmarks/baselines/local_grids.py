"""Baselines, several axes, local: marginals of every pair (CALM) and hybrid-dimensional grids (HDG).

| here     | there | unit |
|----------|-------|------|
| view     | marginal, grid | a partition of one axis or of a pair; people are split evenly over views |
| block    |       | cells of one axis on which all views that hold it can be compared |
| response | M^(j,k) | leaf shares of a pair, fitted to its grid and to both axes' grids by weighted update |

Both are made consistent (mean of what views say about a block, weighted by inverse variance) and non-negative
(NormSub), in turns, and answer boxes of three axes and more by maximum entropy. CALM is given every pair at full
detail, which is its choice of marginals for queries on pairs; sizes are powers of two.
**Source**: seed 001, sections 3.3 and 3.4; constants of the grids as in `dpsql.local.mechanisms.truncation`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from benchmarks.baselines.local_boxes import Pairs, pair_answers
from benchmarks.baselines.maxent import pair_keys
from benchmarks.local.simulated import tally as tally_of
from dpsql.client.plan import largest_weight
from dpsql.local.mechanisms.blue import normsub
from dpsql.local.mechanisms.truncation import granularity
from dpsql.local.oracles import choose_oracle
from dpsql.local.oracles.oracle import FloatArray, estimate

TURNS = 3
UPDATES = 100


@dataclass(frozen=True)
class View:
    """One or two axes cut into equal cells, and the estimated shares of the cells."""

    axes: tuple[int, ...]
    shares: FloatArray


def marginals(
    leaves: np.ndarray, sizes: Sequence[int], epsilon: str, boxes: np.ndarray, rng: np.random.Generator
) -> FloatArray:
    """CALM: all pairs of axes at full detail."""
    layout = [((i, j), (sizes[i], sizes[j])) for i, j in pair_keys(len(sizes))]
    views = settled(collected(leaves, sizes, layout, epsilon, rng), list(sizes))
    return pair_answers({(v.axes[0], v.axes[1]): v.shares for v in views}, boxes)


def grids(
    leaves: np.ndarray, sizes: Sequence[int], epsilon: str, boxes: np.ndarray, rng: np.random.Generator
) -> FloatArray:
    """HDG: a fine grid an axis and a coarse one a pair."""
    wanted = granularity(len(leaves), float(epsilon), len(sizes))
    coarse = [power_of_two(wanted.two, size) for size in sizes]
    fine = [max(power_of_two(wanted.one, s), c) for s, c in zip(sizes, coarse, strict=True)]
    single = [((i,), (cells,)) for i, cells in enumerate(fine)]
    layout = [*single, *(((i, j), (coarse[i], coarse[j])) for i, j in pair_keys(len(sizes)))]
    views = settled(collected(leaves, sizes, layout, epsilon, rng), coarse)
    known = {view.axes: view.shares for view in views}
    pairs: Pairs = {
        (i, j): response(known[i,], known[j,], known[i, j], (sizes[i], sizes[j]))
        for i, j in pair_keys(len(sizes))
    }
    return pair_answers(pairs, boxes)


def power_of_two(cells: float, most: int) -> int:
    """The nearest power of two in ratio, at least 2 and at most `most`.

    Example:
        >>> [power_of_two(c, 64) for c in (0.3, 5.5, 6, 300)]
        [2, 4, 8, 64]
    """
    return min(max(1 << max(round(math.log2(cells)), 0), 2), most)


def collected(
    leaves: np.ndarray,
    sizes: Sequence[int],
    layout: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    epsilon: str,
    rng: np.random.Generator,
) -> list[View]:
    """Unbiased shares of every view's cells, each from its own part of the people.

    Args:
        leaves: one row a person.
        sizes: leaves of each axis.
        layout: axes and numbers of cells of each view.
        epsilon: privacy of a report.
        rng: source of pseudo-random numbers.
    """
    own, drawn = largest_weight(Fraction(epsilon)), rng.integers(0, len(layout), size=len(leaves))
    views = []
    for number, (axes, cells) in enumerate(layout):
        who = leaves[drawn == number]
        at = tuple(who[:, a] * c // sizes[a] for a, c in zip(axes, cells, strict=True))
        histogram = np.bincount(np.ravel_multi_index(at, cells), minlength=math.prod(cells))
        oracle = choose_oracle(math.prod(cells), own)
        tally = tally_of(oracle, histogram, rng).astype(float)
        views.append(View(axes, estimate(oracle, tally, max(len(who), 1)).reshape(cells)))
    return views


def settled(views: list[View], blocks: Sequence[int]) -> list[View]:
    """Consistency on every axis and NormSub in turns, NormSub last."""
    for _ in range(TURNS):
        for axis, count in enumerate(blocks):
            views = agreed(views, axis, count)
        views = [replace(v, shares=normsub(v.shares.ravel()).reshape(v.shares.shape)) for v in views]
    return views


def agreed(views: Sequence[View], axis: int, blocks: int) -> list[View]:
    """Move every view that holds an axis to the same block shares, evenly inside a block."""
    said, weights = [], []
    for view in views:
        if axis in view.axes:
            said.append(_blocks(view, axis, blocks))
            weights.append(blocks / view.shares.size)
    mean = np.average(said, axis=0, weights=weights)
    return [_moved(v, axis, mean - _blocks(v, axis, blocks)) if axis in v.axes else v for v in views]


def _blocks(view: View, axis: int, blocks: int) -> FloatArray:
    place = view.axes.index(axis)
    margin = view.shares.sum(axis=tuple(p for p in range(view.shares.ndim) if p != place))
    return np.asarray(margin.reshape(blocks, -1).sum(axis=1))


def _moved(view: View, axis: int, change: FloatArray) -> View:
    place, blocks = view.axes.index(axis), change.size
    each = np.repeat(change * blocks / view.shares.size, view.shares.shape[place] // blocks)
    shape = [1] * view.shares.ndim
    shape[place] = each.size
    return replace(view, shares=view.shares + each.reshape(shape))


def response(rows: FloatArray, columns: FloatArray, grid: FloatArray, sizes: tuple[int, int]) -> FloatArray:
    """Leaf shares of a pair that agree with a grid and with finer grids of each axis."""
    table = np.full(sizes, 1 / math.prod(sizes))
    for _ in range(UPDATES):
        before = table
        for wanted in (rows[:, None], columns[None, :], grid):
            table = _scaled(table, wanted)
        if float(np.abs(table - before).sum()) < 1e-7:
            break
    return table


def _scaled(table: FloatArray, wanted: FloatArray) -> FloatArray:
    """One weighted update: every cell of a coarser table to its wanted share."""
    (n, m), (rows, columns) = table.shape, wanted.shape
    parts = table.reshape(rows, n // rows, columns, m // columns)
    held = parts.sum(axis=(1, 3))
    factor = np.divide(wanted, held, out=np.zeros_like(held), where=held > 0)
    return np.asarray((parts * factor[:, None, :, None]).reshape(n, m))
