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

Mechanisms that look at released numbers first: noisy integers, the cells' estimates and the model of their noise.

| word in the catalog | module | mechanism | biased |
|---|---|---|---|
| `diffhr` | `diffhr` | noisy view, groups of alike cells, noisy group sums | yes |
| `signal` | `adaptive` | two noisy numbers choose an unbiased strategy | no |

Such a view has one axis, counts rows, and is never reconciled with other views: its noise is not known beforehand.
What a plan says of it is that of the strategy that it would have without looking.

Each spends its epsilon in named parts; every part is a line of the ledger.

**Privacy**: docs/privacy/data_dependent.md. Estimates and models are functions of the noisy integers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from math import inf
from typing import NamedTuple

import numpy as np

from dpsql.budget import cap_units, scaled_denominator
from dpsql.errors import InternalError, PrivacyError
from dpsql.matrices import AxisVariance
from dpsql.matrices.estimated import Estimated
from dpsql.matrices.kronecker import AxisSplit, ProductReading
from dpsql.matrices.reconcile import signal_tree
from dpsql.matrices.strategy import Strategy
from dpsql.mechanisms.axis import AUTO, auto_strategy
from dpsql.mechanisms.axis.leaves import leaf_strategy
from dpsql.mechanisms.axis.tree import tree_strategy
from dpsql.mechanisms.designs import measurement
from dpsql.mechanisms.designs.question import (
    DesignProblem,
    FamilyCandidate,
    FamilyDesign,
    NamedFamily,
    Proposal,
    ViewChoice,
    stands_alone,
)
from dpsql.mechanisms.distribution import GAUSSIAN, LAPLACE, NoisyRows, NoisyView, joined
from dpsql.mechanisms.offers import AxisChoice, Offer, Refusal, draw_view, expected_error, leaf_estimates
from dpsql.noise import Noise
from dpsql.tree import Exact, FloatArray, IntArray, Noisy, Tree

MOST_LEAVES = 1 << 14
"""Groups of scattered cells cost leaves^2 steps when a release is opened: 4 s here."""


@dataclass(frozen=True, eq=False)
class AdaptedView:
    """A one-axis view whose strategy depends on released numbers.

    Args:
        value: all noisy integers as drawn, shape (rows,).
        budget: integer budget of each, the same shape.
        leaves: estimates of the cells, shape (n,).
        model: their variance model; Var(q) = unit_variance * (u' C u).
        unit_variance: see `NoisyView`.
        chosen: what was measured, in words.
        sparse: whether its rows were chosen for the non-negative estimate, which then answers.
    """

    value: Noisy
    budget: IntArray
    leaves: FloatArray
    model: AxisVariance
    variance_at_unit_budget: float
    chosen: str
    sparse: bool = False


@dataclass(frozen=True)
class DataDependent(measurement.LinearRows):
    """A view of one axis whose rows follow from released numbers. See `Measurement` for what its methods answer.

    Rows and errors that are expected are those of the plan's choice.

    Args:
        name: the catalog's word.
        title: what it is, in words.
        only: why it is not offered unasked.
        parts: what its epsilon is spent on.
        biased: whether cells are given the mean of a group.
        choice: leaves of the axis -> what a plan says of it.
        sample: (cells, epsilon, the most that one unit changes the sum of |cells|, noise) -> the view.

    **Privacy**: `sample` is epsilon-DP, by its parts.
    """

    name: str
    title: str
    only: str
    parts: tuple[measurement.ChargeLine, ...]
    biased: bool
    choice: Callable[[int], AxisChoice]
    sample: Callable[[Exact, Fraction, int, Noise], AdaptedView]

    @property
    def facts(self) -> measurement.MeasurementFacts:
        """Nothing but what is spent and how it is read: rows follow from the draw."""
        return measurement.MeasurementFacts(self.parts, ProductReading.name, biased=self.biased)

    def draw(self, cells: Exact, terms: measurement.DrawParameters, noise: Noise) -> NoisyRows:
        return self.sample(cells, terms.spend, terms.sensitivity, noise)

    def estimate(
        self, family: Sequence[measurement.DrawnMember], axes: Mapping[int, measurement.MeasuredAxis]
    ) -> list[Estimated]:
        """Made with the draw, on the axis as its rows were chosen."""
        estimates = []
        for member in family:
            if not isinstance(member.view, AdaptedView):
                raise InternalError("a data-dependent view was drawn by something else")
            drawn = member.view
            (axis,) = member.axes
            chosen = {axis: axes[axis]._replace(split=AxisSplit(drawn.model), words=drawn.chosen)}
            (estimate,) = measurement.estimated(self, [member], [drawn.leaves], chosen)
            estimates.append(replace(estimate, axis=(drawn.model, drawn.chosen), prefers=drawn.sparse))
        return estimates


