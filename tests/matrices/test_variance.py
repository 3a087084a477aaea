"""Variance models against dense formulas and against simulation."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dpsql.errors import InternalError
from dpsql.matrices import covariance, mean_variance
from dpsql.matrices.intervals import IntervalVariance, SineVariance, column_norm
from dpsql.matrices.reading import from_columns
from dpsql.matrices.tree import TreeVariance
from dpsql.mechanisms.axis.dense import dense_strategy, sine_strategy
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.tents import tents
from dpsql.mechanisms.axis.tree import best_struct_construct, equal_strategy, lue_dptree
from dpsql.mechanisms.distribution import GAUSSIAN
from dpsql.tree import Workload, kary_tree
from tests.strategies import dense

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "central.json").read_text())
N = 64
STRATEGIES = {
    "identity": leaf_strategy(N),
    "lue k=2": lue_dptree(kary_tree(N, 2)),
    "lue k=5": lue_dptree(kary_tree(N, 5)),
    "struct construct": equal_strategy(best_struct_construct(N)),
    "tents 1": tents(N, (9,)),
    "tents 2": tents(N, (4, 13)),
    "tents 3": tents(N, (3, 7, 20)),
    "tents, root": tents(N, (7,), root=0.2),
    "tents, half-hat": tents(N, (9,), left=0.6),
    "gaussian tree": lue_dptree(kary_tree(N, 3), law=GAUSSIAN),
    "gaussian dense": dense_strategy(N),
    "gaussian sine": sine_strategy(N),
}


def leaf_covariance(strategy):
    if strategy.kind == "sine":
        leaf = np.arange(1, N + 1)
        values, vectors = np.linalg.eigh(
            np.minimum.outer(leaf, leaf) * (N + 1.0 - np.maximum.outer(leaf, leaf))
        )
        root = (vectors * np.sqrt(values)) @ vectors.T
        inverse = (vectors / np.sqrt(values)) @ vectors.T
        return np.diag(root).max() * inverse * (strategy.total / strategy.entry_scale) ** 2
    rows = (strategy.budget / strategy.total)[:, None] * dense(strategy)
    return np.linalg.inv(rows.T @ rows)


def all_ranges():
    lo, hi = np.triu_indices(N + 1)
    leaf = np.arange(N)
    return lo, hi, ((leaf >= lo[:, None]) & (leaf < hi[:, None])).astype(float)


@pytest.mark.parametrize("name", STRATEGIES)
def test_ranges_and_masks_equal_the_dense_formula(name):
    model, c = STRATEGIES[name].solver, leaf_covariance(STRATEGIES[name])
    lo, hi, masks = all_ranges()
    wanted = np.einsum("qi,ij,qj->q", masks, c, masks)
    assert np.abs(model.ranges(lo, hi) - wanted).max() < 1e-9
    other = np.random.default_rng(0).normal(size=(5, N))
    assert np.abs(model.quadratic(other) - np.einsum("qi,ij,qj->q", other, c, other)).max() < 1e-9
    inside = lo < hi
    assert mean_variance(model) == pytest.approx(wanted[inside].mean(), abs=1e-9)
    weight = np.random.default_rng(1).random(inside.sum())
    asked = Workload(lo[inside], hi[inside], weight)
    assert mean_variance(model, asked) == pytest.approx(wanted[inside] @ weight / weight.sum(), abs=1e-9)


@pytest.mark.parametrize("name", STRATEGIES)
def test_covariances_of_ranges_need_ranges_alone(name):
    model, c = STRATEGIES[name].solver, leaf_covariance(STRATEGIES[name])
    ends = np.sort(np.random.default_rng(2).integers(0, N + 1, (2, 2, 50)), axis=1)
    (i, j), (k, m) = ends
    leaf = np.arange(N)
    u = ((leaf >= i[:, None]) & (leaf < j[:, None])).astype(float)
    v = ((leaf >= k[:, None]) & (leaf < m[:, None])).astype(float)
    assert np.abs(covariance(model, i, j, k, m) - np.einsum("qi,ij,qj->q", u, c, v)).max() < 1e-9


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_model_survives_the_release_file_in_any_order(name):
    model = STRATEGIES[name].solver
    columns = model.columns()
    lengths = {len(column) for column in columns.values()}
    assert len(lengths) == 1
    order = np.random.default_rng(3).permutation(lengths.pop())
    again = from_columns(model.kind, N, {key: column[order] for key, column in columns.items()})
    lo, hi, _ = all_ranges()
    assert np.abs(again.ranges(lo, hi) - model.ranges(lo, hi)).max() < 1e-12 * model.ranges(0, N)[0]


def test_an_unknown_kind_is_refused():
    with pytest.raises(InternalError):
        from_columns("circulant", 4, {})
    with pytest.raises(InternalError):
        from_columns("tree", 5, STRATEGIES["lue k=2"].solver.columns())


def test_tree_vectors():
    vectors = VECTORS["tree_variance"]["V"]
    model = TreeVariance(kary_tree(4, 2), np.full(7, 1 / 9))
    for ends, wanted in vectors.items():
        lo, hi = map(int, ends.split(","))
        assert model.ranges(lo, hi)[0] == pytest.approx(wanted, abs=1e-10)


def test_sine_vectors():
    for leaves, wanted in VECTORS["gaussian_dst"]["V"].items():
        n = int(leaves)
        model = SineVariance(n, column_norm(n))
        assert model.ranges(n // 3 - 1, n // 2)[0] == pytest.approx(wanted, abs=1e-6 if n < 10**6 else 1e-5)


def test_a_long_axis_agrees_with_itself():
    # Ranges by carrying along 3,400 rows, against the quadratic form of the same masks.
    model = tents(20_000, (15, 170, 1900)).solver
    assert isinstance(model, IntervalVariance)
    random = np.random.default_rng(9)
    lo, hi = np.sort(random.integers(0, 20_001, (2, 20)), axis=0)
    leaf = np.arange(20_000)
    masks = ((leaf >= lo[:, None]) & (leaf < hi[:, None])).astype(float)
    assert model.ranges(lo, hi) == pytest.approx(model.quadratic(masks), rel=1e-9)
