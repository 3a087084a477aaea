"""Arrays as a relation: DuckDB reads each with the type and the values that they have."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import duckdb
import numpy as np
import pytest

from dpsql.release.write import ARRAYS, column_types, registered
from dpsql.scratch import scratch

LARGE = [*range(3000), 2**40]


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (np.array(["b", "a", "b"]), "VARCHAR"),
        (("b", None, "a"), "VARCHAR"),
        (LARGE, "BIGINT"),
        ([2**63, -1], "HUGEINT"),
        ([b"a\0", b"", None], "BLOB"),
        ([datetime.date(1500, 1, 1), None], "DATE"),
        ([Decimal("1.50"), Decimal("22.25")], "DECIMAL(4,2)"),
        ([True, None], "BOOLEAN"),
        (np.arange(10)[::2], "BIGINT"),
        ([], "BIGINT"),
    ],
)
def test_values_and_types(values: Any, kind: str) -> None:
    connection = duckdb.connect()
    with registered(connection, "incoming", {"a": values, "number": range(len(values))}):
        assert connection.execute("DESCRIBE incoming").fetchall()[0][1] == kind
        found = [row[0] for row in connection.execute("SELECT a FROM incoming ORDER BY number").fetchall()]
    assert found == list(values)
    with pytest.raises(duckdb.CatalogException):
        connection.execute("FROM incoming")


def test_a_failed_statement_leaves_no_relation_behind() -> None:
    connection = duckdb.connect()
    with pytest.raises(duckdb.Error), registered(connection, "incoming", {"a": [1]}):
        connection.execute("SELECT nothing FROM incoming")
    with pytest.raises(duckdb.CatalogException):
        connection.execute("FROM incoming")


ALIKE: list[Any] = [
    1, True, 1.0, Decimal("1"), Decimal("1.0"), Decimal("1.00"), "1", None, datetime.date(2025, 1, 1),
    datetime.datetime(2025, 1, 1), float("nan"),
]  # fmt: skip
"""First values of which many are equal, and of other types."""


def test_types_of_an_axis_are_those_of_its_first_values_whatever_came_before() -> None:
    arrays = [np.array([1, 2], kind) for kind in ("i4", "i8", "f8", "bool", "u8", "U1", "M8[us]", "M8[ns]")]
    arrays += [np.array([value, None], object) for value in ALIKE] + [np.zeros(0, np.int64)]
    select = f"SELECT v, [v] AS w FROM {ARRAYS}"
    for array in arrays * 2:
        with scratch() as connection, registered(connection, ARRAYS, {"v": array[:1]}):
            described = connection.execute(f"DESCRIBE {select}").fetchall()
        assert column_types({"v": array}, select) == {str(row[0]): str(row[1]) for row in described}