@lru_cache(maxsize=64)  # simulations draw the same view again and again
def strategy_of(leaves: int) -> Strategy:
    """Strategy for so many cells or buckets; depends on their number alone."""
    return auto_strategy(leaves).strategy


def as_leaves(words: str) -> Callable[[int], AxisChoice]:
    """A plan's choice where nothing is known before the draw."""

    def choice(leaves: int) -> AxisChoice:
        leaf = leaf_strategy(leaves)
        return AxisChoice(leaf, words, expected_error(leaf), ())

    return choice


def selecting_offers(
    question: DesignProblem, method: DataDependent, bound: Callable[[int], float] | None
) -> Iterator[Proposal]:
    """Data-dependent selection for one view.

    Args:
        question: the view alone, which names the mechanism or allows it.
        method: the mechanism.
        bound: leaves of the axis -> the most that its error can be expected to be, at epsilon 1; None
            where nothing public bounds it, and then the mechanism is had by name alone.
    """
    is_named = question.named == method.name
    if not is_named and (bound is None or not question.lets(method.name)):
        yield Refusal(method.title, method.only)
        return
    if question.law == GAUSSIAN:
        yield Refusal(method.title, "is for delta 0", "remove privacy.delta, or write `mechanism: auto`")
        return
    (view,) = question.views
    reasons = {
        "measures one axis": len(view.axes) == 1,
        "measures counts": view.counts,
        "needs `mechanism: auto`": view.word == AUTO,
        f"takes at most {MOST_LEAVES} leaves": question.leaves(view)[0] <= MOST_LEAVES,
        "needs a declared max_ids": not question.people,
        "is not made batch by batch": not question.batches,
        "takes no `workload`: what it measures follows from what it sees": all(
            question.axes[axis].workload is None for axis in view.axes
        ),
    }
    short = [reason for reason, met in reasons.items() if not met]
    if short:
        yield Refusal(method.title, short[0])
        return

    def make() -> FamilyCandidate:
        choices = tuple(method.choice(n) for n in question.leaves(view))
        error = inf if bound is None else bound(question.leaves(view)[0])
        return FamilyCandidate(
            method.title, FamilyDesign(method, (ViewChoice(LAPLACE, choices),)), lambda: error
        )

    yield Offer(method.title, 0.0, make)


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
def tapered_strategy(tree: Tree, ratio: float) -> Strategy:
    """Budgets that fall by `ratio` from one level to the next; the root is not measured.

    Args:
        tree: the tree.
        ratio: at least 1.

    Returns:
        The strategy; leaves take what their path has left.
    """
    if tree.depth < 3:
        return leaf_strategy(tree.n)
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
    strategy: Strategy
    view: NoisyView


def draw_adaptive(
    counts: Exact,
    epsilon: Fraction,
    sensitivity: int,
    noise: Noise,
    unbiased_for: Callable[[int], Strategy],
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
        unbiased_cells(drawn), drawn.strategy.solver, drawn.view.variance_at_unit_budget, chosen, not drawn.full,
    )  # fmt: skip


ADAPTIVE = DataDependent(
    "signal", "by noisy signal", "is for `mechanism: signal` or `data_dependent: allow`",
    (measurement.ChargeLine("signal for choosing", SIGNAL_SHARE), measurement.ChargeLine("rows", 1 - SIGNAL_SHARE)),
    False, _by_signal, _adaptive,
)  # fmt: skip


WHOLE = 0.0
NAMED: Mapping[str, NamedFamily] = {ADAPTIVE.name: NamedFamily(stands_alone)}


@lru_cache(maxsize=64)
def full_error(leaves: int) -> float:
    """Expected error of what answers over all ranges at epsilon 1 where the signal is full: the most that was seen.

    A sparse signal chooses the tree where its non-negative estimate errs less: at most 1.04 of the unbiased optimum
    at the border (benchmarks/results/central.md: measured, not proved), far less elsewhere.

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
