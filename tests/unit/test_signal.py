"""The signal rule: what it spends, what it chooses, and that the choice pays."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.mechanisms.central import signal
from dpsql.mechanisms.central.strategy import sensitivity
from dpsql.noise import ExactNoise, ZeroNoise, insecure_test_entropy


def exact_noise(seed: int) -> ExactNoise:
    return ExactNoise(insecure_test_entropy(seed))


def test_row_count_carries_the_noise_it_pays_for() -> None:
    counts = np.full((4, 5), 50, np.int64)
    draws = [signal.noisy_rows(counts, Fraction(1, 2), 3, exact_noise(seed)) - 1000 for seed in range(2000)]
    assert np.var(draws) == pytest.approx(2 * (3 / 0.5) ** 2, rel=0.15)


@pytest.mark.parametrize("n", [1, 2, 20, 21, 100, 365, 4096, 65_536])
@pytest.mark.parametrize("ratio", [1.0, 1.5])
def test_every_taper_keeps_the_budget(n: int, ratio: float) -> None:
    strategy = signal.tapered_strategy(signal.signal_tree(n), ratio)
    assert strategy.n == n
    assert sensitivity(strategy) == strategy.total


def test_fewer_rows_a_steeper_tree() -> None:
    sparse, dense = (
        signal.draw_by_signal(np.full(4096, cell, np.int64), Fraction(1), 1, exact_noise(1)).strategy
        for cell in (0, 1000)
    )
    assert sparse.budget.max() > dense.budget.max()


def test_without_noise_cells_come_back() -> None:
    counts = np.arange(300, dtype=np.int64)
    release = signal.draw_by_signal(counts, Fraction(1), 2, ZeroNoise())
    assert release.rows == counts.sum()
    np.testing.assert_allclose(signal.nonnegative_cells(release), counts, atol=1e-6)


def test_a_sparse_histogram_is_answered_better_than_by_equal_budgets() -> None:
    counts = np.zeros(4096, np.int64)
    counts[::512] = 40
    errors = {"auto": 0.0, "equal": 0.0}
    for seed in range(40):
        chosen = signal.draw_by_signal(counts, Fraction(1), 1, exact_noise(seed))
        strategy = signal.tapered_strategy(signal.signal_tree(4096), 1.0)
        plain = signal.SignalRelease(
            0, strategy, signal.draw_laplace(counts, [strategy], Fraction(1), 1, exact_noise(seed))
        )
        for name, release in (("auto", chosen), ("equal", plain)):
            errors[name] += float(np.square(np.cumsum(signal.nonnegative_cells(release) - counts)).mean())
    assert errors["auto"] < errors["equal"]
