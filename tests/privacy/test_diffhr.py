"""Published DiffHR gives cells away for certain; the version that ships reads nothing but its noisy view."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.baselines import diffhr_as_published as published
from benchmarks.baselines.common import SimulationNoise
from dpsql.errors import InterfaceError, PrivacyError
from dpsql.mechanisms.designs import diffhr
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy, noised
from dpsql.noise.discrete import laplace_variance

RUNS = range(300)


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1, 10), Fraction(1), Fraction(5)])
def test_published_diffhr_is_not_private(epsilon: Fraction) -> None:
    """One record more, and "both cells have one value" is no longer certain, at any epsilon."""
    apart = (g for g in range(10**4) if published.true_groups(np.array([0, g]), 8 / float(epsilon) ** 2)[1])
    gap = next(apart)
    before, after = (
        [np.ptp(published.publish(np.array([0, g]), epsilon, SimulationNoise(seed))) for seed in RUNS]
        for g in (gap - 1, gap)
    )
    assert np.equal(before, 0).all() and np.equal(after, 0).mean() < 0.5


@given(st.lists(st.integers(0, 100), min_size=1, max_size=40), st.integers(0, 2**32))
def test_groups_are_a_function_of_the_view(cells: list[int], seed: int) -> None:
    counts = np.array(cells, np.int64)
    release = diffhr.draw_diffhr(counts, Fraction(1), 1, ExactNoise(insecure_test_entropy(seed)))
    first, second = laplace_variance(np.array(release.units), release.denominator)
    assert diffhr.cluster(release.view, float(first), float(second)).tolist() == release.group.tolist()
    assert sum(release.units) <= release.denominator


def test_equal_views_give_equal_groups_whatever_the_data() -> None:
    class Fixed:
        insecure = True

        def __init__(self, view: np.ndarray, counts: np.ndarray) -> None:
            self.next = [view - counts]

        def laplace(self, units: np.ndarray, denominator: int, exact: np.ndarray | None = None) -> np.ndarray:
            return noised(exact, self.next.pop() if self.next else np.zeros(len(units), np.int64))

        def gaussian(self, sigma2: Fraction, size: int, exact: np.ndarray | None = None) -> np.ndarray:
            return noised(exact, np.zeros(size, np.int64))

    view = np.array([9, 0, 1, 8, 30])
    groups = [
        diffhr.draw_diffhr(counts, Fraction(1), 1, Fixed(view, counts)).group.tolist()
        for counts in (np.array([5, 5, 5, 5, 5]), np.array([900, 0, 3, 1, 70]))
    ]
    assert groups[0] == groups[1]


def test_alike_cells_share_a_group_wherever_they_lie() -> None:
    counts = np.tile([1000, 0, 5000], 20).astype(np.int64)
    release = diffhr.draw_diffhr(counts, Fraction(1), 1, ExactNoise(insecure_test_entropy(5)))
    for value in (0, 1000, 5000):
        others = release.group[counts != value]
        assert not set(release.group[counts == value]) & set(others)
    np.testing.assert_allclose(diffhr.cell_estimates(release), counts, atol=30)


def test_point_error_on_few_distinct_counts_beats_the_identity() -> None:
    counts = np.repeat([0, 40, 0, 0], 64).astype(np.int64)
    errors = []
    for seed in range(30):
        release = diffhr.draw_diffhr(counts, Fraction(1), 1, SimulationNoise(seed))
        errors.append(np.mean((diffhr.cell_estimates(release) - counts) ** 2))
    assert np.mean(errors) < 1.0  # the identity's is 1.84


def test_bad_input_is_refused() -> None:
    with pytest.raises(InterfaceError):
        diffhr.draw_diffhr(np.zeros(0, np.int64), Fraction(1), 1, ZeroNoise())
    with pytest.raises(PrivacyError):
        diffhr.draw_diffhr(np.zeros(3, np.int64), Fraction(0), 1, ZeroNoise())
