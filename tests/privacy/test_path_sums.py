"""Path sums: the integer proof of a central budget, on random trees and products, and planted overspends."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from dpsql.budget import DENOMINATOR, cap_units, combine
from dpsql.matrices.strategy import SparseRows, rows_of_ones
from dpsql.mechanisms.distribution import LAPLACE


def largest(units: np.ndarray, axes: list[SparseRows]) -> int:
    """What an audit holds against the cap."""
    return LAPLACE.largest_column(units, axes, [], 1)


def random_tree(rng: np.random.Generator, cells: int) -> SparseRows:
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
    return rows_of_ones(cells, np.array(start), np.array(stop))


def random_budgets(rng: np.random.Generator, rows: SparseRows) -> tuple[np.ndarray, int]:
    budget = rng.integers(1, 1 << 16, rows.number)
    return (budget, largest(budget, [rows]))


def test_1000_random_trees_and_products_stay_within_the_cap():
    rng = np.random.default_rng(1)
    for _ in range(1000):
        axes = [random_tree(rng, int(rng.integers(1, 12))) for _ in range(int(rng.integers(1, 4)))]
        cap = cap_units(Fraction(int(rng.integers(1, 1000)), 1000))
        units = combine(cap, [random_budgets(rng, rows) for rows in axes])
        assert cap * 0.99 < largest(units, axes) <= cap


def test_path_sums_equal_the_dense_product():
    rng = np.random.default_rng(2)
    for _ in range(20):
        axes = [random_tree(rng, 5), random_tree(rng, 4)]
        units = rng.integers(0, 1 << 30, tuple(rows.number for rows in axes))
        first, second = (np.abs(rows.dense()).astype(np.int64).astype(object) for rows in axes)
        assert largest(units, axes) == first.T.dot(units.astype(object)).dot(second).max()


def test_rows_with_entries():
    rows = SparseRows(
        4, np.array([0, 1]), np.array([3, 4]), np.array([0, 3, 6]), np.array([1, -2, 3, 4, 1, 1])
    )
    units = np.array([10, 100])
    assert largest(units, [rows]) == (np.abs(rows.dense()).T @ units).max() == 420
    assert (
        largest(np.outer(units, [1, 2]), [rows, rows_of_ones(2, np.array([0, 0]), np.array([2, 1]))])
        == 420 * 3
    )


@pytest.mark.parametrize("extra", [1, 1 << 20])
def test_a_planted_overspend_is_found(extra):
    rng = np.random.default_rng(3)
    rows = random_tree(rng, 64)
    units = combine(DENOMINATOR, [random_budgets(rng, rows)])
    units[0] += DENOMINATOR - largest(units, [rows]) + extra  # the root is on every path
    assert largest(units, [rows]) == DENOMINATOR + extra


def test_a_row_without_budget_costs_nothing():
    rows = rows_of_ones(1, np.array([0, 0]), np.array([1, 1]))
    assert largest(np.array([0, 7]), [rows]) == 7


def test_weights_of_any_size_are_added_up_exactly():
    """A file may hold any budgets: sums past 2^63 must not come round to small ones."""
    rows = rows_of_ones(2, np.array([0, 0, 0]), np.array([2, 1, 2]))
    assert largest(np.array([1 << 62, 1 << 62, 1 << 62]), [rows]) == 3 << 62
    hats = SparseRows(2, np.array([0]), np.array([2]), np.array([0, 2]), np.array([8, -16]))
    assert largest(np.full((1, 1), 1 << 61), [hats, hats]) == 256 << 61
