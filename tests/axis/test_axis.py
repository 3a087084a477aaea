"""Axes: leaves, atoms, special leaves, and the SQL that maps every raw value to one leaf."""

from __future__ import annotations

import math
from datetime import date, datetime
from decimal import ROUND_HALF_UP, Decimal
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.axis.build import build_axis, needed_tables
from dpsql.axis.model import Axis, CategoryRule, OrderedRule, PublicTable, leaf_sql, table_sql
from dpsql.catalog import Catalog, parse_catalog
from dpsql.catalog.base import EPOCH, GRAIN_MICROSECONDS
from dpsql.catalog.graph import resolve_axis
from dpsql.catalog.model import AxisSpec, View
from dpsql.errors import InternalError, SourceError

pytestmark = pytest.mark.long

CONNECTION = duckdb.connect(config={"threads": 1})
CONNECTION.execute("SET TimeZone = 'UTC'")

STAR = """
dpsql: 1
name: shop
privacy: {{lineage: shop, cap: 4, unit: row, epsilon: 1}}
tables:
  sale:
    role: fact
    foreign_keys:
      product_id: product
      home_id: place
      work_id: place
      store_id: {{references: store, on_missing: drop}}
    derive: {{shown: "CAST(amount AS VARCHAR)", odd: "CAST(amount AS VARCHAR) || CAST(other AS VARCHAR)"}}
    columns:
      {column}
      other: {{type: int, lower: 0, upper: 9}}
  product:
    role: dimension
    key: product_id
    private: false
    foreign_keys: {{class_id: class}}
    derive: {{label: "upper(brand)"}}
    columns: {{brand: {{type: string}}, price: {{type: decimal}}}}
  class: {{role: dimension, key: class_id, private: false, columns: {{family: {{type: string}}}}}}
  store: {{role: dimension, key: store_id, private: true, columns: {{size: {{type: int, lower: 1, upper: 3}}}}}}
  place: {{role: dimension, key: place_id, private: true, columns: {{
      city: {{type: string, from: geography, axis: {{levels: [nation, city]}}}}}}}}
  geography: {{role: domain}}
"""

PRODUCT = PublicTable(
    "product",
    {
        "product_id": "INTEGER",
        "brand": "VARCHAR",
        "price": "DECIMAL(18,2)",
        "class_id": "INTEGER",
        "kind": "VARCHAR",
    },
    {
        "product_id": [1, 2, 3, 4],
        "brand": ["b", "a", "b", None],
        "price": [Decimal("1.00"), Decimal("2.50"), Decimal("1.00"), None],
        "class_id": [10, 20, 10, 30],
        "kind": ["x", "y", "z", "z"],
    },
)
CLASS = PublicTable(
    "class", {"class_id": "INTEGER", "family": "VARCHAR"}, {"class_id": [10, 20], "family": ["f", "g"]}
)
TABLES = {
    "product": PRODUCT,
    "class": CLASS,
    "geography": PublicTable(
        "geography",
        {"nation": "VARCHAR", "city": "VARCHAR"},
        {"nation": ["B", "A", "B", "A"], "city": ["y", "x", "w", "z"]},
    ),
}


def star(column: str = "amount: {type: int, lower: 0, upper: 9}") -> Catalog:
    return parse_catalog(STAR.format(column=column))


def axis_of(written: str | AxisSpec, column: str = "amount: {type: int, lower: 0, upper: 9}") -> Axis:
    catalog = star(column)
    spec = AxisSpec(axis=written) if isinstance(written, str) else written
    return build_axis(catalog, resolve_axis(catalog, View(of="sale", axes=(spec,)), spec), TABLES)


def ask(axis: Axis, kind: str, values: list[str], present: str | None = None) -> list[int | None]:
    """Leaves of SQL literals, each cast to a raw type."""
    rows = ", ".join(f"({i}, CAST({value} AS {kind}))" for i, value in enumerate(values))
    query = f"SELECT {leaf_sql(axis, 'x', present)} FROM (VALUES {rows}) t(i, x) ORDER BY i"
    return [row[0] for row in CONNECTION.execute(query).fetchall()]


