"""What the default errs by on planes that nothing was tuned on, against the best of five.

    python -m benchmarks.central.unseen_planes [held]

The list of planes was committed before any of them was measured. The last two are held back: they are measured with
`held` alone, once constants stand. Rivals: the product of the axes' strategies, flat cells, blocks as a view names
them, AG and DAWA along the Hilbert curve (`benchmarks/baselines`). Each has the whole of epsilon, pure.

Questions are those of the objective that `dpsql plan` states for two axes: a quarter rectangles, a quarter ranges of
either axis alone, a quarter totals. The default is what a drafted catalog writes: `auto` with `data_dependent: allow`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import duckdb
import numpy as np

from benchmarks.baselines import spatial
from benchmarks.baselines.common import FloatArray, IntArray, SimulationNoise
from benchmarks.central.blocks import method, random_boxes, sums, terms
from benchmarks.central.ranges import FIRST_SEED
from benchmarks.central.unseen_lines import diamonds, lahman, nyc, planned
from benchmarks.figures import Figures
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.designs import Family
from dpsql.mechanisms.designs.blocks import Blocks
from dpsql.mechanisms.designs.measurement import DrawnMember, DrawParameters
from dpsql.mechanisms.offers import draw_view, leaf_estimates
from dpsql.noise import Noise

EPSILONS = (Fraction(1, 10), Fraction(1))
RUNS, RANGES = 24, 1000  # totals are one question a run: six runs know their mean within 60%
TOLERANCE = 1.1


class Plane(NamedTuple):
    """A plane: its table, and two SQL expressions of leaves with their numbers of leaves."""

    table: Callable[[], object]
    x: str
    y: str
    shape: tuple[int, int]


PLANES: Mapping[str, Plane] = {
    "flights: departure and arrival delay": Plane(
        nyc("flights"), "dep_delay + 30", "arr_delay + 60", (256, 256)
    ),
    "flights: distance and air time": Plane(nyc("flights"), "distance // 20", "air_time // 3", (250, 234)),
    "weather: temperature and humidity": Plane(nyc("weather"), "floor(temp)", "floor(humid)", (128, 101)),
    "batting: at bats and hits": Plane(lahman("Batting"), '"AB" // 3', '"H"', (241, 263)),
}
HELD_BACK: Mapping[str, Plane] = {
    "diamonds: carat and price": Plane(diamonds, "floor(carat * 50)", "price // 80", (256, 240)),
    "pitching: outs and strikeouts": Plane(lahman("Pitching"), '"IPouts" // 10', '"SO" // 2', (206, 258)),
}


def counted(plane: Plane) -> IntArray:
    """Rows of each cell; those beyond the axes are left out."""
    with duckdb.connect() as db:
        db.register("rows", plane.table())
        inside = " AND ".join(
            f"{axis} >= 0 AND {axis} < {n}" for axis, n in zip("xy", plane.shape, strict=True)
        )
        found = db.execute(
            "SELECT CAST(x AS BIGINT), CAST(y AS BIGINT), count(*) "
            f"FROM (SELECT {plane.x} AS x, {plane.y} AS y FROM rows) WHERE {inside} GROUP BY 1, 2"
        ).fetchall()
    cells = np.zeros(plane.shape, np.int64)
    for x, y, count in found:
        cells[x, y] = count
    return cells


KINDS = ("rectangles", "first axis", "second axis", "totals")


def asked(shape: tuple[int, int]) -> Mapping[str, tuple[IntArray, ...]]:
    """Boxes of each kind."""
    x, y = random_boxes(shape, RANGES)
    whole = [np.repeat([[0], [n]], RANGES, axis=1) for n in shape]
    return {
        "rectangles": (x, y), "first axis": (x, whole[1]), "second axis": (whole[0], y),
        "totals": (whole[0][:, :1], whole[1][:, :1]),
    }  # fmt: skip


Publish = Callable[[IntArray, Fraction, Noise], FloatArray]


@cache
def _family(shape: tuple[int, ...], allows: bool) -> Family:
    return planned(shape, "delta 0", allows=allows)


def flat(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """Every cell with noise of its own."""
    strategies = [leaf_strategy(n) for n in counts.shape]
    return leaf_estimates(draw_view(counts, strategies, epsilon, 1, noise), strategies)


def product(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """What `data_dependent: refuse` measures."""
    (view,) = _family(counts.shape, allows=False).choice.strategy.views
    strategies = [choice.strategy for choice in view.axes]
    return leaf_estimates(draw_view(counts, strategies, epsilon, 1, noise), strategies)


def by_blocks(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    own = method(counts.shape)
    drawn = own.draw(counts, terms(counts.shape, epsilon), noise)
    return np.asarray(own.estimate([DrawnMember((), drawn)], {})[0].leaves)


def default(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """What `data_dependent: allow` measures."""
    family = _family(counts.shape, allows=True)
    measurement = family.choice.strategy.measurement
    if not isinstance(measurement, Blocks):
        return product(counts, epsilon, noise)
    (view,) = family.choice.strategy.views
    planned_terms = DrawParameters([choice.strategy for choice in view.axes], view.law, epsilon, 1)
    drawn = measurement.draw(counts, planned_terms, noise)
    return np.asarray(measurement.estimate([DrawnMember((), drawn)], {})[0].leaves)


RIVALS: Mapping[str, Publish] = {
    "product": product, "flat cells": flat, "blocks": by_blocks, "AG": spatial.ag, "Hilbert-DAWA": spatial.hilbert_dawa,
}  # fmt: skip


def errors(publish: Publish, counts: IntArray, epsilon: Fraction) -> list[float]:
    """Mean squared error of each kind of question, times epsilon squared."""
    questions, found = asked(counts.shape), []
    for run in range(RUNS):
        wrong = publish(counts, epsilon, SimulationNoise(FIRST_SEED + run)) - counts
        found.append([float(np.mean(sums(wrong, boxes) ** 2)) for boxes in questions.values()])
    return [float(error) * float(epsilon) ** 2 for error in np.mean(found, axis=0)]


def main(planes: Mapping[str, Plane]) -> int:
    """Print the figures."""
    figures = Figures()
    for name, plane in planes.items():
        counts = counted(plane)
        for epsilon in EPSILONS:
            mine = errors(default, counts, epsilon)
            rival = {word: errors(publish, counts, epsilon) for word, publish in RIVALS.items()}
            for word, kinds in {"default": mine, **rival}.items():
                told = ", ".join(f"{kind} {error:.0f}" for kind, error in zip(KINDS, kinds, strict=True))
                print(
                    f"{name}, {counts.sum()} rows, epsilon {float(epsilon)}, {word}: {np.mean(kinds):.0f} ({told})",
                    flush=True,
                )
            best = min(float(np.mean(kinds)) for kinds in rival.values())
            figures.at_most(
                "unseen planes: default over the best of five",
                float(np.mean(mine)) / best,
                TOLERANCE,
                f"{name} at {float(epsilon)}",
            )
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(HELD_BACK if "held" in sys.argv[1:] else PLANES))
