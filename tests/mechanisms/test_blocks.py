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
from dpsql.matrices.blocks import BlockReading, BlockVariance, from_columns
from dpsql.matrices.pooled import StoredCovariance
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.designs import partition as estimates
from dpsql.mechanisms.designs.blocks import (
    CHOICE,
    Blocks,
    bar_of,
    block_grids,
    forecast,
    loud_errors,
    run_moments,
    stages,
)
from dpsql.mechanisms.designs.measurement import DrawParameters
from dpsql.mechanisms.designs.partition import (
    BlockGrid,
    BlockRows,
    Partition,
    StageVariances,
    block_grid,
    partition,
)
from dpsql.mechanisms.designs.question import FamilyAxis, Grains
from dpsql.mechanisms.distribution import LAPLACE
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.tree import Workload

SHAPE = (19, 10)
GRIDS = tuple(block_grid(SHAPE, (2, 1), side) for side in (8, 4, 2))
VARIANCES = StageVariances(np.array([2.0, 7.0, 9.0]), np.array([1.0, 1.5, 4.0]), 3.0)


def axis(leaves: int, strips: int = 0, workload: Workload | None = None) -> FamilyAxis:
    return FamilyAxis("x", leaves, workload, Grains(1, 1), strips)


def looked(grids: tuple[BlockGrid, ...], seed: int, bar: int = 20) -> Partition:
    """A partition with blocks of every grid split and not."""
    rng = np.random.default_rng(seed)

    def look(level: int, nodes: np.ndarray) -> np.ndarray:
        return np.where(rng.random(np.count_nonzero(nodes)) < 0.6, bar + 1, bar)

    return partition(grids, bar, look)[0]  # type: ignore[arg-type]


def numbers(found: Partition, seed: int) -> BlockRows:
    rng = np.random.default_rng(seed)
    look, rows = rng.integers(-50, 50, len(found.level)), rng.integers(-50, 50, found.row_count)
    return BlockRows(found, look, rows, VARIANCES)  # type: ignore[arg-type]


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=3), st.integers(1, 4), st.integers(0, 10**6), st.data()
)
def test_pieces_tile_the_cells_and_nodes_their_parents(
    leaves: list[int], side: int, seed: int, data: st.DataObject
) -> None:
    strips = [data.draw(st.integers(0, min(3, n - 1))) for n in leaves]
    found = looked(tuple(block_grid(leaves, strips, k * side) for k in (6, 2, 1)), seed)
    held = np.zeros((len(GRIDS), *leaves), np.int64)
    for node, (low, high) in enumerate(np.moveaxis(found.bounds, 2, 1)):
        where = tuple(slice(a, b) for a, b in zip(low, high, strict=True))
        held[(found.level[node], *where)] += 1
        rows = len(np.unique(found.rows[where]))
        assert rows == (found.cells[node] if found.loud[node] else 1) or found.is_split[node]
    assert np.all(held[0] == 1)
    assert np.all(held <= 1)
    assert np.array_equal(np.unique(found.rows), np.arange(found.row_count))
    assert found.row_count == np.count_nonzero(~found.is_split) + found.cells[found.loud].sum()
    assert np.array_equal(found.cells, np.prod(found.bounds[:, :, 1] - found.bounds[:, :, 0], axis=1))
    inner = found.is_split & ~found.loud
    children = np.bincount(
        found.parent[found.parent >= 0], weights=found.cells[found.parent >= 0], minlength=len(inner)
    )
    assert np.array_equal(children, np.where(inner, found.cells, 0))


def test_strips_are_never_in_one_block_with_values() -> None:
    for grid in block_grids([axis(64, 2), axis(70, 1)]):
        assert all(n - k in edges for n, k, edges in zip((64, 70), (2, 1), grid.edges, strict=True))


def test_blocks_at_the_bar_and_single_cells_are_not_split() -> None:
    grids = tuple(block_grid((5, 4), (1, 0), side) for side in (4, 1))
    found, look = partition(grids, 20, lambda level, nodes: np.full(np.count_nonzero(nodes), 21 - level))  # type: ignore[arg-type,return-value]
    assert found.level.tolist() == [0, 0] + [1] * 20
    assert found.is_split.tolist() == [True, True] + [False] * 20
    assert len(look) == 22
    alone, _ = partition(grids, 21, lambda level, nodes: np.full(np.count_nonzero(nodes), 21))  # type: ignore[arg-type,return-value]
    assert alone.is_split.tolist() == [False, False]


@pytest.mark.parametrize("rate", [0.05, 0.5, 2.0])
def test_the_correction_has_the_mean_of_what_was_selected(rate: float) -> None:
    noise = np.arange(-4000, 4001)
    mass = np.exp(-rate * np.abs(noise))
    mass /= mass.sum()
    for count in (-3, 0, 15, 20, 21, 30, 60):
        seen = count + noise
        right = (noise * mass)[seen > 20].sum()
        found = mass @ estimates.selection_bias(seen.astype(np.float64), 20, np.full(len(seen), rate))
        assert found == pytest.approx(right, rel=1e-12, abs=1e-15)


