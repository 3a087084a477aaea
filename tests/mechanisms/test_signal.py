"""The signal rule: what it spends, what it chooses, and that the choice pays."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from dpsql.errors import PrivacyError
from dpsql.matrices.reconcile import signal_tree
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.designs import adaptive
from dpsql.mechanisms.offers import draw_view
from dpsql.noise import ZeroNoise
from tests.releases import seeded
from tests.strategies import adaptive_cells, column_bound


def test_the_numbers_carry_the_noise_they_pay_for() -> None:
    counts = np.full((4, 5), 50, np.int64)
    draws = np.array(
        [adaptive.noisy_signal(counts, Fraction(1, 2), 3, seeded(seed)).numbers for seed in range(2000)]
    )
    for column, share in enumerate((adaptive.ROWS_SHARE, adaptive.FILLED_SHARE)):
        assert np.var(draws[:, column]) == pytest.approx(2 * (3 / (0.5 * share)) ** 2, rel=0.15)
    assert draws.mean(axis=0) == pytest.approx([1000, 600], abs=100)


def test_one_unit_moves_both_numbers_by_at_most_the_sensitivity() -> None:
    rng = np.random.default_rng(4)
    for _ in range(200):
        counts, change = rng.integers(0, 30, 30), rng.multinomial(3, np.full(30, 1 / 30))
        a, b = (
            adaptive.noisy_signal(cells, Fraction(1), 3, ZeroNoise()) for cells in (counts, counts + change)
        )
        assert abs(a.rows - b.rows) <= 3 and abs(a.filled - b.filled) <= 3


@pytest.mark.parametrize("n", [1, 2, 20, 21, 100, 365, 4096, 65_536])
@pytest.mark.parametrize("ratio", [1.0, 1.5])
def test_every_taper_keeps_the_budget(n: int, ratio: float) -> None:
    strategy = adaptive.tapered_strategy(signal_tree(n), ratio)
    assert strategy.leaves == n
    assert column_bound(strategy) == strategy.total


def test_fewer_rows_a_steeper_tree_and_full_histograms_the_unbiased_optimum() -> None:
    sparse, middle, full = (
        adaptive.draw_adaptive(
            np.repeat([cell, 0], [share, 4096 - share]), Fraction(1), 1, seeded(1), leaf_strategy
        )
        for cell, share in ((1, 40), (1000, 1600), (1000, 4096))
    )
    assert (sparse.full, middle.full, full.full) == (False, False, True)
    assert sparse.strategy.budget.max() > middle.strategy.budget.max()
    assert full.strategy.kind == "identity"


@pytest.mark.parametrize("cell", [0, 1000])
def test_without_noise_cells_come_back(cell: int) -> None:
    counts = np.arange(300, dtype=np.int64) + cell
    release = adaptive.draw_adaptive(counts, Fraction(1), 2, ZeroNoise(), leaf_strategy)
    assert release.signal.rows == counts.sum()
    np.testing.assert_allclose(adaptive_cells(release), counts, atol=1e-6)
    np.testing.assert_allclose(adaptive.unbiased_cells(release), counts, atol=1e-6)


def test_a_sparse_histogram_is_answered_better_than_by_equal_budgets() -> None:
    counts = np.zeros(4096, np.int64)
    counts[::512] = 40
    equal = adaptive.tapered_strategy(signal_tree(4096), 1.0)
    errors = np.zeros(2)
    for seed in range(40):
        chosen = adaptive.draw_adaptive(counts, Fraction(1), 1, seeded(seed), leaf_strategy)
        view = draw_view(counts, [equal], Fraction(1), 1, seeded(seed))
        plain = adaptive.AdaptiveRelease(chosen.signal, False, equal, view)
        for which, release in enumerate((chosen, plain)):
            errors[which] += float(np.square(np.cumsum(adaptive_cells(release) - counts)).mean())
    assert errors[0] < errors[1]


@pytest.mark.parametrize("epsilon", [Fraction(1, 100), Fraction(1, 10), Fraction(1)])
def test_dense_histograms_are_full_at_every_epsilon(epsilon: Fraction) -> None:
    """Around the bar of .53; the noise of the number is 20 cells of 4,096, whatever epsilon is."""
    for share, full in ((0.48, False), (0.58, True)):
        counts = np.repeat([int(9 / epsilon), 0], [round(share * 4096), 4096 - round(share * 4096)])
        signals = [adaptive.noisy_signal(counts, epsilon, 1, seeded(seed)) for seed in range(20)]
        assert {adaptive.is_full(signal, 4096) for signal in signals} == {full}


def test_a_cut_sum_planted_without_its_cut_moves_further(monkeypatch: pytest.MonkeyPatch) -> None:
    """A number of full cells in rows: the plant that the soft count replaced moves by a whole cut."""
    epsilon = Fraction(1, 10)
    clip = adaptive.noisy_signal(np.zeros(3, np.int64), epsilon, 1, ZeroNoise()).clip
    below, at = (np.array([clip + step, 0, 0]) for step in (-1, 0))
    soft = [adaptive.noisy_signal(cells, epsilon, 1, ZeroNoise()).filled for cells in (below, at)]
    assert abs(soft[1] - soft[0]) <= 1
    monkeypatch.setattr(np, "clip", lambda cells, low, high: np.where(cells >= high, high, 0))
    hard = [adaptive.noisy_signal(cells, epsilon, 1, ZeroNoise()).filled for cells in (below, at)]
    assert abs(hard[1] - hard[0]) == clip


def test_huge_cells_do_not_leave_64_bits() -> None:
    huge = np.full(64, (1 << 62) - 1)
    signal = adaptive.noisy_signal(huge, Fraction(1), 1, ZeroNoise())
    assert signal.filled == 64 * signal.clip
    with pytest.raises(PrivacyError, match="so many cells"):
        adaptive.noisy_signal(np.ones(1 << 14, np.int64), Fraction(201, 1 << 22), (1 << 32) - 1, ZeroNoise())


def test_no_budget_is_refused() -> None:
    with pytest.raises(PrivacyError):
        adaptive.noisy_signal(np.ones(3, np.int64), Fraction(0), 1, ZeroNoise())
