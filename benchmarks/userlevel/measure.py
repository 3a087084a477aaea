"""User-level accuracy on real stars.

A cell is a star, a privacy, a class of questions and an aggregate. Errors are relative to the exact answer over all
rows, and an interval holds if that answer lies in it: what bounding loses is in both. Draws are simulated
(`simulator`), by the code that publishes and the code that answers; whole publishes are held against them (`matched`).

What is to be reached is `method.csv`: what the method measured in a simulation of its own, on views of its own over the
same data. Held may be 3 points less; errors and half-widths are compared over all its cells together.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import product
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from benchmarks.figures import Figures, main
from benchmarks.userlevel.published import matched
from benchmarks.userlevel.questions import AGGREGATES, CLASSES, Questions, answers, questions
from benchmarks.userlevel.releases import Release, Star, open_star
from benchmarks.userlevel.simulator import releases
from benchmarks.userlevel.stars import HELD_BACK, JUDGED, TOLD, Views, write_star

LAWS: Mapping[str, Mapping[str, Any]] = {
    "1e-6": {},
    "0.3": {"epsilon": Fraction(3, 10)},
    "pure": {"pure": True},
}
"""Privacies by name: (1, 1e-6), (.3, 1e-6) and pure epsilon 1."""

HELD_SLACK, ERROR_SLACK, HALF_SLACK = 3.0, 1.15, 1.2
BAR, CERTAIN = 90.0, 0.01
"""Below this quantile of the binomial at the bar a cell's share of intervals falls short."""

SHORT = {"1e-6": 0, "0.3": 0, "pure": 3}
"""How many cells may."""

HALL_OF_FAME, BACK_BAR = 88.0, 87.0
MATCHED_STARS, PUBLISHED, MATCHED = ("nafld", "blackfriday"), 8, 95.0
APART = 1e-4
"""How far roots of doubles may move an answer."""


Cell = tuple[str, str]
"""A class of questions and an aggregate."""


class Reach(NamedTuple):
    """What the method measured of a cell, in percent."""

    error: float
    held: float
    half: float


def method() -> dict[tuple[str, str, str, str], Reach]:
    """The method's numbers by (star, law, class, aggregate)."""
    with Path(__file__).with_name("method.csv").open(encoding="utf-8") as lines:
        return {
            (row["star"], row["law"], row["kind"], row["aggregate"]): Reach(
                float(row["error"]), float(row["held95"]), float(row["half"])
            )
            for row in csv.DictReader(lines)
        }


@dataclass(frozen=True)
class Measured:
    """What many releases of one star gave, by cell.

    Args:
        draws: how many releases.
        errors: relative, in percent; AVG below noise is left out.
        held: whether the 95% interval held the exact answer.
        halves: half-widths, relative, in percent; infinite where an end is open.
    """

    draws: int
    errors: dict[Cell, list[float]] = field(default_factory=lambda: defaultdict(list))
    held: dict[Cell, list[bool]] = field(default_factory=lambda: defaultdict(list))
    halves: dict[Cell, list[float]] = field(default_factory=lambda: defaultdict(list))

    def share(self, cell: Cell) -> float:
        """Percent of intervals that held."""
        return 100 * float(np.mean(self.held[cell]))

    def error(self, cell: Cell) -> float:
        """Median error."""
        return float(np.median(self.errors[cell]))

    def half(self, cell: Cell) -> float:
        """Median half-width."""
        return float(np.median(self.halves[cell]))


class Opened(NamedTuple):
    """A star with what is asked of it."""

    star: Star
    views: Views

    def questions(self) -> list[Questions]:
        plan, truth = self.star.plan, self.star.truth
        ordered = {view: [plan.axes[a].axis.ordered for a in self.star.axes(view)] for view in truth}
        return questions(truth, self.views, ordered)


def open_case(name: str, law: str, folder: Path) -> Opened:
    """A star at a privacy."""
    catalog, views = write_star(name, folder)
    return Opened(open_star(catalog, **LAWS[law]), views)


def measure(asked: Sequence[Questions], summed: str, some: Iterable[Release]) -> Measured:
    """Ask questions of releases, with sums of one measure."""
    found, number = Measured(0), 0
    for release in some:
        number += 1
        for each in asked:
            for name, answer in answers(release, each, summed).items():
                right = each.right[name]
                inside = (answer.low <= right) & (right <= answer.high)
                off, half = answer.value - right, (answer.high - answer.low) / 2
                for i, kind in enumerate(each.kinds):
                    if np.isfinite(answer.value[i]):
                        found.errors[kind, name].append(float(100 * abs(off[i] / right[i])))
                        found.held[kind, name].append(bool(inside[i]))
                        wide = half[i] if np.isfinite(half[i]) else np.inf
                        found.halves[kind, name].append(float(100 * wide / abs(right[i])))
    return replace(found, draws=number)


def measured_stars(
    stars: Iterable[str], laws: Iterable[str], draws: int, folder: Path
) -> Iterator[tuple[str, str, Opened, Measured]]:
    """Each star at each privacy, measured and told."""
    for name, law in product(stars, laws):
        opened = open_case(name, law, folder)
        measured = measure(opened.questions(), opened.star.measure, releases(opened.star, draws))
        tell(name, law, measured)
        yield name, law, opened, measured


