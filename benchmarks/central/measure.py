"""Measure every mechanism: build/accuracy/*.parquet, a file a section, from which the page is made.

    DPSQL_DATA=... python -m benchmarks.central.measure [section ..]     all sections unless some are named

After "chosen" the figures of `auto` against the best rival are printed; the exit code is 1 if one is short. Noise is
the shipped law from a seeded generator, so a section repeats to the last digit.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.baselines import linear, planar, registry, shipped
from benchmarks.baselines.common import FloatArray, IntArray, SimulationNoise
from benchmarks.baselines.shipped import unbiased_strategy
from benchmarks.central import datasets
from benchmarks.central import logs as query_logs
from benchmarks.central.best import PROMISED, RIVALS, promise
from benchmarks.central.exact import exact_errors, shipped_errors
from benchmarks.central.ranges import FIRST_SEED, Row, all_ranges, measure, prefix_errors
from benchmarks.figures import Figures
from dpsql.mechanisms.axis.strategy import expected_error
from dpsql.mechanisms.family.adaptive import SIGNAL_SHARE, AdaptiveRelease, draw_adaptive
from tests.strategies import adaptive_cells

BUILD = Path("build/accuracy")
EPSILONS = (Fraction(1, 100), Fraction(1, 10), Fraction(1))
RUNS, MANY = 20, 100
ALIGNED = "DAWA, aligned buckets"


def grid() -> Iterator[Row]:
    """Every one-axis mechanism on every histogram; the promised ones with more runs for what ships."""
    for name, counts in _histograms():
        for epsilon in EPSILONS:
            for mechanism, publish in registry.ALL.items():
                more = name in PROMISED and mechanism in (*RIVALS, "auto")
                yield from measure("grid", name, counts, epsilon, mechanism, publish, MANY if more else RUNS)


def chosen() -> Iterator[Row]:
    """`auto` and its rivals on DPBench: unbiased rows by their exact errors, the others by releases."""
    for name in datasets.DPBENCH:
        counts = datasets.dpbench(name)
        exact = shipped_errors(len(counts))
        for epsilon in EPSILONS:
            for mechanism in ("auto", *RIVALS):
                publish = registry.ALL[mechanism]
                if mechanism in exact:
                    yield Row(
                        "chosen", name, len(counts), float(epsilon), mechanism, 0, 0, exact[mechanism], 0.0
                    )
                elif mechanism == "auto":
                    yield _auto_row(name, counts, epsilon, MANY if name in PROMISED else RUNS)
                else:
                    runs = MANY if name in PROMISED else RUNS
                    yield from measure("chosen", name, counts, epsilon, mechanism, publish, runs)
            if name in PROMISED:
                yield from measure("chosen", name, counts, epsilon, ALIGNED, registry.ALL[ALIGNED], RUNS)


def _full_error(cells: int) -> float:
    """The error of `auto` on a histogram that it takes for full: the unbiased optimum with what the signal leaves."""
    return float(shipped_errors(cells)["auto, unbiased"] / (1 - SIGNAL_SHARE) ** 2)


def _auto_row(name: str, counts: IntArray, epsilon: Fraction, runs: int) -> Row:
    """The error of `auto` over all ranges: its expectation where it measures the unbiased optimum, else as drawn."""
    errors = []
    for run in range(runs):
        release = draw_adaptive(counts, epsilon, 1, SimulationNoise(FIRST_SEED + run), unbiased_strategy)
        errors.append(_full_error(len(counts)) if release.full else _drawn(counts, epsilon, release))
    spread = float(np.std(errors) / runs**0.5)
    return Row("chosen", name, len(counts), float(epsilon), "auto", 0, runs, float(np.mean(errors)), spread)


def _drawn(counts: IntArray, epsilon: Fraction, release: AdaptiveRelease) -> float:
    return all_ranges(prefix_errors(counts, adaptive_cells(release))) * float(epsilon) ** 2


def _histograms() -> Iterator[tuple[str, IntArray]]:
    for name in datasets.DPBENCH:
        yield name, datasets.dpbench(name)
    yield from datasets.stars()
    for kind in ("blocks", "logs", "trace"):
        yield f"generated {kind}", datasets.generated(kind, 1024, 100_000)


def planar_grid() -> Iterator[Row]:
    """Two axes: 5,000 random rectangles of the 256 x 256 DPBench histograms."""
    rng = np.random.default_rng(11)
    corners = np.sort(rng.integers(0, 257, (2, 2, 6000)), axis=0)
    corners = corners[:, :, np.all(corners[0] < corners[1], axis=0)][:, :, :5000]
    for name in datasets.DPBENCH_2D:
        counts = datasets.dpbench_2d(name)
        for epsilon in EPSILONS:
            for mechanism, publish in planar.ALL.items():
                noises = [SimulationNoise(FIRST_SEED + run) for run in range(RUNS)]
                errors = [_rectangles(counts - publish(counts, epsilon, noise), corners) for noise in noises]
                scaled = np.array(errors) * float(epsilon) ** 2
                yield Row(
                    "planar", name, counts.size, float(epsilon), mechanism, 0, RUNS,
                    float(scaled.mean()), float(scaled.std() / RUNS**0.5),
                )  # fmt: skip


def _rectangles(wrong: FloatArray, corners: IntArray) -> float:
    """Mean squared error over rectangles given by corners[low|high, axis, query]."""
    prefix = np.zeros((wrong.shape[0] + 1, wrong.shape[1] + 1))
    prefix[1:, 1:] = wrong.cumsum(axis=0).cumsum(axis=1)
    (a, c), (b, d) = corners
    return float(np.square(prefix[b, d] - prefix[a, d] - prefix[b, c] + prefix[a, c]).mean())


def trees() -> Iterator[Row]:
    """LUE-DPTree's figures 3.11, 3.12 and 3.16-3.19, on generated histograms of the same sizes."""
    amazon = datasets.generated("logs", 2010, 716_064)
    aol = datasets.generated("logs", 48_130, 36_389_577)
    short = {"Dwork": linear.dwork, "binary tree + BLUE": linear.boost, "SC + BLUE": shipped.struct_construct}
    for name, counts in (("Amazon size, generated", amazon), ("AOL size, generated", aol)):
        for mechanism, publish in short.items():
            yield from measure("3.11-3.12", name, counts, Fraction(1), mechanism, publish, 100)
    names = ("Boost", "Boost-UN", "Privelet", "LUE-DPTree", "tents", "HB")
    for name, source, factor in (("Search Logs size", "SEARCHLOGS", 8), ("Nettrace size", "NETTRACE", 16)):
        counts = datasets.spread_out(datasets.dpbench(source), factor)
        for epsilon in EPSILONS:
            for mechanism in names:
                yield from measure("3.16-3.19", name, counts, epsilon, mechanism, registry.ALL[mechanism], 50)


