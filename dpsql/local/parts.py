"""Interactions of several axes: smooth where a joint fit is small enough, else straight from the grids.

The fit knows that neighbours resemble each other, which takes away the steps of a coarse grid; its own error is
measured by fitting again to what it would have brought in.

**Pairs alone.** `collection: {estimate: lle}` stores one view of three to six axes as the tables of its pairs (AHEAD's
LLE). Plan and reports are those of any collection: trees of axes, a grid a pair. What differs is the release. Of the
view's joint table, which may have a hundred million cells, it holds the margins of one axis and two, unbiased and with
their covariance as always; boxes over more axes are fitted to them when they are asked
(`dpsql.matrices.max_entropy`).

That fit takes non-negative tables which agree on their axes. So the pairs' smooth tables, where they were fitted, or
else the unbiased ones without what is below 0, are raked to one table an axis: its stack, where the unbiased estimate
does not reject it, else the unbiased shares on the simplex.

| here     | there | unit |
|----------|-------|------|
| `shares` | of an axis, of a pair | slots |
| `units`  | node sums | 2^-20 rows |

**Privacy**: post-processing of reports that were private before they left the device.
**Source**: AHEAD, section 4.5.2; docs/method/local.md, "Maximum entropy".
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from dpsql.catalog.base import COUNT
from dpsql.local import estimate
from dpsql.local.mechanisms.blue import ShareEstimate, normsub
from dpsql.local.mechanisms.joint import posterior
from dpsql.local.oracles.oracle import FloatArray
from dpsql.local.smooth import SMOOTH, fitted_together, joint_table, positive_shares
from dpsql.local.survey import Survey
from dpsql.local.tallies import CountedCollection
from dpsql.local.totals import total_of
from dpsql.matrices import AxisVariance
from dpsql.matrices.estimated import Estimated, Integers
from dpsql.matrices.max_entropy import EntropyReading, FittedErrors, cell_spread, packed
from dpsql.matrices.model import Components
from dpsql.matrices.reading import Together
from dpsql.matrices.reconcile import node_sums, round_family
from dpsql.mechanisms.distribution import nothing_drawn
from dpsql.release import write
from dpsql.tree import IntArray, Tree

BOXES = 200
FLAT = 1e-9
"""A box with less than this part of the largest unit spans a whole axis and has no interaction to err on."""
CAUTION = 0.8
"""Which quantile, over random boxes, of variance by model is a pair's strength."""
WIDE_CAUTION = 0.98
"""The same for three axes and more: smooth waves make errors that few boxes hold whole."""
UNSEEN = 0.01
"""Part of a grid's own variance that its agreement with a fit leaves open. With it intervals of two-axis boxes hold the
answer in 95% at epsilon 1 (60 collections of a hundred thousand people), without it in 93%."""
PULLED = 0.2
"""Part of a smooth pair's interaction that may be missing from it: penalties pull it to independence. Chosen on three
bells of 16 leaves, correlation .6 and 0, and four independent Laplace columns."""
PartKey = tuple[int, ...]


@dataclass(frozen=True)
class Estimates:
    """Estimates of one collection; joint fits, most of the time that a release takes, are made once.

    Args:
        collection: the counted reports.
        axis_tables: every axis's table.
        fitted: whether any fit is made; without them interactions come straight from the grids.
        parts: interactions by axes and measure; None where no report tells about one.
        shares: of slots per leaf combination, by the axes of a fit to counts.
        cells: variances of independent cells (`cell_spread`) that err as the interactions of `shares` do.
    """

    collection: CountedCollection
    axis_tables: Mapping[int, estimate.AxisTable]
    fitted: bool = True
    parts: dict[tuple[PartKey, int | None], estimate.Interaction | None] = field(default_factory=dict)
    shares: dict[PartKey, FloatArray] = field(default_factory=dict)
    cells: dict[PartKey, float] = field(default_factory=dict)


