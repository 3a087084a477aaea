"""Histograms to measure on: DPBench, Adult and FoodMart from $DPSQL_DATA, and generated ones of the seeds' sizes.

Where a seed's data set is not to be had, a generated one of its size stands in, and its name says "generated".
The error of a linear mechanism does not depend on the data at all, so for those nothing is lost.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]

DPBENCH = (
    "NETTRACE", "SEARCHLOGS", "HEPTH", "INCOME", "ADULT", "MEDCOST", "BIDS-FJ", "MDSALARY",
    "LC-REQ-F1", "LC-REQ-ALL", "LC-DTIR-F2", "LC-DTIR-ALL",
)  # fmt: skip


def data_root() -> Path:
    """The folder that $DPSQL_DATA names.

    Raises:
        SystemExit: if it names none.
    """
    root = Path(os.environ.get("DPSQL_DATA", ""))
    if not os.environ.get("DPSQL_DATA") or not root.is_dir():
        raise SystemExit("set DPSQL_DATA to the folder of real stars")
    return root


def _cells(statement: str, shape: tuple[int, ...], *values: object) -> IntArray:
    """A dense histogram from (coordinates.., n) rows."""
    with duckdb.connect() as connection:
        columns = connection.execute(statement, values).fetchnumpy()
    *where, count = (np.asarray(column, np.int64) for column in columns.values())
    out = np.zeros(shape, np.int64)
    np.add.at(out, tuple(where), count)
    return out


def dpbench(name: str) -> IntArray:
    """A DPBench histogram of 4,096 cells."""
    path = str(data_root() / "dpbench-1d" / "dpbench_1d.parquet")
    return _cells("SELECT bin, n FROM read_parquet(?) WHERE dataset = ?", (4096,), path, name)


def dpbench_2d(name: str) -> IntArray:
    """A DPBench histogram of 256 x 256 cells."""
    path = str(data_root() / "dpbench-2d" / "dpbench_2d_nonzero.parquet")
    return _cells("SELECT x, y, n FROM read_parquet(?) WHERE dataset = ?", (256, 256), path, name)


def stars() -> Iterator[tuple[str, IntArray]]:
    """One-axis histograms of the Adult and FoodMart stars; one row is one record."""
    adult = str(data_root() / "adult" / "adult_train.parquet")
    foodmart = data_root() / "foodmart"
    yield (
        "Adult age",
        _cells(
            "SELECT age - 17, count(*) FROM read_parquet(?) WHERE age BETWEEN 17 AND 90 GROUP BY 1",
            (74,),
            adult,
        ),
    )
    yield (
        "Adult weight",
        _cells(
            "SELECT fnlwgt // 2000, count(*) FROM read_parquet(?) WHERE fnlwgt < 1500000 GROUP BY 1",
            (750,),
            adult,
        ),
    )
    yield "FoodMart day", _cells(
        """SELECT date_diff('day', DATE '1997-01-01', the_date::DATE), count(*)
           FROM read_parquet(?) JOIN read_parquet(?) USING (time_id) GROUP BY 1""",
        (365,), str(foodmart / "sales_fact_1997.parquet"), str(foodmart / "time_by_day.parquet"),
    )  # fmt: skip
    yield "FoodMart product", _cells(
        "SELECT product_id - 1, count(*) FROM read_parquet(?) GROUP BY 1", (1560,),
        str(foodmart / "sales_fact_1997.parquet"),
    )  # fmt: skip
