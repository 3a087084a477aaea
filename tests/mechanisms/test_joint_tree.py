"""Trees by one draw: errors of the method's table, shares, shapes, and what a view may and may not draw together."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.matrices import mean_variance
from dpsql.matrices.strategy import LevelShares, axis_budgets
from dpsql.mechanisms.axis import auto_strategy, thaw
from dpsql.mechanisms.axis.joint_tree import TOTAL, _shapes, joint_strategy
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.tents import tents
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, Laplace
from dpsql.mechanisms.offers import JointCells, draw_view
from dpsql.noise import ZeroNoise
from dpsql.tree import Exact, Workload
from tests.releases import seeded

ALONE = JointCells(1, 1, 1 << 28)
SHARES = LevelShares((4, 3), (600, 1400, TOTAL - 2000))
STRATEGY = joint_strategy(11, *SHARES)


@pytest.mark.parametrize(
    ("n", "whole", "error"),
    [
        (10, 0, 7.79),
        (16, 0, 11.12),
        (31, 0, 18.28),
        (64, 0, 29.19),
        (256, 0, 63.34),
        (16, 0.5, 12.54),
        (64, 0.5, 27.4),
    ],
)
def test_errors_are_those_of_the_method_or_less(n: int, whole: float, error: float) -> None:
    choice = auto_strategy(n, whole=whole, joint=ALONE)
    assert choice.strategy.kind == "joint_tree"
    assert 0.95 * error <= choice.expected_error <= 1.003 * error
    assert choice.expected_error == pytest.approx(2 * mean_variance(choice.strategy.solver, None, whole))
    lost = [name for name, _ in choice.runners_up]
    assert "identity" in lost and not any("budgets per node" in name for name in lost)


def test_every_length_has_a_tree() -> None:
    for n in range(4, 300):
        assert all(n <= np.prod(shape) <= 1.35 * n for shape in _shapes(n)) and _shapes(n)


def test_prefixes_and_one_range_have_shares_of_their_own() -> None:
    prefixes = Workload(np.zeros(64, np.int64), np.arange(1, 65), np.ones(64))
    assert auto_strategy(64, prefixes, joint=ALONE).expected_error <= 28.6
    whole = Workload(np.array([0]), np.array([64]), np.array([1.0]))
    assert auto_strategy(64, whole, joint=ALONE).expected_error <= 2.1


@pytest.mark.parametrize(
    "joint", [JointCells(1, 1 << 22, 1 << 28), JointCells(2, 1 << 16, 1 << 28), JointCells(1, 1, 1 << 11)]
)
def test_too_many_draws_or_too_coarse_rates_keep_rows(joint: JointCells) -> None:
    choice = auto_strategy(64, joint=joint)
    assert choice.strategy.kind != "joint_tree"
    assert any(refusal.name == "joint tree" for refusal in choice.refused)


def test_no_tree_is_drawn_under_a_delta_or_where_nobody_said_so() -> None:
    for choice in (auto_strategy(64, law=GAUSSIAN, joint=ALONE), auto_strategy(64)):
        assert choice.strategy.kind != "joint_tree"


def test_a_strategy_that_spends_more_than_its_total_cannot_be_made() -> None:
    for shares in ((600, 1400, TOTAL - 1999), (-1, 1400, TOTAL - 2000), (600, TOTAL - 600)):
        with pytest.raises(InternalError):
            joint_strategy(11, (4, 3), shares)
    with pytest.raises(InternalError):
        joint_strategy(13, *SHARES)


def test_a_strategy_comes_back_from_what_is_stored() -> None:
    assert thaw(STRATEGY.kind, STRATEGY.frozen()) == STRATEGY


@pytest.mark.parametrize("sensitivity", [1, 7, 300 << 20])
def test_rates_of_all_levels_stay_within_the_spend(sensitivity: int) -> None:
    axes, spend = axis_budgets([STRATEGY, leaf_strategy(3)]), Fraction(1, 3)
    budget, cap = LAPLACE.budgets(axes, spend, sensitivity), LAPLACE.column_cap(axes, spend, sensitivity)
    rows = [STRATEGY.entries(), leaf_strategy(3).entries()]
    column = LAPLACE.largest_column(budget, rows, axes, cap)
    assert column == sum(LAPLACE.level_rates(axes, cap))
    leaf = LAPLACE.leaf_noise(axes, spend, [sensitivity])
    assert leaf.units.tolist() == [column] * 3
    assert 0 <= cap - column < 3


def test_a_level_forgotten_in_the_path_sum_is_found() -> None:
    """Leaves with the whole budget, and levels above them: the sum passes the cap."""
    axes, spend = axis_budgets([STRATEGY]), Fraction(1)
    cap = LAPLACE.column_cap(axes, spend, 1)
    whole = np.full(11, cap, np.int64)
    assert LAPLACE.largest_column(whole, [STRATEGY.entries()], axes, cap) > cap


@pytest.mark.parametrize("position", [0, 1])
def test_each_cell_of_the_other_axis_has_a_tree_of_its_own(position: int) -> None:
    """Observed covariances over those of the model, within and between trees, wherever the axis stands."""
    strategies = [STRATEGY, leaf_strategy(900)] if position == 0 else [leaf_strategy(900), STRATEGY]
    shape = tuple(strategy.leaves for strategy in strategies)
    view = draw_view(Exact(np.zeros(shape, np.int64)), strategies, Fraction(1, 4), 5, seeded(3))
    trees = np.moveaxis(view.value, position, -1).astype(float)
    masks = np.array([[1.0] * 11, [1.0] * 3 + [0.0] * 8, [0.0] * 4 + [1.0] + [0.0] * 6])
    expected = view.variance_at_unit_budget * STRATEGY.solver.quadratic(masks)
    assert np.var(trees @ masks.T, axis=0) == pytest.approx(expected, rel=0.25)
    assert abs(np.corrcoef(trees[:450, 0], trees[450:, 0])[0, 1]) < 0.25


def test_two_numbers_share_a_tree_and_do_not_correlate() -> None:
    law, strategies = (
        Laplace(2, 40),
        [leaf_strategy(4000), joint_strategy(4, (4,), (800, TOTAL - 800))],
    )
    zero = Exact(np.zeros((4000, 4), np.int64))
    noise = seeded(5)
    count, total = law.draw_together([zero, zero], axis_budgets(strategies), Fraction(1, 2), [1, 40], noise)
    for view in (count, total):
        expected = view.variance_at_unit_budget * strategies[1].solver.ranges([0, 0], [1, 4])
        seen = [np.var(view.value[:, 0]), np.var(view.value.sum(axis=1))]
        assert seen == pytest.approx(expected, rel=0.15)
    assert abs(np.corrcoef(count.value[:, 0], total.value[:, 0])[0, 1]) < 0.08


def test_without_noise_a_view_comes_back() -> None:
    cells = Exact(np.arange(22).reshape(2, 11))
    view = draw_view(cells, [leaf_strategy(2), STRATEGY], Fraction(1), 1, ZeroNoise())
    assert np.array_equal(view.value, cells)


@pytest.mark.parametrize("strategies", [[STRATEGY, STRATEGY], [STRATEGY, tents(40, (3, 9))]])
def test_rows_that_add_leaves_beside_a_tree_are_refused(strategies: list) -> None:
    with pytest.raises(InternalError):
        LAPLACE.level_rates(axis_budgets(strategies), 1 << 20)


def test_at_large_budgets_the_stated_variance_is_that_of_whole_numbers() -> None:
    """At epsilon 4 integers err by a fifth less than the limit says."""
    axes = axis_budgets([STRATEGY])
    limit, exact = 2 / 16, LAPLACE.variance_at_unit_budget(axes, Fraction(4), 1)
    assert exact < 0.9 * limit
    noise = seeded(8)
    views = draw_view(
        Exact(np.zeros((6000, 11), np.int64)), [leaf_strategy(6000), STRATEGY], Fraction(4), 1, noise
    )
    assert np.var(views.value[:, 0]) <= 1.05 * exact * STRATEGY.solver.ranges(0, 1)[0]
    assert LAPLACE.variance_at_unit_budget(axes, Fraction(1, 100), 1) == pytest.approx(2 * 100**2, rel=2e-3)
