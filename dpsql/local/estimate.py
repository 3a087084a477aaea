"""Tallies to tables: what views say of cells, the unbiased estimate of each set of axes, and how noisy each part is.

A cell has an item for each bit of a measure. Both together count rows; bit 1 minus bit 0 is the measure in half-ranges
around its middle, and the two are nearly uncorrelated.

Cells of weighted views are divided by the share of people whose bit is 1 (`filled_share`): they are shares of all rows
and add up to 1, whatever a person's rows have to do with how many they are. What that share errs by moves all leaves
along one line (`drift`).

A table over several axes is the sum of its parts: its total, each axis's deviation (from all reports that touch the
axis) and each interaction (from the views that hold those axes together). A part left unseen is zero.

| here     | there                     | unit |
|----------|---------------------------|------|
| part     | residual of a subset T    | shares of people's slots |
| filled   | f_1, E min(r, R) / R      | share of people |
| stretch  | R / E min(r, R)           | shares of rows by shares of people |
| strength | sigma_T^2                 | variance of a part, in units of its axes' models |
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from dpsql.client.plan import Plan, View
from dpsql.errors import DataError
from dpsql.local.mechanisms.blue import ShareEstimate, ViewReports, blue, cell_design, drift, signed_blue
from dpsql.local.mechanisms.truncation import ValueWithError
from dpsql.local.oracles.oracle import FloatArray, Oracle
from dpsql.local.tallies import FOLDS, CountedCollection, kind_of, layout_of


@dataclass(frozen=True)
class UnbiasedShares:
    """Unbiased shares of one view.

    Args:
        counts: share of people whose slot holds a row in the cell, shape (cells per axis, ...).
        signed: the same for the centred measure, or None.
        empty: share of people without a row, or None where it cannot occur.
        reports: number of reports.
        fan: items added up in each cell.
        oracle: how they were perturbed.
        stretch: what shares of items were multiplied by.
    """

    counts: FloatArray
    signed: FloatArray | None
    empty: float | None
    reports: float
    fan: int
    oracle: Oracle
    stretch: float = 1.0

    def noise(self, cells: FloatArray, fan: float) -> FloatArray:
        """Variance of plugged-in cells of so many items."""
        spread = self.oracle.structure(cells / self.stretch, fan).diagonal
        return np.asarray(spread * self.stretch**2 / self.reports)


def filled_share(collection: CountedCollection) -> ValueWithError:
    """Share of people whose bit is 1, E min(r, tau) / tau, from all reports that tell it; all where none does."""
    candidates = [kind_of(view).filled(collection, n) for n, view in enumerate(collection.plan.views)]
    estimates = [candidate for candidate in candidates if candidate is not None]
    if not estimates:
        return ValueWithError(1.0, 0.0)
    weights = weights_of(np.array([m.error for m in estimates]) ** 2)
    value = weights @ np.array([m.value for m in estimates])
    error = np.linalg.norm(weights * np.array([m.error for m in estimates]))
    return ValueWithError(float(np.clip(value, LEAST / collection.plan.tau, 1.0)), float(error))


def drift_of(collection: CountedCollection) -> float:
    """Relative error that all shares have together, of what they are multiplied by."""
    filled = filled_share(collection)
    stretches = [kind_of(view).stretch(filled) for view in collection.plan.views]
    return max((error / value for value, error in stretches), default=0.0)


def one_row_each(plan: Plan) -> bool:
    """True if each row stands for all of a person's; else people speak by slots."""
    return any(kind_of(view).one_row_each for view in plan.views)


def rows_between(collection: CountedCollection, floor: int, cap: int) -> ValueWithError | None:
    """Mean rows of a person beyond `floor` and up to `cap`; None if nobody was asked between these."""
    for number, view in enumerate(collection.plan.views):
        if view.rows == (floor, cap):
            return kind_of(view).rows_between(collection, number)
    return None


LEAST = 0.01
"""Fewest rows a person that a share of filled slots may mean: noise alone must not divide by zero."""


def view_cells(
    collection: CountedCollection, number: int, folds: Sequence[int] = range(FOLDS)
) -> UnbiasedShares:
    """Shares of a grid view's cells from some folds of people."""
    view = collection.plan.views[number]
    stretch = kind_of(view).stretch(filled_share(collection)).value
    item_shares = collection.shares(number, folds) * stretch
    shape, layout = tuple(len(e) - 1 for e in view.edges), layout_of(view)
    first = item_shares[layout.rows].reshape(shape)
    empty = float(item_shares[-1]) if view.empty else None
    reports, oracle = float(collection.tallies[number].reports[list(folds)].sum()), collection.oracle(number)
    if layout.bits is None:
        return UnbiasedShares(first, None, empty, reports, 1, oracle, stretch)
    second = item_shares[layout.bits].reshape(shape)
    return UnbiasedShares(first + second, second - first, empty, reports, 2, oracle, stretch)


