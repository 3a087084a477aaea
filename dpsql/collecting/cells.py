"""What one view's tally says about cells: rows per cell, centred measure per cell, people without a row.

An item is cell + cells * bit, the last item "no row". Both bits together count rows; bit 1 minus bit 0 is the
measure in half-ranges around its middle, and the two are nearly uncorrelated.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpsql.client.plan import Plan, View
from dpsql.collecting.kinds import kind_of
from dpsql.collecting.tallies import FOLDS, Tallies, oracle_of, shares
from dpsql.mechanisms.local.blue import Group, cell_design
from dpsql.mechanisms.oracles.oracle import FloatArray


@dataclass(frozen=True)
class Cells:
    """Unbiased shares of one view.

    Args:
        counts: share of people whose slot holds a row in the cell, shape (cells per axis, ...).
        signed: the same for the centred measure, or None.
        empty: share of people without a row, or None where it cannot occur.
        reports: number of reports.
        fan: items added up in each cell.
    """

    counts: FloatArray
    signed: FloatArray | None
    empty: float | None
    reports: float
    fan: int


def view_cells(plan: Plan, number: int, tallies: Tallies, folds: Sequence[int] | None = None) -> Cells:
    """Shares of a grid view's cells from some folds of people (all if None)."""
    view = plan.views[number]
    kept = list(range(FOLDS)) if folds is None else list(folds)
    found = shares(plan, number, tallies[number], kept)
    shape = tuple(len(e) - 1 for e in view.edges)
    first = found[: view.cells].reshape(shape)
    empty = float(found[-1]) if view.empty else None
    reports = float(tallies[number].reports[kept].sum())
    if view.measure is None:
        return Cells(first, None, empty, reports, 1)
    second = found[view.cells : 2 * view.cells].reshape(shape)
    return Cells(first + second, second - first, empty, reports, 2)


def margin(cells: Cells, view: View, axes: Sequence[int]) -> Cells:
    """Add a view's cells up over the axes that are not in `axes`; the rest keep the view's order."""
    dropped = tuple(i for i, a in enumerate(view.axes) if a not in axes)
    merged = int(np.prod([cells.counts.shape[i] for i in dropped])) if dropped else 1
    signed = None if cells.signed is None else cells.signed.sum(axis=dropped)
    return Cells(cells.counts.sum(axis=dropped), signed, cells.empty, cells.reports, cells.fan * merged)


def axis_groups(plan: Plan, tallies: Tallies, axis: int, folds: Sequence[int] | None = None) -> list[Group]:
    """All that the reports say about one axis: its trees, the margins of grids, Square Wave.

    Args:
        plan: the plan.
        tallies: counts per view.
        axis: position of the axis.
        folds: folds of people to use, all if None.

    Returns:
        Groups over the axis's leaves, with one more leaf for "no row" where it can occur.
    """
    leaves = plan.axes[axis].leaves
    empty = any(v.empty for v in plan.views)
    groups = []
    kept = list(range(FOLDS)) if folds is None else list(folds)
    for number in axis_views(plan, tallies, axis, kept):
        view, reports = plan.views[number], float(tallies[number].reports[kept].sum())
        oracle = oracle_of(plan, view)
        blur = oracle.seen()
        if blur is not None:
            seen = shares(plan, number, tallies[number], kept)
            groups.append(Group(_with_silence(blur, empty), seen, reports, oracle))
            continue
        held = margin(view_cells(plan, number, tallies, folds), view, (axis,))
        design = cell_design(view.edges[view.axes.index(axis)], leaves)
        seen, fan = held.counts, np.full(held.counts.size, float(held.fan))
        if empty:
            design = np.block(
                [[design, np.zeros((len(design), 1))], [np.zeros((1, leaves)), np.ones((1, 1))]]
            )
            seen, fan = np.append(seen, held.empty or 0.0), np.append(fan, 1.0)
        groups.append(Group(design, seen, reports, oracle, fan))
    return groups


def axis_views(plan: Plan, tallies: Tallies, axis: int, folds: Sequence[int]) -> list[int]:
    """Numbers of the views that `axis_groups` reads, in its order."""
    return [
        number
        for number, view in enumerate(plan.views)
        if axis in view.axes and kind_of(view).margins and tallies[number].reports[list(folds)].sum() > 0
    ]


def _with_silence(matrix: FloatArray, empty: bool) -> FloatArray:
    """What is seen of leaves, and of "no row", which draws cells evenly."""
    if not empty:
        return matrix
    return np.hstack([matrix, np.full((len(matrix), 1), 1 / len(matrix))])


def signed_groups(plan: Plan, tallies: Tallies, axis: int, measure: int) -> list[Group]:
    """All that the reports say about a measure along one axis."""
    views = axis_views(plan, tallies, axis, range(FOLDS))
    found = [signed_group(plan, tallies, axis, measure, number) for number in views]
    return [group for group in found if group is not None]


def signed_group(plan: Plan, tallies: Tallies, axis: int, measure: int, number: int) -> Group | None:
    """What one view says about a measure along one axis; None if nothing."""
    view = plan.views[number]
    if view.measure != measure or not view.holds((axis,)):
        return None
    held = margin(view_cells(plan, number, tallies), view, (axis,))
    if held.signed is None:
        return None
    design = cell_design(view.edges[view.axes.index(axis)], plan.axes[axis].leaves)
    return Group(design, held.signed, held.reports, oracle_of(plan, view), float(held.fan))
