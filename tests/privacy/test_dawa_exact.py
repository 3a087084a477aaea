"""The choice of a partition is private: its law is computed exactly and compared on every neighbour."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from dpsql.mechanisms.family import dawa

EPSILON = 1.5
REACH = 60


def law(scale: float) -> np.ndarray:
    """Discrete Laplace probabilities on -REACH..REACH."""
    x = np.abs(np.arange(-REACH, REACH + 1))
    p = np.exp(-x / scale)
    return p / p.sum()


def probability_of_merging(cells: tuple[int, int], shrink: float) -> float:
    """P(the two cells become one bucket), by summing over all noise of the three candidate buckets."""
    costs = dawa.deviations(np.array(cells, np.int64), 1)
    scales = [dawa.change_bound(level, 1) / EPSILON * shrink for level in (0, 1)]
    surcharge = [int(dawa.SURCHARGE * Fraction(s)) for s in scales]
    apart = np.convolve(law(scales[0]), law(scales[0]))
    together = law(scales[1])
    both = np.subtract.outer(np.arange(-REACH, REACH + 1), np.arange(-2 * REACH, 2 * REACH + 1))
    gap = int(costs[1][0]) + surcharge[1] - 2 * surcharge[0]
    return float((np.outer(together, apart) * (both + gap <= 0)).sum())


@pytest.mark.parametrize("cells", list(product(range(5), range(5))))
def test_neighbours_choose_alike(cells: tuple[int, int]) -> None:
    p = probability_of_merging(cells, 1.0)
    for more in ((cells[0] + 1, cells[1]), (cells[0], cells[1] + 1)):
        q = probability_of_merging(more, 1.0)
        for a, b in ((p, q), (1 - p, 1 - q)):
            assert abs(np.log(a / b)) <= EPSILON + 1e-9


def test_a_much_smaller_scale_is_seen() -> None:
    p, q = probability_of_merging((0, 0), 0.2), probability_of_merging((0, 1), 0.2)
    assert abs(np.log(p / q)) > 2 * EPSILON
