"""What is promised of releases of two trusts, one figure each.

python -m benchmarks.trusts.measure [routing] [hybrid]
"""

from __future__ import annotations

import sys

import numpy as np

from benchmarks.figures import Figures
from benchmarks.trusts.hybrid import FIFTEEN, Case, measured
from benchmarks.trusts.routing import Reporters, answers, opened, parts_off, world

WORLDS, DRAWS = 20, 20
WITHIN = 1.15
ROWS = {
    "age 4 x month, epsilon 2": (Case(2), 87.0),
    "age 4 x month, epsilon 1": (Case(1), 213.0),
    "age 4 x month with sums, epsilon 2": (Case(2, sums=True), 94.0),
    "age 15 ranges x months, epsilon 2": (Case(2, FIFTEEN, sums=True), 938.0),
    "age 15 ranges x months, epsilon 1": (Case(1, FIFTEEN, sums=True), 2330.0),
}
"""Cases and the root mean squared error of COUNT that was computed for them."""


def routing(figures: Figures) -> None:
    """Who answers, who is mixed with whom, and what intervals hold."""
    held: dict[bool, list[float]] = {False: [], True: []}
    rejected = biased = unknown = off = 0.0
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
        with world(seed, Reporters("random", 0.2, young=True)) as (folder, people):
            session = opened(folder, True)
            found = answers(session, people)
            biased += found.rejected
            routed = session.query("SELECT COUNT(*) FROM customer").provenance["routed"]
            biased -= routed["chosen"] != "central"
            session.close()
        with world(seed, Reporters("unknown", 0.2)) as (folder, people):
            session = opened(folder, True)
            asked = ("COUNT(*)", "COUNT(*) FILTER (WHERE age < 40)")
            chosen = {
                session.query(f"SELECT {a} FROM customer").provenance["routed"]["chosen"] for a in asked
            }
            unknown += chosen != {"central"}
            session.close()
    for combine, word in ((False, "scaled or central"), (True, "together")):
        figures.at_least(f"random, {word}: 95% intervals hold", float(np.mean(held[combine])), 0.92)
        figures.at_most(f"random, {word}: 95% intervals hold", float(np.mean(held[combine])), 0.98)
    figures.at_most("random samples rejected, of all", rejected / WORLDS, 0.1)
    figures.at_least("biased samples refused from mixing, of all", biased / WORLDS, 1.0)
    figures.at_most("statements that people of unknown participation answered", unknown, 0)
    figures.at_most("COUNT(*) less the sum of its parts", off, 0)
    figures.at_most("promises that are not the sum over all that is open", len(promises - {"503/125"}), 0)


def hybrid(figures: Figures) -> None:
    """Errors of COUNT against what was computed, and what intervals of COUNT, SUM and AVG hold."""
    for name, (case, expected) in ROWS.items():
        for value, found in measured(case, DRAWS).items():
            if value == "COUNT(*)":
                figures.at_most(f"hybrid, {name}: rmse over expected", found.rmse / expected, WITHIN)
            figures.at_least(f"hybrid, {name}: 95% intervals of {value} hold", found.coverage, 0.92)
            figures.at_most(f"hybrid, {name}: 95% intervals of {value} hold", found.coverage, 0.98)
    (found,) = measured(Case(2, delta="1e-6"), DRAWS).values()
    predicted = float(np.sqrt(np.mean(found.stderr**2)))
    figures.at_most("hybrid under a delta: rmse over predicted", found.rmse / predicted, WITHIN)


def main(words: list[str]) -> int:
    """Measure what the words name, all without any."""
    figures = Figures()
    for each in (routing, hybrid):
        if not words or each.__name__ in words:
            each(figures)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
