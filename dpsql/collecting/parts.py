"""Interactions of several axes: smooth where a joint fit is small enough, else straight from the grids.

The fit knows that neighbours resemble each other, which takes away the steps of a coarse grid; its own error is
measured by fitting again to what it would have brought in.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dpsql.client.plan import Plan
from dpsql.collecting.estimate import AxisTable, Part, centred, grid_part, model_of, rest
from dpsql.collecting.smooth import LARGEST, bootstrap, joint_table
from dpsql.collecting.tallies import Tallies
from dpsql.mechanisms.local.oracles import FloatArray

RUNS = 8
BOXES = 200
PartKey = tuple[int, ...]


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


def smooth_part(
    plan: Plan, tallies: Tallies, axes: PartKey, known: Mapping[int, AxisTable], measure: int | None
) -> Part:
    """The interaction of a joint fit, with the mean square error of boxes from fits to redrawn reports."""
    filled = float(np.clip(np.mean([known[a].filled for a in axes]), 1e-6, 1.0))
    joint = joint_table(plan, tallies, axes, measure, filled)
    rng = np.random.default_rng(int.from_bytes(plan.hash, "big"))
    values = centred(_slots(joint.shares, measure) * filled)
    tables = bootstrap(joint, RUNS, rng)
    errors = [centred(_slots(t, measure) * filled) - values for t in tables]
    models = [rest(model_of(known[a].counts)) for a in axes]
    return Part(values, _box_strength(errors, models, rng))


def _slots(shares: FloatArray, measure: int | None) -> FloatArray:
    """Rows per cell, or bit 1 minus bit 0."""
    return shares if measure is None else np.asarray(shares[..., 1] - shares[..., 0])


def _box_strength(
    errors: Sequence[FloatArray], models: Sequence[FloatArray], rng: np.random.Generator
) -> float:
    """Mean square error of random boxes, in units of the product of the axes' models."""
    sizes = errors[0].shape
    ratios = []
    for _ in range(BOXES):
        cuts = [np.sort(rng.choice(size + 1, 2, replace=False)) for size in sizes]
        box = tuple(slice(lo, hi) for lo, hi in cuts)
        masks = [
            (np.arange(size) >= lo) & (np.arange(size) < hi)
            for size, (lo, hi) in zip(sizes, cuts, strict=True)
        ]
        unit = np.prod([float(m @ model @ m) for m, model in zip(masks, models, strict=True)])
        ratios.append((np.mean([float(e[box].sum()) ** 2 for e in errors]), unit))
    mean, unit = np.mean(np.array(ratios), axis=0)
    return float(mean / max(float(unit), 1e-300))
