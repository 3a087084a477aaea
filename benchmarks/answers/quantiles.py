"""Intervals of quantiles: how often they hold the quantile of the rows.

    python -m benchmarks.answers.quantiles [WORLDS]

Made-up counts over 60 days, and over the same days in bins of five: even, steep, in two humps, and few. Noise is that
of a published release of one view, drawn anew in each world.

Then quantiles of measures (`quantiles: true`): amounts that are skewed, heavy-tailed, even, of both signs, or whole,
whose axes have about 32 leaves made of the bounds. Ends of an interval are ends of leaves, since rows may lie
anywhere inside of one, so that it covers more often than its level says: only too few are wrong.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.figures import Figures
from dpsql.executor.engine import ReleaseEngine
from tests.releases import published, seeded

WORLDS, DAYS = 40, 60
HEAD = """
dpsql: 1
name: t
source: {{kind: parquet, tables: {{t: t.parquet}}}}
privacy: {{lineage: t, cap: 100, unit: row, epsilon: {epsilon}}}
tables:
"""
CATALOG = (
    HEAD
    + """
  t: {{role: fact, columns: {{day: {{type: date, lower: 2024-01-01, upper: 2024-02-29, out_of_domain: drop}}}}}}
views: {{days: {{of: t, axes: [{{axis: t.day{cuts}}}], measures: [count]}}}}
"""
)
SHAPES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "even": lambda draw: draw.integers(0, DAYS, 2000),
    "steep": lambda draw: draw.exponential(6.0, 2000),
    "two humps": lambda draw: np.where(
        draw.random(2000) < 0.5, draw.normal(12, 3, 2000), draw.normal(48, 3, 2000)
    ),
    "few": lambda draw: draw.integers(0, DAYS, 120),
}
SHARES = (0.1, 0.25, 0.5, 0.9)
MEASURED = (
    HEAD
    + """
  t: {{role: fact, columns: {{
    side: {{type: string, categories: [l, r], out_of_domain: drop}},
    amount: {{type: decimal, scale: 1, lower: {low}, upper: {high}, measure: true, quantiles: true}}}}}}
views: {{all: {{of: t, axes: [t.side], measures: [count, t.amount]}}}}
"""
)
AMOUNTS: dict[str, tuple[int, int, Callable[[np.random.Generator], np.ndarray]]] = {
    "skewed": (0, 500, lambda draw: draw.exponential(30.0, 2000)),
    "heavy": (0, 9000, lambda draw: draw.lognormal(3.0, 1.5, 2000)),
    "even": (18, 90, lambda draw: draw.uniform(18, 90, 2000)),
    "of both signs": (-50, 50, lambda draw: draw.normal(4, 9, 2000)),
    "whole": (0, 20, lambda draw: draw.poisson(3.0, 2000)),
    "few": (0, 100, lambda draw: draw.gamma(2.0, 9.0, 150)),
}


def released(
    folder: Path, raw: duckdb.DuckDBPyConnection, text: str, seed: int, on_partial_bin: str = "refuse"
) -> ReleaseEngine:
    """A release of the table `t`."""
    folder.mkdir()
    raw.execute(f"COPY t TO '{folder}/t.parquet' (FORMAT parquet)")
    (folder / "t.yaml").write_text(text)
    return published(folder / "t.yaml", seeded(seed), "t", on_partial_bin=on_partial_bin)


def covered(folder: Path, days: np.ndarray, epsilon: float, cuts: str, seed: int) -> list[bool]:
    """Whether each quantile's interval holds the rows' own quantile."""
    raw = duckdb.connect()
    raw.execute(
        "CREATE TABLE t AS SELECT DATE '2024-01-01' + unnest(?::INTEGER[]) AS day",
        [np.clip(days, 0, DAYS - 1).astype(int).tolist()],
    )
    asked, held = released(folder, raw, CATALOG.format(epsilon=epsilon, cuts=cuts), seed, "interpolate"), []
    for share in SHARES:
        answer = asked.query(f"SELECT QUANTILE_CONT(day, {share}) AS q FROM t")
        ((low,),), ((high,),) = answer.interval_rows()
        exact = raw.execute(f"SELECT QUANTILE_DISC(day, {share}) FROM t").fetchall()[0][0]
        held.append(low is not None and low <= exact <= high)
    asked.release.close()
    return held


def covered_of_measures(folder: Path, low: int, high: int, amounts: np.ndarray, seed: int) -> list[bool]:
    """Whether the intervals of a measure's quantiles, MIN and MAX cover those of the rows, by side."""
    raw = duckdb.connect()
    tenths = (10 * np.clip(amounts, low, high)).astype(int).tolist()
    raw.execute(
        "CREATE TABLE t AS SELECT 'lrr'[1 + (i * 7 % 3)::INT] AS side, (tenth / 10)::DECIMAL(9, 1) AS amount"
        " FROM (SELECT unnest(?::INTEGER[]) AS tenth, generate_subscripts(?::INTEGER[], 1) AS i)",
        [tenths, tenths],
    )
    asked = released(folder, raw, MEASURED.format(epsilon=0.5, low=low, high=high), seed)
    held = list[bool]()
    quantiles = {f"QUANTILE_DISC(amount, {share})": share for share in SHARES}
    for item, share in {**quantiles, "MIN(amount)": 0.01, "MAX(amount)": 0.99}.items():
        lows, highs = asked.query(
            f"SELECT side, {item} AS q FROM t GROUP BY side ORDER BY side"
        ).interval_rows()
        exact = raw.execute(
            f"SELECT QUANTILE_DISC(amount, {share}) FROM t GROUP BY side ORDER BY side"
        ).fetchall()
        held += [
            a[1] is not None and a[1] <= truth <= b[1]
            for a, b, (truth,) in zip(lows, highs, exact, strict=True)
        ]
    asked.release.close()
    return held


def main(worlds: int) -> int:
    """Measure and print; returns the exit code."""
    figures = Figures()
    draw = np.random.default_rng(5)
    for name, cuts in (("days", ""), ("bins of five days", ", cuts: {width: 5}")):
        held = []
        with tempfile.TemporaryDirectory() as folder:
            for world in range(worlds):
                for at, (_, shape) in enumerate(SHAPES.items()):
                    place = Path(folder) / f"{world}-{at}"
                    held += covered(place, shape(draw), 0.2, cuts, 1000 * world + at + 1)
        figures.at_least("coverage of quantiles", float(np.mean(held)), 0.93, f"dates by {name}")
    for at, (name, (low, high, shape)) in enumerate(AMOUNTS.items()):
        with tempfile.TemporaryDirectory() as folder:
            held = [
                covers
                for world in range(worlds)
                for covers in covered_of_measures(
                    Path(folder) / str(world), low, high, shape(draw), 1000 * world + 10 + at
                )
            ]
        share = float(np.mean(held))
        figures.at_least("coverage of quantiles", share, 0.93, f"measures, {name}")
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else WORLDS))
