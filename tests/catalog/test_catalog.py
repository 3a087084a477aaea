"""Catalogs: exact scalars, refusals that say what to write, canonical text, drafts."""

from __future__ import annotations

import json
import os
from datetime import date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from docs.make_reference import catalog_schema
from dpsql.catalog import Catalog, catalog_from_json, load_catalog, parse_catalog, spec_hash
from dpsql.catalog.base import GRAIN_MICROSECONDS, as_fraction, as_text, to_units
from dpsql.catalog.columns import Column, Cuts, bin_starts
from dpsql.catalog.source import Source, expand
from dpsql.errors import CatalogError
from tests.releases import headed
from tests.statements import refusals
from tests.thinned import by_default

ROOT = Path(__file__).parents[2]
SHIPPED = sorted((ROOT / "catalog").glob("*.yaml"))

SHOP = """\
dpsql: 1
name: retail
population: shop-customers
source: {kind: parquet, root: data, tables: {sales: sales.parquet, customer: c.parquet, product: p.parquet}}
privacy: {lineage: shop, cap: 4.0, unit: customer.customer_id, epsilon: 0.1, delta: 1e-6}
tables:
  customer: {role: dimension, key: customer_id, columns: {
      age: {type: int, lower: 18, upper: 89}, region: {type: string, categories: [north, south], nullable: true}}}
  product: {role: dimension, key: product_id, private: false, columns: {
      price: {type: decimal, lower: 0, upper: 500, cuts: {width: 5}}}}
  sales: {role: fact, foreign_keys: {customer_id: customer, product_id: product}, max_ids: 20, columns: {
      amount: {type: decimal, lower: 0, upper: 500, measure: true, nullable: true},
      sold_on: {type: date, lower: 2025-01-01, upper: 2026-12-31}}}
views:
  demand: {of: sales, axes: [customer.age, product.price], measures: {count: 0.55, sales.amount: 0.45}, share: 0.6}
  trend: {of: sales, axes: [sales.sold_on, customer.region], measures: [count], share: 0.4}
"""


def refusal(old: str, new: str) -> str:
    """The one-line message for the shop with one thing wrong."""
    assert old in SHOP
    with pytest.raises(CatalogError) as caught:
        parse_catalog(SHOP.replace(old, new, 1), "shop.yaml")
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_numbers_stay_exact() -> None:
    shop = parse_catalog(SHOP)
    assert shop.privacy.epsilon == Fraction(1, 10)
    assert shop.privacy.delta == Fraction(1, 10**6)
    assert shop.shares == {"demand": Fraction(3, 5), "trend": Fraction(2, 5)}
    assert shop.views["demand"].measures == {"count": Fraction(11, 20), "sales.amount": Fraction(9, 20)}


@pytest.mark.parametrize(("old", "new", "place", "advice"), refusals("shop"))
def test_refusals_name_the_place_and_what_to_write(old: str, new: str, place: str, advice: str) -> None:
    message = refusal(old, new)
    assert place in message
    assert advice in message


@pytest.mark.parametrize(
    "text", ["", "[]", "a: [1", "just words", "? [a]\n: b", "a: &x [*x]\ndpsql: 1", "\tdpsql: 1"]
)
def test_what_is_no_catalog_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(CatalogError) as caught:
        parse_catalog(text)
    assert "\n" not in str(caught.value)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(CatalogError, match="cannot be read"):
        load_catalog(tmp_path / "none.yaml")
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(CatalogError, match="not UTF-8"):
        load_catalog(tmp_path / "bytes.yaml")


def test_files_that_never_end_or_never_begin_are_refused_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    for file in (pipe, Path("/dev/zero"), tmp_path):
        with pytest.raises(CatalogError, match="cannot be read"):
            load_catalog(file)


@pytest.mark.parametrize(
    "bomb",
    by_default(["[" * 1000, "{a: " * 1000, "a: " + "[" * 30_000, "- " * 2000, "a:\n" + " ? " * 2000], 2),
)
def test_brackets_are_no_traceback(bomb: str) -> None:
    with pytest.raises(CatalogError, match=r"nested too deep|invalid YAML|nested"):
        parse_catalog(bomb)


def test_canonical_json_reads_back_and_hides_where_rows_are() -> None:
    shop = parse_catalog(SHOP)
    text = shop.to_json()
    back = catalog_from_json(text)
    assert back.to_json() == text
    assert back.views == shop.views and back.tables == shop.tables and back.privacy == shop.privacy
    assert "parquet" not in text and back.source is None
    with pytest.raises(CatalogError, match="no `source`"):
        back.raw_source()
    with pytest.raises(CatalogError, match="not JSON"):
        catalog_from_json("{")


def test_the_spec_hash_ignores_how_things_are_written() -> None:
    base = spec_hash(parse_catalog(SHOP))
    same = SHOP.replace("epsilon: 0.1", "epsilon: 0.10").replace("root: data", "root: elsewhere")
    same = same.replace("cap: 4.0, unit: customer.customer_id", "unit: customer.customer_id, cap: 4")
    assert spec_hash(parse_catalog(same)) == base
    for old, new in (
        ("epsilon: 0.1", "epsilon: 0.2"),
        ("upper: 89", "upper: 90"),
        ("c.parquet", "d.parquet"),
    ):
        assert spec_hash(parse_catalog(SHOP.replace(old, new))) != base


