"""Factors of rows and measures: how the gap between two is shrunk, what errors stay, what has no upper end."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from math import exp, hypot, inf, log, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.common import SimulationNoise
from dpsql.contributions.constants import ALIKE
from dpsql.contributions.factors import Scaled, TotalsFactor, factors, pool, unevenness
from dpsql.contributions.histogram import (
    NoisyHistogram,
    NoisyTotal,
    PeopleEstimate,
    cleaned,
    doubling_edges,
    draw_histogram,
    quantile,
)
from dpsql.contributions.tail import ClippedTotal, TailError, public_total
from dpsql.errors import InternalError
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, LAWS
from dpsql.noise import ZeroNoise
from tests.twins import bin_of


def scaled(value: float, noise: float, tail: TailError, low: float, **options: float) -> Scaled:
    """A total whose noise and tail are given relative to it."""
    drawn = NoisyTotal(round(value), noise * value, 10)
    return Scaled(
        ClippedTotal(drawn, 0.0, TailError(*(x * value for x in tail))), PeopleEstimate(low, 0.0), **options
    )


def even(side: float) -> TailError:
    return TailError(side, side, side)


def test_pooling_is_as_written():
    """Section 4 of the method, number by number."""
    rows = scaled(2000, 0.01, TailError(0.02, 0.015, 0.04), 1000)
    sums = scaled(2300, 0.03, TailError(0.02, 0.01, 0.05), 1000, uneven=0.4, rows=0.007)
    a2, b2, c = 0.01**2 + 0.02**2, 0.03**2 + 0.02**2, 0.5 * 0.02 * 0.02
    gap, g2 = log(1.15), a2 + b2 - 2 * c
    p2 = max((0.03 + 0.15 * 0.4) ** 2, min(gap**2 - g2, 0.25))
    assert gap**2 > 4 * g2
    found = factors(rows, {"m": sums})
    assert found[""].value == pytest.approx(2 * exp(gap * (a2 - c) / (g2 + p2)))
    assert found["m"].value == pytest.approx(2.3 * exp(-gap * (b2 - c) / (g2 + p2)))
    rest = sqrt(1 - (a2 - c) ** 2 / (g2 + p2) / a2)
    of_sums = sqrt(1 - (b2 - c) ** 2 / (g2 + p2) / b2)
    influence = 0.05 * min(1, max(0, (b2 - c) / (g2 + p2)))
    assert 0.002 < influence < 0.05
    assert found["m"].error.noise == pytest.approx(of_sums * 0.03)
    assert found["m"].error.down == pytest.approx(hypot(of_sums * hypot(0.03, 0.01), influence))
    assert found["m"].error.up == pytest.approx(hypot(of_sums * hypot(0.03, 0.05), influence))
    assert found[""].error.noise == pytest.approx(rest * 0.01)
    assert found[""].error.down == pytest.approx(rest * hypot(0.01, 0.015))
    assert found[""].error.up == pytest.approx(rest * hypot(0.01, 0.04))
    stays, noise = p2 / (g2 + p2), 0.01**2 + 0.03**2
    own = (g2 / (g2 + p2) * 0.007) ** 2
    assert found["m"].mean_error.down == pytest.approx(
        sqrt(stays * (noise + 0.04**2 + 0.01**2 - 0.04 * 0.01) + own)
    )
    assert found["m"].mean_error.up == pytest.approx(
        sqrt(stays * (noise + 0.015**2 + 0.05**2 - 0.015 * 0.05) + own)
    )


def test_a_sum_that_lags_the_rows_may_be_as_much_and_more():
    """Heavy people who are seen among rows alone: their values are nothing, or up to twice those of others."""
    rows, sums = scaled(2200, 0.02, even(0.03), 1000), scaled(1000, 0.02, even(0.02), 1000)
    found = factors(rows, {"m": sums})
    gap = found[""].value / found["m"].value - 1
    assert gap > 1
    for error in (found["m"].error, found["m"].mean_error):
        assert error.up == pytest.approx(gap * (1 / 1.96 + 0.5), rel=0.02)
        assert error.down < 0.5


def test_factors_that_are_alike_are_pooled_and_others_are_not():
    rows = scaled(2000, 0.02, even(0.0), 1000)
    found = factors(rows, {"m": scaled(2040, 0.02, even(0.0), 1000)})
    assert 2.0 < found[""].value < found["m"].value < 2.04
    gap = log(1.02) * ALIKE**2 / (8e-4 + ALIKE**2)
    assert log(found["m"].value / found[""].value) == pytest.approx(gap)
    apart = factors(rows, {"m": scaled(2400, 0.02, even(0.0), 1000)})
    assert apart["m"].value / apart[""].value > 1.17
    assert apart["m"].mean_error.noise > found["m"].mean_error.noise


def test_tails_of_the_same_people_err_together():
    """Two tails that err alike leave the gap alone: nothing moves, and no error shrinks by what is common."""
    rows, sums = (scaled(value, 1e-6, even(0.1), 1000) for value in (2000, 2100))
    pooled = pool(rows, sums)
    assert pooled.variance == pytest.approx(2 * 0.01 - 0.01)
    found = factors(rows, {"m": sums})
    assert found[""].error.up > 0.085


def test_uneven_measures_are_not_taken_for_alike():
    rows = scaled(2000, 0.01, even(0.05), 1000)
    priors = [
        pool(rows, scaled(2000, 0.01, even(0.05), 1000, uneven=uneven)).prior for uneven in (0.0, 0.6, 1.2)
    ]
    assert [sqrt(prior) for prior in priors] == pytest.approx([0.03, 0.12, 0.21])


@pytest.mark.parametrize(("gap", "uneven"), [(log(1.1), 0.4), (1.1, 1.0)])
def test_averages_hold_where_rows_and_sums_leave_out_different_parts(gap, uneven):
    """Heavy owners own dearer things: factors that are 10% apart, which noise hides, and three times."""
    rng, held = np.random.default_rng(4), 0
    for _ in range(200):
        common, a, b = rng.normal(0, 0.05, 3)
        tails = [0.5**0.5 * (common + x) for x in (a, b)]
        rows = scaled(2000 * exp(tails[0] + rng.normal(0, 0.02)), 0.02, even(0.05), 1000)
        sums = scaled(2000 * exp(gap + tails[1] + rng.normal(0, 0.02)), 0.02, even(0.05), 1000, uneven=uneven)
        found = factors(rows, {"m": sums})
        ratio, error = found["m"].value / found[""].value, found["m"].mean_error
        held += -1.96 * error.up <= log(ratio) - gap <= 1.96 * error.down
    assert held >= 180


def test_unevenness_compares_means_over_medians():
    edges = tuple(1 << i for i in range(12))
    light = NoisyHistogram(edges, np.array([0, 100, 400, 400, 100, 0, 0, 0, 0, 0, 0, 0, 0]), 1.0)
    heavy = NoisyHistogram(edges, np.array([0, 300, 300, 100, 100, 100, 50, 50, 0, 0, 0, 0, 0]), 1.0)
    assert unevenness(light, light) == 0.0
    assert unevenness(light, heavy) > 0.5
    far = NoisyHistogram(edges, np.array([0, 100, 400, 400, 100, 0, 0, 0, 0, 0, 3, 0, 0]), 1.0)
    assert unevenness(light, far) == 0.0  # a far bin is noise
    small = NoisyHistogram(edges, np.array([800, 200, *[0] * 11]), 1.0)
    assert unevenness(light, small) == pytest.approx(
        abs(log((800 + 200 * sqrt(2)) / 1000 / (0.5 * 1000 / 800)) - log_ratio(light))
    )
    nobody = NoisyHistogram(edges, np.zeros(13, np.int64), 5.0)
    assert unevenness(nobody, nobody) == 0.0


def log_ratio(histogram: NoisyHistogram) -> float:
    middles = np.array([1.0, *(sqrt(2) * 2**i for i in range(11)), 2**11])
    mean = float(histogram.value @ middles) / float(histogram.value.sum())
    return log(mean / 4.0)  # half of the people have at most 4


def test_rows_that_are_told_stay_as_they_are():
    rows = Scaled(public_total(2000), PeopleEstimate(1000.0, 5.0))
    found = factors(rows, {"m": scaled(2100, 0.03, even(0.0), 1000)}, public_rows=True)
    assert (found[""].value, found[""].error.up) == (2.0, 0.0)
    assert 2.0 < found["m"].value < 2.1


def lost(measure: Scaled) -> Scaled:
    return Scaled(
        ClippedTotal(measure.high.clipped, 0.0, measure.high.tail, blind=True), measure.low, measure.rows
    )


def open_above(factor: TotalsFactor) -> bool:
    return factor.error.up == inf


def test_blind_rows_have_no_upper_end():
    rows, sums = scaled(2000, 0.01, even(0.0), 1000), scaled(5000, 0.01, even(0.0), 1000)
    found = factors(lost(rows), {"m": sums})
    assert all(each.measured is None and each.value == 1.0 and open_above(each) for each in found.values())
    assert found["m"].mean_error.up == inf


def test_blind_sums_follow_the_rows():
    rows, sums = scaled(2000, 0.01, even(0.02), 1000), scaled(5000, 0.01, even(0.0), 1000)
    found = factors(rows, {"m": lost(sums), "n": scaled(2000, 0.01, even(0.02), 1000)})
    assert not open_above(found[""]) and not open_above(found["n"]) and open_above(found["m"])
    mean = hypot(0.06, 0.12 * log(found[""].value))
    assert found["m"].value == found[""].value
    assert (found["m"].mean_error.down, found["m"].mean_error.up) == (pytest.approx(mean), inf)
    assert found["m"].error.down == pytest.approx(hypot(found[""].error.down, mean))


def test_factors_below_one_stay_and_those_below_a_half_are_cut():
    found = factors(scaled(900, 0.01, even(0.0), 1000), {})
    assert found[""].value == found[""].measured == pytest.approx(0.9)
    assert found[""].total == pytest.approx(900)
    assert factors(scaled(300, 0.01, even(0.0), 1000), {})[""].value == 0.5


def test_the_noise_of_a_scale_is_that_of_its_total_alone():
    """R c is a share of N: noise of the views' total is that of the share, and no part of the scale."""
    noisy = replace(scaled(2000, 0.01, even(0.02), 1000), low=PeopleEstimate(1000.0, 50.0))
    error = factors(noisy, {})[""].error
    assert (error.noise, error.down) == pytest.approx((0.01, hypot(0.01, 0.02)))


