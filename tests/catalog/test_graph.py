"""Foreign-key paths, axis names, the privacy unit and measures."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest

from dpsql.catalog import load_catalog, parse_catalog
from dpsql.catalog.graph import (
    UnitPath,
    ledger_path,
    max_ids,
    paths_to,
    reachable,
    resolve_axis,
    unit_path,
    view_axes,
    view_measures,
)
from dpsql.catalog.model import AxisSpec, View
from dpsql.errors import CatalogError

ORDERS = """
dpsql: 1
name: orders
ledger: private/ledger.duckdb
privacy: {lineage: people, cap: 4, unit: customer.id, epsilon: 1}
tables:
  lineitem:
    role: fact
    max_ids: 5
    foreign_keys: {orderkey: orders, partkey: part}
    columns:
      price: {type: decimal, scale: 2, lower: 0, upper: 10, measure: true, nullable: true}
      units: {type: int, lower: 0, upper: 5, measure: true}
    measures: {revenue: {expr: price * units, lower: 0, upper: 50}}
  orders:
    role: dimension
    key: orderkey
    max_ids: 2
    foreign_keys: {custkey: customer, from_id: place, to_id: {references: place, on_missing: drop}}
    columns: {placed: {type: date, lower: 2025-01-01, upper: 2025-12-31}}
  customer: {role: dimension, key: id, foreign_keys: {nationkey: nation}, columns: {
      age: {type: int, lower: 0, upper: 99}}}
  nation: {role: dimension, key: nationkey, private: false, columns: {nation: {type: string}}}
  place: {role: dimension, key: place_id, private: false, foreign_keys: {nationkey: nation}, columns: {
      city: {type: string}}}
  part: {role: dimension, key: partkey, private: false, columns: {size: {type: int, lower: 1, upper: 50}}}
