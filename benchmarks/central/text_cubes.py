"""Cubes of text columns: the cells of pairs, against every pair published by hand.

The three tables and their columns were committed before any of them was measured. Errors are exact expectations of
single cells at (1, 1e-6), the root of their mean variance over the pairs. Flat pairs have an equal part of the budget
each, and Gaussian noise on every cell.

**Privacy**: public tables of packages.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import comb, sqrt
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from benchmarks.central.cubes import one_table, priced
from benchmarks.central.datasets import lahman, nyc, packaged
from benchmarks.figures import Figures, main
from dpsql.curator.forecast import forecast
from dpsql.mechanisms.distribution import GAUSSIAN


class TextTable(NamedTuple):
    """A table and its text columns, in one text."""

    read: Callable[[], object]
    columns: str


UNSEEN: Mapping[str, TextTable] = {
    "flights": TextTable(nyc("flights"), "carrier origin dest"),
    "players": TextTable(lahman("People"), "birthCountry deathCountry bats throws"),
    "employees": TextTable(
        packaged("modeldata", "attrition"),
        "BusinessTravel Department EducationField Gender JobRole MaritalStatus OverTime",
    ),
}


def written(folder: Path, table: TextTable) -> Path:
    """The rows and the catalog of a cube; a column's values are its categories, and NULL where it occurs."""
    columns, texts = {}, table.columns.split()
    with duckdb.connect() as db:
        db.register("raw", table.read())
        listed = ", ".join(f'"{name}"::VARCHAR AS c{i}' for i, name in enumerate(texts))
        db.execute(f"CREATE TABLE texts AS SELECT {listed} FROM raw")
        db.execute(f"COPY texts TO '{folder}/texts.parquet'")
        for i in range(len(texts)):
            values = [row[0] for row in db.execute(f"SELECT DISTINCT c{i} FROM texts ORDER BY 1").fetchall()]
            names = ", ".join('"' + value.replace('"', "'") + '"' for value in values if value is not None)
            known = f"categories: [{names}], nullable: {str(None in values).lower()}"
            columns[f"c{i}"] = f"{{type: string, {known}, out_of_domain: drop}}"
    return one_table(folder, "texts", columns)


def error_over_flat(path: Path) -> float:
    """Root of the mean variance of a cell of a pair as planned, over that of flat pairs."""
    found = priced(path)
    unit = GAUSSIAN.bounded_noise(1, sum(statistic.spend for statistic in found.plan.statistics)) ** 2
    pairs = comb(len(found.plan.axes), 2)
    cells = [statistic.typical**2 for statistic in forecast(found) if len(statistic.axes) == 2]
    return sqrt(np.mean(cells)) / sqrt(pairs * unit)


def measure(figures: Figures, folder: Path) -> None:
    """Plan a cube of each table."""
    for name, table in UNSEEN.items():
        ratio = error_over_flat(written(folder, table))
        figures.at_most("text cube, pair cells over flat pairs'", ratio, 1.05, name)


if __name__ == "__main__":
    main(measure)
