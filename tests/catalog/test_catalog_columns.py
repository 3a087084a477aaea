"""Columns with private keys and facts about people in a catalog: defaults, refusals by name, and what is read back."""

from __future__ import annotations

from fractions import Fraction

import pytest

from dpsql.catalog import catalog_from_json, parse_catalog
from dpsql.catalog.private_columns import KeyUse, keys_share, private_columns
from dpsql.catalog.summaries import stages, summed_words, tables_read
from dpsql.errors import CatalogError
from dpsql.row_expressions.aggregate import parse_aggregate, spelling
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


PEOPLE = """\
dpsql: 1
name: shop
source: {kind: parquet, root: data, tables: {sales: s.parquet, customer: c.parquet, product: p.parquet, store: t.parquet}}
privacy: {lineage: shop, cap: 4.0, unit: customer.customer_id, epsilon: 0.1}
tables:
  customer:
    role: dimension
    key: customer_id
    columns: {region: {type: string, categories: [north, south]}, gap: {type: int, lower: 0, upper: 9, nullable: true}}
    derive: {gap: "date_diff('day', first, second)"}
    summaries:
      visits: {of: sales, is: count(*), type: int, lower: 0, upper: 100}
      spent: {of: sales, is: sum(amount), type: decimal, lower: 0, upper: 100, measure: true}
      first: {of: sales, is: min(sold_on), type: date, lower: 2025-01-01, upper: 2025-12-31, nullable: true}
      second: {of: sales, is: "nth(sold_on, 2)", type: date}
      toys: {of: sales, is: bool_or(product.category = 'toys'), type: bool}
      soon: {of: sales, is: "count(*) FILTER (WHERE sold_on > first)", type: int, lower: 0, upper: 5}
  product: {role: dimension, key: product_id, private: false, columns: {category: {type: string, categories: [toys, food]}}}
  store: {role: dimension, key: store_id, columns: {size: {type: int, lower: 0, upper: 9}}}
  sales: {role: fact, foreign_keys: {customer_id: customer, product_id: product, store_id: store}, max_ids: 20, columns: {
      amount: {type: decimal, lower: 0, upper: 500, measure: true}, sold_on: {type: date, lower: 2025-01-01, upper: 2026-12-31}}}
views:
  people: {of: customer, axes: [customer.visits, customer.toys, customer.soon], measures: [count, customer.spent]}
  gaps: {of: customer, axes: [customer.gap], measures: [count]}
  months: {of: sales, axes: [customer.first, sales.sold_on], measures: [count, people]}
"""  # noqa: E501


CHANGES = [(PEOPLE, *row) for row in refusals("summaries")]
CHANGES += [(CATALOG, old, new, words, "") for old, new, words in refusals("private columns")]


@pytest.mark.parametrize(("text", "old", "new", "place", "advice"), CHANGES)
def test_refusals_name_the_place_and_what_to_write(
    text: str, old: str, new: str, place: str, advice: str
) -> None:
    assert old in text
    with pytest.raises(CatalogError) as caught:
        parse_catalog(text.replace(old, new, 1), "shop.yaml")
    message = str(caught.value)
    assert "\n" not in message and place in message and advice in message


def test_summaries_are_columns() -> None:
    shop = parse_catalog(PEOPLE)
    customer = shop.tables["customer"]
    assert list(customer.columns) == ["region", "gap", "visits", "spent", "first", "second", "toys", "soon"]
    assert list(customer.written) == ["region", "gap"]
    words = {name: summary.out_of_domain.name for name, summary in customer.summaries.items()}
    assert words == dict.fromkeys(("visits", "spent", "first", "second", "soon"), "nearest") | {
        "toys": "other"
    }
    assert stages(shop) == {"visits": 1, "spent": 1, "first": 1, "second": 1, "toys": 1, "soon": 2}
    assert list(tables_read(shop)) == ["sales", "product"]
    assert catalog_from_json(shop.to_json()).tables == shop.tables


def test_what_a_person_counts_for_in_sums_is_said() -> None:
    shop = parse_catalog(PEOPLE)
    (words,) = summed_words(shop)
    assert words == "customer.spent: a row of customer counts for at most 100 in its sums and averages"