def interactions(
    estimates: Estimates, sets: Iterable[Sequence[int]], measure: int | None = None
) -> dict[PartKey, estimate.Interaction]:
    """The interaction of every subset of two or more axes that some set needs.

    Args:
        estimates: also of what was fitted before, and is fitted here.
        sets: sets of plan axes.
        measure: None for counts, else the measure's position.

    Returns:
        Parts by increasing plan axes; a subset that no report tells about is left out.
    """
    wanted = {
        key
        for axes in sets
        for width in range(2, len(axes) + 1)
        for key in itertools.combinations(sorted(axes), width)
    }
    effects: dict[PartKey, estimate.Interaction] = {}
    for key in sorted(wanted, key=lambda k: (len(k), k)):
        if (key, measure) not in estimates.parts:
            effect = smooth_part(estimates, key, measure) if estimates.fitted else None
            estimates.parts[key, measure] = effect or grid_part(estimates, key, measure)
        effect = estimates.parts[key, measure]
        if effect is not None:
            effects[key] = effect
    return effects


def grid_part(estimates: Estimates, axes: PartKey, measure: int | None) -> estimate.Interaction | None:
    """The unbiased interaction of a set from the views that hold all of it; None if there is none.

    Leaves of one cell err together, so its strength is that of boxes: leaf by leaf it is too small by far.
    """
    seen = estimate.interaction(estimates.collection, axes, measure)
    if seen is None:
        return None
    values, noises = estimate.centred(seen.table), _noises(seen.noises)
    models = [estimate.rest(estimate.model_of(estimates.axis_tables[a].counts)) for a in axes]
    rng = np.random.default_rng(int.from_bytes(estimates.collection.plan.hash, "big"))
    boxes = [masks for _, masks in _boxes([np.arange(size + 1) for size in values.shape], values.shape, rng)]
    variances = np.array([sum(noise * _product(m, matrices) for noise, matrices in noises) for m in boxes])
    return estimate.Interaction(values, _quantile(variances, [_product(m, models) for m in boxes], CAUTION))


def _quantile(variances: FloatArray, units: Sequence[float], quantile: float) -> float:
    """A quantile, over boxes that do not span a whole axis, of variances in units."""
    unit = np.array(units)
    inside = unit > FLAT * unit.max()
    return float(np.quantile(variances[inside] / unit[inside], quantile)) if inside.any() else 0.0


def _noises(views: Sequence[estimate.NoisyCells]) -> list[tuple[float, list[FloatArray]]]:
    """Per view the variance of a cell, and per axis the covariance of evenly spread cells without their total."""
    return [(noise, [estimate.rest(s @ s.T) for s in spreads]) for noise, spreads in views]


def smooth_part(estimates: Estimates, axes: PartKey, measure: int | None) -> estimate.Interaction | None:
    """The interaction of a joint fit; its strength is the posterior's over boxes and what the grid says of bias.

    None where axes are not ordered, a pair of them is seen by no view, or the fit would be too large.
    """
    if not fitted_together(estimates.collection.plan, axes, measure):
        return None
    filled = float(np.clip(np.mean([estimates.axis_tables[a].filled for a in axes]), 1e-6, 1.0))
    joint = joint_table(estimates.collection, axes, measure, filled)
    if measure is None:
        estimates.shares[axes] = joint.shares * filled
    rng = np.random.default_rng(int.from_bytes(estimates.collection.plan.hash, "big"))
    # rows per cell, or bit 1 minus bit 0
    slots = joint.shares if measure is None else joint.shares[..., 1] - joint.shares[..., 0]
    values = estimate.centred(slots * filled)
    models = [estimate.rest(estimate.model_of(estimates.axis_tables[a].counts)) for a in axes]
    # factor of the interaction's posterior covariance, shape (*leaves, weights)
    factor = posterior(joint.model, joint.views, joint.strength, joint.weights)
    if measure is not None:
        factor = factor[..., 1, :] - factor[..., 0, :]
    for axis in range(factor.ndim - 1):
        factor = factor - factor.mean(axis=axis, keepdims=True)
    factor = np.asarray(factor) * filled
    # A quantile, over random boxes, of the posterior variance in units of the axes' models
    quantile = CAUTION if len(axes) == 2 else WIDE_CAUTION
    sizes = factor.shape[:-1]
    boxes = list(_boxes([np.arange(size + 1) for size in sizes], sizes, rng))
    variances = np.array(
        [float((factor[box].reshape(-1, factor.shape[-1]).sum(axis=0) ** 2).sum()) for box, _ in boxes]
    )
    strength = _quantile(variances, [_product(masks, models) for _, masks in boxes], quantile)
    seen = estimate.interaction(estimates.collection, axes, measure)
    if seen is not None:
        if measure is None:
            estimates.cells[axes] = _cell_variance(values, factor, seen, rng)
        values, strength = _against_grid(estimate.Interaction(values, strength), seen, models, rng)
    return estimate.Interaction(values, strength)


