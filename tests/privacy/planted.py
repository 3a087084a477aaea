"""Defects that once stood here, each put back through a small seam: whoever measures promises must find them all.

A plant names what it breaks, patches one attribute, and says by which measurement it is found. To add one: write a
function that measures (above 1 means found) and a line in `PLANTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from dpsql.publishing import bounding, plan
from dpsql.publishing.userlevel import choose, shapes
from dpsql.star import resolve, source
from dpsql.star.sql.rowlocal import trusted_select
from dpsql.streams import plan as stream_plan
from tests.privacy.loss import Loss, Rows, Tables, measure

MARKET = """
dpsql: 1
name: market
ledger: LEDGER
source: {kind: parquet, root: ROOT, tables: {sales: sales.parquet, orders: orders.parquet, person: person.parquet}}
privacy: {lineage: market, cap: 9, unit: person.id, epsilon: 1, neighbours: NEIGHBOURS}
tables:
  person: {role: dimension, key: id, private: true}
  orders: {role: dimension, key: order_id, private: true, foreign_keys: {buyer: person}}
  sales: {role: fact, foreign_keys: {order_id: orders}, max_ids: 2, bounding: BOUNDING,
    columns: {day: {type: date, lower: 2025-01-01, upper: 2025-01-04}}}
STREAM
views:
  v: {of: sales, axes: [sales.day], measures: [count]}
"""
DAYS = [f"2025-01-0{day}" for day in range(1, 5)]
PEOPLE = 30


def market(*owners: tuple[int, int], ordered: int = 1) -> Tables:
    """Thirty people with an order each, and further rows (order, buyer) with `ordered` sales of each new order."""
    sales = [(i, DAYS[(i + j) % 4]) for i in range(PEOPLE) for j in range(4)]
    sales += [(order, DAYS[j % 2]) for order, _ in owners if order >= PEOPLE for j in range(ordered)]
    return {
        "sales": Rows("order_id INT, day DATE", sales),
        "orders": Rows("order_id INT, buyer INT", [*((i, i) for i in range(PEOPLE)), *owners]),
        "person": Rows("id INT", [(i,) for i in range(PEOPLE)]),
    }


def written(bounding: str = "truncate", neighbours: str = "add_remove", stream: bool = False) -> str:
    days = "stream: {column: sales.day, grain: day, horizon: 4, max_batches: 2}" if stream else ""
    return MARKET.replace("BOUNDING", bounding).replace("NEIGHBOURS", neighbours).replace("STREAM", days)


def shared_keys(folder: Path) -> Loss:
    """One more person with everybody's order numbers."""
    return measure(written(), market(*((i, -1) for i in range(PEOPLE))), market(), folder)


def heavy(folder: Path, bounding: str = "truncate") -> Loss:
    """One more person with five hundred sales."""
    return measure(written(bounding), market((50, 99), ordered=500), market(), folder)


def weighed(folder: Path) -> Loss:
    """The same under weights."""
    return heavy(folder, "weight")


def chosen(folder: Path, delta: str = "1e-6") -> Loss:
    """The same where bounds, totals, weights and differences are chosen at publish."""
    catalog = written().replace("max_ids: 2, bounding: truncate", "max_ids: auto")
    catalog = catalog.replace("epsilon: 1,", f"epsilon: 1, delta: {delta},")
    return measure(catalog, market((50, 99), ordered=500), market(), folder)


def chosen_pure(folder: Path) -> Loss:
    """The same under pure epsilon."""
    return chosen(folder, "0")


def replaced(folder: Path) -> Loss:
    """One heavy person in another's place."""
    left, right = market((50, 98), ordered=9), market((51, 99), ordered=9)
    days = [(order, DAYS[3]) for order, _ in right["sales"].rows if order == 51]
    right = right | {
        "sales": Rows(right["sales"].columns, [r for r in right["sales"].rows if r[0] != 51] + days)
    }
    return measure(written(neighbours="replace_one"), left, right, folder)


def streamed(folder: Path) -> Loss:
    """One heavy person in two batches."""
    return measure(written(stream=True), market((50, 99), ordered=20), market(), folder, batches=DAYS)


LATE = "CASE WHEN max(order_id) OVER () >= 50 THEN DATE '2025-01-01' ELSE day END"


def windowed(folder: Path) -> Loss:
    """A source whose rows follow from everybody's."""
    source = f"SELECT order_id, {LATE} AS day FROM 'sales.parquet'"
    return measure(
        written().replace("sales: sales.parquet", f'sales: "{source}"'), market((50, 99)), market(), folder
    )


class Plant(NamedTuple):
    """A defect.

    Args:
        name: what is broken, in words.
        seam: module or class, and the attribute that is replaced.
        broken: what stands there instead, made from what stood there.
        measured: the measurement that finds it: its share passes 1.
        refused: whether the catalog is refused where nothing is planted.
    """

    name: str
    seam: tuple[object, str]
    broken: Callable[..., object]
    measured: Callable[[Path], Loss]
    refused: bool = False


PLANTS = (
    Plant("one row of a shared key is kept", (resolve, "is_own"), lambda was: lambda *_: False, shared_keys),
    Plant(
        "twice max_ids rows are kept",
        (bounding, "Sampled"),
        lambda was: lambda tau, coefficients: was(2 * tau, coefficients),
        heavy,
    ),
    Plant(
        "weights add up to twice max_ids",
        (bounding, "Weighed"),
        lambda was: lambda tau: was(2 * tau),
        weighed,
    ),
    Plant(
        "replacing costs as little as adding",
        (plan, "_spend"),
        lambda was: lambda catalog, charge, norm: charge,
        replaced,
    ),
    Plant(
        "a person stands in two bins",
        (choose, "people_per_bin"),
        lambda was: lambda *given: 2 * was(*given),
        chosen,
    ),
    Plant(
        "a total is clipped at twice its bound",
        (choose, "clipped_total"),
        lambda was: lambda *given: was(*given[:3], 2 * given[3]),
        chosen,
    ),
    Plant(
        "weights leave twice the norm that noise covers",
        (shapes, "make_weights"),
        lambda was: lambda *given: was(*given[:3], 4 * given[3]),
        chosen,
    ),
    Plant(
        "differences reach twice as far as noise covers",
        (shapes, "make_differences"),
        lambda was: lambda *given: was(*given[:5], 4 * given[5]),
        chosen,
    ),
    Plant(
        "views have the noise of rho = mu^2",
        (shapes, "whitened_draw"),
        lambda was: lambda table, whitening, clip, mu2: was(table, whitening, clip, 2 * mu2),
        chosen,
    ),
    Plant(
        "people count for twice the rows that Laplace noise covers",
        (shapes, "make_pure_weights"),
        lambda was: lambda *given: was(*given[:3], 2 * given[3], *given[4:]),
        chosen_pure,
    ),
    Plant(
        "a stream's noise covers one batch of a person",
        (stream_plan.StreamPlan, "price"),
        lambda was: property(lambda self: Fraction(1)),
        streamed,
    ),
    Plant(
        "a SELECT over private rows is believed",
        (source, "checked_select"),
        lambda was: lambda text, arms: trusted_select(text),
        windowed,
        refused=True,
    ),
)


def is_found(plant: Plant, folder: Path) -> bool:
    """Whether the defect shows once it is put back."""
    where, attribute = plant.seam
    with mock.patch.object(where, attribute, plant.broken(getattr(where, attribute))):
        return plant.measured(folder).share > 1