def test_unconfirmed_bounds_are_listed() -> None:
    assert parse_catalog(SHOP).unconfirmed() == ()
    draft = SHOP.replace("upper: 89", "upper: 89, confirm: true").replace(
        "max_ids: 20", "max_ids: 20, confirm: true"
    )
    assert parse_catalog(draft).unconfirmed() == ("tables.customer.columns.age", "tables.sales")
    promised = SHOP.replace("epsilon: 0.1", "epsilon: 0.1, confirm: true")
    assert parse_catalog(promised).unconfirmed() == ("privacy",)


def test_views_without_a_share_split_what_is_left() -> None:
    shop = parse_catalog(SHOP.replace(", share: 0.4", ""))
    assert shop.shares["trend"] == Fraction(2, 5)
    with pytest.raises(CatalogError, match="leave nothing"):
        parse_catalog(SHOP.replace(", share: 0.4", "").replace("share: 0.6", "share: 1"))


def test_environment_variables_and_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert expand("${A}/x", {"A": "/data"}) == "/data/x"
    with pytest.raises(CatalogError, match="NOT_SET_HERE is not set"):
        expand("${NOT_SET_HERE}", {})
    (tmp_path / "catalog").mkdir()
    (tmp_path / "data").mkdir()
    source = Source(root="data", tables={"a": "a.parquet", "b": "SELECT * FROM '${B}.parquet'"})
    monkeypatch.chdir(tmp_path)
    assert source.folder(tmp_path / "catalog" / "shop.yaml") == tmp_path / "data"
    (tmp_path / "catalog" / "data").mkdir()
    assert source.folder(tmp_path / "catalog" / "shop.yaml") == tmp_path / "catalog" / "data"
    monkeypatch.setenv("B", "day")
    assert source.expanded() == {"a": "a.parquet", "b": "SELECT * FROM 'day.parquet'"}
    with pytest.raises(CatalogError, match="neither beside"):
        Source(root="nowhere", tables={}).folder(None)


def test_scalars() -> None:
    assert as_fraction("1/3") == Fraction(1, 3)
    for wrong in ("0x1", "1/0", "nan", "1e999", ""):
        with pytest.raises(ValueError, match=r"number|zero|empty"):
            as_fraction(wrong)
    with pytest.raises(ValueError, match="quotes"):
        as_text(0.1)
    assert to_units("timestamp", "2025-01-01", grain="hour", upper=True) == to_units(
        "timestamp", "2025-01-01 23:00:00", grain="hour"
    )
    for kind, text in (("date", "2025-02-30"), ("timestamp", "2025-01-01T00:00:00+01:00"), ("int", "1e30")):
        with pytest.raises(ValueError, match=r"not a date|time zone|too large"):
            to_units(kind, text)


def from_units(type: str, units: int, *, scale: int = 0, grain: str = "second") -> Decimal | date:
    """The value that a count of units stands for; the inverse of `to_units`."""
    if type == "decimal":
        return Decimal(units).scaleb(-scale)
    if type == "date":
        return date(1970, 1, 1) + timedelta(days=units)
    return datetime(1970, 1, 1) + timedelta(microseconds=units * GRAIN_MICROSECONDS[grain])


@given(st.integers(-(10**12), 10**12), st.integers(0, 9))
def test_decimal_units_round_trip(units: int, scale: int) -> None:
    value = from_units("decimal", units, scale=scale)
    assert isinstance(value, Decimal)
    assert to_units("decimal", f"{value:f}", scale=scale) == units


@given(st.dates(date(1900, 1, 1), date(2200, 1, 1)), st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1)))
def test_time_units_round_trip(day: date, moment: datetime) -> None:
    assert from_units("date", to_units("date", day.isoformat())) == day
    floor = moment.replace(microsecond=0, second=0)
    assert (
        from_units("timestamp", to_units("timestamp", str(moment), grain="minute"), grain="minute") == floor
    )


def test_calendar_cuts_follow_the_calendar() -> None:
    column = Column(type="date", lower="2024-12-15", upper="2026-03-01")
    for width, expected in (("month", 16), ("quarter", 6), ("year", 3), ("week", 64)):
        assert len(bin_starts(column, Cuts(width=width))) == expected
    starts = [from_units("date", start) for start in bin_starts(column, Cuts(width="quarter"))]
    assert starts[:2] == [date(2024, 12, 15), date(2025, 1, 1)]
    weeks = [from_units("date", start) for start in bin_starts(column, Cuts(width="week"))]
    assert all(isinstance(day, date) and day.weekday() == 0 for day in weeks[1:])
    late = Column(type="timestamp", grain="hour", lower="2025-01-01 08:00:00", upper="2025-01-03")
    days = [from_units("timestamp", start, grain="hour") for start in bin_starts(late, Cuts(width="day"))]
    assert days == [datetime(2025, 1, 1, 8), datetime(2025, 1, 2), datetime(2025, 1, 3)]
    with pytest.raises(ValueError, match="finer than the column"):
        bin_starts(late, Cuts(width="minute"))
    with pytest.raises(ValueError, match="write a number"):
        bin_starts(Column(type="int", lower="0", upper="9"), Cuts(width="day"))
    with pytest.raises(ValueError, match="are more than"):
        bin_starts(Column(type="int", lower="0", upper="2000000"), None)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_shipped_catalogs_load(path: Path) -> None:
    catalog = load_catalog(path)
    assert path.stem.startswith(catalog.name) and catalog.file == path
    assert catalog_from_json(catalog.to_json()).views == catalog.views
    assert sum(catalog.shares.values()) <= 1
    assert catalog.unconfirmed() == ()


