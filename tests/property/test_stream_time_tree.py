"""The time axis against dense weighted least squares, at every length."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.mechanisms.continual.time_tree import TimeStrategy, tree_strategy
from dpsql.mechanisms.distribution import LAPLACE
from dpsql.tree import FloatArray
from tests.time_forms import level_variance, mean_error, running_total

PLANS = [
    tree_strategy(LAPLACE),
    tree_strategy(LAPLACE, (1, 4), (6, 4)),
    tree_strategy(LAPLACE, (1, 3, 12), (5, 3, 2)),
    tree_strategy(LAPLACE, (1, 2, 4, 16), (5, 3, 2, 2)),
]


def dense(plan: TimeStrategy, batches: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Published rows in their order, their precisions and the covariance of the least-squares estimate."""
    emissions = [emission for batch in range(batches) for emission in plan.emissions(batch)]
    batch = np.arange(batches)
    rows = np.array([(e.lo <= batch) & (batch < e.hi) for e in emissions]).astype(float)
    precision = np.array([1 / level_variance(plan)[e.level] for e in emissions])
    return rows, precision, np.linalg.inv(rows.T @ (precision[:, None] * rows))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("batches", [1, 3, 4, 5, 12, 16, 37, 50])
def test_regular_plans(plan: TimeStrategy, batches: int) -> None:
    rows, precision, covariance = dense(plan, batches)
    prefix = np.vstack([np.zeros(batches), np.tril(np.ones((batches, batches)))])
    lo, hi = np.triu_indices(batches + 1)
    ask = prefix[hi] - prefix[lo]
    wanted = np.einsum("ij,jk,ik->i", ask, covariance, ask)
    assert np.allclose(plan.variance(batches).ranges(lo, hi), wanted, rtol=1e-9, atol=1e-9)
    assert mean_error(plan, batches, "range") == pytest.approx(2 * wanted[hi > lo].mean())
    measured = np.random.default_rng(batches).normal(size=(len(rows), 2))
    estimate = covariance @ (rows.T @ (precision[:, None] * measured))
    assert np.allclose(plan.estimate(batches, measured), estimate, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("plan", PLANS)
def test_running_total_equals_the_batch_estimate(plan: TimeStrategy) -> None:
    rng = np.random.default_rng(7)
    state = running_total(plan)
    measured, variances = list[float](), list[float]()
    for batch in range(1, 51):
        values = rng.normal(size=len(plan.emissions(batch - 1))).tolist()
        measured += values
        state = state.append(values)
        assert state.estimate == pytest.approx(
            float(plan.estimate(batch, np.array(measured)).sum()), abs=1e-9
        )
        assert state.variance == pytest.approx(float(plan.variance(batch).ranges(0, batch)[0]))
        variances.append(state.variance)
        assert mean_error(plan, batch, "running") == pytest.approx(2 * np.mean(variances))
    with pytest.raises(ValueError, match="zip"):
        state.append([1.0] * 9)


def test_closed_nodes_never_reopen() -> None:
    """Once a top block is closed, later batches change neither its estimates nor their variance."""
    plan = tree_strategy(LAPLACE, (1, 3, 6), (5, 3, 2))
    measured = np.random.default_rng(3).normal(size=45)

    def upto(batches: int) -> FloatArray:
        return plan.estimate(batches, measured[: sum(batches // span for span in plan.stored["spans"])])

    for batches in range(6, 30):
        closed = batches // 6 * 6
        assert (upto(batches)[:closed] == upto(30)[:closed]).all()
