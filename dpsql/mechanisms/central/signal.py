"""The planner's rule for non-negative releases: a noisy row count says how steep a tree's budgets should be.

    here         there    unit
    signal       s        epsilon * rows / cells: how far a mean cell stands above the noise of one cell
    taper        r        a level's budget over that of the level below

After the non-negative step, cells that hide in the noise are set right by their parents, so the fewer rows
there are, the more the coarse levels are worth. The unbiased optimum knows nothing of this: on DPBench's
traces the tree that is best before the step (tents: 207 against 262 at 4,096 cells) is worse after it than
an equal 16-ary tree (135 against 36), and a taper of 1.5 brings that to 22. All thresholds below were read
off the four DPBench histograms and epsilon .01, .1, 1; docs/accuracy/central.md has the measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from dpsql.budget import cap_units, scaled_denominator
from dpsql.mechanisms.central.lue_dptree import identity_strategy, tree_strategy
from dpsql.mechanisms.central.nonnegative import nonnegative
from dpsql.mechanisms.central.strategy import Strategy
from dpsql.mechanisms.central.view import NoisyView, draw_laplace, leaf_estimates
from dpsql.noise import Noise
from dpsql.tree import Tree, kary_tree

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]

SIGNAL_SHARE = Fraction(1, 100)
WIDEST = 20  # children per node; the least error lies between 8 and 20 at every size from 50 to 65,536 cells
TAPERS = ((2.0, 1.5), (20.0, 1.2))  # (signal below this, taper); equal budgets from 20 on


@dataclass(frozen=True, eq=False)
class SignalRelease:
    """A noisy row count, the strategy that it chose, and the noisy rows.

    Args:
        rows: the noisy total.
        strategy: the tapered tree.
        view: the noisy node counts as drawn.
    """

    rows: int
    strategy: Strategy
    view: NoisyView


def noisy_rows(counts: IntArray, epsilon: Fraction, sensitivity: int, noise: Noise) -> int:
    """The number of rows with noise of scale sensitivity / epsilon.

    Args:
        counts: exact cells, any shape.
        epsilon: what the number may spend; it is a spend of its own in the ledger.
        sensitivity: the most that one privacy unit changes the sum of |cells|.
        noise: where noise comes from.

    Returns:
        The noisy total; it may be negative.

    **Privacy** epsilon-DP (one noisy sum).
    """
    t = scaled_denominator(sensitivity)
    units = np.array([cap_units(epsilon, t)], np.int64)
    return int(counts.sum()) + int(noise.laplace(units, t * sensitivity)[0])


def signal(rows: int, epsilon: Fraction, cells: int, sensitivity: int = 1) -> float:
    """Mean cell over the noise scale of one cell, from a noisy row count.

    >>> signal(4096, Fraction(1, 2), 1024)
    2.0
    """
    return float(max(rows, 0) * epsilon / (cells * sensitivity))


def taper(strength: float) -> float:
    """How much more budget a level gets than the level below it, for a given signal.

    >>> taper(0.5), taper(1000.0)
    (1.5, 1.0)
    """
    return next((ratio for below, ratio in TAPERS if strength < below), 1.0)


@lru_cache(maxsize=64)
def signal_tree(n: int) -> Tree:
    """The k-ary tree over n cells with the least height for which k stays within WIDEST.

    >>> [signal_tree(n).depth for n in (20, 365, 4096)]
    [2, 3, 4]
    """
    height, k = 1, n
    while k > WIDEST:
        height += 1
        k = next(k for k in range(2, n) if k**height >= n)
    return kary_tree(n, max(k, 2))


@lru_cache(maxsize=64)
def tapered_strategy(tree: Tree, ratio: float) -> Strategy:
    """Budgets that fall by `ratio` from one level to the next; the root is not measured.

    Args:
        tree: the tree.
        ratio: at least 1.

    Returns:
        The strategy; leaves take what their path has left.
    """
    if tree.depth < 3:
        return identity_strategy(tree.n)
    share = np.concatenate([[0.0], ratio ** -np.arange(tree.depth - 1.0)])
    return tree_strategy(tree, (share / share.sum())[tree.level])


def draw_by_signal(counts: IntArray, epsilon: Fraction, sensitivity: int, noise: Noise) -> SignalRelease:
    """Spend a hundredth on the row count, choose the taper by it, measure the tree with the rest.

    Args:
        counts: exact cells of one axis, shape (n,).
        epsilon: what both steps may spend together.
        sensitivity: the most that one privacy unit changes the sum of |cells|.
        noise: where noise comes from.

    Returns:
        Row count, strategy and noisy rows.

    Raises:
        PrivacyError: if epsilon leaves no room for integer budgets.

    **Privacy** epsilon-DP: the strategy is a function of n and of the noisy row count.
    """
    first = epsilon * SIGNAL_SHARE
    rows = noisy_rows(counts, first, sensitivity, noise)
    ratio = taper(signal(rows, epsilon, len(counts), sensitivity))
    strategy = tapered_strategy(signal_tree(len(counts)), ratio)
    return SignalRelease(
        rows, strategy, draw_laplace(counts, [strategy], epsilon - first, sensitivity, noise)
    )


def nonnegative_cells(release: SignalRelease) -> FloatArray:
    """The non-negative estimate of every cell, shape (n,). Biased; see `nonnegative`."""
    cells = leaf_estimates(release.view, [release.strategy])
    return nonnegative(signal_tree(release.strategy.n), cells)
