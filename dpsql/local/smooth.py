"""The smooth estimates beside the unbiased ones: a stack for one axis, one joint fit for several.

How smooth is chosen by people held out. A measure's bit is one more axis of two leaves, so that sums and counts come
from one fit. Slots without a row are taken out first: these tables describe rows.

The smooth counts are non-negative, biased towards smooth histograms and far less noisy; they are stored beside the
unbiased ones and answer on request. A stack answers unasked where the unbiased estimate does not reject it, and has
error bars of its own, from repeating its fits; how often it leaves the unbiased intervals is stored. A joint fit's
answers keep the unbiased ones' bars, which are wider than they need be.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dpsql.client.plan import Plan
from dpsql.local.estimate import AxisTable, axis_groups, view_cells
from dpsql.local.mechanisms import joint
from dpsql.local.mechanisms.blue import ShareEstimate, range_variances, range_workload
from dpsql.local.mechanisms.priors import Stack, stack, stack_errors
from dpsql.local.oracles.oracle import FloatArray
from dpsql.local.tallies import FOLDS, CountedCollection
from dpsql.matrices.channel import StackVariance

STRENGTHS = (
    joint.Strength(1e5, 1e4, 1e1),
    joint.Strength(1e4, 1e3, 1e0),
    joint.Strength(1e4, 1e2, 1e-1),
    joint.Strength(1e3, 1e2, 1e-2),
    joint.Strength(1e3, 1e1, 1e-2),
    joint.Strength(1e2, 1e0, 1e-2),
    joint.Strength(1e2, 1e-1, 1e-3),
    joint.Strength(1e2, 1e-2, 1e-3),
    joint.Strength(1e2, 1e-3, 1e-3),
)
"""Stiff ones first: each fit starts from the one before."""
SOFT = STRENGTHS[5:]
"""Those of densities rough enough for a lattice finer than the usual."""
USUAL = 12
FINER = 2
FINEST = 24
"""Knots per axis of a single pair's lattice. It is finer than the grid's cells: only what the fit is free to do inside
cells can its posterior variance tell to be unknown."""
LOOSE = (1e-2, 1e-4)
"""Parts of the penalty on single axes to try as well: a value that half the people have is no smooth axis."""
NEAR = 1.0
"""Held out people cannot tell strengths apart whose misfits differ by less: the softest is honest about most."""
PATIENCE = 2
"""How many softer fits in a row may explain held out people worse before no softer one is tried."""
LARGEST = 40_000
"""Most cells of one joint fit."""
MOST_NUMBERS = 25_000_000
"""Most cells x weights of a joint fit, which takes about four times as many doubles: two axes of 200 leaves took 50
seconds of one core and 0.7 GB, three of 34 leaves 6 seconds and 0.2 GB."""
MOST_WEIGHTS = 1_100
"""Most weights of a joint fit, each step of which solves for all of them: categories have one weight a combination, and
32 x 32 of them took 42 seconds, 100 x 100 would take hours."""


MOST_LOOSE = 4_000_000
"""Cells x weights up to which axes are let loose: each try fits up to nine times again."""
SLOW = 1.0
"""Seconds from which joint fits are announced, and a release without them is written first."""
STEPS, STIFF_STEPS, RATE = 90, 30, 4e7
"""Gauss-Newton steps of a joint fit with all its strengths (60 to 120 in ten collections), a third of them where it is
too large to let axes loose, and cells x weights that one second of a core sees to in them: for the forecast."""


class JointTable(NamedTuple):
    """A fitted table of rows over a set of axes (and bit), its model and weights, and what was chosen."""

    shares: FloatArray
    model: joint.JointModel
    weights: FloatArray
    strength: joint.Strength
    views: list[joint.Marginal]


def smooth_axis(collection: CountedCollection, axis: int) -> Stack:
    """The log-smooth stack of one axis; special leaves, categories and "no row" stay free of smoothing."""
    folds = [axis_groups(collection, axis, folds=[k]) for k in range(FOLDS)]
    return stack(folds, collection.plan.axes[axis].smooth)


def joint_table(
    collection: CountedCollection, axes: Sequence[int], measure: int | None, filled: float
) -> JointTable:
    """Fit a set of axes together from every view that touches it.

    Args:
        collection: the counted reports.
        axes: the set.
        measure: position of a measure whose bit becomes the last axis, or None.
        filled: share of slots that hold a row.

    Returns:
        The fit; `shares` has the shape of the axes' leaves, with a last axis of 2 for a measure.
    """
    sizes, smooth, seen = _shape(collection.plan, axes, measure)
    halves = [
        marginals(collection, axes, measure, filled, folds)
        for folds in (range(FOLDS // 2), range(FOLDS // 2, FOLDS))
    ]
    usual, finer = _lattices(collection.plan, axes)
    model = joint.make_model(sizes, smooth, seen, usual)
    loss, strength = _choose(model, STRENGTHS, *halves)
    if finer and strength.pair <= SOFT[0].pair and fits(sizes, smooth, seen, finer):
        finer_model = joint.make_model(sizes, smooth, seen, finer)
        finer_loss, finer_strength = _choose(finer_model, SOFT, *halves)
        if finer_loss < loss:
            model, strength = finer_model, finer_strength
    views = marginals(collection, axes, measure, filled)
    weights = joint.fit(model, views, strength)
    return JointTable(joint.table_of(model, weights), model, weights, strength, views)


def told(plan: Plan, axes: Sequence[int]) -> bool:
    """True if some view holds each pair of these axes."""
    pairs = itertools.combinations(axes, 2)
    return all(any(view.holds(pair) for view in plan.views) for pair in pairs)


def joint_fits(plan: Plan, axes: Sequence[int]) -> bool:
    """True if a joint fit of these axes' counts is small enough to make."""
    return fits(*_shape(plan, axes, None), _lattices(plan, axes)[0])


