"""Tumult Analytics on Spark: a session of sales with public products; customers are joined to sales beforehand.

Under a delta it is asked in zCDP. A customer keeps so many rows. What all questions start from is a view that it keeps
in memory, without which each costs several times as much.
"""

from __future__ import annotations

import os
import sys

from benchmarks.peers.protocol import Answer, Ask, Job, rho, serve


def start(job: Job) -> Ask:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.chdir(job.folder)  # Spark leaves a warehouse where it runs
    # user
    from pyspark.sql import SparkSession
    from pyspark.sql.functions import col
    from tmlt.analytics import (
        AddOneRow,
        AddRowsWithID,
        MaxRowsPerID,
        PureDPBudget,
        QueryBuilder,
        RhoZCDPBudget,
        Session,
    )

    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2").getOrCreate()
    )  # fmt: skip
    tables = {
        name: spark.read.parquet(f"{job.folder}/{name}.parquet") for name in ("sales", "customer", "product")
    }
    sales = (
        tables["sales"]
        .withColumn("amount", col("amount").cast("double"))
        .join(tables["customer"], "customer_id")
    )
    product = tables["product"].withColumn("price", col("price").cast("double"))
    spent = rho(job.epsilon, job.delta) if job.delta else job.epsilon
    budget = RhoZCDPBudget if job.delta else PureDPBudget
    customers = job.unit == "customer"
    session = Session.from_dataframe(
        privacy_budget=budget(spent), source_id="sales", dataframe=sales.cache(),
        protected_change=AddRowsWithID("customer_id") if customers else AddOneRow(),
    )  # fmt: skip
    session.add_public_dataframe("product", product)
    whole = QueryBuilder("sales").enforce(MaxRowsPerID(job.rows)) if customers else QueryBuilder("sales")
    session.create_view(whole.join_public("product"), "wide", cache=True)

    def ask(number: int) -> Answer:
        low, high, cheap, dear = job.boxes[number]
        box = QueryBuilder("wide").filter(
            f"age >= {low} AND age <= {high} AND price >= {cheap} AND price <= {dear}"
        )
        part = budget(spent / (2 * job.total) * (1 - 1e-9))
        count = session.evaluate(box.count(), part).collect()[0][0]
        total = session.evaluate(box.sum("amount", 0, 500), part).collect()[0][0]
        return Answer((count, total, total / max(count, 1)))

    # end
    return ask


serve(__file__, "tmlt.analytics", start, children=True)
