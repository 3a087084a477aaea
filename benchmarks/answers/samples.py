"""Samples that are none: whether a biased selection is noticed, and a random one is not.

Each world has a population of its own, a noisy central release of everybody, and reports of a part of the people, whose
axes are cut and described otherwise than the central ones. Of biased worlds, people with one half of the values report
twice as often. Truths are about everybody.

    python -m benchmarks.answers.samples [worlds of each kind]
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

import dpsql
from benchmarks.figures import Figures
from dpsql.examples.retail import Columns, make_star, write_star
from dpsql.interfaces.python.dbapi import connect

PEOPLE, SALES, RATE = 40_000, 50, 0.3
WORLDS = 40
WEAK = 0.4
"""Epsilon of reports that hide from the test that one half of the people reports twice as often, most of the time."""
_CATALOG = Path(__file__).parents[2] / "catalog" / "retail.yaml"
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
    with tempfile.TemporaryDirectory() as place:
        folder, rng = Path(place), np.random.default_rng(seed)
        star = make_star(seed, PEOPLE, 20)
        star["sales"] = {column: values[:SALES] for column, values in star["sales"].items()}
        people = star["customer"]
        weight = np.where(_chosen(people, by), 2.0, 1.0) if biased else np.ones(PEOPLE)
        few = rng.choice(PEOPLE, round(RATE * PEOPLE), replace=False, p=weight / weight.sum())
        write_star(folder / "data", star)
        write_star(folder / "asked", {**star, "customer": {c: v[few] for c, v in people.items()}})
        head = (
            _CATALOG.read_text()
            .split("views:")[0]
            .replace("income: {type: int", "income: {type: int, measure: true")
        )
        central = head.replace("name: retail", "name: central").replace("epsilon: 1.0", "epsilon: 0.2")
        views = [
            f"  {name}: {{of: customer, axes: [customer.{name}], measures: [count]}}"
            for name in ("age", "region")
        ]
        views.append("  income: {of: customer, axes: [customer.income], measures: [count]}")
        groups = "{axis: customer.age, cuts: [30, 45, 65]}"
        views.append(f"  money: {{of: customer, axes: [{groups}], measures: [count, customer.income]}}")
        (folder / "central.yaml").write_text(central + "views:\n" + "\n".join(views) + "\n")
        measures = "count, customer.income" if by == "amount" else "count"
        local = head.replace("name: retail", "name: local").replace("root: data", "root: asked")
        local = local.replace("description: full years", "description: years of age").replace(
            "description: a year", "description: euros a year"
        )
        (folder / "local.yaml").write_text(
            f"{local}collection: {{epsilon: {epsilon}, participation: random}}\nviews:\n"
            f"  people: {{of: customer, axes: [{OTHER_CUTS[by]}, customer.sex], measures: [{measures}]}}\n"
        )
        dpsql.publish(folder / "central.yaml", folder / "central.dpsql")
        dpsql.simulate(folder / "local.yaml", folder / "reports.parquet", folder / "plan.json", seed=seed)
        dpsql.collect(folder / "plan.json", folder / "reports.parquet", folder / "local.dpsql")
        return _asked(folder, by)


def _chosen(people: Columns, by: str) -> np.ndarray:
    if by == "region":
        return people["region"] < 2
    column = people["income" if by == "amount" else by].astype(np.float64)
    return np.asarray(column < np.median(column))


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


def main(worlds: int) -> int:
    """Measure and print."""
    figures, kinds = Figures(), list(OTHER_CUTS)
    missed, wrongly = 0, 0
    for i in range(worlds):
        by = kinds[i % len(kinds)]
        world = measured(1000 + i, by, biased=True)
        missed += not world.rejected
        wrongly += measured(2000 + i, by, biased=False).rejected
        print(
            f"world {i} by {by}: rejected {world.rejected}, random ones rejected so far {wrongly}", flush=True
        )
    figures.at_most(f"biased samples taken for random, of {worlds} worlds", missed, 0)
    figures.at_most(f"random samples rejected, of {worlds} worlds", wrongly, 3 * worlds / WORLDS)
    _measure_weak_tests(figures, worlds)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else WORLDS))
