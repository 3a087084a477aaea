"""Cells of random tiny stars equal those of a loop over Python's lists, under every bound.

Keys repeat where they may: an order stands in the orders of several people, a person stands twice, a private shop has
several sizes. Numbers are few, so that every clash occurs, and of two hundred rows one unit may have most.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker
from dpsql.central.bounding import OpenSource
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.plan import plan_release
from dpsql.central.planned import ReleasePlan
from dpsql.engines.registry import open_star
from dpsql.noise import ZeroNoise
from tests.engines.test_template import offset
from tests.releases import insert
from tests.strategies import declared_cells

pytestmark = pytest.mark.long

KEY = bytes(range(1, 33))
UNIT = 1 << 20
CATALOG = """
dpsql: 1
name: tiny
source: {kind: parquet, root: ., tables: {sales: sales.parquet, orders: orders.parquet, person: person.parquet,
  shop: shop.parquet}}
privacy: {lineage: tiny, cap: 9, unit: OWNER, epsilon: 1}
tables:
  person: {role: dimension, key: id, private: true, columns: {age: {type: int, lower: 0, upper: 2}}}
  orders: {role: dimension, key: id, private: true, foreign_keys: {person: person}, columns: {
    way: {type: string, categories: [a, b], nullable: true}}}
  shop: {role: dimension, key: id, private: true, columns: {size: {type: int, lower: 0, upper: 2}}}
  sales: {role: fact, foreign_keys: {order_id: orders, shop: shop}, BOUND columns: {
    day: {type: int, lower: 0, upper: 2}, paid: {type: int, lower: -2, upper: 4, measure: true}}}
views:
  a: {of: sales, axes: [person.age, shop.size], measures: [count, sales.paid]}
  b: {of: sales, axes: [orders.way, sales.day], measures: [count, sales.paid]}
  c: {of: sales, axes: [sales.day], measures: [count]}
