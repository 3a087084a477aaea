"""The planner's rule for non-negative releases: two noisy numbers say what the histogram is worth measuring with.

    here         there    unit
    strength     s        epsilon * rows / cells: how far a mean cell stands above the noise of one cell
    occupied     -        cells of at least two noise scales
    taper        r        a level's budget over that of the level below

After the non-negative step, cells that hide in the noise are set right by their parents, so the fewer rows
there are, the more the coarse levels are worth. The unbiased optimum knows nothing of this: on DPBench's
sparsest trace the rows that are best before the step (tents: 206 against 262 for a 16-ary tree at 4,096
cells) are worse after it (about 106 against 39), and a taper of 1.5 brings that to 28. Where most cells
stand out, the step has nothing to do and the unbiased optimum wins again. The thresholds below were read off
four DPBench histograms; docs/accuracy/central.md says how, and how the rule does on others.
"""

from __future__ import annotations

import math
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.budget import cap_units, scaled_denominator
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.strategy import AxisStrategy
from dpsql.mechanisms.axis.tree import tree_strategy
from dpsql.noise import Noise
from dpsql.tree import Tree, kary_tree

IntArray = npt.NDArray[np.int64]

ROWS_SHARE, OCCUPIED_SHARE = Fraction(1, 200), Fraction(1, 100)
SIGNAL_SHARE = ROWS_SHARE + OCCUPIED_SHARE
STANDS_OUT = 2  # noise scales of one cell
FULL = 0.6  # share of cells that stand out; between search logs (49%) and a citation graph (77%)
DOUBT = 5.0  # at 2 a sparse trace was taken for full in one release of twenty, at ten times its error
WIDEST = 20  # children per node; the least error lies between 8 and 20 at every size from 50 to 65,536 cells
TAPERS = ((2.0, 1.5), (20.0, 1.2))  # (signal below this, taper); equal budgets from 20 on


class Signal(NamedTuple):
    """What the rule reads; both numbers are noisy and may be published.

    Args:
        rows: noisy number of rows.
        occupied: noisy number of cells that stand out of the noise.
        margin: DOUBT noise scales of `occupied`; its noise is above that with probability e^-DOUBT / 2.
    """

    rows: int
    occupied: int
    margin: float


def noisy_signal(counts: IntArray, epsilon: Fraction, sensitivity: int, noise: Noise) -> Signal:
    """Measure the two numbers.

    Args:
        counts: exact cells, any shape.
        epsilon: of the whole release; SIGNAL_SHARE of it is spent here, a spend of its own in the ledger.
        sensitivity: the most that one privacy unit changes the sum of |cells|.
        noise: where noise comes from.

    Returns:
        Noisy rows, noisy occupied cells and the margin of the latter.

    Raises:
        PrivacyError: if epsilon leaves no room for integer budgets.

    **Privacy** (SIGNAL_SHARE epsilon)-DP: a unit moves the number of rows by at most M, and at most M cells
    across the bar, since a cell that crosses it changes by at least 1. The bar is public.
    """
    t = scaled_denominator(sensitivity)
    units = np.array([cap_units(epsilon * share, t) for share in (ROWS_SHARE, OCCUPIED_SHARE)], np.int64)
    bar = math.ceil(STANDS_OUT * sensitivity / epsilon)
    exact = np.array([counts.sum(), np.count_nonzero(counts >= bar)], np.int64)
    rows, occupied = noise.laplace(units, t * sensitivity, exact).tolist()
    return Signal(rows, occupied, DOUBT * t * sensitivity / int(units[1]))


def strength(rows: int, epsilon: Fraction, cells: int, sensitivity: int = 1) -> float:
    """Mean cell over the noise scale of one cell, from a noisy row count.

    >>> strength(4096, Fraction(1, 2), 1024)
    2.0
    """
    return float(max(rows, 0) * epsilon / (cells * sensitivity))


def taper(signal_strength: float) -> float:
    """How much more budget a level gets than the level below it, for a given signal.

    >>> taper(0.5), taper(1000.0)
    (1.5, 1.0)
    """
    return next((ratio for below, ratio in TAPERS if signal_strength < below), 1.0)


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
def tapered_strategy(tree: Tree, ratio: float) -> AxisStrategy:
    """Budgets that fall by `ratio` from one level to the next; the root is not measured.

    Args:
        tree: the tree.
        ratio: at least 1.

    Returns:
        The strategy; leaves take what their path has left.
    """
    if tree.depth < 3:
        return LeafStrategy(tree.n)
    share = np.concatenate([[0.0], ratio ** -np.arange(tree.depth - 1.0)])
    return tree_strategy(tree, (share / share.sum())[tree.level])


def is_full(signal: Signal, cells: int) -> bool:
    """Whether most cells stand out, beyond the doubt that the noise of their number leaves.

    Args:
        signal: the noisy numbers.
        cells: number of cells.

    >>> is_full(Signal(5000, 3500, 200.0), 4096), is_full(Signal(5000, 3500, 2000.0), 4096)
    (True, False)
    """
    return signal.occupied - signal.margin >= FULL * cells
