"""Tails of histograms, clips, factors of several measures: section 2 of the recipe."""

from __future__ import annotations

from math import exp, isclose, log2, sqrt

import numpy as np
import pytest
from scipy.integrate import trapezoid

from dpsql.mechanisms.family.people import Estimate, NoisyHistogram, NoisyTotal, doubling_edges
from dpsql.mechanisms.family.tails import (
    ALIKE,
    HighTotal,
    Scaled,
    Tail,
    best_clip,
    factors,
    high_total,
    pool,
    read_tail,
    told_total,
)
from tests.twins import bin_of

EDGES = doubling_edges(1, 16)


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
    assert tail.slope == pytest.approx(log2(5))
    assert tail.over == pytest.approx(60 / 4)
    assert tail.worst_slope < tail.slope and tail.worst_over > tail.over


def test_people_beyond_a_gap_are_seen_where_they_are_certain():
    """Two kinds of customers, of 6 and of 60 rows: a run that ends at the gap would lose five sixths of the rows."""
    value = np.bincount(bin_of([6] * 2000 + [60] * 1000, EDGES), minlength=17)
    for far, end in ((1000, 64.0), (50, 8.0)):
        value[6] = far
        tail = read_tail(NoisyHistogram(EDGES, value, 10.0))
        assert tail.end == end
        assert tail.over <= max(0, far * (end < 64)) + 17


def test_what_few_may_hold_is_limited_by_what_is_seen():
    value = np.array([0, 800, 500, 450, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0])
    tail = read_tail(NoisyHistogram(EDGES, value, 5.0))
    assert tail.slope == pytest.approx(log2(1.4))
    assert tail.over == pytest.approx(8.5)  # 450 / 0.4 would be seen
    nobody = read_tail(NoisyHistogram(EDGES, np.zeros(17, np.int64), 5.0))
    assert nobody.end == 1.0 and nobody.over <= 8.5


@pytest.mark.parametrize("slope", [1.2, 2.0, 3.0])
def test_excess_is_what_people_own_above_a_bound(slope):
    amounts = pareto(50_000, slope)
    amounts = amounts[amounts <= 256]
    tail = read_tail(histogram(amounts, 0.0))
    for bound in (8, 16, 50, 120):
        exact = np.maximum(amounts - bound, 0).sum()
        found = tail.excess(bound)
        assert abs(found.value - exact) < max(0.25 * exact, 3 * found.sd)


def test_mean_excess_of_a_bin_is_its_integral():
    tail = Tail((8.0, 16.0), (0.0, 100.0), 0.0, 1.0, 1.0, 0.0, 0.0)
    x = np.linspace(8, 16, 200_001)
    density = x**-2.0
    exact = 100 * trapezoid(np.maximum(x - 10, 0) * density, x) / trapezoid(density, x)
    assert tail.excess(10).value == pytest.approx(exact, rel=1e-3)
    assert tail.excess(16).value == 0.0


def test_a_clip_weighs_noise_against_what_it_leaves_out():
    tail = read_tail(histogram(pareto(20_000, 1.5), 20.0))
    quiet, loud = best_clip(tail, 0.1, 1 << 40), best_clip(tail, 300.0, 1 << 40)
    assert loud < quiet
    assert tail.end / 4 <= loud and quiet <= 4 * tail.end
    assert best_clip(tail, 0.1, 7) == 7
    assert best_clip(read_tail(NoisyHistogram(EDGES, np.zeros(17, np.int64), 5.0)), 3.0, 1 << 40) >= 1


@pytest.mark.parametrize("slope", [1.3, 1.6, 2.5])
def test_a_total_with_its_tail_put_back_is_near_and_its_ends_hold_it(slope):
    amounts, held, off, clipped = pareto(8000, slope), 0, [], []
    for seed in range(60):
        tail = read_tail(histogram(amounts, 12.0, seed))
        bound = best_clip(tail, 10.0, 1 << 40)
        cut = int(np.minimum(amounts, bound).sum())
        noisy = cut + round(10.0 * bound * np.random.default_rng(seed).normal())
        high = high_total(NoisyTotal(noisy, 10.0 * bound, bound), tail, 1)
        held += high.value - 1.96 * high.down <= amounts.sum() <= high.value + 1.96 * high.up
        off.append(abs(high.value - amounts.sum()))
        clipped.append(abs(noisy - amounts.sum()))
    assert held >= 54
    assert np.median(off) <= 1.05 * np.median(clipped)


