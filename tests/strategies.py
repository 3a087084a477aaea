"""What tests ask of strategies that nothing else does: the full row matrix, and its weighted column sums."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dpsql.mechanisms.axis.strategy import AxisStrategy, axis_budgets, measure_view
from dpsql.mechanisms.law import GAUSSIAN, NoisyView
from dpsql.noise import Noise


def dense(strategy: AxisStrategy) -> np.ndarray:
    """The row matrix H, shape (p, n)."""
    entries = strategy.entries()
    assert entries is not None
    return entries.dense()


def column_bound(strategy: AxisStrategy) -> int:
    """The largest weighted column sum of a strategy, by the law's exponent."""
    entries = strategy.entries()
    assert entries is not None
    return entries.column_bound(strategy.budget, strategy.law.norm)


def draw_at(
    cells: np.ndarray, strategies: Sequence[AxisStrategy], variance: Fraction, sensitivity: int, noise: Noise
) -> NoisyView:
    """Measure a view and add Gaussian noise of a given strength."""
    exact = measure_view(cells, strategies)
    return GAUSSIAN.draw_at(exact, axis_budgets(strategies), variance, sensitivity, noise)
