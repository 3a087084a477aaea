"""SQL in catalogs, measured: what is taken moves one row, what is hostile is refused, what plans can be published."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np

from dpsql.catalog import load_catalog
from dpsql.curator.forecast import plan_catalog
from dpsql.errors import CatalogError
from dpsql.row_expressions.expression import row_expression
from dpsql.row_expressions.rowlocal import checked_select
from tests.central.test_plan_refusals import CASES, shop
from tests.privacy.test_rowlocal_publish import ONE_MORE, cells, star
from tests.privacy.test_rowlocal_sql import ARMS, BEYOND_ONE_ROW, REFUSED

AMOUNTS = (
    "s.amount",
    "(s.amount * 7 + s.id) % 10",
    "s.id // (s.amount - 3)",
    "CAST(s.code AS INT)",
    "p.price + 1",
)
JOINS = ("JOIN product AS p USING (product_id)", "LEFT JOIN product AS p ON s.product_id - 1 = p.product_id")
CONDITIONS = ("", "WHERE s.amount > 2", "WHERE 10 // (s.amount - 3) > 0 OR s.code LIKE 'a%'")
TAKEN = [
    f"SELECT {amount} AS amount, s.code FROM 'sales.parquet' AS s {join} {condition}"
    for amount, join, condition in itertools.product(AMOUNTS, JOINS, CONDITIONS)
]


def worst_source(folder: Path) -> float:
    """The largest L1 over M of statements that are taken, one row more on one side; a row is the unit, so M is 1."""
    worst = 0.0
    for number, sql in enumerate(TAKEN):
        near = cells(star(folder / f"{number}a", sql))
        far = cells(star(folder / f"{number}b", sql, extra=ONE_MORE))
        worst = max(worst, float(np.abs(near - far).sum()))
    return worst


def hostile_taken(folder: Path) -> float:
    """How many statements and expressions over several rows, the clock or other files are taken."""
    del folder
    return float(sum(not _refused(sql, is_select=True) for sql in REFUSED)) + sum(
        not _refused(text, is_select=False) for text in BEYOND_ONE_ROW
    )


def _refused(text: str, *, is_select: bool) -> bool:
    try:
        checked_select(text, ARMS) if is_select else row_expression(text)
    except CatalogError:
        return True
    return False


def unpublishable(folder: Path) -> float:
    """How many catalogs that nobody could publish are planned."""
    planned = 0
    for number, (parts, _) in enumerate(CASES.values()):
        place = folder / str(number)
        place.mkdir()
        try:
            plan_catalog(load_catalog(shop(place, **parts)), (), compare=False)
            planned += 1
        except CatalogError:
            continue
    return float(planned)


HOSTILE = len(REFUSED) + len(BEYOND_ONE_ROW)
UNPUBLISHABLE = len(CASES)