def test_known_rows_have_the_noise_of_both_totals_of_views():
    rows = factors(scaled(2000, 0.01, even(0.02), 1000), {})[""]
    known = rows.of_known(PeopleEstimate(800.0, 8.0), PeopleEstimate(1000.0, 20.0))
    apart = hypot(0.01, 0.02)
    assert known.error.noise == pytest.approx(hypot(0.01, apart)) and known.mean_error.up == pytest.approx(
        apart
    )
    # what both counts have in common is the total alone
    shared = (rows.error.noise**2 + known.error.noise**2 - known.mean_error.noise**2) / 2
    assert shared == pytest.approx(rows.error.noise**2)


# Noisy histograms with doubling bins and the quantiles that are read off them.


EDGES = doubling_edges(1, 16)


@given(st.integers(0, 1 << 20))
def test_every_amount_has_one_bin(amount):
    place = int(bin_of([amount], EDGES)[0])
    above = EDGES[place] if place < len(EDGES) else None
    below = EDGES[place - 1] if place else -1
    assert below < amount and (above is None or amount <= above)


@pytest.mark.parametrize("norm", [1, 2])
def test_the_noise_has_the_scale_that_the_budget_buys(norm):
    empty = np.zeros(len(EDGES) + 1, np.int64)
    amount = Fraction(1, 50)
    noise = SimulationNoise(7)
    drawn = [draw_histogram(empty, EDGES, amount, LAWS[norm], noise) for _ in range(400)]
    exact = 2**0.5 / float(amount) if norm == 1 else (1 / float(amount)) ** 0.5
    assert drawn[0].sd == pytest.approx(exact, rel=0.01)
    assert np.std([h.value for h in drawn]) == pytest.approx(exact, rel=0.05)


