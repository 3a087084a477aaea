"""Intervals over time hold the truth as often as they say, for every strategy, with two axes and real draws."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.matrices.strategy import AxisBudget
from dpsql.mechanisms.continual import words
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoiseDistribution
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.streams.append import StreamNoise, StreamStatistic
from tests.thinned import by_default
from tests.time_forms import asking

BATCHES, CELLS, RELEASES = 61, 150, 2
STATISTIC = StreamStatistic(LAPLACE, (AxisBudget(np.ones(CELLS, np.int64), 1),), Fraction(1, 4), 1)


CASES = [
    ("tree", LAPLACE, True), ("fda", LAPLACE, True), ("prefix", LAPLACE, True), ("spectral", GAUSSIAN, True),
    ("spectral", GAUSSIAN, False),
]  # fmt: skip


@pytest.mark.parametrize(("name", "law", "ends"), by_default(CASES, 2))
def test_ninety_five_percent_intervals(name: str, law: NoiseDistribution, ends: bool) -> None:
    """300 independent columns a strategy; each column sees 40 ranges. Cells are independent streams."""
    strategy = words()[name](asking(law, BATCHES, "range", ends=ends)).strategy
    statistic = STATISTIC._replace(law=law)
    model = strategy.variance(BATCHES)
    rng = np.random.default_rng(11)
    lo, hi = np.sort(rng.choice(BATCHES + 1, (40, 2)), axis=1).T
    lo, hi = lo[lo < hi], hi[lo < hi]
    deviation = np.sqrt(
        model.ranges(lo, hi) * max(statistic.variance_at_unit_budget(share) for share in strategy.shares)
    )
    inside = []
    for release in range(RELEASES):
        draw = StreamNoise([statistic], ExactNoise(insecure_test_entropy(release)))
        kept: dict[int, np.ndarray] = {}
        published = []
        for batch in range(BATCHES):
            for emission in strategy.emissions(batch):
                value = np.zeros(CELLS, np.int64)
                for read in emission.reads:
                    kept.setdefault(read.node, draw.node((0,), read, [np.zeros(CELLS, np.int64)])[0])
                    value = value + read.sign * kept[read.node]
                published.append(value)
        estimate = strategy.estimate(BATCHES, np.array(published))
        prefix = np.concatenate([np.zeros((1, CELLS)), np.cumsum(estimate, axis=0)])
        error = prefix[hi] - prefix[lo]
        inside.append(np.abs(error) <= 1.96 * deviation[:, None])
        assert abs(float((error / deviation[:, None]).std()) - 1) < 0.06
    assert 0.93 <= float(np.mean(inside)) <= 0.97
