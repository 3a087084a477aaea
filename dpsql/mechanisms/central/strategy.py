"""A strategy: which integer rows of one axis are measured, and with how much of the budget each.

A strategy is made from public facts only. Its rows are integers and its budgets are integers, so the
measurement H x is exact and the sensitivity is a sum of integers that the constructor checks.

    norm 1 (Laplace)     max over leaves l of  sum_r |H_rl| b_r       <= total
    norm 2 (Gaussian)    max over leaves l of  sum_r  H_rl^2 b_r^2    <= total^2

Row r carries noise of scale total/b_r per unit of epsilon (norm 1), or of standard deviation
total/b_r per unit of sigma (norm 2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from dpsql.errors import InternalError
from dpsql.tree import FloatArray, IntArray, Tree

TOTAL = 1 << 20  # fine enough that rounding budgets costs under 1e-4 of the error
_LIMIT = 1 << 62  # sums of this size still fit in int64


@dataclass(frozen=True, eq=False)
class Strategy:
    """Integer rows over intervals of one axis, with relative integer budgets.

    Args:
        kind: "identity", "tree", "intervals", "dense" or "sine"; says how estimates are made.
        n: number of leaves.
        start: first leaf of each row, shape (p,).
        stop: one past the last leaf of each row, shape (p,).
        offset: where the entries of each row begin, shape (p + 1,); a row without entries is 1 on its interval.
        entry: the entries of all rows, one after the other, shape (nnz,).
        budget: relative budget of each row, at least 1, shape (p,).
        total: bound of the weighted column sums, see the module's table.
        norm: 1 for Laplace, 2 for Gaussian noise.
        tree: for kind "tree", the shape, with the nodes that are not measured.
        node: for kind "tree", the node that each row measures, shape (p,).

    Raises:
        InternalError: if the weighted column sums pass `total`.

    **Privacy** Adding or removing one record of unit value moves the noisy rows by at most `total` in the
    norm above, after weighting by the budgets; the constructor checks this in integers.
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

    def __post_init__(self) -> None:
        """Refuse a strategy whose sensitivity is larger than it says."""
        bound = self.total**self.norm
        if np.any(self.budget < 1) or sensitivity(self) > bound:
            raise InternalError(f"a {self.kind} strategy of {self.n} leaves is more sensitive than it declares")

    @property
    def rows(self) -> int:
        """Number of measured rows."""
        return len(self.start)


def row_lengths(strategy: Strategy) -> IntArray:
    """Number of stored entries of each row, shape (p,); 0 where the row is 1 on its interval."""
    return np.diff(strategy.offset)


def sensitivity(strategy: Strategy) -> int:
    """The largest weighted column sum, exactly.

    Returns:
        max over leaves of sum_r |H_rl| b_r (norm 1) or of sum_r (H_rl b_r)^2 (norm 2), as an integer.

    Raises:
        InternalError: if the sums might not fit in 64 bits.

    **Source** Rule N4 of the noise module: path sums are integers.
    """
    length, power = row_lengths(strategy), strategy.norm
    largest = int(np.abs(strategy.entry).max(initial=1)) * int(strategy.budget.max(initial=1))
    if largest**power * max(strategy.rows, 1) >= _LIMIT:
        raise InternalError(f"a {strategy.kind} strategy of {strategy.n} leaves has entries that are too large")
    change = np.zeros(strategy.n + 1, np.int64)
    constant = length == 0
    np.add.at(change, strategy.start[constant], strategy.budget[constant] ** power)
    np.add.at(change, strategy.stop[constant], -(strategy.budget[constant] ** power))
    column = np.cumsum(change[:-1])
    np.add.at(column, entry_cells(strategy), (np.abs(strategy.entry) * np.repeat(strategy.budget, length)) ** power)
    return int(column.max(initial=0))


def entry_cells(strategy: Strategy) -> IntArray:
    """The leaf that each stored entry belongs to, shape (nnz,)."""
    length = row_lengths(strategy)
    return np.arange(len(strategy.entry)) + np.repeat(strategy.start - strategy.offset[:-1], length)


def dense(strategy: Strategy) -> FloatArray:
    """The row matrix, shape (p, n), for small strategies and tests."""
    rows = np.zeros((strategy.rows, strategy.n))
    length = row_lengths(strategy)
    for row in np.flatnonzero(length == 0):
        rows[row, strategy.start[row] : strategy.stop[row]] = 1
    rows[np.repeat(np.arange(strategy.rows), length), entry_cells(strategy)] = strategy.entry
    return rows


def tree_strategy(tree: Tree, budget: FloatArray, total: int = TOTAL, norm: int = 1) -> Strategy:
    """Measure the nodes of a tree, with real budgets rounded to integers.

    Inner budgets are rounded down; each leaf takes all that its path has left, so nothing is wasted and
    no leaf is ever without budget. An inner node whose budget rounds to 0 is not measured.

    Args:
        tree: the shape.
        budget: relative budgets of the nodes, shape (size,); path sums (norm 1) or path sums of squares
            (norm 2) are at most 1. Leaf budgets are not read.
        total: the integer that stands for the whole budget.
        norm: 1 for Laplace, 2 for Gaussian noise.

    Returns:
        The strategy, rows in node order.
    """
    inner = ~tree.is_leaf
    units = np.where(inner, np.floor(np.asarray(budget) * (total - 1)), 0).astype(np.int64)
    spent = path_sums(tree, units**norm)[tree.leaves]
    left = total**norm - spent
    if np.any(left < 1):
        raise InternalError(f"a tree of {tree.n} leaves spends more than its budget on inner nodes")
    units[tree.leaves] = left if norm == 1 else _isqrt(left)
    node = np.flatnonzero(units > 0)
    return Strategy(
        kind="tree", n=tree.n, start=tree.lo[node], stop=tree.hi[node], offset=np.zeros(len(node) + 1, np.int64),
        entry=np.zeros(0, np.int64), budget=units[node], total=total, norm=norm, tree=tree, node=node,
    )  # fmt: skip


def _isqrt(value: IntArray) -> IntArray:
    """Integer square roots, rounded down exactly."""
    root = np.sqrt(value.astype(np.float64)).astype(np.int64)
    root -= root * root > value
    root += (root + 1) * (root + 1) <= value
    return root


def path_sums(tree: Tree, value: IntArray) -> IntArray:
    """Sum of `value` over each node and its ancestors, shape (size,)."""
    out = value.copy()
    for part in tree.level_slices[1:]:
        out[part] += out[tree.parent[part]]
    return out


def identity_strategy(n: int, norm: int = 1) -> Strategy:
    """Measure every leaf once, with the whole budget (Dwork)."""
    cell = np.arange(n)
    return Strategy(
        kind="identity", n=n, start=cell, stop=cell + 1, offset=np.zeros(n + 1, np.int64),
        entry=np.zeros(0, np.int64), budget=np.ones(n, np.int64), total=1, norm=norm,
    )  # fmt: skip
