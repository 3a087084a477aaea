"""Numbers that notes of user-level answers state: upper bounds that hold, of 540 released histograms each."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from dpsql.contributions.histogram import doubling_edges, draw_histogram
from dpsql.contributions.selection import ContributionHistogram
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution
from dpsql.tree import Exact
from tests.releases import seeded

EDGES = doubling_edges(1, 20)
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
def test_bounds_in_notes_hold(
    star: Callable[[np.random.Generator], np.ndarray], law: NoiseDistribution
) -> None:
    owned = star(np.random.default_rng(8))
    exact = Exact(np.bincount(np.searchsorted(EDGES, owned), minlength=len(EDGES) + 1).astype(np.int64))
    for seed in range(RELEASES):
        noise = seeded(seed)
        for spend in (Fraction(1, 10), Fraction(1, 100), Fraction(1, 1000)):
            known = ContributionHistogram(draw_histogram(exact, EDGES, spend, law, noise))
            units, above = known.unseen
            assert int(np.sum(owned > above)) <= units


def test_bounds_say_something() -> None:
    """Where noise is small they are near the truth: bins double, so a share may be twice too large."""
    owned = uneven(np.random.default_rng(8))
    exact = Exact(np.bincount(np.searchsorted(EDGES, owned), minlength=len(EDGES) + 1).astype(np.int64))
    known = ContributionHistogram(draw_histogram(exact, EDGES, Fraction(4), GAUSSIAN, seeded(1)))
    assert known.unseen[0] < 20
