"""Tails of histograms: which curves of people noisy bins leave likely, where totals are clipped, when they are lost."""

from __future__ import annotations

from itertools import product
from math import exp, hypot, inf, log, log2, sqrt

import numpy as np
import pytest

from dpsql.contributions.histogram import NoisyHistogram, NoisyTotal, cleaned, doubling_edges
from dpsql.contributions.tail import best_clip, high_total, mean_excess, read_tail, told_total
from tests.thinned import by_default
from tests.twins import bin_of

pytestmark = pytest.mark.long

EDGES = doubling_edges(1, 16)
HALL_OF_FAME = (819, 158, 159, 162, 153, 88, 4)
"""People by the bin of their rows: most own one, and noise of 94 hides the rest."""


def histogram(amounts, sd: float, seed: int = 0) -> NoisyHistogram:
    counts = np.bincount(bin_of(amounts, EDGES), minlength=len(EDGES) + 1)
    noise = np.random.default_rng(seed).normal(0, sd, len(counts)) if sd else 0.0
    return NoisyHistogram(EDGES, np.rint(counts + noise).astype(np.int64), max(sd, 1e-3))


def pareto(people: int, slope: float, seed: int = 1) -> np.ndarray:
    return np.ceil(4 * (1 - np.random.default_rng(seed).random(people)) ** (-1 / slope)).astype(np.int64)


