"""Trees whose upper levels have the smallest rate that integers hold."""

from __future__ import annotations

import numpy as np

from dpsql.noise import insecure_test_entropy
from dpsql.noise.knorm import TreeNoise, joint_trees


def test_the_least_rate_of_a_level_thins_its_sums() -> None:
    """Two leaves of scale 32 have sums of mean size 48; a root of scale 64 leaves about half of it."""
    free, thinned = (
        np.abs(
            joint_trees(TreeNoise((2,), rates, 64, (1,)), 4_000, insecure_test_entropy(7)).sum(axis=-1)
        ).mean()
        for rates in ((0, 2), (1, 2))
    )
    assert 45 < free < 51 and thinned < 0.7 * free
