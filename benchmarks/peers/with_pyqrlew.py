"""pyqrlew: rewrites the join into SQL with Gaussian noise, which DuckDB runs; only under a delta.

All questions together are one Gaussian mechanism: each gets the epsilon whose noise, composed exactly, spends the
whole. What counts is the noise that stands in its SQL; the events that it reports speak of half of it, which would cost
twice. It takes the sizes of the tables as public.
"""

from __future__ import annotations

import math
import re

from benchmarks.peers.protocol import Answer, Ask, Job, gaussian, serve

NOISE = r"\(\(([0-9.]+)\) \* \(\(SQRT"
"""Where its SQL says the standard deviation of what it adds: COUNT's, then SUM's."""


def start(job: Job) -> Ask:
    # user
    import duckdb
    import pyqrlew
    import sqlalchemy

    db = duckdb.connect()
    columns = {
        "customer": "customer_id, age", "product": "product_id, price::DOUBLE AS price",
        "sales": "row_number() OVER () AS sale_id, customer_id, product_id, amount::DOUBLE AS amount",
    }  # fmt: skip
    for name, wanted in columns.items():
        db.execute(f"CREATE TABLE {name} AS SELECT {wanted} FROM '{job.folder}/{name}.parquet'")
    dataset = pyqrlew.Dataset.from_database("shop", _described(sqlalchemy, db))
    for table, column, upper in (
        ("customer", "age", 89),
        ("product", "price", 500),
        ("sales", "amount", 500),
    ):
        dataset = dataset.with_range(None, table, column, 0, upper)
    for table in ("customer", "product"):
        dataset = dataset.with_constraint(None, table, f"{table}_id", "_UNIQUE_")
    customers = job.unit == "customer"
    unit = ([("sales", [], "customer_id" if customers else "_PRIVACY_UNIT_ROW_")], False)
    rows, delta = job.rows if customers else 1, job.delta / (100 * job.total)

    def rewrite(number: int, epsilon: float) -> pyqrlew.wrappers.RelationWithDpEvent:
        low, high, cheap, dear = job.boxes[number]
        relation = dataset.relation(
            "SELECT COUNT(*) AS n, SUM(amount) AS s FROM sales "
            "JOIN customer ON sales.customer_id = customer.customer_id "
            "JOIN product ON sales.product_id = product.product_id "
            f"WHERE age >= {low} AND age <= {high} AND price >= {cheap} AND price <= {dear}"
        )
        return relation.rewrite_with_differential_privacy(
            dataset, unit, {"epsilon": epsilon, "delta": delta}, rows, 1.0
        )

    sigma = math.sqrt(2 * job.total) / gaussian(job.epsilon, job.delta)
    epsilon = 2 * math.sqrt(2 * math.log(2.5 / delta)) / sigma  # it gives COUNT and SUM half of both each

    def ask(number: int) -> Answer:
        sql = rewrite(number, epsilon).relation().to_query(pyqrlew.Dialect.PostgreSql)
        count, total = db.execute(sql).fetchall()[0]
        return Answer((float(count), float(total), float(total) / max(float(count), 1)))

    # end
    written = re.findall(NOISE, rewrite(0, epsilon).relation().to_query(pyqrlew.Dialect.PostgreSql))
    if not customers and [round(float(each) / sigma, 6) for each in written] != [1, 500]:
        raise SystemExit(f"noise {written} is not {sigma} and 500 times that")
    return ask


def _described(sqlalchemy, db):
    """An SQLite stand-in with the schema and the sizes: SQLAlchemy speaks to it, and the rows stay in DuckDB."""
    engine = sqlalchemy.create_engine("sqlite://", poolclass=sqlalchemy.pool.StaticPool)
    kinds = {
        "customer": ("customer_id INTEGER PRIMARY KEY, age INTEGER", "n, 1"),
        "product": ("product_id INTEGER PRIMARY KEY, price FLOAT", "n, 1.0"),
        "sales": (
            "sale_id INTEGER PRIMARY KEY, customer_id INTEGER, product_id INTEGER, amount FLOAT", "n, 1, 1, 1.0"
        ),
    }  # fmt: skip
    with engine.begin() as connection:
        for name, (columns, row) in kinds.items():
            last = db.execute(f"SELECT COUNT(*) - 1 FROM {name}").fetchall()[0][0]
            numbers = f"WITH RECURSIVE r(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM r WHERE n < {last})"
            connection.execute(sqlalchemy.text(f"CREATE TABLE {name} ({columns})"))
            connection.execute(sqlalchemy.text(f"INSERT INTO {name} {numbers} SELECT {row} FROM r"))
    return engine


serve(__file__, "pyqrlew", start)
