"""Public rows are of their declared types, wherever they were texts."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pytest

from dpsql.axis.model import PublicTable, as_declared
from dpsql.catalog.columns import Column
from dpsql.errors import SourceError

KINDS = {
    "int": (["7", " -3 ", "NA", None], "BIGINT", [7, -3, None, None]),
    "decimal": (["1.5", "2", "1e2", ""], "DECIMAL(18,2)", [Decimal("1.5"), Decimal(2), Decimal(100), None]),
    "date": (["2025-02-03"], "DATE", [datetime.date(2025, 2, 3)]),
    "timestamp": (
        ["2025-02-03T10:00:00+02:00", "2025-02-03 08:00", "2025-02-03T08:00:00Z"],
        "TIMESTAMP",
        [datetime.datetime(2025, 2, 3, 8)] * 3,
    ),
    "bool": (["true", "FALSE", "nan"], "BOOLEAN", [True, False, None]),
    "string": (["7", "NA"], "VARCHAR", ["7", "NA"]),
}


def column(kind: str) -> Column:
    return Column.model_validate({"type": kind, **({"scale": 2} if kind == "decimal" else {})})


@pytest.mark.parametrize("kind", KINDS)
def test_texts_become_what_the_catalog_declares(kind: str) -> None:
    texts, stored, values = KINDS[kind]
    table = as_declared(PublicTable("shop", {"X": "VARCHAR"}, {"X": texts}), {"x": column(kind)})
    assert (table.types["X"], list(table.columns["X"])) == (stored, values)


def test_decimals_that_do_not_fit_their_scale_are_floats() -> None:
    table = as_declared(
        PublicTable("shop", {"x": "VARCHAR"}, {"x": ["1.234", "2", None]}), {"x": column("decimal")}
    )
    assert (table.types["x"], list(table.columns["x"])) == ("DOUBLE", [1.234, 2.0, None])


def test_typed_columns_keys_and_undeclared_ones_stay_as_they_are() -> None:
    kept = PublicTable("shop", {"x": "DOUBLE", "key": "VARCHAR"}, {"x": [1.0], "key": ["01"]})
    assert as_declared(kept, {"x": column("int")}) == kept


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "1.5"),
        ("int", "x"),
        ("decimal", "Infinity"),
        ("decimal", "1,5"),
        ("date", "2025-02-30"),
        ("bool", "yes"),
    ],
)
def test_a_text_of_another_type_is_named_by_its_column_alone(kind: str, text: str) -> None:
    with pytest.raises(SourceError, match=f"shop.x: a value is not of type {kind}") as error:
        as_declared(PublicTable("shop", {"x": "VARCHAR"}, {"x": [text]}), {"x": column(kind)})
    assert text not in str(error.value).replace("shop.x", "")
