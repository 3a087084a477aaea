"""`dpsql plan` warns where a view names a mechanism that `auto` is expected to beat."""

from __future__ import annotations

import pytest

from dpsql.curate.forecast import plan_catalog
from dpsql.doors.cli.plan import plan_text
from dpsql.star import parse_catalog

pytestmark = pytest.mark.usefixtures("publishes")

CATALOG = """
dpsql: 1
name: shop
source: {kind: parquet, root: nowhere, tables: {sales: sales.parquet}}
privacy: {lineage: people, cap: 9, unit: row, epsilon: 1.0}
tables:
  sales: {role: fact, columns: {
    day: {type: int, lower: 0, upper: 499}, shelf: {type: int, lower: 0, upper: 63}}}
views:
  days: {of: sales, axes: [sales.day], mechanism: WORD}
  both: {of: sales, axes: [sales.day, sales.shelf], mechanism: blocks}
"""


def warnings(word: str) -> list[str]:
    text = plan_text(plan_catalog(parse_catalog(CATALOG.replace("WORD", word)), (), compare=False))
    return [line.strip() for line in text.splitlines() if "warning" in line]


def test_a_named_mechanism_that_errs_more_is_told_by_how_much():
    (line,) = warnings("identity")
    assert "days: identity is expected to have" in line
    assert "times the squared error of auto" in line


def test_a_mechanism_whose_error_is_not_known_is_said_to_be_so():
    (line,) = warnings("diffhr")
    assert "days: the error of diffhr for count is not known before it has looked" in line


@pytest.mark.parametrize("word", ["auto", "tents"])
def test_nothing_is_said_of_what_is_as_good(word: str):
    assert warnings(word) == []
