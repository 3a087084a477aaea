"""Round the views of a family once, to integers of 2^-20, so that everything adds up exactly.

Rounding each cell on its own would break sums by a few units, and two views would round a shared margin
differently. So every axis's last leaf gives way to the axis's total: in the coordinates (leaf 0 ..
leaf n-2, total) each shared margin is a sub-array of its own, rounded once for all views, and the last
leaf is the total minus the others, in integers. The map is unimodular, so no value is ever rounded
twice, and what the last leaf collects is about 2^-21 sqrt(cells), far below any noise.

Inner nodes are sums of leaves (`node_sums`), again in integers.

**Privacy**: post-processing.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.tree import Tree

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
Subset = tuple[int, ...]

UNIT = 1 << 20
"""Stored estimates are integers of 1/UNIT."""
LIMIT = float(1 << 62)


def to_units(estimate: FloatArray) -> IntArray:
    """Nearest integers of 2^-20.

    Raises:
        InternalError: a value would not fit 64 bits.

    >>> to_units(np.array([0.5, -2.0])).tolist()
    [524288, -2097152]
    """
    scaled = np.rint(estimate * UNIT)
    if scaled.size and not float(np.abs(scaled).max()) < LIMIT:
        raise InternalError(
            "an estimate does not fit 64 bits at 2^-20",
            hint="give the measure a coarser scale or lower bounds",
        )
    return scaled.astype(np.int64)


def round_family(views: Sequence[tuple[Subset, FloatArray]]) -> list[IntArray]:
    """Integer leaf arrays of reconciled views that agree exactly on every shared margin.

    Args:
        views: (axis ids, leaf estimates) of each view of one family, margins equal up to float rounding.

    Returns:
        Integer arrays of the same shapes in units of 2^-20. A family with an estimate that does not fit 64 bits is
        scaled down as a whole: an error would tell how large it is before anything was paid for.
    """
    margins: dict[Subset, FloatArray] = {}
    for axes, estimate in views:
        for totals in product((False, True), repeat=len(axes)):
            margins.setdefault(_part(axes, totals), _inner_margin(estimate, totals))
    largest = max((float(np.abs(margin).max(initial=0.0)) for margin in margins.values()), default=0.0) * UNIT
    fits = 1.0 if largest < LIMIT else LIMIT * (1 - 1 / UNIT) / largest
    shared = {part: to_units(margin * fits) for part, margin in margins.items()}
    rounded = []
    for axes, estimate in views:
        coordinates = np.zeros(estimate.shape, dtype=np.int64)
        for totals in product((False, True), repeat=len(axes)):
            where = tuple(-1 if is_total else slice(0, -1) for is_total in totals)
            coordinates[where] = shared[_part(axes, totals)]
        rounded.append(_restore_last_leaves(coordinates))
    return rounded


def _part(axes: Subset, totals: tuple[bool, ...]) -> Subset:
    """The axes that a margin keeps."""
    return tuple(axis for axis, is_total in zip(axes, totals, strict=True) if not is_total)


def node_sums(leaves: IntArray, trees: Sequence[Tree]) -> IntArray:
    """Exact sums of all node combinations.

    Args:
        leaves: integer leaf array, shape (n_1, .., n_d).
        trees: the look-up tree of each axis.

    Returns:
        int64 array, shape (nodes_1, .., nodes_d).
    """
    sums = leaves
    for axis, tree in enumerate(trees):
        shape = list(sums.shape)
        shape[axis] = 1
        prefix = np.concatenate([np.zeros(shape, np.int64), np.cumsum(sums, axis=axis)], axis=axis)
        sums = np.take(prefix, tree.hi, axis=axis) - np.take(prefix, tree.lo, axis=axis)
    return sums


def _inner_margin(estimate: FloatArray, totals: tuple[bool, ...]) -> FloatArray:
    """Sum over the axes marked total; all but the last leaf of the others."""
    away = tuple(position for position, is_total in enumerate(totals) if is_total)
    margin = np.asarray(estimate.sum(axis=away), dtype=np.float64)
    return np.asarray(margin[(slice(0, -1),) * margin.ndim], dtype=np.float64)


def _restore_last_leaves(coordinates: IntArray) -> IntArray:
    """Replace each axis's total by its last leaf: total minus the others."""
    for axis in range(coordinates.ndim):
        last = [slice(None)] * coordinates.ndim
        rest = list(last)
        last[axis], rest[axis] = slice(-1, None), slice(0, -1)
        others = coordinates[tuple(rest)].sum(axis=axis, keepdims=True)
        coordinates[tuple(last)] = coordinates[tuple(last)] - others
    return coordinates
