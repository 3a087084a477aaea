"""Made-up stars with ordered axes that nothing was tuned on: `python -m benchmarks.userlevel.made_up`.

They were written when neighbours on ordered axes came to be counted together, and measured once when that was done.

| star | what is hard about it |
|---|---|
| `incomes` | log-normal rows; dear things are popular, and who buys most buys cheaper |
| `visits` | weeks, ages and regions in three views, one of three axes; people come for a while, more of them later |
| `prices` | 365 days by 148 prices, both of two levels; more dear things later |
| `tiers` | Pareto rows, and an axis that follows from a customer's number of rows, as a loyalty tier does |
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from benchmarks.figures import Figures
from benchmarks.userlevel.measure import BAR, least_held
from benchmarks.userlevel.questions import Questions, answers, read
from benchmarks.userlevel.releases import Star, open_star

BOXES, SMALLEST = 60, 0.002
"""Random boxes of each view, half as many ranges of each axis of wider views; those of fewer rows are not asked."""

TOLD = ("tiers",)
"""Stars whose figures have no bound: no interval knows that unseen people share a leaf."""

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
        db, shown = duckdb.connect(), {"cents": "(cents / 100)::DECIMAL(7, 2) AS amount"}
        shown |= {"half": "(half / 2)::DECIMAL(7, 2) AS price", "day": "DATE '2024-01-01' + day::INT AS day"}
        for name, columns in self.tables.items():
            db.register("raw", columns)
            select = ", ".join(shown.get(column, column) for column in columns)
            db.execute(f"COPY (SELECT {select} FROM raw) TO '{folder}/{name}.parquet' (FORMAT parquet)")
            db.unregister("raw")
        sources = ", ".join(f"{name}: {name}.parquet" for name in self.tables)
        file = folder / "made_up.yaml"
        file.write_text(
            HEAD.format(sources=sources, epsilon=self.epsilon, delta=self.delta) + self.rest, encoding="utf-8"
        )
        return file


def incomes() -> MadeUp:
    """See the module."""
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
    """See the module."""
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
    """See the module."""
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


def tiers() -> MadeUp:
    """See the module."""
    rng, people, items = np.random.default_rng(303), 8_000, 2_000
    owned = np.minimum((rng.pareto(1.6, people) + 1) * 4, 600).astype(int)
    who, rich = np.repeat(np.arange(people), owned), rng.random(people)
    peak = np.exp(-(((np.arange(300) - 90) / 80) ** 2))
    step = rng.choice(300, items, p=peak / peak.sum())
    near = np.clip(rng.beta(1 + 2 * rich[who], 1 + 2 * (1 - rich[who])), 0, 0.9999)
    what = np.argsort(step)[(near * items).astype(int)]
    tables = {
        "person": {"id": np.arange(people), "tier": np.clip(rich * 20 + owned**0.5, 0, 39).astype(np.int64)},
        "item": {"item_id": np.arange(items), "half": 2 + step},
        "buy": {
            "id": who,
            "item_id": what,
            "cents": (2 + step[what]) * 50 * rng.choice([1, 1, 1, 2], len(who)),
        },
    }
    return MadeUp(tables, "2", "1e-6", """
tables:
  person: {role: dimension, key: id, private: true, columns: {tier: {type: int, lower: 0, upper: 39}}}
  item: {role: dimension, key: item_id, private: false}
  buy: {role: fact, max_ids: auto, foreign_keys: {id: person, item_id: item}, columns: {
    amount: {type: decimal, scale: 2, lower: 0, upper: 301, measure: true}}}
views:
  prices: {of: buy, axes: [{axis: item, by: [price]}], measures: [count, buy.amount], share: 0.4}
  tiers: {of: buy, axes: [person.tier], measures: [count, buy.amount], share: 0.3}
  cross: {of: buy, axes: [person.tier, {axis: item, by: [price]}], measures: [count, buy.amount], share: 0.3}
""")  # fmt: skip


STARS: Mapping[str, Callable[[], MadeUp]] = {
    "incomes": incomes, "visits": visits, "prices": prices, "tiers": tiers
}  # fmt: skip


def boxes(star: Star, seed: int = 7) -> Iterator[Questions]:
    """Random boxes of each view, and ranges of each of its axes.

    Args:
        star: the star.
        seed: of the questions.
    """
    rng = np.random.default_rng(seed)

    def one(n: int) -> np.ndarray:
        low, high = np.sort(rng.choice(n + 1, 2, replace=False))
        return ((np.arange(n) >= low) & (np.arange(n) < high)).astype(float)

    for view, (rows, sums) in star.truth.items():
        asked = [("box", [one(n) for n in rows.shape]) for _ in range(BOXES)]
        for axis in range(rows.ndim) if rows.ndim > 1 else ():
            asked += [
                ("range", [one(n) if i == axis else np.ones(n) for i, n in enumerate(rows.shape)])
                for _ in range(BOXES // 2)
            ]
        masks = tuple(np.array([own[i] for _, own in asked]) for i in range(rows.ndim))
        kept = read(rows, masks) >= SMALLEST * rows.sum()
        masks = tuple(mask[kept] for mask in masks)
        count, total = read(rows, masks), read(sums, masks)
        kinds = tuple(kind for (kind, _), keep in zip(asked, kept, strict=True) if keep)
        yield Questions(view, kinds, masks, {"COUNT": count, "SUM": total, "AVG": total / count})


class Held(NamedTuple):
    """What releases of a star gave, by (view, kind, aggregate).

    Args:
        errors: relative, in percent.
        held: whether the 95% interval held the exact answer.
    """

    errors: dict[tuple[str, str, str], list[float]]
    held: dict[tuple[str, str, str], list[bool]]


def measure(star: Star, releases: int) -> Held:
    """Ask all boxes of some releases."""
    asked, found = list(boxes(star)), Held(defaultdict(list), defaultdict(list))
    for seed in range(1, releases + 1):
        release = star.release(seed)
        for own in asked:
            for name, answer in answers(release, own, star.measure).items():
                right = own.right[name]
                off, inside = np.abs(answer.value - right), (answer.low <= right) & (right <= answer.high)
                for i in np.flatnonzero(np.isfinite(answer.value)):
                    found.errors[own.view, own.kinds[i], name].append(float(100 * off[i] / abs(right[i])))
                    found.held[own.view, own.kinds[i], name].append(bool(inside[i]))
    return found


def main() -> int:
    """Print all figures; 1 if any is short."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--releases", type=int, default=12, help="of each star")
    parser.add_argument("--stars", nargs="+", default=list(STARS), choices=STARS)
    given, figures = parser.parse_args(), Figures()
    for name in given.stars:
        with tempfile.TemporaryDirectory() as folder:
            found = measure(open_star(STARS[name]().write(Path(folder))), given.releases)
        for (view, kind, aggregate), held in found.held.items():
            what = f"userlevel made-up {name}, {view}, {kind}, {aggregate}"
            share, median = 100 * float(np.mean(held)), float(np.median(found.errors[view, kind, aggregate]))
            if name in TOLD:
                print(f"told   {what}: error {median:.2f}%, 95% intervals hold {share:.1f}%", flush=True)
            else:
                figures.at_least(
                    "made-up stars, % of intervals that cover less its bar",
                    share - round(least_held(BAR, len(held)), 1),
                    0,
                    what,
                )
                print(f"told   {what}: error {median:.2f}%", flush=True)
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
