"""Off the way to the unit a counted row meets one row of a key, by the same notion of a key that the join has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from dpsql.central import placed_rows
from dpsql.central.placed_rows import check_public_key
from dpsql.engines.duck import RawSide
from dpsql.engines.joined_rows import JoinSide
from dpsql.errors import SourceError
from tests.privacy.loss import Loss, RawRows, measure
from tests.thinned import by_default

CATALOG = """
dpsql: 1
name: shop
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, device: device.parquet}}
privacy: {lineage: shop, cap: 9, unit: row, epsilon: 1}
tables:
  device: {role: dimension, key: id, private: true, columns: {KEY kind: {type: int, lower: 0, upper: 3}}}
  sales: {role: fact, foreign_keys: {device: device}, columns: {day: {type: int, lower: 0, upper: 3}}}
views:
  v: {of: sales, axes: [device.kind], measures: [count], mechanism: identity}
"""
TYPES = {
    "numbers beside floats": ("BIGINT", "DOUBLE", [1.0, 1, 1.0], ""),
    "floats beside numbers": ("DOUBLE", "BIGINT", [1, 1, 1], ""),
    "two zeros": ("DOUBLE", "DOUBLE", [0.0, -0.0, 0.0], ""),
    "text that the catalog calls a number": ("BIGINT", "VARCHAR", ["1", "01", "1.0"], "id: {type: int},"),
    "decimals beside numbers": ("BIGINT", "DECIMAL(9,2)", ["1.00", "1", "1.0"], ""),
}


def one_sale_more(folder: Path, name: str) -> Loss:
    """The loss of a sale whose device stands in three rows."""
    foreign, key, ids, declared = TYPES[name]
    device = RawRows(f"id {key}, kind INT", [(each, kind) for kind, each in enumerate(ids)])
    sale = 0.0 if name == "two zeros" else 1
    left = {"sales": RawRows(f"device {foreign}, day INT", [(sale, 0), (sale, 1)]), "device": device}
    right = left | {"sales": RawRows(f"device {foreign}, day INT", [(sale, 0)])}
    return measure(CATALOG.replace("KEY", declared), left, right, folder)


@pytest.mark.parametrize("name", by_default(TYPES, 2))
def test_a_row_counts_once_however_its_key_is_doubled(tmp_path: Path, name: str) -> None:
    assert 0.98 <= one_sale_more(tmp_path, name).share <= 1


@pytest.mark.parametrize("name", ["numbers beside floats", "text that the catalog calls a number"])
def test_a_key_that_is_made_unique_by_its_spelling_is_found(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planted defect: rows of a key that differ in the file all stay."""

    def doubled(*of: Any, **named: Any) -> JoinSide:
        return JoinSide(*of, **named)._replace(once=False)

    monkeypatch.setattr(placed_rows, "JoinSide", doubled)
    assert one_sale_more(tmp_path, name).share > 2


@pytest.mark.parametrize(("keys", "words"), [("0, 0", "id has duplicates"), ("NULL", "contains NULL")])
def test_keys_of_a_public_table_are_whole_and_unique(keys: str, words: str) -> None:
    connection = duckdb.connect()
    connection.execute(f"CREATE SCHEMA raw; CREATE TABLE raw.device AS SELECT unnest([{keys}]) AS id")
    with pytest.raises(SourceError, match=words):
        check_public_key(RawSide(connection, {}), "device", "id")
