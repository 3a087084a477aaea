"""A small release for the interfaces' tests: a shop of 400 people, published with repeatable draws.

The stamp `insecure_entropy` is taken off this copy, so that commands open it as they open a real one. Thirty modules
take the same shop: a run of the tests publishes it once (`ORIGINALS`, set by tests/conftest.py), and each gets a
copy that it may write to.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import random
import shutil
from pathlib import Path

from dpsql.scratch import scratch

CATALOG = """
dpsql: 1
name: shop
population: shop-people
source: {kind: parquet, root: ".", tables: {sales: sales.parquet, customer: customer.parquet, product: product.parquet}}
privacy: {lineage: shop, cap: 2000, unit: customer.customer_id, neighbours: add_remove, epsilon: 80, delta: 0}
tables:
  customer:
    role: dimension
    key: customer_id
    private: true
    columns:
      age: {type: int, lower: 20, upper: 59, description: full years}
      region: {type: string, categories: [east, west], nullable: true}
  product:
    role: dimension
    key: product_id
    private: false
    columns: {category: {type: string}}
  sales:
    role: fact
    max_ids: 20
    foreign_keys: {customer_id: customer, product_id: product}
    columns:
      amount: {type: decimal, scale: 2, lower: 0, upper: 100, measure: true}
      sold_on: {type: date, lower: 2025-01-01, upper: 2025-12-31}
views:
  demand: {of: sales, axes: [customer.age, customer.region], measures: {count: 0.5, sales.amount: 0.5}, share: 0.4}
  trend: {of: sales, axes: [{axis: sales.sold_on, cuts: {width: month}}, {axis: product, by: [category]}],
    measures: {count: 0.5, sales.amount: 0.5}, share: 0.4}
  people: {of: customer, axes: [{axis: customer.age, cuts: [30, 40, 50]}], measures: [count], share: 0.2}
"""


ORIGINALS: Path | None = None
"""Where processes of one run keep the shops that they published."""


def build(folder: Path, seed: int = 7, name: str = "shop", text: str = CATALOG) -> Path:
    """A folder with the shop, its catalog, its ledger and its release.

    Args:
        folder: made if it is absent.
        seed: of the rows and the draws.
        name: of the catalog and the file.
        text: of the catalog, about the same tables.

    Returns:
        The release.
    """
    if ORIGINALS is None:
        return publish(folder, seed, name, text)
    original = ORIGINALS / hashlib.sha256(repr((seed, name, text)).encode()).hexdigest()[:16]
    ORIGINALS.mkdir(exist_ok=True)
    with (ORIGINALS / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not original.exists():
            _publish_alone(original, seed, name, text)
    shutil.copytree(original, folder, dirs_exist_ok=True)
    return folder / f"{name}.dpsql"


def _publish_alone(folder: Path, seed: int, name: str, text: str) -> None:
    """Publish so that neither the memory nor the entropy of the test that comes first differs from another's."""
    from tests.conftest import ENTROPY

    partial, state = folder.with_suffix(".partial"), os.environ["DPSQL_STATE"]
    os.environ["DPSQL_STATE"] = str(folder.with_suffix(".state"))
    try:
        with ENTROPY.stream(f"the shop {name} {seed}"):
            publish(partial, seed, name, text)
    finally:
        os.environ["DPSQL_STATE"] = state
    partial.rename(folder)


def publish(folder: Path, seed: int, name: str, text: str) -> Path:
    """Publish the shop; see `build`."""
    from dpsql.catalog import load_catalog
    from dpsql.central.central import publish_release
    from dpsql.noise import ExactNoise, insecure_test_entropy

    folder.mkdir(parents=True, exist_ok=True)
    _raw_tables(folder, seed)
    catalog, target = folder / f"{name}.yaml", folder / f"{name}.dpsql"
    catalog.write_text(text.replace("name: shop", f"name: {name}"), encoding="utf-8")
    noise = ExactNoise(insecure_test_entropy(seed))
    publish_release(load_catalog(catalog), target, noise=noise, key=bytes(32))
    unstamp(target)
    return target


def unstamp(release: Path) -> None:
    """Make a test release look like a real one: it holds made-up rows only."""
    release.chmod(0o644)
    with scratch(release) as connection:
        connection.execute("UPDATE meta SET value = 'false' WHERE key = 'insecure_entropy'")
        connection.execute(f"UPDATE meta SET value = '{json.dumps('0' * 32)}' WHERE key = 'release_id'")
    release.chmod(0o444)


def digest(path: Path) -> str:
    """sha256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _raw_tables(folder: Path, seed: int) -> None:
    dice = random.Random(seed)
    customers = [(i, dice.randint(20, 59), dice.choice(["east", "west", "west", None])) for i in range(400)]
    products = [(0, "tea"), (1, "coffee"), (2, "cake")]
    sales = [
        (dice.randrange(400), dice.choice((0, 0, 1, 2)), round(dice.uniform(1, 99), 2), dice.randrange(365))
        for _ in range(3000)
    ]
    with scratch() as connection:
        connection.execute(
            "CREATE TABLE customer AS SELECT unnest(?)::INTEGER AS customer_id, unnest(?)::INTEGER AS age, "
            "unnest(?)::VARCHAR AS region",
            [list(column) for column in zip(*customers, strict=True)],
        )
        connection.execute("CREATE TABLE product (product_id INTEGER, category VARCHAR)")
        connection.executemany("INSERT INTO product VALUES (?, ?)", products)
        connection.execute(
            "CREATE TABLE sales AS SELECT unnest(?)::INTEGER AS customer_id, unnest(?)::INTEGER AS product_id, "
            "unnest(?)::DECIMAL(9, 2) AS amount, DATE '2025-01-01' + unnest(?)::INTEGER AS sold_on",
            [list(column) for column in zip(*sales, strict=True)],
        )
        for table in ("customer", "product", "sales"):
            connection.execute(f"COPY {table} TO '{folder / (table + '.parquet')}' (FORMAT parquet)")
