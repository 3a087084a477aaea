"""Interactions of several axes: smooth where a joint fit is small enough, else straight from the grids.

The fit knows that neighbours resemble each other, which takes away the steps of a coarse grid; its own error is
measured by fitting again to what it would have brought in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpsql.local.estimate import (
    AxisTable,
    Interaction,
    NoisyCells,
    Seen,
    centred,
    evened,
    interaction,
    model_of,
    rest,
    spread_over,
)
from dpsql.local.mechanisms.joint import posterior
from dpsql.local.oracles.oracle import FloatArray
from dpsql.local.smooth import fitted_together, joint_table
from dpsql.local.tallies import CountedCollection
from dpsql.matrices.max_entropy import cell_spread

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
    axis_tables: Mapping[int, AxisTable]
    fitted: bool = True
    parts: dict[tuple[PartKey, int | None], Interaction | None] = field(default_factory=dict)
    shares: dict[PartKey, FloatArray] = field(default_factory=dict)
    cells: dict[PartKey, float] = field(default_factory=dict)


def interactions(
    estimates: Estimates, sets: Iterable[Sequence[int]], measure: int | None = None
) -> dict[PartKey, Interaction]:
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
    effects: dict[PartKey, Interaction] = {}
    for key in sorted(wanted, key=lambda k: (len(k), k)):
        if (key, measure) not in estimates.parts:
            effect = smooth_part(estimates, key, measure) if estimates.fitted else None
            estimates.parts[key, measure] = effect or grid_part(estimates, key, measure)
        effect = estimates.parts[key, measure]
        if effect is not None:
            effects[key] = effect
    return effects


def grid_part(estimates: Estimates, axes: PartKey, measure: int | None) -> Interaction | None:
    """The unbiased interaction of a set from the views that hold all of it; None if there is none.

    Leaves of one cell err together, so its strength is that of boxes: leaf by leaf it is too small by far.
    """
    seen = interaction(estimates.collection, axes, measure)
    if seen is None:
        return None
    values, noises = centred(seen.table), _noises(seen.noises)
    models = [rest(model_of(estimates.axis_tables[a].counts)) for a in axes]
    rng = np.random.default_rng(int.from_bytes(estimates.collection.plan.hash, "big"))
    boxes = [masks for _, masks in _boxes([np.arange(size + 1) for size in values.shape], values.shape, rng)]
    variances = np.array([sum(noise * _product(m, matrices) for noise, matrices in noises) for m in boxes])
    return Interaction(values, _quantile(variances, [_product(m, models) for m in boxes], CAUTION))


def _quantile(variances: FloatArray, units: Sequence[float], quantile: float) -> float:
    """A quantile, over boxes that do not span a whole axis, of variances in units."""
    unit = np.array(units)
    inside = unit > FLAT * unit.max()
    return float(np.quantile(variances[inside] / unit[inside], quantile)) if inside.any() else 0.0


def _noises(views: Sequence[NoisyCells]) -> list[tuple[float, list[FloatArray]]]:
    """Per view the variance of a cell, and per axis the covariance of evenly spread cells without their total."""
    return [(noise, [rest(s @ s.T) for s in spreads]) for noise, spreads in views]


def smooth_part(estimates: Estimates, axes: PartKey, measure: int | None) -> Interaction | None:
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
    values = centred(slots * filled)
    models = [rest(model_of(estimates.axis_tables[a].counts)) for a in axes]
    # factor of the interaction's posterior covariance, shape (*leaves, weights)
    factor = posterior(joint.model, joint.views, joint.strength, joint.weights)
    if measure is not None:
        factor = factor[..., 1, :] - factor[..., 0, :]
    for axis in range(factor.ndim - 1):
        factor = factor - factor.mean(axis=axis, keepdims=True)
    factor = np.asarray(factor) * filled
    strength = _posterior_strength(factor, models, CAUTION if len(axes) == 2 else WIDE_CAUTION, rng)
    seen = interaction(estimates.collection, axes, measure)
    if seen is not None:
        if measure is None:
            estimates.cells[axes] = _cell_variance(values, factor, seen, rng)
        values, strength = _against_grid(Interaction(values, strength), seen, models, rng)
    return Interaction(values, strength)


def _posterior_strength(
    factor: FloatArray, models: Sequence[FloatArray], quantile: float, rng: np.random.Generator
) -> float:
    """A quantile, over random boxes, of the posterior variance in units of the axes' models."""
    sizes = factor.shape[:-1]
    boxes = list(_boxes([np.arange(size + 1) for size in sizes], sizes, rng))
    variances = np.array(
        [float((factor[box].reshape(-1, factor.shape[-1]).sum(axis=0) ** 2).sum()) for box, _ in boxes]
    )
    return _quantile(variances, [_product(masks, models) for _, masks in boxes], quantile)


def _cell_variance(values: FloatArray, factor: FloatArray, seen: Seen, rng: np.random.Generator) -> float:
    """Variance of independent cells, evenly spread, that err as a fit does over large boxes.

    It is the posterior's over boxes of half of both axes, on which smooth errors are largest beside those of cells,
    what penalties may pull away, and in whole what the fit bends away: tables not moved towards the grid keep that.
    """
    spreads = [cell_spread(edges) for edges in seen.edges]
    models, cuts = [spread @ spread.T for spread in spreads], [np.asarray(edges) for edges in seen.edges]
    bent, _ = _bent(values - centred(seen.table), seen.noises, models, cuts, rng)
    variance = unit = 0.0
    for _ in range(BOXES):
        lows = [int(rng.integers(0, (size + 1) // 2 + 1)) for size in values.shape]
        sides = (slice(low, low + max(size // 2, 1)) for low, size in zip(lows, values.shape, strict=True))
        box, masks = _masked(tuple(sides), values.shape)
        variance += float((factor[box].reshape(-1, factor.shape[-1]).sum(axis=0) ** 2).sum())
        variance += (PULLED * float(values[box].sum())) ** 2
        unit += _product(masks, models)
    return variance / max(unit, 1e-300) + bent


def grid_cells(seen: Seen) -> float:
    """Variance of independent cells of the finest grid that err as all grids' mean does, in the mean over its cells."""
    spreads = [cell_spread(edges) for edges in seen.edges]
    unit = np.prod([np.trace(spread @ spread.T) for spread in spreads])
    traces = [noise * np.prod([np.trace(m) for m in matrices]) for noise, matrices in _noises(seen.noises)]
    return float(sum(traces) / unit)


def _against_grid(
    fitted: Interaction,
    seen: Seen,
    models: Sequence[FloatArray],
    rng: np.random.Generator,
) -> Interaction:
    """Hold a fit against the grid that sees its axes together.

    It moves towards the grid, the more the surer it is that it bends something away, and its strength grows by the rest
    of that bend. What it holds inside cells stays: the grid cannot see it.
    """
    values = fitted.values
    cuts = [np.asarray(edges) for edges in seen.edges]
    distance = values - centred(seen.table)
    bent, grid_noise = _bent(distance, seen.noises, models, cuts, rng)
    strength = max(fitted.strength, UNSEEN * grid_noise)
    if bent == 0:
        return Interaction(values, strength)
    trust = bent / (bent + grid_noise)
    # deviation from even spread within the grid's cells, invisible to the grid
    inside_cells = values - spread_over(values, [evened(axis_edges) for axis_edges in seen.edges])
    return Interaction(values - trust * (distance - inside_cells), strength + (1 - trust) * bent)


def _bent(
    distance: FloatArray,
    views: Sequence[NoisyCells],
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
