"""What `auto` publishes where a catalog allows biased, non-negative answers: measure a little, then choose.

The unbiased optimum on histograms most of whose cells stand out of the noise, else a tree whose budgets favour
coarse levels as far as the noisy row count says. DAWA is not among the choices: it gains a sixth at best, on
the sparsest histograms at large epsilon, errs up to twice as much on others, and no affordable number tells
them apart at small epsilon.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dpsql.mechanisms.axis.strategy import AxisStrategy, draw_view, leaf_estimates
from dpsql.mechanisms.central.nonnegative import nonnegative
from dpsql.mechanisms.central.signal import (
    SIGNAL_SHARE,
    Signal,
    is_full,
    noisy_signal,
    signal_tree,
    strength,
    taper,
    tapered_strategy,
)
from dpsql.mechanisms.law import NoisyView
from dpsql.noise import Noise

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class AdaptiveRelease:
    """The signal, what it chose, and the noisy rows.

    Args:
        signal: the two noisy numbers.
        full: True if the unbiased optimum was chosen, False for the tapered tree.
        strategy: what was measured.
        view: the noisy rows as drawn.
    """

    signal: Signal
    full: bool
    strategy: AxisStrategy
    view: NoisyView


def draw_adaptive(
    counts: IntArray,
    epsilon: Fraction,
    sensitivity: int,
    noise: Noise,
    unbiased_for: Callable[[int], AxisStrategy],
) -> AdaptiveRelease:
    """Spend SIGNAL_SHARE on two numbers, choose by them, measure with the rest.

    Args:
        counts: exact cells of one axis, shape (n,).
        epsilon: what all steps may spend together.
        sensitivity: the most that one privacy unit changes the sum of |cells|.
        noise: where noise comes from.
        unbiased_for: gives the best unbiased strategy over n cells; reads n alone.

    Returns:
        Signal, choice and noisy rows.

    Raises:
        PrivacyError: if epsilon leaves no room for integer budgets.

    **Privacy** epsilon-DP: choice, taper and strategy are functions of n and of published noisy numbers.
    """
    n = len(counts)
    signal = noisy_signal(counts, epsilon, sensitivity, noise)
    full = is_full(signal, n)
    ratio = taper(strength(signal.rows, epsilon, n, sensitivity))
    strategy = unbiased_for(n) if full else tapered_strategy(signal_tree(n), ratio)
    view = draw_view(counts, [strategy], epsilon * (1 - SIGNAL_SHARE), sensitivity, noise)
    return AdaptiveRelease(signal, full, strategy, view)


def unbiased_cells(release: AdaptiveRelease) -> FloatArray:
    """Best linear unbiased estimate of every cell, given the choice, shape (n,)."""
    return leaf_estimates(release.view, [release.strategy])


def cell_estimates(release: AdaptiveRelease) -> FloatArray:
    """The estimate of least error of every cell, shape (n,): not negative unless the histogram is full.

    Where most cells stand out, the non-negative step would only add bias (a citation graph: 206 before, 245
    after it). Never take a standard error from this; `unbiased_cells` has one.
    """
    cells = unbiased_cells(release)
    return cells if release.full else nonnegative(signal_tree(len(cells)), cells)
