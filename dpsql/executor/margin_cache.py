"""Cache of plans by the shape of a block, and of sums for repeated shapes.

Statements of one shape differ in constants of WHERE. Which views have the columns, where each column lies and which
tables are added up follow from the shape: they are worked out once. Which leaves a constant takes, whether it cuts a
bin, which view errs least and what a reader should know follow from the constants and are worked out each time, by the
code that answers any statement.

| a shape's sums | |
|---|---|
| of whole leaves, each in one group | from a margin in memory (`dpsql.release.structure`): the same integers |
| of cut leaves, of weighted ones, of none, of people, of large margins | from the file, as any statement's |

What is kept is bound to one open release, one set of settings and one role.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.planner.axis_query import classes_taken
from dpsql.planner.block import ShapePlans
from dpsql.planner.plan import Box, ViewPlan
from dpsql.release import Release
from dpsql.release.structure import NodeTable

IntArray = npt.NDArray[np.int64]


Margin = tuple[tuple[int, ...], Sequence[IntArray]]
"""A margin that answers a shape: positions of its axes in the view, and the running totals of each statistic, shape
(n_1 + 1, ..)."""


def margin_sums(
    plan: ViewPlan, wanted: Mapping[int, Sequence[Box]], release: Release, plans: ShapePlans
) -> dict[int, dict[Box, IntArray]] | None:
    """Sums of a shape that comes again, for each statistic and box an array of the plan's shape in stored units.

    Args:
        plan: the plan.
        wanted: id of a statistic -> the boxes wanted of it.
        release: an open release.
        plans: what the shape keeps.

    Returns:
        The sums; None where they are read from the file.
    """
    by_box: dict[Box, list[int]] = {}
    for statistic, boxes in wanted.items():
        for box in boxes:
            by_box.setdefault(box, []).append(statistic)
    sums: dict[int, dict[Box, IntArray]] = {statistic: {} for statistic in wanted}
    for number, (box, statistics) in enumerate(by_box.items()):
        question = ("margin", plan.view.name, plan.view.axes, number, *statistics)
        margin = plans.once(question, release, None, partial(_margin, plan, statistics, release))
        totals = None if margin is None else _added(plan, box, *margin)
        if totals is None:
            return None
        for statistic, total in zip(statistics, totals, strict=True):
            sums[statistic][box] = total
    return sums


def _margin(plan: ViewPlan, statistics: Sequence[int], release: Release) -> Margin | None:
    """The margin of the axes that a plan asks; None where there is none, or its sums are none of leaves."""
    axes = tuple(position for position, query in enumerate(plan.questions) if not query.whole)
    # numbers of a list and fits of pairs are no sums of leaves
    apart = any(release.reading(s).listed or release.fitted(s) is not None for s in statistics)
    if apart or not axes or any(query.factors for query in plan.questions):
        return None

    fetch = partial(release.read, values=(), fetch=duckdb.DuckDBPyConnection.fetchnumpy)
    trees, totals = [release.tree(plan.view.axes[position]) for position in axes], []
    for statistic in statistics:
        table = f"node_combination_{statistic}"
        source = NodeTable(table, release.estimate(statistic), axes, len(plan.view.axes))
        running = release.margins.totals(source, trees, fetch)
        if running is None:
            return None
        totals.append(running)
    return axes, totals


def _added(
    plan: ViewPlan, box: Box, axes: tuple[int, ...], running: Sequence[IntArray]
) -> list[IntArray] | None:
    """The sums of one box for each statistic of a margin; None where it is not made of whole leaves."""
    taken = []
    for position in axes:
        cells = plan.cells[position]
        keep = classes_taken(cells, box[position])
        run = cells.run_of(cells.leaf[keep])
        if not len(run) or np.any(cells.coverage[keep] != 1.0):
            return None
        taken.append((cells.group[keep], cells.place(run), cells.place(run + 1)))
    longest_first = np.argsort([-n for n in running[0].shape], kind="stable").tolist()
    sums = []
    for totals in running:
        for axis in longest_first:
            group, start, stop = taken[axis]
            ranges = np.moveaxis(np.take(totals, stop, axis) - np.take(totals, start, axis), axis, 0)
            by_group = np.zeros((plan.shape[axes[axis]], *ranges.shape[1:]), np.int64)
            np.add.at(by_group, group, ranges)
            totals = np.moveaxis(by_group, 0, axis)
        sums.append(totals.reshape(plan.shape))
    return sums
