"""Baselines: shapes, exactness without noise, known errors, and the error formulas that judge them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

from benchmarks.baselines import common, linear, planar, registry
from benchmarks.central import exact as exact_errors
from benchmarks.central.best import against_best
from benchmarks.central.page import cell_rows
from benchmarks.central.ranges import Row, all_ranges, measure, one_length, prefix_errors
from dpsql.noise import ZeroNoise
from dpsql.tree import kary_tree

ONE = Fraction(1)
EXACT = (
    "auto, unbiased", "tents", "LUE-DPTree", "SC + BLUE", "HB", "identity", "Dwork", "Boost", "Boost-UN", "Privelet",
    "HB as published", "tents, non-negative", "HB, non-negative",
)  # fmt: skip


@pytest.mark.parametrize("name", list(registry.ALL))
@pytest.mark.parametrize("n", [1, 2, 7, 100])
def test_every_mechanism_takes_any_number_of_cells(name: str, n: int) -> None:
    counts = (np.arange(n) % 5 * 10).astype(np.int64)
    estimate = registry.ALL[name](counts, ONE, common.SimulationNoise(1))
    assert estimate.shape == (n,) and estimate.dtype == np.float64
    assert np.isfinite(estimate).all()


@pytest.mark.parametrize("name", EXACT)
def test_linear_mechanisms_are_exact_without_noise(name: str) -> None:
    counts = np.array([3, 0, 0, 9, 1, 250, 7, 0, 0, 4, 4, 4, 1], np.int64)
    np.testing.assert_allclose(registry.ALL[name](counts, ONE, ZeroNoise()), counts, atol=1e-6)


def test_privelet_has_its_error() -> None:
    """221.1 at 256 cells for continuous noise; the discrete law of scale 9 is 0.1% below."""
    counts = np.zeros(256, np.int64)
    draws = [
        all_ranges(prefix_errors(counts, linear.privelet(counts, ONE, common.SimulationNoise(run))))
        for run in range(600)
    ]
    assert np.mean(draws) == pytest.approx(221.1, rel=0.05)


def test_expected_errors_are_the_known_ones() -> None:
    known = {
        "Dwork identity": 172.0,
        "Boost k=2": 264.78,
        "LUE-DPTree k=2": 180.4,
        "LUE-DPTree, best k": 82.3,
    }
    errors = exact_errors.exact_errors(256)
    for name, value in known.items():
        assert errors[name][1] == pytest.approx(value, rel=1e-3)
    assert errors["HB, root dropped"][1] == pytest.approx(79.2, rel=1e-3)
    assert errors["auto (unbiased)"][1] <= 66


def test_unbiased_rivals_count_with_their_exact_errors() -> None:
    """A lucky or unlucky draw of a mechanism whose expectation is known would move the ratio by a tenth."""
    exact = exact_errors.shipped_errors(256)
    unbiased = {name for name in registry.SHIPPED if name not in ("auto", "DiffHR, private")}
    assert {*exact} == {name for name in unbiased if "non-negative" not in name}
    zeros = np.zeros(256, np.int64)
    for name, error in exact.items():
        if name != "identity":  # integer noise at epsilon 1 is 8% smaller there
            noises = [common.SimulationNoise(seed) for seed in range(60)]
            drawn = [
                all_ranges(prefix_errors(zeros, registry.SHIPPED[name](zeros, Fraction(1), n)))
                for n in noises
            ]
            assert np.mean(drawn) == pytest.approx(error, rel=4 * np.std(drawn) / error / 60**0.5)
    pairs = [(epsilon, name) for epsilon in (0.01, 0.1, 1.0) for name in ("auto", "HB")]
    rows = [Row("chosen", "d", 256, epsilon, name, 0, 0, 65.8, 0.0) for epsilon, name in pairs]
    assert [row[3] for row in cell_rows(against_best(pd.DataFrame(rows), ["d"], ["HB"]))] == [
        "65.8, exact"
    ] * 3


def test_tree_blue_equals_weighted_least_squares() -> None:
    tree = kary_tree(11, 3)
    rng = np.random.default_rng(2)
    s = rng.integers(1, 50, tree.size)
    s[0] = 0
    y = rng.normal(10, 5, tree.size)
    rows = (np.arange(11) >= tree.lo[:, None]) & (np.arange(11) < tree.hi[:, None])
    dense = np.linalg.lstsq(rows * s[:, None], y * s, rcond=None)[0]
    np.testing.assert_allclose(common.tree_blue(tree, y, s), dense, atol=1e-9)


def test_overspent_paths_are_refused() -> None:
    tree = kary_tree(4, 2)
    with pytest.raises(ValueError, match="more than epsilon"):
        common.publish_tree(tree, np.full(tree.size, 0.5), np.zeros(4, np.int64), ONE, ZeroNoise())


def test_range_errors_equal_brute_force() -> None:
    rng = np.random.default_rng(0)
    counts, estimate = rng.integers(0, 9, 12), rng.normal(size=12)
    wrong = counts - estimate
    squares = [wrong[i:j].sum() ** 2 for i in range(12) for j in range(i + 1, 13)]
    prefix = prefix_errors(counts, estimate)
    assert all_ranges(prefix) == pytest.approx(np.mean(squares))
    assert one_length(prefix, 3) == pytest.approx(np.mean([wrong[i : i + 3].sum() ** 2 for i in range(10)]))


def test_rows_hold_all_ranges_and_every_power_of_two() -> None:
    rows = list(measure("test", "ones", np.ones(10, np.int64), ONE, "Dwork", linear.dwork, 3))
    assert [row.length for row in rows] == [0, 1, 2, 4, 8]


@pytest.mark.parametrize("name", list(planar.ALL))
def test_two_axes(name: str) -> None:
    counts = np.arange(24 * 30, dtype=np.int64).reshape(24, 30)
    estimate = planar.ALL[name](counts, ONE, ZeroNoise())
    assert estimate.shape == counts.shape
    if name not in ("flat", "UG", "AG", "DAWA along the Hilbert curve"):
        np.testing.assert_allclose(estimate, counts, atol=1e-5)