def margin(cells: UnbiasedShares, view: View, axes: Sequence[int]) -> UnbiasedShares:
    """Add a view's cells up over the axes that are not in `axes`; the rest keep the view's order."""
    dropped = tuple(i for i, a in enumerate(view.axes) if a not in axes)
    merged = int(np.prod([cells.counts.shape[i] for i in dropped])) if dropped else 1
    signed = None if cells.signed is None else cells.signed.sum(axis=dropped)
    return replace(cells, counts=cells.counts.sum(axis=dropped), signed=signed, fan=cells.fan * merged)


class AxisReports(NamedTuple):
    """Reports of one view about one axis.

    Args:
        number: the view's.
        items: its items' weights in each cell.
        group: the cells' shares.
        drift: relative error that all of them have together, of what they were multiplied by.
    """

    number: int
    items: FloatArray
    group: ViewReports
    drift: float


def told_of(
    collection: CountedCollection,
    axis: int,
    measure: int | None = None,
    folds: Sequence[int] = range(FOLDS),
) -> list[AxisReports]:
    """All that the reports say about one axis: its trees, the margins of grids, Square Wave.

    Args:
        collection: the counted reports.
        axis: position of the axis.
        measure: None for counts, else the measure's position: its values in half-ranges around the middle.
        folds: folds of people to use.

    Returns:
        Groups over the axis's leaves; of counts with one more leaf for "no row" where it can occur.
    """
    view_estimates, plan, filled = [], collection.plan, filled_share(collection)
    for number, (view, tally) in enumerate(zip(plan.views, collection.tallies, strict=True)):
        reports = float(tally.reports[list(folds)].sum())
        along = kind_of(view).along(plan, view, axis, measure) if axis in view.axes and reports else None
        if along is not None:
            stretch, error = kind_of(view).stretch(filled)
            items = along.items * stretch
            seen = items @ collection.shares(number, folds)
            fan = np.maximum(np.abs(along.items).sum(axis=1), 1.0)
            group = ViewReports(along.design, seen, reports, collection.oracle(number), fan, stretch)
            view_estimates.append(AxisReports(number, items, group, error / stretch))
    return view_estimates


def axis_groups(
    collection: CountedCollection, axis: int, measure: int | None = None, folds: Sequence[int] = range(FOLDS)
) -> list[ViewReports]:
    """The groups of `told_of`."""
    return [view_estimate.group for view_estimate in told_of(collection, axis, measure, folds)]


LIFT = 1e-9
"""Variance of the total relative to the leaves' that keeps a model's total positive where it is known exactly."""


@dataclass(frozen=True)
class AxisTable:
    """One axis's estimates.

    Args:
        counts: leaf shares of slots and their covariance; without "no row".
        signed: per measure, leaf values in half-ranges and their covariance.
        filled: share of slots that hold a row.
    """

    counts: ShareEstimate
    signed: tuple[ShareEstimate, ...]
    filled: float


@dataclass(frozen=True)
class FittedTable:
    """One set of axes.

    Args:
        axes: positions in the plan.
        values: estimated shares (or half-ranges), shape of the axes' leaves.
        strengths: subset of positions inside `axes` -> variance factor of that part, for models `models`.
        mid: of a measure, the value around which it is summed.
    """

    axes: tuple[int, ...]
    values: FloatArray
    strengths: Mapping[tuple[int, ...], float]
    mid: int = 0


def axis_table(collection: CountedCollection, axis: int) -> AxisTable:
    """Unbiased estimate of one axis from every report that touches it.

    Raises:
        DataError: if no accepted report touches the axis.
    """
    view_estimates, plan = told_of(collection, axis), collection.plan
    groups = [each.group for each in view_estimates]
    if not view_estimates:
        raise DataError(f"no accepted report covers {plan.axes[axis].name}", hint="collect more reports")
    leaves = plan.axes[axis].leaves
    pooled, relative = blue(groups), max(each.drift for each in view_estimates)
    counts = ShareEstimate(pooled.shares[:leaves], pooled.covariance[:leaves, :leaves])
    nonnegative = np.clip(pooled.shares, 0, None)
    plugged = nonnegative[:leaves] / nonnegative.sum()
    signed = [signed_blue(axis_groups(collection, axis, m), plugged) for m in range(len(plan.measures))]
    if relative > 0:
        counts = _drifting(counts, drift(groups)[:leaves], relative)
        signed = [_drifting(each, each.shares, relative) for each in signed]
    return AxisTable(counts, tuple(signed), float(counts.shares.sum()))