def _cell_variance(
    values: FloatArray, factor: FloatArray, seen: estimate.Seen, rng: np.random.Generator
) -> float:
    """Variance of independent cells, evenly spread, that err as a fit does over large boxes.

    It is the posterior's over boxes of half of both axes, on which smooth errors are largest beside those of cells,
    what penalties may pull away, and in whole what the fit bends away: tables not moved towards the grid keep that.
    """
    spreads = [cell_spread(edges) for edges in seen.edges]
    models, cuts = [spread @ spread.T for spread in spreads], [np.asarray(edges) for edges in seen.edges]
    bent, _ = _bent(values - estimate.centred(seen.table), seen.noises, models, cuts, rng)
    variance = unit = 0.0
    for _ in range(BOXES):
        lows = [int(rng.integers(0, (size + 1) // 2 + 1)) for size in values.shape]
        sides = (slice(low, low + max(size // 2, 1)) for low, size in zip(lows, values.shape, strict=True))
        box, masks = _masked(tuple(sides), values.shape)
        variance += float((factor[box].reshape(-1, factor.shape[-1]).sum(axis=0) ** 2).sum())
        variance += (PULLED * float(values[box].sum())) ** 2
        unit += _product(masks, models)
    return variance / max(unit, 1e-300) + bent


def grid_cells(seen: estimate.Seen) -> float:
    """Variance of independent cells of the finest grid that err as all grids' mean does, in the mean over its cells."""
    spreads = [cell_spread(edges) for edges in seen.edges]
    unit = np.prod([np.trace(spread @ spread.T) for spread in spreads])
    traces = [noise * np.prod([np.trace(m) for m in matrices]) for noise, matrices in _noises(seen.noises)]
    return float(sum(traces) / unit)


def _against_grid(
    fitted: estimate.Interaction,
    seen: estimate.Seen,
    models: Sequence[FloatArray],
    rng: np.random.Generator,
) -> estimate.Interaction:
    """Hold a fit against the grid that sees its axes together.

    It moves towards the grid, the more the surer it is that it bends something away, and its strength grows by the rest
    of that bend. What it holds inside cells stays: the grid cannot see it.
    """
    values = fitted.values
    cuts = [np.asarray(edges) for edges in seen.edges]
    distance = values - estimate.centred(seen.table)
    bent, grid_noise = _bent(distance, seen.noises, models, cuts, rng)
    strength = max(fitted.strength, UNSEEN * grid_noise)
    if bent == 0:
        return estimate.Interaction(values, strength)
    trust = bent / (bent + grid_noise)
    # deviation from even spread within the grid's cells, invisible to the grid
    inside_cells = values - estimate.spread_over(
        values, [estimate.evened(axis_edges) for axis_edges in seen.edges]
    )
    return estimate.Interaction(values - trust * (distance - inside_cells), strength + (1 - trust) * bent)


def _bent(
    distance: FloatArray,
    views: Sequence[estimate.NoisyCells],
    models: Sequence[FloatArray],
    cuts: Sequence[np.ndarray],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """Smoothing bias: distance from the grid beyond the grid's own noise, on boxes of whole cells.

    The noise alone reaches its mean and one standard deviation easily; what is below that is taken for noise.

    Returns:
        That distance and the grid's own noise, both as strengths.
    """
    boxes = list(_boxes(cuts, distance.shape, rng))
    sides = [np.array([masks[axis] for _, masks in boxes]) for axis in range(distance.ndim)]
    noise = np.zeros((BOXES, BOXES))
    for cell, matrices in _noises(views):
        noise += cell * np.prod([side @ m @ side.T for side, m in zip(sides, matrices, strict=True)], axis=0)
    squared = sum(float(distance[box].sum()) ** 2 for box, _ in boxes)
    unit = max(sum(_product(masks, models) for _, masks in boxes), 1e-300)
    expected, deviation = float(np.trace(noise)), float(np.sqrt(2 * np.sum(noise**2)))
    return max(0.0, squared - expected - deviation) / unit, expected / unit


def _boxes(
    edges: Sequence[np.ndarray], sizes: Sequence[int], rng: np.random.Generator
) -> Iterator[tuple[tuple[slice, ...], list[FloatArray]]]:
    """Random boxes between edges, as slices and as masks."""
    for _ in range(BOXES):
        cuts = [np.sort(rng.choice(e, 2, replace=False)) for e in edges]
        yield _masked(tuple(slice(low, high) for low, high in cuts), sizes)


def _masked(box: tuple[slice, ...], sizes: Sequence[int]) -> tuple[tuple[slice, ...], list[FloatArray]]:
    """A box with its masks."""
    masks = [np.zeros(size) for size in sizes]
    for mask, side in zip(masks, box, strict=True):
        mask[side] = 1
    return box, masks


def _product(masks: Sequence[FloatArray], matrices: Sequence[FloatArray]) -> float:
    return float(np.prod([m @ matrix @ m for m, matrix in zip(masks, matrices, strict=True)]))


PairKey = tuple[int, int]
Tables = Mapping[PairKey, FloatArray]
LEAST = 1e-6
"""Part of a table of independent axes in every pair: raking cannot fill a line of zeros."""
SETTLED, SWEEPS = 1e-12, 2000


def pair_tables(
    axes: Sequence[int],
    axis_tables: Mapping[int, estimate.AxisTable],
    parts: estimate.Parts,
    total: estimate.Total,
) -> tuple[Tables, Components]:
    """Unbiased tables of all pairs, and the variance of each of their parts.

    Args:
        axes: the view's axes, increasing.
        axis_tables: every axis's table.
        parts: interactions of pairs.
        total: of all rows.

    Returns:
        By positions in `axes`.
    """
    tables: dict[PairKey, FloatArray] = {}
    components: dict[tuple[int, ...], float] = {}
    for pair in combinations(range(len(axes)), 2):
        fitted: estimate.FittedTable = estimate.table(
            [axes[i] for i in pair], axis_tables, parts, None, total
        )
        tables[pair] = fitted.values
        components |= {tuple(pair[i] for i in subset): s for subset, s in fitted.strengths.items()}
    return tables, components


def positive_tables(
    estimates: Estimates,
    axes: Sequence[int],
    unbiased: Tables,
    margins: Sequence[ShareEstimate],
) -> Tables:
    """Non-negative tables of all pairs that agree on every axis and on the total.

    Args:
        estimates: of the collection; without any joint fits, tables come straight from the grids.
        axes: the view's axes, increasing.
        unbiased: from `pair_tables`.
        margins: of every axis, from `axis_margin`.
    """
    total = float(next(iter(unbiased.values())).sum())
    counts, tables = [margin.shares * total for margin in margins], {}
    for (i, j), leaves in unbiased.items():
        pair = (axes[i], axes[j])
        smooth = None
        if estimates.fitted:
            smooth = positive_shares(estimates.collection, pair, estimates.axis_tables, estimates.shares)
        shares = leaves if smooth is None else smooth.shares
        independent = np.outer(counts[i], counts[j]) / total
        tables[i, j] = raked(np.maximum(shares, 0.0) + LEAST * independent, counts[i], counts[j])
    return tables


def axis_margin(estimates: Estimates, axis: int) -> ShareEstimate:
    """Non-negative shares of one axis that add up to 1, and the covariance of their errors.

    A stack less the mean error of its refits: what it flattens on every axis is one direction of a box over many.
    """
    collection, axis_tables, smooth = estimates.collection, estimates.axis_tables, None
    counts: ShareEstimate = axis_tables[axis].counts
    if collection.plan.axes[axis].smooth >= SMOOTH:
        smooth = positive_shares(collection, (axis,), axis_tables)
    shares, covariance = counts.shares, counts.covariance
    if smooth is not None and smooth.preferred and smooth.errors is not None and smooth.shift is not None:
        shares, hidden = smooth.shares - smooth.shift, smooth.errors.large
        covariance = (1 - hidden) * smooth.errors.refit + hidden * smooth.errors.unbiased
    shares = normsub(shares)
    return ShareEstimate(np.asarray(shares / shares.sum()), (covariance + covariance.T) / 2)


def fitted_errors(
    estimates: Estimates, axes: Sequence[int], margins: Sequence[ShareEstimate]
) -> FittedErrors:
    """Errors of the non-negative tables, in shares.

    Args:
        estimates: of the collection.
        axes: the view's axes, increasing.
        margins: of every axis.
    """
    edges: list[tuple[int, ...]] = [(0, margin.shares.size) for margin in margins]
    grids: dict[PairKey, estimate.Seen | None] = {}
    for places in combinations(range(len(axes)), 2):
        grids[places] = estimate.interaction(estimates.collection, [axes[i] for i in places], None)
        seen = grids[places]
        for i, cuts in zip(places, () if seen is None else seen.edges, strict=False):
            edges[i] = max(edges[i], tuple(int(cut) for cut in cuts), key=len)
    pairs = {}
    for (i, j), seen in grids.items():
        variance = 0.0 if seen is None else estimates.cells.get((axes[i], axes[j]), grid_cells(seen))
        for axis, cuts in zip((i, j), () if seen is None else seen.edges, strict=False):
            variance *= float(np.sum(cell_spread(cuts) ** 2) / np.sum(cell_spread(edges[axis]) ** 2))
        pairs[i, j] = variance
    return FittedErrors(tuple(margin.covariance for margin in margins), tuple(edges), pairs)


def raked(cells: FloatArray, rows: FloatArray, columns: FloatArray) -> FloatArray:
    """Cells scaled by rows and by columns until they have these sums, which have one total.

    >>> raked(np.array([[1.0, 1], [1, 3]]), np.array([2.0, 2]), np.array([2.0, 2])).sum(axis=1).tolist()
    [2.0, 2.0]
    """
    for _ in range(SWEEPS):
        cells = cells * _factor(columns, cells.sum(axis=0))
        cells = cells * _factor(rows, cells.sum(axis=1))[:, None]
        if float(np.abs(cells.sum(axis=0) - columns).max()) <= SETTLED * float(columns.sum()):
            break
    return cells


def _factor(wanted: FloatArray, sums: FloatArray) -> FloatArray:
    return np.divide(wanted, sums, out=np.zeros_like(sums), where=sums > 0)


def by_pairs(
    survey: Survey,
    estimates: Estimates,
    factor: float,
    models: Sequence[AxisVariance],
    trees: Sequence[Tree],
) -> write.Assembled:
    """The one statistic of a release: all pairs of its view.

    Args:
        survey: the questions; of one view that counts rows.
        estimates: of the collection.
        factor: rows per unit of share.
        models: of the survey's axes.
        trees: look-up trees of the survey's axes.
    """
    ((view, (axes, _)),) = survey.views.items()
    plan, axis_tables = estimates.collection.plan, estimates.axis_tables
    parts = interactions(estimates, [pair for pair, _ in survey.tables])
    unbiased, components = pair_tables(axes, axis_tables, parts, total_of(estimates.collection, axis_tables))
    margins = [axis_margin(estimates, axis) for axis in axes]
    positive = positive_tables(estimates, axes, unbiased, margins)
    errors = fitted_errors(estimates, axes, margins).scaled(factor)
    nothing = nothing_drawn(len(axes))
    described = write.Description(
        view,
        survey.of,
        COUNT,
        axes,
        plan.tau,
        plan.epsilon,
        "epsilon",
        family=None,
        nonnegative=True,
    )
    estimated = Estimated(
        np.zeros(0),
        EntropyReading.name,
        {subset: strength * factor**2 for subset, strength in components.items()},
        Integers(nothing, nothing),
        f"local: {', '.join(sorted({v.oracle for v in plan.views}))}; pairs, larger boxes by maximum entropy",
        model=errors,
    )
    every: list[AxisVariance | Together] = [*models, errors]
    meta = write.statistic_meta(0, write.Statistic(described, estimated), every)
    view_trees = [trees[axis] for axis in axes]
    nodes, nonnegative = (
        _units({pair: shares * factor for pair, shares in tables.items()}, view_trees)
        for tables in (unbiased, positive)
    )
    content = write.StatisticContent(nothing, nothing, nodes, nonnegative)
    return write.Assembled([write.StatisticPart(meta, content)], every)


def _units(tables: Tables, trees: Sequence[Tree]) -> IntArray:
    """Node sums of all pairs, which agree on what they share in every bit."""
    rounded = round_family([(pair, leaves) for pair, leaves in tables.items()])
    sums = {
        pair: node_sums(units, [trees[i] for i in pair]) for pair, units in zip(tables, rounded, strict=True)
    }
    return packed(sums, [tree.size for tree in trees])
