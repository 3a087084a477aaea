"""Figures of counting raw rows: CPU against the plain GROUP BYs of the same views, best of three, and memory.

Counting is everything between open tables and exact integers. The whole publish is measured from its plan on: counting,
real noise, estimates, digests for the ledger, the file and the ledger's commit. Every measurement is a process of its
own, so that memory is its own too; rounds take turns, so that other work on the machine falls on all alike.

Values come from DuckDB's hash of the row number, so a size always gives the same star. Customers are skewed (the cube
of a uniform number), 1% of the amounts are NULL, 1% of the keys lead nowhere, and a few regions are unknown.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import duckdb

from benchmarks.figures import Figures, main
from benchmarks.processes import alone, cpu_of, peak_mib
from dpsql.api import publish
from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker
from dpsql.central.bounding import OpenSource, draw_release
from dpsql.central.placed_rows import prepare_tables
from dpsql.central.plan import plan_release
from dpsql.engines.registry import open_star
from dpsql.noise import ZeroNoise
from dpsql.progress import Stage
from tests.releases import write_tables

CATALOG = """
dpsql: 1
name: scale
source: {{kind: parquet, root: "{root}", tables: {{
  sales: sales.parquet, customer: customer.parquet, product: product.parquet}}}}
privacy: {{lineage: scale, cap: 100, unit: {unit}, epsilon: 1, delta: {delta}}}
tables:
  customer: {{role: dimension, key: customer_id, private: true, columns: {{
    age: {{type: int, lower: 18, upper: 89}},
    region: {{type: string, categories: [north, south, east, west, abroad]}}}}}}
  product: {{role: dimension, key: product_id, private: false, columns: {{
    price: {{type: int, lower: 0, upper: 199, cuts: {{width: 10}}}},
    category: {{type: string}}}}}}
  sales: {{role: fact, foreign_keys: {{customer_id: customer, product_id: product}}, {bounds} columns: {{
    amount: {{type: decimal, scale: 2, lower: 0, upper: 500, measure: true}},
    quantity: {{type: int, lower: 0, upper: 20, measure: true}},
    sold_on: {{type: date, lower: 2025-01-01, upper: 2025-12-31, cuts: {{width: month}}}},
    channel: {{type: string, categories: [web, shop, phone]}}}}}}
views:
  demand: {{of: sales, axes: [customer.age, product.price], measures: {{count: 0.5, sales.amount: 0.5}}, share: 0.4}}
  trend: {{of: sales, axes: [sales.sold_on, customer.region], measures: {{count: 0.5, sales.amount: 0.5}}, share: 0.3}}
  mix: {{of: sales, axes: [product.category, sales.channel], measures: {{count: 0.5, sales.quantity: 0.5}}, share: 0.3}}
