"""Ten counts of two ranges, bought together, against tools that are paid for each question.

Such a tool divides the same budget among the answers: Laplace noise of scale 10 / epsilon, or at a delta Gaussian noise
of variance 10 / mu^2 (its exact curve, which is the best that it can have). The counts are of people of the Adult
census by age and hours a week; without `DPSQL_DATA` nothing is measured. Noise comes from the system, so measured
figures differ from run to run.

**Privacy**: public data.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np

import dpsql
from benchmarks.figures import Figures
from dpsql.budget import mu2_of
from dpsql.curate.buy import purchase
from dpsql.noise import ExactNoise, os_entropy
from dpsql.publishing.central import publish_release
from dpsql.star import load_catalog

CATALOG = """
dpsql: 1
name: adult
source: {{kind: parquet, root: "{root}", tables: {{person: adult_train.parquet}}}}
ledger: "{folder}/ledger.duckdb"
privacy: {{lineage: adult, cap: 1000, unit: row, epsilon: 1, delta: {delta}}}
tables:
  person: {{role: fact, columns: {{
    age: {{type: int, lower: 17, upper: 90}}, hours_per_week: {{type: int, lower: 1, upper: 99}}}}}}
views:
  plane: {{of: person, axes: [person.age, person.hours_per_week]}}
"""
QUESTIONS, RELEASES, EPSILON = 10, 12, Fraction(1, 10)


def statements(seed: int) -> list[str]:
    """Random ranges of both columns."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(QUESTIONS):
        (a, b), (c, d) = (np.sort(rng.integers(*ends, 2)) for ends in ((17, 91), (1, 100)))
        where = f"age BETWEEN {a} AND {b} AND hours_per_week BETWEEN {c} AND {d}"
        found.append(f"SELECT COUNT(*) FROM person WHERE {where}")
    return found


def paid_per_question(delta: Fraction) -> float:
    """Variance of each answer where the budget is divided among all."""
    return float(QUESTIONS / mu2_of(EPSILON, delta) if delta else 2 * QUESTIONS**2 / EPSILON**2)


def measured(catalog: Path, asked: list[str]) -> Iterator[float]:
    """Squared errors of every answer of some releases."""
    bought = purchase(load_catalog(catalog), asked, EPSILON)
    raw = duckdb.connect()
    raw.execute(f"CREATE VIEW person AS FROM '{os.environ['DPSQL_DATA']}/adult/adult_train.parquet'")
    exact = [float(raw.execute(sql).fetchall()[0][0]) for sql in asked]
    for _ in range(RELEASES):
        target = catalog.parent / f"{os.urandom(8).hex()}.dpsql"
        publish_release(bought, target, noise=ExactNoise(os_entropy()), key=os_entropy()(32))
        for sql, truth in zip(asked, exact, strict=True):
            yield (float(dpsql.query(sql, release=target).scalar()) - truth) ** 2


def main() -> int:
    """Print the figures."""
    figures = Figures()
    if "DPSQL_DATA" not in os.environ:
        print("no DPSQL_DATA: ten counts are not bought")
        return 0
    for delta in (Fraction(0), Fraction(1, 10**6)):
        with tempfile.TemporaryDirectory() as name:
            catalog = Path(name) / "adult.yaml"
            root = Path(os.environ["DPSQL_DATA"]) / "adult"
            catalog.write_text(CATALOG.format(root=root, folder=name, delta=delta))
            words, paid = f"delta {float(delta):g}", paid_per_question(delta)
            ratios = []
            for seed in range(3):
                quoted = dpsql.quote(catalog, statements(seed), epsilon=EPSILON).queries
                errors = [query.columns[0].median for query in quoted if query.columns]
                ratios.append(np.mean(np.square(np.array(errors, float))) / paid)
            figures.table(f"10 counts bought over paid per question, {words}, stated", max(ratios))
            ratio = float(np.mean(list(measured(catalog, statements(0)))) / paid)
            figures.at_most("10 counts bought over paid per question", ratio, 1.0, words)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
