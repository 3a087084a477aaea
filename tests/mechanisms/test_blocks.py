"""Blocks: grids and partitions that tile, estimates against dense least squares, errors against dense matrices."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.common import SimulationNoise
from dpsql.errors import InternalError
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.family import partition as estimates
from dpsql.mechanisms.family.block_plan import best_grid, forecast, loud_errors, run_moments, stages
from dpsql.mechanisms.family.blocks import Blocks
from dpsql.mechanisms.family.measurement import Terms
from dpsql.mechanisms.family.partition import (
    BlockGrid,
    BlockRows,
    Partition,
    Selection,
    Variances,
    block_grid,
    partition,
)
from dpsql.mechanisms.family.question import FamilyAxis, Grains
from dpsql.mechanisms.law import LAPLACE
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.tree import Workload
from dpsql.variance.blocks import BlockReading, BlockVariance, from_columns
from dpsql.variance.pooled import StoredCovariance

GRID = block_grid((19, 10), (2, 1), 3)


def axis(leaves: int, strips: int = 0, workload: Workload | None = None) -> FamilyAxis:
    return FamilyAxis("x", leaves, workload, Grains(1, 1), strips)


def looked(grid: BlockGrid, seed: int, bar: int = 20) -> Partition:
    """A partition with loud blocks, single leaves and merged ones."""
    rng = np.random.default_rng(seed)
    look = np.where(rng.random(grid.shape) < 0.15, 99, rng.integers(-9, 12, grid.shape))
    return partition(grid, look, bar, Fraction(5), 1)


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=3), st.integers(2, 5), st.integers(0, 10**6), st.data()
)
def test_pieces_tile_the_cells_exactly_once(
    leaves: list[int], side: int, seed: int, data: st.DataObject
) -> None:
    strips = [data.draw(st.integers(0, min(3, n - 1))) for n in leaves]
    found = looked(block_grid(leaves, strips, side), seed)
    held = np.zeros(leaves, np.int64)
    for low, high in np.moveaxis(found.bounds, 2, 1):
        held[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] += 1
    assert np.all(held == 1)
    assert np.array_equal(np.unique(found.rows), np.arange(found.row_count))
    assert found.row_count == np.count_nonzero(~found.loud) + found.cells[found.loud].sum()
    for (low, high), loud in zip(np.moveaxis(found.bounds, 2, 1), found.loud, strict=True):
        own = found.rows[tuple(slice(a, b) for a, b in zip(low, high, strict=True))]
        assert len(np.unique(own)) == (own.size if loud else 1)


def test_strips_are_never_merged_with_values() -> None:
    grid = block_grid((18, 17), (2, 1), 4)
    found = partition(grid, np.zeros(grid.shape, np.int64), 20, Fraction(5), 1)
    for low, high in np.moveaxis(found.bounds, 2, 1):
        for n, apart, a, b in zip((18, 17), (2, 1), low, high, strict=True):
            assert b <= n - apart or b - a == 1
    assert int(found.level.max()) >= 1


def test_a_loud_block_stays_alone_and_crowds_are_not_merged() -> None:
    grid = block_grid((16, 16), (0, 0), 2)
    look = np.full(grid.shape, 10)
    look[0, 0] = 21
    found = partition(grid, look, 20, Fraction(1), 1)
    assert found.level[found.piece[0, 0]] == -1
    assert np.all(found.level[1:] == 0)  # four tens are 40, the bar and its doubt 22
    assert len(partition(grid, np.full(grid.shape, 5), 20, Fraction(1), 1).level) == 16


def test_the_whole_is_never_one_leaf() -> None:
    grid = block_grid((64, 64), (0, 0), 4)
    assert len(partition(grid, np.zeros(grid.shape, np.int64), 20, Fraction(1), 1).level) == 4


@pytest.mark.parametrize("rate", [0.05, 0.5, 2.0])
def test_the_correction_has_the_mean_of_what_was_selected(rate: float) -> None:
    noise = np.arange(-4000, 4001)
    mass = np.exp(-rate * np.abs(noise))
    mass /= mass.sum()
    for count in (-3, 0, 15, 20, 21, 30, 60):
        seen = count + noise
        right = (noise * mass)[seen > 20].sum()
        found = mass @ estimates.selection_bias(seen.astype(np.float64), Selection(20, rate))
        assert found == pytest.approx(right, rel=1e-12, abs=1e-15)


def dense(found: Partition, variances: Variances) -> tuple[np.ndarray, np.ndarray]:
    """Cells from looks and rows by dense least squares, and the covariance of the noise; a leaf's cells are alike."""
    size, pieces = found.rows.size, found.grid.spread(found.piece).ravel()
    free = np.where(found.loud[pieces], np.arange(size) + len(found.level), pieces)
    _, unknown = np.unique(free, return_inverse=True)
    cells = np.eye(unknown.max() + 1)[unknown]
    share = (
        cells / np.where(found.loud[pieces], 1, found.cells[pieces])[:, None]
    )  # cell = its leaf's sum over a
    block = found.grid.spread(np.arange(found.grid.cells.size).reshape(found.grid.shape)).ravel()
    quiet = ~found.loud
    by_look = np.array([share[block == b].sum(axis=0) for b in range(found.grid.cells.size)])
    whole = np.array([share[pieces == p].sum(axis=0) for p in np.flatnonzero(quiet)])
    # a leaf knows of its looks only their sum: looks inside of it are compared with an even spread otherwise
    sums = np.array([by_look[found.piece.ravel() == p].sum(axis=0) for p in range(len(found.level))])
    rows = np.concatenate([sums, whole, share[found.loud[pieces]]])
    weight = np.concatenate([
        1 / (found.blocks * variances.look), np.full(len(rows) - len(sums), 1 / variances.row)
    ])  # fmt: skip
    covariance = np.linalg.inv(rows.T @ (rows * weight[:, None]))
    return share @ covariance @ (rows * weight[:, None]).T, share @ covariance @ share.T


