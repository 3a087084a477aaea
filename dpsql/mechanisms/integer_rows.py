"""Integer rows over intervals of one axis, and what is exact about them; the budgets of an axis's rows.

Most rows are ones on an interval and store no entry; hats store theirs one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.tree import FloatArray, IntArray

LIMIT = 1 << 62
"""Sums below this fit in int64."""

_CHUNK = 1 << 22  # entries gathered at a time: 32 MB


def largest_sum(weight: IntArray, spread: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> int:
    """The largest of some sums of weights, exactly, however large the weights are.

    Sums in int64 are right modulo 2^64, so they are right if they fit, and floats tell that. What a file holds may be
    any weights; those of a plan always fit.

    Args:
        weight: of each row, any shape.
        spread: adds up non-negative multiples of weights, in the type of what it is given.
    """
    if spread(np.abs(weight.astype(np.float64))).max(initial=0.0) < LIMIT:
        return int(spread(weight).max(initial=0))
    return int(spread(weight.astype(object)).max(initial=0))


@dataclass(frozen=True, eq=False)
class SparseRows:
    """The rows of a strategy.

    Args:
        cells: n, the number of leaves.
        start: first leaf of each row, shape (p,).
        stop: one past the last leaf of each row, shape (p,).
        offset: where each row's entries begin, shape (p + 1,); a row without entries is 1 on its interval.
        entry: the entries of all rows, one after the other, shape (nnz,).
    """

    cells: int
    start: IntArray
    stop: IntArray
    offset: IntArray
    entry: IntArray

    @property
    def number(self) -> int:
        """p, the number of rows."""
        return len(self.start)

    @cached_property
    def largest(self) -> int:
        """The largest |entry|."""
        return int(np.abs(self.entry).max(initial=1))

    @cached_property
    def place(self) -> IntArray:
        """The leaf that each stored entry belongs to, shape (nnz,)."""
        begin = self.start - self.offset[:-1]
        return np.arange(len(self.entry)) + np.repeat(begin, np.diff(self.offset))

    @cached_property
    def owner(self) -> IntArray:
        """The row that each stored entry belongs to, shape (nnz,)."""
        return np.repeat(np.arange(self.number), np.diff(self.offset))

    @cached_property
    def of_ones(self) -> npt.NDArray[np.bool_]:
        """Mask of rows that store no entries, shape (p,)."""
        return np.asarray(np.diff(self.offset) == 0)

    def column_bound(self, budget: IntArray, norm: int) -> int:
        """The largest weighted column sum: of |H_rl| b_r (norm 1) or of (H_rl b_r)^2 (norm 2), as an integer.

        Args:
            budget: b, shape (p,).
            norm: the exponent.

        Raises:
            InternalError: if the sums might not fit in 64 bits.
        """
        largest = self.largest * int(budget.max(initial=1))
        if largest**norm * self.number >= LIMIT:
            raise InternalError(f"the rows of an axis of {self.cells} leaves have too large entries")
        powers = np.abs(self.entry) ** norm
        return int(self.spread((budget**norm)[:, None], powers)[:, 0].max(initial=0))

    def spread(self, weight: IntArray, entry: IntArray | None = None) -> IntArray:
        """|H|' w of each column of weights, (p, m) -> (n, m); `entry` stands for the entries' |values| if given.

        Sums are of the weights' type: modulo 2^64 in int64, rounded in float64, exact in Python's integers.
        """
        values = np.abs(self.entry) if entry is None else entry
        change = np.zeros((self.cells + 1, weight.shape[1]), weight.dtype)
        np.add.at(change, self.start[self.of_ones], weight[self.of_ones])
        np.subtract.at(change, self.stop[self.of_ones], weight[self.of_ones])
        column = np.cumsum(change[:-1], axis=0)
        for j in range(weight.shape[1]):  # one column at a time: entries times columns would not fit memory
            np.add.at(column[:, j], self.place, values * weight[self.owner, j])
        return column

    def measure(self, x: IntArray) -> IntArray:
        """H x of each column, (n, m) -> (p, m): ones by differences of running sums, the others entry by entry.

        **Privacy** Raw.
        """
        rows = np.empty((self.number, x.shape[1]), np.int64)
        if np.any(self.of_ones):
            sums = np.zeros((self.cells + 1, x.shape[1]), np.int64)
            np.cumsum(x, axis=0, out=sums[1:])
            rows[self.of_ones] = sums[self.stop[self.of_ones]] - sums[self.start[self.of_ones]]
        if not np.all(self.of_ones):
            first = self.offset[:-1][~self.of_ones]
            width = max(1, _CHUNK // len(self.place))
            for begin in range(0, x.shape[1], width):
                products = self.entry[:, None] * x[self.place, begin : begin + width]
                rows[~self.of_ones, begin : begin + width] = np.add.reduceat(products, first, axis=0)
        return rows

    def sums(self) -> IntArray:
        """H 1, shape (p,)."""
        return self.measure(np.ones((self.cells, 1), np.int64))[:, 0]

    def dense(self) -> FloatArray:
        """The row matrix H, shape (p, n); for short axes."""
        leaf = np.arange(self.cells)
        rows = ((leaf >= self.start[:, None]) & (leaf < self.stop[:, None])).astype(np.float64)
        rows[self.owner, self.place] = self.entry
        return rows


def rows_of_ones(cells: int, start: IntArray, stop: IntArray) -> SparseRows:
    """Rows that are 1 on their intervals.

    Args:
        cells: n.
        start, stop: half-open intervals, shape (p,) each.
    """
    return SparseRows(cells, start, stop, np.zeros(len(start) + 1, np.int64), np.zeros(0, np.int64))


def square_rows(entry: IntArray) -> SparseRows:
    """The rows of a full integer matrix, shape (n, n)."""
    n = len(entry)
    return SparseRows(n, np.zeros(n, np.int64), np.full(n, n), n * np.arange(n + 1), entry.ravel())


class LevelShares(NamedTuple):
    """A tree whose leaves are drawn together (`noise.joint_trees`).

    Args:
        arities: children of a node at each level, the root's first.
        shares: relative integer budgets of the levels, the root's first; they add up to at most the axis's total.
    """

    arities: tuple[int, ...]
    shares: tuple[int, ...]

    def rates(self, total: int) -> tuple[float, ...]:
        """The shares as parts of a total."""
        return tuple(share / total for share in self.shares)


class PlacedTree(NamedTuple):
    """The tree of one axis of a view: the axis's position, its levels, and what their shares are parts of."""

    axis: int
    levels: LevelShares
    total: int


