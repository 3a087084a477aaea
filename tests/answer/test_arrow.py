"""Answers as Arrow: the statement's types with and without rows, what is said of them, and the C stream."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from dpsql.federation.session import OpenReleases

pytestmark = pytest.mark.usefixtures("publishes")
GROUPED = """SELECT region, DATE '2025-01-31' AS day, 1.50 AS price, COUNT(*) > 0 AS b, COUNT(*) AS n
FROM sales JOIN customer USING (customer_id)"""
KINDS = {"region": "string", "day": "date32[day]", "price": "decimal128(3, 2)", "b": "bool", "n": "double"}


@pytest.mark.parametrize("having", ["", " HAVING COUNT(*) > 1e12"])
def test_types_are_the_statements_with_and_without_rows(opened: OpenReleases, having: str) -> None:
    result = opened.query(f"{GROUPED} GROUP BY region{having}")
    table = result.arrow()
    assert {field.name: str(field.type) for field in table.schema} == KINDS
    assert [tuple(row.values()) for row in table.to_pylist()] == [tuple(row) for row in result.rows]
    assert bool(result.rows) is not bool(having)
    errors = result.arrow(errors=True)
    assert errors.num_rows == len(result.rows)
    assert {str(errors.schema.field(name).type) for name in errors.column_names if name.startswith("n_")} <= {
        "double"
    }


@pytest.mark.parametrize("read", [pa.table, pl.DataFrame], ids=["pyarrow", "polars"])
def test_whatever_reads_streams_takes_a_result(opened: OpenReleases, read: Any) -> None:
    result = opened.query(f"{GROUPED} GROUP BY region")
    taken = read(result)
    rows = (
        taken.rows()
        if isinstance(taken, pl.DataFrame)
        else [tuple(row.values()) for row in taken.to_pylist()]
    )
    assert rows == [tuple(row) for row in result.rows]
    assert len(rows) > 1


def test_a_table_says_which_release_it_is_of(opened: OpenReleases) -> None:
    result = opened.query("SELECT COUNT(*) FROM sales")
    about = json.loads(result.arrow().schema.metadata[b"dpsql"])
    assert about["release"] == result.provenance["release"]
    assert about["notes"] == list(result.notes)


def test_values_that_do_not_fit_their_type_are_kept() -> None:
    from dpsql.results.render import arrow_column

    assert arrow_column([1.5, None], pa.int64()).to_pylist() == [1.5, None]
    assert arrow_column([1 << 40, None], pa.int32()).to_pylist() == [1 << 40, None]
