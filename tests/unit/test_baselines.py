"""Baselines: shapes, exactness without noise, known errors, and the error formulas that judge them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks import exact_errors, local_joins, local_peers, local_planes, local_render
from benchmarks.baselines import common, linear, local_boxes, local_grids, local_haar, planar, registry
from benchmarks.measure import all_ranges, measure, one_length, prefix_errors
from dpsql.client.plan import largest_weight
from dpsql.collecting.simulate import People
from dpsql.mechanisms.local.oracles import choose_oracle, spread
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
    if name not in ("flat", "UG", "AG", "DAWA along the Hilbert curve"):
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


def one_star(people: int, seed: int) -> People:
    """A few people with 1 to 3 rows, whose bit leans on their first axis."""
    rng = np.random.default_rng(seed)
    first = np.concatenate([[0], np.cumsum(rng.integers(1, 4, people))])
    leaves = rng.integers(0, 25, (first[-1], 5))
    return People(first, leaves, 1 + leaves[:, :1])


def test_slots_fill_by_rows_and_round_the_measure_without_bias() -> None:
    people, rng = one_star(3_000, 6), np.random.default_rng(6)
    rows = np.diff(people.first)
    drawn = [local_peers.slots(people, 2, rng) for _ in range(60)]
    assert all(s.people == 3_000 for s in drawn)
    assert np.mean([len(s.bits) for s in drawn]) == pytest.approx(np.minimum(rows, 2).sum() / 2, rel=0.01)
    assert np.mean([s.bits.mean() for s in drawn]) == pytest.approx(
        (people.measures.mean() - 1) / 24, abs=0.005
    )
    assert local_peers.slots(people, 2, rng, spoken=1_000).people == 2_000


BOX = [(0, 5), (0, 25), (0, 25), (3, 12), (0, 25)]


def exact_bits(slots: local_peers.Slots) -> np.ndarray:
    inside = (slots.leaves[:, 0] < 5) & (slots.leaves[:, 3] >= 3) & (slots.leaves[:, 3] < 12)
    return np.array([(inside & (slots.bits == kind)).sum() for kind in (0, 1)]) / slots.people


def test_client_joins_are_unbiased_bit_by_bit() -> None:
    slots = local_peers.slots(one_star(4_000, 7), 2, np.random.default_rng(7))
    even = dict.fromkeys(local_peers.even_shares(5), 0.5)
    rng, exact = np.random.default_rng(8), exact_bits(slots)
    draws = np.array([local_peers.client_join(slots, [BOX], even, 2.0, rng, True)[0] for _ in range(400)])
    np.testing.assert_allclose(draws.mean(axis=0), exact, atol=4 * draws.std() / 20)
    plain = np.array([local_peers.client_join(slots, [BOX], even, 2.0, rng)[0] for _ in range(400)])
    assert plain.mean() == pytest.approx(exact.sum(), abs=4 * plain.std() / 20)


def test_client_join_of_one_node_has_the_oracle_variance() -> None:
    """Everybody reports one of 5 nodes and a bit, 11 items with "no row": OUE, v(eps) / n a node at share near 0."""
    slots = local_peers.slots(one_star(4_000, 9), 1, np.random.default_rng(9))
    rng, box = np.random.default_rng(10), [(0, 5), *[(0, 25)] * 4]
    draws = np.array([
        local_peers.client_join(slots, [box], {(1, 0, 0, 0, 0): 1.0}, 1.0, rng, True)[0] for _ in range(1_500)
    ])  # fmt: skip
    oracle = choose_oracle(11, largest_weight(ONE))
    assert oracle.name == "OUE"
    seen = np.array([((slots.leaves[:, 0] < 5) & (slots.bits == kind)).mean() for kind in (0, 1)])
    np.testing.assert_allclose(draws.mean(axis=0), seen, atol=4 * draws.std() / np.sqrt(1_500))
    # noise alone: the people are fixed, so p (1 - p) of the owners and q (1 - q) of the others
    noise = (seen / 4 + (1 - seen) * oracle.q * (1 - oracle.q)) / (oracle.p - oracle.q) ** 2 / 4_000
    np.testing.assert_allclose(draws.var(axis=0), noise, rtol=0.15)


@pytest.mark.parametrize("complement", [False, True])
def test_services_joined_by_id_are_unbiased_bit_by_bit(complement: bool) -> None:
    slots = local_peers.slots(one_star(4_000, 11), 1, np.random.default_rng(11))
    rng, exact = np.random.default_rng(12), exact_bits(slots)
    draws = np.array(
        [local_peers.services_join(slots, 2, BOX, 6.0, complement, rng, True) for _ in range(500)]
    )
    np.testing.assert_allclose(draws.mean(axis=0), exact, atol=4 * draws.std() / np.sqrt(500))
    plain = np.array([local_peers.services_join(slots, 2, BOX, 6.0, complement, rng) for _ in range(500)])
    assert plain.mean() == pytest.approx(exact.sum(), abs=4 * plain.std() / np.sqrt(500))


def test_averages_stay_between_the_bounds() -> None:
    found = np.array([[3.0, 1.0], [-2.0, 4.0], [-1.0, 0.5], [0.0, 0.0]])
    assert local_joins.mean_of(found).tolist() == [7.0, 25.0, 13.0, 13.0]


@pytest.mark.parametrize("axes", [2, 3])
def test_our_collection_answers_boxes(axes: int) -> None:
    leaves = some_people(100_000, axes, 16, 13)
    boxes = np.array([[[0, 8]] * axes, [[4, 16]] * axes])
    found = local_planes.ours(leaves, 16, "4", boxes, np.random.default_rng(13))
    for answers in found.values():
        np.testing.assert_allclose(answers, local_planes.truth(leaves, boxes), atol=0.02)


def test_a_section_measured_alone_leaves_the_others() -> None:
    first = local_render.page("one {A} two {B} end", {"A": "1"}, "")
    assert "(not measured yet)" in first and "<!-- measured: A -->" in first
    second = local_render.page("changed {A} two {B} end", {"B": "2"}, first)
    assert second.startswith("changed <!-- measured: A -->\n\n1\n\n<!-- end of A --> two ")
    assert "\n\n2\n\n" in second
