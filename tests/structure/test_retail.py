"""The bundled star: the same for the same seed, with the shape that its description promises."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pytest

from dpsql.catalog import load_catalog
from dpsql.examples.retail import CUSTOMERS, PRODUCTS, main, make_star, write_star

CATALOG = Path(__file__).parents[2] / "catalog" / "retail.yaml"


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> duckdb.DuckDBPyConnection:
    """The full shop in DuckDB views."""
    folder = tmp_path_factory.mktemp("retail")
    write_star(folder, make_star(7, CUSTOMERS, PRODUCTS))
    connection = duckdb.connect()
    for table in ("customer", "product", "sales"):
        connection.execute(f"CREATE TABLE {table} AS SELECT * FROM '{folder}/{table}.parquet'")
    return connection


def one(shop: duckdb.DuckDBPyConnection, query: str) -> tuple[float, ...]:
    return tuple(shop.execute(query).fetchall()[0])


def test_same_seed_same_shop() -> None:
    first, again, other = (make_star(seed, 500, 40) for seed in (1, 1, 2))
    for table, columns in first.items():
        for name, values in columns.items():
            assert np.array_equal(values, again[table][name])
    assert not np.array_equal(first["customer"]["income"], other["customer"]["income"])


def test_sizes_and_rows_per_customer(shop: duckdb.DuckDBPyConnection) -> None:
    assert one(shop, "SELECT count(*) FROM customer") == (50_000,)
    assert one(shop, "SELECT count(*) FROM product") == (2_000,)
    assert 185_000 <= one(shop, "SELECT count(*) FROM sales")[0] <= 205_000
    per_customer = (
        "SELECT count(sale_id) AS n FROM customer LEFT JOIN sales USING (customer_id) GROUP BY customer_id"
    )
    assert one(shop, f"SELECT median(n), quantile_disc(n, 0.99), max(n) FROM ({per_customer})") == (3, 10, 10)


def test_attributes_are_correlated(shop: duckdb.DuckDBPyConnection) -> None:
    star = "sales JOIN customer USING (customer_id) JOIN product USING (product_id)"
    by_income, by_age = one(shop, f"SELECT corr(income, price), corr(age, price) FROM {star}")
    assert by_income > 0.1 and by_age < -0.05
    ages = one(
        shop,
        f"SELECT avg(age) FILTER (category = 'garden') - avg(age) FILTER (category = 'sport') FROM {star}",
    )
    assert ages[0] > 10
    december = one(shop, "SELECT avg(CASE WHEN month(sold_on) = 12 THEN 1.0 ELSE 0 END) FROM sales")
    assert december[0] > 0.12


def test_the_catalog_bounds_hold_for_every_row(shop: duckdb.DuckDBPyConnection) -> None:
    catalog = load_catalog(CATALOG)
    for table, spec in catalog.tables.items():
        for name, column in spec.columns.items():
            if column.lower is not None:
                low, high = one(shop, f"SELECT min({name})::VARCHAR, max({name})::VARCHAR FROM {table}")
                assert (
                    column.bounds[0] <= column.units(str(low)) <= column.units(str(high)) <= column.bounds[1]
                )
    assert one(
        shop, "SELECT count(*) FROM product GROUP BY product_id HAVING count(*) > 1 UNION ALL SELECT 0"
    ) == (0,)


def test_command_line_wants_a_seed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(tmp_path), "--seed", "3", "--customers", "100", "--products", "16"])
    assert "customer: 100 rows" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "customer.parquet",
        "product.parquet",
        "sales.parquet",
    ]
    with pytest.raises(SystemExit):
        main([str(tmp_path)])
