"""A small star of people with many rows: sales over months and stores, and a second fact."""

from __future__ import annotations

import random
from pathlib import Path

from dpsql.curator.prove.layouts import RawRows
from tests.releases import write_catalog
from tests.statements import read_catalog

MONTHS, STORES = 6, 5

CATALOG = read_catalog("people_star")


def make_people(folder: Path, *, customers: int = 60, bound: str = "3", privacy: str = "epsilon: 1") -> Path:
    """Write the star and its catalog; returns the catalog."""
    chance = random.Random(5)
    people = [(i, chance.randrange(10), chance.choice("nse")) for i in range(customers)]
    sales = [
        (i, chance.randrange(MONTHS), chance.randrange(STORES), chance.randrange(11))
        for i in range(customers)
        for _ in range(chance.randrange(8))
    ]
    returns = [(i, chance.randrange(MONTHS)) for i in range(0, customers, 3) for _ in range(2)]
    tables = {
        "customer": RawRows("id INT, age INT, region VARCHAR", people),
        "sales": RawRows("id INT, month INT, store INT, amount INT", sales),
        "returns": RawRows("id INT, month INT", returns),
    }
    return write_catalog(folder, CATALOG, tables, PRIVACY=privacy, BOUND=bound)
