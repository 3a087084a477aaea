"""AHEAD's LLE, the baseline of local boxes: near the truth with many reports."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.baselines import local_boxes
from benchmarks.local import planes as local_planes

pytestmark = pytest.mark.long


def some_people(count: int, axes: int, size: int, seed: int) -> np.ndarray:
    """Leaves of which the first two axes hang together; pairs tell all about them."""
    rng = np.random.default_rng([seed, 1])
    leaves = rng.integers(0, size // 2 + 1, (count, axes))
    leaves[:, :2] += rng.integers(0, size // 2, (count, 1))
    return leaves


@pytest.mark.parametrize("axes", [2, 3])
def test_boxes_of_several_axes_come_near_with_many_reports(axes: int) -> None:
    leaves = some_people(400_000, axes, 8, 3)
    boxes = np.array([[[0, 4]] * axes, [[2, 8]] * axes, [[0, 8]] * axes])
    found = local_boxes.by_pairs(leaves, [8] * axes, "6", boxes, np.random.default_rng(3))
    np.testing.assert_allclose(found, local_planes.truth(leaves, boxes), atol=0.02)