def fitted_together(plan: Plan, axes: Sequence[int], measure: int | None) -> bool:
    """True if an interaction is fitted: ordered axes, each pair of them in some view, and few enough cells."""
    cells = math.prod(plan.axes[a].leaves for a in axes) * (1 if measure is None else 2)
    return cells <= LARGEST and told(plan, axes) and all(plan.axes[a].smooth >= SMOOTH for a in axes)


def joint_seconds(plan: Plan, views: Iterable[tuple[Sequence[int], Sequence[int]]]) -> float:
    """About how many seconds of one core the joint fits of a collection will take.

    Args:
        plan: the plan.
        views: axes and measures of each. Every part of two axes or more is fitted once for counts, and once for each
            measure.
    """
    fits: set[tuple[tuple[int, ...], int | None]] = set()
    for axes, measures in views:
        for measure in (None, *measures):
            for width in range(2, len(axes) + 1):
                subsets = itertools.combinations(sorted(axes), width)
                fits.update((subset, measure) for subset in subsets if fitted_together(plan, subset, measure))
        counts = tuple(sorted(axes))
        if len(axes) > 1 and told(plan, axes) and joint_fits(plan, axes):
            fits.add((counts, None))
    seconds = 0.0
    for axes, measure in fits:
        shape = _shape(plan, axes, measure)
        entries = joint.weights_of(*shape, _lattices(plan, axes)[0]) * math.prod(shape[0])
        seconds += (STEPS if entries <= MOST_LOOSE else STIFF_STEPS) * entries / RATE
    return seconds


def fits(sizes: Sequence[int], smooth: Sequence[int], seen: Sequence[Sequence[int]], knots: int) -> bool:
    """True if a model of these axes takes acceptable memory and time."""
    weights = joint.weights_of(sizes, smooth, seen, knots)
    return weights <= MOST_WEIGHTS and weights * math.prod(sizes) <= MOST_NUMBERS


def _lattices(plan: Plan, axes: Sequence[int]) -> tuple[int, int]:
    """Knots of a single pair's usual lattice, and of one finer than its grid if the usual one is not; 0: no choice."""
    if len(axes) != 2:
        return 0, 0
    pairs = [view for view in plan.views if view.holds(axes) and len(view.axes) == len(axes)]
    cells = max((len(edges) - 1 for view in pairs for edges in view.edges), default=0)
    finer = min(FINER * cells, FINEST)
    return USUAL, finer if finer > USUAL else 0