@pytest.mark.parametrize("seed", range(4))
def test_estimates_and_their_noise_are_those_of_dense_least_squares(seed: int) -> None:
    found, variances = looked(GRID, seed), Variances(7.0, 3.0)
    rng = np.random.default_rng(seed + 100)
    look, rows = rng.integers(-50, 50, GRID.shape), rng.integers(-50, 50, found.row_count)
    own = BlockRows(found, look, rows, variances)
    solve, covariance = dense(found, variances)
    order = np.argsort(found.rows[found.loud[GRID.spread(found.piece)]])
    leaves = np.count_nonzero(~found.loud)
    numbers = np.concatenate([found.of_blocks(look), rows[:leaves], rows[leaves:][order]])
    cells = estimates.cell_estimates(own, None)
    assert np.allclose(cells.ravel(), solve @ numbers, rtol=0, atol=1e-11)
    model = estimates.block_variance(own, estimates.leaf_groups(own), None)
    masks = [(rng.random((6, n)) < 0.5).astype(float) for n in (19, 10)]
    others = [rng.random((6, n)) for n in (19, 10)]
    u, w = (np.einsum("ga,gb->gab", *side).reshape(6, -1) for side in (masks, others))
    assert np.allclose(model.covariance(masks, others).noise, np.sum(u @ covariance * w, axis=1), atol=1e-10)
    assert np.allclose(model.covariance(masks).noise, np.sum(u @ covariance * u, axis=1), atol=1e-10)


def test_the_model_inside_leaves_is_the_worst_even_lie() -> None:
    """All rows in one cell, which may be any: X^2 f (1 - f), and covariances likewise."""
    own = BlockRows(
        looked(GRID, 5), np.zeros(GRID.shape, np.int64), np.zeros(200, np.int64), Variances(1.0, 1.0)
    )
    model = estimates.block_variance(own, estimates.leaf_groups(own), None)
    rng = np.random.default_rng(3)
    masks, others = ([(rng.random((5, n)) < 0.4).astype(float) for n in (19, 10)] for _ in range(2))
    u, w = (np.einsum("ga,gb->gab", *side) for side in (masks, others))
    expected = np.zeros(5)
    for (low, high), (a, _) in zip(np.moveaxis(model.bounds, 2, 1), model.within, strict=True):
        where = (slice(None), *(slice(i, j) for i, j in zip(low, high, strict=True)))
        cells = u[where].reshape(5, -1), w[where].reshape(5, -1)
        square = a * cells[0].shape[1]
        both, apart = (cells[0] * cells[1]).mean(axis=1), cells[0].mean(axis=1) * cells[1].mean(axis=1)
        expected += square * (both - apart)
    assert np.allclose(model.covariance(masks, others).within_leaf, expected, atol=1e-12)
    whole = [np.ones((1, 19)), np.ones((1, 10))]
    assert float(model.covariance(whole).within_leaf[0]) == pytest.approx(0, abs=1e-12)


