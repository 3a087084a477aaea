"""A tiny star made by hand, as plain DuckDB tables and as a release without noise.

    sales(sale_id, customer_id -> customer, product_id -> product, sold_on, amount, qty)
    customer(customer_id, age, region)                 private; NULL regions, ages out of domain
    product(product_id, price, category_id -> category) public
    category(category_id, category, department)        public, one hop further

Some sales have no customer or name one that does not exist (MISSING), some customers have a region that
is NULL and some an age that the catalog does not know (OTHER). `price` is cut into bins of 5.
"""

from __future__ import annotations

import datetime
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import yaml

from dpsql.catalog.base import MeasureName
from dpsql.matrices.model import IdentityVariance
from dpsql.release.format import UNIT, AxisMeta, ColumnMeta, Meta, Promise, StatisticMeta
from dpsql.release.reports import LocalMeta
from dpsql.release.write import ARRAYS, AxisPart, ReleaseBuilder, StatisticContent, StatisticPart
from dpsql.tree import kary_tree
from tests.releases import insert

Row = dict[str, Any]
HAND_WRITTEN = "fixture"
"""The id of the release that `write_fixture` writes: no rows are published for it."""
FIRST_DAY = datetime.date(2025, 1, 1)
DAYS = 90
REGIONS = ("north", "south", "east", "west")
CATEGORIES = (("tea", "drinks"), ("coffee", "drinks"), ("bread", "food"), ("cake", "food"), ("jam", "food"))
AGES = range(18, 40)

CATALOG: dict[str, Any] = yaml.safe_load("""
dpsql: 1
name: shop
privacy: {lineage: shop, cap: "4", unit: row, epsilon: "1"}
tables:
  sales:
    role: fact
    foreign_keys: {customer_id: {references: customer}, product_id: {references: product}}
    columns:
      sold_on: {type: date}
      amount: {type: decimal, scale: 2, lower: "-25", upper: "25", measure: true}
      qty: {type: int, lower: "-10", upper: "10", measure: true, nullable: true}
    measures: {revenue: {expr: amount * qty, lower: "-225", upper: "225"}}
  customer: {role: dimension, key: customer_id, private: true, columns: {
    age: {type: int}, region: {type: string, nullable: true}}}
  product: {role: dimension, key: product_id, private: false,
    foreign_keys: {category_id: {references: category}}, columns: {price: {type: int}}}
  category: {role: dimension, key: category_id, private: false, columns: {
    category: {type: string}, department: {type: string}}}
""")


@dataclass(frozen=True)
class AxisPlan:
    """An axis of the fixture: its atoms, and which leaf a row falls into.

    Args:
        meta: what the release says about it.
        atoms: (leaf, values of the columns) of each atom of the domain.
        leaf: row of the joined star -> leaf.
    """

    meta: AxisMeta
    atoms: Sequence[tuple[int, tuple[Any, ...]]]
    leaf: Callable[[Row], int]


def _axis(
    name: str,
    path: tuple[str, ...],
    columns: list[tuple[tuple[str, ...], str, str, str]],
    atoms: list[tuple[int, tuple[Any, ...]]],
    special: str,
    leaf: Callable[[Row, dict[str, int]], int],
    of: str = "sales",
) -> AxisPlan:
    """One axis; `special` names its extra leaves by their letters: n(ull), m(issing), o(ther)."""
    size = max(which for which, _ in atoms) + 1
    extra = {letter: size + i for i, letter in enumerate(special)}
    metas = tuple(ColumnMeta(p, t, c, c, kind) for p, t, c, kind in columns)
    meta = AxisMeta(
        name=name,
        table=columns[0][1],
        path=path,
        of=of,
        leaves=size + len(special),
        null_leaf=extra.get("n"),
        missing_leaf=extra.get("m"),
        other_leaf=extra.get("o"),
        atomic=True,
        columns=metas,
        model=0,
        strategy="identity",
    )
    return AxisPlan(meta, atoms, lambda row: leaf(row, extra))