def outline(schema: dict[str, object]) -> object:
    """What an editor checks by: keys, types and choices; wording and layout differ between pydantic versions."""
    if isinstance(schema, dict):
        kept = ("properties", "required", "enum", "const", "type", "items", "anyOf", "$ref", "$defs")
        named = {key: outline(value) for key, value in schema.items() if key in kept and key != "properties"}
        properties = schema.get("properties")
        if isinstance(properties, dict):
            named["properties"] = {key: outline(value) for key, value in properties.items()}
        if isinstance(schema.get("$defs"), dict):
            named["$defs"] = {key: outline(value) for key, value in schema["$defs"].items()}  # type: ignore[attr-defined]
        return named
    return [outline(item) for item in schema] if isinstance(schema, list) else schema


def test_the_json_schema_in_docs_is_in_step() -> None:
    shipped = json.loads((ROOT / "docs" / "catalog.schema.json").read_text(encoding="utf-8"))
    made = json.loads(json.dumps(catalog_schema(), default=str))
    assert outline(shipped) == outline(made), "run make docs"


@pytest.mark.parametrize(("kind", "where"), [
    ("parquet", {"root": "s3://bucket/shop"}), ("parquet", {"tables": {"sales": "gs://bucket/sales.parquet"}}),
    ("csv", {"tables": {"sales": "https://example.com/sales.csv"}}), ("delta", {"root": "abfss://lake@x/shop"}),
    ("iceberg", {"tables": {"sales": "s3a://bucket/sales@1"}}), ("duckdb", {"root": "s3://bucket/shop.duckdb"}),
])  # fmt: skip
def test_object_stores_are_refused_in_one_sentence(kind: str, where: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=r"is in an object store, which is not read; mount or copy it"):
        Source.model_validate({"kind": kind, "tables": {"sales": "sales"}} | where)
    Source.model_validate(
        {"kind": "spark", "root": "spark://host:7077", "tables": {"sales": "s3a://bucket/sales"}}
    )


def of_star(name: str, old: str = "", new: str = "") -> Catalog:
    """The catalog of a star whose answers are tested, with one thing changed."""
    _, text = (ROOT / "tests" / "answer" / "statements" / f"{name}.yaml").read_text("utf-8").split("\n---\n")
    assert old in text
    return parse_catalog(headed(text.replace(old, new, 1) if old else text, {"batch": "b", "sale": "s"}))


@pytest.mark.parametrize(
    ("star", "old", "new", "words"), [(star, *row) for star in ("mill", "bakery") for row in refusals(star)]
)
def test_moments_and_quantiles_that_cannot_be_measured(star: str, old: str, new: str, words: str) -> None:
    with pytest.raises(CatalogError, match=words):
        of_star(star, old, new)


def test_squares_are_a_declared_measure() -> None:
    square = of_star("mill").tables["batch"].measures["squares_of_yield"]
    assert square.expr == "(yield - 3.75) * (yield - 3.75)" and square.scale == 4
    assert square.bounds == (0, 875**2) and float(square.upper) == pytest.approx(8.75**2)


def test_leaves_follow_from_the_catalog_alone() -> None:
    catalog = of_star("bakery")
    axes = {name: view.axes[1:] for name, view in catalog.views.items()}
    listed = [spec.axis for specs in axes.values() for spec in specs]
    assert listed == ["sale.price", "sale.pieces", "sale.delay"]
    assert axes["pieces"][0].cuts is None is axes["delays"][0].cuts and not axes["shops"]
    starts = [Decimal(start) for start in axes["prices"][0].cuts.at]  # type: ignore[union-attr]
    assert len(starts) == 33 and starts[0] == 0 and starts[-1] == 420
    assert all(Decimal("1.15") < b / a < Decimal("1.21") for a, b in pairwise(starts[1:]))
    assert catalog_from_json(catalog.to_json()).views == catalog.views


def test_bounds_that_do_not_begin_at_0_have_even_leaves() -> None:
    catalog = of_star("bakery", "lower: 0, upper: 500", "lower: 100, upper: 500")
    cuts = catalog.views["prices"].axes[1].cuts
    assert cuts is not None and [Decimal(start) for start in cuts.at][:3] == [100, Decimal("112.5"), 125]