def test_the_last_clear_bin_ends_a_contiguous_run():
    value = np.array([10, 900, 500, 300, 60, 3, 50, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    tail = read_tail(NoisyHistogram(EDGES, value, 10.0))
    assert tail.end == 16.0  # 60 people stand out; the 50 far beyond do not count alone


def test_people_beyond_a_gap_are_seen_where_they_are_certain():
    """Two kinds of customers, of 6 and of 60 rows: a run that ends at the gap would lose five sixths of the rows."""
    value = np.bincount(bin_of([6] * 2000 + [60] * 1000, EDGES), minlength=17)
    for far, end in ((1000, 64.0), (50, 8.0)):
        value[6] = far
        assert read_tail(NoisyHistogram(EDGES, value, 10.0)).end == end


def excess(edge: float, bound: float) -> float:
    """Mean of (x - bound)+ under x^-1.7 on (edge / 2, edge], by a sum."""
    x = np.linspace(edge / 2, edge, 20_001)
    density = x**-1.7
    halves = np.array([1.0] + [2.0] * (x.size - 2) + [1.0])  # the trapezoid rule
    return float((halves * np.maximum(x - bound, 0) * density).sum() / (halves * density).sum())


def test_mean_excess_of_a_bin_is_its_integral():
    ends = np.array([1.0, 2.0, 8.0, 64.0])
    for bound in (1, 5, 6, 40, 64, 100):
        exact = [excess(end, bound) for end in ends]
        assert mean_excess(ends, bound) == pytest.approx(exact, rel=1e-4, abs=1e-4)


def brute_force(tail: NoisyHistogram, k: int, bound: float) -> tuple[float, float, float, float]:
    """m, sd, down and up of what a bound leaves out: every curve by itself, in plain loops."""
    value, s = tail.value.tolist(), tail.sd
    ends = [*tail.edges, 2 * tail.edges[-1]]
    people = float(cleaned(tail).sum())
    see, bins = people / s, range(len(ends) - k)
    visible = max(sum(0.72 * e * max(c, 0) for e, c in zip(ends[: k + 1], value, strict=False)),
                  0.72 * ends[k] * s / 4)  # fmt: skip
    curves = []
    for a, q, z in product(
        (-1, -0.5, 0, 0.3, 0.6, 0.9, 1.2, 1.6, 2, 2.5, 3.2, 4, 6), (0, 0.1, 0.2, 0.4, 0.8, 1.6), range(-4, 5)
    ):
        top = max(value[k] + z / 2 * s, s / 4)
        before = top * 2 ** min(max(a - q, -2), 8)
        curves.append((0.0, before, [top * 2 ** -(a * i + q * i * (i - 1) / 2) for i in bins]))
    power = len(curves)
    share = min(max(0.5 * (16 / see) ** 1.5, 0.04), 0.5)
    for d, j, a, z in product((0.15, 0.3, 0.6, 1, 1.4, 1.8, 2.2), range(1, 11), (1.5, 3, 8), (-1, 0, 1)):
        top = max(value[k] + z * s, s / 4)
        flat = [d * s * ((1 <= i <= j) + 0.5 * (i == j + 1)) for i in bins]
        curves.append((log(share * power / 630), top * 2**a, [top * 2 ** (-a * i) + flat[i] for i in bins]))
    assert len(curves) == power + 630 and power == 702
    gamma = min(max(0.75 * log2(see / 12), 0), 2)
    scores = []
    for prior, before, curve in curves:
        score = prior - sum((value[k + i] - curve[i]) ** 2 for i in bins) / (2 * s**2)
        if k:
            doubt = s**2 + (0.5 * max(before, value[k - 1])) ** 2
            score -= (value[k - 1] - before) ** 2 / (2 * doubt)
        rich = sum(0.72 * ends[k + i] * curve[i] for i in bins if i)
        scores.append(-inf if rich > 9 * visible else score - gamma * log(1 + rich / visible))
    best = max(scores)
    found = []
    for score, (_, _, curve) in zip(scores, curves, strict=True):
        weight = exp(score - best)
        if weight >= 1e-5:
            means = [excess(ends[k + i], bound) if ends[k + i] > bound else 0.0 for i in bins]
            x = sum(c * g for c, g in zip(curve, means, strict=True))
            own = sum(0.8 * curve[i] * means[i] * (ends[k + i] - bound) + (0.2 * curve[i] * means[i]) ** 2
                      for i in bins if ends[k + i] > bound)  # fmt: skip
            found.append((x, weight, own))
    total = sum(w for _, w, _ in found)
    value_below = variance = 0.0
    for e, c in zip(ends[:k], value, strict=False):
        if e > bound:
            value_below += max(c, 0) * excess(e, bound)
            variance += (s * excess(e, bound)) ** 2 + (0.2 * max(c, 0) * excess(e, bound)) ** 2
    variance += sum(w * own for _, w, own in found) / total
    mean = sum(w * x for x, w, _ in found) / total
    scatter = sum(w * (x - mean) ** 2 for x, w, _ in found) / total
    ends_of = []
    for share in (0.025, 0.5, 0.975):
        running = 0.0
        for x, w, _ in sorted(found):
            running += w
            if running >= share * total:
                ends_of.append(x)
                break
    down, up = (
        hypot(sqrt(variance), side / 1.96) for side in (ends_of[1] - ends_of[0], ends_of[2] - ends_of[1])
    )
    return value_below + ends_of[1], min(sqrt(variance + scatter), (down + up) / 2), down, up


@pytest.mark.parametrize(("seed", "bound"), by_default([(0, 5), (1, 40), (2, 200)], 1))
def test_the_posterior_is_the_sum_over_all_curves(seed, bound):
    noisy = histogram(np.minimum(pareto(3000, 1.5, seed), 300), 25.0, seed)
    tail = read_tail(noisy)
    estimate, error = tail.beyond(bound)
    value, sd, down, up = brute_force(noisy, tail.last, bound)
    assert (estimate, *error) == pytest.approx((value, sd, down, up), rel=1e-3)


def test_a_plateau_that_noise_hides_is_thought_of():
    """The hall of fame: a power law through the first two bins would say that next to nothing is beyond them."""
    value = np.array([*HALL_OF_FAME, *[0] * 10])
    tail = read_tail(NoisyHistogram(EDGES, value, 94.0))
    assert tail.end == 1.0
    estimate, error = tail.beyond(3)
    assert estimate > 900 and error.up > estimate / 2  # 3,585 rows are beyond three of each person
    sharp = read_tail(NoisyHistogram(EDGES, value, 5.0))
    assert sharp.end == 32.0


def test_nobody_is_no_error():
    for sd in (1e-3, 5.0):
        tail = read_tail(NoisyHistogram(EDGES, np.zeros(17, np.int64), sd))
        estimate, error = tail.beyond(1)
        assert np.isfinite([estimate, *error]).all()
        assert best_clip(tail, 3.0, 1 << 40) >= 1


def test_a_clip_weighs_noise_against_what_it_leaves_out():
    tail = read_tail(histogram(pareto(20_000, 1.5), 20.0))
    quiet, loud = best_clip(tail, 0.1, 1 << 40), best_clip(tail, 300.0, 1 << 40)
    assert loud < quiet
    assert tail.end / 4 <= loud and quiet <= 64 * tail.end
    assert best_clip(tail, 0.1, 7) == 7


@pytest.mark.parametrize("slope", [1.3, 1.6, 2.5])
def test_a_total_with_its_tail_put_back_is_near_and_its_ends_hold_it(slope):
    amounts, held, off, clipped = pareto(8000, slope), 0, [], []
    for seed in range(60):
        tail = read_tail(histogram(amounts, 12.0, seed))
        bound = best_clip(tail, 10.0, 1 << 40)
        cut = int(np.minimum(amounts, bound).sum())
        noisy = cut + round(10.0 * bound * np.random.default_rng(seed).normal())
        high = high_total(NoisyTotal(noisy, 10.0 * bound, bound), tail, rows=True)
        down, up = (hypot(high.clipped.sd, side) for side in (high.tail.down, high.tail.up))
        held += high.value - 1.96 * down <= amounts.sum() <= high.value + 1.96 * up
        off.append(abs(high.value - amounts.sum()))
        clipped.append(abs(noisy - amounts.sum()))
    assert held >= 53
    assert np.median(off) <= 1.05 * np.median(clipped)


def test_the_hall_of_fame_holds():
    """Its counts at 8% of (1, 1e-6): 94 people of noise a bin. 12 of 100 held when tails were slopes of two bins."""
    rng, s, u = np.random.default_rng(11), 94.0, 66.8
    exact = np.array([*HALL_OF_FAME, *[0] * 10])
    people = (
        819,
        158,
        77,
        82,
        52,
        42,
        34,
        34,
        36,
        29,
        26,
        12,
        13,
        12,
        10,
        15,
        15,
        20,
        14,
        5,
        7,
        2,
        6,
        8,
        3,
        2,
        3,
        2,
        1,
    )
    amounts = np.repeat([*range(1, 30), 33, 34, 35], [*people, 1, 2, 1])
    assert amounts.sum() == 6418
    held = 0
    for _ in range(100):
        noisy = NoisyHistogram(EDGES, np.rint(exact + rng.normal(0, s, 17)).astype(np.int64), s)
        tail = read_tail(noisy)
        bound = best_clip(tail, u, 1 << 40)
        cut = np.minimum(amounts, bound).sum() + rng.normal(0, u * bound)
        high = high_total(NoisyTotal(round(cut), u * bound, bound), tail, rows=True)
        down, up = (hypot(high.clipped.sd, side) for side in (high.tail.down, high.tail.up))
        held += high.blind or high.value - 1.96 * down <= amounts.sum() <= high.value + 1.96 * up
    assert held >= 88


def test_negative_totals_grow_downwards():
    tail = read_tail(histogram(pareto(8000, 1.5), 12.0))
    up, down = (high_total(NoisyTotal(sign * 100_000, 50.0, 30), tail, rows=False) for sign in (1, -1))
    assert up.value == -down.value > 100_000
    assert up.tail == down.tail and not up.blind and not down.blind


def test_what_noise_hides_is_blind():
    few = NoisyHistogram(EDGES, np.array([100, 60, 40, *[0] * 14]), 40.0)
    assert high_total(
        NoisyTotal(400, 1.0, 4), read_tail(few), rows=True
    ).blind  # five standard deviations of people
    many = NoisyHistogram(EDGES, np.array([1000, 600, 400, *[0] * 14]), 40.0)
    assert not high_total(NoisyTotal(40_000, 1.0, 4), read_tail(many), rows=True).blind
    assert high_total(
        NoisyTotal(400, 5000.0, 4), read_tail(many), rows=True
    ).blind  # within three of its errors
    spiked = NoisyHistogram(EDGES, np.array([800, 100, 100, *[0] * 14]), 40.0)
    assert high_total(NoisyTotal(40_000, 1.0, 4), read_tail(spiked), rows=False).blind
    assert not high_total(NoisyTotal(40_000, 1.0, 4), read_tail(spiked), rows=True).blind


def test_public_rows_have_no_tail():
    told = told_total(2000)
    assert (told.value, told.sd, told.blind) == (2000.0, 0.0, False)
