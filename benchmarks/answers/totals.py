"""Totals of two tables under `max_ids: auto`, and releases whose noise hides how many rows there are.

| star | readers' loans and fines |
|---|---|
| desk, made up | log-normal of deviation .7 |
| geometric, made up | geometric of mean 6, of a third of the readers also fines |
| foodmart | sales of 1997, and of December 1998, of FoodMart's customers |

The share of 95% intervals that cover ratio, difference and sum of both tables' totals, beside each total alone; and of
releases at a twentieth of the budget, of shares, averages and medians that have an interval. FoodMart needs DPSQL_DATA.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.coverage import covers, opened
from benchmarks.figures import Figures, main
from dpsql.executor.engine import ReleaseEngine
from tests.releases import plain_tables, published, seeded
from tests.two_facts_star import write_rows

LOW, HIGH = 0.93, 0.98
TOTALS = "FROM (SELECT COUNT(*) AS n FROM loans) AS a, (SELECT COUNT(*) AS n FROM fines) AS b"
ALONE = {"loans": "a.n", "fines": "b.n"}
ACROSS = {"ratio": "b.n * 1.0 / a.n", "difference": "a.n - b.n", "sum": "a.n + b.n", **ALONE}
INSIDE = {
    "share": "COUNT(*) FILTER (WHERE kind = 1) * 1.0 / COUNT(*)", "average": "AVG(days)",
    "average of an axis": "AVG(kind)", "median": "MEDIAN(kind)",
}  # fmt: skip


def owned(name: str, data: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of each reader in both tables."""
    rng = np.random.default_rng(7)
    if name == "desk":
        loans, fines = (np.minimum(rng.lognormal(m, 0.7, 3000).astype(int) + 1, 60) for m in (1.6, 1.0))
        return loans, fines
    if name == "geometric":
        return rng.geometric(1 / 6, 4000), np.where(rng.random(4000) < 1 / 3, rng.geometric(1 / 4, 4000), 0)
    counted = "SELECT customer_id, count(*) FROM '{}/foodmart/{}.parquet' GROUP BY 1"
    files = ("sales_fact_1997", "sales_fact_dec_1998")
    years = [dict(duckdb.execute(counted.format(data, file)).fetchall()) for file in files]
    people = sorted(set(years[0]) | set(years[1]))
    one, two = (np.array([year.get(person, 0) for person in people]) for year in years)
    return one, two


def released(catalog: Path, releases: int) -> Iterator[ReleaseEngine]:
    """So many releases of a catalog."""
    return opened(
        published(catalog, seeded(number), str(number), bytes(range(number % 200, number % 200 + 32)))
        for number in range(releases)
    )


def covered(name: str, releases: int, figures: Figures, folder: Path) -> None:
    """The figures of a star."""
    for epsilon, asked, source in (("1", ACROSS, TOTALS), ("0.05", INSIDE, "FROM loans")):
        own = folder / f"{name} {epsilon}"
        own.mkdir()
        rows = owned(name, os.environ.get("DPSQL_DATA", ""))
        catalog = write_rows(own, *rows, np.random.default_rng(9), epsilon=epsilon)
        with plain_tables(own) as raw:
            truth = {
                word: raw.execute(f"SELECT {value} {source}").fetchall()[0][0]
                for word, value in asked.items()
            }
        inside, open_ended = {word: list[bool]() for word in asked}, 0
        for answers in released(catalog, releases):
            is_open = answers.query("SELECT COUNT(*) FROM loans").interval_rows(0.95)[1][0][0] is None
            open_ended += is_open
            for word, value in asked.items():
                ((low,),), ((high,),) = answers.query(f"SELECT {value} {source}").interval_rows(0.95)
                if low is not None and high is not None and (is_open or asked is ACROSS):
                    inside[word].append(covers(low, truth[word], high))
        if asked is INSIDE:
            print(f"  {name}: {open_ended} of {releases} releases have an open end", flush=True)
        for word, hits in inside.items():
            share = float(np.mean(hits)) if hits else 0.0
            if word in ALONE:
                figures.table(f"{name}: total of {word} alone covered", share)
            elif hits and asked is ACROSS:
                figures.within("questions of two tables' totals covered", share, LOW, HIGH, f"{name}: {word}")
            elif hits:
                figures.at_least("open ends covered", share, LOW, f"{name}: {word} ({len(hits)})")


def measure(figures: Figures, folder: Path, releases: int = 60) -> None:
    for name in ("desk", "geometric", *(["foodmart"] if "DPSQL_DATA" in os.environ else [])):
        covered(name, releases, figures, folder)


if __name__ == "__main__":
    main(measure)