def groups() -> Iterator[Row]:
    """DiffHR's figures 6-8: Waitakere's size generated, Search Logs and Nettrace dealt out from DPBench."""
    sources = (
        ("Waitakere size, generated", datasets.generated("blocks", 7725, 186_471)),
        ("Search Logs size", datasets.spread_out(datasets.dpbench("SEARCHLOGS"), 8)),
        ("Nettrace size", datasets.spread_out(datasets.dpbench("NETTRACE"), 16)),
    )
    names = ("GS", "AHP", "DiffHR as published (not private)", "DiffHR, private", "auto", "Dwork")
    for name, counts in sources:
        for epsilon in EPSILONS:
            for mechanism in names:
                yield from measure("6-8", name, counts, epsilon, mechanism, registry.ALL[mechanism], RUNS)


def exact() -> Iterator[Row]:
    """The table of expected errors over all ranges, each also measured on a histogram of zeros."""
    for n in (256, 1024, 4096, 65_536):
        runs = 400 if n <= 4096 else 50
        for mechanism, (publish, error) in exact_errors(n).items():
            yield Row("exact", "all ranges", n, 1.0, mechanism, 0, 0, error, 0.0)
            zeros = np.zeros(n, np.int64)
            noises = [SimulationNoise(FIRST_SEED + run) for run in range(runs)]
            draws = [all_ranges(prefix_errors(zeros, publish(zeros, Fraction(1), noise))) for noise in noises]
            spread = float(np.std(draws) / runs**0.5)
            yield Row("measured", "all ranges", n, 1.0, mechanism, 0, runs, float(np.mean(draws)), spread)
    for n in (16_384, 262_144):
        error = expected_error(shipped.unbiased_strategy(n))
        yield Row("exact", "all ranges", n, 1.0, "auto (unbiased)", 0, 0, error, 0.0)


SECTIONS = {
    "exact": exact,
    "logs": query_logs.rows,
    "chosen": chosen,
    "grid": grid,
    "planar": planar_grid,
    "trees": trees,
    "groups": groups,
}


def _write(section: str, rows: Iterable[Row]) -> None:
    """One parquet file a section."""
    BUILD.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist([row._asdict() for row in rows])
    pq.write_table(table, BUILD / f"{section}.parquet")


def main(arguments: list[str]) -> int:
    """Measure the named sections, or all of them; 1 if a figure is short."""
    figures = Figures()
    for section in arguments or SECTIONS:
        start = time.perf_counter()
        _write(section, SECTIONS[section]())
        print(f"{section}: {time.perf_counter() - start:.0f} s", flush=True)
        if section == "chosen":
            promise(pd.read_parquet(BUILD / "chosen.parquet"), figures)
    return figures.finish()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
