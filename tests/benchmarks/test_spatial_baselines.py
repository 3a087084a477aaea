"""Spatial baselines on two axes: grids and curves."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from benchmarks.baselines import common, spatial
from dpsql.noise import ZeroNoise

pytestmark = pytest.mark.long

ONE = Fraction(1)


def test_grids_are_exact_where_cells_are_alike_or_many() -> None:
    even = np.full((40, 60), 3, np.int64)
    many = np.arange(24 * 30, dtype=np.int64).reshape(24, 30) * 10_000
    for counts in (even, many):
        np.testing.assert_allclose(spatial.ag(counts, ONE, ZeroNoise()), counts, atol=1e-6)
    few = np.zeros((256, 256), np.int64)
    few[3, 5] = 100
    estimate = spatial.ag(few, ONE, ZeroNoise())
    assert estimate.sum() == pytest.approx(100) and 0 < estimate[3, 5] < 100


def test_grid_noise_has_the_variance_of_its_parts() -> None:
    """A 10 x 10 coarse grid over no rows: coarse and one finer count a cell, each at 0.495 epsilon."""
    empty = np.zeros((40, 40), np.int64)
    cells = [spatial.ag(empty, ONE, common.SimulationNoise(run)).reshape(10, 4, 10, 4) for run in range(40)]
    sums = np.array(cells).sum(axis=(2, 4))
    # where a coarse count above 0 bought more than one finer cell
    many = np.array(cells).std(axis=(2, 4)) > 1e-9
    assert sums[~many].var() == pytest.approx(2 / 0.495**2 / 2, rel=0.15)


def test_the_hilbert_curve_visits_neighbours() -> None:
    row, column = spatial.hilbert(16)
    assert np.all(np.abs(np.diff(row)) + np.abs(np.diff(column)) == 1)
    assert len(set(zip(row.tolist(), column.tolist(), strict=True))) == 256
