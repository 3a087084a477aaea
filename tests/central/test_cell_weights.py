"""Weights of people who touch many cells: the choice of K, and the lines between which the people of a cell lie."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.central.people import CellWeights, choose_weights
from dpsql.contributions.histogram import NoisyHistogram, doubling_edges, draw_histogram
from dpsql.contributions.selection import ContributionHistogram
from dpsql.mechanisms.designs.distinct import UNIT, cell_weight
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution, published
from dpsql.tree import Exact
from tests.releases import seeded

CELLS = 60
EDGES = doubling_edges(1, CELLS.bit_length() + 1)


def crowd(seed: int) -> list[np.ndarray]:
    """The cells of each of 400 people; the busier ones meet in the first cells."""
    rng = np.random.default_rng(seed)
    sizes = np.minimum(rng.lognormal(1.5, 1.2, 400).astype(int) + 1, CELLS)
    busy = rng.dirichlet(np.full(CELLS, 0.4))
    return [
        rng.choice(CELLS, size, replace=False, p=None if size < 8 else 0.9 * busy + 0.1 / CELLS)
        for size in sizes
    ]


def histogram(people: list[np.ndarray], sd: float = 0.0, seed: int = 0) -> NoisyHistogram:
    counts = np.bincount(np.searchsorted(EDGES, [len(cells) for cells in people]), minlength=len(EDGES) + 1)
    noisy = counts + np.round(np.random.default_rng(seed).normal(0, sd, len(counts))).astype(int)
    return NoisyHistogram(EDGES, published(noisy), sd)


def counted(people: list[np.ndarray], bound: int, law: NoiseDistribution) -> tuple[np.ndarray, np.ndarray]:
    """People of each cell, and the sums of their weights."""
    exact, weighed = np.zeros(CELLS), np.zeros(CELLS)
    for cells in people:
        exact[cells] += 1
        weighed[cells] += cell_weight(len(cells), bound, law) / UNIT
    return exact, weighed


@pytest.mark.parametrize("law", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("bound", [1, 4, 16])
@pytest.mark.parametrize("seed", range(4))
def test_the_people_of_every_cell_lie_between_the_lines(law, bound, seed):
    people = crowd(seed)
    weights = CellWeights(bound, CELLS, histogram(people), law)
    assert weights.bounds is not None
    exact, weighed = counted(people, bound, law)
    estimate = weights.factor * weighed
    assert np.all(weights.bounds.below(estimate) <= exact + 1e-9)
    assert np.all(exact <= weights.bounds.above(estimate) + 1e-9)
    off = np.abs(estimate - exact)
    assert off.max() > 1, "one factor is wrong for some cell"


def test_lines_hold_the_noise_of_the_histogram() -> None:
    """Of 200 histograms a few may mislead about the cell that is hardest to bound, and no more."""
    people, missed = crowd(1), 0
    exact, weighed = counted(people, 4, GAUSSIAN)
    for seed in range(200):
        weights = CellWeights(4, CELLS, histogram(people, 15.0, seed), GAUSSIAN)
        assert weights.bounds is not None
        estimate = weights.factor * weighed
        above, below = weights.bounds.above(estimate), weights.bounds.below(estimate)
        missed += bool(np.any(exact > above) or np.any(exact < below))
    assert missed <= 10


def test_everybody_weighs_one_where_that_costs_little() -> None:
    people = crowd(2)
    for sd, bound in ((0.01, CELLS), (0.5, CELLS)):
        chosen = choose_weights(histogram(people), CELLS, CELLS, GAUSSIAN, lambda k, sd=sd: sd * k**0.5)
        assert chosen.bound == bound
        assert chosen.bounds is None
        assert chosen.factor == 1.0
    chosen = choose_weights(histogram(people), CELLS, CELLS, GAUSSIAN, lambda k: 60.0 * k**0.5)
    assert chosen.bound < CELLS, "much noise: a bias is the smaller error"
    assert chosen.bounds is not None


def test_nobody_seen_weighs_nobody_down() -> None:
    nobody = NoisyHistogram(EDGES, published(np.zeros(len(EDGES) + 1, np.int64)), 1.0)
    weights = CellWeights(2, CELLS, nobody, GAUSSIAN)
    assert weights.factor == 1.0


# Numbers that notes of user-level answers state: upper bounds that hold, of 540 released histograms each.


NOTE_EDGES = doubling_edges(1, 20)
RELEASES = 30


def uneven(rng: np.random.Generator) -> np.ndarray:
    """Rows per unit, log-normal."""
    return np.maximum(rng.lognormal(2.0, 1.0, 3000).astype(int), 1)


def bots(rng: np.random.Generator) -> np.ndarray:
    """Five units of 3,800 rows each among thousands of a few."""
    return np.concatenate([rng.poisson(8, 4995) + 1, np.full(5, 3800)])


def rarely(rng: np.random.Generator) -> np.ndarray:
    """Half of the units with one row, the others with a long tail."""
    return np.where(rng.random(1200) < 0.5, 1, np.minimum(rng.pareto(0.9, 1200) * 3 + 1, 60_000)).astype(int)


@pytest.mark.parametrize("law", [GAUSSIAN, LAPLACE])
@pytest.mark.parametrize("star", [uneven, bots, rarely])
def test_bounds_in_notes_hold(star, law):
    owned = star(np.random.default_rng(8))
    exact = Exact(
        np.bincount(np.searchsorted(NOTE_EDGES, owned), minlength=len(NOTE_EDGES) + 1).astype(np.int64)
    )
    for seed in range(RELEASES):
        noise = seeded(seed)
        for spend in (Fraction(1, 10), Fraction(1, 100), Fraction(1, 1000)):
            known = ContributionHistogram(draw_histogram(exact, NOTE_EDGES, spend, law, noise))
            units, above = known.unseen
            assert int(np.sum(owned > above)) <= units


def test_bounds_say_something() -> None:
    """Where noise is small they are near the truth: bins double, so a share may be twice too large."""
    owned = uneven(np.random.default_rng(8))
    exact = Exact(
        np.bincount(np.searchsorted(NOTE_EDGES, owned), minlength=len(NOTE_EDGES) + 1).astype(np.int64)
    )
    known = ContributionHistogram(draw_histogram(exact, NOTE_EDGES, Fraction(4), GAUSSIAN, seeded(1)))
    assert known.unseen[0] < 20