"""


class Sale(NamedTuple):
    """A counted row."""

    order_id: int | None
    shop: int | None
    day: int | None
    paid: int | None


class Order(NamedTuple):
    """A row on the way to the people."""

    id: int | None
    person: int | None
    way: str | None


class Keyed(NamedTuple):
    """A row of a dimension: a person with her age, a shop with its size."""

    id: int | None
    value: int | None


class Star(NamedTuple):
    """All rows."""

    sales: list[Sale]
    orders: list[Order]
    person: list[Keyed]
    shop: list[Keyed]


KEYS, VALUES = st.sampled_from([0, 1, 2, 3, None]), st.sampled_from([-1, 0, 1, 2, 3, None])
STARS = st.builds(
    Star,
    st.lists(st.builds(Sale, KEYS, KEYS, VALUES, st.sampled_from([-9, -2, 0, 3, 4, 7, None])), max_size=200),
    st.lists(st.builds(Order, KEYS, KEYS, st.sampled_from(["a", "b", "c", None])), max_size=8),
    st.lists(st.builds(Keyed, KEYS, VALUES), max_size=6),
    st.lists(st.builds(Keyed, KEYS, VALUES), max_size=6),
)
TABLES = {
    "sales": "order_id BIGINT, shop BIGINT, day INTEGER, paid INTEGER",
    "orders": "id BIGINT, person BIGINT, way VARCHAR",
    "person": "id BIGINT, age INTEGER",
    "shop": "id BIGINT, size INTEGER",
}


class Placed(NamedTuple):
    """A joined row: its leaf on each axis by the name of its column, and the clamped measure."""

    leaves: dict[str, int]
    paid: int | None


class Loop:
    """The rules of docs/method/rows.md, one row at a time."""

    def __init__(self, plan: ReleasePlan, star: Star) -> None:
        self.axes = {str(planned.resolved.column): planned.axis for planned in plan.axes}
        self.star = star

    def leaf(self, column: str, value: Any) -> int:
        """The leaf of a value."""
        axis, known = self.axes[column], {"way": ["a", "b"]}.get(column, [0, 1, 2])
        if value in known:
            return known.index(value)
        null = axis.null_leaf if value is None else None
        return int(str(axis.other_leaf if null is None else null))

    def missing(self, column: str) -> int:
        """The leaf of a key that names no row."""
        return int(str(self.axes[column].missing_leaf))

    def least(self, column: str, rows: Sequence[Keyed], key: int | None) -> int:
        """Of rows that nobody owns the one of a key with the least leaf."""
        leaves = [self.leaf(column, row.value) for row in rows if row.id == key and key is not None]
        return min(leaves, default=self.missing(column))

    def near(self, sale: Sale, way: int) -> Placed:
        """A row without what hangs on its person."""
        leaves = {
            "size": self.least("size", self.star.shop, sale.shop),
            "way": way,
            "day": self.leaf("day", sale.day),
        }
        return Placed(leaves, None if sale.paid is None else min(max(sale.paid, -2), 4))

    def order_of(self, placed: Placed) -> tuple[int, ...]:
        """Rows of a unit are sorted by leaves in the order of axes, and by the measure, NULL last."""
        return (
            *(placed.leaves[column] for column in self.axes if column in placed.leaves),
            99 if placed.paid is None else placed.paid,
        )

    def rows(self) -> Iterator[Placed]:
        """Every sale alone; of an order or a person that stands twice one row counts."""
        for sale in self.star.sales:
            orders = [o for o in self.star.orders if o.id == sale.order_id is not None]
            found = min(
                ((self.leaf("way", o.way), o.person is None, o.person or 0, o.person) for o in orders),
                default=(self.missing("way"), True, 0, None),
            )
            placed = self.near(sale, found[0])
            yield placed._replace(
                leaves=placed.leaves | {"age": self.least("age", self.star.person, found[3])}
            )

    def units(self) -> Iterator[tuple[int, list[Placed]]]:
        """Each person with her joined rows, in the order in which they are sampled."""
        near: dict[int, list[Placed]] = {}
        for sale in self.star.sales:
            for order in self.star.orders:
                if order.id == sale.order_id is not None and order.person is not None:
                    near.setdefault(order.person, []).append(self.near(sale, self.leaf("way", order.way)))
        for unit, own in near.items():
            ages = sorted(self.leaf("age", p.value) for p in self.star.person if p.id == unit)
            yield (
                unit,
                [
                    row._replace(leaves=row.leaves | {"age": age})
                    for row in sorted(own, key=self.order_of)
                    for age in ages or [self.missing("age")]
                ],
            )

    def counted(self, how: str, tau: int) -> Iterator[tuple[Placed, int]]:
        """The rows that count, each with what it counts for."""
        if how == "row":
            yield from ((row, 1) for row in self.rows())
            return
        for unit, own in self.units():
            n = len(own)
            r = offset(unit, n)
            for i, row in enumerate(own, 1):
                if how == "weight":
                    yield row, UNIT if n <= tau else UNIT * tau // n
                elif n <= tau or (i * tau + r) % n < tau:
                    yield row, 1


def expected(plan: ReleasePlan, counted: Sequence[tuple[Placed, int]]) -> list[Counter[tuple[int, ...]]]:
    """Cells of every statistic that are not 0."""
    names = [str(planned.resolved.column) for planned in plan.axes]
    found = []
    for s in plan.statistics:
        cells: Counter[tuple[int, ...]] = Counter()
        for row, times in counted:
            value = 1 if s.bounds is None else (row.paid or 0) - s.mid
            adds = not s.measure.name.column or row.paid is not None
            cells[tuple(row.leaves[names[axis]] for axis in s.axes)] += times * value * adds
        found.append(Counter({cell: value for cell, value in cells.items() if value}))
    return found


def written(folder: Path, star: Star, how: str, tau: int) -> Path:
    """The star as files, and its catalog."""
    bound = {"row": "", "truncate": f"max_ids: {tau},", "weight": f"max_ids: {tau}, bounding: weight,"}[how]
    owner = "row" if how == "row" else "person.id"
    (folder / "tiny.yaml").write_text(CATALOG.replace("BOUND", bound).replace("OWNER", owner))
    with duckdb.connect() as db:
        for name, columns in TABLES.items():
            db.execute(f"CREATE TABLE {name} ({columns})")
            rows = getattr(star, name)
            if rows:
                insert(db, name, rows)
            db.execute(f"COPY {name} TO '{folder}/{name}.parquet'")
    return folder / "tiny.yaml"


@pytest.mark.parametrize("how", ["row", "weight", "truncate"])
@settings(max_examples=settings.default.max_examples // 4)
@given(star=STARS, tau=st.integers(1, 5))
def test_every_cell_is_that_of_a_loop(how: str, star: Star, tau: int) -> None:
    """By the statement that ships, over all views."""
    with tempfile.TemporaryDirectory() as folder:
        catalog = load_catalog(written(Path(folder), star, how, tau))
        with closing(open_star(catalog)) as raw:
            plan = plan_release(catalog, axis_maker(catalog, raw))
            prepare_tables(catalog, raw, plan)
            cells = declared_cells(OpenSource(catalog, raw, plan, ZeroNoise(), KEY), "sales")
            found = [cells.of(s)[0] for s in plan.statistics]
    told = [Counter({at: int(v) for at, v in np.ndenumerate(cell) if v}) for cell in found]
    assert told == expected(plan, list(Loop(plan, star).counted(how, tau)))
