"""`auto` against the best of what ships and DAWA on the DPBench histograms: `python -m benchmarks.central.measure`.

Errors are mean squared errors over all ranges times epsilon squared. Unbiased rivals count with their exact expected
errors; the others are drawn with the shipped law from a seeded generator, so a run repeats to the last digit.

| histograms | |
|---|---|
| promised | NETTRACE, SEARCHLOGS, HEPTH, INCOME: the tapers and thresholds of `auto` were tuned on them |
| others | the eight that no promise names |

**Privacy**: public data.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import NamedTuple

import numpy as np

from benchmarks.baselines import shipped
from benchmarks.baselines.common import IntArray, SimulationNoise
from benchmarks.baselines.dawa import dawa_tapered
from benchmarks.central import datasets
from benchmarks.central.ranges import FIRST_SEED, all_ranges, drawn_error, drawn_errors, prefix_errors
from benchmarks.figures import Figures, main
from dpsql.mechanisms.designs.adaptive import SIGNAL_SHARE, draw_adaptive
from dpsql.mechanisms.offers import expected_error
from tests.strategies import adaptive_cells

PROMISED = ("NETTRACE", "SEARCHLOGS", "HEPTH", "INCOME")
EPSILONS = (Fraction(1, 100), Fraction(1, 10), Fraction(1))
RUNS, MANY = 20, 100
RIVALS = shipped.RIVALS | {"DAWA": dawa_tapered}
Error = tuple[float, float]
"""A mean over releases and its standard error, 0 if exact."""


class Cell(NamedTuple):
    """`auto` against the best rival on one histogram at one epsilon; errors over all ranges, spread 0 if exact."""

    data: str
    epsilon: float
    error: float
    spread: float
    best: str
    least: float
    least_spread: float

    @property
    def ratio(self) -> float:
        """Error of `auto` over that of the best rival."""
        return self.error / self.least


def exact_errors(n: int) -> dict[str, float]:
    """Exact expected errors over all ranges, times epsilon squared, of the unbiased mechanisms that ship.

    They do not depend on the data, nor for continuous noise on epsilon, so no release of them needs to be drawn.

    Args:
        n: number of cells.
    """
    return {name: expected_error(strategy(n)) for name, strategy in shipped.STRATEGIES.items()}


def auto_error(counts: IntArray, epsilon: Fraction, runs: int) -> Error:
    """The error of `auto`: the expectation where it measures the unbiased optimum, else as drawn."""
    optimum = exact_errors(len(counts))["auto, unbiased"] / (1 - SIGNAL_SHARE) ** 2
    errors = []
    for run in range(runs):
        noise = SimulationNoise(FIRST_SEED + run)
        release = draw_adaptive(counts, epsilon, 1, noise, shipped.unbiased_strategy)
        errors.append(optimum if release.full else drawn_error(counts, adaptive_cells(release), epsilon))
    return float(np.mean(errors)), float(np.std(errors) / runs**0.5)


def rival_error(name: str, counts: IntArray, epsilon: Fraction, runs: int) -> Error:
    """The error of a rival that is biased, as drawn."""
    errors = drawn_errors(
        RIVALS[name], counts, epsilon, runs, lambda off: all_ranges(prefix_errors(off, 0 * off))
    )
    return float(np.mean(errors)), float(np.std(errors) / runs**0.5)


def cell(data: str, epsilon: Fraction) -> Cell:
    """Compare on one histogram."""
    counts, runs = datasets.dpbench(data), MANY if data in PROMISED else RUNS
    errors: dict[str, Error] = {name: (error, 0.0) for name, error in exact_errors(len(counts)).items()}
    errors |= {name: rival_error(name, counts, epsilon, runs) for name in RIVALS.keys() - errors.keys()}
    best = min(errors, key=lambda name: errors[name])
    return Cell(data, float(epsilon), *auto_error(counts, epsilon, runs), best, *errors[best])


def near(ratios: list[float]) -> int:
    """Number of ratios within 15%."""
    return sum(ratio <= 1.15 for ratio in ratios)


def measure(figures: Figures) -> None:
    """Compare on all histograms."""
    cells = [cell(data, epsilon) for data, epsilon in product(datasets.DPBENCH, EPSILONS)]
    for each in cells:
        figures.table(f"auto over the best rival ({each.best}), {each.data} at {each.epsilon:g}", each.ratio)
    promised = [each.ratio for each in cells if each.data in PROMISED]
    ratios = [each.ratio for each in cells]
    figures.table(f"cells of all histograms with auto within 15% of the best, of {len(ratios)}", near(ratios))
    figures.table("worst ratio of auto to the best, all histograms", max(ratios))
    figures.at_least("DPBench cells with auto within 15% of the best", near(promised), 10)
    figures.at_most("DPBench worst ratio of auto to the best", max(promised), 2.0)


if __name__ == "__main__":
    main(measure)
