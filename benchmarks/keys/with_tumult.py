"""Tumult Analytics' GetGroups on a star's keys; run by the interpreter of its own environment.

python with_tumult.py counts.npz epsilon delta cap

A person gives at most `cap` rows, one of each key, chosen by the library.
"""

from __future__ import annotations

import os
import sys
import tempfile


def main(file: str, epsilon: float, delta: float, cap: int) -> int:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.chdir(tempfile.mkdtemp())  # Spark leaves a warehouse where it runs
    import numpy as np
    import pandas as pd
    from pyspark.sql import SparkSession
    from tmlt.analytics import AddRowsWithID, ApproxDPBudget, MaxRowsPerID, QueryBuilder, Session

    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.execution.arrow.pyspark.enabled", "true").getOrCreate()
    )  # fmt: skip
    spark.sparkContext.setLogLevel("ERROR")
    arrays = np.load(file)
    pairs = pd.DataFrame({"person": arrays["person"], "key": arrays["page"]})
    budget = ApproxDPBudget(epsilon, delta)
    session = Session.from_dataframe(
        privacy_budget=budget, source_id="visits", dataframe=spark.createDataFrame(pairs),
        protected_change=AddRowsWithID("person"),
    )  # fmt: skip
    query = QueryBuilder("visits").enforce(MaxRowsPerID(cap)).get_groups(["key"])
    return session.evaluate(query, budget).count()


if __name__ == "__main__":
    print(main(sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4])))
