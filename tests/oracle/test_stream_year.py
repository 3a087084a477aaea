"""A year of daily batches appended one by one: without noise every checkpoint equals the exact sums."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpsql.matrices.strategy import AxisBudget
from dpsql.mechanisms.continual.time_tree import tree_strategy
from dpsql.mechanisms.distribution import LAPLACE
from dpsql.noise import ZeroNoise
from dpsql.streams.append import Batch, StreamNoise, StreamSpec, StreamStatistic, opened_stream
from dpsql.streams.public import read_manifest, read_segments
from tests.time_forms import create_stream


@pytest.mark.parametrize("days", [30, pytest.param(365, marks=pytest.mark.slow)])
def test_daily_batches_add_up_at_every_checkpoint(tmp_path: Path, days: int) -> None:
    cells = (7, 40)  # two statistics over other axes
    spec = StreamSpec(tree_strategy(LAPLACE, (1, 28), (6, 4)), cells, lifetime=365)
    directory, private = tmp_path / "retail.dpsql", tmp_path / "private" / "state"
    create_stream(directory, private, spec, release_id="year", secret=bytes(32))
    draw = StreamNoise(
        [StreamStatistic(LAPLACE, (AxisBudget(np.ones(c, np.int64), 1),), Fraction(1), 1) for c in cells],
        ZeroNoise(),
    )
    data = [np.random.default_rng(1).integers(-9, 99, (days, c)) for c in cells]
    for day in range(days):
        increments = tuple(x[day] for x in data)
        with opened_stream(directory, private, spec) as stream:
            stream.append(Batch(day, b"%d" % day, increments, ("someone",)), draw)
        if day % 28 in (0, 27) or day == days - 1:
            found = read_segments(directory, read_manifest(directory))
            for statistic, exact in enumerate(data):
                rows = found["value"][found["statistic"] == statistic].reshape(-1, cells[statistic])
                estimate = spec.strategy.estimate(day + 1, rows)
                assert np.allclose(estimate, exact[: day + 1], atol=1e-9)
