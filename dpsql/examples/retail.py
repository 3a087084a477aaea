"""The bundled star: a made-up shop with customers, products and sales, the same for the same seed.

    python -m dpsql.examples.retail data --seed 20250101

writes ``customer.parquet``, ``product.parquet`` and ``sales.parquet``. No person stands behind a row. The
shape is that of a real shop: rows per customer have median 3 and 99th percentile 10 (a customer may
place at most ten orders a year), income grows with age up to about fifty, dearer products are bought by
people with more income, categories follow age, and sales rise towards the end of the year. A few regions are
unknown (NULL) and a few sales name a product that is no longer listed.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path

import duckdb
import numpy as np
from numpy.typing import NDArray

CUSTOMERS, PRODUCTS = 50_000, 2_000
REGIONS = ("north", "south", "east", "west")
CATEGORIES = ("books", "clothes", "food", "garden", "home", "sport", "tech", "toys")
# Share of customers with 0, 1, .. 10 sales: mean 3.84, median 3, 99th percentile 10.
ORDERS = (0.04, 0.14, 0.17, 0.17, 0.13, 0.11, 0.08, 0.06, 0.045, 0.035, 0.02)
# How much each month sells, January first.
MONTHS = (0.8, 0.75, 0.85, 0.9, 0.95, 1.0, 0.9, 0.85, 1.0, 1.05, 1.4, 1.7)
# Weight of each category for ages 18-29, 30-44, 45-64 and 65 up.
TASTES = (
    (5, 9, 6, 1, 3, 8, 9, 1),
    (5, 7, 9, 3, 8, 6, 7, 8),
    (8, 6, 10, 8, 9, 4, 5, 3),
    (9, 4, 9, 9, 6, 2, 2, 5),
)
YEAR_STARTS, DAYS = np.datetime64("2025-01-01", "D"), 365
LARGEST_AMOUNT = 20_000  # cents: no sale is above 200.00
Floats = NDArray[np.float64]
Columns = dict[str, NDArray[np.generic]]


def _normal(uniform: np.random.Generator, size: int) -> Floats:
    """Standard normal values from uniforms alone, whose stream numpy keeps stable (Box and Muller)."""
    radius = np.sqrt(-2.0 * np.log(1.0 - uniform.random(size)))
    return np.asarray(radius * np.cos(2.0 * np.pi * uniform.random(size)))


def _pick(weights: Floats, u: Floats) -> NDArray[np.int64]:
    """Index of the part of the unit interval that each u falls in, for parts proportional to weights."""
    edges = np.cumsum(weights) / np.sum(weights)
    return np.minimum(np.searchsorted(edges, u, side="right"), len(edges) - 1).astype(np.int64)


def customers(uniform: np.random.Generator, size: int) -> Columns:
    """People: age, income (up to about fifty it grows with age), region (2% unknown) and sex.

    Args:
        uniform: source of uniforms.
        size: how many.

    Returns:
        Columns of length `size`; ``region`` is an index into `REGIONS`, -1 for unknown.
    """
    age = 18 + np.floor(72 * uniform.random(size) ** 1.4).astype(np.int64)
    level = 10.1 + 0.55 * np.exp(-(((age - 50) / 22.0) ** 2))
    income = np.exp(level + 0.45 * _normal(uniform, size))
    region = _pick(np.array([0.3, 0.2, 0.35, 0.15]), (uniform.random(size) + 0.1 * (age > 60)) % 1.0)
    region[uniform.random(size) < 0.02] = -1
    return {
        "customer_id": np.arange(1, size + 1),
        "age": age,
        "income": np.minimum(np.round(income / 100).astype(np.int64) * 100, 200_000),
        "region": region,
        "sex": (uniform.random(size) < 0.51).astype(np.int64),
    }


def products(uniform: np.random.Generator, size: int) -> Columns:
    """Products: category, brand of that category, and price in cents (5.00 to 100.00, tech is dearer).

    Args:
        uniform: source of uniforms.
        size: how many, at least one per category.

    Returns:
        Columns of length `size`, sorted by category and price.
    """
    category = np.sort(np.arange(size) % len(CATEGORIES))
    base = np.array([2.9, 3.4, 2.5, 3.2, 3.5, 3.5, 4.0, 3.0])[category]
    price = np.clip(np.round(100 * np.exp(base + 0.5 * _normal(uniform, size))), 500, 10_000).astype(np.int64)
    order = np.lexsort((price, category))
    return {
        "product_id": np.arange(1, size + 1),
        "category": category[order],
        "brand": _pick(np.array([5.0, 4.0, 3.0, 2.0, 1.0]), uniform.random(size)),
        "price": price[order],
    }


def _chosen_products(uniform: np.random.Generator, buyer: Columns, product: Columns) -> NDArray[np.int64]:
    """Row of the product that each sale buys: category by age, place in its price list by income."""
    group = np.searchsorted([30, 45, 65], buyer["age"], side="right")
    u, category = uniform.random(group.size), np.empty(group.size, np.int64)
    for number, tastes in enumerate(TASTES):
        category[group == number] = _pick(np.array(tastes, float), u[group == number])
    starts = np.searchsorted(product["category"], np.arange(len(CATEGORIES) + 1))
    # The median buyer with an income of 30,000 stands at 45% of the price list, with 80,000 at 72%.
    income = buyer["income"].astype(np.float64)
    place = uniform.random(group.size) ** (40_000.0 / (income + 5_000.0))
    width = starts[category + 1] - starts[category]
    return np.asarray(starts[category] + np.floor(place * width), dtype=np.int64)


def sales(uniform: np.random.Generator, customer: Columns, product: Columns) -> Columns:
    """Sales: who, what, how many, for how much (cents, at most 200.00) and on which day of 2025.

    Args:
        uniform: source of uniforms.
        customer: columns of `customers`.
        product: columns of `products`.

    Returns:
        Columns of one row per sale, in no particular order of people.
    """
    size = customer["age"].size
    # More income, more orders: the ranks of a mixed score decide who gets how many.
    wish = customer["income"].astype(np.float64) / 40_000.0 + 2.0 * uniform.random(size)
    orders = _pick(np.array(ORDERS), (np.argsort(np.argsort(wish, kind="stable")) + 0.5) / size)
    owner = np.repeat(np.arange(size), orders)
    owner = owner[np.argsort(uniform.random(owner.size), kind="stable")]
    row = _chosen_products(uniform, {name: values[owner] for name, values in customer.items()}, product)
    price = product["price"][row].astype(np.int64)
    wanted = 1 + _pick(np.array([0.7, 0.2, 0.07, 0.03]), uniform.random(owner.size))
    quantity = np.minimum(wanted, LARGEST_AMOUNT // price)
    lengths = np.diff(np.arange("2025-01", "2026-02", dtype="datetime64[M]").astype("datetime64[D]")).astype(
        float
    )
    day = _pick(np.repeat(np.array(MONTHS) / lengths, lengths.astype(int)), uniform.random(owner.size))
    listed = uniform.random(owner.size) >= 0.001
    return {
        "sale_id": np.arange(1, owner.size + 1),
        "customer_id": customer["customer_id"][owner],
        "product_id": np.where(listed, product["product_id"][row], product["product_id"].size + 1 + row),
        "quantity": quantity,
        "amount": price * quantity,
        "sold_on": day,
    }


def _name(names: tuple[str, ...], column: str) -> str:
    """SQL that turns an index into a name; -1 becomes NULL."""
    listed = ", ".join(f"'{name}'" for name in names)
    return f"CASE WHEN {column} >= 0 THEN list_extract([{listed}], {column} + 1) END AS {column}"


_BRAND = (
    "list_extract(["
    + ", ".join(f"'{name}'" for name in CATEGORIES)
    + "], category + 1) || '-' || (brand + 1)"
)
SELECTS = {
    "customer": (
        "SELECT customer_id::INTEGER AS customer_id, age::INTEGER AS age, income::INTEGER AS income, "
        f"{_name(REGIONS, 'region')}, {_name(('F', 'M'), 'sex')}"
    ),
    "product": (
        f"SELECT product_id::INTEGER AS product_id, {_name(CATEGORIES, 'category')}, {_BRAND} AS brand, "
        "(price::DECIMAL(18,0) * 0.01)::DECIMAL(9,2) AS price"
    ),
    "sales": (
        "SELECT sale_id::INTEGER AS sale_id, customer_id::INTEGER AS customer_id, "
        "product_id::INTEGER AS product_id, quantity::INTEGER AS quantity, "
        "(amount::DECIMAL(18,0) * 0.01)::DECIMAL(9,2) AS amount, "
        f"DATE '{YEAR_STARTS}' + sold_on::INTEGER AS sold_on"
    ),
}


def make_star(seed: int, customer_count: int, product_count: int) -> dict[str, Columns]:
    """The three tables as arrays.

    Args:
        seed: the same seed makes the same shop.
        customer_count: people.
        product_count: products, at least 8.

    Returns:
        Table name to columns; texts are still indices and amounts are cents.
    """
    uniform = np.random.Generator(np.random.PCG64(seed))
    customer, product = customers(uniform, customer_count), products(uniform, product_count)
    return {"customer": customer, "product": product, "sales": sales(uniform, customer, product)}


def write_star(folder: Path, star: Mapping[str, Columns]) -> None:
    """Write the tables as Parquet files.

    Args:
        folder: made if it does not exist.
        star: what `make_star` returned.
    """
    folder.mkdir(parents=True, exist_ok=True)
    connection = duckdb.connect(config={"threads": 1})
    for table, columns in star.items():
        target = str(folder / f"{table}.parquet").replace("'", "''")
        connection.register("arrays", columns)
        connection.execute(
            f"COPY ({SELECTS[table]} FROM arrays) TO '{target}' (FORMAT parquet, COMPRESSION zstd)"
        )
        connection.unregister("arrays")
    connection.close()


def main(arguments: list[str] | None = None) -> None:
    """Command line: a folder and a seed."""
    parser = argparse.ArgumentParser(description="Write the bundled retail star as Parquet files.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, required=True, help="the Makefile names the one in use")
    parser.add_argument("--customers", type=int, default=CUSTOMERS)
    parser.add_argument("--products", type=int, default=PRODUCTS)
    chosen = parser.parse_args(arguments)
    star = make_star(chosen.seed, chosen.customers, chosen.products)
    write_star(chosen.folder, star)
    print(", ".join(f"{table}: {len(next(iter(c.values())))} rows" for table, c in star.items()))


if __name__ == "__main__":
    main()
