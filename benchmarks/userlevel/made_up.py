"""Made-up stars with ordered axes that nothing was tuned on.

They were written when neighbours on ordered axes came to be counted together, and measured once when that was done.

| star | what is hard about it |
|---|---|
| `incomes` | log-normal rows; dear things are popular, and who buys most buys cheaper |
| `visits` | weeks, ages and regions in three views, one of three axes; people come for a while, more of them later |
| `prices` | 365 days by 148 prices, both of two levels; more dear things later |
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.columns import CENTS, write_columns
from benchmarks.figures import Figures, main
from benchmarks.userlevel.measure import BAR, Measured, least_held
from benchmarks.userlevel.measure import measure as measure_star
from benchmarks.userlevel.questions import Questions, random_range, seen
from benchmarks.userlevel.releases import Star, open_star

BOXES, SMALLEST = 60, 0.002
"""Random boxes of each view, half as many ranges of each axis of wider views; those of fewer rows are not asked."""

Columns = dict[str, np.ndarray]
HEAD = """
dpsql: 1
name: made_up
source: {{kind: parquet, root: ".", tables: {{{sources}}}}}
privacy: {{lineage: made_up, cap: {epsilon}, unit: person.id, epsilon: {epsilon}, delta: {delta}}}
"""


class MadeUp(NamedTuple):
    """A star.

    Args:
        tables: its columns by table; `cents` are shown as a decimal `amount`, `day` as a date.
        epsilon, delta: of its promise.
        rest: its catalog's tables and views.
    """

    tables: dict[str, Columns]
    epsilon: str
    delta: str
    rest: str

    def write(self, folder: Path) -> Path:
        """Parquet files and the catalog, whose path it gives."""
        shown = {"half": "(half / 2)::DECIMAL(7, 2) AS price", "day": "DATE '2024-01-01' + day::INT AS day"}
        for name, columns in self.tables.items():
            select = ", ".join({"cents": CENTS, **shown}.get(column, column) for column in columns)
            write_columns(folder, name, columns, select)
        sources = ", ".join(f"{name}: {name}.parquet" for name in self.tables)
        file = folder / "made_up.yaml"
        file.write_text(
            HEAD.format(sources=sources, epsilon=self.epsilon, delta=self.delta) + self.rest, encoding="utf-8"
        )
        return file


def incomes() -> MadeUp:
    rng, people, rows = np.random.default_rng(101), 30_000, 600_000
    busy = rng.lognormal(0, 1.1, people)
    who = rng.choice(people, rows, p=busy / busy.sum())
    income = np.clip(rng.lognormal(10.3, 0.5, people), 0, 149_999).astype(np.int64)
    dear, rank = rng.beta(4, 1.6, rows), np.argsort(np.argsort(busy))[who] / people
    cents = (dear * (1 - 0.25 * rank * (rng.random(rows) < 0.5)) * 40_000).astype(np.int64)
    tables = {
        "person": {"id": np.arange(people), "income": income},
        "buy": {"id": who, "cents": cents, "paid": cents},
    }
    return MadeUp(tables, "1", "1e-7", """
tables:
  person: {role: dimension, key: id, private: true, columns: {
    income: {type: int, lower: 0, upper: 149999, cuts: {width: 2500}}}}
  buy: {role: fact, max_ids: auto, foreign_keys: {id: person}, columns: {
    paid: {type: int, lower: 0, upper: 40000, cuts: {width: 500}},
    amount: {type: decimal, scale: 2, lower: 0, upper: 400, measure: true}}}
views:
  both: {of: buy, axes: [person.income, buy.paid], measures: [count, buy.amount]}
""")  # fmt: skip


def visits() -> MadeUp:
    rng, people = np.random.default_rng(202), 40_000
    who = np.repeat(np.arange(people), rng.geometric(1 / 12, people) * rng.choice([1, 1, 1, 4], people))
    age = np.clip(rng.gamma(8, 5.5, people), 18, 89).astype(np.int64)
    region = rng.choice(6, people, p=[0.4, 0.25, 0.15, 0.1, 0.06, 0.04])
    first = rng.beta(2, 1.2, people)[who]
    day = (np.clip(first + rng.normal(0, 0.08, len(who)), 0, 0.9999) * 728).astype(np.int64)
    season = rng.random(len(who)) < 0.3
    day[season] = (day[season] // 364 * 364 + rng.integers(300, 350, season.sum())) % 728
    amount = np.minimum(rng.gamma(2, 8 + 0.15 * age[who] + 6 * (region[who] == 3), len(who)), 300)
    names = np.array(list("nsewcx"), dtype=object)
    tables = {
        "person": {"id": np.arange(people), "age": age, "region": names[region]},
        "visit": {"id": who, "day": day, "cents": (amount * 100).astype(np.int64)},
    }
    return MadeUp(tables, "1", "1e-8", """