def _drifting(estimate: ShareEstimate, along: FloatArray, relative: float) -> ShareEstimate:
    """An estimate with the error that all leaves have along one line, by a relative error of the stretch."""
    return ShareEstimate(estimate.shares, estimate.covariance + relative**2 * np.outer(along, along))


def model_of(estimate: ShareEstimate) -> FloatArray:
    """An axis's variance model: the covariance, lifted so that its total is positive."""
    size = estimate.shares.size
    covariance = (estimate.covariance + estimate.covariance.T) / 2
    return np.asarray(covariance + LIFT * float(np.trace(covariance)) / size * np.ones((size, size)) / size)


class Total(NamedTuple):
    """Total over all leaves, the same for every table of one measure, and its variance."""

    value: float
    variance: float


def weights_of(variances: FloatArray) -> FloatArray:
    """Weights by inverse variance; alike where all are known exactly."""
    inverse = 1 / np.maximum(variances, max(float(np.max(variances)) * 1e-9, 1e-300))
    return np.asarray(inverse / inverse.sum())


Parts = Mapping[tuple[int, ...], "Interaction"]


class Interaction(NamedTuple):
    """An interaction: a table over its axes' leaves whose margins are taken away, and its strength."""

    values: FloatArray
    strength: float


def table(
    axes: Sequence[int],
    known: Mapping[int, AxisTable],
    parts: Parts,
    measure: int | None = None,
    total: Total | None = None,
) -> FittedTable:
    """Put a set of axes together from parts, so that tables which share axes agree on their margins.

    Args:
        axes: the set, one axis or more, increasing.
        known: every axis's table.
        parts: interactions by plan axes, from `interactions`.
        measure: None for counts, else the measure's position.
        total: from `totals.total_of`; without it the axes' totals are weighted as if alone, and its variance is one
            that holds however their reports overlap.

    Returns:
        Values and the strength of every part.
    """
    every = {a: t.counts if measure is None else t.signed[measure] for a, t in known.items()}
    single = [every[a] for a in axes]
    sizes = [e.shares.size for e in single]
    if total is None:
        variances = np.array([max(float(e.covariance.sum()), 0.0) for e in every.values()])
        weights = weights_of(variances)
        sums = np.array([e.shares.sum() for e in every.values()])
        total = Total(float(weights @ sums), float(weights @ variances))
    values = np.full(sizes, total.value / np.prod(sizes))
    strengths: dict[tuple[int, ...], float] = {(): total.variance}
    for position, estimate in enumerate(single):
        # The count's model serves the measures, rescaled.
        unit = max(float(np.trace(rest(model_of(known[axes[position]].counts)))), 1e-300)
        strengths[position,] = float(np.trace(rest(estimate.covariance)) / unit)
        values = values + _expand(centred(estimate.shares), (position,), sizes)
    for width in range(2, len(axes) + 1):
        for places in itertools.combinations(range(len(axes)), width):
            effect = parts.get(tuple(axes[i] for i in places))
            strengths[places] = 0.0 if effect is None else effect.strength
            if effect is not None:
                values = values + _expand(effect.values, places, sizes)
    return FittedTable(tuple(axes), values, strengths)


def rest(covariance: FloatArray) -> FloatArray:
    """Covariance of what remains when the total, spread as the model spreads it, is taken away."""
    total = float(covariance.sum())
    if total <= 0:
        return covariance
    with_total = covariance.sum(axis=1)
    return np.asarray(covariance - np.outer(with_total, with_total) / total)


NoisyCells = tuple[float, list[FloatArray]]
"""Variance of independent cells, and what each leaf of each axis has of them, (leaves, cells)."""


class Seen(NamedTuple):
    """Grid estimates of a set of axes.

    Args:
        table: over leaves.
        noises: whose sum it errs by.
        edges: per axis the cells of the finest grid.
    """

    table: FloatArray
    noises: list[NoisyCells]
    edges: list[tuple[int, ...]]


def _through(grid: Seen, steps: Sequence[FloatArray]) -> Seen:
    """One view's grid through an operator on each axis."""
    ((variance, spreads),) = grid.noises
    stepped = [step @ spread for step, spread in zip(steps, spreads, strict=True)]
    return Seen(spread_over(grid.table, steps), [(variance, stepped)], grid.edges)


