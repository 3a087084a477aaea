"""The auditor on neighbours that differ in one customer of 1, 10 or 1,000 rows: the recipe holds, plants are found."""

from __future__ import annotations

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from benchmarks.baselines.common import SimulationNoise
from dpsql.contributions.histogram import doubling_edges, draw_histogram, draw_total
from dpsql.contributions.norm_clipping import UNIT, WhitenedStatistic, whiten
from dpsql.curator.audit import blackbox as audit
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.strategy import draw_view
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
from tests.strategies import draw_at
from tests.twins import bin_of, pure_weight, weight_of

SAMPLES = 20_000
CELLS = 6
MU2 = Fraction(1, 10)
DELTA = Fraction(1, 1000)  # events that the auditor judges by are far likelier
EPSILON = Fraction(1)
TAU, BOUND, MID = 4, 60, 20
WHITENING = whiten(
    [
        WhitenedStatistic(Fraction(55, 100), Fraction(TAU + TAU**2, CELLS)),
        WhitenedStatistic(Fraction(45, 100), Fraction(9 * TAU * MID**2, CELLS)),
    ]
)
CLIP = 1 << WHITENING.point


@cache
def customer(rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Her rows and centred sums per cell: most of them in one cell, dear."""
    cell = np.where(np.arange(rows) % 5, 2, np.arange(rows) % CELLS)
    count = np.bincount(cell, minlength=CELLS)
    centred = np.bincount(cell, weights=np.full(rows, 15), minlength=CELLS)
    return count.astype(np.int64), centred.astype(np.int64)


def crowd() -> tuple[np.ndarray, np.ndarray]:
    """What everybody else adds, in units of a weight."""
    return np.full(CELLS, 50 * UNIT), np.zeros(CELLS, np.int64)


def clipped_sampler(plant: str) -> audit.Sampler:
    """Gaussian: input row 0 tells how many rows the customer owns; both statistics are drawn for each run."""

    def sample(data: np.ndarray, size: int) -> np.ndarray:
        noise = SimulationNoise(int(data[0]) + size)
        count, centred = customer(int(data[0]))
        squares = [int((count**2).sum()), int((centred**2).sum())]
        norm = sum(c * q for c, q in zip(WHITENING.coefficient, squares, strict=True))
        weight = UNIT if plant == "not clipped" else weight_of(norm, CLIP)
        runs = []
        for index, (others, own) in enumerate(zip(crowd(), (count, centred), strict=True)):
            variance = WHITENING.variance(index, CLIP, MU2)
            if plant == "noise for one view":
                variance /= 16
            copies = np.repeat((others + weight * own)[:, None], size, axis=1)
            strategies = [LeafStrategy(CELLS, GAUSSIAN), LeafStrategy(size, GAUSSIAN)]
            runs.append(draw_at(copies, strategies, variance, UNIT, noise).value.T)
        return np.concatenate(runs, axis=1)

    return sample


def pure_sampler(plant: str) -> audit.Sampler:
    """Pure epsilon: counts at tau and sums at T, half of epsilon each."""

    def sample(data: np.ndarray, size: int) -> np.ndarray:
        noise = SimulationNoise(int(data[0]) + size)
        count, centred = customer(int(data[0]))
        weight = pure_weight(int(count.sum()), [int(np.abs(centred).sum())], TAU, [BOUND])
        weight = UNIT if plant == "not clipped" else weight
        runs = []
        for others, own, reach in zip(crowd(), (count, centred), (TAU, BOUND), strict=True):
            copies = np.repeat((others + weight * own)[:, None], size, axis=1)
            strategies = [LeafStrategy(CELLS), LeafStrategy(size)]
            halved = reach // 2 if plant == "half the bound" else reach
            runs.append(draw_view(copies, strategies, EPSILON / 2, UNIT * halved, noise).value.T)
        return np.concatenate(runs, axis=1)

    return sample


def found_mu2(plant: str, rows: int) -> audit.AuditFinding:
    ends = np.array([rows]), np.array([0])
    return audit.audit_mu2(clipped_sampler(plant), audit.NeighbourPair(*ends), MU2, SAMPLES, delta=DELTA)


def found(sampler: audit.Sampler, rows: int, claimed: float) -> audit.AuditFinding:
    return audit.audit(sampler, audit.NeighbourPair(np.array([rows]), np.array([0])), claimed, SAMPLES)


@pytest.mark.parametrize("rows", [1, 10, 1000])
def test_the_whitened_clip_keeps_its_promise(rows):
    assert not found_mu2("", rows).violated


@pytest.mark.parametrize(("plant", "rows"), [("not clipped", 1000), ("noise for one view", 1000)])
def test_plants_in_the_whitened_clip_are_found(plant, rows):
    assert found_mu2(plant, rows).violated


@pytest.mark.parametrize("rows", [1, 10, 1000])
def test_the_pure_twin_keeps_its_promise(rows):
    assert not found(pure_sampler(""), rows, float(EPSILON)).violated


@pytest.mark.parametrize(("plant", "rows"), [("not clipped", 10), ("half the bound", 1000)])
def test_plants_in_the_pure_twin_are_found(plant, rows):
    assert found(pure_sampler(plant), rows, float(EPSILON)).violated


@pytest.mark.parametrize("rows", [1, 10, 1000])
def test_selection_and_totals_keep_theirs(rows):
    edges = doubling_edges(1, 8)

    def sample(data: np.ndarray, size: int) -> np.ndarray:
        noise = SimulationNoise(int(data[0]) + size)
        people = np.bincount(bin_of([5, 9, 30, *data[data > 0]], edges), minlength=len(edges) + 1)
        total = 44 + min(int(data[0]), 20)
        return np.array(
            [
                [
                    *draw_histogram(people, edges, EPSILON / 2, LAPLACE, noise).value,
                    draw_total(total, 20, EPSILON / 2, LAPLACE, noise).value,
                ]
                for _ in range(size // 4)
            ]
        )

    assert not found(sample, rows, float(EPSILON)).violated
