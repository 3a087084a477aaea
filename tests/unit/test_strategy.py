"""Strategies: exact sensitivity, exact measurement, least squares along an axis."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InternalError
from dpsql.mechanisms.central.gaussian import dense_strategy, sine_strategy
from dpsql.mechanisms.central.lue_dptree import identity_strategy, lue_dptree, tree_strategy
from dpsql.mechanisms.central.sine_rows import largest_count
from dpsql.mechanisms.central.strategy import Strategy, dense, estimate, measure, sensitivity, variance_model
from dpsql.mechanisms.central.struct_construct import equal_strategy
from dpsql.mechanisms.central.tents import tents
from dpsql.tree import kary_tree

N = 40
STRATEGIES = {
    "identity": identity_strategy(N),
    "tree": lue_dptree(kary_tree(N, 3)),
    "no root": tree_strategy(kary_tree(N, 4), np.array([0.0] + [1 / 3] * (kary_tree(N, 4).size - 1))),
    "equal": equal_strategy(kary_tree(N, 2)),
    "tents": tents(N, (3, 9)),
    "gaussian tree": lue_dptree(kary_tree(N, 3), norm=2),
    "dense": dense_strategy(N),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_sensitivity_is_the_dense_column_sum(name):
    strategy = STRATEGIES[name]
    weighted = np.abs(dense(strategy)).astype(object) * strategy.budget[:, None]
    columns = (weighted**strategy.norm).sum(axis=0)
    assert max(int(column) for column in columns) == sensitivity(strategy) <= strategy.total**strategy.norm


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_whole_budget_is_used(name):
    strategy = STRATEGIES[name]
    assert sensitivity(strategy) > strategy.total**strategy.norm * (1 - 2e-4)


@pytest.mark.parametrize("name", STRATEGIES)
def test_measure_is_exact_along_any_axis(name):
    strategy = STRATEGIES[name]
    x = np.random.default_rng(3).integers(-1000, 1000, (2, N, 3))
    y = measure(strategy, x, axis=1)
    rows = dense(strategy).astype(np.int64)
    assert y.dtype == np.int64
    assert np.array_equal(y, np.einsum("ri,aib->arb", rows, x))


@pytest.mark.parametrize("name", STRATEGIES)
def test_estimate_is_dense_weighted_least_squares(name):
    strategy = STRATEGIES[name]
    weight = (strategy.budget / strategy.total) ** 2
    rows = dense(strategy)
    y = np.random.default_rng(4).normal(size=(strategy.rows, 5)) * strategy.total
    wanted = np.linalg.solve(rows.T @ (weight[:, None] * rows), rows.T @ (weight[:, None] * y))
    found = estimate(strategy, y.T, axis=1).T
    assert np.abs(found - wanted).max() < 1e-12 * np.abs(wanted).max()


@pytest.mark.parametrize("name", STRATEGIES)
def test_without_noise_the_estimate_is_the_data(name):
    strategy = STRATEGIES[name]
    x = np.random.default_rng(5).integers(0, 1000, (N, 2))
    assert np.abs(estimate(strategy, measure(strategy, x)) - x).max() < 1e-9


def test_a_strategy_that_understates_its_sensitivity_is_refused():
    good = STRATEGIES["tents"]
    parts = {
        name: getattr(good, name) for name in ("kind", "n", "start", "stop", "offset", "entry", "budget")
    }
    assert Strategy(**parts, total=good.total).rows == good.rows
    with pytest.raises(InternalError):
        Strategy(**parts, total=good.total - 1)
    with pytest.raises(InternalError):
        Strategy(**(parts | {"budget": good.budget * 0}), total=good.total)
    with pytest.raises(InternalError):
        Strategy(**(parts | {"entry": good.entry << 50}), total=1 << 62)


def test_inner_nodes_cannot_spend_more_than_the_whole():
    with pytest.raises(InternalError):
        tree_strategy(kary_tree(4, 2), np.full(7, 0.6))


def test_sums_that_do_not_fit_are_refused():
    with pytest.raises(InternalError):
        measure(STRATEGIES["dense"], np.full(N, 1 << 50))


@given(st.integers(1, 200), st.integers(2, 8), st.sampled_from([1, 2]), st.integers(0, 2**32))
def test_path_sums_hold_for_any_real_budgets(n, k, norm, seed):
    tree = kary_tree(n, k)
    real = np.random.default_rng(seed).random(tree.size)
    path = real**norm
    for part in tree.level_slices[1:]:
        path[part] += path[tree.parent[part]]
    strategy = tree_strategy(tree, real / path.max() ** (1 / norm), total=1 << 12, norm=norm)
    assert sensitivity(strategy) <= strategy.total**norm
    assert np.all(np.isin(tree.leaves, strategy.node))


def test_real_rows_stay_within_their_declared_bound():
    n = 300
    strategy = sine_strategy(n, scale=1 << 10)
    random = np.random.default_rng(6)
    for _ in range(20):
        x = random.integers(0, 50, n)
        moved = x.copy()
        moved[random.integers(n)] += 1
        change = (measure(strategy, moved) - measure(strategy, x)).astype(float)
        assert np.linalg.norm(change) <= strategy.total
    with pytest.raises(InternalError):
        measure(strategy, np.full(n, largest_count(n)))
    assert measure(strategy, np.full(n, largest_count(n)), unit=n).shape == (n,)
    with pytest.raises(InternalError):
        Strategy(**{**vars(strategy), "total": strategy.total - 1})


def test_real_rows_give_the_data_back():
    strategy = sine_strategy(1500)
    x = np.random.default_rng(7).integers(0, 1000, (1500, 2))
    assert np.abs(estimate(strategy, measure(strategy, x)) - x).max() < 1e-3
    assert variance_model(strategy).kind == "sine"
