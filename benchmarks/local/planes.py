"""Seed 001's comparison on two and on five axes: boxes, mean squared error of shares.

People are drawn from a Gaussian copula with given histograms of the axes and one correlation for all pairs, or from
a few narrow clusters, which no grid and no smooth fit is made for. Ours is a collection: plan, reports, estimates.
"""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from benchmarks.baselines.local_boxes import Answer, Pairs, by_pairs, direct, hio, pair_answers
from benchmarks.baselines.local_grids import grids, marginals
from benchmarks.baselines.maxent import pair_keys
from benchmarks.figures import Figures
from benchmarks.local.axis import shapes
from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.client import Plan, read_plan
from dpsql.local.estimate import AxisTable, axis_table, model_of, table
from dpsql.local.parts import interactions
from dpsql.local.plan import CollectionDesign, PlannedAxis, build_plan
from dpsql.local.smooth import positive_shares
from dpsql.local.tallies import Tallies
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.leaves import PrefixVariance

CLUSTERS = 20
TWO: dict[str, Answer] = {
    "HIO": hio,
    "CALM": marginals,
    "HDG": grids,
    "AHEAD (quadtree)": direct,
}
FIVE: dict[str, Answer] = {
    "HIO": hio,
    "CALM": marginals,
    "HDG": grids,
    "AHEAD, DE": direct,
    "AHEAD, LLE": by_pairs,
}


class Case(NamedTuple):
    """One column: which people, how they hang together, epsilon."""

    shape: str
    correlation: float
    epsilon: str

    @property
    def title(self) -> str:
        """The column's head."""
        kind = f"{self.shape} {self.correlation:g}" if self.correlation else self.shape
        return f"{kind}, {self.epsilon}"


def people_of(case: Case, people: int, axes: int, size: int, rng: np.random.Generator) -> np.ndarray:
    """One row of leaves a person, shape (people, axes)."""
    if case.shape == "Adult":
        return adult(size)
    if case.shape == "clusters":
        middle = rng.random((CLUSTERS, axes)) * size
        at = middle[rng.integers(0, CLUSTERS, size=people)] + rng.standard_normal((people, axes))
        return np.clip(at.astype(np.int64), 0, size - 1)
    histogram = shapes(256)[case.shape].reshape(size, -1).sum(axis=1)
    cuts = [NormalDist().inv_cdf(float(c)) for c in np.cumsum(histogram)[:-1]]
    common = np.sqrt(case.correlation) * rng.standard_normal((people, 1))
    return np.searchsorted(cuts, common + np.sqrt(1 - case.correlation) * rng.standard_normal((people, axes)))


def adult(size: int) -> np.ndarray:
    """Age and hours per week of Adult's people; needs DPSQL_DATA."""
    import duckdb

    file = Path(os.environ["DPSQL_DATA"]) / "adult" / "adult_train.parquet"
    found = duckdb.execute(f"SELECT age, hours_per_week AS hours FROM read_parquet('{file}')").fetchnumpy()
    return np.column_stack([
        np.clip(found["age"] - 17, 0, size - 1),
        np.clip((found["hours"] - 1) * size // 99, 0, size - 1),
    ])  # fmt: skip


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
) -> tuple[Plan, Tallies, dict[int, AxisTable]]:
    """A plan with a tree an axis and a grid a pair, everybody's tallies, and the axes' tables."""
    axes = leaves.shape[1]
    design = CollectionDesign(
        "planes", Fraction(epsilon), len(leaves),
        tuple(PlannedAxis(f"a{i}", size, size) for i in range(axes)),
        together=(tuple(range(axes)),), branching=4, rows_floor=1,
    )  # fmt: skip
    plan = read_plan(build_plan(design))
    tallies = simulate_tallies(plan, one_row_each(leaves), rng)
    return plan, tallies, {a: axis_table(plan, tallies, a) for a in range(axes)}


def covered(case: Case, axes: int, size: int, people: int, runs: int, count: int, seed: int) -> float:
    """Share of the default answers' 95% intervals that hold the exact share of a box of any ranges."""
    hits: list[bool] = []
    every = tuple(range(axes))
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        leaves = people_of(case, people, axes, size, rng)
        boxes = ranges_of(axes, size, count, rng)
        plan, tallies, known = collect(leaves, size, case.epsilon, rng)
        held = table(every, known, interactions(plan, tallies, [every], known))
        models = tuple(AxisSplit(PrefixVariance(model_of(known[a].counts))) for a in every)
        inside = [
            (np.arange(size) >= b[:, :1]) & (np.arange(size) < b[:, 1:]) for b in boxes.transpose(1, 0, 2)
        ]
        variance = (
            ProductReading(models, dict(held.strengths)).covariance([m.astype(float) for m in inside]).noise
        )
        found = np.array([held.values[tuple(slice(*ends) for ends in box)].sum() for box in boxes])
        hits += (np.abs(found - truth(leaves, boxes)) < 1.96 * np.sqrt(variance)).tolist()
    return float(np.mean(hits))


