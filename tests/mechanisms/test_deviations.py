"""What is behind noisy deviations: the mixture over all variances that they may have."""

from __future__ import annotations

from math import exp, pi, sqrt

import numpy as np
import pytest
from dpsql.mechanisms.family.differences import VARIANCES, shrink


def brute_force(x, size, noise, top):
    """Section 6 of the method in plain loops."""
    mean = sum(size) / len(size)
    h = [each / mean for each in size]
    found = []
    for t in (0.0, *(top * 2.0**-j for j in range(8, -1, -1))):
        weight = 1.0
        for xg, hg, vg in zip(x, h, noise, strict=True):
            total = t * hg + vg
            weight *= exp(-(xg**2) / (2 * total)) / sqrt(2 * pi * total)
        found.append((weight, [t * hg / (t * hg + vg) for hg, vg in zip(h, noise, strict=True)]))
    whole = sum(w for w, _ in found)
    keep = [sum(w * lam[g] for w, lam in found) / whole for g in range(len(x))]
    scatter = [sum(w * (lam[g] - keep[g]) ** 2 for w, lam in found) / whole for g in range(len(x))]
    value = [k * xg for k, xg in zip(keep, x, strict=True)]
    variance = [k * v + s * xg**2 for k, v, s, xg in zip(keep, noise, scatter, x, strict=True)]
    return value, variance


@pytest.mark.parametrize("top", [0.5, 40.0, 4000.0])
def test_the_mixture_is_the_sum_over_all_variances(top):
    rng = np.random.default_rng(1)
    for groups in (1, 2, 5, 20):
        x, size, noise = rng.normal(0, 6, groups), rng.random(groups) + 0.1, rng.random(groups) * 9 + 1
        found = shrink(x, size, noise, top)
        value, variance = brute_force(x.tolist(), size.tolist(), noise.tolist(), top)
        assert found.value == pytest.approx(value) and found.variance == pytest.approx(variance)


def test_nothing_moves_where_nothing_deviates():
    found = shrink(np.zeros(4), np.ones(4), np.full(4, 9.0), 100.0)
    assert found.value.tolist() == [0.0] * 4
    assert np.all(found.variance > 0)


def test_without_noise_a_deviation_is_what_was_drawn():
    x = np.array([5.0, -3.0, -2.0])
    found = shrink(x, np.ones(3), np.full(3, 1e-9), 16.0)
    assert found.value == pytest.approx(x, rel=1e-6) and found.variance == pytest.approx(0.0, abs=1e-6)
    assert shrink(x, np.ones(3), np.zeros(3), 16.0).value == pytest.approx(x, rel=1e-6)


@pytest.mark.parametrize("groups", [1, 2, 5, 40])
def test_it_says_how_far_off_it_is(groups):
    """Over all variances that are thought possible; one that is read off few deviations would hold less."""
    rng, held, size, top = np.random.default_rng(groups), [], np.linspace(0.5, 1.5, groups), 1600.0
    for _ in range(2000):
        spread = np.sqrt(top * rng.choice(VARIANCES) * size / size.mean())
        true = rng.normal(0, 1, groups) * spread
        found = shrink(true + rng.normal(0, 10, groups), size, np.full(groups, 100.0), top)
        held.append(np.abs(found.value - true) <= 1.96 * np.sqrt(found.variance) + 1e-9)
    assert np.mean(held) > 0.93


def test_groups_without_size_stay():
    found = shrink(np.array([5.0, 1.0]), np.array([1.0, 0.0]), np.ones(2), 100.0)
    assert found.value[1] == 0.0 and found.variance[1] == 0.0
    assert shrink(np.array([5.0]), np.zeros(1), np.ones(1), 100.0).value.tolist() == [0.0]
    assert shrink(np.array([5.0]), np.ones(1), np.ones(1), 0.0).value.tolist() == [0.0]
