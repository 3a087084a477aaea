"""How often 95% intervals of STDDEV, VARIANCE and CORR cover the exact value over the raw rows.

    python -m benchmarks.answers.moments [DRAWS]

Two made-up stars that nothing was tuned on are drawn again and again at epsilon 1: waits of a clinic, which are
skewed and hug the lower bound, and errors of a scale, which lie on both sides of 0. Each release is asked the spread of
all rows, of each group and of a range.
"""

from __future__ import annotations

import random
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from benchmarks.figures import Figures
from dpsql.answer.answerer import Answerer
from dpsql.engines.keys import open_star
from dpsql.noise import ExactNoise, os_entropy
from dpsql.progress import silent
from dpsql.publishing.axes import axis_maker
from dpsql.publishing.bounding import Scan, draw_release
from dpsql.publishing.content import release_content
from dpsql.publishing.plan import plan_release
from dpsql.publishing.rows import prepare_tables
from dpsql.release import open_release
from dpsql.star import load_catalog

DRAWS, ROWS, SEED = 200, 6000, 23
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
    """A star: its catalog's bounds, and how its values are drawn from a random source and the hour."""

    name: str
    low: float
    high: float
    scale: int
    skewed: bool


WORLDS = (World("waits", 0, 120, 1, True), World("drift", -4, 4, 2, False))
ASKED = {
    "STDDEV": "SELECT STDDEV(value) AS v FROM seen",
    "STDDEV by place": "SELECT place, STDDEV_POP(value) AS v FROM seen GROUP BY place ORDER BY place",
    "VARIANCE of a range": "SELECT VARIANCE(value) AS v FROM seen WHERE hour BETWEEN 7 AND 16",
    "CORR with the hour": "SELECT CORR(value, hour) AS v FROM seen",
}


def rows(world: World, seed: int) -> list[tuple[str, int, float]]:
    """Values inside of the bounds."""
    draw = random.Random(seed)
    made = []
    for _ in range(ROWS):
        place, hour = draw.choices("abcd", [5, 3, 2, 1])[0], draw.randrange(24)
        value = (
            draw.expovariate(1 / (8 + hour)) if world.skewed else draw.gauss(0.2 * "abcd".index(place), 0.9)
        )
        made.append((place, hour, round(min(max(value, world.low), world.high), world.scale)))
    return made


def covered(world: World, draws: int, folder: Path) -> dict[str, list[bool]]:
    """Of each statement, whether the intervals of each draw cover the exact values."""
    raw, made = duckdb.connect(), rows(world, SEED)
    raw.execute(f"CREATE TABLE seen (place VARCHAR, hour INT, value DECIMAL(9, {world.scale}))")
    raw.executemany("INSERT INTO seen VALUES (?, ?, ?)", made)
    raw.execute(f"COPY seen TO '{folder / 'seen.parquet'}' (FORMAT parquet)")
    (folder / "c.yaml").write_text(CATALOG.format(**world._asdict()))
    catalog, held = load_catalog(folder / "c.yaml"), {name: list[bool]() for name in ASKED}
    exact = {name: [float(row[-1]) for row in raw.execute(text).fetchall()] for name, text in ASKED.items()}
    with_raw = open_star(catalog)
    plan = plan_release(catalog, axis_maker(catalog, with_raw))
    prepare_tables(catalog, with_raw, plan)
    scan = Scan(catalog, with_raw, plan, ExactNoise(os_entropy()), bytes(32))
    for number in range(draws):
        path = folder / f"{number}.dpsql"
        release_content(draw_release(scan, silent), path.stem, insecure=True).write(path)
        answerer = Answerer(open_release(path, insecure=True))
        for name, text in ASKED.items():
            result = answerer.query(text)
            low, high = (
                np.array([row[-1] for row in grid], np.float64) for grid in result.interval_rows(0.95)
            )
            held[name] += ((low <= exact[name]) & (exact[name] <= high)).tolist()
        answerer.release.close()
        path.unlink()
    with_raw.close()
    return held


def main(draws: int) -> int:
    """Measure and print; returns the exit code."""
    figures = Figures()
    for world in WORLDS:
        with tempfile.TemporaryDirectory() as folder:
            for name, held in covered(world, draws, Path(folder)).items():
                share = sum(held) / len(held)
                figures.at_least(f"moments-covered, {world.name}, {name}", share, 0.93)
                figures.at_most(f"moments-covered-at-most, {world.name}, {name}", share, 0.97)
    figures.at_least("moments-draws", draws, DRAWS)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else DRAWS))