"""
LINE = View(of="lineitem", axes=(AxisSpec(axis="units"),))


def axis(written: str, *by: str, of: str = "lineitem") -> object:
    view = View(of=of, axes=(AxisSpec(axis="units"),))
    return resolve_axis(parse_catalog(ORDERS), view, AxisSpec(axis=written, by=by))


def test_paths_and_public_tables() -> None:
    catalog = parse_catalog(ORDERS)
    assert paths_to(catalog, "lineitem", "customer") == (("orderkey", "custkey"),)
    assert paths_to(catalog, "lineitem", "place") == (("orderkey", "from_id"), ("orderkey", "to_id"))
    assert len(reachable(catalog, "lineitem")) == 9
    assert catalog.public_tables == {"nation", "place", "part"}


def test_the_unit_is_found_over_several_hops() -> None:
    catalog = parse_catalog(ORDERS)
    assert unit_path(catalog, "lineitem") == UnitPath(("orderkey",), "orders", "custkey")
    assert unit_path(catalog, "orders") == UnitPath((), "orders", "custkey")
    assert unit_path(catalog, "customer") == UnitPath((), "customer", "id")
    assert (max_ids(catalog, "lineitem"), max_ids(catalog, "customer")) == (5, 1)
    with pytest.raises(CatalogError, match="0 paths lead to the privacy unit"):
        unit_path(catalog, "part")


def test_a_row_unit_needs_no_path() -> None:
    catalog = parse_catalog(ORDERS.replace("unit: customer.id", "unit: row"))
    assert unit_path(catalog, "part") is None
    assert max_ids(catalog, "lineitem") == 1


def test_an_ambiguous_unit_is_refused_until_the_catalog_chooses() -> None:
    two = ORDERS.replace("custkey: customer,", "custkey: customer, payer: customer,")
    catalog = parse_catalog(two)
    with pytest.raises(CatalogError, match=r"2 paths lead to the privacy unit `customer`.*unit_path"):
        unit_path(catalog, "lineitem")
    chosen = parse_catalog(two.replace("max_ids: 5", "max_ids: 5\n    unit_path: [orderkey, payer]"))
    assert unit_path(chosen, "lineitem") == UnitPath(("orderkey",), "orders", "payer")


def test_circles_of_foreign_keys_are_refused() -> None:
    with pytest.raises(CatalogError, match="form a cycle"):
        parse_catalog(
            ORDERS.replace(
                "nation: {role: dimension, ", "nation: {role: dimension, foreign_keys: {boss: nation}, "
            )
        )


@pytest.mark.parametrize(("written", "by", "name", "path", "missing"), [
    ("units", (), "lineitem.units", (), False), ("lineitem.units", (), "lineitem.units", (), False),
    ("orders.placed", (), "orders.placed", ("orderkey",), True),
    ("customer.age", (), "customer.age", ("orderkey", "custkey"), True),
    ("orderkey.custkey.age", (), "customer.age", ("orderkey", "custkey"), True),
    ("part.size", (), "part.size", ("partkey",), True),
    ("part", ("size", "colour"), "part(size, colour)", ("partkey",), True),
    ("orderkey.to_id.city", (), "orderkey.to_id(city)", ("orderkey", "to_id"), True),
    ("orderkey.from_id", ("nation", "city"), "orderkey.from_id(nation, city)", ("orderkey", "from_id"), True),
])  # fmt: skip
def test_axis_names(
    written: str, by: tuple[str, ...], name: str, path: tuple[str, ...], missing: bool
) -> None:
    resolved = axis(written, *by)
    assert (resolved.name, resolved.path, resolved.missing) == (name, path, missing)  # type: ignore[attr-defined]
    assert hash(resolved) == hash(axis(written, *by))


def test_missing_rows_are_left_out_only_where_every_hop_says_so() -> None:
    assert not axis("to_id.city", of="orders").missing  # type: ignore[attr-defined]
    assert axis("from_id.city", of="orders").missing  # type: ignore[attr-defined]


def test_members_of_a_grain_may_lie_in_a_snowflake_arm() -> None:
    resolved = axis("orderkey.from_id", "nation", "city")
    assert [(m.table, m.path) for m in resolved.by] == [  # type: ignore[attr-defined]
        ("nation", ("orderkey", "from_id", "nationkey")),
        ("place", ("orderkey", "from_id")),
    ]
    qualified = axis("orderkey.from_id", "nation.nation")
    assert qualified.by[0].table == "nation"  # type: ignore[attr-defined]


@pytest.mark.parametrize(("written", "by", "advice"), [
    ("place.city", (), "name the axis by its path: `orderkey.from_id.<column>` or `orderkey.to_id.<column>`"),
    ("customer", ("age",), "only a public dimension has `by`"), ("customer.ag", (), "did you mean `age`?"),
    ("costumer.age", (), "did you mean `customer`?"),
])  # fmt: skip
def test_names_that_lead_nowhere(written: str, by: tuple[str, ...], advice: str) -> None:
    with pytest.raises(CatalogError) as caught:
        axis(written, *by)
    assert advice in str(caught.value)


def test_measures_and_their_shares() -> None:
    catalog = parse_catalog(ORDERS)
    view = View(of="lineitem", axes=LINE.axes, measures={"count": Fraction(1, 2), "price": Fraction(1, 2)})
    count, price, counted = view_measures(catalog, view)
    assert (count.name, count.share) == ("count", Fraction(1, 2)) and count.name.is_count
    assert (price.name, price.share) == ("lineitem.price", Fraction(1, 4))
    assert (price.bounds, price.scale) == ((0, 1000), 2) and counted.name.is_count
    assert (counted.name, counted.share) == ("count(lineitem.price)", Fraction(1, 4))
    listed = View.model_validate(
        {"of": "lineitem", "axes": ["units"], "measures": ["count", "revenue", "units"]}
    )
    assert [(m.name, m.share) for m in view_measures(catalog, listed)] == [
        ("count", Fraction(1, 3)),
        ("lineitem.revenue", Fraction(1, 3)),
        ("lineitem.units", Fraction(1, 3)),
    ]
    halves = {"units": Fraction(1, 2), "lineitem.units": Fraction(1, 2)}
    with pytest.raises(CatalogError, match="is listed twice"):
        view_measures(catalog, View(of="lineitem", axes=LINE.axes, measures=halves))


def test_the_ledger_lies_beside_the_catalog(tmp_path: Path) -> None:
    file = tmp_path / "orders.yaml"
    file.write_text(ORDERS)
    assert ledger_path(load_catalog(file)) == tmp_path / "private" / "ledger.duckdb"
    assert ledger_path(parse_catalog(ORDERS.replace("private/", "/abs/"))) == Path("/abs/ledger.duckdb")


def test_coarsened_axes_carry_their_cuts() -> None:
    catalog = parse_catalog(
        ORDERS + "views: {a: {of: lineitem, axes: [{axis: customer.age, cuts: {width: 10}}, part.size]}}"
    )
    age, size = view_axes(catalog, catalog.views["a"])
    assert age.cuts is not None and age.cuts.width == "10" and size.cuts is None
