"""Counts and sums of measures that may be NULL, without a delta: `python -m benchmarks.central.nulls`.

Stated variances over those of split budgets; then taxi trips of $DPSQL_DATA (or as many made-up ones), of which 45%
have no number of passengers: how often 95% intervals hold by hour and place, and squared errors over stated ones.
"""

from __future__ import annotations

import os
import sys
import tempfile
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.composites.star import redrawn
from benchmarks.figures import Figures
from dpsql.mechanisms.axis import auto_strategy
from dpsql.mechanisms.axis.strategy import axis_budgets
from dpsql.mechanisms.family.joint_rows import joint_laws
from dpsql.mechanisms.law import LAPLACE
from dpsql.noise import ExactNoise, ZeroNoise, os_entropy
from dpsql.star import load_catalog

ALONE = {"count": 6 / 18, "count(x)": 4 / 18, "x": 4 / 18}
"""Statistics of a view with one measure -> variance over that of three split budgets."""
BESIDE = {"count": 10 / 32, "count(x)": 5 / 32, "x": 10 / 32, "y": 10 / 32}
"""The same beside a measure that is never NULL, over four."""
BOUNDS = {"count": 3, "count(x)": 3, "x": 30_000, "y": 900}
EPSILON, PERCENT = Fraction(1, 2), 1.01

TRIPS = "nyc-green-taxi/green_trips_2020q4.parquet"
PICKED = "SELECT hour(lpep_pickup_datetime) AS hour, PULocationID % 12 AS part, passenger_count, fare_amount FROM '{}'"
MADE_UP = (
    "SELECT (random() * 23)::INT AS hour, (random() * 11)::INT AS part, "
    "CASE WHEN random() < .55 THEN (random() * 5)::INT END AS passenger_count, "
    "random() * 80 AS fare_amount FROM range(260000)"
)
CATALOG = """
dpsql: 1
name: taxi
source: {{kind: parquet, root: "{root}", tables: {{trip: trip.parquet}}}}
privacy: {{lineage: taxi, cap: 10, unit: row, epsilon: 0.2, delta: 0}}
tables:
  trip: {{role: fact, columns: {{
    hour: {{type: int, lower: 0, upper: 23}}, part: {{type: int, lower: 0, upper: 11}},
    passenger_count: {{type: int, lower: 0, upper: 6, measure: true, nullable: true}},
    fare_amount: {{type: decimal, scale: 0, lower: 0, upper: 100, measure: true}}}}}}
views:
  alone: {{of: trip, axes: [trip.hour, trip.part], measures: [count, trip.passenger_count]}}
  beside: {{of: trip, axes: [trip.hour], measures: [count, trip.fare_amount, trip.passenger_count]}}
"""
COLUMNS = {
    "COUNT(*)": "COUNT(*)", "COUNT(x)": "COUNT(passenger_count)", "SUM(x)": "SUM(passenger_count)",
    "AVG(x)": "AVG(passenger_count)", "rows with NULL": "COUNT(*) - COUNT(passenger_count)",
    "share of NULLs": "1 - COUNT(passenger_count) * 1.0 / COUNT(*)",
}  # fmt: skip
GROUPS = ("hour", "part")
RELEASES = 120


def stated(figures: Figures) -> None:
    """Variances of ranges of 64 leaves over those where every number has its own part of epsilon."""
    axes = axis_budgets([auto_strategy(64).strategy])
    for words, ratios in (("alone", ALONE), ("beside y", BESIDE)):
        laws = joint_laws(list(ratios), indicators=True)
        for law, (name, ratio) in zip(laws, ratios.items(), strict=True):
            bound = BOUNDS[name]
            variance = replace(law, widest=max(BOUNDS.values())).unit_variance(axes, EPSILON, bound)
            split = LAPLACE.unit_variance(axes, EPSILON / len(ratios), bound)
            figures.at_most(
                "one draw with NULL rows over split budgets, by the formula",
                variance / split / ratio,
                PERCENT,
                f"{name}, x {words}",
            )


def measured(figures: Figures) -> None:
    """Intervals and errors of releases of the taxi trips."""
    trips = Path(os.environ.get("DPSQL_DATA", "")) / TRIPS
    rows = PICKED.format(trips) if trips.is_file() else MADE_UP
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with duckdb.connect() as connection:
            connection.execute(f"COPY ({rows}) TO '{folder}/trip.parquet'")
        file = folder / "taxi.yaml"
        file.write_text(CATALOG.format(root=folder))
        publish, noise = redrawn(load_catalog(file), folder), ExactNoise(os_entropy())
        statements = [
            f"SELECT {g}, {', '.join(COLUMNS.values())} FROM trip GROUP BY {g} ORDER BY {g}" for g in GROUPS
        ]
        errors = [f"DP_STDERR({column}, 'noise')" for column in COLUMNS.values()]
        stderrs = [f"SELECT {g}, {', '.join(errors)} FROM trip GROUP BY {g} ORDER BY {g}" for g in GROUPS]
        exact = publish(ZeroNoise(), "exact.dpsql")
        truths = [values(exact.query(sql).rows) for sql in statements]
        hits, squares = [], []
        for i in range(RELEASES):
            answerer = publish(noise, f"{i}.dpsql")
            for sql, errors_sql, truth in zip(statements, stderrs, truths, strict=True):
                result = answerer.query(sql)
                low, high = (side.iloc[: len(truth), 1:].to_numpy(float) for side in result.interval(0.95))
                hits.append((low <= truth) & (truth <= high))
                squares.append(((values(result.rows) - truth) / values(answerer.query(errors_sql).rows)) ** 2)
            answerer.release.close()
    for column, held, square in zip(COLUMNS, np.vstack(hits).T, np.vstack(squares).T, strict=True):
        figures.within("one draw with NULL rows, coverage", float(held.mean()), 0.93, 0.97, column)
        figures.table(f"{column}, measured over stated variance", float(square.mean()))


def values(rows: list[tuple[object, ...]]) -> np.ndarray:
    """The noisy columns of the groups of the domain."""
    return np.array([row[1:] for row in rows if row[0] is not None], float)


def main() -> int:
    """Print the figures."""
    figures = Figures()
    stated(figures)
    measured(figures)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