@pytest.mark.parametrize(
    "column, value",
    [
        ("amount: {type: int, lower: 0, upper: 9, nullable: true}", "'7'"),
        ("amount: {type: decimal, lower: 0, upper: 9, nullable: true}", "'7.5'"),
        ("amount: {type: date, lower: 2025-01-01, upper: 2025-01-09, nullable: true}", "'2025-01-02'"),
        ("amount: {type: bool, nullable: true}", "'true'"),
    ],
)
def test_a_text_that_stands_for_no_value_is_null(column: str, value: str) -> None:
    """As `dpsql init` reads it when it drafts `nullable: true`: R writes NA."""
    axis = axis_of("sale.amount", column)
    leaves = ask(axis, "VARCHAR", ["'NA'", "' NA '", "''", "NULL", "'-'", value])
    assert leaves[:4] == [axis.null_leaf] * 4
    assert leaves[4] == axis.other_leaf and leaves[5] not in (axis.null_leaf, axis.other_leaf)
    assert ask(axis, "DOUBLE", ["'NaN'"])[0] != axis.null_leaf
    categories = axis_of("sale.amount", "amount: {type: string, categories: [NA, b], nullable: true}")
    assert ask(categories, "VARCHAR", ["'NA'", "NULL"]) == [0, categories.null_leaf]


def test_a_time_with_a_zone_is_that_moment_in_utc() -> None:
    axis = axis_of(
        "sale.amount", "amount: {type: timestamp, grain: hour, lower: 2025-01-01, upper: 2025-01-02}"
    )
    texts = [
        "'2025-01-01T02:30:00+02:00'",
        "'2025-01-01 00:30'",
        "'2025-01-01T00:30:00Z'",
        "'2025-01-01T01:30:00+02'",
    ]
    leaves = ask(axis, "VARCHAR", texts)
    assert leaves == [0, 0, 0, axis.other_leaf] and axis.other_leaf != 0


def atoms_of(axis: Axis) -> list[tuple[Any, ...]]:
    connection = duckdb.connect()
    arrays = axis.arrays()  # noqa: F841 - read by DuckDB as a table
    return connection.execute(table_sql(axis, "arrays")).fetchall()


def expected_leaf(axis: Axis, value: Any) -> int | None:
    """The same mapping in plain Python, one value at a time."""
    rule = axis.rule
    if value is None:
        return axis.null_leaf if axis.null_leaf is not None else axis.other_leaf
    if isinstance(rule, CategoryRule):
        return rule.values.index(str(value)) if str(value) in rule.values else axis.other_leaf
    assert isinstance(rule, OrderedRule)
    if isinstance(value, float) and not math.isfinite(value):
        return axis.other_leaf
    if rule.type in ("int", "decimal"):
        unit = int((Decimal(value) * 10**rule.scale).quantize(Decimal(1), rounding=ROUND_HALF_UP))
    else:
        moment = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        micros = (moment - datetime(EPOCH.year, 1, 1)) // (datetime.resolution)
        unit = micros // (
            GRAIN_MICROSECONDS["day"] if rule.type == "date" else GRAIN_MICROSECONDS[rule.grain]
        )
    if not rule.starts[0] <= unit <= rule.upper:
        return axis.other_leaf
    return int(np.searchsorted(rule.starts, unit, side="right")) - 1


def test_int_axis_leaves_and_special_leaves() -> None:
    axis = axis_of("sale.amount", "amount: {type: int, lower: 0, upper: 9, cuts: {width: 3}, nullable: true}")
    # 0..9 by 3: the upper bound closes the last leaf, then NULL and OTHER.
    assert (axis.leaves, axis.null_leaf, axis.missing_leaf, axis.other_leaf) == (5, 3, None, 4)
    assert ask(axis, "BIGINT", ["0", "2", "3", "8", "9", "10", "-1", "NULL"]) == [0, 0, 1, 2, 2, 4, 4, 3]
    rows = atoms_of(axis)
    assert [row[:5] for row in rows[:3]] == [(0, 0, 0, 1 / 3, 0), (1, 0, 0, 1 / 3, 1), (2, 0, 0, 1 / 3, 2)]
    assert [row[:5] for row in rows[-2:]] == [(10, 3, 1, 1.0, None), (11, 4, 3, 1.0, None)]
    assert rows[9][5] == "9" and rows[-1][5] is None  # shown: derived of this column alone
    assert [column.column for column, _ in axis.derived] == ["shown"]