def _shape(
    plan: Plan, axes: Sequence[int], measure: int | None
) -> tuple[list[int], list[int], list[tuple[int, ...]]]:
    """Leaves and smooth leaves of each axis, a measure's bit last, and sets of three positions or more that one grid
    tells about, with the bit where it is in."""
    sizes, smooth = [plan.axes[a].leaves for a in axes], [plan.axes[a].smooth for a in axes]
    if measure is not None:
        sizes, smooth = [*sizes, 2], [*smooth, 0]
    sets = []
    for view in plan.views:
        inside = tuple(sorted(list(axes).index(a) for a in view.axes if a in axes))
        if view.asks.table and len(inside) > 2:
            with_bit = measure is not None and view.measure == measure
            sets.append((*inside, len(axes)) if with_bit else inside)
    return sizes, smooth, sets


def _choose(
    model: joint.JointModel,
    strengths: Sequence[joint.Strength],
    training: Sequence[joint.Marginal],
    validation: Sequence[joint.Marginal],
) -> tuple[float, joint.Strength]:
    """The loss of the strength whose fit to some people explains the others best, and the strength; axes are let loose
    while that helps."""
    loss, best = _path(model, strengths, training, validation)
    for loose in LOOSE if model.features.size <= MOST_LOOSE else ():
        loosened = [s._replace(main=s.main * loose) for s in strengths]
        loosened_loss, strength = _path(model, loosened, training, validation)
        if loosened_loss >= loss:
            break
        loss, best = loosened_loss, strength
    return loss, best


def _path(
    model: joint.JointModel,
    strengths: Sequence[joint.Strength],
    training: Sequence[joint.Marginal],
    validation: Sequence[joint.Marginal],
) -> tuple[float, joint.Strength]:
    losses: list[float] = []
    start = None
    for strength in strengths:
        start = joint.fit(model, training, strength, start)
        fitted = joint.table_of(model, start)
        losses.append(
            sum(
                float(np.sum((joint.marginal_of(fitted, v) - v.shares) ** 2 / v.variance)) for v in validation
            )
        )
        if len(losses) > PATIENCE and min(losses) < min(losses[-PATIENCE:]):
            break
    position = max(i for i, loss in enumerate(losses) if loss <= min(losses) + NEAR)
    return min(losses), strengths[position]


def marginals(
    collection: CountedCollection,
    axes: Sequence[int],
    measure: int | None,
    filled: float,
    folds: Sequence[int] = range(FOLDS),
) -> list[joint.Marginal]:
    """Marginals of every view on a set of axes, added up over the other axes."""
    view_marginals = []
    for number, view in enumerate(collection.plan.views):
        inside = [a for a in view.axes if a in axes]
        if not view.asks.table or not inside:
            continue
        cells = view_cells(collection, number, folds)
        if cells.reports == 0:
            continue
        cell_shares, fan = cells.counts[..., None], float(cells.fan)
        with_bit = measure is not None and view.measure == measure and cells.signed is not None
        if with_bit and cells.signed is not None:
            cell_shares = np.stack([cells.counts - cells.signed, cells.counts + cells.signed], axis=-1) / 2
            fan = 1.0
        noise = cells.noise(np.clip(cell_shares, 0, 1), fan)
        order = [axes.index(a) for a in inside]
        dropped = tuple(i for i, a in enumerate(view.axes) if a not in inside)
        turn = [*np.argsort(order).tolist(), len(inside)]
        shares = cell_shares.sum(axis=dropped).transpose(turn) / filled
        variance = noise.sum(axis=dropped).transpose(turn) / filled**2
        edges = [np.asarray(view.edges[view.axes.index(a)]) for a in sorted(inside, key=list(axes).index)]
        places = sorted(order)
        if with_bit:
            places, edges = [*places, len(axes)], [*edges, np.array([0, 1, 2])]
        else:
            shares, variance = shares[..., 0], variance[..., 0]
        view_marginals.append(joint.Marginal(tuple(places), tuple(edges), shares, variance))
    return view_marginals


SMOOTH = 4
"""Fewest ordered leaves that a third difference can bend along."""


class Positive(NamedTuple):
    """Non-negative shares of slots per leaf combination, and their own errors where one axis has them.

    Args:
        shares: shape of the axes' leaves.
        errors: of one axis.
        preferred: whether they answer unless unbiased counts are asked for.
        shift: of one axis the mean error of refits to redrawn reports.
    """

    shares: FloatArray
    errors: StackVariance | None = None
    preferred: bool = False
    shift: FloatArray | None = None


