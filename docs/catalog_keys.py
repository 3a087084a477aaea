"""An example of every key of the catalog, and a mistake: both are tried when docs/catalog.md is written.

| here | meaning |
|---|---|
| `BASES` | whole catalogs that examples are put into |
| `KEYS` | model: the base, where the model stands in it, and its keys |
| a key | an example, a mistake, and what else must be so, by path; all as YAML; `@` says another place |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from dpsql.catalog.catalog import parse_catalog
from dpsql.errors import CatalogError

CENTRAL = """
dpsql: 1
name: shop
source:
  kind: parquet
  root: data
  tables: {sales: sales.parquet, customer: customer.parquet, product: product.parquet, place: place.parquet}
privacy: {lineage: shop, cap: 4, unit: customer.customer_id, epsilon: 1}
tables:
  customer:
    {role: dimension, key: customer_id, private: true, columns: {
      age: {type: int, lower: 18, upper: 89}, region: {type: string, categories: [north, south]},
      city: {type: string, from: place, axis: {levels: [state, city]}}}}
  product:
    {role: dimension, key: product_id, private: false, columns: {
      category: {type: string}, price: {type: decimal, scale: 2, lower: 0, upper: 100}}}
  place: {role: domain, columns: {state: {type: string}, city: {type: string}}}
  sales:
    {role: fact, max_ids: 20, foreign_keys: {customer_id: customer, product_id: product}, columns: {
      amount: {type: decimal, scale: 2, lower: 0, upper: 500, measure: true},
      quantity: {type: int, lower: 1, upper: 9, measure: true},
      sold_on: {type: date, lower: 2025-01-01, upper: 2025-12-31},
      paid_at: {type: timestamp, lower: 2025-01-01 00:00:00, upper: 2025-12-31 23:59:59}},
     measures: {revenue: {expr: amount * quantity, lower: 0, upper: 900}}}
views:
  demand: {of: sales, axes: [customer.age, {axis: product, by: [category]}], measures: [count, sales.amount]}
"""
STREAM = (
    CENTRAL[: CENTRAL.index("views:")]
    + """
stream: {column: sales.sold_on, horizon: 365}
views:
  demand: {of: sales, axes: [sales.sold_on, customer.region], measures: [count]}
"""
)
SURVEY = (
    CENTRAL[: CENTRAL.index("views:")]
    + """
collection: {epsilon: 1}
views:
  people: {of: customer, axes: [customer.age, customer.region], measures: [count]}
