"""95% intervals of blocks hold the exact number of rows in random rectangles, on planes that nothing was tuned on.

A plane is made anew by each seed: discs and scattered rows, heavy cells, or a diagonal ridge. Every release draws a
plane of its own, its noise and 300 rectangles. Rectangles of one release err together, so the share of intervals that
hold is taken over releases: its mean may fall below 95% by three standard errors of that mean and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from benchmarks.baselines.common import SimulationNoise
from dpsql.matrices.blocks import BlockVariance
from dpsql.mechanisms.axis import auto_strategy
from dpsql.mechanisms.designs import blocks
from dpsql.mechanisms.designs.blocks import Blocks
from dpsql.mechanisms.designs.measurement import DrawnMember, DrawParameters
from dpsql.mechanisms.designs.question import FamilyAxis, Grains
from dpsql.mechanisms.distribution import LAPLACE

LEAVES, RELEASES, ASKED = 96, 30, 300
Rng = np.random.Generator


def discs(rng: Rng) -> np.ndarray:
    x, y = np.indices((LEAVES, LEAVES))
    plane = rng.poisson(0.01, x.shape)
    for _ in range(4):
        a, b, radius = [*rng.integers(0, LEAVES, 2).tolist(), int(rng.integers(3, 12))]
        plane[(x - a) ** 2 + (y - b) ** 2 <= radius**2] += rng.integers(1, 30)
    return plane


def heavy_cells(rng: Rng) -> np.ndarray:
    plane = np.zeros((LEAVES, LEAVES), np.int64)
    plane[tuple(rng.integers(0, LEAVES, (2, 150)))] = rng.integers(1, 300, 150)
    return plane


def ridge(rng: Rng) -> np.ndarray:
    x, y = np.indices((LEAVES, LEAVES))
    return rng.poisson(8 * np.exp(-(((x - y + rng.integers(-20, 20)) / 4) ** 2)))


def rectangles(rng: Rng) -> list[np.ndarray]:
    ends = np.sort(rng.integers(0, LEAVES + 1, (2, 2 * ASKED, 2)), axis=-1)
    ends = ends[:, np.all(ends[..., 0] < ends[..., 1], axis=0)][:, :ASKED]
    leaf = np.arange(LEAVES)
    return [((leaf >= each[:, :1]) & (leaf < each[:, 1:])).astype(float) for each in ends]


@pytest.mark.parametrize("epsilon", [Fraction(1, 10), pytest.param(Fraction(1), marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [discs, heavy_cells, ridge])
def test_intervals_hold_rectangles_of_planes_nothing_was_tuned_on(
    make: Callable[[Rng], np.ndarray], epsilon: Fraction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(blocks, "MOST_LOUD", 2.0)  # blocks, however many of them are loud
    axis = FamilyAxis("x", LEAVES, None, Grains(1, 1))
    measured = Blocks((axis, axis), 1e9)
    terms = DrawParameters([auto_strategy(LEAVES).strategy] * 2, LAPLACE, epsilon, 1)
    held = []
    for seed in range(RELEASES):
        rng = np.random.default_rng(seed)
        plane, asked = make(rng).astype(np.int64), rectangles(rng)
        drawn = measured.draw(plane, terms, SimulationNoise(1000 + seed))
        own = measured.settled(drawn)
        model = own.facts.model
        assert isinstance(model, BlockVariance)
        leaves = own.estimate([DrawnMember((), drawn)], {})[0].leaves
        wrong = np.einsum("ga,ab,gb->g", asked[0], leaves - plane, asked[1])
        stated = model.covariance(asked)
        held.append(np.mean(np.abs(wrong) <= 1.96 * np.sqrt(stated.noise + stated.within_leaf)))
    mean, error = np.mean(held), np.std(held) / RELEASES**0.5
    assert mean >= 0.95 - 3 * error, (mean, error)