def five_axes(figures: Figures, runs: int) -> None:
    """Intervals of boxes over five axes, whose 31 parts each have a bar of their own."""
    for shape, correlation in (("normal", 0.5), ("power", 0.3)):
        held = covered(Case(shape, correlation, "2"), 5, 8, 200_000, runs, 300, 11)
        figures.at_least("five axes of 8 leaves, 200,000 people, coverage", held, 0.91, shape)


def entropy_beside_sql(figures: Figures, runs: int) -> None:
    """Five axes of 8 leaves, which a view stores: what SQL returns, and maximum entropy from pairs of the same reports.

    The non-negative table is one fit of pairs' interactions to all reports at once, as maximum entropy is to tables of
    pairs, but it knows how noisy each of these is.
    """
    for correlation in (0.3, 0.8):
        case, every = Case("normal", correlation, "1"), tuple(range(5))
        off: dict[str, list[float]] = {}
        for run in range(runs):
            rng = np.random.default_rng([7, run])
            leaves = people_of(case, 1_000_000, 5, 8, rng)
            plan, tallies, known = collect(leaves, 8, case.epsilon, rng)
            stored = table(every, known, interactions(plan, tallies, [every], known)).values
            tables = {"default": stored, "non-negative": _positive(plan, tallies, every, known)}
            pairs: Pairs = {key: _positive(plan, tallies, key, known) for key in pair_keys(5)}
            for boxes in (boxes_of(5, 8, 60, rng), ranges_of(5, 8, 60, rng)):
                true = truth(leaves, boxes)
                found = {
                    name: np.array([held[tuple(slice(*ends) for ends in box)].sum() for box in boxes])
                    for name, held in tables.items()
                }
                found["maximum entropy"] = pair_answers(pairs, boxes)
                for name, values in found.items():
                    off.setdefault(name, []).append(float(np.mean((values - true) ** 2)))
        means = {name: float(np.mean(values)) for name, values in off.items()}
        told = ", ".join(f"{name} {mean:.3g}" for name, mean in means.items())
        print(f"  five axes of 8 leaves, bells, correlation {correlation:g}: {told}", flush=True)
        ratio = means["non-negative"] / means["maximum entropy"]
        figures.table(f"five axes in SQL, MSE by maximum entropy's, correlation {correlation:g}", ratio)


def _positive(plan: Plan, tallies: Tallies, axes: tuple[int, ...], known: dict[int, AxisTable]) -> np.ndarray:
    found = positive_shares(plan, tallies, axes, known)
    if found is None:
        raise ValueError("these axes have too many cells for the joint fit")
    return found.shares


def ours(
    leaves: np.ndarray, size: int, epsilon: str, boxes: np.ndarray, rng: np.random.Generator
) -> dict[str, np.ndarray]:
    """A collection with a tree an axis and a grid a pair: its answers, default and non-negative.

    A table of five axes of 32 leaves has 33 million cells, more than a release stores or a joint fit takes; its boxes
    come from the pairs' non-negative tables by maximum entropy; the module `lle` measures SQL's.
    """
    axes = leaves.shape[1]
    plan, tallies, known = collect(leaves, size, epsilon, rng)
    pairs: Pairs = {key: _positive(plan, tallies, key, known) for key in pair_keys(axes)}
    if axes > 2:
        return {"ours (pairs, maximum entropy)": pair_answers(pairs, boxes)}
    default = table((0, 1), known, interactions(plan, tallies, [(0, 1)], known)).values
    return {
        "ours, default answer": pair_answers({(0, 1): default}, boxes),
        "ours, non-negative": pair_answers(pairs, boxes),
    }


def exact_pairs(leaves: np.ndarray, size: int, boxes: np.ndarray) -> np.ndarray:
    """No privacy: exact tables of pairs and maximum entropy, which is what pairs can tell at best."""
    pairs = {}
    for i, j in pair_keys(leaves.shape[1]):
        flat = np.bincount(leaves[:, i] * size + leaves[:, j], minlength=size * size)
        pairs[i, j] = flat.reshape(size, size) / len(leaves)
    return pair_answers(pairs, boxes)


def errors(
    case: Case, axes: int, size: int, people: int, runs: int, count: int, seed: int
) -> dict[str, float]:
    """Mean squared error of `count` boxes over runs, per method; every run has its own people and boxes."""
    found: dict[str, list[float]] = {}
    for run in range(runs):
        rng = np.random.default_rng([seed, run])
        leaves = people_of(case, people, axes, size, rng)
        boxes = boxes_of(axes, size, count, rng)
        true = truth(leaves, boxes)
        methods = TWO if axes == 2 else FIVE
        answers = {n: m(leaves, [size] * axes, case.epsilon, boxes, rng) for n, m in methods.items()}
        answers |= ours(leaves, size, case.epsilon, boxes, rng)
        if axes > 2:
            answers["exact pairs, maximum entropy (not private)"] = exact_pairs(leaves, size, boxes)
        for name, values in answers.items():
            found.setdefault(name, []).append(float(np.mean((values - true) ** 2)))
    return {name: float(np.mean(values)) for name, values in found.items()}
