"""Comparing with typed literals finds what casting any value finds; nothing raises, whatever the value."""

from __future__ import annotations

from collections.abc import Iterable

import duckdb
import pytest

from dpsql.axis.model import leaf_sql
from dpsql.engines.dialect import DUCK
from dpsql.engines.expressions import Ends, leaf, least_float, measure
from tests.axis.test_axis import axis_of

pytestmark = pytest.mark.long

KINDS = (
    "TINYINT", "UTINYINT", "SMALLINT", "INTEGER", "UINTEGER", "BIGINT", "UBIGINT", "HUGEINT", "FLOAT", "DOUBLE",
    "DECIMAL(4,1)", "DECIMAL(9,2)", "DECIMAL(14,2)", "DECIMAL(18,2)", "DECIMAL(18,4)", "DECIMAL(38,3)",
)  # fmt: skip
NUMBERS = [
    str(v)
    for v in (0, 1, -1, 4, 9, 10, 99, 100, 127, -128, 255, 10**9, 2**31, -(2**31), 2**63 - 1, 2**64 - 1)
]
NUMBERS += [
    "0.05", "0.1", "4.35", "9.94", "9.95", "9.99", "-0.01", "99999999.99", "nan", "infinity", "-infinity"
]  # fmt: skip


def assert_same(kind: str, values: Iterable[str], narrow: str, general: str) -> set[object]:
    """What values of a type become by the type's own SQL, which is what they become by that of any type."""
    listed = ", ".join(f"({value})" for value in values)
    source = f"(SELECT TRY_CAST(v AS {kind}) x FROM (VALUES {listed}) t(v))"
    rows = duckdb.sql(f"SELECT x::VARCHAR, {narrow}, {general} FROM {source}").fetchall()
    assert rows and all(a == b for _, a, b in rows), [row for row in rows if row[1] != row[2]]
    return {a for _, a, _ in rows}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("column", ["{type: int, lower: -3, upper: 99, cuts: {width: 5}}",
                                    "{type: decimal, scale: 2, lower: 0, upper: 10}",
                                    "{type: decimal, scale: 1, lower: 0, upper: 10, cuts: [1, 3, 4.3]}"])  # fmt: skip
def test_a_known_type_changes_no_leaf_of_a_number(kind: str, column: str) -> None:
    axis, values = axis_of("sale.amount", f"amount: {column}"), ["NULL", *(f"'{v}'" for v in NUMBERS)]
    assert_same(kind, values, leaf(axis, "x", kind, DUCK), leaf_sql(axis, "x"))


@pytest.mark.parametrize("kind", ["DATE", "TIMESTAMP", "TIMESTAMP WITH TIME ZONE"])
@pytest.mark.parametrize(
    "column", ["{type: date, lower: 1960-03-01, upper: 2030-12-31, cuts: {width: month}}",
               "{type: date, lower: 1960-03-01, upper: 2030-12-31}",
               "{type: date, lower: 1960-03-01, upper: 1961-12-31, cuts: {width: quarter}}",
               "{type: date, lower: 1960-03-05, upper: 1961-12-31, cuts: {width: month}}",
               "{type: date, lower: 1969-12-01, upper: 1970-01-31, cuts: {width: week}}",
               "{type: timestamp, grain: hour, lower: 1960-01-01, upper: 1990-01-01}"],
)  # fmt: skip
def test_a_known_type_changes_no_leaf_of_a_time(kind: str, column: str) -> None:
    axis = axis_of("sale.amount", f"amount: {column}")
    days = ["1960-02-29", "1960-03-01", "1969-12-31", "1970-01-01", "2030-12-31", "2031-01-01", "0001-01-01",
            "290000-01-01", "5000000-01-01", "infinity", "-infinity", "1970-01-01 23:59:59.999999"]  # fmt: skip
    assert_same(kind, [f"'{v}'" for v in days], leaf(axis, "x", kind, DUCK), leaf_sql(axis, "x"))


@pytest.mark.parametrize("bounds", [Ends(0, 50_000, 2), Ends(-7, 99, 0), Ends(-15, 15, 1)])
@pytest.mark.parametrize("kind", KINDS)
def test_a_known_type_changes_no_measure(kind: str, bounds: Ends) -> None:
    values = ["NULL", *(f"'{v}'" for v in NUMBERS)]
    assert_same(kind, values, measure("x", bounds, kind, DUCK), measure("x", bounds, None, DUCK))


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("NULL", None), ("'NaN'::DOUBLE", None), ("'inf'::DOUBLE", 1001), ("'-inf'::DOUBLE", -300), ("1e308", 1001),
        ("4.35::DOUBLE", 435), ("4.355::DECIMAL(9,3)", 436), ("10.02::DOUBLE", 1001), ("-3.01::DOUBLE", -300),
        ("'1.5'", 150), ("'abc'", None), ("'1e400'", 1001), ("99999999999999999999999999999::HUGEINT", 1001),
        ("true", 100),
    ],
)  # fmt: skip
def test_measures_are_bounded_integers_for_every_input(value, expected):
    sql = measure("x", Ends(-300, 1001, 2), None, DUCK)
    row = duckdb.connect().execute(f"SELECT {sql} FROM (SELECT {value} AS x)").fetchone()
    assert row == (expected,)


@pytest.mark.parametrize("kind", ["BOOLEAN", "VARCHAR", "ENUM('a','b','d')", "INTEGER"])
def test_a_known_type_changes_no_leaf_of_a_category(kind: str) -> None:
    declared = (
        "{type: bool, nullable: true}"
        if kind == "BOOLEAN"
        else '{type: string, categories: ["a", "B ", "7", "d"]}'
    )
    axis = axis_of("sale.amount", f"amount: {declared}")
    values = ("NULL", "'a'", "'A'", "'B '", "'B'", "'d'", "'7'", "'true'", "'f'", "''")
    assert len(assert_same(kind, values, leaf(axis, "x", kind, DUCK), leaf_sql(axis, "x"))) > 1


@pytest.mark.parametrize(
    ("units", "shift"), [(3, 1), (0, 1), (-7, 10), (435, 100), (10**9 + 1, 1000), (-(2**40), 1)]
)
def test_the_least_float_of_a_leaf_is_the_least(units: int, shift: int) -> None:
    """In DuckDB's arithmetic: the value lies in the leaf, and the float below does not."""
    x = least_float(units, shift)
    floors = (f"floor({value} * {shift}::DOUBLE + 0.5)" for value in ("x", "nextafter(x, '-inf'::DOUBLE)"))
    sql = f"SELECT {', '.join(floors)} FROM (SELECT ?::DOUBLE AS x)"
    here, below = duckdb.connect().execute(sql, [x]).fetchall()[0]
    assert here >= units > below


@pytest.mark.parametrize("high", [2**51 - 1, 2**51, 2**60])
def test_floats_beyond_their_halves_stay_within_bounds(high: int) -> None:
    sql = measure("x", Ends(-high, high, 0), "DOUBLE", DUCK)
    values = [high - 1.5, high - 0.5, float(high), high + 2.0, -high + 0.5, -1e300, 1e300, 0.5, 2.5]
    rows = duckdb.connect().execute(f"SELECT {sql} FROM (SELECT unnest(?::DOUBLE[]) x)", [values]).fetchall()
    assert all(-high <= row[0] <= high for row in rows)
    assert [row[0] for row in rows[-2:]] == [1, 3]
