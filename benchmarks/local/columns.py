"""One axis of unseen columns: what a release answers by default, beside AHEAD and hierarchy + NNLS, and its intervals.

The six columns were committed before any was measured; the two of `HELD` were measured when nothing was to be changed.
What the default is made of was chosen on the other six of `LINES`, DPBench's sets and Adult. A column is cut to 64
leaves of equal width, 50,000 people are drawn from it, and every method is judged by the column's own shares.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from benchmarks.central.datasets import counted
from benchmarks.central.unseen_lines import LINES
from benchmarks.figures import Figures, main
from benchmarks.local.axis import adaptive, nonnegative_hierarchy
from benchmarks.local.simulated import OneAxis, covered, range_masks, spread
from dpsql.local.mechanisms.blue import range_workload

LEAVES, PEOPLE, EPSILONS = 64, 50_000, ("0.5", "1", "2", "4")
RUNS, RIVAL_RUNS = 6, 4
JUDGED = ("flights: distance", "players: weight", "salaries: ten thousands", "diamonds: price")
HELD = ("flights: scheduled minute", "weather: pressure")


def column(name: str) -> np.ndarray:
    """Shares of the leaves of a column, the last of which holds all that is left by a width that divides evenly."""
    line = LINES[name]
    counts = counted(line.table(), (line.leaves,), line.leaf)
    width = -(-counts.size // LEAVES)
    shares = np.add.reduceat(counts, np.arange(0, counts.size, width))
    return np.asarray(shares / shares.sum())


def default(shares: np.ndarray, epsilon: str, rng: np.random.Generator) -> tuple[np.ndarray, float]:
    """What a release answers by default, and the part of large ranges that its intervals cover.

    Large ranges have 5% of the people or more; the whole is left out.
    """
    found = OneAxis.collect("columns", shares, PEOPLE, epsilon, rng)
    masks = range_masks(shares.size)
    masks = masks[(masks @ found.exact >= 0.05) & (masks.sum(axis=1) < shares.size)]
    assert found.positive is not None
    if found.positive.preferred:
        return found.positive.shares, float(found.hits(masks).mean())
    counts = found.unbiased.counts
    inside = covered(masks, counts.shares - found.exact, spread(masks, counts.covariance))
    return counts.shares, float(inside.mean())


def measured(name: str, epsilon: str) -> tuple[float, float, float]:
    """One column at one epsilon: the default's mean squared error over all ranges over each rival's, and its coverage.

    Rivals are cheap and run `RIVAL_RUNS` times as often.
    """
    shares = column(name)
    workload = range_workload(shares.size)
    runs = [default(shares, epsilon, np.random.default_rng((*name.encode(), run))) for run in range(RUNS)]
    error = np.mean([(answer - shares) @ workload @ (answer - shares) for answer, _ in runs])
    means = []
    for rival in (adaptive, nonnegative_hierarchy):
        seeds = [(*name.encode(), run, 1) for run in range(RUNS * RIVAL_RUNS)]
        off = [rival(shares, PEOPLE, epsilon, np.random.default_rng(seed)) - shares for seed in seeds]
        means.append(np.mean([o @ workload @ o for o in off]))
    by_adaptive, by_hierarchy = (float(error / mean) for mean in means)
    inside = float(np.mean([inside for _, inside in runs]))
    print(
        f"  {name}, epsilon {epsilon}: {by_adaptive:.2f} of AHEAD, {by_hierarchy:.2f} of "
        f"hierarchy + NNLS, large ranges {inside:.3f}",
        flush=True,
    )
    return by_adaptive, by_hierarchy, inside


def report(figures: Figures, names: Sequence[str], title: str) -> None:
    """All settings of some columns."""
    settings = np.array([measured(name, epsilon) for name in names for epsilon in EPSILONS])
    means = np.exp(np.log(settings[:, :2]).mean(axis=0))
    figures.at_most(f"{title}, MSE by AHEAD", float(means[0]), 0.6)
    figures.table(f"{title}, MSE by hierarchy + NNLS", float(means[1]))
    figures.table(f"{title}, worst setting", float(settings[:, :2].max()))
    figures.within(f"{title}, large ranges in 95% intervals", float(settings[:, 2].mean()), 0.93, 0.97)


def measure(figures: Figures) -> None:
    """Measure all six columns."""
    report(figures, (*JUDGED, *HELD), "one axis, unseen columns")


if __name__ == "__main__":
    main(measure)
