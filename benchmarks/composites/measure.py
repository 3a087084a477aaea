"""95% intervals of composite values hold the value without noise in 93-97% of independent releases.

A small star of two views that share an axis; one set of cells, noise drawn anew for each release. Coverage here is that
of the noise, so the catalog measures no rows beyond `max_ids`. Classes: linear maps of groups, quotients, differences
of averages, products, and quotients whose denominator is near 0.
"""

from __future__ import annotations

from pathlib import Path

import duckdb

from benchmarks.coverage import Publish, draws, interval_cells, opened, redrawn
from benchmarks.figures import Figures, main
from dpsql.catalog import load_catalog
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy
from tests.statements import sections

CATALOG = """
dpsql: 1
name: clinic
source: {{kind: parquet, root: "{root}", tables: {{visit: visit.parquet, person: person.parquet}}}}
privacy: {{lineage: clinic, cap: 10, unit: person.id, epsilon: 2.0, delta: 0}}
tables:
  person: {{role: dimension, key: id, private: true, columns: {{
    age: {{type: int, lower: 0, upper: 99, cuts: {{width: 10}}}},
    ward: {{type: string, categories: [a, b, c], nullable: true, out_of_domain: drop}}}}}}
  visit: {{role: fact, foreign_keys: {{id: person}}, max_ids: 3, clipped_share: 0, columns: {{
    cost: {{type: int, lower: 0, upper: 40, measure: true}}, day: {{type: int, lower: 1, upper: 12}}}}}}
views:
  who: {{of: visit, axes: [person.age, person.ward], measures: {{count: 0.5, visit.cost: 0.5}}, share: 0.5}}
  when: {{of: visit, axes: [visit.day, person.ward], measures: {{count: 0.5, visit.cost: 0.5}}, share: 0.5}}
"""

PEOPLE = """
SELECT i AS id, (random() * 99)::INT AS age,
  CASE WHEN random() < .1 THEN NULL ELSE chr(97 + (random() * 2)::INT) END AS ward FROM range(6000) t(i)
"""
VISITS = """
SELECT (random() * 5999)::INT AS id, (random() * 40)::INT AS cost, (1 + random() * 11)::INT AS day FROM range(15000)
"""

STATEMENTS: dict[str, tuple[str, ...]] = {
    name: tuple(text for text, _ in statements)
    for name, statements in sections(Path(__file__).with_name("statements.sql")).items()
}
"""Statements of one class; every noisy number of theirs counts."""


def clinic(folder: Path) -> Publish:
    """Write the star, count it once, and give a function that draws a release and opens it."""
    db = duckdb.connect()
    db.execute("SELECT setseed(0.5)")
    for name, rows in (("person", PEOPLE), ("visit", VISITS)):
        db.execute(f"COPY ({rows}) TO '{folder}/{name}.parquet'")
    file = folder / "clinic.yaml"
    file.write_text(CATALOG.format(root=folder))
    return redrawn(load_catalog(file), folder)


def covered(publish: Publish, releases: int, seed: int) -> dict[str, dict[str, float]]:
    """How often intervals hold, for each statement of each class.

    Args:
        publish: draws a release.
        releases: how many.
        seed: of the test entropy.
    """
    texts = [text for group in STATEMENTS.values() for text in group]
    held: dict[str, list[bool]] = {text: [] for text in texts}
    for exact in opened([publish(ZeroNoise(), "exact.dpsql")]):
        truth = {text: exact.query(text).rows for text in texts}
    for answerer in draws(publish, ExactNoise(insecure_test_entropy(seed)), releases):
        for text in texts:
            for row, (_, low, high) in zip(truth[text], interval_cells(answerer.query(text)), strict=True):
                ends = zip(row, low, high, strict=True)
                held[text] += [
                    a <= float(value) <= b for value, a, b in ends if a is not None and value is not None
                ]
    return {
        name: {text: sum(held[text]) / max(len(held[text]), 1) for text in group}
        for name, group in STATEMENTS.items()
    }


def measure(figures: Figures, folder: Path, releases: int = 200) -> None:
    """Draw so many releases."""
    for name, rates in covered(clinic(folder), releases, 20261122).items():
        for text, rate in rates.items():
            print(f"{rate:.3f}  {text}")
        figures.within("composite coverage", sum(rates.values()) / len(rates), 0.93, 0.97, name)


if __name__ == "__main__":
    main(measure)
