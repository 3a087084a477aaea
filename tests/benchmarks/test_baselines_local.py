"""Baselines of local releases: unbiased, with their known variances, and near the truth with many reports."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.baselines import local_boxes, local_grids, local_haar, local_split
from benchmarks.local import adult as local_adult
from benchmarks.local import joins as local_joins
from benchmarks.local import peers as local_peers
from benchmarks.local import planes as local_planes
from dpsql.client.plan import largest_weight
from dpsql.local.oracles import choose_oracle
from dpsql.local.oracles.oracle import spread
from dpsql.local.tallies import RespondentRows

pytestmark = pytest.mark.long

ONE = Fraction(1)


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


def one_star(people: int, seed: int) -> RespondentRows:
    """A few people with 1 to 3 rows, whose bit leans on their first axis."""
    rng = np.random.default_rng(seed)
    first = np.concatenate([[0], np.cumsum(rng.integers(1, 4, people))])
    leaves = rng.integers(0, 25, (first[-1], 5))
    return RespondentRows(first, leaves, 1 + leaves[:, :1])


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
    noise = (
        (seen / 4 + (1 - seen) * oracle.law.q * (1 - oracle.law.q))
        / (oracle.law.p - oracle.law.q) ** 2
        / 4_000
    )
    np.testing.assert_allclose(draws.var(axis=0), noise, rtol=0.15)


@pytest.mark.parametrize("complement", [False, True])
def test_services_joined_by_id_are_unbiased_bit_by_bit(complement: bool) -> None:
    slots = local_peers.slots(one_star(4_000, 11), 1, np.random.default_rng(11))
    rng, exact = np.random.default_rng(12), exact_bits(slots)
    draws = np.array(
        [local_peers.services_join(slots, (2,), BOX, 6.0, complement, rng, True) for _ in range(500)]
    )
    np.testing.assert_allclose(draws.mean(axis=0), exact, atol=4 * draws.std() / np.sqrt(500))
    plain = np.array([local_peers.services_join(slots, (2,), BOX, 6.0, complement, rng) for _ in range(500)])
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


@pytest.mark.skipif(not local_adult.present(), reason="no Adult table")
def test_the_adult_star_keeps_every_record_as_its_persons_first_row() -> None:
    people = local_adult.people(np.random.default_rng(0))
    rows = np.diff(people.first)
    assert people.count == 32_561 and rows.min() == 1 and rows.max() == 10
    assert rows.mean() == pytest.approx(2.21, abs=0.05)
    assert people.leaves.min() == 0 and people.leaves.max() <= 24
    first = people.first[:-1]
    hours = 1 + 4 * (people.measures[first, 0] - 1)  # lower ends of four hours; the mean is 40.437
    assert hours.mean() == pytest.approx(40.437 - 1.5, abs=1)
    assert (people.leaves[first, 3] == 0).mean() > 0.9


@pytest.mark.parametrize("complement", [False, True])
@pytest.mark.parametrize("low, high, depth", [(3, 12, 2), (0, 24, 2), (7, 101, 3), (0, 125, 3), (24, 26, 3)])
def test_signed_pieces_add_up_to_the_range(low: int, high: int, depth: int, complement: bool) -> None:
    at, held = np.arange(5**depth), np.zeros(5**depth)
    for piece in local_peers.pieces(low, high, complement, depth):
        held += piece.sign * np.isin(local_peers.node_of(at, piece.level, depth), piece.nodes)
    np.testing.assert_array_equal(held, (at >= low) & (at < high))


def test_joins_answer_with_finer_axes() -> None:
    rng, first = np.random.default_rng(14), np.arange(4_001)
    people = RespondentRows(first, rng.integers(0, 125, (4_000, 5)), rng.integers(1, 26, (4_000, 1)))
    slots = local_peers.slots(people, 1, rng, depth=3)
    box, shares = [(24, 26), *[(0, 125)] * 4], {(3, 0, 0, 0, 0): 0.5}
    draws = [local_peers.client_join(slots, [box], shares, 3.0, rng)[0, 0] for _ in range(300)]
    exact = ((slots.leaves[:, 0] >= 24) & (slots.leaves[:, 0] < 26)).mean()
    assert np.mean(draws) == pytest.approx(exact, abs=4 * np.std(draws) / np.sqrt(300))


def test_split_join_is_unbiased_with_its_known_variance() -> None:
    """Three leaves of one axis, epsilon 8 over two services and two levels: each node adds its own noise."""
    rng = np.random.default_rng(11)
    leaves = rng.integers(0, 25, (400, 2))
    leaves[:, 1] = (leaves[:, 1] + leaves[:, 0]) // 2
    boxes = [[(6, 9), (0, 25)], [(3, 17), (4, 20)], [(0, 25), (0, 25)]]
    draws = np.array([local_split.split_join(leaves, (1,), boxes, 8.0, rng) for _ in range(600)])
    exact = [
        np.mean([all(a <= x < b for x, (a, b) in zip(row, box, strict=True)) for row in leaves])
        for box in boxes
    ]
    np.testing.assert_allclose(draws.mean(axis=0), exact, atol=4 * draws.std(axis=0).max() / np.sqrt(600))
    assert (draws[:, 2] == 1).all()
    oracle = local_split._oracle(Fraction(2))
    own, other = (
        rate * (1 - rate) / (oracle.law.p - oracle.law.q) ** 2 for rate in (oracle.law.p, oracle.law.q)
    )
    known = (exact[0] * (own + 2 * other) + (1 - exact[0]) * 3 * other) / 400
    assert draws[:, 0].var() == pytest.approx(known, rel=0.2)


def test_split_join_pays_for_every_attribute_and_level() -> None:
    """Two axes of one service instead of one in each: half the epsilon a report, and more noise for it."""
    rng = np.random.default_rng(12)
    leaves, box = rng.integers(0, 25, (400, 3)), [[(6, 9), (0, 25), (0, 25)]]
    alone, crowded = (
        np.var([local_split.split_join(leaves, cuts, box, 4.0, rng) for _ in range(300)])
        for cuts in ((1,), (2,))
    )
    assert crowded > 2 * alone