@pytest.mark.parametrize("kind", ["DOUBLE", "VARCHAR", "DECIMAL(20,6)", "HUGEINT"])
def test_every_raw_type_and_bad_value_has_a_leaf(kind: str) -> None:
    axis = axis_of(
        "sale.amount", "amount: {type: decimal, scale: 1, lower: -1, upper: 1, cuts: [-0.5, 0, 0.7]}"
    )
    values = {
        "DOUBLE": ["'nan'", "'inf'", "'-inf'", "1e300", "0.65", "-1", "1.04", "1.06", "-0.0", "NULL"],
        "VARCHAR": ["'abc'", "''", "'0.7'", "' 1 '", "'1e2'", "'NaN'", "NULL"],
        "DECIMAL(20,6)": ["-1.000001", "-0.55", "0.649999", "99999999999999", "NULL"],
        "HUGEINT": ["170141183460469231731687303715884105727", "0", "1", "2", "NULL"],
    }[kind]
    got = ask(axis, kind, values)
    assert all(leaf is not None and 0 <= leaf < axis.leaves for leaf in got)
    expected = {
        "DOUBLE": [4, 4, 4, 4, 3, 0, 3, 4, 2, 4],
        "VARCHAR": [4, 4, 3, 3, 4, 4, 4],
        "DECIMAL(20,6)": [0, 0, 2, 4, 4],
        "HUGEINT": [4, 2, 3, 4, 4],
    }[kind]
    assert got == expected


def test_dropped_values_have_no_leaf() -> None:
    axis = axis_of(
        "sale.amount", "amount: {type: int, lower: 0, upper: 9, out_of_domain: drop, nullable: true}"
    )
    assert axis.leaves == 11 and axis.other_leaf is None
    assert ask(axis, "DOUBLE", ["'nan'", "10", "5", "NULL"]) == [None, None, 5, 10]


def test_dates_and_calendar_cuts() -> None:
    axis = axis_of(
        "sale.amount", "amount: {type: date, lower: 2025-01-15, upper: 2025-03-10, cuts: {width: month}}"
    )
    assert axis.leaves == 4
    values = [
        "'2025-01-15'",
        "'2025-01-31'",
        "'2025-02-01'",
        "'2025-03-10'",
        "'2025-03-11'",
        "'infinity'",
        "NULL",
    ]
    assert ask(axis, "DATE", values) == [0, 0, 1, 2, 3, 3, 3]
    assert ask(axis, "TIMESTAMP", ["'2025-03-10 23:59:59'", "'-infinity'", "'290000-01-01'"]) == [2, 3, 3]
    assert atoms_of(axis)[0][4] == date(2025, 1, 15)


def test_timestamps_floor_to_the_grain_before_and_after_the_epoch() -> None:
    column = "amount: {type: timestamp, grain: hour, lower: 1969-12-31 22:00:00, upper: 1970-01-01 01:00:00}"
    axis = axis_of("sale.amount", column)
    values = ["'1969-12-31 21:59:59'", "'1969-12-31 22:00:00'", "'1969-12-31 23:59:59.999999'"]
    values += ["'1970-01-01 00:59:59'", "'1970-01-01 01:59:59'", "'1970-01-01 02:00:00'"]
    assert ask(axis, "TIMESTAMP", values) == [4, 0, 1, 2, 3, 4]
    assert atoms_of(axis)[1][4] == datetime(1969, 12, 31, 23)


def test_an_upper_timestamp_without_time_means_the_whole_day() -> None:
    column = (
        "amount: {type: timestamp, grain: hour, lower: 2025-01-01, upper: 2025-01-02, cuts: {width: day}}"
    )
    axis = axis_of("sale.amount", column)
    assert axis.atom_leaf.size == 48 and axis.leaves == 3