class NullCount(Enum):
    """Count of a statistic whose draw tells rows with NULL from others."""

    NEITHER = 0
    ROWS = 1
    PRESENT = 2


class AxisBudget(NamedTuple):
    """Facts about one axis that a noise distribution needs.

    Args:
        budget: relative integer budgets of its rows, shape (p,).
        total: their bound.
        tree: where its rows are leaves that are drawn together, the levels; the leaves' share is their budget.
    """

    budget: IntArray
    total: int
    tree: LevelShares | None = None


def tree_of(axes: Sequence[AxisBudget]) -> PlacedTree | None:
    """The axis whose leaves are drawn together, each combination of the others' leaves a tree of its own.

    Raises:
        InternalError: rows of another axis meet a record twice, or add leaves together.
    """
    trees = [PlacedTree(i, axis.tree, axis.total) for i, axis in enumerate(axes) if axis.tree is not None]
    if not trees:
        return None
    rows = [axis for axis in axes if axis.tree is None]
    if len(trees) > 1 or any(np.any(axis.budget != axis.total) for axis in rows):
        raise InternalError(
            "leaves are drawn together along one axis, alongside others measured leaf by leaf"
        )
    return trees[0]


def integer_root(value: IntArray, norm: int) -> IntArray:
    """The largest integers whose `norm`-th powers, of 1 or 2, do not pass some integers; exactly.

    >>> integer_root(np.array([8, 9]), 2).tolist()
    [2, 3]
    """
    if norm == 1:
        return value
    # Rounding r^2 to 53 bits and its root again moves r by less than half a step: the root is never too small.
    root = np.sqrt(value.astype(np.float64)).astype(np.int64)
    return root - (root * root > value)
