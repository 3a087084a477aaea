"""Baselines: shapes, exactness without noise, known errors, and the error formulas that judge them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks import exact_errors, local_planes
from benchmarks.baselines import common, linear, local_boxes, local_grids, local_haar, planar, registry
from benchmarks.measure import all_ranges, measure, one_length, prefix_errors
from dpsql.client.plan import largest_weight
from dpsql.mechanisms.local.oracles import spread
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
    if name != "flat":
        np.testing.assert_allclose(estimate, counts, atol=1e-5)


def test_hadamard_rows_are_orthogonal() -> None:
    np.testing.assert_array_equal(local_haar.hadamard(8) @ local_haar.hadamard(8).T, 8 * np.eye(8))


def test_haar_coefficients_are_unbiased_with_their_known_variance() -> None:
    """Variance (((e^eps + 1)/(e^eps - 1))^2 - x^2) / n; e^eps = 3 gives 4 - x^2."""
    rng, halves = np.random.default_rng(0), np.array([[300, 100], [0, 100], [250, 50], [0, 200]])
    draws = np.array([local_haar.coefficients(halves, 3 << 20, rng) for _ in range(4000)])
    exact = (halves[:, 0] - halves[:, 1]) / 1000
    np.testing.assert_allclose(draws.mean(axis=0), exact, atol=4 * np.sqrt(4 / 1000 / 4000))
    np.testing.assert_allclose(draws.var(axis=0), (4 - exact**2) / 1000, rtol=0.1)


def test_haar_leaves_sum_to_one_and_are_unbiased() -> None:
    rng, shares = np.random.default_rng(1), np.array([0.1, 0.2, 0.0, 0.3, 0.05, 0.05, 0.3, 0.0])
    draws = np.array([local_haar.haar(shares, 30_000, "1", rng) for _ in range(600)])
    np.testing.assert_allclose(draws.sum(axis=1), 1)
    np.testing.assert_allclose(draws.mean(axis=0), shares, atol=4 * draws.std() / np.sqrt(600))
    with pytest.raises(ValueError, match="power of two"):
        local_haar.haar(np.full(6, 1 / 6), 100, "1", rng)


def some_people(count: int, axes: int, size: int, seed: int) -> np.ndarray:
    """Leaves of which the first two axes hang together; pairs tell all about them."""
    rng = np.random.default_rng([seed, 1])
    leaves = rng.integers(0, size // 2 + 1, (count, axes))
    leaves[:, :2] += rng.integers(0, size // 2, (count, 1))
    return leaves


BOXES = np.array([[[1, 7], [0, 16]], [[3, 12], [5, 9]], [[0, 16], [0, 16]]])


def exact_boxes(leaves: np.ndarray) -> np.ndarray:
    return local_planes.truth(leaves, BOXES)


def test_hio_is_unbiased_with_its_known_variance() -> None:
    """A whole axis and [1, 7) of the other, six leaves of one group in nine: 6 v / n and less than 2 / n of people."""
    rng, leaves = np.random.default_rng(2), some_people(9_000, 2, 16, 2)
    draws = np.array([local_boxes.hio(leaves, [16, 16], "1", BOXES, rng) for _ in range(800)])
    exact, error = exact_boxes(leaves), draws.std(axis=0)
    np.testing.assert_allclose(draws.mean(axis=0), exact, atol=4 * error.max() / np.sqrt(800))
    assert draws[:, 2] == pytest.approx(1)
    covers = local_boxes.pieces(1, 7, 16)
    assert [(p.level, p.nodes) for p in covers] == [(2, 6)]
    known = 6 * spread(largest_weight(ONE)) / 1000
    assert 0.9 * known < draws[:, 0].var() < 1.1 * (known + 2 / 1000)


@pytest.mark.parametrize("low, high", [(0, 16), (1, 7), (3, 12), (4, 8), (15, 16), (0, 5)])
def test_covers_hold_every_leaf_once(low: int, high: int) -> None:
    covers = local_boxes.pieces(low, high, 16)
    held = sum(p.held.astype(int) for p in covers)
    np.testing.assert_array_equal(held, (np.arange(16) >= low) & (np.arange(16) < high))


@pytest.mark.parametrize(
    "answer", [local_boxes.direct, local_boxes.by_pairs, local_grids.grids, local_grids.marginals]
)
@pytest.mark.parametrize("axes", [2, 3])
def test_boxes_of_several_axes_come_near_with_many_reports(answer: local_boxes.Answer, axes: int) -> None:
    leaves = some_people(400_000, axes, 8, 3)
    boxes = np.array([[[0, 4]] * axes, [[2, 8]] * axes, [[0, 8]] * axes])
    found = answer(leaves, [8] * axes, "6", boxes, np.random.default_rng(3))
    np.testing.assert_allclose(found, local_planes.truth(leaves, boxes), atol=0.02)


def test_agreed_views_tell_one_story_and_keep_their_total() -> None:
    rng = np.random.default_rng(4)
    views = [local_grids.View((0,), rng.random(8)), local_grids.View((0, 1), rng.random((4, 4)))]
    views = [local_grids.View(v.axes, v.shares / v.shares.sum()) for v in views]
    first, second = local_grids.agreed(views, 0, 4)
    np.testing.assert_allclose(first.shares.reshape(4, 2).sum(axis=1), second.shares.sum(axis=1))
    # a block of the first view adds up 2 cells, of the second 4: weights 2 to 1
    mean = (2 * views[0].shares.reshape(4, 2).sum(axis=1) + views[1].shares.sum(axis=1)) / 3
    np.testing.assert_allclose(second.shares.sum(axis=1), mean)


def test_marginal_views_are_unbiased() -> None:
    leaves = some_people(4_000, 2, 8, 5)
    draws = [
        local_grids.collected(
            leaves, [8, 8], [((0, 1), (4, 4)), ((1,), (8,))], "1", np.random.default_rng(run)
        )
        for run in range(400)
    ]
    for view, cells in ((0, 4), (1, 8)):
        seen = np.array([d[view].shares for d in draws])
        exact = np.histogramdd(
            leaves[:, list(draws[0][view].axes)], [np.linspace(0, 8, cells + 1)] * (2 - view)
        )[0]
        np.testing.assert_allclose(seen.mean(axis=0), exact / 4_000, atol=4 * seen.std() / np.sqrt(400))


def test_response_agrees_with_grid_and_axes() -> None:
    rows, columns = np.array([0.1, 0.2, 0.3, 0.4]), np.array([0.25, 0.25, 0.4, 0.1])
    grid = np.array([[0.2, 0.1], [0.3, 0.4]])
    table = local_grids.response(rows, columns, grid, (8, 4))
    np.testing.assert_allclose(table.reshape(2, 4, 2, 2).sum(axis=(1, 3)), grid, atol=1e-6)
    np.testing.assert_allclose(table.reshape(4, 2, 4).sum(axis=(1, 2)), rows, atol=1e-6)
    np.testing.assert_allclose(table.sum(axis=0), columns, atol=1e-6)
