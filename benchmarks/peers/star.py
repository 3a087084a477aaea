"""The star that every engine is asked about, and the questions.

A million sales to 50,000 customers of 5,000 products. A customer has an age; a product has one of a hundred prices of a
public price list. Who buys much is skewed: ten customers in a hundred own a third of the sales. Rows and questions are
seeded so that every engine sees the same ones; nobody's noise is.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from benchmarks.columns import CENTS, write_columns

SALES, CUSTOMERS, PRODUCTS = 1_000_000, 50_000, 5_000
AGES = (18, 89)
PRICES = tuple(round(4.99 + 5 * i, 2) for i in range(100))
"""The price list."""
MOST = 500
"""Upper bound of a sale's amount, in every engine."""
SEED = 20261123

STATEMENT = (
    "SELECT COUNT(*) AS n, SUM(amount) AS s, AVG(amount) AS m FROM sales "
    "JOIN customer USING (customer_id) JOIN product USING (product_id) "
    "WHERE age BETWEEN {0} AND {1} AND price BETWEEN {2} AND {3}"
)
"""One question: three numbers of one box."""


class Question(NamedTuple):
    """A box, ends included."""

    youngest: int
    oldest: int
    cheapest: float
    dearest: float

    @property
    def sql(self) -> str:
        """The question as a join."""
        return STATEMENT.format(*self)


def questions(number: int, seed: int) -> list[Question]:
    """Random boxes: two ages and two prices, each pair drawn evenly and sorted.

    Args:
        number: how many.
        seed: of the questions.
    """
    rng = np.random.default_rng(seed)
    ages = np.sort(rng.integers(AGES[0], AGES[1] + 1, (number, 2)), axis=1)
    prices = np.sort(rng.integers(0, len(PRICES), (number, 2)), axis=1)
    return [
        Question(int(a), int(b), PRICES[c], PRICES[d])
        for (a, b), (c, d) in zip(ages.tolist(), prices.tolist(), strict=True)
    ]


def generate(folder: Path, sales: int = SALES) -> None:
    """Write customer, product and sales as Parquet; a smaller star has all of its tables in proportion.

    Args:
        folder: where to.
        sales: rows of the fact table.
    """
    rng = np.random.default_rng(SEED)
    customers, products = CUSTOMERS * sales // SALES, PRODUCTS * sales // SALES
    age = np.clip(rng.normal(46, 17, customers).round(), *AGES).astype(np.int64)
    price = rng.choice(len(PRICES), products, p=_thinning(len(PRICES)))
    busy = rng.gamma(2.0, 1.0, customers)
    who = rng.choice(customers, sales, p=busy / busy.sum())
    what = rng.integers(0, products, sales)
    old = rng.random(sales) < (age[who] - AGES[0]) / 200  # older customers buy dear more often
    order = np.argsort(price, kind="stable")
    what[old] = order[rng.integers(products // 2, products, int(old.sum()))]
    cents = np.array([round(100 * p) for p in PRICES])[price[what]]
    amount = np.minimum(
        cents * rng.choice([50, 80, 90, 100], sales, p=[0.05, 0.15, 0.2, 0.6]) // 100, 100 * MOST
    )
    tables = {
        "customer": {"customer_id": np.arange(customers), "age": age},
        "product": {
            "product_id": np.arange(products),
            "cents": np.array([round(100 * p) for p in PRICES])[price],
        },
        "sales": {"customer_id": who, "product_id": what, "cents": amount},
    }
    shown = {
        "product": "product_id, (cents / 100)::DECIMAL(7, 2) AS price",
        "sales": f"customer_id, product_id, {CENTS}",
    }
    for name, columns in tables.items():
        write_columns(folder, name, columns, shown.get(name, "*"))


def truths(folder: Path, boxes: list[Question]) -> list[tuple[int, float, float]]:
    """Exact COUNT, SUM and AVG of every box."""
    db = duckdb.connect()
    for name in ("sales", "customer", "product"):
        db.execute(f"CREATE VIEW {name} AS FROM '{folder}/{name}.parquet'")
    db.execute(
        "CREATE TABLE cell AS SELECT age, price, COUNT(*) AS n, SUM(amount) AS s FROM sales "
        "JOIN customer USING (customer_id) JOIN product USING (product_id) GROUP BY ALL"
    )
    found = []
    for box in boxes:
        n, s = db.execute(
            "SELECT COALESCE(SUM(n), 0)::BIGINT, COALESCE(SUM(s), 0)::DOUBLE FROM cell "
            "WHERE age BETWEEN ? AND ? AND price BETWEEN ? AND ?", list(box)
        ).fetchall()[0]  # fmt: skip
        found.append((n, s, s / n if n else 0.0))
    return found


def _thinning(values: int) -> np.ndarray:
    """Cheap products are more common."""
    weights = 1 / (10 + np.arange(values))
    return np.asarray(weights / weights.sum())
