"""Facts about people in the catalog: each refusal by name, and what is read back."""

from __future__ import annotations

import pytest

from dpsql.catalog import catalog_from_json, parse_catalog
from dpsql.catalog.summaries import stages, summed_words, tables_read
from dpsql.errors import CatalogError
from dpsql.row_expressions.aggregate import parse_aggregate, spelling
from tests.statements import refusals

SHOP = """\
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


def refusal(old: str, new: str) -> str:
    assert old in SHOP
    with pytest.raises(CatalogError) as caught:
        parse_catalog(SHOP.replace(old, new, 1), "shop.yaml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_summaries_are_columns() -> None:
    shop = parse_catalog(SHOP)
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
    shop = parse_catalog(SHOP)
    (words,) = summed_words(shop)
    assert words == "customer.spent: a row of customer counts for at most 100 in its sums and averages"


def test_written_words_are_read_back() -> None:
    text = SHOP.replace("upper: 5}", "upper: 5, out_of_domain: other}")
    shop = parse_catalog(text)
    assert (
        catalog_from_json(shop.to_json()).tables["customer"].summaries["soon"].out_of_domain.name == "other"
    )


@pytest.mark.parametrize(("old", "new", "place", "advice"), refusals("summaries"))
def test_refusals_name_the_place_and_what_to_write(old: str, new: str, place: str, advice: str) -> None:
    message = refusal(old, new)
    assert place in message
    assert advice in message


def test_summaries_stand_under_the_peoples_table_alone() -> None:
    line = "      visits: {of: sales, is: count(*), type: int, lower: 0, upper: 100}\n"
    wrong = "  store: {role: dimension, key: store_id, summaries: {n: {of: sales, is: count(*), type: int}}, columns"
    text = SHOP.replace(line, "").replace("customer.visits, ", "")
    with pytest.raises(CatalogError, match=r"write them under tables\.customer"):
        parse_catalog(text.replace("  store: {role: dimension, key: store_id, columns", wrong))


def test_a_derived_column_of_a_count_stands_in_views_of_people_alone() -> None:
    text = SHOP.replace(
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
    text = SHOP.replace("  product: {role", first + deeper + "  product: {role", 1)
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
