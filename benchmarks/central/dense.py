"""One axis that may look first: what dense and sparse DPBench histograms take, and what that costs over tents.

    DPSQL_DATA=... python -m benchmarks.central.dense

A histogram is dense at an epsilon if its cut cells fill at least `FULL` of it (`is_full` without noise). Unbiased rows
err by their expectation, which depends on no data and is not drawn. FULL was read off these twelve histograms.
"""

from __future__ import annotations

import sys
from fractions import Fraction

import numpy as np

from benchmarks.baselines.common import IntArray, SimulationNoise
from benchmarks.baselines.shipped import unbiased_strategy
from benchmarks.central import datasets
from benchmarks.central.exact import shipped_errors
from benchmarks.central.ranges import FIRST_SEED, Row, all_ranges, prefix_errors
from benchmarks.figures import Figures
from dpsql.mechanisms.family.adaptive import (
    SIGNAL_SHARE,
    AdaptiveRelease,
    draw_adaptive,
    is_full,
    noisy_signal,
)
from dpsql.noise import ZeroNoise
from tests.strategies import adaptive_cells

EPSILONS = (Fraction(1, 100), Fraction(1, 10), Fraction(1))
RUNS = 20


def expected(cells: int) -> float:
    """The error of `auto` on a histogram that it takes for full: the unbiased optimum with what the signal leaves."""
    return float(shipped_errors(cells)["auto, unbiased"] / (1 - SIGNAL_SHARE) ** 2)


def auto_row(name: str, counts: IntArray, epsilon: Fraction, runs: int) -> Row:
    """The error of `auto` over all ranges: its expectation where it measures the unbiased optimum, else as drawn."""
    errors = []
    for run in range(runs):
        release = draw_adaptive(counts, epsilon, 1, SimulationNoise(FIRST_SEED + run), unbiased_strategy)
        errors.append(expected(len(counts)) if release.full else _drawn(counts, epsilon, release))
    spread = float(np.std(errors) / runs**0.5)
    return Row("chosen", name, len(counts), float(epsilon), "auto", 0, runs, float(np.mean(errors)), spread)


def _drawn(counts: IntArray, epsilon: Fraction, release: AdaptiveRelease) -> float:
    return all_ranges(prefix_errors(counts, adaptive_cells(release))) * float(epsilon) ** 2


def dense(counts: IntArray, epsilon: Fraction) -> bool:
    """Whether the histogram itself is full."""
    return is_full(noisy_signal(counts, epsilon, 1, ZeroNoise()), len(counts))


def main() -> int:
    """Print a line a cell, then the figures; 1 if one is short."""
    figures, full, sparse, worst = Figures(), [], [], 0.0
    for name in datasets.DPBENCH:
        counts = datasets.dpbench(name)
        tents = shipped_errors(len(counts))["auto, unbiased"]
        for epsilon in EPSILONS:
            signals = [
                noisy_signal(counts, epsilon, 1, SimulationNoise(FIRST_SEED + run)) for run in range(RUNS)
            ]
            taken = np.mean([is_full(signal, len(counts)) for signal in signals])
            share = noisy_signal(counts, epsilon, 1, ZeroNoise())
            row = auto_row(name, counts, epsilon, RUNS)
            print(
                f"{name} {float(epsilon):g}: filled {share.filled / share.clip / len(counts):.3f}, takes the unbiased "
                f"optimum in {taken:.0%}, errs {row.error:.1f} +- {row.spread:.1f} ({row.error / tents:.2f} of tents)",
                flush=True,
            )
            (full if dense(counts, epsilon) else sparse).append(taken)
            worst = max(worst, row.error / tents) if dense(counts, epsilon) else worst
    figures.at_most("one axis, dense histograms, worst expected error over tents", worst, 1.04)
    figures.at_least(
        f"one axis, dense cells that take the unbiased optimum, least of {len(full)}", min(full), 1
    )
    figures.at_most(f"one axis, sparse cells that leave the tree, most of {len(sparse)}", max(sparse), 0)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
