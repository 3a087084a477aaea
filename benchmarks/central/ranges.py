"""Errors of an estimate over all ranges of one axis, exactly and in O(n), and over random boxes of several.

With prefix errors c_0 .. c_n, a range [i, j) errs by c_j - c_i, and the sum of squares over all i < j is
(n + 1) sum c^2 - (sum c)^2. So "uniform ranges" are all of them here, not a sample.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from benchmarks.baselines.common import Publish, SimulationNoise

FIRST_SEED = 1_000_000  # constants were tuned on seeds below 1,000; nothing was tuned on these

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
Boxes = tuple[IntArray, ...]
"""For each axis [low, high) bounds, shape (2, number)."""


def prefix_errors(counts: IntArray, estimate: FloatArray) -> FloatArray:
    """c_0 .. c_n, shape (n + 1,)."""
    return np.concatenate([[0.0], np.cumsum(counts - estimate)])


def all_ranges(prefix: FloatArray) -> float:
    """Mean squared error over all n(n + 1)/2 ranges."""
    size = len(prefix)
    centred = prefix - prefix.mean()  # the formula does not see a shift; centring keeps its digits
    return float(size * np.square(centred).sum() / (size * (size - 1) / 2))


def drawn_error(counts: IntArray, estimate: FloatArray, epsilon: Fraction) -> float:
    """Mean squared error of an estimate over all ranges, times epsilon squared."""
    return all_ranges(prefix_errors(counts, estimate)) * float(epsilon) ** 2


def drawn_errors(
    publish: Publish, counts: IntArray, epsilon: Fraction, runs: int, errors: Callable[[FloatArray], object]
) -> FloatArray:
    """Errors of so many drawn estimates, times epsilon squared, one row a draw.

    Args:
        publish: what draws one.
        counts: exact cells.
        epsilon: of the release.
        runs: draws.
        errors: mean squared errors of an estimate whose cells are off by so much.
    """
    drawn = (publish(counts, epsilon, SimulationNoise(FIRST_SEED + run)) for run in range(runs))
    return np.array([errors(estimate - counts) for estimate in drawn]) * float(epsilon) ** 2


def random_boxes(shape: Sequence[int], number: int, seed: int = 11) -> Boxes:
    """Random boxes, none of which is empty."""
    rng, found = np.random.default_rng(seed), []
    for n in shape:
        ends = np.sort(rng.integers(0, n + 1, (2, 2 * number)), axis=0)
        found.append(ends[:, ends[0] < ends[1]][:, :number])
    return tuple(found)


def sums(values: FloatArray | IntArray, boxes: Boxes) -> FloatArray:
    """Sums of a histogram over boxes, by prefix sums."""
    prefix = np.zeros([n + 1 for n in values.shape])
    prefix[(slice(1, None),) * values.ndim] = values
    for axis in range(values.ndim):
        prefix = prefix.cumsum(axis=axis)
    found = np.zeros(boxes[0].shape[1])
    for corner in np.ndindex((2,) * values.ndim):
        sign = (-1) ** (values.ndim - sum(corner))
        found += sign * prefix[tuple(ends[side] for ends, side in zip(boxes, corner, strict=True))]
    return found


def masks(shape: Sequence[int], boxes: Boxes) -> list[FloatArray]:
    """The leaf masks of boxes."""
    return [
        ((np.arange(n) >= ends[0][:, None]) & (np.arange(n) < ends[1][:, None])).astype(np.float64)
        for n, ends in zip(shape, boxes, strict=True)
    ]
