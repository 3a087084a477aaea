"""Strategies: exact sensitivity, exact measurement, least squares along an axis."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.errors import InternalError
from dpsql.matrices.intervals import transform
from dpsql.matrices.strategy import check_sensitivity, estimate, measure
from dpsql.mechanisms.axis import thaw
from dpsql.mechanisms.axis.dense import (
    convolve,
    dense_rows,
    dense_strategy,
    sine_strategy,
    table,
    zero_sum_strategy,
)
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.tents import interval_strategy, tents
from dpsql.mechanisms.axis.tree import equal_strategy, lue_dptree, stored_nodes, tree_strategy
from dpsql.mechanisms.distribution import GAUSSIAN
from dpsql.tree import kary_tree
from tests.strategies import column_bound, dense

N = 40
STRATEGIES = {
    "identity": leaf_strategy(N),
    "tree": lue_dptree(kary_tree(N, 3)),
    "no root": tree_strategy(kary_tree(N, 4), np.array([0.0] + [1 / 3] * (kary_tree(N, 4).size - 1))),
    "equal": equal_strategy(kary_tree(N, 2)),
    "tents": tents(N, (3, 9)),
    "gaussian tree": lue_dptree(kary_tree(N, 3), law=GAUSSIAN),
    "dense": dense_strategy(N),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_sensitivity_is_the_dense_column_sum_and_nearly_the_whole(name):
    strategy = STRATEGIES[name]
    weighted = np.abs(dense(strategy)).astype(object) * strategy.budget[:, None]
    columns = (weighted**strategy.norm).sum(axis=0)
    whole = strategy.total**strategy.norm
    assert whole * (1 - 2e-4) < max(int(column) for column in columns) == column_bound(strategy) <= whole


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
    y = np.random.default_rng(4).normal(size=(len(strategy.budget), 5)) * strategy.total
    wanted = np.linalg.solve(rows.T @ (weight[:, None] * rows), rows.T @ (weight[:, None] * y))
    found = estimate(strategy, y.T, axis=1).T
    assert np.abs(found - wanted).max() < 1e-12 * np.abs(wanted).max()


def test_a_strategy_that_understates_its_sensitivity_is_refused():
    good = STRATEGIES["tents"]
    assert len(interval_strategy(**good.stored).budget) == good.rows.number
    with pytest.raises(InternalError, match="sensitive"):
        interval_strategy(**{**good.stored, "total": good.total - 1})
    with pytest.raises(InternalError, match="entries"):
        interval_strategy(**{**good.stored, "entry": good.rows.entry << 50, "total": 1 << 62})
    tree, square = STRATEGIES["tree"], STRATEGIES["dense"].stored
    with pytest.raises(InternalError, match="sensitive"):
        replace(tree, budget=tree.budget * 0)
    with pytest.raises(InternalError, match="sensitive"):
        stored_nodes(**{**tree.stored, "total": tree.total - 1})
    with pytest.raises(InternalError, match="sensitive"):
        dense_rows(**{**square, "total": square["total"] * 9 // 10})


@pytest.mark.parametrize("strategy", [*STRATEGIES.values(), sine_strategy(3000), zero_sum_strategy(7)])
def test_a_stored_strategy_measures_and_answers_alike(strategy):
    again = thaw(strategy.kind, json.loads(json.dumps(strategy.frozen())))
    x = np.random.default_rng(8).integers(0, 100, (strategy.leaves, 2))
    assert np.array_equal(measure(again, x), measure(strategy, x))
    assert (again.total, again.norm) == (strategy.total, strategy.norm)
    assert np.array_equal(again.solver.ranges(0, [1, 7]), strategy.solver.ranges(0, [1, 7]))
    with pytest.raises(InternalError, match="no strategy"):
        thaw("circulant", {})


def test_inner_nodes_cannot_spend_more_than_the_whole():
    with pytest.raises(InternalError):
        tree_strategy(kary_tree(4, 2), np.full(7, 0.6))


@given(st.integers(1, 200), st.integers(2, 8), st.sampled_from([1, 2]), st.integers(0, 2**32))
def test_path_sums_hold_for_any_real_budgets(n, k, norm, seed):
    tree = kary_tree(n, k)
    real = np.random.default_rng(seed).random(tree.size)
    path = real**norm
    for part in tree.level_slices[1:]:
        path[part] += path[tree.parent[part]]
    strategy = tree_strategy(tree, real / path.max() ** (1 / norm), total=1 << 12, norm=norm)
    assert column_bound(strategy) <= strategy.total**norm
    assert np.all(np.isin(tree.leaves, strategy.stored["node"]))


@pytest.mark.parametrize(("n", "scale"), [(1, 4), (2, 64), (30, 1 << 6), (300, 1 << 10), (1009, 1 << 20)])
def test_sine_rows_are_the_integer_matrix_of_their_table_and_stay_within_their_bound(n, scale):
    strategy, entries = sine_strategy(n, scale), table(n, scale).astype(object)
    i, j = np.arange(1, n + 1)[:, None], np.arange(1, n + 1)
    rows = entries[np.abs(i - j)] - entries[i + j]
    assert max((rows**2).sum(axis=0)) <= strategy.total**2
    near = transform(np.eye(n), 0.25) * scale
    assert np.abs(rows.astype(float) - near).max() <= 1.01
    x = np.random.default_rng(6).integers(-(10**9), 10**9, (n, 2))
    assert np.array_equal(measure(strategy, x), rows @ x)
    large = np.full(n, 1 << 61)
    # wraps, does not fail
    assert not np.any((rows @ large.astype(object) - measure(strategy, large)) % (1 << 64))
    with pytest.raises(InternalError, match="sensitive"):
        check_sensitivity(strategy, strategy.total**2 + 1)


@given(
    st.lists(st.integers(-(2**40), 2**40), min_size=1, max_size=40),
    st.lists(st.integers(-(2**15), 2**15), min_size=1, max_size=40),
)
def test_convolution_is_exact(a, b):
    found = convolve(np.array(a), np.array(b), 2**61)
    assert found.tolist() == np.convolve(np.array(a, object), np.array(b, object)).tolist()
