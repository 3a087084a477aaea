"""The residual design against dense weighted least squares, and its budgets against small moves."""

from __future__ import annotations

from functools import reduce
from itertools import combinations

import numpy as np
import pytest

from dpsql.errors import InterfaceError
from dpsql.mechanisms.axis.dense import dense_strategy
from dpsql.mechanisms.axis.residual_axis import ResidualAxis, residual_axis, zero_sum_basis
from dpsql.mechanisms.central.residual import (
    ResidualDesign,
    closed_downwards,
    expected_error,
    residual_design,
)
from dpsql.variance import mean_variance

SIZES = (4, 3, 5)
SETS = [(0, 1), (1, 2), (0, 2)]


def design(rho: float = 0.5) -> ResidualDesign:
    return residual_design([residual_axis(n) for n in SIZES], dict.fromkeys(SETS, 1.0), rho)


def dense_covariance(made: ResidualDesign) -> np.ndarray:
    """Pseudo-inverse of the information that all rows together give about the cells."""
    information = np.zeros((np.prod(SIZES),) * 2)
    for part, variance in made.variance.items():
        factors = [axis.rows if i in part else np.ones((1, axis.n)) for i, axis in enumerate(made.axes)]
        rows = reduce(np.kron, factors)
        information += rows.T @ rows / variance
    return np.linalg.pinv(information, hermitian=True, rcond=1e-10)


def test_variance_is_that_of_dense_least_squares():
    made, draw = design(), np.random.default_rng(3)
    covariance = dense_covariance(made)
    for asked in closed_downwards(SETS):
        masks = [draw.random((6, n)) if i in asked else np.ones((6, n)) for i, n in enumerate(SIZES)]
        found = made.quadratic({i: masks[i] for i in asked})
        for g in range(len(found)):
            q = reduce(np.kron, [mask[g] for mask in masks])
            assert found[g] == pytest.approx(q @ covariance @ q, rel=1e-9)


def test_one_record_costs_what_the_budget_says():
    made = design(rho=0.0243)
    assert made.rho == pytest.approx(0.0243)
    column = np.zeros(np.prod(SIZES))
    for part, variance in made.variance.items():
        factors = [axis.rows if i in part else np.ones((1, axis.n)) for i, axis in enumerate(made.axes)]
        column += (reduce(np.kron, factors) ** 2).sum(axis=0) / (2 * variance)
    assert column.max() <= 0.0243 * (1 + 1e-9)


def test_no_move_of_the_budgets_lowers_the_error():
    made, asked = design(), dict.fromkeys(SETS, 1.0)
    best = expected_error(made, asked)
    draw = np.random.default_rng(1)
    for _ in range(50):
        moved = {part: v * float(np.exp(0.3 * draw.standard_normal())) for part, v in made.variance.items()}
        scale = sum(1 / v for v in moved.values()) / sum(1 / v for v in made.variance.values())
        other = ResidualDesign(made.axes, {part: v * scale for part, v in moved.items()})
        assert other.rho == pytest.approx(made.rho)
        assert expected_error(other, asked) >= best


def test_expected_error_is_the_mean_over_all_ranges():
    made = design()
    lo, hi = np.triu_indices(SIZES[1] + 1, 1)
    masks = np.array(
        [[a <= leaf < b for leaf in range(SIZES[1])] for a, b in zip(lo, hi, strict=True)], float
    )
    assert expected_error(made, {(1,): 1.0}) == pytest.approx(made.quadratic({1: masks}).mean())


def test_one_axis_alone_is_as_good_as_the_dense_optimum():
    alone = residual_design([residual_axis(32)], {(0,): 1.0}, 0.5)
    optimum = mean_variance(dense_strategy(32).variance())
    assert optimum * 0.999 < expected_error(alone, {(0,): 1.0}) < 1.1 * optimum


def test_residual_beats_separate_marginals():
    """Overlapping sets: an optimal design for each set alone, with the best shares of the budget, is worse."""
    sets = {s: 1.0 for k in (1, 2) for s in combinations(range(4), k)}
    axis, alone = residual_axis(16), mean_variance(dense_strategy(16).variance())
    separate = sum(np.sqrt(alone ** len(s)) for s in sets) ** 2 / len(sets)
    assert expected_error(residual_design([axis] * 4, sets, 0.5), sets) < 0.8 * separate


def test_basis_is_orthonormal_and_adds_to_zero():
    basis = zero_sum_basis(7)
    assert np.allclose(basis.T @ basis, np.eye(6))
    assert np.allclose(basis.sum(axis=0), 0)


def test_refusals():
    with pytest.raises(InterfaceError, match="declared together"):
        design().quadratic({i: np.ones((1, n)) for i, n in enumerate(SIZES)})
    with pytest.raises(InterfaceError, match="leaves"):
        residual_axis(1)
    with pytest.raises(InterfaceError, match="diagonal"):
        ResidualAxis(np.eye(3))
