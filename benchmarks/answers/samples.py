"""Samples that are none: whether a biased selection is noticed, and a random one is not.

Each world has a population of its own, a noisy central release of everybody, and reports of a part of the people, whose
axes are cut and described otherwise than the central ones. Of biased worlds, people with one half of the values report
twice as often. Truths are about everybody.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from benchmarks.figures import Figures, main
from benchmarks.trusts.routing import TwoTrusts
from dpsql.examples.retail import Columns
from dpsql.interfaces.python.dbapi import connect

PEOPLE, SALES, RATE = 40_000, 50, 0.3
WORLDS = 40
CENTRAL = """
  age: {of: customer, axes: [customer.age], measures: [count]}
  region: {of: customer, axes: [customer.region], measures: [count]}
  income: {of: customer, axes: [customer.income], measures: [count]}
  money: {of: customer, axes: [{axis: customer.age, cuts: [30, 45, 65]}], measures: [count, customer.income]}
"""
DESCRIBED = {
    "description: full years": "description: years of age",
    "description: a year": "description: euros a year",
}
WEAK = 0.4
"""Epsilon of reports that hide from the test that one half of the people reports twice as often, most of the time."""
OTHER_CUTS = {
    "age": "{axis: customer.age, cuts: [24, 30, 45, 65]}",
    "income": "{axis: customer.income, cuts: [15000, 30000, 60000]}",
    "region": "customer.region",
    "amount": "{axis: customer.age, cuts: [45, 65]}",
}
ASKED = {
    "age": [
        f"age BETWEEN {a} AND {b} AND sex = '{s}'" for a, b in ((18, 29), (30, 44), (65, 89)) for s in "FM"
    ],
    "income": [
        f"income >= {a} AND income < {b} AND sex = '{s}'"
        for a, b in ((0, 15000), (30000, 60000))
        for s in "FM"
    ],
    "region": [f"region = '{r}' AND sex = '{s}'" for r in ("north", "east", "west") for s in "FM"],
}
"""Questions that the local release alone has views for."""


class World(NamedTuple):
    """What one world showed.

    Args:
        rejected: whether the test says that respondents are no random sample.
        residuals: errors of the weighted answers, in standard errors.
        widths: standard errors of the weighted answers over those of the scaled ones.
    """

    rejected: bool
    residuals: tuple[float, ...]
    widths: tuple[float, ...]


def measured(seed: int, by: str, *, biased: bool, epsilon: float = 4) -> World:
    """Publish, collect and ask one world.

    Args:
        seed: of the population and of who reports.
        by: the column that decides who reports.
        biased: whether it does.
        epsilon: of each report.
    """
    measures = "count, customer.income" if by == "amount" else "count"
    local = f"  people: {{of: customer, axes: [{OTHER_CUTS[by]}, customer.sex], measures: [{measures}]}}\n"
    both = TwoTrusts(CENTRAL, local, "0.2", str(epsilon), PEOPLE, SALES, RATE, DESCRIBED)
    with tempfile.TemporaryDirectory() as place:
        both.publish(Path(place), seed, partial(_weight, by) if biased else None)
        return _asked(Path(place), by)


def _weight(by: str, people: Columns) -> np.ndarray:
    """Those with one half of the values report twice as often."""
    if by == "region":
        return np.where(people["region"] < 2, 2.0, 1.0)
    column = people["income" if by == "amount" else by].astype(np.float64)
    return np.where(column < np.median(column), 2.0, 1.0)


def _asked(folder: Path, by: str) -> World:
    both = connect(folder / "central.dpsql", folder / "local.dpsql").session
    alone = connect(folder / "local.dpsql").session
    assert both.router is not None
    rejected = any(test.rejected for test in both.router.standing.tests)
    residuals, widths = [], []
    local = both.releases[1].meta.local
    assert local is not None
    for condition in ASKED.get(by, ()):
        sql = f"SELECT COUNT(*) FROM customer WHERE {condition}"
        truth = _true_count(folder, condition)
        weighted, scaled = both.query(sql), alone.query(sql)
        error, scale = float(weighted.stderr_rows[0][0]), PEOPLE / local.reporters
        residuals.append((float(weighted.scalar()) - truth) / error)
        widths.append(error / (float(scaled.stderr_rows[0][0]) * scale))
    return World(rejected, tuple(residuals), tuple(widths))


def _true_count(folder: Path, condition: str) -> float:
    statement = f"SELECT count(*) FROM '{folder}/data/customer.parquet' WHERE {condition}"
    return float(duckdb.sql(statement).fetchall()[0][0])


def _measure_weak_tests(figures: Figures, worlds: int) -> None:
    """Answers of samples whose reports hide a selection from the test, one question a world."""
    kinds, within, widths = list(ASKED), 0, []
    for i in range(worlds):
        by = kinds[i % len(kinds)]
        world = measured(4000 + i, by, biased=True, epsilon=WEAK)
        within += abs(world.residuals[i % len(ASKED[by])]) < 2
        widths += measured(5000 + i, by, biased=False, epsilon=WEAK).widths
    figures.at_least(
        f"of their answers within two standard errors, one of each of {worlds} worlds",
        within,
        38 * worlds / WORLDS,
    )
    figures.at_most(
        "standard error of a random sample's answer over the scaled one's, mean", float(np.mean(widths)), 1.1
    )


def measure(figures: Figures, worlds: int = WORLDS) -> None:
    """Publish, collect and ask so many worlds of each kind."""
    kinds, missed, wrongly = list(OTHER_CUTS), 0, 0
    for i in range(worlds):
        by = kinds[i % len(kinds)]
        world = measured(1000 + i, by, biased=True)
        missed += not world.rejected
        wrongly += measured(2000 + i, by, biased=False).rejected
        print(f"world {i} by {by}: rejected {world.rejected}, random ones so far {wrongly}", flush=True)
    figures.at_most(f"biased samples taken for random, of {worlds} worlds", missed, 0)
    figures.at_most(f"random samples rejected, of {worlds} worlds", wrongly, 3 * worlds / WORLDS)
    _measure_weak_tests(figures, worlds)


if __name__ == "__main__":
    main(measure)
