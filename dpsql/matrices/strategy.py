"""A strategy: which integer rows of one axis are measured, and with how much of the budget each.

A strategy is made from public facts only. Its rows and its budgets are integers, so the measurement H x is exact and
the sensitivity is a sum of integers that is checked when it is made.

    norm 1 (Laplace)      max over leaves l of  sum_r |H_rl| b_r       <= total
    norm 2 (Gaussian)     max over leaves l of  sum_r  H_rl^2 b_r^2    <= total^2

Row r carries noise of scale total/b_r per unit of 1/epsilon, or of standard deviation total/b_r per unit of sigma. The
least squares over the rows is the strategy's solver, which is its variance model too.

Most rows are ones on an interval and store no entry; hats store theirs one after the other.

**Source** docs/method/views.md, "Rows and budgets".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.matrices.model import CHUNK, AxisVariance
from dpsql.tree import FloatArray, IntArray

LIMIT = 1 << 62
"""Sums below this fit in int64."""


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

    def entry_blocks(self) -> Iterator[tuple[slice, IntArray, IntArray]]:
        """About `CHUNK` stored entries at a time: where they stand, and the row and the leaf that each belongs to."""
        first = 0
        while first < self.number:
            stop = int(np.searchsorted(self.offset, self.offset[first] + CHUNK, "right")) - 1
            stop = max(first + 1, stop)  # a row of more entries alone
            block = slice(int(self.offset[first]), int(self.offset[stop]))
            row = np.repeat(np.arange(first, stop), np.diff(self.offset[first : stop + 1]))
            yield block, row, np.arange(block.start, block.stop) + (self.start - self.offset[:-1])[row]
            first = stop

    @cached_property
    def of_ones(self) -> npt.NDArray[np.bool_]:
        """Mask of rows that store no entries, shape (p,)."""
        return np.asarray(np.diff(self.offset) == 0)

    @cached_property
    def is_identity(self) -> bool:
        """True if each leaf is measured once, in order."""
        leaf = np.arange(self.cells)
        each = np.array_equal(self.start, leaf) and np.array_equal(self.stop, leaf + 1)
        return each and not len(self.entry)

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
        for block, row, leaf in self.entry_blocks():
            # one column at a time: entries times columns would not fit memory
            for j in range(weight.shape[1]):
                np.add.at(column[:, j], leaf, values[block] * weight[row, j])
        return column

    def measure(self, x: IntArray) -> IntArray:
        """H x of each column, (n, m) -> (p, m): ones by differences of running sums, the others entry by entry.

        **Privacy** Raw.
        """
        if self.is_identity:
            return x.copy()
        rows = np.empty((self.number, x.shape[1]), np.int64)
        if np.any(self.of_ones):
            sums = np.zeros((self.cells + 1, x.shape[1]), np.int64)
            np.cumsum(x, axis=0, out=sums[1:])
            rows[self.of_ones] = sums[self.stop[self.of_ones]] - sums[self.start[self.of_ones]]
        for block, row, leaf in self.entry_blocks():
            first, width = np.flatnonzero(np.diff(row, prepend=-1)), max(1, CHUNK // max(1, len(row)))
            for begin in range(0, x.shape[1] if len(row) else 0, width):
                products = self.entry[block, None] * x[leaf, begin : begin + width]
                rows[row[first], begin : begin + width] = np.add.reduceat(products, first, axis=0)
        return rows

    def sums(self) -> IntArray:
        """H 1, shape (p,)."""
        return self.measure(np.ones((self.cells, 1), np.int64))[:, 0]

    def dense(self) -> FloatArray:
        """The row matrix H, shape (p, n); for short axes."""
        leaf = np.arange(self.cells)
        rows = ((leaf >= self.start[:, None]) & (leaf < self.stop[:, None])).astype(np.float64)
        for block, row, place in self.entry_blocks():
            rows[row, place] = self.entry[block]
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

    def fits(self, leaves: int, total: int) -> bool:
        """True if the levels spend no more than the total, and have as many leaves as an axis or more."""
        shaped = len(self.shares) == len(self.arities) + 1 and min(self.arities, default=2) >= 2
        spends = shaped and min(self.shares) >= 0 and self.shares[-1] >= 1 and sum(self.shares) <= total
        return spends and prod(self.arities) >= leaves


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


class Rows(Protocol):
    """Integer rows over the leaves of an axis."""

    @property
    def cells(self) -> int:
        """Number of leaves, n."""

    def measure(self, x: IntArray) -> IntArray:
        """H x of each column, in exact integers modulo 2^64, (n, m) -> (rows, m).

        **Privacy** Raw: never leaves publishing without noise of at least the strategy's scale.
        """

    def column_bound(self, budget: IntArray, norm: int) -> int:
        """The largest weighted column sum, an exact integer or a proven bound."""


class Solver(AxisVariance, Protocol):
    """Least squares over a strategy's rows, with its variances."""

    def blue(self, y: FloatArray) -> FloatArray:
        """Best linear unbiased leaf estimates from rows of unit noise, (rows, m) -> (n, m)."""


