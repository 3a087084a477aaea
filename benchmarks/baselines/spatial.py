"""Two-axis mechanisms of the literature on spatial histograms: counts of shape (n1, n2) in, estimates out.

name        source                                       measures
ag          Qardaji, Yang, Li (2013), adaptive grid      a coarse grid, then a finer grid in each of its cells
hilbert_dawa   DPBench's way to two axes                 DAWA along the Hilbert curve

The number of rows that the grids need is measured with a hundredth of epsilon; the papers take it as public.
Inside a cell of a grid an estimate is spread evenly.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

import numpy as np

from benchmarks.baselines.common import FloatArray, IntArray, T, units
from benchmarks.baselines.dawa import dawa_tapered
from dpsql.noise import Noise

ROWS_SHARE = Fraction(1, 100)
UNIFORM = 10.0  # c of both papers: cells a side are sqrt(rows * epsilon / c)
COARSE_SHARE = Fraction(1, 2)  # alpha, what the coarse grid spends


def _noisy(counts: IntArray, epsilon: Fraction, noise: Noise) -> IntArray:
    """Counts of any shape, each with noise of scale 1 / epsilon."""
    drawn = noise.laplace(units(np.ones(counts.size), epsilon), T)
    return np.asarray(counts + drawn.reshape(counts.shape), np.int64)


def _edges(n: int, parts: int) -> IntArray:
    """Borders of `parts` even parts of an axis."""
    return np.unique(np.rint(np.linspace(0, n, min(max(parts, 1), n) + 1)).astype(np.int64))


def _sums(counts: IntArray, across: IntArray, down: IntArray) -> IntArray:
    """Counts of the cells of a grid."""
    return np.asarray(np.add.reduceat(np.add.reduceat(counts, across[:-1], axis=0), down[:-1], axis=1))


def ag(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """The adaptive grid; each coarse count is averaged with the sum of the finer ones in it."""
    # a noisy number of rows, at least 1
    rows = max(1.0, float(_noisy(counts.sum(keepdims=True), epsilon * ROWS_SHARE, noise)[0, 0]))
    rest = epsilon * (1 - ROWS_SHARE)
    side = max(10, int(np.ceil((rows * float(rest) / UNIFORM) ** 0.5 / 4)))
    across, down = (_edges(n, side) for n in counts.shape)
    coarse = _noisy(_sums(counts, across, down), rest * COARSE_SHARE, noise).astype(np.float64).ravel()
    second = rest * (1 - COARSE_SHARE)
    sides = np.ceil(np.sqrt(np.maximum(coarse, 0.0) * float(second) / (UNIFORM / 2))).astype(np.int64)
    cell, inside, of = _finer(across, down, np.maximum(sides, 1))
    exact = np.zeros(len(of), np.int64)
    np.add.at(exact, cell, counts.ravel())
    fine = _noisy(exact, second, noise).astype(np.float64)
    first = inside * float(COARSE_SHARE) ** 2  # precisions of a coarse count and of the sum of its finer ones
    own = first / (first + float(1 - COARSE_SHARE) ** 2)
    fine += (own * (coarse - np.bincount(of, fine, len(coarse))) / inside)[of]
    return (fine / np.bincount(cell))[cell].reshape(counts.shape)


def _finer(across: IntArray, down: IntArray, sides: IntArray) -> tuple[IntArray, IntArray, IntArray]:
    """Grids of the given sides in each coarse cell.

    Returns:
        (finer cell of each cell, finer cells in each coarse cell, coarse cell of each finer one).
    """
    places, parts, grids = [], [], []
    for edges in (across, down):
        length = np.diff(edges)
        grids.append(np.repeat(np.arange(len(length)), length))
        parts.append(length)
        places.append(np.arange(edges[-1]) - np.repeat(edges[:-1], length))
    coarse = grids[0][:, None] * len(parts[1]) + grids[1]
    height = np.minimum(sides, np.repeat(parts[0], len(parts[1])))
    width = np.minimum(sides, np.tile(parts[1], len(parts[0])))
    row = places[0][:, None] * height[coarse] // parts[0][grids[0]][:, None]
    column = places[1] * width[coarse] // parts[1][grids[1]]
    inside = height * width
    cell = (np.cumsum(inside) - inside)[coarse] + row * width[coarse] + column
    return cell.ravel(), inside, np.repeat(np.arange(len(inside)), inside)


def _padded(counts: IntArray) -> IntArray:
    """The histogram in the corner of a square whose side is a power of two."""
    side = 1 << (max(counts.shape) - 1).bit_length()
    out = np.zeros((side, side), np.int64)
    out[: counts.shape[0], : counts.shape[1]] = counts
    return out


@lru_cache(maxsize=4)
def hilbert(side: int) -> tuple[IntArray, IntArray]:
    """Row and column of each cell along the Hilbert curve of a square whose side is a power of two."""
    row, column, size = np.zeros(1, np.int64), np.zeros(1, np.int64), 1
    while size < side:
        last = size - 1
        row, column = (
            np.concatenate([column, row, row + size, 2 * size - 1 - column]),
            np.concatenate([row, column + size, column + size, last - row]),
        )
        size *= 2
    return row, column


def hilbert_dawa(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """DAWA along the Hilbert curve."""
    square = _padded(counts)
    row, column = hilbert(len(square))
    out = np.zeros(square.shape)
    out[row, column] = dawa_tapered(square[row, column], epsilon, noise)
    return out[: counts.shape[0], : counts.shape[1]]
