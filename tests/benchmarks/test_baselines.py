"""Baselines: shapes, exactness without noise, known errors, and the error formulas that judge them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.baselines import common, local_boxes, shipped
from benchmarks.central.expected import one_axis
from benchmarks.central.measure import RIVALS, Cell, exact_errors
from benchmarks.central.ranges import all_ranges, drawn_error, prefix_errors
from benchmarks.local import planes as local_planes
from dpsql.noise import ZeroNoise

ONE = Fraction(1)


@pytest.mark.parametrize("name", list(RIVALS))
@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_every_mechanism_takes_any_number_of_cells(name: str, n: int) -> None:
    counts = (np.arange(n) % 5 * 10).astype(np.int64)
    estimate = RIVALS[name](counts, ONE, common.SimulationNoise(1))
    assert estimate.shape == (n,) and estimate.dtype == np.float64
    assert np.isfinite(estimate).all()


@pytest.mark.parametrize("name", [*shipped.STRATEGIES, "tents, non-negative", "HB, non-negative"])
def test_linear_mechanisms_are_exact_without_noise(name: str) -> None:
    counts = np.array([3, 0, 0, 9, 1, 250, 7, 0, 0, 4, 4, 4, 1], np.int64)
    np.testing.assert_allclose(RIVALS[name](counts, ONE, ZeroNoise()), counts, atol=1e-6)


def test_expected_errors_are_the_known_ones() -> None:
    errors = one_axis(256)
    assert errors.pop("auto") <= 66
    assert errors == pytest.approx({"identity": 172.0, "binary tree": 264.78, "LUE-DPTree": 82.3}, rel=1e-3)


def test_unbiased_rivals_count_with_their_exact_errors() -> None:
    """A lucky or unlucky draw of a mechanism whose expectation is known would move the ratio by a tenth."""
    zeros = np.zeros(256, np.int64)
    for name, error in exact_errors(256).items():
        if name != "identity":  # integer noise at epsilon 1 is 8% smaller there
            noises = [common.SimulationNoise(seed) for seed in range(60)]
            drawn = [drawn_error(zeros, RIVALS[name](zeros, ONE, noise), ONE) for noise in noises]
            assert np.mean(drawn) == pytest.approx(error, rel=4 * np.std(drawn) / error / 60**0.5)
    assert Cell("d", 0.1, 75.0, 1.0, "HB", 50.0, 0.0).ratio == 1.5


def test_range_errors_equal_brute_force() -> None:
    rng = np.random.default_rng(0)
    counts, estimate = rng.integers(0, 9, 12), rng.normal(size=12)
    wrong = counts - estimate
    squares = [wrong[i:j].sum() ** 2 for i in range(12) for j in range(i + 1, 13)]
    assert all_ranges(prefix_errors(counts, estimate)) == pytest.approx(np.mean(squares))
    assert drawn_error(counts, estimate, Fraction(1, 2)) == pytest.approx(np.mean(squares) / 4)


def some_people(count: int, axes: int, size: int, seed: int) -> np.ndarray:
    """Leaves of which the first two axes hang together; pairs tell all about them."""
    rng = np.random.default_rng([seed, 1])
    leaves = rng.integers(0, size // 2 + 1, (count, axes))
    leaves[:, :2] += rng.integers(0, size // 2, (count, 1))
    return leaves


@pytest.mark.long
@pytest.mark.parametrize("axes", [2, 3])
def test_boxes_of_several_axes_come_near_with_many_reports(axes: int) -> None:
    leaves = some_people(400_000, axes, 8, 3)
    boxes = np.array([[[0, 4]] * axes, [[2, 8]] * axes, [[0, 8]] * axes])
    found = local_boxes.by_pairs(leaves, [8] * axes, "6", boxes, np.random.default_rng(3))
    np.testing.assert_allclose(found, local_planes.truth(leaves, boxes), atol=0.02)