def positive_shares(
    collection: CountedCollection,
    axes: Sequence[int],
    known: Mapping[int, AxisTable],
    fitted: Mapping[tuple[int, ...], FloatArray] | None = None,
) -> Positive | None:
    """Non-negative shares of slots per leaf combination.

    Args:
        collection: the counted reports.
        axes: a view's axes.
        known: every axis's table.
        fitted: shares of joint fits that were made already.

    Returns:
        Shares of the shape of the axes' leaves; None where no fit is made: one unordered axis, a fit too large
        (`joint_fits`), a pair that no view saw. Such a view's answers stay unbiased whatever the reader asks.
    """
    if len(axes) == 1:
        smooth = collection.plan.axes[axes[0]].smooth
        return _stacked(collection, axes[0], smooth, known) if smooth >= SMOOTH else None
    if not told(collection.plan, axes) or not joint_fits(collection.plan, axes):
        return None
    if fitted is not None and tuple(axes) in fitted:
        return Positive(fitted[tuple(axes)])
    filled = float(np.clip(np.mean([known[a].filled for a in axes]), 1e-6, 1.0))
    return Positive(joint_table(collection, axes, None, filled).shares * filled)


def _stacked(
    collection: CountedCollection, axis: int, smooth: int, axis_tables: Mapping[int, AxisTable]
) -> Positive:
    """One axis's stack with its covariance; the draws follow from the plan, so that a release can be made again."""
    stack, unbiased = smooth_axis(collection, axis), axis_tables[axis].counts
    rng = np.random.default_rng(int.from_bytes(collection.plan.hash, "big") + axis)
    refits = stack_errors(stack, unbiased.covariance, smooth, rng)
    shares = stack.shares[: unbiased.shares.size]
    errors = StackVariance(refits.covariance, unbiased.covariance, shares, refits.small, refits.large)
    return Positive(shares, errors, compatible(shares, unbiased), refits.shift)


REJECTED = 2.326
"""Normal quantile of 99%: one true histogram in a hundred is rejected."""


def compatible(shares: FloatArray, unbiased: ShareEstimate) -> bool:
    """True if smooth counts may answer unasked: the unbiased estimate does not reject them at 1%.

    The statistic is the mean squared distance over all ranges. If the shares were true, it would be a weighted sum of
    chi-squares; its quantile is that of a multiple of one chi-square with the same mean and variance. The part of
    ranges outside their intervals (`outside`) is no such test: ranges err together, and a third of all collections
    leave more than 5% of the true ranges outside.

    Args:
        shares: leaf shares, in the unit of `unbiased`.
        unbiased: the unbiased estimate of the same leaves.

    Example:
        >>> unbiased = ShareEstimate(np.array([0.5, 0.5]), np.diag([1e-4, 1e-4]))
        >>> compatible(np.array([0.51, 0.49]), unbiased), compatible(np.array([0.9, 0.1]), unbiased)
        (True, False)
    """
    ranges, off = range_workload(shares.size), shares - unbiased.shares
    spread = ranges @ unbiased.covariance
    mean, variance = float(np.trace(spread)), 2 * float(np.sum(spread * spread.T))
    if mean <= 0:
        return not off.any()
    ninth = variance / (9 * mean**2)  # 2 / (9 k) of k degrees of freedom: Wilson and Hilferty (1931)
    return float(off @ ranges @ off) <= mean * (1 - ninth + REJECTED * math.sqrt(ninth)) ** 3


def outside(shares: FloatArray, unbiased: ShareEstimate) -> float:
    """Share of all ranges where an estimate leaves the unbiased one's 95% interval.

    Example:
        >>> held = ShareEstimate(np.array([0.5, 0.5]), np.diag([1e-4, 1e-4]))
        >>> outside(np.array([0.5, 0.5]), held), outside(np.array([0.9, 0.1]), held)
        (0.0, 0.6666666666666666)
    """
    off = np.concatenate([[0.0], np.cumsum(shares - unbiased.shares)])
    distance = np.abs(off[None, :] - off[:, None])
    wide = 1.96 * np.sqrt(np.maximum(range_variances(unbiased.covariance), 0.0))
    upper = np.triu_indices(off.size, 1)
    return float(np.mean(distance[upper] > wide[upper] + 1e-12))