def axis_plans() -> list[AxisPlan]:
    """age, region, category, day, price, and the customer's own age and region (for views of customer)."""
    days = [FIRST_DAY + datetime.timedelta(days=i) for i in range(DAYS)]
    customer, product = ("customer_id",), ("product_id",)

    def age(row: Row, extra: dict[str, int]) -> int:
        if "m" in extra and not row["has_customer"]:
            return extra["m"]
        return row["age"] - AGES.start if row["age"] in AGES else extra["o"]

    def region(row: Row, extra: dict[str, int]) -> int:
        if not row["has_customer"]:
            return extra["m"]
        return extra["n"] if row["region"] is None else REGIONS.index(row["region"])

    return [
        _axis("customer.age", customer, [(customer, "customer", "age", "INTEGER")],
              [(i, (value,)) for i, value in enumerate(AGES)], "mo", age),
        _axis("customer.region", customer, [(customer, "customer", "region", "VARCHAR")],
              [(i, (value,)) for i, value in enumerate(REGIONS)], "nm", region),
        _axis("category", product, [((*product, "category_id"), "category", "category", "VARCHAR"),
                                    ((*product, "category_id"), "category", "department", "VARCHAR")],
              list(enumerate(CATEGORIES)), "", lambda row, extra: row["category_id"]),
        _axis("sales.sold_on", (), [((), "sales", "sold_on", "DATE")], [(i, (day,)) for i, day in enumerate(days)], "",
              lambda row, extra: (row["sold_on"] - FIRST_DAY).days),
        _axis("product.price", product, [(product, "product", "price", "INTEGER")],
              [(value // 5, (value,)) for value in range(30)], "", lambda row, extra: row["price"] // 5),
        _axis("customer.age", (), [((), "customer", "age", "INTEGER")],
              [(i, (value,)) for i, value in enumerate(AGES)], "o", age, "customer"),
        _axis("customer.region", (), [((), "customer", "region", "VARCHAR")],
              [(i, (value,)) for i, value in enumerate(REGIONS)], "n", region, "customer"),
    ]  # fmt: skip


VIEWS: dict[str, tuple[str, tuple[int, ...], tuple[str, ...]]] = {
    "demand": ("sales", (0, 1, 2), ("count", "sales.amount", "sales.qty", "count(sales.qty)")),
    "trend": ("sales", (3, 2), ("count", "sales.amount")),
    "prices": ("sales", (4, 1), ("count", "sales.revenue")),
    "people": ("customer", (5, 6), ("count",)),
}
SCALES = {"sales.amount": 2, "sales.revenue": 2}
LARGEST = {"sales.amount": 1250, "sales.qty": 5, "sales.revenue": 2500 * 9}
MIDS = {"sales.amount": 1250, "sales.qty": 5, "sales.revenue": 0}


def make_rows(seed: int = 5, sales: int = 900) -> dict[str, list[Row]]:
    """Rows of all tables; the sales carry their joined columns too."""
    draw = random.Random(seed)
    customers = [
        {"customer_id": i, "age": draw.choice([*AGES, *AGES, 17, 44]), "region": draw.choice([*REGIONS, None]),
         "has_customer": True}
        for i in range(120)
    ]  # fmt: skip
    products = [
        {"product_id": i, "price": draw.randrange(30), "category_id": draw.randrange(5)} for i in range(40)
    ]
    nobody = {"age": None, "region": None, "has_customer": False}
    found = []
    for i in range(sales):
        owner = draw.choice([*range(120), *range(120), None, 999])
        product = draw.choice(products)
        person = customers[owner] if owner is not None and owner < 120 else nobody
        found.append({
            **person, **product, "sale_id": i, "customer_id": owner, "cents": draw.randrange(2500),
            "qty": draw.choice([None, *range(1, 10)]),
            "sold_on": FIRST_DAY + datetime.timedelta(days=draw.randrange(DAYS)),
        })  # fmt: skip
    return {"sales": found, "customer": customers, "product": products}


def raw_star(rows: dict[str, list[Row]], known_only: bool = False) -> duckdb.DuckDBPyConnection:
    """The star as plain tables: the oracle.

    Args:
        rows: from `make_rows`.
        known_only: ages out of the domain become NULL, since a release cannot compare them.
    """
    con = duckdb.connect()
    con.execute(
        "CREATE TABLE sales (sale_id INT, customer_id INT, product_id INT, sold_on DATE,"
        " amount DECIMAL(9, 2), qty INT)"
    )
    sales = [[r["sale_id"], r["customer_id"], r["product_id"], r["sold_on"], Decimal(r["cents"]).scaleb(-2), r["qty"]]
             for r in rows["sales"]]  # fmt: skip
    insert(con, "sales", sales)
    con.execute("CREATE TABLE customer (customer_id INT, age INT, region VARCHAR)")
    people = [
        [r["customer_id"], r["age"] if r["age"] in AGES or not known_only else None, r["region"]]
        for r in rows["customer"]
    ]
    insert(con, "customer", people)
    con.execute("CREATE TABLE product (product_id INT, price INT, category_id INT)")
    insert(con, "product", [[r["product_id"], r["price"], r["category_id"]] for r in rows["product"]])
    con.execute("CREATE TABLE category (category_id INT, category VARCHAR, department VARCHAR)")
    insert(con, "category", [[i, *pair] for i, pair in enumerate(CATEGORIES)])
    return con


def _value(row: Row, measure: str) -> int | None:
    """What a row adds to a statistic, in its stored integers."""
    qty = row.get("qty")
    values = {
        "count": 1,
        "sales.qty": None if qty is None else qty - MIDS["sales.qty"],
        "count(sales.qty)": None if qty is None else 1,
    }
    if measure in values:
        return values[measure]
    if measure == "sales.amount":
        return int(row["cents"]) - MIDS["sales.amount"]
    return None if qty is None else int(row["cents"]) * int(qty)


def _statistic(rows: list[Row], plans: list[AxisPlan], measure: str) -> StatisticContent:
    leaves = np.zeros([plan.meta.leaves for plan in plans], np.int64)
    for row in rows:
        value = _value(row, measure)
        if value is not None:
            leaves[tuple(plan.leaf(row) for plan in plans)] += value
    nodes = leaves
    for position, plan in enumerate(plans):
        tree = kary_tree(plan.meta.leaves, 3)
        prefix = np.concatenate(
            [np.zeros_like(nodes.take([0], position)), np.cumsum(nodes, position)], position
        )
        nodes = prefix.take(tree.hi, position) - prefix.take(tree.lo, position)
    return StatisticContent(leaves, np.ones_like(leaves), nodes * UNIT)


def _axis_part(plan: AxisPlan, model: int) -> AxisPart:
    meta = replace(plan.meta, model=model)
    leaf = [which for which, _ in plan.atoms]
    kind = [0] * len(leaf)
    for special, code in ((meta.null_leaf, 1), (meta.missing_leaf, 2), (meta.other_leaf, 3)):
        if special is not None:
            leaf.append(special)
            kind.append(code)
    order = np.argsort(leaf, kind="stable")
    weight = 1.0 / np.bincount(leaf)[leaf]
    values = [values for _, values in plan.atoms] + [(None,) * len(meta.columns)] * (
        len(leaf) - len(plan.atoms)
    )
    arrays: dict[str, Any] = {
        "atom": np.arange(len(leaf)),
        "leaf": np.array(leaf)[order],
        "kind": np.array(kind)[order],
        "weight": weight[order],
    }
    casts = [
        "CAST(atom AS INTEGER) AS atom",
        "CAST(leaf AS INTEGER) AS leaf",
        "CAST(kind AS TINYINT) AS kind",
        "weight",
    ]
    for i, column in enumerate(meta.columns):
        texts = [None if values[o][i] is None else str(values[o][i]) for o in order]
        arrays[column.name] = np.array(texts, dtype=object)
        casts.append(f"CAST({column.name} AS {column.type}) AS {column.name}")
    return AxisPart(
        meta, arrays, f"SELECT {', '.join(casts)} FROM {ARRAYS} ORDER BY atom", kary_tree(meta.leaves, 3)
    )


def write_fixture(path: Path, rows: dict[str, list[Row]], noise: float = 1.0) -> Path:
    """Write the star as a release without noise.

    Args:
        path: the file.
        rows: from `make_rows`.
        noise: variance that every leaf combination claims; the values have none.

    Returns:
        The path.
    """
    plans = axis_plans()
    statistics: list[StatisticPart] = []
    for view, (of, axes, measures) in VIEWS.items():
        chosen = [plans[i] for i in axes]
        source = rows[of]
        for measure in measures:
            content = _statistic(source, chosen, measure)
            full = tuple(range(len(axes)))
            meta = StatisticMeta(
                id=len(statistics), view=view, of=of, measure=MeasureName(measure), axes=axes, mid=MIDS.get(measure, 0),
                scale=SCALES.get(measure, 0), kind="int", sensitivity=LARGEST.get(measure, 1), budget="1",
                currency="epsilon",
                mechanism="none", cells=int(content.value.size), reading="product", models=axes,
                components=_independent(full, chosen, noise),
            )  # fmt: skip
            statistics.append(StatisticPart(meta, content))
    axes = [_axis_part(plan, i) for i, plan in enumerate(plans)]
    models = [IdentityVariance(plan.meta.leaves, 1.0) for plan in plans]
    promise = Promise(unit="row", neighbours="add_remove", epsilon="1")
    ReleaseBuilder(HAND_WRITTEN, CATALOG, "0", promise, [], False, axes, models, statistics).write(path)
    return path


def bare_meta(name: str, promise: Promise, local: LocalMeta | None = None) -> Meta:
    """What a release without axes or statistics says about itself."""
    return Meta(name, CATALOG, "0", promise, (), False, (), (), (), local=local)


def _independent(full: tuple[int, ...], plans: list[AxisPlan], noise: float) -> tuple[Any, ...]:
    """Components of independent leaf combinations of one variance: u'u on every axis.

    u'u splits into the remainder (u'u - n (u.1/n)^2) and n (u.1/n)^2, so a subset T gets noise * prod of the
    n_i outside T.
    """
    found = []
    for bits in range(2 ** len(full)):
        subset = tuple(i for i in full if bits >> i & 1)
        rest = [plans[i].meta.leaves for i in full if i not in subset]
        found.append((subset, noise * float(np.prod(rest, dtype=np.float64))))
    return tuple(found)
