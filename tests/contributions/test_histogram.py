"""Noisy histograms with doubling bins and the quantiles that are read off them."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines.common import SimulationNoise
from dpsql.contributions.histogram import NoisyHistogram, cleaned, doubling_edges, draw_histogram, quantile
from dpsql.errors import InternalError
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, LAWS
from dpsql.noise import ZeroNoise
from tests.twins import bin_of

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
