"""The features of a joint fit: one weight a leaf, and interactions on coarse lattices.

| here        | there                              | unit |
|-------------|------------------------------------|------|
| main effect | theta_i, one weight a leaf         | log shares |
| interaction | B W_ij B', W on a coarse lattice, B linear hats | log shares |
| of three or more | the same with one lattice axis each, where a view holds them together | log shares |
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.mechanisms.local.logs import difference
from dpsql.mechanisms.oracles.oracle import FloatArray

LATTICE = {2: 6, 3: 4}
FEWEST = 3


def knots_of(width: int, knots: int = 0) -> int:
    """Knots per axis of an interaction of `width` axes: fewer where they multiply; `knots` for a pair if given."""
    return knots if width == 2 and knots else LATTICE.get(width, FEWEST)


@dataclass(frozen=True)
class Model:
    """Features of all cells and what keeps them smooth; made from sizes alone."""

    sizes: tuple[int, ...]
    smooth: tuple[int, ...]
    features: FloatArray
    rough_main: FloatArray
    rough_pair: FloatArray
    rough_wide: FloatArray
    width: FloatArray
    """Per weight: how many axes its part has."""


def hats(leaves: int, knots: int) -> FloatArray:
    """Linear interpolation from `knots` evenly spaced knots to leaves, shape (leaves, knots)."""
    at = np.linspace(0, knots - 1, leaves)
    return np.asarray(np.maximum(0.0, 1.0 - np.abs(at[:, None] - np.arange(knots)[None, :])))


def make_model(
    sizes: Sequence[int], smooth: Sequence[int], seen: Sequence[Sequence[int]] = (), knots: int = 0
) -> Model:
    """Build the features of a set of axes.

    Args:
        sizes: leaves of each axis.
        smooth: leading leaves of each axis along which neighbours resemble each other; the rest (special
            leaves, categories) keep one weight each.
        seen: sets of three positions or more that some view holds together; every part of them gets weights.
            What no view holds stays out: nothing could tell it.
        knots: knots per axis of a pair's lattice; 0 for six.

    Returns:
        The model; its memory is cells x weights doubles.
    """
    cells = np.indices(tuple(sizes)).reshape(len(sizes), -1)
    blocks: list[FloatArray] = []
    bends: list[FloatArray] = []
    widths: list[int] = []
    for axis, size in enumerate(sizes):
        blocks.append(np.eye(size)[cells[axis]])
        bends.append(difference(size, 3, smooth[axis]) if smooth[axis] > 3 else np.zeros((0, size)))
        widths.append(1)
    for part in _crossed(len(sizes), seen):
        lattice = knots_of(len(part), knots)
        bases = [_basis(sizes[i], smooth[i], lattice) for i in part]
        block: FloatArray = np.ones((cells.shape[1], 1))
        for i, basis in zip(part, bases, strict=True):
            block = (block[:, :, None] * basis[cells[i]][:, None, :]).reshape(cells.shape[1], -1)
        blocks.append(block)
        along = [_bends(sizes[i], smooth[i], lattice) for i in part]
        bends.append(_bends_along(along, [basis.shape[1] for basis in bases]))
        widths.append(len(part))
    rough = [_diagonal([b if lo <= w <= hi else b[:0] for b, w in zip(bends, widths, strict=True)])
             for lo, hi in ((1, 1), (2, 2), (3, len(sizes)))]  # fmt: skip
    width = np.concatenate([np.full(b.shape[1], float(w)) for b, w in zip(blocks, widths, strict=True)])
    return Model(tuple(sizes), tuple(smooth), np.hstack(blocks), rough[0], rough[1], rough[2], width)


def weights_of(
    sizes: Sequence[int], smooth: Sequence[int], seen: Sequence[Sequence[int]] = (), knots: int = 0
) -> int:
    """How many weights `make_model` gives these axes, without building them.

    Example:
        >>> weights_of([200, 200], [200, 200], knots=12), weights_of([100, 100], [0, 0])
        (544, 10200)
    """
    parts = _crossed(len(sizes), seen)
    return sum(sizes) + sum(
        math.prod(min(knots_of(len(part), knots), smooth[i]) + sizes[i] - smooth[i] for i in part)
        for part in parts
    )


def _crossed(axes: int, seen: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """All pairs, and every part of three or more of the sets that were seen together."""
    more = {
        part
        for held in seen
        for width in range(3, len(held) + 1)
        for part in itertools.combinations(sorted(held), width)
    }
    return [*itertools.combinations(range(axes), 2), *sorted(more, key=lambda part: (len(part), part))]


def _bends_along(bends: Sequence[FloatArray], widths: Sequence[int]) -> FloatArray:
    """Bends of a lattice along each of its axes, the others held."""
    rows = []
    for along, bend in enumerate(bends):
        whole: FloatArray = np.ones((1, 1))
        for axis, width in enumerate(widths):
            whole = np.asarray(np.kron(whole, bend if axis == along else np.eye(width)), dtype=np.float64)
        rows.append(whole)
    return np.vstack(rows)


def _basis(size: int, smooth: int, lattice: int) -> FloatArray:
    """Hats over the smooth leaves, one column of its own for each of the others."""
    knots = min(lattice, smooth)
    basis = np.zeros((size, knots + size - smooth))
    basis[:smooth, :knots] = hats(smooth, knots)
    basis[smooth:, knots:] = np.eye(size - smooth)
    return basis


def _bends(size: int, smooth: int, lattice: int) -> FloatArray:
    knots = min(lattice, smooth)
    order = 2 if knots > 2 else 1
    return difference(knots + size - smooth, order, knots)


def _diagonal(blocks: Sequence[FloatArray]) -> FloatArray:
    out = np.zeros((sum(b.shape[0] for b in blocks), sum(b.shape[1] for b in blocks)))
    row = column = 0
    for block in blocks:
        out[row : row + block.shape[0], column : column + block.shape[1]] = block
        row, column = row + block.shape[0], column + block.shape[1]
    return out