def least_held(bar: float, asked: int) -> float:
    """The share, in percent, below which so many intervals fall short of a bar: the binomial's 1% quantile."""
    p = bar / 100
    return 100 * (p + NormalDist().inv_cdf(CERTAIN) * (p * (1 - p) / asked) ** 0.5)


class Judged:
    """Figures over all cells of the stars that are judged."""

    def __init__(self, figures: Figures) -> None:
        self.figures, self.reach = figures, method()
        self.ratios: dict[str, list[float]] = {"errors": [], "half-widths": []}
        self.short: dict[str, list[str]] = {law: [] for law in LAWS}
        self.coverage: dict[tuple[str, str, str], list[tuple[float, float]]] = defaultdict(list)

    def add(self, star: str, law: str, measured: Measured) -> None:
        """Judge the cells of one star at one privacy."""
        for cell in cells(measured):
            what = f"userlevel {star} {law}, {cell[0]}, {cell[1]}"
            if measured.share(cell) < least_held(BAR, measured.draws):
                self.short[law].append(what)
            reach = self.reach.get((star, law, *cell))
            if reach is None:
                continue
            self.coverage[law, *cell].append((measured.share(cell), reach.held))
            self.ratios["errors"].append(measured.error(cell) / reach.error)
            self.ratios["half-widths"].append(measured.half(cell) / reach.half)

    def finish(self, laws: Sequence[str]) -> None:
        """Figures of all of them."""
        for (law, kind, aggregate), pairs in self.coverage.items():
            here, there = np.mean(pairs, axis=0)
            self.figures.at_least(
                "userlevel, % of intervals that cover, mean of stars, less the bar",
                float(here - there) + HELD_SLACK, 0, f"{law}, {kind}, {aggregate}",
            )  # fmt: skip
        for law in laws:
            for what in self.short[law]:
                print(f"told   held less than {BAR:.0f}: {what}", flush=True)
            name = f"userlevel {law}, cells below the 1% quantile of the binomial at {BAR:.0f}%"
            self.figures.at_most(name, len(self.short[law]), SHORT[law])
        for name, slack in (("errors", ERROR_SLACK), ("half-widths", HALF_SLACK)):
            if self.ratios[name]:
                mean = float(np.exp(np.mean(np.log(self.ratios[name]))))
                self.figures.at_most(
                    f"userlevel {name} over the method's, geometric mean of cells", mean, slack
                )


def cells(measured: Measured) -> list[Cell]:
    """Those that were asked."""
    every = [(kind, aggregate) for kind in CLASSES for aggregate in AGGREGATES]
    return [cell for cell in every if measured.held.get(cell)]


def tell(star: str, law: str, measured: Measured) -> None:
    """Every cell in a line of its own, without a bound."""
    for cell in cells(measured):
        numbers = f"error {measured.error(cell):.1f}%, held {measured.share(cell):.0f}%"
        numbers += f", half {measured.half(cell):.1f}%"
        print(f"told   userlevel {star} {law}, {cell[0]}, {cell[1]}: {numbers}", flush=True)


def hold_out_figures(figures: Figures, star: str, law: str, measured: Measured) -> None:
    """Bounds of the stars that were left out of every choice."""
    if law != "1e-6":
        return
    if star == "halloffame":
        share = measured.share(("total", "COUNT"))
        figures.at_least("userlevel halloffame 1e-6, total, COUNT, 95% intervals hold %", share, HALL_OF_FAME)
    if star in HELD_BACK:
        worst = min(cells(measured), key=measured.share)
        what = f"userlevel {star} 1e-6 (held back), worst of {len(cells(measured))} cells ({worst[0]}, {worst[1]})"
        figures.at_least(f"{what}, 95% intervals hold %", measured.share(worst), BACK_BAR)


def figures_of(
    figures: Figures,
    folder: Path,
    *,
    draws: int = 200,
    stars: Sequence[str] = (*JUDGED, *TOLD, *HELD_BACK),
    laws: Sequence[str] = tuple(LAWS),
    alone: bool = False,
) -> None:
    """Draw the noise of each star and privacy so often; `alone` publishes nothing."""
    judged = Judged(figures)
    for name, law, _, measured in measured_stars(stars, laws, draws, folder):
        if name in JUDGED:
            judged.add(name, law, measured)
        else:
            hold_out_figures(figures, name, law, measured)
    judged.finish(laws)
    for name in () if alone else MATCHED_STARS:
        opened, what = open_case(name, "1e-6", folder), f"userlevel {name}, {PUBLISHED} publishes"
        inside, apart = matched(opened.star, opened.questions(), folder / f"{name}.yaml", PUBLISHED, draws)
        figures.at_least("simulator: % of published answers within its 1 to 99%", inside, MATCHED, what)
        same = "simulator: published answers apart from those of the same noise, relative"
        figures.at_most(same, apart, APART, what)


if __name__ == "__main__":
    main(figures_of)
