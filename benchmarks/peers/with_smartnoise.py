"""smartnoise-sql: SQL over one table in its SQLite; it refuses joins, so the table was joined beforehand.

COUNT(amount) instead of COUNT(*), which AVG would pay for again. Under a delta the largest epsilon that its own
odometer allows for K questions (advanced composition of Laplace noise). Without one equal parts that add up: the
odometer would compose with a delta of 1e-15 even where none was given.
"""

from __future__ import annotations

from benchmarks.peers.protocol import Answer, Ask, Job, serve


def start(job: Job) -> Ask:
    # user
    import duckdb
    import snsql
    from snsql import Privacy
    from snsql.sql.odometer import OdometerHeterogeneous

    wide = duckdb.sql(
        "SELECT customer_id, age, price::DOUBLE AS price, amount::DOUBLE AS amount "
        f"FROM '{job.folder}/sales.parquet' JOIN '{job.folder}/customer.parquet' USING (customer_id) "
        f"JOIN '{job.folder}/product.parquet' USING (product_id)"
    ).df()
    customers = job.unit == "customer"
    metadata = {"": {"": {"wide": {
        "row_privacy": not customers, "max_ids": job.rows if customers else 1, "sample_max_ids": customers,
        "censor_dims": False, "clamp_counts": False,
        "customer_id": {"type": "int", "private_id": customers},
        "age": {"type": "int", "lower": 18, "upper": 89},
        "price": {"type": "float", "lower": 0, "upper": 500},
        "amount": {"type": "float", "lower": 0, "upper": 500, "nullable": False},
    }}}}  # fmt: skip
    low, high = job.epsilon / (2 * job.total), job.epsilon
    for _ in range(40 if job.delta else 0):
        middle = (low + high) / 2
        odometer = OdometerHeterogeneous(Privacy(epsilon=middle, delta=2 * job.delta))
        for _ in range(2 * job.total):
            odometer.spend(Privacy(epsilon=middle, delta=0.0))
        low, high = (middle, high) if odometer.spent[0] <= job.epsilon else (low, middle)
    reader = snsql.from_df(wide, privacy=Privacy(epsilon=low, delta=2 * job.delta), metadata=metadata)

    def ask(number: int) -> Answer:
        box = job.boxes[number]
        text = (
            "SELECT COUNT(amount) AS n, SUM(amount) AS s, AVG(amount) AS m FROM wide "
            "WHERE age >= {} AND age <= {} AND price >= {} AND price <= {}".format(*box)
        )
        _, values = reader.execute(text)
        return Answer([float(value) for value in values], reader.get_simple_accuracy(text, 0.05))

    # end
    return ask


serve(__file__, "smartnoise-sql", start)
