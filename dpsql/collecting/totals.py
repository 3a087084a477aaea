"""How many slots hold a row, and a measure's total: one number from all axes, since every report tells of it.

Each axis has its own estimate of the total. They are put together by their variances; reports of a grid enter several
axes at once, so the variance of the mean is computed from what every item of every view adds to it.

| here | there | unit |
|------|-------|------|
| lean | what one item's share adds to an axis's total | |
| weight | inverse variance of an axis's own total, scaled | |

**Privacy**: post-processing of tallies.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dpsql.client.plan import Plan, View
from dpsql.collecting.cells import axis_groups, axis_views, signed_group
from dpsql.collecting.estimate import AxisTable, Total, weights_of
from dpsql.collecting.tallies import FOLDS, Tallies, oracle_of, shares
from dpsql.mechanisms.local.blue import gains, signed_gains
from dpsql.mechanisms.oracles.oracle import FloatArray, Structure

Leans = dict[int, FloatArray]
"""Per view, an axis's lean on each of its items."""


def total_of(
    plan: Plan,
    tallies: Tallies,
    known: Mapping[int, AxisTable],
    measure: int | None = None,
    half: float = 1.0,
    shift: float = 0.0,
) -> Total:
    """The total of all rows, or of a measure, as a share of slots.

    Args:
        plan: the plan.
        tallies: counts per view.
        known: every axis's table; with a measure its `signed` holds half s + shift c (`centre.centred_on`).
        measure: None for counts.
        half, shift: for a measure, what multiplies signed values and counts.
    """
    leans = {}
    for axis in known:
        count = _count_leans(plan, tallies, axis)
        if measure is None:
            leans[axis] = count
            continue
        signed = _signed_leans(plan, tallies, axis, measure)
        leans[axis] = {n: half * signed.get(n, np.zeros(1)) + shift * lean for n, lean in count.items()}
    covariance = _covariance(plan, tallies, list(leans.values()))
    found = [t.counts if measure is None else t.signed[measure] for t in known.values()]
    weights = weights_of(np.diag(covariance))
    value = float(weights @ np.array([e.shares.sum() for e in found]))
    return Total(value, max(float(weights @ covariance @ weights), 0.0))


def _covariance(plan: Plan, tallies: Tallies, leans: list[Leans]) -> FloatArray:
    """Covariance of the axes' totals."""
    result = np.zeros((len(leans), len(leans)))
    for number in sorted({n for each in leans for n in each}):
        noise = _noise(plan, number, tallies)
        both = np.array([each.get(number, np.zeros(noise.diagonal.size)) for each in leans])
        along = both @ noise.tilt
        result += ((both * noise.diagonal) @ both.T - np.outer(along, along)) / tallies[number].total
    return result


def _noise(plan: Plan, number: int, tallies: Tallies) -> Structure:
    """Covariance of a view's items, times its reports."""
    held = np.clip(shares(plan, number, tallies[number]), 0, 1)
    return oracle_of(plan, plan.views[number]).structure(held)


def _count_leans(plan: Plan, tallies: Tallies, axis: int) -> Leans:
    leaves, found = plan.axes[axis].leaves, {}
    numbers, groups = axis_views(plan, tallies, axis, range(FOLDS)), axis_groups(plan, tallies, axis)
    for number, gain in zip(numbers, gains(groups), strict=True):
        view, lean = plan.views[number], gain[:leaves].sum(axis=0)
        if not view.holds((axis,)):
            found[number] = lean
            continue
        cells = _spread(view, axis, lean)
        bits = cells if view.measure is None else np.concatenate([cells, cells])
        found[number] = np.append(bits, lean[-1]) if view.empty else bits
    return found


def _signed_leans(plan: Plan, tallies: Tallies, axis: int, measure: int) -> Leans:
    numbers = axis_views(plan, tallies, axis, range(FOLDS))
    told = {n: g for n in numbers if (g := signed_group(plan, tallies, axis, measure, n)) is not None}
    found = {}
    for number, gain in zip(told, signed_gains(list(told.values())), strict=True):
        cells = _spread(plan.views[number], axis, gain.sum(axis=0))
        bits = np.concatenate([-cells, cells])
        found[number] = np.append(bits, 0.0) if plan.views[number].empty else bits
    return found


def _spread(view: View, axis: int, lean: FloatArray) -> FloatArray:
    """An axis's lean on each cell of a view, in the order of its items."""
    place, sizes = view.axes.index(axis), [len(e) - 1 for e in view.edges]
    shape = [size if i == place else 1 for i, size in enumerate(sizes)]
    return np.asarray(np.broadcast_to(lean[: sizes[place]].reshape(shape), sizes)).ravel()