def test_categories_and_booleans() -> None:
    axis = axis_of("sale.amount", "amount: {type: string, categories: [x, it's, '3'], nullable: true}")
    assert ask(axis, "VARCHAR", ["'x'", "'it''s'", "'X'", "''", "NULL"]) == [0, 1, 4, 4, 3]
    assert ask(axis, "INTEGER", ["3", "4"]) == [2, 4]
    yes = axis_of("sale.amount", "amount: {type: bool}")
    assert ask(yes, "VARCHAR", ["'true'", "'false'", "'maybe'", "NULL"]) == [1, 0, 2, 2]
    assert [row[4] for row in atoms_of(yes)] == [False, True, None]


def test_leaves_of_numbers_and_dates_are_ordered_and_those_of_names_are_not() -> None:
    assert axis_of("sale.amount", "amount: {type: int, lower: 0, upper: 9}").ordered
    assert axis_of("sale.amount", "amount: {type: date, lower: 2024-01-01, upper: 2024-12-31}").ordered
    assert not axis_of("sale.amount", "amount: {type: string, categories: [x, y]}").ordered
    assert axis_of(AxisSpec(axis="product", by=("price", "brand"))).ordered
    assert not axis_of(AxisSpec(axis="product", by=("family", "price"))).ordered


def test_a_range_of_names_means_nothing_but_one_of_nested_names_is_a_coarser_name() -> None:
    assert axis_of("sale.amount", "amount: {type: string, categories: [x, y]}").names
    assert axis_of("sale.amount", "amount: {type: bool}").names
    assert axis_of(AxisSpec(axis="product", by=("family",))).names
    assert not axis_of("sale.amount").names
    assert not axis_of(AxisSpec(axis="product", by=("price",))).names
    assert not axis_of(AxisSpec(axis="product", by=("family", "brand"))).names
    assert not axis_of("home_id.city").names


def test_missing_dimension_rows() -> None:
    catalog = star()
    spec = AxisSpec(axis="home_id.city")
    axis = build_axis(catalog, resolve_axis(catalog, View(of="sale", axes=(spec,)), spec), TABLES)
    # Leaves: (A, x), (A, z), (B, w), (B, y), then MISSING and OTHER.
    assert (axis.leaves, axis.null_leaf, axis.missing_leaf, axis.other_leaf) == (6, None, 4, 5)
    assert axis.name == "home_id.city"
    assert [(c.table, c.column) for c in axis.columns] == [("place", "nation"), ("place", "city")]
    assert ask(axis, "VARCHAR", ["'x'", "'w'", "'?'", "NULL"], present="i <> 1") == [0, 4, 5, 5]
    dropped = axis_of("store.size")
    assert dropped.missing_leaf is None
    assert ask(dropped, "BIGINT", ["1", "2"], present="i = 0") == [0, None]


def test_more_than_a_million_values_make_the_leaves_atoms() -> None:
    axis = axis_of("sale.amount", "amount: {type: int, lower: 0, upper: 2000000, cuts: {width: 500000}}")
    assert not axis.atomic and axis.leaves == 5 and axis.derived == ()
    assert [column.bound for column in axis.columns] == ["lower", "upper"]
    assert atoms_of(axis)[-2] == (3, 3, 0, 1.0, 1500000, 2000000)


def test_public_dimension_at_a_grain() -> None:
    axis = axis_of(AxisSpec(axis="product", by=("family", "brand")))
    # (f, b), (g, a), (NULL, NULL): product 4 has a class that is not there; then MISSING.
    assert (axis.leaves, axis.null_leaf, axis.missing_leaf, axis.other_leaf) == (4, None, 3, None)
    assert [(c.table, c.column) for c in axis.columns] == [
        ("product", "brand"),
        ("product", "price"),
        ("product", "class_id"),
        ("class", "class_id"),
        ("class", "family"),
    ]
    assert [column.sql_name for column in axis.columns][2:4] == ["class_id", "class_class_id"]
    rows = atoms_of(axis)
    assert rows[1] == (1, 1, 0, 1.0, "a", Decimal("2.50"), 20, 20, "g", "A")
    assert rows[2][4:] == (None, None, 30, None, None, None)
    assert rows[3] == (3, 3, 2, 1.0, None, None, None, None, None, None)
    assert axis.rule.leaf.tolist() == [0, 1, 0, 2]  # type: ignore[union-attr]
    with pytest.raises(InternalError):
        leaf_sql(axis, "x")


