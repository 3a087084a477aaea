"""`dpsql plan` warns where a view names a mechanism that `auto` is expected to beat."""

from __future__ import annotations

import pytest

from dpsql.catalog import parse_catalog
from dpsql.curator.forecast import plan_catalog
from dpsql.interfaces.cli.plan import plan_text

pytestmark = pytest.mark.usefixtures("publishes")

CATALOG = """
dpsql: 1
name: shop
source: {kind: parquet, root: nowhere, tables: {sales: sales.parquet}}
privacy: {lineage: people, cap: 9, unit: row, epsilon: 1.0}
tables:
  sales: {role: fact, columns: {
    day: {type: int, lower: 0, upper: LAST}, shelf: {type: int, lower: 0, upper: 63}}}
views:
  days: {of: sales, axes: [sales.day], mechanism: DAYS}
  both: {of: sales, axes: [sales.day, sales.shelf], mechanism: BOTH}
"""


def warnings(days: str, both: str = "blocks", last: int = 499) -> list[str]:
    text = CATALOG.replace("DAYS", days).replace("BOTH", both).replace("LAST", str(last))
    shown = plan_text(plan_catalog(parse_catalog(text), ()))
    return [line.strip() for line in shown.splitlines() if "warning" in line]


def test_a_named_mechanism_that_errs_more_is_told_by_how_much():
    (line,) = warnings("identity")
    assert "days: identity is expected to have" in line
    assert "times the squared error of auto" in line


def test_a_mechanism_whose_error_is_not_known_is_said_to_be_so():
    (line,) = warnings("diffhr")
    assert "days: the error of diffhr for count is unknown until it has seen data" in line
    assert "dominated wherever it was measured: over ranges auto with `data_dependent: allow`" in line


@pytest.mark.parametrize(
    ("days", "both", "last"),
    [("auto", "blocks", 499), ("auto", "tents", 499), ("identity", "auto", 1)],
    ids=["auto", "tents of both", "identity"],
)
def test_nothing_is_said_of_what_is_as_good(days: str, both: str, last: int):
    """A view of two axes takes tents by itself, and on two leaves `auto` measures each."""
    assert warnings(days, both, last) == []