def test_written_words_are_read_back() -> None:
    text = PEOPLE.replace("upper: 5}", "upper: 5, out_of_domain: other}")
    shop = parse_catalog(text)
    assert (
        catalog_from_json(shop.to_json()).tables["customer"].summaries["soon"].out_of_domain.name == "other"
    )


def test_summaries_stand_under_the_peoples_table_alone() -> None:
    line = "      visits: {of: sales, is: count(*), type: int, lower: 0, upper: 100}\n"
    wrong = "  store: {role: dimension, key: store_id, summaries: {n: {of: sales, is: count(*), type: int}}, columns"
    text = PEOPLE.replace(line, "").replace("customer.visits, ", "")
    with pytest.raises(CatalogError, match=r"write them under tables\.customer"):
        parse_catalog(text.replace("  store: {role: dimension, key: store_id, columns", wrong))


def test_a_derived_column_of_a_count_stands_in_views_of_people_alone() -> None:
    text = PEOPLE.replace(
        "gap: {type: int, lower: 0, upper: 9, nullable: true}", "gap: {type: int, lower: 0, upper: 9}"
    )
    text = text.replace("\"date_diff('day', first, second)\"", "visits // 10").replace(
        '      second: {of: sales, is: "nth(sold_on, 2)", type: date}\n', ""
    )
    assert parse_catalog(text)
    with pytest.raises(CatalogError, match="a view of `customer`"):
        parse_catalog(text.replace("[customer.first, sales.sold_on]", "[customer.gap]"))


def test_five_stages_are_too_many() -> None:
    deeper = "".join(
        f"      s{i}: {{of: sales, is: count(*) FILTER (WHERE sold_on > first AND s{i - 1} > 0),"
        " type: int, lower: 0, upper: 5}\n"
        for i in range(3, 6)
    )
    first = (
        "      s2: {of: sales, is: count(*) FILTER (WHERE sold_on > first), type: int, lower: 0, upper: 5}\n"
    )
    text = PEOPLE.replace("  product: {role", first + deeper + "  product: {role", 1)
    with pytest.raises(CatalogError, match="more than 4 stages"):
        parse_catalog(text.replace("customer.soon]", "customer.soon, customer.s5]"))


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("count(*)", "COUNT(1)", True),
        ("count(*) FILTER (WHERE a = 1 AND b = 'x')", "count(*) FILTER (WHERE ('x' = b) AND (a = 1))", True),
        ("count(*) FILTER (WHERE a BETWEEN 1 AND 3)", "count(CASE WHEN 3 >= a AND a >= 1 THEN 1 END)", True),
        ("count(*) FILTER (WHERE a IN (1, 2))", "count(*) FILTER (WHERE a IN (2, 1))", True),
        ("count(*) FILTER (WHERE a)", "sum(CASE WHEN a THEN 1 ELSE 0 END)", True),
        ("sum(x) FILTER (WHERE a)", "sum(CASE WHEN a THEN x END)", True),
        (
            "min(x) FILTER (WHERE d > DATE '2025-01-01')",
            "min(x) FILTER (WHERE d > CAST('2025-01-01' AS DATE))",
            True,
        ),
        ("count(*) FILTER (WHERE a)", "sum(CASE WHEN a THEN 1 END)", False),
        ("sum(x) FILTER (WHERE a)", "sum(CASE WHEN a THEN x ELSE 0 END)", False),
        ("count(*)", "count(x)", False),
        ("count(x)", "count(DISTINCT x)", False),
        ("count(*) FILTER (WHERE a > 1)", "count(*) FILTER (WHERE a >= 1)", False),
        ("count(*) FILTER (WHERE a > 1)", "count(*) FILTER (WHERE 1 > a)", False),
        ("count(*) FILTER (WHERE a OR b)", "count(*) FILTER (WHERE a AND b)", False),
        ("nth(x, 2)", "nth(x, 3)", False),
        ("nth(x, 2)", "nth(DISTINCT x, 2)", False),
    ],
)
def test_one_spelling_for_what_means_the_same(one: str, other: str, same: bool) -> None:
    spellings = {spelling(parse_aggregate(text), lambda column: column.name) for text in (one, other)}
    assert (len(spellings) == 1) is same
