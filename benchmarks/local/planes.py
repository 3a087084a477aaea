"""Seed 001's comparison on two and on five axes: boxes, mean squared error of shares.

People are drawn from a Gaussian copula with given histograms of the axes and one correlation for all pairs, or from
a few narrow clusters, which no grid and no smooth fit is made for. Ours is a collection: plan, reports, estimates.
"""

from __future__ import annotations

from fractions import Fraction
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from benchmarks.baselines.local_boxes import pair_answers
from benchmarks.figures import Figures
from benchmarks.local.axis import shapes
from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.client import Plan, read_plan
from dpsql.local.estimate import AxisTable, axis_table, model_of, table
from dpsql.local.parts import Estimates, interactions
from dpsql.local.plan import CollectionDesign, PlannedAxis, build_plan
from dpsql.local.tallies import CountedCollection
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.model import PrefixVariance

CLUSTERS = 20


class Case(NamedTuple):
    """One column: which people, how they hang together, epsilon."""

    shape: str
    correlation: float
    epsilon: str

    @property
    def title(self) -> str:
        kind = f"{self.shape} {self.correlation:g}" if self.correlation else self.shape
        return f"{kind}, {self.epsilon}"


def people_of(case: Case, people: int, axes: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """One row of leaves a person, shape (people, axes)."""
    if case.shape == "clusters":
        middle = rng.random((CLUSTERS, axes)) * size
        at = middle[rng.integers(0, CLUSTERS, size=people)] + rng.standard_normal((people, axes))
        return np.clip(at.astype(np.int64), 0, size - 1)
    histogram = shapes(256)[case.shape].reshape(size, -1).sum(axis=1)
    cuts = [NormalDist().inv_cdf(float(c)) for c in np.cumsum(histogram)[:-1]]
    common = np.sqrt(case.correlation) * rng.standard_normal((people, 1))
    return np.searchsorted(cuts, common + np.sqrt(1 - case.correlation) * rng.standard_normal((people, axes)))


def boxes_of(axes: int, size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Two axes: any ranges. More: half of every axis, wherever it lies. Shape (count, axes, 2)."""
    if axes == 2:
        return ranges_of(axes, size, count, rng)
    low = rng.integers(0, size // 2 + 1, (count, axes))
    return np.stack([low, low + size // 2], axis=2)


def ranges_of(axes: int, size: int, count: int, rng: np.random.Generator) -> np.ndarray:
    """Any ranges, shape (count, axes, 2)."""
    first, second = rng.integers(0, size + 1, (count, axes)), rng.integers(0, size, (count, axes))
    second += second >= first
    return np.stack([np.minimum(first, second), np.maximum(first, second)], axis=2)


def truth(leaves: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Exact shares of boxes."""
    if boxes.shape[1] == 2:
        bins = [np.arange(leaves.max() + 2)] * 2
        whole = np.histogram2d(leaves[:, 0], leaves[:, 1], bins)[0] / len(leaves)
        return pair_answers({(0, 1): whole}, boxes)
    return np.array([((leaves >= b[:, 0]) & (leaves < b[:, 1])).all(axis=1).mean() for b in boxes])


def collect(
    leaves: np.ndarray, size: int, epsilon: str, rng: np.random.Generator
) -> tuple[Plan, CountedCollection, dict[int, AxisTable]]:
    """A plan with a tree an axis and a grid a pair, everybody's tallies, and the axes' tables."""
    axes = leaves.shape[1]
    design = CollectionDesign(
        "planes", Fraction(epsilon), len(leaves),
        tuple(PlannedAxis(f"a{i}", size, size) for i in range(axes)),
        together=(tuple(range(axes)),), branching=4, rows_floor=1,
    )  # fmt: skip
    plan = read_plan(build_plan(design))
    collection = simulate_tallies(plan, one_row_each(leaves), rng)
    return plan, collection, {a: axis_table(collection, a) for a in range(axes)}


def box_table(
    collection: CountedCollection, known: dict[int, AxisTable], axes: tuple[int, ...]
) -> tuple[np.ndarray, ProductReading]:
    """Default answers of all leaves of some axes together, and what tells their errors."""
    held = table(axes, known, interactions(Estimates(collection, known), [axes]))
    models = tuple(AxisSplit(PrefixVariance(model_of(known[a].counts))) for a in axes)
    return held.values, ProductReading(models, dict(held.strengths))


def box_masks(boxes: np.ndarray, size: int) -> list[np.ndarray]:
    """Leaves of each axis in boxes."""
    at = np.arange(size)
    return [((at >= b[:, :1]) & (at < b[:, 1:])).astype(np.float64) for b in boxes.transpose(1, 0, 2)]


def box_sums(values: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """Sums of a histogram over boxes."""
    return np.array([values[tuple(slice(*ends) for ends in box)].sum() for box in boxes])


def covered(case: Case, axes: int, size: int, people: int, runs: int, count: int, seed: int) -> float:
    """Share of the default answers' 95% intervals that hold the exact share of a box of any ranges."""
    hits: list[bool] = []
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        leaves = people_of(case, people, axes, size, rng)
        boxes = ranges_of(axes, size, count, rng)
        _, collection, known = collect(leaves, size, case.epsilon, rng)
        values, reading = box_table(collection, known, tuple(range(axes)))
        variance = reading.covariance(box_masks(boxes, size)).noise
        hits += (np.abs(box_sums(values, boxes) - truth(leaves, boxes)) < 1.96 * np.sqrt(variance)).tolist()
    return float(np.mean(hits))


def five_axes(figures: Figures, runs: int) -> None:
    """Intervals of boxes over five axes, whose 31 parts each have a bar of their own."""
    for shape, correlation in (("normal", 0.5), ("power", 0.3)):
        held = covered(Case(shape, correlation, "2"), 5, 8, 200_000, runs, 300, 11)
        figures.at_least("five axes of 8 leaves, 200,000 people, coverage", held, 0.91, shape)