def test_a_grain_that_fixes_the_key_carries_the_foreign_key_too() -> None:
    axis = axis_of(AxisSpec(axis="product", by=("product_id",)))
    assert ("sale", "product_id") in {(c.table, c.column) for c in axis.columns}
    assert "kind" not in {c.sql_name for c in axis.columns}  # reserved: the axis table has its own
    assert "product_kind" in {c.sql_name for c in axis.columns}


def test_a_public_column_without_a_domain_is_a_grain() -> None:
    axis = axis_of("product.price")
    assert axis.leaves == 4 and axis.name == "product(price)"


def test_public_tables_must_have_unique_keys_and_the_columns_named() -> None:
    catalog = star()
    spec = AxisSpec(axis="product", by=("brand",))
    resolved = resolve_axis(catalog, View(of="sale", axes=(spec,)), spec)
    assert needed_tables(catalog, resolved) == ("product", "class")
    twice = PublicTable("product", PRODUCT.types, {**PRODUCT.columns, "product_id": [1, 2, 2, 3]})
    with pytest.raises(SourceError, match="repeated"):
        build_axis(catalog, resolved, {**TABLES, "product": twice})
    spec = AxisSpec(axis="product", by=("colour",))
    with pytest.raises(SourceError, match="no column `colour`"):
        build_axis(catalog, resolve_axis(catalog, View(of="sale", axes=(spec,)), spec), TABLES)


def test_levels_must_nest() -> None:
    catalog = star()
    spec = AxisSpec(axis="work_id.city")
    tangled = PublicTable("geography", TABLES["geography"].types, {"nation": ["A", "B"], "city": ["x", "x"]})
    with pytest.raises(SourceError, match="two values of a coarser level"):
        build_axis(
            catalog, resolve_axis(catalog, View(of="sale", axes=(spec,)), spec), {"geography": tangled}
        )


@given(
    lower=st.integers(-50, 50),
    size=st.integers(0, 60),
    width=st.integers(1, 70),
    values=st.lists(
        st.floats(-120, 120) | st.sampled_from([math.nan, math.inf]) | st.none(), min_size=1, max_size=20
    ),
)
def test_leaf_sql_equals_python_on_numbers(
    lower: int, size: int, width: int, values: list[float | None]
) -> None:
    axis = axis_of(
        "sale.amount",
        f"amount: {{type: int, lower: {lower}, upper: {lower + size}, cuts: {{width: {width}}}}}",
    )
    # DuckDB rounds halves away from zero on the way to DECIMAL; the reference does the same.
    written = ["NULL" if v is None else f"'{v!r}'" for v in values]
    assert ask(axis, "DOUBLE", written) == [expected_leaf(axis, v) for v in values]


TIMES = [
    axis_of(
        "sale.amount",
        f"amount: {{type: timestamp, grain: {grain}, lower: {low}, upper: {high}, cuts: {cuts}}}",
    )
    for grain, low, high, cuts in (
        ("day", "1950-02-03", "2050-01-02", "{width: quarter}"),
        ("minute", "1969-12-01", "1970-02-01", "{width: 1000}"),
        ("hour", "1965-01-01", "1975-01-01", "{width: week}"),
    )
]


@settings(max_examples=settings.default.max_examples // 4)
@given(values=st.lists(st.datetimes(datetime(1940, 1, 1), datetime(2060, 1, 1)), min_size=1, max_size=20))
def test_leaf_sql_equals_python_on_times(values: list[datetime]) -> None:
    near = [datetime(1969, 12, 31, 12) + (value - datetime(2000, 1, 1)) / 400 for value in values]
    for axis in TIMES:
        written = [f"'{v}'" for v in (*values, *near)]
        assert ask(axis, "TIMESTAMP", written) == [expected_leaf(axis, v) for v in (*values, *near)]


def test_weights_of_a_leaf_add_up_to_one() -> None:
    for column in ("{type: int, lower: 0, upper: 9, cuts: {width: 4}, nullable: true}", "{type: bool}"):
        arrays = axis_of("sale.amount", f"amount: {column}").arrays()
        totals = np.bincount(arrays["leaf"].astype(np.int64), weights=arrays["weight"].astype(np.float64))
        assert np.allclose(totals, 1.0)
