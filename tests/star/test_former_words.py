"""Words and keys that a catalog can no longer have are refused with what to write in their place."""

from __future__ import annotations

import pytest

from dpsql.errors import CatalogError
from dpsql.star import parse_catalog

CATALOG = """
dpsql: 1
name: shop
privacy: {lineage: p, cap: 9, unit: row, epsilon: 1, delta: 1e-6}
STREAM
tables:
  sales: {role: fact, columns: {
    day: {type: date, lower: 2025-01-01, upper: 2025-12-31},
    size: {type: int, lower: 0, upper: 9}, shelf: {type: int, lower: 0, upper: 9}}}
views:
  sizes: {of: sales, axes: [sales.day, sales.size, sales.shelf], measures: [count] VIEW}
"""
STREAM = "stream: {column: sales.day, horizon: 30, strategy: WORD}"


def read(view: str = "", stream: str = "") -> None:
    parse_catalog(CATALOG.replace("STREAM", stream).replace("VIEW", view), "shop.yaml")


@pytest.mark.parametrize(
    ("view", "stream", "hint"),
    [
        (", ways: 3", "", "write ways: 2"),
        (", mechanism: product_hats", "", "write `mechanism: auto`"),
        (", mechanism: dawa", "", "write `mechanism: auto`"),
        (", ways: 2, objective: max", "", "remove the key"),
        ("", STREAM.replace("WORD", "chain"), "write strategy: tree"),
        ("", STREAM.replace("WORD", "fenwick"), "write strategy: fda"),
    ],
)
def test_a_former_word_is_refused_with_its_successor(view: str, stream: str, hint: str) -> None:
    with pytest.raises(CatalogError, match=hint) as caught:
        read(view, stream)
    assert "\n" not in str(caught.value).strip()


def test_the_successors_are_taken() -> None:
    read(", ways: 2")
    read(stream=STREAM.replace("WORD", "tree"))
