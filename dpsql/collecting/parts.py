"""Interactions of several axes: smooth where a joint fit is small enough, else straight from the grids.

The fit knows that neighbours resemble each other, which takes away the steps of a coarse grid; its own error is
measured by fitting again to what it would have brought in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from dpsql.client.plan import Plan
from dpsql.collecting.estimate import AxisTable, Part, centred, interaction, model_of, rest
from dpsql.collecting.smooth import LARGEST, bootstrap, joint_table
from dpsql.collecting.tallies import Tallies
from dpsql.mechanisms.local.oracles import FloatArray

RUNS = 8
BOXES = 200
UNEVEN = 2.5
"""Errors of smooth parts differ from box to box; the mean alone covered 86-92% of two-axis boxes at 95%."""
UNSEEN = 0.005
"""Part of a grid's own variance below which its distance from a fit cannot show a bend. With it two-axis intervals hold
the answer in 97, 94 and 96% of boxes at epsilon 1, 3 and 5 (30 collections), without it in 95, 92 and 94%."""
INSIDE = 0.01
"""Part of the squared shape inside a grid's cells by which a fit may be wrong about it: no report tells. With it
two-axis intervals hold the answer in 97, 95 and 95% of boxes at epsilon 3, 4 and 5 of a million people (12 collections
each), without it in 96, 94 and 90%; of a hundred thousand people it changes less than 1%."""
CAUTION = 0.8
"""Which quantile, over random boxes, of exact variance by model is a grid's strength."""
PartKey = tuple[int, ...]
Seen = tuple[FloatArray, list[tuple[float, list[FloatArray]]]]
"""What grids say of a set, as `interaction` gives it."""


def interactions(
    plan: Plan,
    tallies: Tallies,
    sets: Iterable[Sequence[int]],
    known: Mapping[int, AxisTable],
    measure: int | None = None,
) -> dict[PartKey, Part]:
    """The interaction of every subset of two or more axes that some set needs.

    Args:
        plan: the plan.
        tallies: counts per view.
        sets: sets of plan axes.
        known: every axis's table.
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
    found: dict[PartKey, Part] = {}
    for key in sorted(wanted, key=lambda k: (len(k), k)):
        pairs = itertools.combinations(key, 2)
        told = all(any(set(p) <= set(v.axes) for v in plan.views if v.kind == "grid") for p in pairs)
        cells = int(np.prod([plan.axes[a]["leaves"] for a in key])) * (1 if measure is None else 2)
        smooth = all(int(plan.axes[a].get("smooth", 0)) > 3 for a in key)
        if told and smooth and cells <= LARGEST:
            found[key] = smooth_part(plan, tallies, key, known, measure)
            continue
        part = grid_part(plan, tallies, key, known, measure)
        if part is not None:
            found[key] = part
    return found


def grid_part(
    plan: Plan, tallies: Tallies, axes: PartKey, known: Mapping[int, AxisTable], measure: int | None
) -> Part | None:
    """The unbiased interaction of a set from the views that hold all of it; None if there is none.

    Leaves of one cell err together, so its strength is that of boxes: leaf by leaf it is too small by far.
    """
    seen = interaction(plan, tallies, axes, measure)
    if seen is None:
        return None
    values, noises = centred(seen[0]), _noises(seen[1])
    models = [rest(model_of(known[a].counts)) for a in axes]
    rng = np.random.default_rng(int.from_bytes(plan.hash, "big"))
    boxes = [masks for _, masks in _boxes(_any_cuts(values.shape), values.shape, rng)]
    found = np.array([sum(noise * _product(m, matrices) for noise, matrices in noises) for m in boxes])
    unit = np.array([_product(m, models) for m in boxes])
    inside = unit > 1e-9 * unit.max()  # a whole axis has no interaction to err on
    return Part(values, float(np.quantile(found[inside] / unit[inside], CAUTION)) if inside.any() else 0.0)


def _noises(views: Sequence[tuple[float, list[FloatArray]]]) -> list[tuple[float, list[FloatArray]]]:
    """Per view the variance of a cell, and per axis the covariance of evenly spread cells without their total."""
    return [(noise, [rest(s @ s.T) for s in spreads]) for noise, spreads in views]


def smooth_part(
    plan: Plan, tallies: Tallies, axes: PartKey, known: Mapping[int, AxisTable], measure: int | None
) -> Part:
    """The interaction of a joint fit, with the mean square error of boxes: redrawn reports, and the grid."""
    filled = float(np.clip(np.mean([known[a].filled for a in axes]), 1e-6, 1.0))
    joint = joint_table(plan, tallies, axes, measure, filled)
    rng = np.random.default_rng(int.from_bytes(plan.hash, "big"))
    values = centred(_slots(joint.shares, measure) * filled)
    tables = bootstrap(joint, RUNS, rng)
    errors = [centred(_slots(t, measure) * filled) - values for t in tables]
    models = [rest(model_of(known[a].counts)) for a in axes]
    strength = _box_strength(errors, models, _any_cuts(values.shape), rng)
    seen = interaction(plan, tallies, axes, measure)
    if seen is not None:
        values, strength = _against_grid(plan, Part(values, strength), axes, seen, models, rng)
    return Part(values, UNEVEN * strength)


def _against_grid(
    plan: Plan,
    fitted: Part,
    axes: PartKey,
    seen: Seen,
    models: Sequence[FloatArray],
    rng: np.random.Generator,
) -> Part:
    """Hold a fit against the grid that sees its axes together.

    Its strength grows by what it bends away and by a part of what it holds inside cells. Three axes or more also move
    towards the grid, the more the surer the bend is.
    """
    values, own_cells = fitted.values, seen[1][0][1]
    view = next(v for v in plan.views if v.kind == "grid" and set(axes) <= set(v.axes))
    cuts = [np.asarray(view.edges[view.axes.index(a)]) for a in axes]
    distance = values - centred(seen[0])
    bent, own = _bent(distance, seen[1], models, cuts, rng)
    inside = _inside_cells(values, own_cells)
    hidden = _box_strength([inside], models, _any_cuts(values.shape), rng)
    if len(axes) > 2 and bent > 0:
        trust = bent / (bent + own)
        values = values - trust * (distance - inside)
        bent *= 1 - trust
    return Part(values, max(fitted.strength + bent + INSIDE * hidden, UNSEEN * own))


def _inside_cells(values: FloatArray, spreads: Sequence[FloatArray]) -> FloatArray:
    """What a table holds beyond even spread inside a grid's cells, where the grid cannot see it."""
    even = values
    for axis, spread in enumerate(spreads):
        pooling = spread @ (spread > 0).T
        even = np.moveaxis(np.tensordot(pooling, even, axes=(1, axis)), 0, axis)
    return np.asarray(values - even)


