"""AHEAD through the door that ships: plans a round, tallies of reports, what a release would hold.

Its published setting (one axis of 256 values, a million people, epsilon 1) beside the default plan's answers: a bell,
and narrow clusters, which are what adaptive rounds are for. Two axes: a quadtree of 64 x 64 beside pair grids.
The default plan errs less in all of them, so nothing but its name chooses AHEAD; lines without a bound say by how much.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from benchmarks.figures import Figures
from benchmarks.local.axis import shapes
from benchmarks.local.simulated import one_row_each, simulate_tallies
from dpsql.client import read_plan
from dpsql.collecting import rounds
from dpsql.collecting.adaptive import Boxes, boxes_of
from dpsql.collecting.estimate import axis_table
from dpsql.collecting.plan import Design, PlannedAxis, build_plan
from dpsql.collecting.smooth import positive_shares
from dpsql.mechanisms.local.ahead import spread_evenly
from dpsql.mechanisms.local.blue import range_workload


def clusters(leaves: int) -> np.ndarray:
    """Three narrow places, and one person in fifty anywhere."""
    at = np.arange(leaves)
    peaks = [(0.11, 0.5), (0.42, 0.3), (0.83, 0.2)]
    found = sum(part * np.exp(-0.5 * ((at - place * leaves) / 0.7) ** 2) / 1.75 for place, part in peaks)
    return np.asarray(0.98 * found / np.sum(found) + 0.02 / leaves)


def adaptive(said: np.ndarray, sizes: tuple[int, ...], epsilon: str, seed: int) -> np.ndarray:
    """AHEAD's histogram of people's leaves, shape (people, axes)."""
    found = played(said, sizes, epsilon, seed)
    return spread_evenly(found.rounds[-1].boxes, found.positive, sizes)


def played(said: np.ndarray, sizes: tuple[int, ...], epsilon: str, seed: int) -> Boxes:
    """All rounds of a collection."""
    rng = np.random.default_rng(seed)
    axes = tuple(PlannedAxis(f"a{i}", size, size) for i, size in enumerate(sizes))
    plan = read_plan(rounds.first_plan(rounds.RoundsDesign("a", Fraction(epsilon), len(said), axes)))
    drawn = rng.integers(0, plan.rounds, len(said))
    while True:
        tallies = simulate_tallies(plan, one_row_each(said[drawn == plan.round]), rng)
        if plan.round + 1 == plan.rounds:
            return boxes_of(plan, tallies)
        plan = read_plan(rounds.after_round(plan, tallies[0]))


def default(said: np.ndarray, sizes: tuple[int, ...], epsilon: str, seed: int) -> np.ndarray:
    """What the default plan's release answers from, non-negative."""
    rng = np.random.default_rng(seed)
    axes = tuple(PlannedAxis(f"a{i}", size, size) for i, size in enumerate(sizes))
    every = tuple(range(len(sizes)))
    together = (every,) if len(every) > 1 else ()
    design = Design("d", Fraction(epsilon), len(said), axes, together=together, rows_floor=1)
    plan = read_plan(build_plan(design))
    tallies = simulate_tallies(plan, one_row_each(said), rng)
    found = positive_shares(plan, tallies, every, {a: axis_table(plan, tallies, a) for a in every})
    assert found is not None
    return found.shares


def one_axis(figures: Figures, runs: int) -> None:
    """Mean squared error of all ranges."""
    leaves, people = 256, 1_000_000
    workload = range_workload(leaves)
    for name, shares in (("bell", shapes(leaves)["normal"]), ("clusters", clusters(leaves))):
        errors: dict[str, list[float]] = {"AHEAD": [], "default": []}
        for run in range(runs):
            said = np.random.default_rng((run, 5)).choice(leaves, size=people, p=shares / shares.sum())[
                :, None
            ]
            exact = np.bincount(said[:, 0], minlength=leaves) / people
            for method, make in (("AHEAD", adaptive), ("default", default)):
                off = make(said, (leaves,), "1", 100 + run) - exact
                errors[method].append(float(off @ workload @ off))
        mine, usual = (float(np.mean(errors[m])) for m in ("AHEAD", "default"))
        print(f"  AHEAD by its door, {name}: {mine:.3g}, default plan {usual:.3g}", flush=True)
        if name == "bell":
            figures.at_most("AHEAD by its door, bell of 256 leaves, MSE", mine, 1.15 * 3.7e-5)


def two_axes(runs: int) -> None:
    """Mean squared error of random boxes on two axes of 64 leaves."""
    size, people = 64, 300_000
    errors: dict[str, list[float]] = {"AHEAD": [], "default": []}
    for run in range(runs):
        rng = np.random.default_rng((run, 6))
        places = np.array([[9, 50], [40, 14], [55, 58]])[rng.choice(3, size=people, p=[0.5, 0.3, 0.2])]
        said = np.clip(np.rint(places + rng.normal(0, 0.8, (people, 2))), 0, size - 1).astype(np.int64)
        exact = np.histogram2d(*said.T, bins=[np.arange(size + 1)] * 2)[0] / people
        boxes = np.sort(rng.integers(0, size + 1, (400, 2, 2)), axis=2)
        for method, make in (("AHEAD", adaptive), ("default", default)):
            off = make(said, (size, size), "1", 200 + run) - exact
            errors[method].append(float(np.mean([off[a:b, c:d].sum() ** 2 for (a, b), (c, d) in boxes])))
    mine, usual = (float(np.mean(errors[m])) for m in ("AHEAD", "default"))
    print(f"  AHEAD by its door, two axes: {mine:.3g}, default plan {usual:.3g}", flush=True)
