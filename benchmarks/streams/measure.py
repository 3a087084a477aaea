"""Figures that the stream strategies must reach: `python -m benchmarks.streams.measure`.

One line a figure, then the tables of benchmarks/results/streams.md.

Errors are variances per unit count at epsilon = 1 (pure) or mu^2 = 1 (Gaussian), from closed forms; times are of this
run, processor seconds.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import numpy as np

from benchmarks.figures import Figures
from benchmarks.streams.agree import Figure, agreement_figures, choice_figures, choice_table
from benchmarks.streams.spectral import spectral_figures, spectral_table
from dpsql.mechanisms.continual import words
from dpsql.mechanisms.continual.fda import fda_strategy
from dpsql.mechanisms.continual.nodes import NodeErrors
from dpsql.mechanisms.continual.subtraction import best_subtraction
from dpsql.mechanisms.continual.time_strategy import TimeStrategy, question_of
from dpsql.mechanisms.continual.time_tree import TimeTreeStrategy
from dpsql.mechanisms.distribution import LAPLACE, NoiseDistribution
from dpsql.mechanisms.integer_rows import AxisBudget
from dpsql.noise import ExactNoise, os_entropy
from dpsql.streams.append import Batch, StreamNoise, StreamSpec, StreamStatistic, opened_stream
from dpsql.tree import FloatArray
from tests.time_forms import (
    asking,
    create_stream,
    root_coefficients,
)

COUNT = StreamStatistic(LAPLACE, (AxisBudget(np.ones(1, np.int64), 1),), Fraction(1), 1)


def mean_and_largest(variance: FloatArray) -> tuple[float, float]:
    """Of the prefixes' variances."""
    return float(variance.mean()), float(variance.max())


def of_nodes(errors: NodeErrors) -> tuple[float, float]:
    """Prefix errors of a strategy made of noise nodes: running sums of node entries and exits."""
    nodes = errors.nodes
    change = np.bincount(nodes.first, errors.variance, nodes.horizon + 2)
    change -= np.bincount(nodes.stop, errors.variance, nodes.horizon + 2)
    return mean_and_largest(np.maximum(np.cumsum(change)[1 : nodes.horizon + 1], 0.0))


def of_subtraction(n: int, law: NoiseDistribution) -> tuple[float, float]:
    """Prefix errors of k-ary subtraction."""
    return of_nodes(best_subtraction(asking(law, n, "prefix")).errors(n))


def of_toeplitz(n: int) -> tuple[float, float]:
    """Prefix errors of square-root Toeplitz at mu^2 1."""
    norms = np.cumsum(root_coefficients(n) ** 2)
    return mean_and_largest(norms * norms[-1])


def error_figures() -> Iterator[Figure]:
    """The errors that the strategies must reach."""
    axis = TimeTreeStrategy(LAPLACE, (1, 28), (6, 4)).errors(365)
    for question, bound in (("prefix", 100), ("range", 97), ("1", 6), ("30", 61)):
        value = question_of(question, 1).error(axis)
        yield Figure(f"days and blocks of 28, N = 365, {question}", value, bound)
    for n, bound in ((1023, 160), (65535, 560), (2**20 - 1, 1035)):
        yield Figure(f"prefix strategy, N = {n}", of_subtraction(n, LAPLACE)[0], bound)
    for n, bound_there in ((1023, 9.8), (65535, 19.7), (2**20 - 1, 28.3)):
        yield Figure(f"Gaussian, N = {n}", of_toeplitz(n)[0], bound_there)


def long_tree(horizon: int) -> TimeStrategy:
    """The tree that a long stream gets."""
    return words()["chain"].choose(asking(LAPLACE, horizon, "running", "range", "1", "7", "30")).strategy


def growth_figures() -> Iterator[Figure]:
    """Cost of a batch late in a stream against early on, to 2^16 batches, and the nodes it touches."""
    horizon, span = 1 << 16, "last 4,096 of 2^16 / first 4,096"
    for name, strategy in (("time tree", long_tree(horizon)), ("FDA", fda_strategy(LAPLACE, horizon))):
        most, early, late = decide_times(strategy, horizon)
        yield Figure(f"{name}, most nodes in one batch of 2^16", most, 17)
        yield Figure(f"{name}, seconds to decide a batch, {span}", late / early, 1.5)
    yield Figure("append, seconds, after 1,000 batches / at the start", append_ratio(), 2.0)


def decide_times(strategy: TimeStrategy, batches: int) -> tuple[float, float, float]:
    """Most nodes in one batch; seconds for the first and the last 4,096 decisions (draws and private state)."""
    spec = StreamSpec(strategy, (1,))
    draw = StreamNoise([COUNT], ExactNoise(os_entropy()))
    most = max(len(strategy.emissions(number)) for number in range(batches))
    spans: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        directory, private = Path(folder) / "release", Path(folder) / "private" / "state"
        create_stream(directory, private, spec, release_id="bench", secret=bytes(32))
        with opened_stream(directory, private, spec) as stream:
            for start in range(0, batches, 4096):
                begin = time.process_time()
                with stream.state.transaction():  # one sync for many: the disk's pace is not the question
                    for number in range(start, start + 4096):
                        stream.decide(Batch(number, b"", (np.ones(1, np.int64),)), draw)
                spans.append(time.process_time() - begin)
    return float(most), spans[0], spans[-1]


def append_ratio() -> float:
    """Median seconds of whole appends, public side included: batches 960..1,020 over batches 4..64."""
    spec = StreamSpec(long_tree(1 << 16), (1,))
    draw = StreamNoise([COUNT], ExactNoise(os_entropy()))
    taken = []
    with tempfile.TemporaryDirectory() as folder:
        directory, private = Path(folder) / "release", Path(folder) / "private" / "state"
        create_stream(directory, private, spec, release_id="bench", secret=bytes(32))
        for number in range(1020):
            begin = time.process_time()
            with opened_stream(directory, private, spec) as stream:
                stream.append(Batch(number, b"", (np.ones(1, np.int64),)), draw)
            taken.append(time.process_time() - begin)
    return float(np.median(taken[960:]) / np.median(taken[4:64]))


def main() -> int:
    """Print the figures and two tables; 1 if a figure is short."""
    figures = Figures()
    groups = {
        "choice by auto": choice_figures(),
        "simulated variances": agreement_figures(),
        "spectral rows": spectral_figures(),
        "errors": error_figures(),
        "growth": growth_figures(),
    }
    for group, measured in groups.items():
        for name, value, bound in measured:
            figures.at_most(f"streams, {group}, how far past the bound", value - bound, 0, name)
    print("\n".join([*choice_table(), *spectral_table()]))
    return figures.finish()


if __name__ == "__main__":
    sys.exit(main())