"""

PLAIN = (
    "SELECT age, price // 10 AS price, count(*), sum(amount) FROM sales JOIN customer USING (customer_id) "
    "JOIN product USING (product_id) GROUP BY ALL",
    "SELECT month(sold_on) AS month, region, count(*), sum(amount) FROM sales JOIN customer USING (customer_id) "
    "GROUP BY ALL",
    "SELECT category, channel, count(*), sum(quantity) FROM sales JOIN product USING (product_id) GROUP BY ALL",
)
"""The same three views as anybody would write them, without a promise."""

BOUNDS = {
    "row": "",
    "truncate": "max_ids: 10,",
    "weight": "max_ids: 10, bounding: weight,",
    "auto": "max_ids: auto,",
    "delta": "max_ids: auto,",
}


def make_star(folder: Path, facts: int, customers: int = 200_000, products: int = 5_000) -> None:
    """Write the three tables.

    Args:
        folder: where they go.
        facts, customers, products: rows of each.
    """
    tables = {
        "customer": f"SELECT i AS customer_id, (15 + hash(i) % 80)::INTEGER AS age, "
        f"['north', 'south', 'east', 'west', 'abroad', 'moon'][(1 + hash(i, 1) % 6)::INTEGER] AS region "
        f"FROM range({customers}) t(i)",
        "product": f"SELECT i AS product_id, (hash(i, 2) % 200)::INTEGER AS price, 'c' || hash(i, 3) % 10 AS category "
        f"FROM range({products}) t(i)",
        "sales": f"SELECT CASE WHEN hash(i, 4) % 100 = 0 THEN -1 ELSE "
        f"floor({customers} * pow(hash(i, 5)::DOUBLE / 18446744073709551616.0, 3))::BIGINT END AS customer_id, "
        f"(hash(i, 6) % {products})::BIGINT AS product_id, "
        "CASE WHEN hash(i, 7) % 100 > 0 THEN (hash(i, 8) % 60000 / 100)::DECIMAL(12, 2) END AS amount, "
        "(hash(i, 9) % 22)::INTEGER AS quantity, DATE '2025-01-01' + (hash(i, 10) % 370)::INTEGER AS sold_on, "
        f"['web', 'shop', 'phone', 'fax'][(1 + hash(i, 11) % 4)::INTEGER] AS channel FROM range({facts}) t(i)",
    }
    write_tables(folder, tables)


def write_catalog(folder: Path, bounding: str) -> Path:
    """A catalog over the star.

    Args:
        folder: where the tables are.
        bounding: `row`, `truncate`, `weight` or `auto`; `delta` is `auto` with a delta.
    """
    file = folder / f"{bounding}.yaml"
    unit = "row" if bounding == "row" else "customer.customer_id"
    delta = "1e-6" if bounding == "delta" else "0"
    file.write_text(CATALOG.format(root=folder, unit=unit, bounds=BOUNDS[bounding], delta=delta))
    return file


TO_REACH = {"row": 1.8, "weight": 2.6, "truncate": 4.0, "auto": 6.0, "delta": 8.0}
"""CPU of counting over that of the plain statements; `auto`, and `delta`, the same with a delta, are aims."""


def plain(folder: Path) -> float:
    """Processor seconds of the plain statements."""
    with duckdb.connect() as db:
        for table in ("sales", "customer", "product"):
            db.execute(f"CREATE VIEW {table} AS FROM '{folder / table}.parquet'")
        return cpu_of(lambda: [db.execute(statement).fetchall() for statement in PLAIN])


def counting(folder: Path, bounding: str) -> float:
    """Processor seconds from open tables to exact integers, under a bound."""
    catalog = load_catalog(write_catalog(folder, bounding))
    with closing(open_star(catalog)) as raw:
        plan = plan_release(catalog, axis_maker(catalog, raw))
        start = time.process_time()
        prepare_tables(catalog, raw, plan)
        draw_release(OpenSource(catalog, raw, plan, ZeroNoise(), bytes(32)), lambda step: None)
        return time.process_time() - start


def publishing(folder: Path, bounding: str) -> float:
    """Processor seconds of a whole publish after its plan."""
    planned: list[float] = []

    def note(stage: Stage) -> None:
        if stage.doing == "planned":
            planned.append(time.process_time())

    with tempfile.TemporaryDirectory() as name:
        catalog = Path(name) / "scale.yaml"
        catalog.write_text(write_catalog(folder, bounding).read_text())
        publish(catalog, Path(name) / "scale.dpsql", progress=note)
        return time.process_time() - planned[0]


def one(folder: Path, what: str) -> tuple[float, float]:
    """CPU seconds of one thing in this process, and the most that the process held, in MB."""
    step, _, bounding = what.partition(" ")
    cpu = (
        plain(folder)
        if step == "plain"
        else {"counting": counting, "publishing": publishing}[step](folder, bounding)
    )
    return cpu, peak_mib()


def measure(
    figures: Figures,
    folder: Path,
    bounding: Sequence[str] = tuple(TO_REACH),
    *,
    facts: int = 10_000_000,
    runs: int = 3,
) -> None:
    """Count so many facts under each bound, so often."""
    make_star(folder, facts)
    steps = ["plain", *(f"{step} {bound}" for bound in bounding for step in ("counting", "publishing"))]
    taken: dict[str, list[list[float]]] = {what: [] for what in steps}
    for what in steps * runs:
        taken[what].append(alone("benchmarks.scale.measure", "--one", folder, what))
    least = {what: min(cpu for cpu, _ in costs) for what, costs in taken.items()}
    largest = {what: max(megabytes for _, megabytes in costs) for what, costs in taken.items()}
    floor = least["plain"]
    print(f"plain GROUP BYs of {facts:,} facts: {floor:.2f} s, {largest['plain']:.0f} MB", flush=True)
    for bound in bounding:
        count, whole = (f"{step} {bound}" for step in ("counting", "publishing"))
        title = f"counting by {bound}, CPU over the plain GROUP BYs"
        figures.at_most(title, least[count] / floor, TO_REACH[bound])
        figures.table(f"publishing by {bound} after the plan, CPU over counting", least[whole] / least[count])
        most = max(largest[count], largest[whole])
        figures.at_most(f"publishing by {bound}, resident MB", most, 2048)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(Path(sys.argv[2]), sys.argv[3])))
    else:
        main(measure)
