"""Product hats on planes against dense least squares."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.errors import InterfaceError, InternalError
from dpsql.mechanisms.axis.dense import workload_gram
from dpsql.mechanisms.family.plane import (
    ProductHats,
    best_product_hats,
    product_hats,
)
from dpsql.variance.plane import from_columns

STRATEGY = product_hats(11, 9, 3, 2, 0.4)


def dense_rows(strategy):
    model = strategy.joint_variance()
    return np.vstack([np.diag(model.leaf.ravel()), model.rows.reshape(len(model.rows), -1)])


def test_every_cell_spends_the_whole_exactly():
    rows = dense_rows(STRATEGY) * STRATEGY.total
    assert np.array_equal(np.rint(rows.sum(axis=0)), np.full(99, STRATEGY.total))
    with pytest.raises(InternalError):
        ProductHats(STRATEGY.leaf, STRATEGY.kernel, STRATEGY.total - 1)


def test_measure_and_estimate():
    x = np.random.default_rng(1).integers(0, 1000, (11, 9))
    y = STRATEGY.measure(x, ())
    assert np.array_equal(y, np.rint(dense_rows(STRATEGY) * STRATEGY.total).astype(np.int64) @ x.ravel())
    assert np.abs(STRATEGY.estimate(y) - x).max() < 1e-9
    noisy = y + np.random.default_rng(2).integers(-(10**5), 10**5, len(y))
    rows = dense_rows(STRATEGY)
    wanted = np.linalg.solve(rows.T @ rows, rows.T @ (noisy / STRATEGY.total))
    assert np.abs(STRATEGY.estimate(noisy).ravel() - wanted).max() < 1e-10
    large = np.full((11, 9), 1 << 50)  # sums wrap at 2^64, and so will their noise
    rows = np.rint(dense_rows(STRATEGY) * STRATEGY.total).astype(np.int64).astype(object)
    exact = rows @ large.astype(object).ravel()
    assert [int(v) % 2**64 for v in STRATEGY.measure(large, ())] == [int(v) % 2**64 for v in exact]


def test_variance_equals_the_dense_formula_and_survives_the_file():
    rows = dense_rows(STRATEGY)
    c = np.linalg.inv(rows.T @ rows)
    random = np.random.default_rng(3)
    u, v = random.normal(size=(7, 11)), random.normal(size=(7, 9))
    masks = np.einsum("ga,gb->gab", u, v).reshape(7, -1)
    model = STRATEGY.joint_variance()
    assert model.quadratic(u, v) == pytest.approx(np.einsum("gi,ij,gj->g", masks, c, masks), abs=1e-9)
    columns = model.columns()
    order = random.permutation(len(columns["value"]))
    again = from_columns({name: column[order] for name, column in columns.items()})
    assert again.shape == (11, 9)
    assert again.quadratic(u, v) == pytest.approx(model.quadratic(u, v))
    gram = np.kron(workload_gram(11), workload_gram(9))
    mean = model.mean_variance(workload_gram(11), workload_gram(9))
    assert mean == pytest.approx(np.trace(gram @ c))


@pytest.mark.parametrize(("n", "bound"), [(16, 64.5), (32, 176)])
def test_figures(n, bound):
    strategy, error = best_product_hats(n, n)
    assert error <= bound
    assert strategy.leaf.shape == (n, n)


def test_planes_of_unequal_axes_and_bad_ones():
    assert best_product_hats(6, 40)[1] > 0
    for n1, n2 in ((4, 40), (40, 200)):
        with pytest.raises(InterfaceError):
            best_product_hats(n1, n2)
    with pytest.raises(InterfaceError):
        product_hats(11, 9, 7, 2, 0.4)
