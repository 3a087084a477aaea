"""What is promised of releases of two trusts, one figure each.

python -m benchmarks.trusts.measure [routing] [hybrid]
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.figures import Figures
from benchmarks.trusts.hybrid import Case, Outcome, measured, silent
from benchmarks.trusts.routing import Reporters, answers, opened, parts_off, world
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
    """Who answers, who is mixed with whom, and what intervals hold."""
    held: dict[bool, list[float]] = {False: [], True: []}
    off = rejected = 0.0
    promises = set()
    for seed in range(WORLDS):
        with world(seed, Reporters("random", 0.2)) as (folder, people):
            for combine in (False, True):
                session = opened(folder, combine)
                found = answers(session, people)
                held[combine].append(float(found.held.mean()))
                off = max(off, parts_off(session))
                told = session.query("SELECT COUNT(*) FROM customer").provenance["routed"]["all_together"]
                promises.add(told["epsilon"])
                session.close()
            rejected += found.rejected
    for combine, word in ((False, "scaled or central"), (True, "together")):
        figures.within("random samples, coverage", float(np.mean(held[combine])), 0.93, 0.97, word)
    figures.at_most("random samples rejected, of all", rejected / WORLDS, quantile(WORLDS) / WORLDS)
    figures.table("COUNT(*) less the sum of its parts", off)
    figures.table("promises that are not the sum over all that is open", len(promises - {"503/125"}))
    figures.at_least("biased samples refused from mixing, of all", refused(BIASED) / BIASED, 1.0)
    figures.table("statements that people of unknown participation answered", unknown(3))


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
        with world(seed, Reporters("random", 0.2, young=True)) as (folder, people):
            session = opened(folder, True)
            found = answers(session, people)
            routed = session.query("SELECT COUNT(*) FROM customer").provenance["routed"]
            count += found.rejected and routed["chosen"] == "central"
            session.close()
    return count


def unknown(worlds: int) -> int:
    """Statements of three that go to people of unknown participation, although a central release answers them."""
    count = 0
    asked = ("COUNT(*)", "COUNT(*) FILTER (WHERE age < 40)", "SUM(income)")
    for seed in range(worlds):
        with world(seed, Reporters("unknown", 0.2), measures="count, customer.income") as (folder, _):
            session = opened(folder, True)
            for value in asked:
                told = session.query(f"SELECT {value} FROM customer").provenance["routed"]
                count += told["chosen"] != "central"
            session.close()
    return count


def hybrid(figures: Figures) -> None:
    """Errors of COUNT against what was computed, and what intervals of COUNT, SUM and AVG hold."""
    for name, row in rows():
        outcomes = measured(row.world(), row.case, DRAWS, BOXES)
        _errors(figures, name, row, outcomes["COUNT(*)"])
        for value, found in outcomes.items():
            held = f"hybrid, {name}: 95% intervals of {value} hold"
            figures.within("hybrid, coverage", found.coverage, 0.92, 0.98, held)
            figures.table(f"hybrid, {name}: noise alone, {value}", float(found.near.mean()))
    left = silent(shop(FOUR), Case(2, part=0.4), DRAWS)
    figures.at_least("hybrid, rows of those who did not report: 95% intervals hold", left.coverage, 0.75)
    figures.table("hybrid, all rows less respondents and others", left.off)


def _errors(figures: Figures, name: str, row: Row, counts: Outcome) -> None:
    """COUNT's error over what section 3 gives for these boxes, and over the table's."""
    figures.table(f"hybrid, rmse over predicted, {name}", counts.rmse / counts.expected)
    if row.expected is not None:
        figures.at_most("hybrid, rmse over the method's", counts.rmse / row.expected, WITHIN, name)


def main(words: list[str]) -> int:
    """Measure what the words name, all without any."""
    figures = Figures()
    for each in (routing, hybrid):
        if not words or each.__name__ in words:
            each(figures)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