def row_variances(found: Partition) -> np.ndarray:
    leaves = VARIANCES.leaf[found.level[~found.is_split]]
    return np.concatenate([leaves, np.full(found.row_count - len(leaves), VARIANCES.cell)])


def dense(found: Partition) -> tuple[np.ndarray, np.ndarray]:
    """Cells from looks and rows by dense least squares, and the covariance of the noise; a leaf's cells are alike."""
    pieces, size = found.piece.ravel(), found.rows.size
    unknown = np.eye(found.row_count)[found.rows.ravel()]
    share = unknown / np.where(found.loud[pieces], 1, found.cells[pieces])[:, None]
    inside = np.zeros((len(found.level), size))
    for node, (low, high) in enumerate(np.moveaxis(found.bounds, 2, 1)):
        where = np.zeros(SHAPE)
        where[tuple(slice(a, b) for a, b in zip(low, high, strict=True))] = 1
        inside[node] = where.ravel()
    rows = np.concatenate([inside @ share, np.eye(found.row_count)])
    weight = 1 / np.concatenate([VARIANCES.look[found.level], row_variances(found)])
    covariance = np.linalg.inv(rows.T @ (rows * weight[:, None]))
    return share @ covariance @ (rows * weight[:, None]).T, share @ covariance @ share.T


@pytest.mark.parametrize("seed", range(4))
def test_estimates_and_their_noise_are_those_of_dense_least_squares(seed: int) -> None:
    found = looked(GRIDS, seed)
    own = numbers(found, seed + 100)
    solve, covariance = dense(found)
    cells = estimates.cell_estimates(own, None)
    assert np.allclose(cells.ravel(), solve @ np.concatenate([own.look, own.rows]), rtol=0, atol=1e-10)
    model = estimates.block_variance(own, estimates.leaf_groups(own), None)
    rng = np.random.default_rng(seed)
    masks = [(rng.random((6, n)) < 0.5).astype(float) for n in SHAPE]
    others = [rng.random((6, n)) for n in SHAPE]
    u, w = (np.einsum("ga,gb->gab", *side).reshape(6, -1) for side in (masks, others))
    assert np.allclose(model.covariance(masks, others).noise, np.sum(u @ covariance * w, axis=1), atol=1e-10)
    assert np.allclose(model.covariance(masks).noise, np.sum(u @ covariance * u, axis=1), atol=1e-10)


def test_the_model_inside_leaves_is_the_worst_even_lie() -> None:
    """All rows in one cell, which may be any: X^2 f (1 - f), and covariances likewise."""
    own = numbers(looked(GRIDS, 5), 1)
    model = estimates.block_variance(own, estimates.leaf_groups(own), None)
    rng = np.random.default_rng(3)
    masks, others = ([(rng.random((5, n)) < 0.4).astype(float) for n in (19, 10)] for _ in range(2))
    u, w = (np.einsum("ga,gb->gab", *side) for side in (masks, others))
    expected = np.zeros(5)
    for (low, high), (a, _) in zip(np.moveaxis(model.nodes.bounds, 2, 1), model.within, strict=True):
        where = (slice(None), *(slice(i, j) for i, j in zip(low, high, strict=True)))
        cells = u[where].reshape(5, -1), w[where].reshape(5, -1)
        square = a * cells[0].shape[1]
        both, apart = (cells[0] * cells[1]).mean(axis=1), cells[0].mean(axis=1) * cells[1].mean(axis=1)
        expected += square * (both - apart)
    assert np.allclose(model.covariance(masks, others).within_leaf, expected, atol=1e-12)
    whole = [np.ones((1, 19)), np.ones((1, 10))]
    assert float(model.covariance(whole).within_leaf[0]) == pytest.approx(0, abs=1e-12)


def test_mean_squares_are_measured_group_by_group() -> None:
    grids = (block_grid((64, 64), (0, 0), 4),)
    counts = np.where(np.arange(256) < 100, 8, 0)
    found, look = partition(grids, 10, lambda level, nodes: counts)  # type: ignore[arg-type,return-value]
    own = BlockRows(found, look, counts, StageVariances(np.ones(1), np.full(1, 4.0), 1.0))  # type: ignore[arg-type]
    groups = estimates.leaf_groups(own)
    assert sorted(np.bincount(groups).tolist()) == [100, 156]
    squares, runs = np.zeros(2), 400
    for run in range(runs):
        noise = np.random.default_rng(run).normal(0, 2, 256)
        squares += estimates.group_means(groups, (counts + noise) ** 2) - 4
    assert np.allclose(np.sort(squares / runs), [0, 64], atol=0.4)


def test_few_leaves_are_one_group() -> None:
    grids = (block_grid((8, 8), (0, 0), 4),)
    found, look = partition(grids, 20, lambda level, nodes: np.arange(4))  # type: ignore[arg-type,return-value]
    rows = BlockRows(found, look, np.zeros(4, np.int64), StageVariances(np.ones(1), np.ones(1), 1.0))  # type: ignore[arg-type]
    assert np.bincount(estimates.leaf_groups(rows)).tolist() == [4]


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