def _bent(
    distance: FloatArray,
    views: Sequence[tuple[float, list[FloatArray]]],
    models: Sequence[FloatArray],
    cuts: Sequence[np.ndarray],
    rng: np.random.Generator,
) -> tuple[float, float]:
    """What smoothing bends away: the distance from the grid beyond the grid's own noise, on boxes of whole cells.

    Returns:
        That distance and the grid's own noise, both as strengths.
    """
    noises = _noises(views)
    squared, expected, unit = 0.0, 0.0, 0.0
    for box, masks in _boxes(cuts, distance.shape, rng):
        squared += float(distance[box].sum()) ** 2
        expected += sum(noise * _product(masks, matrices) for noise, matrices in noises)
        unit += _product(masks, models)
    return max(0.0, squared - expected) / max(unit, 1e-300), expected / max(unit, 1e-300)


def _any_cuts(sizes: Sequence[int]) -> list[np.ndarray]:
    return [np.arange(size + 1) for size in sizes]


def _slots(shares: FloatArray, measure: int | None) -> FloatArray:
    """Rows per cell, or bit 1 minus bit 0."""
    return shares if measure is None else np.asarray(shares[..., 1] - shares[..., 0])


def _box_strength(
    errors: Sequence[FloatArray],
    models: Sequence[FloatArray],
    edges: Sequence[np.ndarray],
    rng: np.random.Generator,
) -> float:
    """Mean square error of random boxes between edges, in units of the product of the axes' models."""
    squared, unit = 0.0, 0.0
    for box, masks in _boxes(edges, errors[0].shape, rng):
        squared += float(np.mean([float(e[box].sum()) ** 2 for e in errors]))
        unit += _product(masks, models)
    return squared / max(unit, 1e-300)


def _boxes(
    edges: Sequence[np.ndarray], sizes: Sequence[int], rng: np.random.Generator
) -> Iterator[tuple[tuple[slice, ...], list[FloatArray]]]:
    """Random boxes between edges, as slices and as masks."""
    for _ in range(BOXES):
        cuts = [np.sort(rng.choice(e, 2, replace=False)) for e in edges]
        masks = [np.zeros(size) for size in sizes]
        for mask, (low, high) in zip(masks, cuts, strict=True):
            mask[low:high] = 1
        yield tuple(slice(low, high) for low, high in cuts), masks


def _product(masks: Sequence[FloatArray], matrices: Sequence[FloatArray]) -> float:
    return float(np.prod([m @ matrix @ m for m, matrix in zip(masks, matrices, strict=True)]))
