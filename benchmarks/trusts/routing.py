"""A central release and the reports of some of the same people, opened together: what is routed, mixed and refused.

Fifty thousand customers, eighteen age groups. The central release is noisy on purpose; a part of the people report at
epsilon 4. Truths are about everybody. Each world has a population, a central draw and reporters of its own.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

import dpsql
from dpsql.examples.retail import Columns, make_star, write_star
from dpsql.federation.session import OpenReleases
from dpsql.interfaces.python.dbapi import connect

PEOPLE, SALES, LEVEL = 50_000, 100, 0.95
CENTRAL, LOCAL = "0.012", "4"
RANGES = (
    (18, 21),
    (18, 41),
    (22, 29),
    (26, 61),
    (30, 49),
    (38, 41),
    (42, 73),
    (50, 57),
    (58, 89),
    (66, 69),
    (74, 89),
)
_CATALOG = Path(__file__).parents[2] / "catalog" / "retail.yaml"
_VIEW = """views:
  people: {of: customer, axes: [{axis: customer.age, cuts: {width: 4}}], measures: [MEASURES]}
"""


class Reporters(NamedTuple):
    """Who reports: the catalog's word, the part of the people, and whether the young report more."""

    word: str
    part: float
    young: bool = False


class Answers(NamedTuple):
    """What one world says of the ranges: squared errors and whether 95% intervals hold, and whether it was mixed."""

    errors: np.ndarray
    held: np.ndarray
    rejected: bool


@contextmanager
def world(seed: int, who: Reporters, *, measures: str = "count") -> Iterator[tuple[Path, Columns]]:
    """A population, its central release and its reports, released; in a folder that goes away."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        star = make_star(seed, PEOPLE, 20)
        star["sales"] = {column: values[:SALES] for column, values in star["sales"].items()}
        people = star["customer"]
        rng = np.random.default_rng(seed)
        weight = np.where(people["age"] < 40, 3.0, 1.0) if who.young else np.ones(PEOPLE)
        few = rng.choice(PEOPLE, round(who.part * PEOPLE), replace=False, p=weight / weight.sum())
        write_star(folder / "data", star)
        write_star(folder / "asked", {**star, "customer": {c: v[few] for c, v in people.items()}})
        head = _CATALOG.read_text().split("views:")[0]
        head = head.replace("income: {type: int", "income: {type: int, measure: true")
        view = _VIEW.replace("MEASURES", measures)
        central = head.replace("name: retail", "name: central").replace("epsilon: 1.0", f"epsilon: {CENTRAL}")
        local = head.replace("name: retail", "name: local").replace("root: data", "root: asked")
        (folder / "central.yaml").write_text(central + view)
        (folder / "local.yaml").write_text(
            f"{local}collection: {{epsilon: {LOCAL}, participation: {who.word}}}\n{view}"
        )
        dpsql.publish(folder / "central.yaml", folder / "central.dpsql")
        dpsql.simulate(folder / "local.yaml", folder / "reports.parquet", folder / "plan.json", seed=seed)
        dpsql.collect(folder / "plan.json", folder / "reports.parquet", folder / "local.dpsql")
        yield folder, people


def opened(folder: Path, combine: bool) -> OpenReleases:
    """Both releases together."""
    return connect(folder / "central.dpsql", folder / "local.dpsql", combine=combine).session


def asked(value: str = "COUNT(*)", ranges: Sequence[tuple[int, int]] = RANGES) -> str:
    """One statement about all ranges."""
    parts = [f"{value} FILTER (WHERE age BETWEEN {a} AND {b})" for a, b in ranges]
    return f"SELECT {', '.join(parts)} FROM customer"


def answers(session: OpenReleases, people: Columns, value: str = "COUNT(*)") -> Answers:
    """Errors and intervals of all ranges of one statement."""
    result = session.query(asked(value))
    low, high = result.interval_rows(LEVEL)
    truth = np.array([_truth(people, value, a, b) for a, b in RANGES])
    found = np.array(result.rows[0], np.float64)
    held = (np.array(low[0], np.float64) <= truth) & (truth <= np.array(high[0], np.float64))
    tests = result.provenance["routed"]["tests"]
    return Answers((found - truth) ** 2, held, any(test["rejected"] for test in tests))


def _truth(people: Columns, value: str, low: int, high: int) -> float:
    chosen = (people["age"] >= low) & (people["age"] <= high)
    incomes = people["income"][chosen].astype(np.float64)
    return {"COUNT(*)": float(chosen.sum()), "SUM(income)": incomes.sum(), "AVG(income)": incomes.mean()}[
        value
    ]


def parts_off(session: OpenReleases) -> float:
    """By how much COUNT(*) differs from the sum of its parts, in one statement and between two."""
    both = "SELECT (SELECT COUNT(*) FROM customer) AS n, SUM(c) AS parts FROM (SELECT age_group, COUNT(*) AS c FROM "
    ((whole, parts),) = session.query(both + "customer GROUP BY 1) AS g").rows
    return abs(whole - parts)
