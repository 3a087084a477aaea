"""People of ranges: least squares against dense matrices, variances against them and against drawn noise."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.central.people import gap_cells
from dpsql.matrices.distinct import (
    CELLS,
    GapReading,
    Single,
    TouchedReading,
    gap_model,
    gap_total,
    gap_weights,
    gaps_of,
    ranges_of,
)
from dpsql.mechanisms.designs.distinct import Gaps, Touched
from dpsql.mechanisms.designs.measurement import DrawnMember, DrawParameters
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy


def dense(n: int, norm: int) -> tuple[np.ndarray, np.ndarray]:
    """(estimates of ranges from rows, their covariance) by constrained least squares written out."""
    before, after = gaps_of(n)
    rows = np.vstack([before == -1, np.eye(len(before))]).astype(float)
    precision = np.diag((gap_weights(n) / gap_total(n)) ** (2 / norm))
    flow = np.array([(after == v).astype(float) - (before == v) for v in range(n)])
    normal = np.block([[rows.T @ precision @ rows, flow.T], [flow, np.zeros((n, n))]])
    solved = np.linalg.inv(normal)[: len(before), : len(before)]
    i, j = ranges_of(n)
    asked = ((before < i[:, None]) & (after >= i[:, None]) & (after < j[:, None])).astype(float)
    return asked @ solved @ rows.T @ precision, asked @ solved @ asked.T


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_least_squares_and_covariances_are_the_dense_ones(n, norm):
    estimates, covariance = dense(n, norm)
    model, (i, j) = gap_model(n, norm), ranges_of(n)
    rows = np.random.default_rng(n).normal(size=(3, len(gap_weights(n))))
    np.testing.assert_allclose(model.estimate(rows), rows @ estimates.T, atol=1e-9)
    a, b = (each.ravel() for each in np.indices((len(i), len(i))))
    found = model.covariance((i[a], j[a]), (i[b], j[b])).reshape(len(i), -1)
    np.testing.assert_allclose(found, covariance, atol=1e-9)
    masks = ((np.arange(n) >= i[:, None]) & (np.arange(n) < j[:, None])).astype(float)
    single = Gaps((n,), 0, norm).facts.model
    np.testing.assert_allclose(GapReading((single,), {(0,): 2.0}).matrix([masks]), 2 * covariance, atol=1e-9)


def people_of(touched: np.ndarray, own: np.ndarray, cells: int) -> np.ndarray:
    """Exact rows of people who touch what a table of truths says."""
    c, p, k, last = [], [], [], []
    for cell, row in zip(own, touched, strict=True):
        leaves = np.flatnonzero(row)
        c += [cell] * len(leaves)
        p += [-1, *leaves[:-1]]
        k += [*leaves]
        last += [0] * (len(leaves) - 1) + [1]
    found = {name: np.array(values) for name, values in (("c", c), ("p", p), ("k", k), ("lasts", last))}
    return gap_cells(found | {"people": np.ones(len(c), np.int64)}, cells, touched.shape[1])


@pytest.mark.parametrize("law", [LAPLACE, GAUSSIAN])
def test_intervals_of_ranges_hold_the_people(law):
    """60 draws; a range's 95% interval holds in 93 to 97%, and no noise is no error."""
    chance = np.random.default_rng(4)
    touched = chance.random((900, 6)) < 0.35
    touched = touched[touched.any(axis=1)]
    own = chance.integers(0, 3, len(touched))
    exact, gaps, (i, j) = people_of(touched, own, 3), Gaps((3, 6), 1, law.norm), ranges_of(6)
    wanted = np.array([[touched[own == c, a:b].any(axis=1).sum() for a, b in zip(i, j, strict=True)]
                       for c in range(3)])  # fmt: skip
    terms = DrawParameters((), law, Fraction(1, 2), 1)
    clean = gaps.draw(exact, terms, ZeroNoise())
    np.testing.assert_allclose(gaps.estimate([DrawnMember((), clean)], {})[0].leaves, wanted, atol=1e-6)
    noise, held = ExactNoise(insecure_test_entropy(8)), []
    reading = GapReading((gaps.facts.model,), {(0, 1): gaps.variance_at_unit_budget(terms)})
    masks = ((np.arange(6) >= i[:, None]) & (np.arange(6) < j[:, None])).astype(float)
    sd = np.sqrt(reading.covariance([np.eye(3)[[0] * len(i)], masks]).noise)
    for _ in range(60):
        found = gaps.estimate([DrawnMember((), gaps.draw(exact, terms, noise))], {})[0].leaves
        held.append(np.abs(found - wanted) <= 1.95996 * sd)
    assert 0.93 <= float(np.mean(held)) <= 0.97


def test_cells_take_single_leaves_and_sums_over_own_axes():
    reading = TouchedReading((Single(CELLS, -1, 0, (3, 4), (1, 0)),), {(0, 1): 2.0})
    assert reading.takes([[np.ones((1, 3)), np.eye(4)[[2]]]])
    assert not reading.takes([[np.ones((1, 3)), np.ones((1, 4))]])
    assert not reading.takes([[np.eye(3)[[0]], np.eye(4)[[2]] / 2]])
    both = [[np.eye(3)[[0]], np.eye(4)[[2]]], [np.eye(3)[[1]], np.eye(4)[[3]]]]
    assert reading.takes(both)
    assert not reading.takes([both[0], [np.eye(3)[[0]], np.eye(4)[[3]]]])
    assert reading.covariance([np.ones((1, 3)), np.eye(4)[[2]]]).noise.tolist() == [6.0]
    assert Touched((3, 4), (True, False)).most == 4