def test_mean_squares_are_measured_group_by_group() -> None:
    grid = block_grid((64, 64), (0, 0), 4)
    found = partition(grid, np.full(grid.shape, 9), 10, Fraction(1, 100), 1)  # nothing merges
    counts = np.where(np.arange(256) < 100, 8, 0)
    look = counts.reshape(grid.shape)
    groups = estimates.leaf_groups(BlockRows(found, look, counts, Variances(1.0, 4.0)))
    assert sorted(groups.size.tolist()) == [100, 156]
    squares, runs = np.zeros(2), 400
    for run in range(runs):
        noise = np.random.default_rng(run).normal(0, 2, 256)
        squares += groups.mean((counts + noise) ** 2) - 4
    assert np.allclose(np.sort(squares / runs), [0, 64], atol=0.4)


def test_few_leaves_are_one_group() -> None:
    found = looked(block_grid((8, 8), (0, 0), 4), 0)
    rows = BlockRows(
        found, np.arange(4).reshape(2, 2), np.zeros(found.row_count, np.int64), Variances(1.0, 1.0)
    )
    assert estimates.leaf_groups(rows).size.tolist() == [np.count_nonzero(~found.loud)]


def test_moments_and_errors_of_loud_blocks_are_those_of_all_boxes() -> None:
    edges = np.array([0, 3, 6, 8])
    lo, hi = np.array([(a, b) for a in range(8) for b in range(a + 1, 9)]).T
    listed = run_moments(axis(8, workload=Workload(lo, hi, np.ones(36))), edges)
    closed = run_moments(axis(8), edges)
    assert np.allclose(listed.first, closed.first)
    assert np.allclose(listed.second, closed.second)
    mixed = run_moments(axis(8), edges, 0.5)
    assert np.allclose(2 * mixed.first, closed.first + np.array([3, 3, 2]))
    assert np.allclose(2 * mixed.second, closed.second + np.array([9, 9, 4]))


def test_the_sides_are_those_of_the_page() -> None:
    axes = [axis(256), axis(256)]
    totals = [
        loud_errors(axes, block_grid((256, 256), (0, 0), side), Variances(8.0, 8.0)).sum()
        for side in (4, 8, 16)
    ]
    assert np.rint(totals).tolist() == [5075, 4359, 7074]
    assert best_grid(axes).shape == (32, 32)


def test_weights_are_rounded_before_their_largest_is_taken() -> None:
    axes = [axis(48), axis(40, 2)]
    for epsilon, most in product((Fraction(1, 100), Fraction(2)), (1, 7, 3 << 20)):
        found = forecast(axes, best_grid(axes), epsilon, most)
        exact = loud_errors(axes, found.grid, stages(epsilon * Fraction(99, 100), most).variances)
        assert np.all(found.weights >= 64 * exact * (float(epsilon) / most) ** 2)
        assert found.denominator % (int(found.weights.max()) * most) == 0
        t = found.denominator // (int(found.weights.max()) * most)
        assert Fraction(found.units, t) <= epsilon / 100


def blocks(leaves: int, error: float) -> Blocks:
    return Blocks((axis(leaves), axis(leaves)), error)


def terms(leaves: int, epsilon: Fraction = Fraction(1), most: int = 1) -> Terms:
    return Terms([LeafStrategy(leaves)] * 2, LAPLACE, epsilon, most)


