"""Releases over an attribute that only devices know: published, asked in SQL, compared with the truth.

The bundled shop, fifty thousand customers: each reports her age once, the curator holds the sales. Reports are drawn
from the channel's law, which `tests/privacy/test_hybrid_exact.py` shows to be the device's.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

import dpsql
from dpsql.client.plan import read_plan
from dpsql.collecting.reported import Answered, plan_of, write_items
from dpsql.examples.retail import make_star, write_star
from dpsql.mechanisms.local.channel import channel_of
from dpsql.star import load_catalog
from dpsql.star.reported import reported_columns

PEOPLE, SEED, LEVEL = 50_000, 3, 0.95
AGE = "age: {type: int, lower: 18, upper: 89, out_of_domain: drop, description: full years}"
FOUR, FIFTEEN = (30, 45, 65), (20, 25, 30, 35, 40, 45, 50, 55, 60, 65, 70, 75, 80, 85)
_CATALOG = Path(__file__).parents[2] / "catalog" / "retail.yaml"


class Case(NamedTuple):
    """What is published.

    Args:
        epsilon: of one report.
        cuts: of age.
        sums: whether amounts are summed too, for half of the budget.
        mechanism: of the channel.
        delta: of the release.
        bars: the catalog's `error_bar`.
        part: of the people who report, by chance.
    """

    epsilon: int
    cuts: tuple[int, ...] = FOUR
    sums: bool = False
    mechanism: str = "auto"
    delta: str = "0"
    bars: str = "squares"
    part: float = 1.0


class Box(NamedTuple):
    """Ages from a to b, months from c to d, all inclusive."""

    a: int
    b: int
    c: int
    d: int


class Outcome(NamedTuple):
    """Answers, truths and whether 95% intervals hold, each of shape (draws, boxes); NaN where an answer is NULL."""

    found: np.ndarray
    truth: np.ndarray
    held: np.ndarray
    stderr: np.ndarray

    @property
    def rmse(self) -> float:
        """Root of the mean squared error."""
        return float(np.sqrt(np.nanmean((self.found - self.truth) ** 2)))

    @property
    def coverage(self) -> float:
        """How many intervals hold the truth."""
        return float(np.mean(self.held[~np.isnan(self.found)]))


def boxes(case: Case, count: int, seed: int = 1) -> list[Box]:
    """Every cell where there are four age groups; else random ranges of ages and of months."""
    rng = np.random.default_rng(seed)
    starts = [18, *case.cuts, 90]
    if case.cuts == FOUR:
        return [Box(starts[i], starts[i + 1] - 1, m, m) for i in range(4) for m in range(1, 13)][:count]
    found = []
    for _ in range(count):
        i, j = sorted(rng.choice(len(starts), 2, replace=False).tolist())
        c, d = sorted(rng.integers(1, 13, 2).tolist())
        found.append(Box(starts[i], starts[j] - 1, c, d))
    return found


def statement(values: tuple[str, ...], asked: list[Box]) -> str:
    """One statement with every value of every box."""
    parts = [
        f"{value} FILTER (WHERE age BETWEEN {box.a} AND {box.b} AND "
        f"EXTRACT(month FROM sold_on) BETWEEN {box.c} AND {box.d})"
        for value in values
        for box in asked
    ]
    return f"SELECT {', '.join(parts)} FROM sales JOIN customer USING (customer_id)"


def measured(case: Case, draws: int, count: int = 48, seed: int = 1) -> dict[str, Outcome]:
    """Publish so many times with fresh reports and noise, and ask.

    Args:
        case: what is published.
        draws: how often.
        count: boxes asked of each release.
        seed: of boxes and reports; noise is fresh.
    """
    star = make_star(SEED, PEOPLE, 200)
    people = star["customer"]
    asked = boxes(case, count, seed)
    values = ("COUNT(*)", "SUM(amount)", "AVG(amount)") if case.sums else ("COUNT(*)",)
    sql, rng = statement(values, asked), np.random.default_rng(seed)
    rows: list[tuple[tuple[float, ...], ...]] = []
    with tempfile.TemporaryDirectory() as place:
        data = Path(place) / "data"
        write_star(data, star)
        exact = _exact(data, sql)
        for draw in range(draws):
            folder = Path(place) / str(draw)
            folder.mkdir()
            release = _published(case, folder, data, people, rng)
            result = dpsql.query(sql, release)
            low, high = result.interval_rows(LEVEL)
            numbers = (result.rows[0], low[0], high[0], result.stderr_rows[0])
            rows.append(tuple(tuple(np.nan if v is None else float(v) for v in row) for row in numbers))
    found, low, high, stderr = (np.array([row[i] for row in rows]) for i in range(4))
    truth = np.broadcast_to(exact, found.shape)
    held = (low <= truth) & (truth <= high)
    parts = {value: slice(i * count, (i + 1) * count) for i, value in enumerate(values)}
    return {v: Outcome(found[:, p], truth[:, p], held[:, p], stderr[:, p]) for v, p in parts.items()}


def _exact(data: Path, sql: str) -> np.ndarray:
    with duckdb.connect() as plain:
        for table in ("sales", "customer"):
            plain.execute(f"CREATE VIEW {table} AS FROM '{data / table}.parquet'")
        return np.array([float(v) for v in plain.execute(sql).fetchall()[0]])


def _published(
    case: Case, folder: Path, data: Path, people: dict[str, np.ndarray], rng: np.random.Generator
) -> Path:
    text = _CATALOG.read_text().split("views:")[0]
    told = f"epsilon: {case.epsilon}, mechanism: {case.mechanism}, collection: ages, error_bar: {case.bars}"
    told = f"reported: {{{told}}}"
    column = f"age: {{type: int, lower: 18, upper: 89, out_of_domain: drop, cuts: {list(case.cuts)}, {told}}}"
    text = text.replace(AGE, column).replace("delta: 0", f"delta: {case.delta}")
    text = text.replace("root: data", f"root: {data}\n  reports: {{customer: {folder / 'reports.parquet'}}}")
    measures = "{count: 0.5, sales.amount: 0.5}" if case.sums else "[count]"
    axes = "[customer.age, {axis: sales.sold_on, cuts: {width: month}}]"
    (folder / "shop.yaml").write_text(
        f"{text}views:\n  v: {{of: sales, axes: {axes}, measures: {measures}}}\n"
    )
    catalog = load_catalog(folder / "shop.yaml")
    (column_of,) = reported_columns(catalog)
    channel, plan = channel_of(*column_of.asked), read_plan(plan_of(catalog, column_of))
    leaf = np.searchsorted(case.cuts, people["age"], side="right")
    items = (rng.random(len(leaf))[None, :] > np.cumsum(channel.law, axis=0)[:, leaf]).sum(axis=0)
    views = np.searchsorted(channel.starts, items, side="right") - 1
    kept = np.flatnonzero(rng.random(len(leaf)) < case.part)
    keys = people["customer_id"]
    stored = [(str(keys[i]), int(views[i]), int(items[i])) for i in kept]
    write_items(
        folder / "reports.parquet", Answered("customer.age", plan.hash.hex(), channel.fingerprint), stored
    )
    dpsql.publish(folder / "shop.yaml", folder / "shop.dpsql")
    return folder / "shop.dpsql"
