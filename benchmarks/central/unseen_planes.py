"""What the default errs by on planes that nothing was tuned on, against the best of five.

The list of planes was committed before any of them was measured. The last two are held back: they are measured with
`held` alone, once constants stand. Rivals: the product of the axes' strategies, flat cells, blocks as a view names
them, AG and DAWA along the Hilbert curve (`benchmarks/baselines`). Each has the whole of epsilon, pure.

Questions are those of the objective that `dpsql plan` states for two axes: a quarter rectangles, a quarter ranges of
either axis alone, a quarter totals. The default is what a drafted catalog writes: `auto` with `data_dependent: allow`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np

from benchmarks.baselines import spatial
from benchmarks.baselines.common import FloatArray, IntArray, Publish
from benchmarks.central.blocks import method, terms
from benchmarks.central.datasets import counted, diamonds, lahman, nyc
from benchmarks.central.ranges import drawn_errors, random_boxes, sums
from benchmarks.central.unseen_lines import planned
from benchmarks.figures import Figures, main
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


KINDS = ("rectangles", "first axis", "second axis", "totals")


def asked(shape: tuple[int, int]) -> Mapping[str, tuple[IntArray, ...]]:
    """Boxes of each kind."""
    x, y = random_boxes(shape, RANGES)
    whole = [np.repeat([[0], [n]], RANGES, axis=1) for n in shape]
    return {
        "rectangles": (x, y), "first axis": (x, whole[1]), "second axis": (whole[0], y),
        "totals": (whole[0][:, :1], whole[1][:, :1]),
    }  # fmt: skip


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


def by_blocks(
    counts: IntArray,
    epsilon: Fraction,
    noise: Noise,
    own: Blocks | None = None,
    planned_terms: DrawParameters | None = None,
) -> FloatArray:
    """Blocks, as a view names them or as they are planned."""
    own = own or method(counts.shape)
    drawn = own.draw(counts, planned_terms or terms(counts.shape, epsilon), noise)
    return np.asarray(own.estimate([DrawnMember((), drawn)], {})[0].leaves)


def default(counts: IntArray, epsilon: Fraction, noise: Noise) -> FloatArray:
    """What `data_dependent: allow` measures."""
    family = _family(counts.shape, allows=True)
    measurement = family.choice.strategy.measurement
    if not isinstance(measurement, Blocks):
        return product(counts, epsilon, noise)
    (view,) = family.choice.strategy.views
    chosen = DrawParameters([choice.strategy for choice in view.axes], view.law, epsilon, 1)
    return by_blocks(counts, epsilon, noise, measurement, chosen)


MECHANISMS: Mapping[str, Publish] = {
    "default": default, "product": product, "flat cells": flat, "blocks": by_blocks, "AG": spatial.ag,
    "Hilbert-DAWA": spatial.hilbert_dawa,
}  # fmt: skip
"""The first against the others."""


def errors(publish: Publish, counts: IntArray, epsilon: Fraction) -> list[float]:
    """Mean squared error of each kind of question, times epsilon squared."""
    questions = asked(counts.shape).values()

    def by_kind(off: FloatArray) -> list[float]:
        return [float(np.mean(sums(off, boxes) ** 2)) for boxes in questions]

    return drawn_errors(publish, counts, epsilon, RUNS, by_kind).mean(axis=0).tolist()


def measure(figures: Figures, planes: str = "open") -> None:
    """Measure the planes, or those that are `held` back."""
    for name, plane in (HELD_BACK if planes == "held" else PLANES).items():
        counts = counted(plane.table(), plane.shape, plane.x, plane.y)
        for epsilon in EPSILONS:
            found = {word: errors(publish, counts, epsilon) for word, publish in MECHANISMS.items()}
            for word, kinds in found.items():
                told = ", ".join(f"{kind} {error:.0f}" for kind, error in zip(KINDS, kinds, strict=True))
                where = f"{name}, {counts.sum()} rows, epsilon {float(epsilon)}, {word}"
                print(f"{where}: {np.mean(kinds):.0f} ({told})", flush=True)
            mine, *rivals = (float(np.mean(kinds)) for kinds in found.values())
            figures.at_most("unseen planes: default over the best of five", mine / min(rivals), TOLERANCE,
                            f"{name} at {float(epsilon)}")  # fmt: skip


if __name__ == "__main__":
    main(measure)
