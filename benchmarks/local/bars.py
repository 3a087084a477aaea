"""Bars of non-negative answers on large ranges: twelve DPBench sets, and shapes that no part was chosen on.

A set is cut to 64 leaves and a hundred thousand people are drawn from it. Large ranges hold 5% of the people or more;
the whole is left out. The parts k of the unbiased noise were chosen on the DPBench sets; held back are Adult's ages and
days of FoodMart's sales (where `DPSQL_DATA` has them) and four generated shapes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from benchmarks.central.datasets import DPBENCH, dpbench, stars
from benchmarks.figures import Figures
from benchmarks.local.axis import range_masks, shapes
from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.client import read_plan
from dpsql.local.estimate import axis_table
from dpsql.local.plan import CollectionDesign, PlannedAxis, build_plan
from dpsql.local.smooth import positive_shares

LEAVES, PEOPLE = 64, 100_000


def held_back() -> Iterator[tuple[str, np.ndarray]]:
    """Histograms that the parts were not chosen on."""
    for name, shares in shapes(256).items():
        yield f"generated {name}", shares.reshape(LEAVES, -1).sum(axis=1)
    if os.environ.get("DPSQL_DATA"):
        for name, counts in stars():
            if name in ("Adult age", "FoodMart day"):
                yield name, np.add.reduceat(counts, np.arange(LEAVES) * counts.size // LEAVES)


def covered(shares: np.ndarray, epsilon: str, seed: int) -> tuple[float, float]:
    """Part of large ranges, and of small ones, inside 95% intervals in one collection."""
    rng = np.random.default_rng(seed)
    said = rng.choice(LEAVES, size=PEOPLE, p=shares / shares.sum())
    axis = PlannedAxis("a", LEAVES, LEAVES)
    plan = read_plan(build_plan(CollectionDesign("bars", Fraction(epsilon), PEOPLE, (axis,), rows_floor=1)))
    collection = simulate_tallies(plan, one_row_each(said[:, None]), rng)
    found = positive_shares(collection, (0,), {0: axis_table(collection, 0)})
    assert found is not None
    assert found.errors is not None
    masks = range_masks(LEAVES)
    masks = masks[masks.sum(axis=1) < LEAVES]
    exact = masks @ np.bincount(said, minlength=LEAVES) / PEOPLE
    wide = 1.96 * np.sqrt(np.maximum(found.errors.covariance(masks), 0.0))
    inside, large = np.abs(masks @ found.shares - exact) <= wide + 1e-12, exact >= 0.05
    return float(inside[large].mean()), float(inside[~large].mean()) if (~large).any() else 1.0


def large_ranges(figures: Figures, runs: int) -> None:
    """Coverage of large ranges at epsilon 1, set by set; the recipe's means were 95.9% and, held back, 95.5%."""
    tuned: list[tuple[str, np.ndarray]] = []
    if os.environ.get("DPSQL_DATA"):
        tuned = [(name, dpbench(name).reshape(LEAVES, -1).sum(axis=1).astype(float)) for name in DPBENCH]
    for title, sets, bound in (("DPBench", tuned, 0.939), ("held back", list(held_back()), 0.935)):
        large, small = [], []
        for number, (name, shares) in enumerate(sets):
            found = np.array([covered(shares, "1", 1000 * number + run) for run in range(runs)])
            large.append(float(found[:, 0].mean()))
            small.append(float(found[:, 1].mean()))
            print(f"  {title}, {name}: large {large[-1]:.3f}, small {small[-1]:.3f}", flush=True)
        if sets:
            figures.at_least(
                "unseen histograms, coverage", float(np.mean(large)), bound, f"large ranges, {title}"
            )
            figures.at_least(
                "unseen histograms, coverage", float(np.mean(small)), 0.94, f"small ranges, {title}"
            )