def test_one_person_more_changes_one_count_by_one():
    amounts = np.random.default_rng(1).integers(1, 5000, 300)
    before = np.bincount(bin_of(amounts, EDGES), minlength=len(EDGES) + 1)
    for extra in (0, 1, 37, 10_000, 1 << 40):
        after = np.bincount(bin_of([*amounts, extra], EDGES), minlength=len(EDGES) + 1)
        assert np.abs(after - before).sum() == 1


@pytest.mark.parametrize(("middle", "spread"), [(10.0, 0.98), (42.0, 1.26)])
def test_quantiles_of_thousands_of_people_are_close(middle, spread):
    rng = np.random.default_rng(3)
    amounts = np.maximum(np.rint(rng.lognormal(np.log(middle), spread, 5000)), 1).astype(int)
    people = np.bincount(bin_of(amounts, EDGES), minlength=len(EDGES) + 1)
    for share in (0.5, 0.9):
        found = [
            quantile(
                draw_histogram(people, EDGES, Fraction(5, 10_000), GAUSSIAN, SimulationNoise(seed)), share
            )
            for seed in range(50)
        ]
        assert np.median(found) == pytest.approx(np.quantile(amounts, share), rel=0.15)


def test_quiet_bins_are_emptied_and_nobody_gives_the_first_edge():
    histogram = NoisyHistogram((1, 2, 4), np.array([-3, 19, 21, 5]), 10.0)
    assert cleaned(histogram).tolist() == [0, 0, 21, 0]
    nobody = draw_histogram(np.zeros(17, np.int64), EDGES, Fraction(1), GAUSSIAN, ZeroNoise())
    assert quantile(nobody, 0.5) == 1.0 == quantile(nobody, 0.9)


def test_the_overflow_bin_answers_with_the_last_edge():
    assert quantile(NoisyHistogram((1, 2, 4), np.array([0, 0, 0, 90]), 1.0), 0.5) == 4.0


def test_wrong_shapes_are_refused():
    with pytest.raises(InternalError):
        draw_histogram(np.zeros(2, np.int64), (1, 2), Fraction(1), LAPLACE, ZeroNoise())
    with pytest.raises(InternalError):
        doubling_edges(0, 3)
