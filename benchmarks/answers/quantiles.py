"""Intervals of quantiles: how often they hold the quantile of the rows.

Made-up counts over 60 days, and over the same days in bins of five: even, steep, in two humps, and few. Noise is that
of a published release of one view, drawn anew in each world.

Then quantiles of measures (`quantiles: true`): amounts that are skewed, heavy-tailed, even, of both signs, or whole,
whose axes have about 32 leaves made of the bounds. Ends of an interval are ends of leaves, since rows may lie
anywhere inside of one, so that it covers more often than its level says: only too few are wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import numpy as np

from benchmarks.coverage import covers, interval_cells
from benchmarks.figures import Figures, main
from tests.releases import published, seeded, write_catalog

DAYS = 60
HEAD = """privacy: {lineage: t, cap: 100, unit: row, epsilon: EPSILON}
tables:
"""
CATALOG = f"""{HEAD}
  t: {{role: fact, columns: {{day: {{type: date, lower: 2024-01-01, upper: 2024-02-29, out_of_domain: drop}}}}}}
views: {{days: {{of: t, axes: [{{axis: t.dayCUTS}}], measures: [count]}}}}
"""
SHAPES: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "even": lambda draw: draw.integers(0, DAYS, 2000),
    "steep": lambda draw: draw.exponential(6.0, 2000),
    "two humps": lambda draw: np.where(
        draw.random(2000) < 0.5, draw.normal(12, 3, 2000), draw.normal(48, 3, 2000)
    ),
    "few": lambda draw: draw.integers(0, DAYS, 120),
}
SHARES = (0.1, 0.25, 0.5, 0.9)
MEASURED = f"""{HEAD}
  t: {{role: fact, columns: {{
    side: {{type: string, categories: [l, r], out_of_domain: drop}},
    amount: {{type: decimal, scale: 1, lower: LOW, upper: HIGH, measure: true, quantiles: true}}}}}}
views: {{all: {{of: t, axes: [t.side], measures: [count, t.amount]}}}}
"""
AMOUNTS: dict[str, tuple[int, int, Callable[[np.random.Generator], np.ndarray]]] = {
    "skewed": (0, 500, lambda draw: draw.exponential(30.0, 2000)),
    "heavy": (0, 9000, lambda draw: draw.lognormal(3.0, 1.5, 2000)),
    "even": (18, 90, lambda draw: draw.uniform(18, 90, 2000)),
    "of both signs": (-50, 50, lambda draw: draw.normal(4, 9, 2000)),
    "whole": (0, 20, lambda draw: draw.poisson(3.0, 2000)),
    "few": (0, 100, lambda draw: draw.gamma(2.0, 9.0, 150)),
}


def covered(
    folder: Path, rows: str, text: str, asked: dict[str, str], seed: int, partial: str, **words: object
) -> list[bool]:
    """Whether intervals cover the numbers of the rows; a quantile's ends are always there.

    Args:
        folder: to be made.
        rows: of the table `t`, in SQL.
        text: the catalog; `words` stand for others in it.
        asked: statements, and the same for the raw rows.
        seed: of the noise.
        partial: what the engine does with cut bins.
    """
    answerer = published(
        write_catalog(folder, text, {"t": rows}, **words), seeded(seed), on_partial_bin=partial
    )
    found = list[bool]()
    with duckdb.connect() as raw:
        raw.execute(f"CREATE TABLE t AS FROM '{folder}/t.parquet'")
        for sql, plain in asked.items():
            exact = raw.execute(plain).fetchall()
            for (*_, truth), (_, low, high) in zip(exact, interval_cells(answerer.query(sql)), strict=True):
                found.append(low[-1] is not None and covers(low[-1], truth, high[-1]))
    answerer.release.close()
    return found


def covered_of_dates(folder: Path, days: np.ndarray, cuts: str, seed: int) -> list[bool]:
    """Whether each quantile's interval holds the rows' own quantile."""
    at = np.clip(days, 0, DAYS - 1).astype(int).tolist()
    asked = {
        f"SELECT QUANTILE_CONT(day, {share}) AS q FROM t": f"SELECT QUANTILE_DISC(day, {share}) FROM t"
        for share in SHARES
    }
    rows = f"SELECT DATE '2024-01-01' + unnest({at}::INTEGER[]) AS day"
    return covered(folder, rows, CATALOG, asked, seed, "interpolate", EPSILON=0.2, CUTS=cuts)


def covered_of_measures(folder: Path, low: int, high: int, amounts: np.ndarray, seed: int) -> list[bool]:
    """Whether the intervals of a measure's quantiles, MIN and MAX cover those of the rows, by side."""
    tenths = (10 * np.clip(amounts, low, high)).astype(int).tolist()
    rows = (
        "SELECT 'lrr'[1 + (i * 7 % 3)::INT] AS side, (tenth / 10)::DECIMAL(9, 1) AS amount"
        f" FROM (SELECT unnest({tenths}::INTEGER[]) AS tenth, generate_subscripts({tenths}::INTEGER[], 1) AS i)"
    )
    quantiles = {f"QUANTILE_DISC(amount, {share})": share for share in SHARES}
    by_side = "SELECT side, {} AS q FROM t GROUP BY side ORDER BY side"
    asked = {
        by_side.format(item): by_side.format(f"QUANTILE_DISC(amount, {share})")
        for item, share in {**quantiles, "MIN(amount)": 0.01, "MAX(amount)": 0.99}.items()
    }
    return covered(folder, rows, MEASURED, asked, seed, "refuse", EPSILON=0.5, LOW=low, HIGH=high)


def measure(figures: Figures, folder: Path, worlds: int = 40) -> None:
    """Draw so many worlds of each shape."""
    draw = np.random.default_rng(5)
    for name, cuts in (("days", ""), ("bins of five days", ", cuts: {width: 5}")):
        held = [
            covers
            for world in range(worlds)
            for at, shape in enumerate(SHAPES.values())
            for covers in covered_of_dates(
                folder / f"{name} {world} {at}", shape(draw), cuts, 1000 * world + at + 1
            )
        ]
        figures.at_least("coverage of quantiles", float(np.mean(held)), 0.93, f"dates by {name}")
    for at, (name, (low, high, shape)) in enumerate(AMOUNTS.items()):
        held = [
            covers
            for world in range(worlds)
            for covers in covered_of_measures(
                folder / f"{name} {world}", low, high, shape(draw), 1000 * world + 10 + at
            )
        ]
        figures.at_least("coverage of quantiles", float(np.mean(held)), 0.93, f"measures, {name}")


if __name__ == "__main__":
    main(measure)
