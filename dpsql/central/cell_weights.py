"""Weights of people who touch many cells: the bound K that a released histogram chooses, and what it leaves out.

**Privacy**: docs/privacy/people.md, section 3. Everything here is a function of the catalog and of released numbers.
**Source**: docs/method/distinct.md, "Cells".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dpsql.contributions.histogram import NoisyHistogram, cleaned
from dpsql.matrices.distinct import PeopleBounds
from dpsql.mechanisms.designs.distinct import UNIT, cell_weight
from dpsql.mechanisms.distribution import NoiseDistribution
from dpsql.tree import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class CellWeights:
    """One bound K on the weights of a view's people, and what a released histogram says of the cells that it shows.

    A cell holds Y = sum of w n over bins of people by their number of cells: n of a bin's c people touch it, with a
    weight w that follows from their bin. So of the people T = sum of n, for every u > 0,

        Y / u - sum of (w / u - 1)+ c  <=  T  <=  Y / u + sum of (1 - w / u)+ c

    with w at the end of the bin that makes the line wider. u runs over the weights at bins' ends: these lines are the
    dual of the linear program. A sum over bins has the histogram's noise, and a line `CERTAIN` standard errors of it.

    Args:
        bound: K.
        most: cells that one person can touch.
        histogram: people by the cells that they touch; bins double from 1.
        law: of the weights.
    """

    bound: int
    most: int
    histogram: NoisyHistogram
    law: NoiseDistribution

    @cached_property
    def _upper(self) -> IntArray:
        """The most cells of each bin but the open one, which is empty."""
        return np.minimum(np.asarray(self.histogram.edges, np.int64), self.most)

    @cached_property
    def weights(self) -> tuple[FloatArray, FloatArray]:
        """The least and the largest weight in each bin."""
        lower = np.append(1, np.minimum(self._upper[:-1] + 1, self.most))
        smallest, largest = (
            np.array([cell_weight(int(cells), self.bound, self.law) / UNIT for cells in ends])
            for ends in (self._upper, lower)
        )
        return smallest, largest

    @cached_property
    def factor(self) -> float:
        """R: what cells are multiplied by for what weights leave out of all of them together.

        Only bins that follow each other above twice the noise count: a far bin of noise would move it by tenths.
        """
        upper = self._upper.astype(np.float64)
        touched = np.sqrt(upper * np.append(1.0, upper[:-1] + 1))
        seen = cleaned(self.histogram)[:-1]
        place = int(np.searchsorted(self._upper, self.bound))
        quiet = np.flatnonzero(seen[place:] == 0)
        if len(quiet):
            seen[place + quiet[0] :] = 0.0
        weight = np.minimum(1.0, (self.bound / touched) ** (1 / self.law.norm))
        weighted = float((seen * touched * weight).sum())
        return float((seen * touched).sum()) / weighted if weighted > 0 else 1.0

    @cached_property
    def bounds(self) -> PeopleBounds | None:
        """Lines around estimates, R times Y; None where everybody weighs 1."""
        smallest, largest = self.weights
        if np.all(smallest == 1.0):
            return None
        low, high = [], []
        for u in np.unique(np.append(smallest, 1.0)).tolist():
            high.append((1.0 / (u * self.factor), self._people(np.maximum(1.0 - smallest / u, 0.0))))
            low.append((1.0 / (u * self.factor), self._people(np.maximum(largest / u - 1.0, 0.0))))
        return PeopleBounds(tuple(low), tuple(high))

    def _people(self, share: FloatArray) -> float:
        """The most that a weighted sum of the bins' people may be."""
        value = self.histogram.value[:-1].astype(np.float64)
        margin = CERTAIN * self.histogram.sd * float(np.sqrt(np.sum(share**2)))
        return max(0.0, float(share @ value)) + margin

    def half_width(self, cell: float, sd: float) -> float:
        """Half of the interval of a cell.

        Args:
            cell: its people.
            sd: standard error of its noise under weights of at most 1, before R.
        """
        noise = CERTAIN * self.factor * sd
        if self.bounds is None:
            return noise
        ends = np.array([cell - noise]), np.array([cell + noise])
        return float(self.bounds.above(ends[1])[0] - min(ends[0][0], self.bounds.below(ends[0])[0])) / 2


CERTAIN = 2.1
"""Standard errors of one side at 95%, of Laplace noise."""

SIMPLER = 1.25
"""Everybody weighs 1 where that makes an interval at most so many times as long as the least one."""


def choose_weights(
    histogram: NoisyHistogram, most: int, cells: int, law: NoiseDistribution, sd: Callable[[int], float]
) -> CellWeights:
    """The bound K with the least interval of a cell of middle size, bias included.

    Args:
        histogram: people by the cells that they touch.
        most: cells that one person can touch.
        cells: of the statistic.
        law: of the weights.
        sd: K -> standard error of a cell's noise.

    Returns:
        K = `most`, under which everybody weighs 1 and nothing is biased, where its interval is at most `SIMPLER` times
        the least.

    **Privacy**: a function of the released histogram and of the catalog.
    """
    edges = np.minimum(np.asarray(histogram.edges, np.float64), most)
    middle = max(1.0, float(cleaned(histogram)[:-1] @ edges) / cells)

    def half_width(bound: int) -> float:
        return CellWeights(bound, most, histogram, law).half_width(middle, sd(bound))

    candidates = sorted({min(edge, most) for edge in histogram.edges})
    best = min(candidates, key=half_width)
    bound = most if half_width(most) <= SIMPLER * half_width(best) else best
    return CellWeights(bound, most, histogram, law)