"""
)
PEOPLE = (
    CENTRAL.replace(
        "    {role: dimension, key: customer_id, private: true, columns: {",
        """    {role: dimension, key: customer_id, private: true, summaries: {
      visits: {of: sales, is: count(*), type: int, lower: 0, upper: 50}}, columns: {""",
    )
    + "  frequency: {of: customer, axes: [customer.visits], measures: [count]}\n"
)
SIZE = {"tables.sales.guess": "{units: 600, rows: 20000}"}
BASES = {"central": CENTRAL, "stream": STREAM, "survey": SURVEY, "people": PEOPLE}

Others = Mapping[str, str]
Key = tuple[str, str] | tuple[str, str, Others]


class Place(NamedTuple):
    """Where a model's examples are tried: a base, a path in it, and the keys."""

    base: str
    path: str
    keys: Mapping[str, Key]


REGION = "tables.customer.columns.region"
DROP = {f"{REGION}.out_of_domain": "drop", "source.reports": "{customer: answers.parquet}"}
REPORTS = {**DROP, f"{REGION}.reported": "{epsilon: 2, collection: regions}"}
CITY = {"@": "tables.customer.columns.city"}
DELTA = {"privacy.delta": "1e-6"}
FOUND = {
    **DELTA,
    "tables.sales.columns.item": "{type: string, categories: {private: true}}",
    "views.demand.axes": "[sales.item]",
}
CUBE = {**DELTA, "views.demand.axes": "[customer.age, customer.region, sales.sold_on]"}
ROWS = {"views.people.of": "sales"}
TEXT = ("who buys at which price", "[who, buys]")
CONFIRM = ("true", "perhaps")
SPENT = {
    "tables.customer.summaries.visits": "{of: sales, is: sum(amount), type: decimal, lower: 0, upper: 900}"
}
PAID = {
    "tables.customer.summaries.visits": "{of: sales, is: min(paid_at), type: timestamp, lower: 2025-01-01 00:00:00, upper: 2025-12-31 23:59:00, nullable: true}"
}
KEYS: Mapping[str, Place] = {
    "Catalog": Place("central", "", {
        "dpsql": ("1", "3"),
        "name": ("shop", "my shop"),
        "population": ("shop-customers", "[shop]"),
        "description": TEXT,
        "ledger": (".dpsql/ledger.duckdb", "[a, b]"),
        "source": ("{kind: csv, root: data, tables: {sales: sales.csv, customer: customer.csv, product: product.csv, place: place.csv}}",
                   "{kind: csv, root: data, tables: {sales: sales.csv}}"),
        "privacy": ("{lineage: shop, cap: 4, unit: customer.customer_id, epsilon: 1}", "{lineage: shop, cap: 4}"),
        "tables": ("{sales: {role: fact, max_ids: 5, foreign_keys: {customer_id: customer}}, customer: {role: dimension, key: customer_id, columns: {age: {type: int, lower: 18, upper: 89}}}}",
                   "{}", {"views": "{ages: {of: sales, axes: [customer.age]}}", "source.tables": "{sales: s.parquet, customer: c.parquet}"}),
        "views": ("{ages: {of: sales, axes: [customer.age]}}", "{ages: {of: sale, axes: [customer.age]}}"),
        "collection": ("{epsilon: 1}", "{epsilon: 100}", {"views": "{who: {of: customer, axes: [customer.region]}}"}),
        "stream": ("{column: sales.sold_on, horizon: 365}", "{column: sales.amount, horizon: 365}",
                   {"views": "{days: {of: sales, axes: [sales.sold_on]}}"}),
        "on_partial_bin": ("refuse", "guess"),
        "vouched": ("[sales]", "sales"),
    }),
    "Source": Place("central", "source", {
        "kind": ("duckdb", "excel"),
        "csv": ('{delimiter: ";"}', '{delimiter: "--"}', {"source.kind": "csv"}),
        "root": ("${SHOP_DATA}", "[data]"),
        "tables": ("{sales: sales.parquet, customer: customer.parquet, product: product.parquet, place: \"SELECT DISTINCT state, city FROM 'places.csv'\"}",
                   "{sales: sales.parquet}"),
        "reports": ("{customer: answers.parquet}", "[answers.parquet]",
                    REPORTS),
        "hive": ("{sales: [region]}", "{sales: region}"),
        "trusted": ("true", "mostly"),
        "timeout": ("600", "0"),
    }),
    "Csv": Place("central", "source.csv", {
        "delimiter": ('";"', '"--"', {"source.kind": "csv"}),
        "quote": ('"\'"', '"xx"', {"source.kind": "csv"}),
        "escape": ('"\\\\"', '"xx"', {"source.kind": "csv"}),
        "encoding": ("latin-1", "utf-7", {"source.kind": "csv"}),
        "null": ("NA", "[NA]", {"source.kind": "csv"}),
        "columns": ("{place: [state, city]}", "{place: state}", {"source.kind": "csv"}),
    }),
    "Privacy": Place("central", "privacy", {
        "lineage": ("shop-customers", '""'),
        "cap": ("4", "-1"),
        "unit": ("customer.customer_id", "customer.age"),
        "neighbours": ("replace_one", "swap"),
        "epsilon": ("0.5", "0"),
        "releases": ("4", "12", {"privacy.epsilon": "1"}),
        "delta": ("1e-6", "0.5"),
        "key_delta": ("1e-7", "1e-5", DELTA),
        "min_people": ("11", "-1"),
        "rows": ("public", "maybe"),
        "confirm": CONFIRM,
    }),
    "Table": Place("central", "tables.sales", {
        "role": ("fact", "facts"),
        "key": ("sale_id", "[sale_id]"),
        "private": ("true", "false"),
        "people_of": ("sales", "sale", {"@": "tables.customer"}),
        "columns": ("{amount: {type: decimal, lower: 0, upper: 500, measure: true}}", "{amount: {type: money}}",
                    {"tables.sales.measures": "{}"}),
        "summaries": ("{visits: {of: sales, is: count(*), type: int, lower: 0, upper: 50}}", "{visits: {of: sales, is: avg(amount), type: decimal}}",
                      {"@": "tables.customer", "views.frequency": "{of: customer, axes: [customer.visits], measures: [count]}"}),
        "foreign_keys": ("{customer_id: customer, product_id: {references: product, on_missing: drop}}",
                         "{customer_id: client, product_id: product}"),
        "derive": ('{weekend: "isodow(sold_on) > 5"}', '{rank: "row_number() OVER ()"}'),
        "measures": ("{revenue: {expr: amount * quantity, lower: 0, upper: 900}}", "{revenue: {expr: amount * quantity}}"),
        "max_ids": ("auto", "many"),
        "bounding": ("weight", "clip"),
        "clipped_share": ("0.05", "2"),
        "excess_share": ("0.01", "2"),
        "guess": ("{units: 600, rows: 20000, most_rows: 50}", "{units: 600}"),
        "unit_path": ("[customer_id]", "[product_id]"),
        "confirm": CONFIRM,
        "description": TEXT,
    }),
    "Column": Place("central", "tables.sales.columns.amount", {
        "type": ("decimal", "money"),
        "lower": ("0", "900"),
        "upper": ("500", "lots"),
        "scale": ("2", "-1"),
        "grain": ("minute", "week", {"tables.sales.columns.amount": "{type: timestamp, lower: 2025-01-01 00:00:00, upper: 2025-12-31 23:59:00}",
                                     "tables.sales.measures": "{}", "views.demand.measures": "[count]"}),
        "categories": ("[tea, coffee]", "[tea, tea]", {"tables.sales.columns.amount": "{type: string}", "tables.sales.measures": "{}",
                                                       "views.demand.measures": "[count]"}),
        "cuts": ("[10, 50, 100]", "[50, 10]"),
        "nullable": ("true", "often"),
        "measure": ("true", "sum"),
        "quantiles": ("true", "median"),
        "axis": ("{levels: [state, city]}", "{levels: [city, state]}", CITY),
        "from": ("place", "places", CITY),
        "out_of_domain": ("drop", "ignore"),
        "other": ("elsewhere", "tea", {"tables.sales.columns.amount": "{type: string, categories: [tea, coffee]}",
                                       "tables.sales.measures": "{}", "views.demand.measures": "[count]"}),
        "reported": ("{epsilon: 2, collection: regions}", "{epsilon: 2}", {**DROP, "@": REGION}),
        "confirm": CONFIRM,
        "description": TEXT,
    }),
    "Summary": Place("people", "tables.customer.summaries.visits", {
        "of": ("sales", "product"),
        "is": ("\"count(*) FILTER (WHERE product.category = 'tea')\"", "avg(amount)"),
        "type": ("int", "date"),
        "lower": ("0", "90"),
        "upper": ("100", "many"),
        "scale": ("2", "3", SPENT),
        "grain": ("minute", "hour", {**PAID, "tables.sales.columns.paid_at.grain": "minute"}),
        "categories": ("[tea, coffee]", "[tea, tea]", {"tables.customer.summaries.visits": "{of: sales, is: mode(product.category), type: string}"}),
        "cuts": ("[1, 2, 3, 5, 10, 20]", "[5, 1]"),
        "nullable": ("true", "often"),
        "measure": ("true", "sum"),
        "quantiles": ("false", "median"),
        "out_of_domain": ("other", "ignore"),
        "other": ("elsewhere", "tea", {"tables.customer.summaries.visits": "{of: sales, is: mode(product.category), type: string, categories: [tea, coffee]}"}),
        "confirm": CONFIRM,
        "description": TEXT,
    }),
    "PrivateKeys": Place("central", "tables.sales.columns.item.categories", {
        "private": ("true", "maybe", FOUND),
        "per_unit": ("20", "0", FOUND),
        "share": ("0.05", "1", FOUND),
        "most": ("5000", "100000", FOUND),
        "known": ("spring.dpsql", '""', FOUND),
        "always": ("[tea, coffee]", "[tea, tea]", FOUND),
        "length": ("300", "0", FOUND),
    }),
    "Cuts": Place("central", "tables.sales.columns.sold_on.cuts", {
        "width": ("month", "fortnight"),
        "at": ("[2025-04-01, 2025-07-01]", "[2025-07-01, 2025-04-01]"),
    }),
    "Levels": Place("central", "tables.customer.columns.city.axis", {
        "levels": ("[state, city]", "[city, state]"),
    }),
    "Reported": Place("central", "tables.customer.columns.region.reported", {
        "epsilon": ("2", "100", {**DROP, "tables.customer.columns.region.reported.collection": "regions"}),
        "mechanism": ("grr", "coin", REPORTS),
        "collection": ("regions", '""', {**DROP, "tables.customer.columns.region.reported.epsilon": "2"}),
        "error_bar": ("bound", "none", REPORTS),
        "nonresponse": ("at_random", "never", REPORTS),
    }),
    "ForeignKey": Place("central", "tables.sales.foreign_keys.product_id", {
        "references": ("product", "products", {"tables.sales.foreign_keys.product_id": "{}"}),
        "on_missing": ("drop", "skip", {"tables.sales.foreign_keys.product_id": "{references: product}"}),
        "nullable": ("true", "often", {"tables.sales.foreign_keys.product_id": "{references: product}"}),
    }),
    "PublicGuess": Place("central", "tables.sales.guess", {
        "units": ("600", "0", SIZE),
        "rows": ("20000", "9", SIZE),
        "most_rows": ("50", "1", SIZE),
        "means": ("{amount: 40}", "{day: 3}", SIZE),
    }),
    "Measure": Place("central", "tables.sales.measures.revenue", {
        "expr": ("amount * quantity", "amount * now()"),
        "lower": ("0", "1000"),
        "upper": ("900", "-1"),
        "scale": ("0", "-1"),
        "nullable": ("true", "often"),
        "confirm": CONFIRM,
        "description": TEXT,
    }),
    "View": Place("central", "views.demand", {
        "of": ("sales", "sale"),
        "axes": ("[customer.age, customer.region]", "[customer.aeg]"),
        "measures": ("{count: 0.4, sales.amount: 0.6}", "{count: 0.6, sales.amount: 0.6}"),
        "share": ("0.5", "2"),
        "mechanism": ("{tree: kary, arity: 4}", "trees"),
        "questions": ("[[[[[0, 1]], [[0, 2]]]]]", "[[[[0, 1]]]]", {"views.demand.mechanism": "asked"}),
        "ways": ("2", "3", CUBE),
        "data_dependent": ("allow", "often"),
        "nonnegative": ("false", "often"),
        "cells": ("100000", "0"),
        "on_partial_bin": ("refuse", "guess"),
        "description": TEXT,
    }),
    "AxisSpec": Place("central", "views.demand.axes.0", {
        "axis": ("customer.age", "customer.aeg", {"views.demand.axes.0": "{}"}),
        "by": ("[category]", "[category, category]", {"views.demand.axes": "[{axis: product}]"}),
        "cuts": ("[30, 45, 65]", "[45, 30]", {"views.demand.axes.0": "{axis: customer.age}"}),
        "workload": ("[[18, 29], [30, 49, 2]]", "[[18, 29, 0]]", {"views.demand.axes.0": "{axis: customer.age}"}),
    }),
    "TreeMechanism": Place("central", "views.demand.mechanism", {
        "tree": ("levels", "tall", {"views.demand.mechanism": "{}"}),
        "arity": ("4", "1", {"views.demand.mechanism": "{tree: kary}"}),
    }),
    "Collection": Place("survey", "collection", {
        "epsilon": ("2", "100"),
        "tau": ("3", "0", ROWS),
        "row_share": ("1/5", "2", {**ROWS, "collection.tau": "estimate"}),
        "row_guess": ("{1: 0.5, 2: 0.3, 5: 0.2}", "{0: 1}", {**ROWS, "collection.tau": "theory"}),
        "joint": ("{all: {axes: [customer.age, customer.region, customer.city], share: 0.2}}",
                  "{all: {axes: [customer.age, customer.region, customer.city], share: 2}}",
                  {"views.people.axes": "[customer.age, customer.region, customer.city]"}),
        "shares": ("{people: 1}", "{person: 1}"),
        "row_weighting": ("none", "mar", {**ROWS, "collection.tau": "2"}),
        "row_bit_cap": ("10", "0", ROWS),
        "shuffled": ("true", "often"),
        "participation": ("random", "some"),
        "everybody": ("50000", "0", {"collection.participation": "random"}),
        "branching": ("4", "1"),
        "kind": ("lprr", "tree"),
        "estimate": ("lle", "maxent", {"views.people.axes": "[customer.age, customer.region, customer.city]"}),
        "services": ("{shop: {axes: [customer.age]}, club: {axes: [customer.region]}}", "{shop: {axes: [customer.age]}}"),
    }),
    "JointGrid": Place("survey", "collection.joint.all", {
        "axes": ("[customer.age, customer.region, customer.city]", "[customer.age]",
                 {"views.people.axes": "[customer.age, customer.region, customer.city]", "collection.joint": "{all: {share: 0.2}}"}),
        "share": ("0.2", "2", {"views.people.axes": "[customer.age, customer.region, customer.city]",
                               "collection.joint": "{all: {axes: [customer.age, customer.region, customer.city]}}"}),
    }),
    "Service": Place("survey", "collection.services.club", {
        "axes": ("[customer.region]", "[customer.aeg]", {"collection.services": "{shop: {axes: [customer.age]}, club: {}}"}),
        "share": ("0.5", "2", {"collection.services": "{shop: {axes: [customer.age], share: 0.5}, club: {axes: [customer.region]}}"}),
        "measures": ("[sales.amount]", "[sales.amuont]", {
            "collection.services": "{shop: {axes: [customer.age]}, club: {axes: [customer.region]}}",
            "views.people.of": "sales", "views.people.measures": "[count, sales.amount]"}),
    }),
    "Stream": Place("stream", "stream", {
        "column": ("sales.sold_on", "sales.amount"),
        "grain": ("week", "fortnight"),
        "strategy": ("spectral", "fast"),
        "horizon": ("365", "0"),
        "ends": ("true", "soon"),
        "workload": ("{running: 2, range: 1, 7: 1}", "{sometimes: 1}"),
        "late": ("batch", "later"),
        "max_batches": ("10", "0"),
    }),
}  # fmt: skip


def read(text: str) -> Any:
    """YAML with every scalar as text, as catalogs are read."""
    return yaml.load(text, yaml.BaseLoader)


def placed(catalog: Any, path: str, value: Any) -> Any:
    """A catalog with a value at a path; what is missing on the way is made."""
    if not path:
        return value
    at, *rest = path.split(".")
    if isinstance(catalog, list):
        return [placed(e, ".".join(rest), value) if str(i) == at else e for i, e in enumerate(catalog)]
    found = catalog if isinstance(catalog, dict) else {}
    return {**found, at: placed(found.get(at), ".".join(rest), value)}


def whole(place: Place, key: str, value: str) -> str:
    """The catalog that a value of a key is tried in."""
    catalog, others = read(BASES[place.base]), dict(*place.keys[key][2:])
    model = others.pop("@", place.path)
    for path, other in others.items():
        catalog = placed(catalog, path, read(other))
    found: str = yaml.safe_dump(placed(catalog, f"{model}.{key}".lstrip("."), read(value)), sort_keys=False)
    return found


def refusal(place: Place, key: str, value: str) -> str:
    """What a catalog says of a mistake: without the line, which is the reader's own.

    Raises:
        AssertionError: it takes it.
    """
    try:
        parse_catalog(whole(place, key, value))
    except CatalogError as error:
        return re.sub(r"^catalog(:\d+)?: ", "", str(error))
    raise AssertionError(f"{place.path}.{key}: {value} is taken")
