"""Errors of an estimate, over all ranges or all ranges of one length, exactly and in O(n).

With prefix errors c_0 .. c_n, a range [i, j) errs by c_j - c_i, and the sum of squares over all i < j is
(n + 1) sum c^2 - (sum c)^2. So "uniform ranges" are all of them here, not a sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from benchmarks.baselines.common import Publish, SimulationNoise

FIRST_SEED = 1_000_000  # constants were tuned on seeds below 1,000; nothing was tuned on these

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


class Row(NamedTuple):
    """One measurement: the mean over runs of a mean squared error, times epsilon squared.

    Args:
        figure: which experiment it belongs to.
        data: name of the histogram.
        cells: number of cells.
        epsilon: as a float, for plots.
        mechanism: name in the registry.
        length: range length, 0 for all ranges.
        runs: independent releases.
        error: mean squared error times epsilon squared.
        spread: standard error of `error` over runs.
    """

    figure: str
    data: str
    cells: int
    epsilon: float
    mechanism: str
    length: int
    runs: int
    error: float
    spread: float


def prefix_errors(counts: IntArray, estimate: FloatArray) -> FloatArray:
    """c_0 .. c_n, shape (n + 1,)."""
    return np.concatenate([[0.0], np.cumsum(counts - estimate)])


def all_ranges(prefix: FloatArray) -> float:
    """Mean squared error over all n(n + 1)/2 ranges."""
    size = len(prefix)
    centred = prefix - prefix.mean()  # the formula does not see a shift; centring keeps its digits
    return float(size * np.square(centred).sum() / (size * (size - 1) / 2))


def one_length(prefix: FloatArray, length: int) -> float:
    """Mean squared error over all ranges of one length."""
    return float(np.square(prefix[length:] - prefix[:-length]).mean())


def measure(
    figure: str, data: str, counts: IntArray, epsilon: Fraction, mechanism: str, publish: Publish, runs: int
) -> Iterator[Row]:
    """Publish `runs` times and report the error over all ranges and over lengths 1, 2, 4, .."""
    lengths = [1 << i for i in range(len(counts).bit_length()) if 1 << i <= len(counts)]
    errors = np.zeros((runs, len(lengths) + 1))
    scale = float(epsilon) ** 2
    for run in range(runs):
        prefix = prefix_errors(counts, publish(counts, epsilon, SimulationNoise(FIRST_SEED + run)))
        errors[run] = [all_ranges(prefix), *(one_length(prefix, length) for length in lengths)]
    mean, spread = errors.mean(axis=0) * scale, errors.std(axis=0) * scale / np.sqrt(runs)
    for column, length in enumerate([0, *lengths]):
        yield Row(
            figure, data, len(counts), float(epsilon), mechanism, length, runs,
            float(mean[column]), float(spread[column]),
        )  # fmt: skip