def test_negative_totals_grow_downwards():
    tail = read_tail(histogram(pareto(8000, 1.5), 12.0))
    up, down = (high_total(NoisyTotal(sign * 100_000, 50.0, 30), tail, sign) for sign in (1, -1))
    assert up.value == -down.value > 100_000
    assert (up.down, up.up) == (down.down, down.up)


def total(value: float, sd: float) -> HighTotal:
    return HighTotal(NoisyTotal(round(value), sd, 1), value, sd, sd, 2 * sd, sd, 0.0)


def scaled(value: float, sd: float, low: float) -> Scaled:
    return Scaled(total(value, sd), Estimate(low, 0.0), 0.0)


def test_factors_that_are_alike_are_pooled_and_others_are_not():
    rows, alike = scaled(2000, 40, 1000), scaled(2040, 40.8, 1000)
    found = factors(rows, {"m": alike}, 0.025)
    assert 2.0 < found[""].value < found["m"].value < 2.04
    assert isclose(
        found["m"].value / found[""].value, exp(0.0198 * ALIKE**2 / (8e-4 + ALIKE**2)), rel_tol=1e-3
    )
    apart = factors(rows, {"m": scaled(2400, 48, 1000)}, 0.025)
    assert pool(rows, scaled(2400, 48, 1000)).clear
    assert apart["m"].value / apart[""].value > 1.17
    assert apart["m"].mean_error.noise > found["m"].mean_error.noise
    assert found[""].error.noise < 0.02 < 1.01 * apart[""].error.noise


def test_pooling_is_as_written():
    """gap^2 > 4 (a^2 + b^2) is clear; each moves by its own part of the gap."""
    rows, sums = scaled(2000, 20, 1000), scaled(2300, 69, 1000)
    a, b, gap = 0.01, 0.03, np.log(1.15)
    p2 = gap**2 - a**2 - b**2
    found = factors(rows, {"m": sums}, 0.025)
    assert found[""].value == pytest.approx(2 * exp(gap * a**2 / (a**2 + b**2 + p2)))
    assert found["m"].value == pytest.approx(2.3 * exp(-gap * b**2 / (a**2 + b**2 + p2)))
    q2 = max(p2, 0.025**2)
    assert found[""].error.noise == pytest.approx(sqrt(a**2 - a**4 / (a**2 + b**2 + q2)))
    assert found[""].error.up == pytest.approx(2 * found[""].error.noise)
    kappa = q2 / (q2 + a**2 + b**2)
    assert found["m"].mean_error.up == pytest.approx(sqrt(kappa * (a**2 + (2 * b) ** 2)))
    assert found["m"].mean_error.down == pytest.approx(sqrt(kappa * ((2 * a) ** 2 + b**2)))


def test_rows_that_are_told_stay_as_they_are():
    rows = Scaled(told_total(2000), Estimate(1000.0, 5.0), 0.0)
    found = factors(rows, {"m": scaled(2100, 60, 1000)}, 0.025, told=True)
    assert (found[""].value, found[""].error.up) == (2.0, 0.0)
    assert 2.0 < found["m"].value < 2.1


def test_totals_that_noise_hides_have_no_factor():
    lost = factors(scaled(50, 40, 1000), {"m": scaled(2000, 20, 1000)}, 0.025)
    assert lost[""].measured is None and lost["m"].value == lost[""].value == 1.0
    assert lost[""].error.noise == 1.0
    kept = factors(scaled(2000, 20, 1000), {"m": scaled(10, 20, 1000)}, 0.025)
    assert kept["m"].value == kept[""].value == pytest.approx(2.0)
    below = factors(scaled(900, 20, 1000), {}, 0.025)
    assert below[""].value == 1.0 and below[""].measured == pytest.approx(0.9)
