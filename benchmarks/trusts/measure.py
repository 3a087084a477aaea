"""What is promised of releases of two trusts, one figure each."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.figures import Figures, main, sections
from benchmarks.trusts.hybrid import Case, measured, silent
from benchmarks.trusts.routing import answers, opened, world
from benchmarks.trusts.worlds import FIFTEEN, FOUR, World, adult, foodmart, shop

WORLDS, BIASED = 120, 10
"""Worlds: the eleven ranges of one go together, so the coverage of 40 worlds had a standard error of .02."""
DRAWS, BOXES = 24, 48
"""Releases of a row, and boxes that each is asked: of few releases the mean error is mostly their own luck."""
WITHIN, LEVEL = 1.15, 0.01


class Row(NamedTuple):
    """A row of the table that was computed before there was code.

    Args:
        world: whose people report.
        case: what is published.
        expected: root of the mean squared error of COUNT in that table; None where boxes are others than there.
    """

    world: Callable[[], World]
    case: Case
    expected: float | None = None


SHOP = {
    "age 4 x month, epsilon 2": Row(lambda: shop(FOUR), Case(2), 87.0),
    "age 4 x month, epsilon 1": Row(lambda: shop(FOUR), Case(1), 213.0),
    "age 4 x month with sums, epsilon 2": Row(lambda: shop(FOUR), Case(2, sums=True), 94.0),
    "age 4 x month, 40% report": Row(lambda: shop(FOUR), Case(2, sums=True, part=0.4)),
    "age 15 ranges x months, epsilon 2": Row(lambda: shop(FIFTEEN), Case(2, sums=True), 938.0),
    "age 15 ranges x months, epsilon 1": Row(lambda: shop(FIFTEEN), Case(1, sums=True), 2330.0),
    "age 15 ranges x months, grr, epsilon 1": Row(lambda: shop(FIFTEEN), Case(1, True, "grr"), 2865.0),
    "age 4 x month, a block design": Row(lambda: shop(FOUR), Case(2, mechanism="design")),
    "age 4 x month under a delta": Row(lambda: shop(FOUR), Case(2, delta="1e-6")),
}


def rows() -> Iterator[tuple[str, Row]]:
    """Every row; those over real stars where their folder is known."""
    yield from SHOP.items()
    if "DPSQL_DATA" in os.environ:
        data = Path(os.environ["DPSQL_DATA"])
        yield (
            "FoodMart, income x month, weights",
            Row(lambda: foodmart(data / "foodmart"), Case(2, sums=True)),
        )
        for epsilon, expected in ((2, 164.0), (1, 384.0)):
            yield (
                f"Adult, age x hours x sex, epsilon {epsilon}",
                Row(lambda: adult(data / "adult"), Case(epsilon, sums=True), expected),
            )


def routing(figures: Figures) -> None:
    """Who is mixed with whom, and what intervals hold."""
    held: dict[bool, list[float]] = {False: [], True: []}
    rejected = 0.0
    for seed in range(WORLDS):
        with world(seed) as (folder, people):
            for combine in (False, True):
                with closing(opened(folder, combine)) as session:
                    share, is_rejected = answers(session, people)
                held[combine].append(share)
            rejected += is_rejected
    for combine, word in ((False, "scaled or central"), (True, "together")):
        figures.within("random samples, coverage", float(np.mean(held[combine])), 0.93, 0.97, word)
    figures.at_most("random samples rejected, of all", rejected / WORLDS, quantile(WORLDS) / WORLDS)
    figures.at_least("biased samples refused from mixing, of all", refused(BIASED) / BIASED, 1.0)


def quantile(worlds: int) -> int:
    """The most rejections of random samples that a test at its level has but with a chance of 1%."""
    below = 0.0
    for count in range(worlds + 1):
        below += math.comb(worlds, count) * LEVEL**count * (1 - LEVEL) ** (worlds - count)
        if below >= 0.99:
            return count
    return worlds


def refused(worlds: int) -> int:
    """Worlds where the young reported three times as often, whose reports are rejected and mixed with nothing."""
    count = 0
    for seed in range(worlds):
        with world(seed, young=True) as (folder, people), closing(opened(folder, True)) as session:
            _, is_rejected = answers(session, people)
            routed = session.query("SELECT COUNT(*) FROM customer").provenance["routed"]
            count += is_rejected and routed["chosen"] == "central"
    return count


def hybrid(figures: Figures) -> None:
    """Errors of COUNT against what was computed, and what intervals of COUNT, SUM and AVG hold."""
    for name, row in rows():
        outcomes = measured(row.world(), row.case, DRAWS, BOXES)
        if row.expected is not None:
            over = outcomes["COUNT(*)"].rmse / row.expected
            figures.at_most("hybrid, rmse over the method's", over, WITHIN, name)
        for value, found in outcomes.items():
            held = f"hybrid, {name}: 95% intervals of {value} hold"
            figures.within("hybrid, coverage", found.coverage, 0.92, 0.98, held)
    left = silent(shop(FOUR), Case(2, part=0.4), DRAWS)
    figures.at_least("hybrid, rows of those who did not report: 95% intervals hold", left, 0.75)


def measure(figures: Figures, parts: Sequence[str] = ()) -> None:
    sections(parts, {"routing": lambda: routing(figures), "hybrid": lambda: hybrid(figures)})


if __name__ == "__main__":
    main(measure)
