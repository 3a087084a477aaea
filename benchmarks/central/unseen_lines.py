"""What `data_dependent: allow` errs by against `refuse`: twelve lines that nothing was tuned on, under both laws.

The list was committed before any line was measured. Errors are mean squared errors of 2,000 random ranges of the
estimates that answer unless a reader asks for others, over the exact error of what `refuse` plans.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from benchmarks.baselines.common import FloatArray, IntArray
from benchmarks.central.datasets import counted, diamonds, lahman, nyc
from benchmarks.central.ranges import drawn_errors, random_boxes, sums
from benchmarks.figures import Figures, main
from dpsql.matrices.reconcile import nonnegative, signal_tree
from dpsql.mechanisms.axis import AUTO
from dpsql.mechanisms.designs import Family, choose_families
from dpsql.mechanisms.designs.adaptive import ADAPTIVE
from dpsql.mechanisms.designs.question import DesignProblem, FamilyAxis, FamilyView, Grains
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE
from dpsql.noise import Noise

EPSILON, RUNS, RANGES = Fraction(1, 10), 20, 2000
SPARSE, TOLERANCE = 0.6, 1.1
LAWS = {"delta 0": LAPLACE, "a delta": GAUSSIAN}


def planned(shape: tuple[int, ...], law: str, allows: bool) -> Family:
    """What measures a view of such axes that is alone in its table."""
    axes = tuple(FamilyAxis(str(i), n, None, Grains(1 << 15, 1 << 12)) for i, n in enumerate(shape))
    places = tuple(range(len(shape)))
    view = FamilyView("view", places, AUTO, allows, {"count": Fraction(1)}, True, True)
    (family,) = choose_families(DesignProblem("table", (view,), axes, LAWS[law], batches=False, people=False))
    return family


class Line(NamedTuple):
    """A table and an SQL expression of its leaf, with the number of leaves."""

    table: Callable[[], object]
    leaf: str
    leaves: int


LINES: Mapping[str, Line] = {
    "flights: departure delay": Line(nyc("flights"), "dep_delay + 60", 1400),
    "flights: arrival delay": Line(nyc("flights"), "arr_delay + 100", 1400),
    "flights: distance": Line(nyc("flights"), "distance // 5", 1000),
    "flights: scheduled minute": Line(
        nyc("flights"), "sched_dep_time // 100 * 60 + sched_dep_time % 100", 1440
    ),
    "weather: pressure": Line(nyc("weather"), "round(pressure * 10) - 9800", 650),
    "weather: gusts": Line(nyc("weather"), "floor(wind_gust)", 64),
    "players: birth year": Line(lahman("People"), '"birthYear" - 1800', 210),
    "players: weight": Line(lahman("People"), "weight", 330),
    "salaries: ten thousands": Line(lahman("Salaries"), "salary // 10000", 3400),
    "pitching: outs": Line(lahman("Pitching"), '"IPouts"', 2048),
    "diamonds: price": Line(diamonds, "price // 5", 3800),
    "diamonds: carat": Line(diamonds, "round(carat * 100)", 512),
}


def by_signal(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """What answers of a view by noisy signal."""
    drawn = ADAPTIVE.sample(counts, epsilon, 1, noise)  # type: ignore[arg-type]
    return nonnegative(signal_tree(len(counts)), drawn.leaves) if drawn.sparse else drawn.leaves


def ratio(line: Line, law: str) -> float:
    """The error of `allow` over that of `refuse`; of the same plan 1."""
    allow, refuse = (planned((line.leaves,), law, allows) for allows in (True, False))
    if allow.choice.strategy.measurement is not ADAPTIVE:
        errors = [view.error for family in (allow, refuse) for view in family.choice.strategy.views]
        return errors[0] / errors[1]
    counts, ranges = counted(line.table(), (line.leaves,), line.leaf), random_boxes((line.leaves,), RANGES)
    found = drawn_errors(by_signal, counts, EPSILON, RUNS, lambda off: np.mean(sums(off, ranges) ** 2))
    (view,) = refuse.choice.strategy.views
    return float(np.mean(found)) / view.error


def measure(figures: Figures) -> None:
    """Measure all lines under both laws."""
    sparse = 0
    for law in LAWS:
        for name, line in LINES.items():
            over = ratio(line, law)
            sparse += over < SPARSE
            figures.at_most("unseen lines: allow over refuse", over, TOLERANCE, f"{name}, {law}")
    figures.table(f"lines where allow errs below {SPARSE} of refuse", sparse)


if __name__ == "__main__":
    main(measure)
