"""Oracles, level plans, least squares, smooth fits, AHEAD, grids, tau, maximum entropy, shuffling."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines import local_boxes as maxent
from benchmarks.local.simulated import histogram_of_boxes
from benchmarks.local.simulated import tally as tally_of
from dpsql.client import oracles as devices
from dpsql.client.plan import largest_weight
from dpsql.local import ahead
from dpsql.local.mechanisms import blue, joint, truncation
from dpsql.local.mechanisms import priors as smooth
from dpsql.local.mechanisms.truncation import (
    _blocks,
    _delta,
    even_edges,
    granularity,
    shuffled_epsilon,
    snapped_edges,
)
from dpsql.local.oracles import (
    SquareWaveAggregator,
    bucket,
    choose_oracle,
    oracle_named,
    wave_matrix,
    wave_reach,
)
from dpsql.local.oracles import oracle as oracles

pytestmark = pytest.mark.long

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "local.json").read_text())
W1 = largest_weight(Fraction(1))
UNBIASED = {25: (5, 3.45), 64: (4, 5.75), 125: (5, 8.1)}


def optimised_shares(
    information: Sequence[np.ndarray],
    workload: np.ndarray,
    invert: Callable[[np.ndarray], np.ndarray],
    steps: int = 60,
) -> np.ndarray:
    """Shares that minimise the total variance of a workload, by multiplicative steps.

    Args:
        information: per group, the precision matrix of the leaves for share 1, each (m, m).
        workload: (m, m), the sum of w w' over the workload's queries.
        invert: maps a precision to the covariance of the estimate (with its constraint).
        steps: number of multiplicative steps.

    Returns:
        Shares that sum to 1.
    """
    shares = np.full(len(information), 1 / len(information))
    for _ in range(steps):
        covariance = invert(np.asarray(sum(s * i for s, i in zip(shares, information, strict=True))))
        inner = covariance @ workload @ covariance
        gain = np.array([float(np.sum(inner * i)) for i in information])
        shares = shares * np.sqrt(np.maximum(gain, 0))
        shares /= shares.sum()
    return shares


def bell(leaves: int) -> np.ndarray:
    shares = np.exp(-((np.arange(leaves) - leaves / 2) ** 2) / (leaves / 4) ** 2 / 2)
    return np.asarray(shares / shares.sum())


def oracle(name: str, domain: int = 6) -> oracles.Oracle:
    return oracle_named(name, domain, W1, {"OLH": 4, "WAVE": 2}.get(name, 0))


@pytest.mark.parametrize("name", ["GRR", "OUE", "OLH"])
def test_estimates_have_the_stated_mean_and_covariance(name: str) -> None:
    rng, tool, people, runs = np.random.default_rng(1), oracle(name), 2000, 800
    shares = np.array([0.5, 0.3, 0.1, 0.05, 0.05, 0.0])
    found = []
    for _ in range(runs):
        histogram = rng.multinomial(people, shares)
        found.append(oracles.estimate(tool, tally_of(tool, histogram, rng).astype(float), people))
    stated = oracles.covariance(tool, shares, people)
    errors = np.array(found) - shares
    assert np.all(np.abs(errors.mean(axis=0)) < 4.5 * np.sqrt(np.diag(stated) / runs))
    assert np.allclose(np.diag(stated), oracles.variance(tool, shares, people))
    assert np.allclose(np.cov(errors.T), stated, atol=0.25 * float(np.diag(stated).mean()))


@pytest.mark.parametrize("name", ["GRR", "OUE", "OLH", "WAVE"])
def test_vectorised_reports_follow_the_client_s_law(name: str) -> None:
    tool, rng, count = oracle(name), np.random.default_rng(3), 6000
    draws: Callable[[int], bytes] = rng.bytes
    item, packed = 2, tool.packed(tool.payloads(np.full(count, 2), rng))
    if name == "GRR":
        one = [devices.grr(item, 6, W1, draws) for _ in range(count)]
        many = packed[:, 0]
    elif name == "WAVE":
        one = [devices.wave(item, 6, 2, W1, draws) for _ in range(count)]
        many = packed[:, 0]
    elif name == "OUE":
        one = [devices.oue(item, 6, W1, draws)[0] >> 2 for _ in range(count)]
        many = packed[:, 0] >> 2
    else:
        one = [
            int(devices.bucket(s, item, 4) == h)
            for s, h in (devices.olh(item, 4, W1, draws) for _ in range(count))
        ]
        many = tool.supports(packed)[:, item].astype(int)
    first, second = np.bincount(one, minlength=64), np.bincount(many, minlength=64)
    seen = (first + second) > 0
    distance = float((((first - second) ** 2)[seen] / (first + second)[seen]).sum())
    assert distance < seen.sum() + 6 * math.sqrt(2 * seen.sum()) + 6


@given(st.integers(0, 65535), st.integers(0, 1 << 20), st.integers(2, 64))
def test_both_hashes_are_one(seed: int, item: int, buckets: int) -> None:
    assert bucket(np.array([seed]), np.array([item]), buckets)[0] == devices.bucket(seed, item, buckets)


def test_the_oracle_of_least_variance_is_chosen() -> None:
    limit = VECTORS["e_eps_3"]["grr_beats_oue_below_D"]
    assert choose_oracle(limit - 1, 3 << 20).name == "GRR"
    assert choose_oracle(limit, 3 << 20).name == "OUE"


def test_tallies_of_square_wave_sum_to_people_and_follow_its_matrix() -> None:
    tool, rng = SquareWaveAggregator(12, W1, 2), np.random.default_rng(4)
    histogram = np.append(rng.multinomial(200_000, bell(12)), 50_000)
    tally = tally_of(tool, histogram, rng)
    expected = wave_matrix(tool) @ histogram[:12] + 50_000 / tally.size
    assert tally.sum() == 250_000
    assert np.all(np.abs(tally - expected) < 5 * np.sqrt(expected))


@pytest.mark.parametrize("leaves", sorted(UNBIASED))
def test_variance_factor_of_all_ranges(leaves: int) -> None:
    branching, bound = UNBIASED[leaves]
    levels = truncation.level_edges(leaves, branching)
    depth = np.arange(1, len(levels) + 1)
    shares = depth / depth.sum()
    designs = [blue.cell_design(e, leaves) for e in levels]
    precision = sum(s * d.T @ d for s, d in zip(shares, designs, strict=True))
    workload = blue.range_workload(leaves)
    factor = float((blue.constrained_inverse(precision) * workload).sum())
    assert factor <= bound
    best = optimised_shares([d.T @ d for d in designs], workload, blue.constrained_inverse, 30)
    tuned = float(
        (
            blue.constrained_inverse(sum(s * d.T @ d for s, d in zip(best, designs, strict=True))) * workload
        ).sum()
    )
    assert 0.985 * factor <= tuned <= factor * 1.0001


def groups(
    people: int, rng: np.random.Generator, shares: np.ndarray, wave: bool = True
) -> list[blue.ViewReports]:
    leaves, found = shares.size, []
    for edges in truncation.level_edges(leaves, 5):
        design = blue.cell_design(edges, leaves)
        tool = choose_oracle(len(design), W1)
        histogram = (design @ rng.multinomial(people, shares)).astype(int)
        tally = tally_of(tool, histogram, rng).astype(float)
        found.append(blue.ViewReports(design, oracles.estimate(tool, tally, people), people, tool))
    if wave:
        tool = SquareWaveAggregator(leaves, W1, wave_reach(leaves, 1.0))
        tally = tally_of(tool, np.append(rng.multinomial(people, shares), 0), rng)
        found.append(blue.ViewReports(wave_matrix(tool), tally / people, people, tool))
    return found


def test_least_squares_is_unbiased_with_its_stated_covariance() -> None:
    rng, shares = np.random.default_rng(7), bell(25)
    runs = [blue.blue(groups(20_000, rng, shares)) for _ in range(150)]
    errors = np.array([r.shares for r in runs]) - shares
    stated = blue.range_variances(np.mean([r.covariance for r in runs], axis=0))
    for low, high in ((0, 10), (3, 9), (5, 6), (0, 20)):
        seen = errors[:, low:high].sum(axis=1)
        assert abs(seen.mean()) < 4 * seen.std() / math.sqrt(150)
        assert 0.7 < seen.var() / stated[low, high] < 1.4
    assert np.allclose([r.shares.sum() for r in runs], 1)


def test_the_stack_beats_the_unbiased_estimate_on_a_smooth_histogram() -> None:
    rng, shares, workload = np.random.default_rng(9), bell(64), blue.range_workload(64)
    stacked, plain = [], []
    for _ in range(3):
        found = smooth.stack([groups(20_000, rng, shares) for _ in range(4)], 64)
        stacked.append((found.shares - shares) @ workload @ (found.shares - shares))
        plain.append((found.unbiased.shares - shares) @ workload @ (found.unbiased.shares - shares))
        assert found.weights.sum() == pytest.approx(1)
    assert np.mean(stacked) < 0.6 * np.mean(plain)


def test_categories_are_left_unsmoothed() -> None:
    rng = np.random.default_rng(2)
    found = smooth.stack([groups(5000, rng, np.array([0.5, 0.2, 0.2, 0.1]), wave=False) for _ in range(4)], 0)
    assert found.shares.shape == (4,)
    assert found.shares.min() >= 0


@given(st.lists(st.floats(-1, 2), min_size=2, max_size=12))
def test_normsub_is_the_projection_onto_the_simplex(values: list[float]) -> None:
    shares = np.array(values)
    found = blue.normsub(shares)
    assert found.sum() == pytest.approx(1)
    fitted = blue.simplex_fit(np.eye(shares.size), shares)
    assert np.allclose(found, fitted, atol=1e-7)


def test_normsub_vector() -> None:
    given_, wanted = ([float(Fraction(v)) for v in VECTORS["normsub"][k]] for k in ("in", "out"))
    assert np.allclose(blue.normsub(np.array(given_)), wanted)


def test_simplex_fit_meets_its_optimality_conditions() -> None:
    rng = np.random.default_rng(5)
    for _ in range(20):
        root = rng.standard_normal((12, 12))
        precision, pull = root @ root.T + 0.1 * np.eye(12), 3 * rng.standard_normal(12)
        found = blue.simplex_fit(precision, pull)
        slack = precision @ found - pull
        price = slack[found > 1e-9].mean()
        assert np.allclose(slack[found > 1e-9], price, atol=1e-6)
        assert np.all(slack >= price - 1e-6)


def test_a_joint_fit_recovers_a_smooth_table() -> None:
    centre = np.add.outer((np.arange(12) - 6) ** 2, (np.arange(12) - 5) ** 2) - 1.2 * np.outer(
        np.arange(12) - 6, np.arange(12) - 5
    )
    table = np.exp(-centre / 20)
    table /= table.sum()
    edges = (np.arange(0, 13, 3), np.arange(0, 13, 3))
    pair = table.reshape(4, 3, 4, 3).sum(axis=(1, 3))
    leaves = np.arange(13)
    views = [
        joint.Marginal((0, 1), edges, pair, np.full((4, 4), 1e-8)),
        joint.Marginal((0,), (leaves,), table.sum(axis=1), np.full(12, 1e-8)),
        joint.Marginal((1,), (leaves,), table.sum(axis=0), np.full(12, 1e-8)),
    ]
    model = joint.make_model((12, 12), (12, 12))
    found = joint.table_of(model, joint.fit(model, views, joint.Strength(1.0, 1.0, 1e-2)))
    assert np.abs(joint.marginal_of(found, views[0]) - pair).max() < 2e-4
    assert np.abs(found - table).max() < 0.15 * table.max()


def adaptive(
    people: int, shares: np.ndarray, rng: np.random.Generator
) -> tuple[list[ahead.AheadRound], np.ndarray]:
    sizes = shares.shape
    rounds, boxes, count = [], ahead.first_boxes(sizes), ahead.round_count(sizes)
    theta = ahead.threshold(people, W1, sizes)
    for _ in range(count):
        histogram = rng.multinomial(people // count, shares.reshape(-1)).reshape(sizes)
        tool = ahead.box_oracle(boxes, W1)
        tally = tally_of(tool, histogram_of_boxes(boxes, histogram), rng).astype(float)
        rounds.append(
            ahead.close_round(boxes, oracles.estimate(tool, tally, people // count), people // count)
        )
        boxes = ahead.next_boxes(rounds[-1], theta)
    return rounds, ahead.spread_evenly(rounds[-1].boxes, ahead.finest_shares(rounds), sizes)


def test_ahead_threshold_vector() -> None:
    wanted = VECTORS["ahead_theta"]
    assert ahead.threshold(wanted["N"], W1, [wanted["m"]]) == pytest.approx(wanted["theta"], rel=1e-6)


def test_ahead_in_one_dimension_reaches_the_method_s_error() -> None:
    rng, shares, workload = np.random.default_rng(1), bell(256), blue.range_workload(256)
    errors = [adaptive(1_000_000, shares, rng)[1] - shares for _ in range(4)]
    assert np.mean([e @ workload @ e for e in errors]) < 1.15 * 3.7e-5


def test_ahead_boxes_partition_the_plane() -> None:
    shares = np.outer(bell(8), bell(8))
    rounds, leaves = adaptive(400_000, shares / shares.sum(), np.random.default_rng(2))
    for done in rounds:
        cover = np.zeros((8, 8), dtype=int)
        for (a, b), (c, d) in done.boxes:
            cover[a:b, c:d] += 1
        assert np.all(cover == 1)
        assert done.shares.min() >= 0
    assert leaves.sum() == pytest.approx(1)


def test_granularity_vectors() -> None:
    for key, axes in (("d6", 6), ("d2", 2)):
        (one, two), wanted = granularity(1e6, 1.0, axes), VECTORS["hdg_granularity"][key]
        assert one == pytest.approx(wanted["g1"], rel=1e-4)
        assert two == pytest.approx(wanted["g2"], rel=1e-4)
    assert even_edges(7, 3.2).size == 4
    assert snapped_edges(25, 5, 4.0).tolist() == [0, 5, 10, 15, 20, 25]


def test_slots_and_rows_lost() -> None:
    given_ = VECTORS["slots"]
    filled = sum(min(r, given_["tau"]) for r in given_["rows"])
    assert filled == given_["expected_tau_times_nonnull"]
    shares = np.bincount(given_["rows"]) / 3
    assert truncation.clipped_fraction(shares, 2) == pytest.approx(1 / 4)


def test_rows_are_estimated_from_reports_and_tau_follows() -> None:
    rng, tool = np.random.default_rng(3), oracle_named("GRR", 6, W1)
    truth = np.array([0.1, 0.5, 0.2, 0.1, 0.06, 0.04])
    tally = tally_of(tool, rng.multinomial(400_000, truth), rng).astype(float)
    found = truncation.estimated_rows(tool, tally, 400_000)
    assert np.abs(found - truth).max() < 0.02
    taus = [truncation.theory_tau(found, noise, 0.2) for noise in (1e-9, 1e-3, 1e-1)]
    assert taus == sorted(taus, reverse=True)
    assert (taus[0], taus[-1]) == (5, 1)


def test_maximum_entropy_keeps_pairs_and_multiplies_independent_axes() -> None:
    shares = np.einsum("i,j,k->ijk", [0.7, 0.3], [0.4, 0.6], [0.9, 0.1])
    pairs = {(i, j): shares.sum(axis=3 - i - j) for i, j in maxent.pair_keys(3)}
    assert maxent.box_share(pairs, 3) == pytest.approx(0.3 * 0.6 * 0.1, rel=1e-4)
    table = np.outer(bell(6), bell(5))
    quarter = maxent.quarters(table, slice(1, 3), slice(0, 2))
    assert quarter.sum() == pytest.approx(1)
    assert quarter[1, 1] == pytest.approx(table[1:3, 0:2].sum())


@pytest.mark.parametrize(
    ("people", "delta", "key"), [(100_000, 1e-6, "n1e5_delta1e-6"), (10_000, 1e-6, "n1e4_delta1e-6")]
)
def test_shuffled_epsilons(people: int, delta: float, key: str) -> None:
    for local, central in VECTORS["shuffle_eps_c"][key].items():
        assert shuffled_epsilon(people, float(local), delta) == pytest.approx(central, rel=0.01)


def test_few_people_get_no_amplification() -> None:
    assert shuffled_epsilon(3, 1.0, 1e-9) == pytest.approx(1.0)


@pytest.mark.parametrize("people", [2, 7, 30])
@pytest.mark.parametrize("local", [0.3, 1.0, 3.0])
def test_the_divergence_is_bounded_by_brute_force(people: int, local: float) -> None:
    """Every count of clones and every outcome, without a window or a block."""
    truth, clone = math.exp(local) / (math.exp(local) + 1), math.exp(-local)
    for central in (0.0, 0.05, local / 2, local):
        exact = 0.0
        for clones in range(people):
            mass = math.comb(people - 1, clones) * clone**clones * (1 - clone) ** (people - 1 - clones)
            coin = [math.comb(clones, a) / 2**clones for a in range(clones + 1)]
            chance = [
                [
                    (coin[a - 1] if a else 0.0) * p + (coin[a] if a <= clones else 0.0) * (1 - p)
                    for a in range(clones + 2)
                ]
                for p in (truth, 1 - truth)
            ]
            exact += mass * sum(max(0.0, x - math.exp(central) * y) for x, y in zip(*chance, strict=True))
        blocks, missed = _blocks(people, local)
        assert exact * (1 - 1e-9) - 1e-12 <= _delta(blocks, missed, local, central) <= exact * 1.001 + 1e-9