def interaction(collection: CountedCollection, axes: Sequence[int], measure: int | None) -> Seen | None:
    """Pool the views that hold all of `axes`: even spread inside cells, weights by inverse variance.

    Where each axis's cells are those of one tree, a coarse grid says nothing of what lies inside its cells: every step
    from one level to the next is pooled over the views that see it.

    Returns:
        None if no view holds them.
    """
    grids: list[Seen] = []
    for number, view in enumerate(collection.plan.views):
        if not view.holds(axes) or (measure is not None and view.measure != measure):
            continue
        cells: UnbiasedShares = margin(view_cells(collection, number), view, axes)
        seen = cells.counts if measure is None else cells.signed
        if cells.reports == 0 or seen is None:
            continue
        order = [a for a in view.axes if a in axes]
        seen = seen.transpose([order.index(a) for a in axes])
        noise = float(cells.noise(np.full(1, 1 / cells.counts.size), cells.fan)[0])
        edges = [view.edges[view.axes.index(a)] for a in axes]
        spreads = [_even_spread(e, collection.plan.axes[a].leaves) for e, a in zip(edges, axes, strict=True)]
        grids.append(Seen(spread_over(seen, spreads), [(noise, spreads)], edges))
    if not grids:
        return None
    chains = [sorted({grid.edges[i] for grid in grids}, key=len) for i in range(len(axes))]
    finest = max((grid.edges for grid in grids), key=lambda edges: math.prod(len(e) - 1 for e in edges))
    if not all(set(a) < set(b) for chain in chains for a, b in itertools.pairwise(chain)):
        return Seen(*_pooled(grids), finest)
    table, noises = np.zeros_like(grids[0].table), list[NoisyCells]()
    for levels in itertools.product(*(range(len(chain)) for chain in chains)):
        steps = [_step(chain, level) for chain, level in zip(chains, levels, strict=True)]
        coarsest = [len(chain[level]) for chain, level in zip(chains, levels, strict=True)]
        fine = [g for g in grids if all(len(e) >= n for e, n in zip(g.edges, coarsest, strict=True))]
        increment, errors = _pooled([_through(grid, steps) for grid in fine])
        table, noises = table + increment, noises + errors
    return Seen(table, noises, finest)


def _pooled(grids: Sequence[Seen]) -> tuple[FloatArray, list[NoisyCells]]:
    """Mean of one grid or several over leaves, each with noise of its own, and its errors."""
    own = [noise for grid in grids for noise in grid.noises]
    sizes = [np.prod([(s**2).sum() for s in spreads]) for _, spreads in own]
    weights = weights_of(np.array([variance * size for (variance, _), size in zip(own, sizes, strict=True)]))
    table = np.asarray(sum(w * grid.table for w, grid in zip(weights, grids, strict=True)))
    return table, [
        (float(w**2) * variance, spreads) for w, (variance, spreads) in zip(weights, own, strict=True)
    ]


def _step(chain: Sequence[tuple[int, ...]], level: int) -> FloatArray:
    """Covariance that even spread within a level's cells adds to that within the cells of the level before,
    (leaves, leaves)."""
    fine = evened(chain[level])
    return fine if level == 0 else fine - evened(chain[level - 1])


def evened(edges: Sequence[int]) -> FloatArray:
    """Leaves spread evenly inside cells, (leaves, leaves)."""
    spread = _even_spread(edges, edges[-1])
    return np.asarray(spread @ (spread > 0).T, dtype=np.float64)


def _even_spread(edges: Sequence[int], leaves: int) -> FloatArray:
    """Leaves x cells: each cell shared evenly among its leaves."""
    design = cell_design(edges, leaves)
    return np.asarray((design / design.sum(axis=1, keepdims=True)).T)


def spread_over(cells: FloatArray, spreads: Sequence[FloatArray]) -> FloatArray:
    """A table through a matrix on each axis."""
    for position, matrix in enumerate(spreads):
        cells = np.moveaxis(np.tensordot(matrix, cells, axes=(1, position)), 0, position)
    return cells


def centred(values: FloatArray) -> FloatArray:
    """Take away the mean along each axis: the part that no smaller subset explains, for an even spread."""
    for axis in range(values.ndim):
        values = values - values.mean(axis=axis, keepdims=True)
    return values


def _expand(effect: FloatArray, positions: Sequence[int], sizes: Sequence[int]) -> FloatArray:
    """Spread a part evenly over the axes that it does not hold."""
    shape = [sizes[i] if i in positions else 1 for i in range(len(sizes))]
    copies = np.prod([sizes[i] for i in range(len(sizes)) if i not in positions])
    return np.asarray(np.broadcast_to(effect.reshape(shape) / copies, sizes))
