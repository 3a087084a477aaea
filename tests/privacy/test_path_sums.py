"""Path sums: the integer proof of a central budget, on random trees and products, and planted overspends."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dpsql.budget import DENOMINATOR, Rows, assert_path_sums, cap_units, combine, largest_path_sum
from dpsql.errors import InternalError


def random_tree(rng: np.random.Generator, cells: int) -> Rows:
    """Intervals of a random binary-or-wider tree over `cells`, root first."""
    todo, start, stop = [(0, cells)], [], []
    while todo:
        lo, hi = todo.pop()
        start.append(lo)
        stop.append(hi)
        if hi - lo > 1:
            cuts = np.sort(
                rng.choice(np.arange(lo + 1, hi), min(hi - lo - 1, int(rng.integers(1, 4))), False)
            )
            bounds = [lo, *cuts.tolist(), hi]
            todo.extend(pairwise(bounds))
    return Rows(np.array(start), np.array(stop), cells)


def random_budgets(rng: np.random.Generator, rows: Rows) -> tuple[np.ndarray, int]:
    budget = rng.integers(1, 1 << 16, rows.start.size)
    return budget, largest_path_sum(budget, [rows])


def dense(rows: Rows) -> np.ndarray:
    matrix = np.zeros((rows.start.size, rows.cells), dtype=object)
    for r, (lo, hi) in enumerate(zip(rows.start, rows.stop, strict=True)):
        entry = 1 if rows.entry is None else rows.entry[rows.offset[r] : rows.offset[r + 1]]
        matrix[r, lo:hi] = np.abs(entry)
    return matrix


def test_1000_random_trees_and_products_stay_within_the_cap():
    rng = np.random.default_rng(1)
    for _ in range(1000):
        axes = [random_tree(rng, int(rng.integers(1, 12))) for _ in range(int(rng.integers(1, 4)))]
        cap = cap_units(Fraction(int(rng.integers(1, 1000)), 1000))
        units = combine(cap, [random_budgets(rng, rows) for rows in axes])
        assert_path_sums(units, axes, cap)
        assert largest_path_sum(units, axes) > cap * 0.99


def test_path_sums_equal_the_dense_product():
    rng = np.random.default_rng(2)
    for _ in range(20):
        axes = [random_tree(rng, 5), random_tree(rng, 4)]
        units = rng.integers(0, 1 << 30, tuple(rows.start.size for rows in axes))
        sums = dense(axes[0]).T.dot(units.astype(object)).dot(dense(axes[1]))
        assert largest_path_sum(units, axes) == sums.max()


def test_rows_with_entries():
    rows = Rows(np.array([0, 1]), np.array([3, 4]), 4, np.array([0, 3, 6]), np.array([1, -2, 3, 4, 1, 1]))
    units = np.array([10, 100])
    assert largest_path_sum(units, [rows]) == (dense(rows).T @ units).max() == 420
    both = np.outer(units, [1, 2])
    assert largest_path_sum(both, [rows, Rows(np.array([0, 0]), np.array([2, 1]), 2)]) == 420 * 3


@pytest.mark.parametrize("extra", [1, 1 << 20])
def test_a_planted_overspend_is_found(extra):
    rng = np.random.default_rng(3)
    rows = random_tree(rng, 64)
    units = combine(DENOMINATOR, [random_budgets(rng, rows)])
    slack = DENOMINATOR - largest_path_sum(units, [rows])
    units[0] += slack + extra  # the root is on every path
    with pytest.raises(InternalError, match="a path spends"):
        assert_path_sums(units, [rows], DENOMINATOR)


def test_sums_that_could_wrap_around_are_refused():
    rows = Rows(np.zeros(4, dtype=np.int64), np.ones(4, dtype=np.int64), 1)
    with pytest.raises(InternalError, match="64-bit"):
        largest_path_sum(np.full(4, 1 << 61), [rows])
    with pytest.raises(InternalError):
        largest_path_sum(np.array([1, 1, 1, -1]), [rows])
    with pytest.raises(InternalError, match="shapes"):
        largest_path_sum(np.ones((4, 1), dtype=np.int64), [rows])


def test_a_row_without_budget_costs_nothing():
    rows = Rows(np.array([0, 0]), np.array([1, 1]), 1)
    assert largest_path_sum(np.array([0, 7]), [rows]) == 7
    assert largest_path_sum(np.empty(0, dtype=np.int64), [Rows(np.empty(0, int), np.empty(0, int), 3)]) == 0
