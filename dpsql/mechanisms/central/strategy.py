"""A strategy: which integer rows of one axis are measured, and with how much of the budget each.

A strategy is made from public facts only. Its rows are integers and its budgets are integers, so the
measurement H x is exact and the sensitivity is a sum of integers that the constructor checks.

    norm 1 (Laplace)     max over leaves l of  sum_r |H_rl| b_r       <= total
    norm 2 (Gaussian)    max over leaves l of  sum_r  H_rl^2 b_r^2    <= total^2

Row r carries noise of scale total/b_r per unit of 1/epsilon (norm 1), or of standard deviation total/b_r
per unit of sigma (norm 2). Rows of kind "sine" follow from one table of integers and have their bound in `sine_rows`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpsql.errors import InternalError
from dpsql.mechanisms.central.blue import blue
from dpsql.mechanisms.central.sine_rows import column_norm, estimate_sine, l2_bound, measure_sine
from dpsql.tree import FloatArray, IntArray, Tree
from dpsql.variance import AxisVariance
from dpsql.variance.identity import IdentityVariance
from dpsql.variance.interval_rows import IntervalRows, blue_rows, interval_rows
from dpsql.variance.intervals import IntervalVariance
from dpsql.variance.prefix import PrefixVariance
from dpsql.variance.sine import SineVariance
from dpsql.variance.tree import TreeVariance

_LIMIT = 1 << 62  # sums below this fit in int64
_CHUNK = 1 << 22  # entries gathered at a time: 32 MB


@dataclass(frozen=True, eq=False)
class Strategy:
    """Integer rows over intervals of one axis, with relative integer budgets.

    Args:
        kind: "identity", "tree", "intervals", "dense", "zero_sum" or "sine"; says how estimates are made.
        n: number of leaves.
        start: first leaf of each row, shape (p,).
        stop: one past the last leaf of each row, shape (p,).
        offset: where each row's entries begin, shape (p + 1,); a row without entries is 1 on its interval.
        entry: the entries of all rows, one after the other, shape (nnz,).
        budget: relative budget of each row, at least 1, shape (p,).
        total: bound of the weighted column sums, see the module's table.
        norm: 1 for Laplace, 2 for Gaussian noise.
        tree: for kind "tree", the shape, with the nodes that are not measured.
        node: for kind "tree", the node that each row measures, shape (p,).
        scale: for kind "sine", what the rows are multiplied by before they are rounded.

    Kind "intervals" has the leaves' own rows first, in order. Rows of kind "zero_sum" tell nothing of the axis's
    total, which is measured apart; estimates are the leaves' deviations from their mean.

    Raises:
        InternalError: if the weighted column sums pass `total`.

    **Privacy** Adding or removing one record of unit value moves the rows by at most `total` in the norm
    above, after weighting by the budgets; the constructor checks this in integers.
    """

    kind: str
    n: int
    start: IntArray
    stop: IntArray
    offset: IntArray
    entry: IntArray
    budget: IntArray
    total: int
    norm: int = 1
    tree: Tree | None = None
    node: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    scale: int = 0

    def __post_init__(self) -> None:
        """Refuse a strategy whose sensitivity is larger than it says."""
        if np.any(self.budget < 1) or sensitivity(self) > self.total**self.norm:
            raise InternalError(f"a {self.kind} strategy of {self.n} leaves is more sensitive than declared")

    @property
    def rows(self) -> int:
        """Number of measured rows, p."""
        return len(self.start)


def sensitivity(strategy: Strategy) -> int:
    """The largest weighted column sum, exactly.

    Returns:
        max over leaves of sum_r |H_rl| b_r (norm 1) or of sum_r (H_rl b_r)^2 (norm 2), as an integer.

    Raises:
        InternalError: if the sums might not fit in 64 bits.
    """
    if strategy.kind == "sine":
        return l2_bound(strategy.n, strategy.scale) ** 2
    length, power = np.diff(strategy.offset), strategy.norm
    largest = int(np.abs(strategy.entry).max(initial=1)) * int(strategy.budget.max(initial=1))
    if largest**power * strategy.rows >= _LIMIT:
        raise InternalError(f"a {strategy.kind} strategy of {strategy.n} leaves has too large entries")
    change = np.zeros(strategy.n + 1, np.int64)
    constant = length == 0
    np.add.at(change, strategy.start[constant], strategy.budget[constant] ** power)
    np.add.at(change, strategy.stop[constant], -(strategy.budget[constant] ** power))
    column = np.cumsum(change[:-1])
    weighted = np.abs(strategy.entry) * np.repeat(strategy.budget, length)
    np.add.at(column, entry_cells(strategy), weighted**power)
    return int(column.max(initial=0))


def entry_cells(strategy: Strategy) -> IntArray:
    """The leaf that each stored entry belongs to, shape (nnz,)."""
    begin = strategy.start - strategy.offset[:-1]
    return np.arange(len(strategy.entry)) + np.repeat(begin, np.diff(strategy.offset))


def dense(strategy: Strategy) -> FloatArray:
    """The row matrix H, shape (p, n); for small strategies, "sine" excepted."""
    leaf = np.arange(strategy.n)
    rows = ((leaf >= strategy.start[:, None]) & (leaf < strategy.stop[:, None])).astype(np.float64)
    length = np.diff(strategy.offset)
    rows[np.repeat(np.arange(strategy.rows), length), entry_cells(strategy)] = strategy.entry
    return rows


def measure(strategy: Strategy, x: npt.NDArray[np.int64], axis: int = 0) -> IntArray:
    """H x along one axis, in exact integers.

    Args:
        strategy: the rows.
        x: integers, with strategy.n cells along `axis`.
        axis: the axis to replace.

    Returns:
        int64, with strategy.rows cells along `axis`, modulo 2^64. No noise is added here.

    **Privacy** Raw: never leaves publishing without noise of at least the strategy's scale. Sums and the noise
    added to them wrap around at 2^64, which is a function of the noisy integer; an error would tell of the data.
    """
    moved = np.moveaxis(np.asarray(x), axis, 0)
    flat = moved.reshape(strategy.n, -1).astype(np.int64, casting="safe")
    if strategy.kind == "sine":
        rows = measure_sine(flat, strategy.scale)
    elif strategy.kind in ("dense", "zero_sum"):
        rows = strategy.entry.reshape(strategy.rows, strategy.n) @ flat
    else:
        rows = _measure_rows(strategy, flat)
    return np.moveaxis(rows.reshape(strategy.rows, *moved.shape[1:]), 0, axis)


def _measure_rows(strategy: Strategy, flat: IntArray) -> IntArray:
    """Rows of ones by differences of running sums, the others entry by entry; (n, m) -> (p, m)."""
    rows = np.empty((strategy.rows, flat.shape[1]), np.int64)
    constant = np.diff(strategy.offset) == 0
    if np.any(constant):
        sums = np.zeros((strategy.n + 1, flat.shape[1]), np.int64)
        np.cumsum(flat, axis=0, out=sums[1:])
        rows[constant] = sums[strategy.stop[constant]] - sums[strategy.start[constant]]
    if not np.all(constant):
        cell, first = entry_cells(strategy), strategy.offset[:-1][~constant]
        width = max(1, _CHUNK // len(cell))
        for begin in range(0, flat.shape[1], width):
            part = strategy.entry[:, None] * flat[cell, begin : begin + width]
            rows[~constant, begin : begin + width] = np.add.reduceat(part, first, axis=0)
    return rows


def estimate(strategy: Strategy, y: npt.NDArray[np.generic], axis: int = 0) -> FloatArray:
    """Best linear unbiased leaf estimates along one axis, for noise of variance (total/b_r)^2 on row r.

    Args:
        strategy: the rows that were measured.
        y: noisy measurements, with strategy.rows cells along `axis`.
        axis: the axis to replace.

    Returns:
        float64, with strategy.n cells along `axis`.
    """
    moved = np.moveaxis(np.asarray(y, np.float64), axis, 0)
    flat = moved.reshape(strategy.rows, -1)
    weight = strategy.budget / strategy.total
    if strategy.kind == "sine":
        leaves = estimate_sine(flat, strategy.scale)
    elif strategy.kind == "identity":
        leaves = flat
    elif strategy.kind == "tree" and strategy.tree is not None:
        nodes = np.zeros((strategy.tree.size, flat.shape[1]))
        nodes[strategy.node] = flat
        leaves = blue(strategy.tree, _tree_weight(strategy), nodes)[strategy.tree.leaves]
    elif strategy.kind == "intervals":
        rows, order = _layout(strategy)
        scaled = weight[:, None] * flat
        leaves = blue_rows(rows, scaled[: strategy.n], scaled[strategy.n :][order])
    elif strategy.kind == "zero_sum":
        leaves = _deviations(strategy) @ (dense(strategy).T @ flat) / strategy.total**2
        leaves = leaves - leaves.mean(axis=0)
    else:
        matrix: FloatArray = weight[:, None] * dense(strategy)
        leaves = np.linalg.solve(matrix.T @ matrix, matrix.T @ (weight[:, None] * flat)).astype(np.float64)
    return np.moveaxis(leaves.reshape(strategy.n, *moved.shape[1:]), 0, axis)


def variance_model(strategy: Strategy) -> AxisVariance:
    """How noisy the estimates are, for noise of variance (total/b_r)^2 on row r.

    Returns:
        The model; Laplace noise at epsilon multiplies by 2/epsilon^2, Gaussian noise by sigma^2. For zero-sum rows
        the axis's total is taken as measured with noise of variance 1.
    """
    if strategy.kind == "sine":
        return SineVariance(strategy.n, column_norm(strategy.n) * (strategy.total / strategy.scale) ** 2)
    if strategy.kind == "identity":
        return IdentityVariance(strategy.n, float(strategy.total / strategy.budget[0]) ** 2)
    if strategy.kind == "tree" and strategy.tree is not None:
        return TreeVariance(strategy.tree, _tree_weight(strategy))
    if strategy.kind == "intervals":
        return IntervalVariance(_layout(strategy)[0])
    if strategy.kind == "zero_sum":
        return PrefixVariance(_deviations(strategy) + 1 / strategy.n**2)
    rows: FloatArray = (strategy.budget / strategy.total)[:, None] * dense(strategy)
    return PrefixVariance(np.linalg.inv(rows.T @ rows).astype(np.float64))


@lru_cache(maxsize=16)  # an axis stands in many sets; equal objects only, by identity
def _deviations(strategy: Strategy) -> FloatArray:
    """Covariance of the leaves' deviations from their mean at unit noise, shape (n, n)."""
    rows = dense(strategy) / strategy.total
    return np.asarray(np.linalg.pinv(rows.T @ rows, rcond=1e-12, hermitian=True), np.float64)


def _tree_weight(strategy: Strategy) -> FloatArray:
    """Precision of each node's measurement, 0 where a node is not measured; shape (size,)."""
    weight = np.zeros(0 if strategy.tree is None else strategy.tree.size)
    weight[strategy.node] = (strategy.budget / strategy.total) ** 2
    return weight


def _layout(strategy: Strategy) -> tuple[IntervalRows, IntArray]:
    """The leaves' rows as the identity and the others as interval rows, all at unit noise."""
    n = strategy.n
    weight = np.repeat(strategy.budget / strategy.total, np.diff(strategy.offset)) * strategy.entry
    return interval_rows(weight[:n], strategy.start[n:], strategy.stop[n:], weight[n:])