def plane(leaves: int, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x = np.zeros((leaves, leaves), np.int64)
    x[3:12, 5:14] = rng.integers(0, 200, (9, 9))
    x[rng.integers(0, leaves, 40), rng.integers(0, leaves, 40)] += 1
    return x


@pytest.mark.parametrize("error", [1e9, 0.0])
def test_a_draw_is_restored_from_its_integers_alone(error: float) -> None:
    method, own = blocks(48, error), terms(48, Fraction(1, 2))
    drawn = method.draw(plane(48), own, ExactNoise(insecure_test_entropy(4)))
    again = method.restored(drawn.value, own)
    assert np.array_equal(drawn.leaves, again.leaves)
    assert np.array_equal(drawn.budget, again.budget)
    assert len(drawn.value) == len(drawn.budget)
    assert method.settled(drawn).words(()) == method.settled(again).words(())
    following = replace(method, first=False)
    second = own._replace(beside=drawn, sensitivity=5)
    sums = following.draw(3 * plane(48), second, ExactNoise(insecure_test_entropy(5)))
    assert np.array_equal(following.restored(sums.value, second).leaves, sums.leaves)
    assert (sums.rows is None) == (drawn.rows is None)


def test_whoever_pools_or_compares_sees_both_parts() -> None:
    """A model whose errors lie inside leaves alone: no door may take it for exact."""
    own = BlockRows(
        looked(GRID, 5), np.zeros(GRID.shape, np.int64), np.zeros(200, np.int64), Variances(1.0, 1.0)
    )
    model = estimates.block_variance(own, estimates.leaf_groups(own), None)
    silent = BlockVariance(model.bounds, np.zeros_like(model.noise), model.within, model.shared)
    reading = BlockReading((silent,), {(0, 1): 2.0})
    masks = [np.eye(19)[:3], np.eye(10)[:2]]
    pairs = [mask[grid.ravel()] for mask, grid in zip(masks, np.indices((3, 2)), strict=True)]
    expected = reading.covariance(pairs).within_leaf
    assert np.allclose(np.diag(reading.matrix(masks)), expected)
    pooled = StoredCovariance(reading, (0, 1), (19, 10))
    assert np.allclose(pooled.between(pairs, pairs), expected)
    assert np.max(expected) > 0


def test_what_others_drew_is_refused() -> None:
    with pytest.raises(InternalError):
        blocks(48, 1.0).settled(terms(48))  # type: ignore[arg-type]


def test_stored_columns_give_the_model_back() -> None:
    drawn = blocks(48, 1e9).draw(plane(48), terms(48), SimulationNoise(1))
    model = drawn.outcome.model
    assert isinstance(model, BlockVariance)
    again = from_columns(model.columns())
    for name in ("bounds", "noise", "within", "shared"):
        assert np.array_equal(getattr(model, name), getattr(again, name))


@pytest.mark.long
def test_answers_scatter_as_their_model_says_for_a_fixed_partition() -> None:
    """200 rectangles, the partition held, looks and rows drawn again: observed over stated variance."""
    grid = block_grid((48, 48), (0, 0), 8)
    found, own, rng = looked(grid, 2), stages(Fraction(632, 1000), 1), np.random.default_rng(9)
    masks = []
    for _ in range(2):
        ends = np.sort(rng.integers(0, 49, (400, 2)), axis=1)
        ends = ends[ends[:, 0] < ends[:, 1]][:200]
        masks.append(((np.arange(48) >= ends[:, :1]) & (np.arange(48) < ends[:, 1:])).astype(float))
    answers = []
    for seed in range(1500):
        noise = SimulationNoise(seed)
        look = noise.laplace(np.full(grid.cells.size, own.look), own.denominator).reshape(grid.shape)
        rows = noise.laplace(np.full(found.row_count, own.rows), own.denominator)
        drawn = BlockRows(found, look, rows, own.variances)
        answers.append(np.einsum("ga,ab,gb->g", masks[0], estimates.cell_estimates(drawn, None), masks[1]))
    stated = estimates.block_variance(drawn, estimates.leaf_groups(drawn), None).covariance(masks).noise
    assert np.mean(np.var(answers, axis=0) / stated) == pytest.approx(1, abs=0.03)
