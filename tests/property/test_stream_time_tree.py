"""The time axis against dense weighted least squares, at every length."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.mechanisms.continual.time_tree import TimeTreeStrategy
from dpsql.mechanisms.distribution import LAPLACE
from dpsql.tree import FloatArray
from tests.time_forms import mean_error, running_total

PLANS = [
    TimeTreeStrategy(LAPLACE),
    TimeTreeStrategy(LAPLACE, (1, 4), (6, 4)),
    TimeTreeStrategy(LAPLACE, (1, 3, 12), (5, 3, 2)),
    TimeTreeStrategy(LAPLACE, (1, 2, 4, 16), (5, 3, 2, 2)),
]


def dense(plan: TimeTreeStrategy, batches: int) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Published rows in their order, their precisions and the covariance of the least-squares estimate."""
    emissions = [emission for batch in range(batches) for emission in plan.emissions(batch)]
    batch = np.arange(batches)
    rows = np.array([(e.lo <= batch) & (batch < e.hi) for e in emissions]).astype(float)
    precision = np.array([1 / plan.level_variance[e.level] for e in emissions])
    return rows, precision, np.linalg.inv(rows.T @ (precision[:, None] * rows))


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("batches", [1, 3, 4, 5, 12, 16, 37, 50])
def test_regular_plans(plan: TimeTreeStrategy, batches: int) -> None:
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
def test_running_total_equals_the_batch_estimate(plan: TimeTreeStrategy) -> None:
    rng = np.random.default_rng(7)
    state = running_total(plan)
    measured: list[float] = []
    for batch in range(1, 51):
        values = rng.normal(size=len(plan.emissions(batch - 1))).tolist()
        measured += values
        state = state.append(values)
        assert state.estimate == pytest.approx(
            float(plan.estimate(batch, np.array(measured)).sum()), abs=1e-9
        )
        assert state.variance == pytest.approx(float(plan.variance(batch).ranges(0, batch)[0]))
    assert plan.running_totals(50)[-1] == pytest.approx(state.variance)
    with pytest.raises(ValueError, match="zip"):
        state.append([1.0] * 9)


def test_closed_nodes_never_reopen() -> None:
    """Once a top block is closed, later batches change neither its estimates nor their variance."""
    plan = TimeTreeStrategy(LAPLACE, (1, 3, 6), (5, 3, 2))
    measured = np.random.default_rng(3).normal(size=45)

    def upto(batches: int) -> FloatArray:
        return plan.estimate(batches, measured[: sum(batches // span for span in plan.spans)])

    for batches in range(6, 30):
        closed = batches // 6 * 6
        assert (upto(batches)[:closed] == upto(30)[:closed]).all()