tables:
  person: {role: dimension, key: id, private: true, columns: {
    age: {type: int, lower: 18, upper: 89}, region: {type: string, categories: [n, s, e, w, c, x]}}}
  visit: {role: fact, max_ids: auto, foreign_keys: {id: person}, columns: {
    day: {type: date, lower: 2024-01-01, upper: 2025-12-31, cuts: {width: 7}},
    amount: {type: decimal, scale: 2, lower: 0, upper: 300, measure: true}}}
views:
  weeks: {of: visit, axes: [visit.day, person.region], measures: [count, visit.amount], share: 0.35}
  ages: {of: visit, axes: [person.age, person.region], measures: [count, visit.amount], share: 0.3}
  three:
    of: visit
    axes: [person.region, {axis: person.age, cuts: {width: 8}}, {axis: visit.day, cuts: {width: 28}}]
    measures: [count, visit.amount]
    share: 0.35
""")  # fmt: skip


def prices() -> MadeUp:
    rng, people, rows, items = np.random.default_rng(404), 60_000, 1_200_000, 3_000
    busy = rng.lognormal(0, 0.8, people)
    who = rng.choice(people, rows, p=busy / busy.sum())
    week = np.linspace(1, 3, 365) * np.tile([1, 1, 1, 1, 1.4, 2, 0.3], 53)[:365]
    day = rng.choice(365, rows, p=week / week.sum())
    step = np.minimum(rng.exponential(40, items).astype(int), 149)
    what, later = rng.integers(0, items, rows), rng.random(rows) < day / 730
    what[later] = np.argsort(step)[rng.integers(items // 3, items, int(later.sum()))]
    cents = (2 + step[what] * 3) * rng.choice([90, 100, 100, 110], rows)
    tables = {
        "person": {"id": np.arange(people)},
        "item": {"item_id": np.arange(items), "half": 4 + 6 * step},
        "buy": {"id": who, "item_id": what, "day": day, "cents": cents},
    }
    return MadeUp(tables, "1", "1e-8", """
tables:
  person: {role: dimension, key: id, private: true}
  item: {role: dimension, key: item_id, private: false}
  buy: {role: fact, max_ids: auto, foreign_keys: {id: person, item_id: item}, columns: {
    day: {type: date, lower: 2024-01-01, upper: 2024-12-30},
    amount: {type: decimal, scale: 2, lower: 0, upper: 500, measure: true}}}
views:
  days: {of: buy, axes: [buy.day], measures: [count, buy.amount], share: 0.3}
  prices: {of: buy, axes: [{axis: item, by: [price]}], measures: [count, buy.amount], share: 0.3}
  both: {of: buy, axes: [buy.day, {axis: item, by: [price]}], measures: [count, buy.amount], share: 0.4}
""")  # fmt: skip


STARS: Mapping[str, Callable[[], MadeUp]] = {"incomes": incomes, "visits": visits, "prices": prices}


def boxes(star: Star, seed: int = 7) -> Iterator[Questions]:
    """Random boxes of each view, and ranges of each of its axes.

    Args:
        star: the star.
        seed: of the questions.
    """
    rng = np.random.default_rng(seed)

    asked: dict[str, list[tuple[str, tuple[np.ndarray, ...]]]] = {}
    for view, (rows, _) in star.truth.items():
        shape = list(enumerate(rows.shape))
        asked[view] = [(f"{view}, box", tuple(random_range(rng, n) for _, n in shape)) for _ in range(BOXES)]
        for axis in range(rows.ndim) if rows.ndim > 1 else ():
            asked[view] += [
                (f"{view}, range", tuple(random_range(rng, n) if i == axis else np.ones(n) for i, n in shape))
                for _ in range(BOXES // 2)
            ]
    return seen(star.truth, asked, SMALLEST)


def measured(star: Star, draws: int) -> Measured:
    """All boxes asked of some releases."""
    return measure_star(list(boxes(star)), star.measure, map(star.release, range(1, draws + 1)))


def measure(figures: Figures, *, releases: int = 12, stars: Sequence[str] = tuple(STARS)) -> None:
    """Draw so many releases of each star."""
    for name in stars:
        with tempfile.TemporaryDirectory() as folder:
            found = measured(open_star(STARS[name]().write(Path(folder))), releases)
        for cell, held in found.held.items():
            what, over = f"userlevel made-up {name}, {', '.join(cell)}", round(least_held(BAR, len(held)), 1)
            title = "made-up stars, % of intervals that cover less its bar"
            figures.at_least(title, found.share(cell) - over, 0, what)
            print(f"told   {what}: error {found.error(cell):.2f}%", flush=True)


if __name__ == "__main__":
    main(measure)
