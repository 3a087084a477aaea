"""Columns with private keys in a catalog: defaults, what is refused at load, and that a release's copy reads back."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpsql.catalog import catalog_from_json
from dpsql.catalog.catalog import parse_catalog
from dpsql.catalog.private_columns import KeyUse, keys_share, private_columns
from dpsql.errors import CatalogError
from tests.statements import refusals

CATALOG = """
dpsql: 1
name: shop
source: {kind: parquet, root: data, tables: {sales: s.parquet, customer: c.parquet, store: t.parquet}}
privacy: {lineage: shop, cap: 4, releases: 12, unit: customer.customer_id, delta: 1e-6}
tables:
  customer: {role: dimension, key: customer_id, private: true, columns: {
    age: {type: int, lower: 18, upper: 89}, city: {type: string, categories: private}}}
  store: {role: dimension, key: store_id, private: false, columns: {kind: {type: string}}}
  sales: {role: fact, max_ids: 20, foreign_keys: {customer_id: customer, store_id: store}, columns: {
    product: {type: string, categories: {private: true, share: 0.05, always: [tea], most: 900}},
    code: {type: int, categories: private}}}
views:
  products: {of: sales, axes: [sales.product, customer.city], measures: [count, people]}
"""


def test_defaults_follow_from_whose_key_it_is() -> None:
    catalog = parse_catalog(CATALOG)
    city, product = private_columns(catalog)
    assert (city.name, city.per_unit, city.share, city.rounds) == (
        "customer.city",
        1,
        Fraction(1, 10),
        ((1, 1),),
    )
    assert (product.per_unit, product.share) == (16, Fraction(1, 20))
    assert product.rounds == ((Fraction(3, 10), 6), (Fraction(7, 10), 10))
    assert city.uses == (KeyUse("sales", ("customer_id",)),) and city.views == ("products",)
    assert keys_share(catalog) == Fraction(3, 20)
    assert catalog.privacy.key_delta == Fraction(1, 10**7)
    again = catalog_from_json(catalog.to_json())
    assert again.to_json() == catalog.to_json() and private_columns(again) == private_columns(catalog)


def test_a_catalog_without_private_keys_sets_no_delta_aside() -> None:
    text = CATALOG.replace(
        "city: {type: string, categories: private}", "city: {type: string, categories: [a]}"
    )
    text = text.replace(
        "categories: {private: true, share: 0.05, always: [tea], most: 900}", "categories: [a]"
    )
    text = text.replace(",\n    code: {type: int, categories: private}", "")
    catalog = parse_catalog(text)
    assert (catalog.privacy.key_delta, private_columns(catalog)) == (0, ())


@pytest.mark.parametrize("old, new, words", refusals("private columns"))
def test_what_is_refused_at_load(old: str, new: str, words: str) -> None:
    assert old in CATALOG
    with pytest.raises(CatalogError, match=words.replace("[", r"\[")):
        parse_catalog(CATALOG.replace(old, new))


def test_a_stream_finds_no_keys() -> None:
    text = CATALOG.replace(
        "code: {type: int, categories: private}", "day: {type: date, lower: 2025-01-01, upper: 2025-12-31}"
    )
    text = text.replace("axes: [sales.product", "axes: [sales.day, sales.product").replace(", people]", "]")
    text = text.replace("releases: 12", "epsilon: 1").replace(
        "views:", "stream: {column: sales.day, horizon: 9}\nviews:"
    )
    with pytest.raises(CatalogError, match="a stream does not find private keys"):
        parse_catalog(text)


def test_a_row_has_one_key_under_unit_row() -> None:
    text = CATALOG.replace("unit: customer.customer_id", "unit: row").replace("max_ids: 20, ", "")
    text = text.replace(", measures: [count, people]", "")
    assert [column.per_unit for column in private_columns(parse_catalog(text))] == [1, 1]
    two = text.replace("store_id: store}", "store_id: store, friend_id: customer}")
    two = two.replace("customer.city]", "customer_id.city, friend_id.city]")
    with pytest.raises(CatalogError, match="a row has one key"):
        parse_catalog(two)
