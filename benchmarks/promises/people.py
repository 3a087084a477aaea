"""A fifth of a population reports, not by chance: what is told of everybody must come from a central release.

Each population takes its own share of women, its own incomes and its own reporters, who are picked by sex, income or
age, so that those who report differ from the rest. A routed count or sum is asked for in each; an answer whose 99.9%
interval misses the truth about everybody counts, unless it was refused.
"""

from __future__ import annotations

from pathlib import Path
from unittest import mock

import duckdb
import numpy as np

import dpsql
from dpsql.errors import Error
from dpsql.examples.retail import make_star, write_star
from dpsql.interfaces.python.dbapi import connect

POPULATIONS = 12
PEOPLE, ASKED = 2000, 400
LEVEL = 0.999
"""So wide that chance misses one of the asked hundred now and then; counting reporters as everybody misses by 80%."""

ALLOWED = 2
"""Misses of 12 populations, two ways of asking and four statements that chance explains: 96 times 0.001."""

STATEMENTS = (
    "SELECT COUNT(*) FROM customer",
    "SELECT COUNT(*) FROM customer WHERE sex = 'F'",
    "SELECT COUNT(*) FROM customer WHERE age BETWEEN 30 AND 49",
    "SELECT SUM(income) FROM customer",
)

_VIEW = """views:
  people: {of: customer, axes: [customer.age, customer.sex], measures: [count, customer.income]}
"""
_CATALOG = Path(__file__).parents[2] / "catalog" / "retail.yaml"


def missed(folder: Path) -> float:
    """How many routed answers neither hold the truth about everybody nor are refused."""
    return float(sum(_missed_in(folder / str(seed), seed) for seed in range(POPULATIONS)))


def _missed_in(folder: Path, seed: int) -> int:
    star = make_star(seed, PEOPLE, 20)
    people = star["customer"]
    order = np.argsort(people[("sex", "income", "age")[seed % 3]], kind="stable")
    asked = {column: values[order[:ASKED]] for column, values in people.items()}
    write_star(folder / "data", star)
    write_star(folder / "asked", {**star, "customer": asked})
    head = (
        _CATALOG.read_text()
        .split("views:")[0]
        .replace("income: {type: int", "income: {type: int, measure: true")
    )
    central, local = folder / "central.yaml", folder / "local.yaml"
    central.write_text(head.replace("name: retail", "name: central") + _VIEW)
    asks = head.replace("name: retail", "name: local").replace("root: data", "root: asked")
    local.write_text(f"{asks}collection: {{epsilon: 8}}\n{_VIEW}")
    dpsql.publish(central, folder / "central.dpsql")
    dpsql.simulate(local, folder / "local.parquet", folder / "local.json", seed=seed)
    dpsql.collect(folder / "local.json", folder / "local.parquet", folder / "local.dpsql")
    truths = _truths(folder / "data" / "customer.parquet")
    wrong = 0
    for combine in (False, True):
        releases = connect(folder / "central.dpsql", folder / "local.dpsql", combine=combine).session
        for sql, truth in zip(STATEMENTS, truths, strict=True):
            try:
                low, high = (end.iloc[0, 0] for end in releases.query(sql).interval(LEVEL))
            except Error:
                continue
            wrong += not low <= truth <= high
    return wrong


def _truths(customers: Path) -> list[float]:
    """The statements' answers on the raw rows of everybody."""
    with duckdb.connect() as plain:
        plain.execute(f"CREATE VIEW customer AS SELECT * FROM '{customers}'")
        return [float(plain.execute(sql).fetchall()[0][0]) for sql in STATEMENTS]


def missed_plant(folder: Path) -> float:
    """1 if taking those who reported for everybody would not show."""
    with mock.patch("dpsql.federation.route._is_whole", lambda *whatever: True):
        return float(_missed_in(folder, 0) == 0)
