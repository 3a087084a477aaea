"""Intervals over time hold the truth as often as they say, for every strategy, with two axes and real draws."""

from __future__ import annotations

import numpy as np
import pytest

from dpsql.mechanisms.stream.axis import batch_estimates, batch_variance
from dpsql.mechanisms.stream.choose import named_strategy
from dpsql.mechanisms.stream.schedule import emissions
from dpsql.noise import ExactNoise, insecure_test_entropy
from dpsql.publishing.stream_spec import StreamStatistic, noise_for

BATCHES, CELLS, RELEASES = 61, 150, 2
STATISTIC = StreamStatistic("count", CELLS, 1 << 28, 1 << 30, np.ones(CELLS, np.int64), 1)  # epsilon 1/4


@pytest.mark.parametrize("name", ["chain", "fda", "prefix"])
def test_ninety_five_percent_intervals(name: str) -> None:
    """300 independent columns a strategy; each column sees 40 ranges. Cells are independent streams."""
    strategy = named_strategy(name, BATCHES, "pure")
    model = batch_variance(strategy, "pure", BATCHES)
    rng = np.random.default_rng(11)
    lo, hi = np.sort(rng.choice(BATCHES + 1, (40, 2)), axis=1).T
    lo, hi = lo[lo < hi], hi[lo < hi]
    deviation = np.sqrt(model.ranges(lo, hi) * 2 * 16)
    inside = []
    for release in range(RELEASES):
        draw = noise_for([STATISTIC], ExactNoise(insecure_test_entropy(release)))
        kept: dict[int, np.ndarray] = {}
        published = []
        for batch in range(BATCHES):
            for emission in emissions(strategy, "pure", batch):
                value = np.zeros(CELLS, np.int64)
                for read in emission.reads:
                    kept.setdefault(read.node, draw(0, read, np.zeros(CELLS, np.int64)))
                    value = value + read.sign * kept[read.node]
                published.append(value)
        estimate = batch_estimates(strategy, "pure", BATCHES, np.array(published))
        prefix = np.concatenate([np.zeros((1, CELLS)), np.cumsum(estimate, axis=0)])
        error = prefix[hi] - prefix[lo]
        inside.append(np.abs(error) <= 1.96 * deviation[:, None])
        assert abs(float((error / deviation[:, None]).std()) - 1) < 0.06
    assert 0.93 <= float(np.mean(inside)) <= 0.97