@dataclass(frozen=True, eq=False)
class Strategy:
    """Integer rows over the leaves of one axis, with relative integer budgets and the solver of their least squares.

    Args:
        kind: name of its constructor in the closed registry.
        stored: the arguments of that constructor, integers that floating point chose.
        rows: H.
        budget: relative budget of each row, at least 1, shape (rows,).
        total: bound of the weighted column sums, see the module's table.
        norm: 1 for Laplace noise, 2 for Gaussian.
        solver: of the rows where row r has noise of standard deviation total/b_r.
        entry_scale: scale of the integer rows: products of rows of several axes have to fit in 64 bits.
        refinements: rounds in which an estimate is refined on the integers that it leaves unexplained.
        levels: where the rows are leaves drawn together, the tree; the leaves' share is their budget.

    Raises:
        InternalError: if its sensitivity is larger than it says.

    **Privacy** Adding or removing one record of unit value moves the rows by at most `total` in the norm, after
    weighting by the budgets.
    """

    kind: str
    stored: Mapping[str, Any]
    rows: Rows
    budget: IntArray
    total: int
    norm: int
    solver: Solver
    entry_scale: int = 1
    refinements: int = 1
    levels: LevelShares | None = None

    def __post_init__(self) -> None:
        """Refuse rows that are more sensitive than they say."""
        fits = self.levels is None or self.levels.fits(self.leaves, self.total)
        check_sensitivity(self, self.rows.column_bound(self.budget, self.norm) if fits else self.total + 1)

    @property
    def leaves(self) -> int:
        """Number of leaves, n."""
        return self.rows.cells

    def estimate(self, y: FloatArray) -> FloatArray:
        """Best linear unbiased leaf estimates of each column, (rows, m) -> (n, m)."""
        unit_noise = self.levels is None  # leaves drawn together are their own estimates
        return self.solver.blue(y * self.budget[:, None] / self.total if unit_noise else y)

    def entries(self) -> SparseRows | None:
        """The rows' integers, or None where there are too many to be written down."""
        return self.rows if isinstance(self.rows, SparseRows) else None

    def frozen(self) -> dict[str, Any]:
        """Plain values of JSON that hold the whole strategy, for audits and later appends."""
        return {name: np.asarray(value).tolist() for name, value in self.stored.items()}

    @cached_property
    def key(self) -> Hashable:
        """Of a strategy that a few integers make these; every other one is equal to itself alone."""
        few = all(isinstance(value, int | tuple) for value in self.stored.values())
        return (self.kind, *self.stored.items()) if few else id(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Strategy) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def check_sensitivity(strategy: Strategy, column_bound: int) -> None:
    """Refuse a strategy whose sensitivity is larger than it says.

    Args:
        strategy: as it would be.
        column_bound: its largest weighted column sum, an exact integer or a proven bound.

    Raises:
        InternalError: a budget below 1, or a sum above `total` to the power of the norm.
    """
    if np.any(strategy.budget < 1) or column_bound > strategy.total**strategy.norm:
        raise InternalError(
            f"a strategy of kind {strategy.kind} on {strategy.leaves} leaves is more sensitive than declared"
        )


def gathers(strategy: Strategy) -> bool:
    """True if some row adds leaves together."""
    entries = strategy.entries()
    return entries is None or bool(np.any(entries.stop - entries.start > 1))


def axis_budgets(strategies: Sequence[Strategy]) -> list[AxisBudget]:
    """Facts about the axes of a view that a noise distribution needs."""
    return [AxisBudget(s.budget, s.total, s.levels) for s in strategies]


def measure(strategy: Strategy, x: npt.NDArray[np.int64], axis: int = 0) -> IntArray:
    """H x along one axis of an array, in exact integers.

    Args:
        strategy: the rows.
        x: integers, with strategy.leaves cells along `axis`.
        axis: the axis to replace.

    Returns:
        int64, with the strategy's rows along `axis`, modulo 2^64. No noise is added here.

    **Privacy** Raw: never leaves publishing without noise of at least the strategy's scale. Sums and the noise
    added to them wrap around at 2^64, which is a function of the noisy integer; an error would tell of the data.
    """
    moved = np.moveaxis(np.asarray(x), axis, 0)
    flat = moved.reshape(strategy.leaves, -1).astype(np.int64, casting="safe")
    measured = strategy.rows.measure(flat)
    return np.moveaxis(measured.reshape(len(measured), *moved.shape[1:]), 0, axis)


def estimate(strategy: Strategy, y: npt.NDArray[np.generic], axis: int = 0) -> FloatArray:
    """Best linear unbiased leaf estimates along one axis, for noise of variance (total/b_r)^2 on row r.

    Args:
        strategy: the rows that were measured.
        y: noisy measurements, with the strategy's rows along `axis`.
        axis: the axis to replace.

    Returns:
        float64, with strategy.leaves cells along `axis`.
    """
    moved = np.moveaxis(np.asarray(y, np.float64), axis, 0)
    leaves = strategy.estimate(moved.reshape(len(moved), -1))
    return np.moveaxis(leaves.reshape(strategy.leaves, *moved.shape[1:]), 0, axis)


def measure_view(histogram: IntArray, strategies: Sequence[Strategy]) -> IntArray:
    """Exact rows of a whole view, leaf combinations (n_1, .., n_d) -> (rows_1, .., rows_d)."""
    for axis, strategy in enumerate(strategies):
        histogram = measure(strategy, histogram, axis)
    return histogram


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