def test_weights_are_rounded_before_their_largest_is_taken() -> None:
    axes = [axis(48), axis(40, 2)]
    for epsilon, most in product((Fraction(1, 100), Fraction(2)), (1, 7, 3 << 20)):
        found, variances = forecast(axes, epsilon, most), stages(epsilon * (1 - CHOICE), most).variances
        exact = loud_errors(axes, found.grid, float(variances.look[1]), variances.cell, 0.0)
        assert np.all(found.weights >= 64 * exact * (float(epsilon) / most) ** 2)
        assert found.denominator % (int(found.weights.max()) * most) == 0
        t = found.denominator // (int(found.weights.max()) * most)
        assert Fraction(found.units, t) <= epsilon / 100


def test_the_choice_is_that_of_the_page() -> None:
    """0.48 of the largest number that there is on 256 x 256 leaves, less where the product errs little."""
    axes = [axis(256), axis(256)]
    found = forecast(axes, Fraction(1), 1, 0.5)
    largest = int(found.weights.sum()) * found.bar
    assert found.takes_blocks(int(0.479 * largest), 1e9)
    assert not found.takes_blocks(int(0.481 * largest), 1e9)
    assert found.error(largest) / 1783 == pytest.approx(16.6, abs=0.1)
    assert not found.takes_blocks(int(0.479 * largest), 0.479 / 8.1 * found.error(largest))


def blocks(leaves: int, error: float) -> Blocks:
    return Blocks((axis(leaves), axis(leaves)), error)


def terms(leaves: int, epsilon: Fraction = Fraction(1), most: int = 1) -> DrawParameters:
    return DrawParameters([leaf_strategy(leaves)] * 2, LAPLACE, epsilon, most)


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
    """A model whose errors lie inside leaves alone: no interface may take it for exact."""
    own = numbers(looked(GRIDS, 5), 1)
    model = estimates.block_variance(own, estimates.leaf_groups(own), None)
    silent = BlockVariance(model.nodes, np.zeros_like(model.noise), model.within, model.shared)
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
    for name in ("noise", "within", "shared"):
        assert np.array_equal(getattr(model, name), getattr(again, name))
    for name in ("bounds", "parent", "weight"):
        assert np.array_equal(getattr(model.nodes, name), getattr(again.nodes, name))


@pytest.mark.long
def test_answers_scatter_as_their_model_says_for_a_fixed_partition() -> None:
    """200 rectangles, the partition held, looks and rows drawn again: observed over stated variance."""
    found, own = looked(block_grids([axis(48), axis(48)]), 2), stages(Fraction(632, 1000), 1)
    rng, masks = np.random.default_rng(9), []
    for _ in range(2):
        ends = np.sort(rng.integers(0, 49, (400, 2)), axis=1)
        ends = ends[ends[:, 0] < ends[:, 1]][:200]
        masks.append(((np.arange(48) >= ends[:, :1]) & (np.arange(48) < ends[:, 1:])).astype(float))
    units = np.array(own.look)[found.level], found.row_budgets(own.leaf, own.cell)
    answers = []
    for seed in range(1500):
        noise = SimulationNoise(seed)
        look, rows = (noise.laplace(budget, own.denominator) for budget in units)
        drawn = BlockRows(found, look, rows, own.variances)
        answers.append(np.einsum("ga,ab,gb->g", masks[0], estimates.cell_estimates(drawn, None), masks[1]))
    stated = estimates.block_variance(drawn, estimates.leaf_groups(drawn), None).covariance(masks).noise
    assert np.mean(np.var(answers, axis=0) / stated) == pytest.approx(1, abs=0.03)


def test_totals_have_no_selection_bias_at_the_bar() -> None:
    """Every coarse block holds rows at the bar: without the correction its look's noise would add to the total."""
    axes, epsilon = [axis(96), axis(96)], Fraction(1)
    bar, spend = bar_of(epsilon, 1), epsilon * (1 - CHOICE)
    plane, budgets = np.zeros((96, 96), np.int64), stages(spend, 1)
    plane[::64, ::64] = bar
    grids, errors, uncorrected = block_grids(axes), [], []
    for seed in range(600):
        noise = SimulationNoise(seed)

        def look(level: int, nodes: np.ndarray, noise: SimulationNoise = noise) -> np.ndarray:
            exact = grids[level].sums(plane)[nodes]
            return exact + noise.laplace(np.full(len(exact), budgets.look[level]), budgets.denominator)

        found, looks = partition(grids, bar, look)  # type: ignore[arg-type]
        units = found.row_budgets(budgets.leaf, budgets.cell)
        rows = found.measure(plane) + noise.laplace(units, budgets.denominator)
        drawn = BlockRows(found, looks, rows, budgets.variances)  # type: ignore[arg-type]
        errors.append(estimates.cell_estimates(drawn, budgets.selection(bar)).sum() - plane.sum())
        uncorrected.append(estimates.cell_estimates(drawn, None).sum() - plane.sum())
    error = np.std(errors) / 600**0.5
    assert abs(np.mean(errors)) < 4 * error
    assert np.mean(uncorrected) > 10 * error
