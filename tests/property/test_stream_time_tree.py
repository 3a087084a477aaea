"""The time axis against dense weighted least squares, for regular and calendar blocks, at every length."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpsql.mechanisms.continual.time_tree import TimeTreeStrategy, TreeErrors, time_blue, time_variance
from dpsql.mechanisms.distribution import LAPLACE
from dpsql.tree import FloatArray, IntArray
from tests.time_forms import running_total

PLANS = [
    TimeTreeStrategy(LAPLACE),
    TimeTreeStrategy(LAPLACE, (1, 4), (6, 4)),
    TimeTreeStrategy(LAPLACE, (1, 3, 12), (5, 3, 2)),
    TimeTreeStrategy(LAPLACE, (1, 2, 4, 16), (5, 3, 2, 2)),
]


def dense(edges: tuple[IntArray, ...], variances: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Rows, their precisions and the covariance of the least-squares estimate of the batches."""
    n = int(edges[0][-1])
    batch = np.arange(n)
    rows = np.concatenate([(b[:-1, None] <= batch) & (batch < b[1:, None]) for b in edges]).astype(float)
    precision = np.concatenate([np.full(b.size - 1, 1 / v) for b, v in zip(edges, variances, strict=True)])
    return rows, precision, np.linalg.inv(rows.T @ (precision[:, None] * rows))


def check(edges: tuple[IntArray, ...], variances: FloatArray, seed: int) -> None:
    n = int(edges[0][-1])
    rng = np.random.default_rng(seed)
    rows, precision, covariance = dense(edges, variances)
    axis = time_variance(edges, variances)
    prefix = np.vstack([np.zeros(n), np.tril(np.ones((n, n)))])
    lo, hi = np.triu_indices(n + 1)
    ask = prefix[hi] - prefix[lo]
    wanted = np.einsum("ij,jk,ik->i", ask, covariance, ask)
    assert np.allclose(axis.ranges(lo, hi), wanted, rtol=1e-9, atol=1e-9)
    assert TreeErrors((1,), np.array(variances), axis).range() == pytest.approx(wanted[hi > lo].mean())
    measured = [rng.normal(size=(b.size - 1, 2)) for b in edges]
    estimate = covariance @ (rows.T @ (precision[:, None] * np.concatenate(measured)))
    assert np.allclose(time_blue(edges, variances, measured), estimate, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("batches", [1, 3, 4, 5, 12, 16, 37, 50])
def test_regular_plans(plan: TimeTreeStrategy, batches: int) -> None:
    check(plan.edges(batches), plan.level_variance, batches)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8), st.data())
def test_calendar_blocks(lengths: list[int], data: st.DataObject) -> None:
    """Blocks of unequal length, an outer level over some of them, and an open tail."""
    bounds = np.concatenate(([0], np.cumsum(lengths)))
    closed = data.draw(st.integers(0, len(lengths)))
    outer = data.draw(st.integers(0, closed // 2))
    n = int(bounds[-1])
    edges = (np.arange(n + 1), bounds[: closed + 1], bounds[: 2 * outer + 1 : 2])
    variances = np.array(data.draw(st.lists(st.floats(0.5, 50), min_size=3, max_size=3)))
    check(edges, variances, n)


@pytest.mark.parametrize("plan", PLANS)
def test_running_total_equals_the_batch_estimate(plan: TimeTreeStrategy) -> None:
    rng = np.random.default_rng(7)
    variances = plan.level_variance
    state = running_total(plan)
    measured: list[list[float]] = [[] for _ in plan.spans]
    for batch in range(1, 51):
        closing = [level for level, span in enumerate(plan.spans) if batch % span == 0]
        values = rng.normal(size=len(closing)).tolist()
        for level, value in zip(closing, values, strict=True):
            measured[level].append(value)
        state = state.append(values)
        edges = plan.edges(batch)
        blue = time_blue(edges, variances, [np.array(m) for m in measured])
        assert state.estimate == pytest.approx(float(blue.sum()), abs=1e-9)
        assert state.variance == pytest.approx(float(time_variance(edges, variances).ranges(0, batch)))
    assert np.allclose(plan.errors(50).running_totals()[-1], 2 * state.variance)
    with pytest.raises(ValueError, match="zip"):
        state.append([1.0] * 9)


def test_closed_nodes_never_reopen() -> None:
    """Once a top block is closed, later batches change neither its estimates nor their variance."""
    plan = TimeTreeStrategy(LAPLACE, (1, 3, 6), (5, 3, 2))
    rng = np.random.default_rng(3)
    measured = [rng.normal(size=30), rng.normal(size=10), rng.normal(size=5)]

    def upto(batches: int) -> FloatArray:
        edges = plan.edges(batches)
        return time_blue(
            edges, plan.level_variance, [m[: b.size - 1] for m, b in zip(measured, edges, strict=True)]
        )

    for batches in range(6, 30):
        closed = batches // 6 * 6
        assert (upto(batches)[:closed] == upto(30)[:closed]).all()


def test_range_outside_the_axis_is_refused() -> None:
    axis = TimeTreeStrategy(LAPLACE).errors(5).axis
    for lo, hi in ((0, 6), (-1, 2), (3, 2)):
        with pytest.raises(ValueError, match="batches"):
            axis.ranges(lo, hi)
    with pytest.raises(ValueError, match="boundaries"):
        time_variance((np.arange(6), np.array([0, 7])), [1.0, 1.0])
