"""95% intervals of rows that a statement chose by their noise: the largest of sixty groups, or those above a threshold.

One set of cells a star, noise drawn anew for each release. Tied groups are worst: whichever is shown was chosen by
noise alone. Flat groups differ by less than the noise, steep ones by more. Coverage is one less the mean share of the
shown intervals that miss; a release that shows no row misses none.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.coverage import covers, draws, interval_cells, opened, redrawn
from benchmarks.figures import Figures, main
from dpsql.catalog import load_catalog
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy
from dpsql.results.result import Result
from tests.releases import write_tables

GROUPS, SEED = 60, 20261123
LEAST, NORMAL = 0.93, 1.959964
DELTAS = ("0", "1e-6")
"""Half of the releases draw Laplace noise, half Gaussian noise."""
STARS: Mapping[str, np.ndarray] = {
    "flat": 300 + np.arange(GROUPS) // 2,
    "steep": (3000 * 0.9 ** np.arange(GROUPS)).astype(np.int64) + 20,
    "tied": np.full(GROUPS, 300),
}
"""Rows of each group; the noise has a standard deviation of 14 (pure) to 37 rows."""

CATALOG = """
dpsql: 1
name: shops
source: {{kind: parquet, root: "{root}", tables: {{sales: {star}.parquet}}}}
privacy: {{lineage: shops, cap: 10, unit: row, epsilon: 0.1, delta: {delta}}}
tables:
  sales: {{role: fact, columns: {{shop: {{type: int, lower: 0, upper: 59}}}}}}
views: {{shops: {{of: sales, axes: [sales.shop], measures: [count], mechanism: identity}}}}
"""

TOP = "SELECT shop, COUNT(*) AS n FROM sales WHERE shop IS NOT NULL GROUP BY shop ORDER BY n DESC LIMIT {}"
STATEMENTS = {f"top-{r}": TOP.format(r) for r in (1, 3, 10)} | {
    "HAVING COUNT(*) > 350": "SELECT shop, COUNT(*) AS n FROM sales GROUP BY shop HAVING COUNT(*) > 350",
}


class Coverage:
    """How often intervals cover, and how wide they are compared with those of single numbers."""

    def __init__(self) -> None:
        self.missed: list[float] = []
        self.wider: list[float] = []

    def add(self, result: Result, exact: Mapping[int, float]) -> None:
        """One answer: a key and a count in each row."""
        cells = list(interval_cells(result))
        missed = [not covers(low[1], exact[row[0]], high[1]) for row, low, high in cells]
        self.missed.append(float(np.mean(missed or [0.0])))
        for (_, low, high), noise in zip(cells, result.noise_rows, strict=True):
            self.wider.append((high[1] - low[1]) / (2 * NORMAL * noise[1]))


def covered(star: str, counts: np.ndarray, releases: int, folder: Path) -> dict[str, Coverage]:
    """Coverage of each statement on one star, over releases of both noises."""
    rows = " UNION ALL ".join(f"SELECT {shop} AS shop FROM range({n})" for shop, n in enumerate(counts))
    write_tables(folder, {star: rows})
    found = {name: Coverage() for name in STATEMENTS}
    for delta in DELTAS:
        file = folder / f"{star}-{delta}.yaml"
        file.write_text(CATALOG.format(root=folder, star=star, delta=delta))
        seed = SEED + len(DELTAS) * list(STARS).index(star) + DELTAS.index(delta)
        publish, noise = redrawn(load_catalog(file), folder), ExactNoise(insecure_test_entropy(seed))
        for exact in opened([publish(ZeroNoise(), "exact.dpsql")]):
            truth = dict(exact.query("SELECT shop, COUNT(*) FROM sales GROUP BY shop").rows)
        for answerer in draws(publish, noise, releases // len(DELTAS)):
            for name, text in STATEMENTS.items():
                found[name].add(answerer.query(text), truth)
    return found


def measure(figures: Figures, folder: Path, releases: int = 240) -> None:
    """Draw each star so many times."""
    for star, counts in STARS.items():
        for name, coverage in covered(star, counts, releases, folder).items():
            wider = NORMAL * np.median(coverage.wider or [1.0])
            print(f"{star}, {name}: {len(coverage.wider)} intervals of +- {wider:.2f} standard errors")
            share = 1 - float(np.mean(coverage.missed))
            figures.at_least("coverage of rows chosen by noise", share, LEAST, f"{name}, {star} groups")


if __name__ == "__main__":
    main(measure)
