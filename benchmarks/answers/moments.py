"""How often 95% intervals of STDDEV, VARIANCE and CORR cover the exact value over the raw rows.

Stars that nothing was tuned on are drawn again and again at epsilon 1: waits of a clinic, which are skewed and hug the
lower bound; errors of a scale, on both sides of 0; and rows of $DPSQL_DATA, distances of taxis and hours of work. Two
more have a spread that noise hides: where the truth lies at 0, no interval of a spread can leave it out below, so those
above 95% are right there, and only too few are wrong.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import duckdb

from benchmarks.central.datasets import data_root
from benchmarks.coverage import coverage, draws, redrawn
from benchmarks.figures import Figures, main
from dpsql.catalog import load_catalog
from dpsql.noise import ExactNoise, os_entropy

CATALOG = """
dpsql: 1
name: {name}
source: {{kind: parquet, root: ., tables: {{seen: seen.parquet}}}}
privacy: {{lineage: {name}, cap: 10000, unit: row, epsilon: 1}}
tables:
  seen:
    role: fact
    columns:
      place: {{type: string, categories: [a, b, c, d], out_of_domain: drop}}
      hour: {{type: int, lower: 0, upper: 23}}
      value: {{type: decimal, scale: {scale}, lower: {low}, upper: {high}, measure: true}}
views:
  all: {{of: seen, axes: [seen.place, seen.hour], measures: [count, seen.value, squares(seen.value)]}}
"""


class World(NamedTuple):
    """A star.

    Args:
        name: of the star.
        low, high, scale: of its measure, for the catalog.
        rows: a query of place, hour and value.
        hidden: whether its spread is about 0 beside the noise.
    """

    name: str
    low: float
    high: float
    scale: int
    rows: str
    hidden: bool = False


MADE_UP = """SELECT ['a', 'a', 'a', 'a', 'a', 'b', 'b', 'b', 'c', 'c', 'd'][1 + CAST(floor(11 * u) AS INT)] AS place,
    CAST(floor(24 * v) AS INT) AS hour, {value} AS value
    FROM (SELECT random() AS u, random() AS v, random() AS w,
          sqrt(-2 * ln(1 - random())) * cos(2 * pi() * random()) AS z FROM range(6000))"""
TAXI = """SELECT 'abcd'[1 + PULocationID % 4] AS place, hour(lpep_pickup_datetime) AS hour, trip_distance AS value
    FROM '{data}/nyc-green-taxi/green_trips_2020q4.parquet' USING SAMPLE reservoir(6000 ROWS) REPEATABLE (23)"""
WORK = """SELECT CASE race WHEN 'White' THEN 'a' WHEN 'Black' THEN 'b'
    WHEN 'Asian-Pac-Islander' THEN 'c' ELSE 'd' END AS place,
    education_num AS hour, hours_per_week AS value
    FROM '{data}/adult/adult_train.parquet' USING SAMPLE reservoir(6000 ROWS) REPEATABLE (23)"""
WORLDS = (
    World("waits", 0, 120, 1, MADE_UP.format(value="-(8 + hour) * ln(1 - w)")),
    World("drift", -4, 4, 2, MADE_UP.format(value="0.2 * (ascii(place) - 97) + 0.9 * z")),
    World("taxi", 0, 40, 2, TAXI), World("work", 1, 99, 0, WORK),
    World("still", 0, 120, 1, MADE_UP.format(value="9 + 0.3 * z"), hidden=True),
    World("calm", 0, 120, 1, MADE_UP.format(value="14 + 5 * z"), hidden=True),
)  # fmt: skip
PARTS = "CASE WHEN hour < 6 THEN 1 WHEN hour < 11 THEN 2 WHEN hour < 16 THEN 3 ELSE 4 END"
ASKED = {
    "STDDEV by place": "SELECT place, STDDEV(value) AS v FROM seen GROUP BY place ORDER BY place",
    "VARIANCE by four ranges": f"SELECT {PARTS} AS part, VARIANCE(value) AS v FROM seen GROUP BY 1 ORDER BY 1",
    "CORR with the hour by place": "SELECT place, CORR(value, hour) AS v FROM seen GROUP BY place ORDER BY place",
    "STDDEV_POP of all rows": "SELECT STDDEV_POP(value) AS v FROM seen",
}


def covered(world: World, releases: int, folder: Path) -> dict[str, list[bool]]:
    """Of each statement, whether the intervals of each release cover the exact values."""
    raw = duckdb.connect()
    raw.execute("SELECT setseed(0.23)")
    rows, kind = world.rows.format(data=data_root()), f"DECIMAL(9, {world.scale})"
    raw.execute(
        f"CREATE TABLE seen AS SELECT place, hour, CAST(greatest({world.low}, least({world.high}, value)) AS {kind})"
        f" AS value FROM ({rows})"
    )
    folder.mkdir()
    raw.execute(f"COPY seen TO '{folder / 'seen.parquet'}' (FORMAT parquet)")
    (folder / "c.yaml").write_text(CATALOG.format(**world._asdict()))
    exact = {name: [float(row[-1]) for row in raw.execute(text).fetchall()] for name, text in ASKED.items()}
    publish = redrawn(load_catalog(folder / "c.yaml"), folder)
    return coverage(draws(publish, ExactNoise(os_entropy()), releases), ASKED, exact)


def measure(figures: Figures, folder: Path, releases: int = 200) -> None:
    """Draw each world so many times."""
    wholes = list[bool]()
    for world in WORLDS:
        for name, covers in covered(world, releases, folder / world.name).items():
            if name.endswith("all rows") and not world.hidden:
                wholes += covers
                continue
            high = 1 if world.hidden else 0.97
            share = sum(covers) / len(covers)
            figures.within("coverage of moments", share, 0.93, high, f"{world.name}, {name}")
    figures.within("coverage of moments", sum(wholes) / len(wholes), 0.93, 0.97, "STDDEV_POP of all rows")


if __name__ == "__main__":
    main(measure)
