"""A market of thirty people, and what it costs when one more comes: measurements that planted defects fail."""

from __future__ import annotations

from pathlib import Path

from tests.privacy.loss import Loss, RawRows, measure

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


def market(*owners: tuple[int, int], ordered: int = 1) -> dict[str, RawRows]:
    """Thirty people with an order each, and further rows (order, buyer) with `ordered` sales of each new order."""
    sales = [(i, DAYS[(i + j) % 4]) for i in range(PEOPLE) for j in range(4)]
    sales += [(order, DAYS[j % 2]) for order, _ in owners if order >= PEOPLE for j in range(ordered)]
    return {
        "sales": RawRows("order_id INT, day DATE", sales),
        "orders": RawRows("order_id INT, buyer INT", [*((i, i) for i in range(PEOPLE)), *owners]),
        "person": RawRows("id INT", [(i,) for i in range(PEOPLE)]),
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
    """The same where bounds, totals and weights are chosen at publish."""
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
        "sales": RawRows(right["sales"].columns, [r for r in right["sales"].rows if r[0] != 51] + days)
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
