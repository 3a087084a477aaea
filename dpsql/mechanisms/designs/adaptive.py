"""Data-dependent selection on one axis: two noisy numbers, then the strategy that they say is worth measuring.

The unbiased optimum on histograms most of whose cells stand out of the noise, else a tree whose budgets favour
coarse levels as far as the noisy row count says. DAWA (`benchmarks/baselines/dawa.py`) is not among the choices: it
gains a sixth at best, on the sparsest histograms at large epsilon, errs up to twice as much on others, and no
affordable number says which beforehand at small epsilon.

| here | there | unit |
|---|---|---|
| `strength` | s: epsilon rows / cells, how far a mean cell stands above the noise of one cell | - |
| `filled` | U: sum of min(cell, c), c five noise scales of one cell | rows |
| `taper` | r: a level's budget over that of the level below | - |

The non-negative estimate goes with it: counts pushed down a tree, never below zero, children adding up to their
parent. An unbiased estimate of an empty cell is negative half of the time, and the excess of all the others is
then spread over a range. Clamping leaves alone would break "parts add up to the whole"; here the root is
clamped and every parent hands exactly its own total to its children: the point of
{z >= 0, sum z = parent} nearest to the children's estimates. On sparse data this is the largest free gain
there is (mean error of one cell 14.8 -> 0.1 on a network trace of 4,096 cells); the price is bias, so the
result is stored beside the unbiased estimate, flagged, and never used for standard errors. Where a sparse signal has
chosen the tree for it, it is what answers, unless a reader asks for unbiased counts.

After that step, cells that hide in the noise are set right by their parents, so the fewer rows
there are, the more the coarse levels are worth. The unbiased optimum knows nothing of this: on DPBench's
sparsest trace the rows that are best before the step (tents: 206 against 262 for a 16-ary tree at 4,096
cells) are worse after it (about 106 against 39), and a taper of 1.5 brings that to 28. Where most cells
stand out, the step has nothing to do and the unbiased optimum wins again. The tapers below were read off
four DPBench histograms, FULL off twelve; benchmarks/results/central.md says how, and how the rule does on others.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dpsql.budget import cap_units, scaled_denominator
from dpsql.errors import PrivacyError
from dpsql.matrices.nonnegative import signal_tree
from dpsql.mechanisms.axis import auto_strategy
from dpsql.mechanisms.axis.leaves import LeafStrategy
from dpsql.mechanisms.axis.strategy import AxisChoice, AxisStrategy, draw_view, expected_error, leaf_estimates
from dpsql.mechanisms.axis.tree import tree_strategy
from dpsql.mechanisms.designs.data_dependent import AdaptedView, DataDependent, selecting_offers, strategy_of
from dpsql.mechanisms.designs.measurement import ChargeLine
from dpsql.mechanisms.designs.question import DesignProblem, NamedFamily, Proposal, stands_alone
from dpsql.mechanisms.distribution import LAPLACE, NoisyView, joined
from dpsql.mechanisms.offers import Refusal
from dpsql.noise import Noise
from dpsql.tree import Exact, FloatArray, Noisy, Tree

ROWS_SHARE, FILLED_SHARE = Fraction(1, 200), Fraction(1, 100)
SIGNAL_SHARE = ROWS_SHARE + FILLED_SHARE
CLIP = 5  # noise scales of one cell: what a cell counts for at most
ENOUGH_LEAVES = 64  # trees over so many leaves have inner nodes, whatever their arity
FULL = 0.53  # share of full cells at which tree and tents err alike on DPBench, at every epsilon
FEWEST_FULL = (
    100  # full cells, five noise scales of their number: below it a tree is safe unless all are full
)
TAPERS = ((2.0, 1.5), (20.0, 1.2))  # (signal below this, taper); equal budgets from 20 on


class Signal(NamedTuple):
    """Signal read by the rule; both numbers are noisy and may be published.

    Args:
        numbers: noisy number of rows, and noisy sum of cells, each cut at `clip`; shape (2,).
        clip: CLIP noise scales of one cell; public.
    """

    numbers: Noisy
    clip: int

    @property
    def rows(self) -> int:
        return int(self.numbers[0])

    @property
    def filled(self) -> int:
        """Noisy sum of cut cells."""
        return int(self.numbers[1])


def noisy_signal(counts: Exact, epsilon: Fraction, sensitivity: int, noise: Noise) -> Signal:
    """Measure the two numbers.

    Args:
        counts: exact cells, any shape.
        epsilon: of the whole release; SIGNAL_SHARE of it is spent here, a spend of its own in the ledger.
        sensitivity: the most that one privacy unit changes the sum of |cells|.
        noise: where noise comes from.

    Returns:
        Noisy rows and the noisy sum of cut cells.

    Raises:
        PrivacyError: if epsilon leaves no room for integer budgets.

    **Privacy** (SIGNAL_SHARE epsilon)-DP: a unit moves the number of rows by at most M, and the sum of cut cells
    too, since cutting moves two cells no further apart. The cut is public.
    """
    t = scaled_denominator(sensitivity)
    units = np.array([cap_units(epsilon * share, t) for share in (ROWS_SHARE, FILLED_SHARE)], np.int64)
    clip = math.ceil(CLIP * sensitivity / epsilon)
    if clip * counts.size >= 1 << 62:
        raise PrivacyError(
            "epsilon is too small to select among so many cells",
            hint="give the view a larger share, lower max_ids, or refuse `data_dependent`",
        )
    exact = Exact(np.array([counts.sum(), np.clip(counts, -clip, clip).sum()], np.int64))
    return Signal(LAPLACE.draw_units(exact, units, t * sensitivity, noise), clip)


def strength(rows: int, epsilon: Fraction, cells: int, sensitivity: int = 1) -> float:
    """Mean cell over the noise scale of one cell, from a noisy row count.

    >>> strength(4096, Fraction(1, 2), 1024)
    2.0
    """
    return float(max(rows, 0) * epsilon / (cells * sensitivity))


def taper(signal_strength: float) -> float:
    """Ratio of a level's budget to that of the level below it, for a given signal.

    >>> taper(0.5), taper(1000.0)
    (1.5, 1.0)
    """
    return next((ratio for below, ratio in TAPERS if signal_strength < below), 1.0)


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
    """True if so many cells are full that the unbiased optimum errs less than a tree and its non-negative step.

    A hard number of cells above a bar would need a margin for its noise, 5 x 100 / epsilon cells: more than there are
    below epsilon 0.25. A cut sum has noise of 20 full cells at every epsilon.

    Args:
        signal: the noisy numbers.
        cells: number of cells.

    >>> from dpsql.mechanisms.distribution import published
    >>> [is_full(Signal(published(np.array([50_000, filled])), 5), 4096) for filled in (12_000, 10_000)]
    [True, False]
    """
    return signal.filled >= signal.clip * max(FULL * cells, FEWEST_FULL)


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
    counts: Exact,
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


def _by_signal(leaves: int) -> AxisChoice:
    """The unbiased optimum, which a full signal leads to."""
    best = auto_strategy(leaves)
    return AxisChoice(
        best.strategy, f"by noisy signal, {best.name} if full", best.expected_error, best.runners_up
    )


def _adaptive(counts: Exact, epsilon: Fraction, sensitivity: int, noise: Noise) -> AdaptedView:
    """The two numbers of the signal are stored in front of the rows."""
    drawn = draw_adaptive(counts, epsilon, sensitivity, noise, strategy_of)
    t = scaled_denominator(sensitivity)
    units = [cap_units(epsilon * share, t) for share in (ROWS_SHARE, FILLED_SHARE)]
    chosen = "unbiased optimum, signal is full" if drawn.full else "tapered tree, signal is sparse"
    return AdaptedView(
        joined(drawn.signal.numbers, drawn.view.value), np.concatenate([np.array(units, np.int64), drawn.view.budget]),
        unbiased_cells(drawn), drawn.strategy.variance(), drawn.view.variance_at_unit_budget, chosen, not drawn.full,
    )  # fmt: skip


ADAPTIVE = DataDependent(
    "signal", "by noisy signal", "is for `mechanism: signal` or `data_dependent: allow`",
    (ChargeLine("signal for choosing", SIGNAL_SHARE), ChargeLine("rows", 1 - SIGNAL_SHARE)), False,
    _by_signal, _adaptive,
)  # fmt: skip


WHOLE = 0.0
NAMED: Mapping[str, NamedFamily] = {ADAPTIVE.name: NamedFamily(stands_alone)}


@lru_cache(maxsize=64)
def full_error(leaves: int) -> float:
    """Expected error of what answers over all ranges at epsilon 1 where the signal is full: the most that was seen.

    A sparse signal chooses the tree where its non-negative estimate errs less: at most 1.04 of the unbiased optimum
    at the border (docs/method/views.md, "Which mechanism": measured, not proved), far less elsewhere.

    >>> round(full_error(1024) / auto_strategy(1024).expected_error, 2)
    1.03
    """
    return expected_error(strategy_of(leaves)) / float(1 - SIGNAL_SHARE) ** 2


@lru_cache(maxsize=64)
def largest_error(leaves: int) -> float:
    """Expected error of the unbiased estimate over all ranges at epsilon 1, under the worst that the signal may choose.

    It is the bound where the view stores no non-negative estimates (`nonnegative: false`), and on axes of so few leaves
    that the tree is chosen however full they are (64 leaves of gusts: 1.31 of the optimum).

    >>> round(largest_error(1024) / auto_strategy(1024).expected_error, 2)
    1.78
    """
    trees = [tapered_strategy(signal_tree(leaves), ratio) for ratio in (*(ratio for _, ratio in TAPERS), 1.0)]
    worst = max(expected_error(strategy) for strategy in (strategy_of(leaves), *trees))
    return worst / float(1 - SIGNAL_SHARE) ** 2


def offers(question: DesignProblem) -> Iterator[Proposal]:
    """For a view of one axis that lets noisy numbers choose its strategy."""
    (view,) = question.views
    if not question.named and all(
        signal_tree(min(n, ENOUGH_LEAVES)).depth < 3 for n in question.leaves(view)
    ):
        yield Refusal(ADAPTIVE.title, "has one strategy on so few leaves, and nothing to select")
    else:
        tells = all(FULL * n >= FEWEST_FULL for n in question.leaves(view))  # whether a full axis can be told
        bound = full_error if view.positive and tells else largest_error
        yield from selecting_offers(question, ADAPTIVE, bound)
