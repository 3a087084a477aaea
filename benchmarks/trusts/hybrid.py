"""Releases over an attribute that only devices know: published, asked in SQL, compared with the truth.

A `World` is a star whose people report one attribute each; the curator holds the rest. Reports are drawn from the
channel's law, which `tests/privacy/test_hybrid_release.py` shows to be the device's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

import dpsql
from benchmarks.trusts.worlds import Box, World
from dpsql.catalog import load_catalog
from dpsql.catalog.private_columns import reported_columns
from dpsql.client.plan import read_plan
from dpsql.local.mechanisms.channel import Channel, channel_of
from dpsql.local.survey import ReportProvenance, plan_of, write_items

LEVEL = 0.95
Drawn = tuple[Path, duckdb.DuckDBPyConnection]
"""A release of fresh reports, and the tables `facts` and, of who reported, `answered`."""


class Case(NamedTuple):
    """What is published of a world.

    Args:
        epsilon: of one report.
        sums: whether the measure is summed too, for half of the budget.
        mechanism: of the channel.
        delta: of the release.
        bars: the catalog's `error_bar`.
        part: of the people who report, by chance.
    """

    epsilon: int
    sums: bool = False
    mechanism: str = "auto"
    delta: str = "0"
    bars: str = "squares"
    part: float = 1.0


class Outcome(NamedTuple):
    """Answers, truths and whether 95% intervals hold, each of shape (draws, boxes); NaN where an answer is NULL.

    Args:
        found, truth: of one value; the truth weighs rows as the release does.
        held: whether the interval, whose ends may be open, covers the value of all rows, each counted once.
    """

    found: np.ndarray
    truth: np.ndarray
    held: np.ndarray

    @property
    def rmse(self) -> float:
        """Root of the mean squared error."""
        return float(np.sqrt(np.nanmean((self.found - self.truth) ** 2)))

    @property
    def coverage(self) -> float:
        """How many intervals hold the truth."""
        return float(np.mean(self.held[~np.isnan(self.found)]))


def measured(world: World, case: Case, draws: int, count: int = 16, seed: int = 1) -> dict[str, Outcome]:
    """Publish so many times with fresh reports and noise, and ask each release about other boxes.

    Args:
        world: whose people report.
        case: what is published.
        draws: how often.
        count: boxes asked of each release, of the world's.
        seed: of boxes and reports; noise is fresh.
    """
    values = ("COUNT(*)", *((f"SUM({world.measure})", f"AVG({world.measure})") if case.sums else ()))
    rows: dict[str, list[tuple[np.ndarray, ...]]] = {value: [] for value in values}
    rng = np.random.default_rng(seed)
    for release, raw in _releases(world, case, draws, rng):
        asked = [world.boxes[i] for i in rng.choice(len(world.boxes), count, replace=False)]
        truths, unweighted = (_exact(raw, world, values, asked, weight) for weight in ("w", "1"))
        result = dpsql.query(_statement(world, values, asked), release)
        low, high = (_numbers(end[0]) for end in result.interval_rows(LEVEL))
        found = _numbers(result.rows[0])
        for i, value in enumerate(values):
            part = slice(i * count, (i + 1) * count)
            held = ~(low[part] > unweighted[part]) & ~(unweighted[part] > high[part])
            rows[value].append((found[part], truths[part], held))
    return {v: Outcome(*(np.array(part) for part in zip(*told, strict=True))) for v, told in rows.items()}


def silent(world: World, case: Case, draws: int, seed: int = 1) -> float:
    """How often intervals of the rows of those who did not report, by `IS NULL`, hold."""
    held = []
    sql = f"SELECT COUNT(*) FILTER (WHERE {world.column} IS NULL) FROM {world.joined}"
    for release, raw in _releases(world, case, draws, np.random.default_rng(seed)):
        silent_rows = "SELECT sum(w) FROM facts WHERE unit NOT IN (FROM answered)"
        ((truth,),) = raw.execute(silent_rows).fetchall()
        low, high = (_numbers(end[0]) for end in dpsql.query(sql, release).interval_rows(LEVEL))
        held.append(low[0] <= float(truth) <= high[0])
    return float(np.mean(held))


def _numbers(row: Sequence[object]) -> np.ndarray:
    return np.array([np.nan if v is None else float(str(v)) for v in row])


def _statement(world: World, values: Sequence[str], asked: Sequence[Box]) -> str:
    """One statement with every value of every box."""
    parts = [f"{value} FILTER (WHERE {world.asked(box)})" for value in values for box in asked]
    return f"SELECT {', '.join(parts)} FROM {world.joined}"


def _exact(
    raw: duckdb.DuckDBPyConnection, world: World, values: Sequence[str], asked: Sequence[Box], weight: str
) -> np.ndarray:
    """The values of the raw rows of those who reported, each row by a weight in SQL."""
    w, m = (f"sum({weight}{measure}) FILTER (WHERE {{}})" for measure in ("", f" * {world.measure}"))
    exact = {"COUNT": w, "SUM": m, "AVG": f"{m} / {w}"}
    parts = [exact[v.split("(")[0]].replace("{}", world.asked(box)) for v in values for box in asked]
    sql = f"SELECT {', '.join(parts)} FROM facts WHERE unit IN (FROM answered)"
    return np.nan_to_num(_numbers(raw.execute(sql).fetchall()[0]))


def _releases(world: World, case: Case, draws: int, rng: np.random.Generator) -> Iterator[Drawn]:
    """So many releases, each of fresh reports."""
    with tempfile.TemporaryDirectory() as place, duckdb.connect() as raw:
        data = Path(place) / "data"
        world.write(data)
        raw.execute(f"CREATE TABLE facts AS {world.facts.replace('ROOT', str(data))}")
        attribute = f"SELECT {world.key}, {world.column} FROM '{data}/{world.people}.parquet' ORDER BY 1"
        keys, values = raw.execute(attribute).fetchnumpy().values()
        leaves = np.searchsorted(world.starts, values, side="right") - 1
        for draw in range(draws):
            folder = Path(place) / str(draw)
            folder.mkdir()
            channel = _written(world, case, folder, data)
            items = (rng.random(len(leaves))[None, :] > np.cumsum(channel.law, axis=0)[:, leaves]).sum(axis=0)
            kept = np.flatnonzero(rng.random(len(items)) < case.part)
            levels = np.searchsorted(channel.starts, items, side="right") - 1
            _store(folder, [(str(keys[i]), int(levels[i]), int(items[i])) for i in kept])
            raw.execute(
                "CREATE OR REPLACE TABLE answered AS SELECT unnest(?::VARCHAR[]) AS unit",
                [keys[kept].tolist()],
            )
            dpsql.publish(folder / "world.yaml", folder / "world.dpsql")
            yield folder / "world.dpsql", raw


def _written(world: World, case: Case, folder: Path, data: Path) -> Channel:
    """The catalog of a case in a folder, and its channel."""
    told = f"epsilon: {case.epsilon}, mechanism: {case.mechanism}, collection: c, error_bar: {case.bars}"
    filled = {
        "ROOT": str(data), "REPORTS": str(folder / "reports.parquet"), "REPORTED": f"reported: {{{told}}}",
        "MEASURES": f"{{count: 0.5, {world.summed}: 0.5}}" if case.sums else "[count]", "DELTA": case.delta,
    }  # fmt: skip
    text = world.catalog
    for word, value in filled.items():
        text = text.replace(word, value)
    (folder / "world.yaml").write_text(text)
    (column,) = reported_columns(load_catalog(folder / "world.yaml"))
    return channel_of(*column.asked)


def _store(folder: Path, rows: Sequence[tuple[str, int, int]]) -> None:
    catalog = load_catalog(folder / "world.yaml")
    (column,) = reported_columns(catalog)
    plan = read_plan(plan_of(catalog, column)).hash.hex()
    answered = ReportProvenance(str(column), plan, channel_of(*column.asked).fingerprint)
    write_items(folder / "reports.parquet", answered, rows)
