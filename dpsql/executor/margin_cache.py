"""Cache of plans by the shape of a block, and of sums for repeated shapes.

Statements of one shape differ in constants of WHERE. Which views have the columns, where each column lies, which tables
are added up and the DuckDB statement that does it follow from the shape: they are worked out once. Which leaves a
constant takes, whether it cuts a bin, which view errs least and what a reader should know follow from the constants and
are worked out each time, by the code that answers any statement.

| a shape's sums | |
|---|---|
| of whole leaves, each in one group | from a margin in memory (`dpsql.release.structure`): the same integers |
| of cut leaves, of weighted ones, of none, of people, of large margins | from the file, as any statement's |

What is kept is bound to one open release, one set of settings and one role.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.errors import DataError
from dpsql.planner.axis_query import ask_axis, classes_taken
from dpsql.planner.block import ShapePlans
from dpsql.planner.plan import Box, ViewPlan
from dpsql.release import Release
from dpsql.release.structure import NodeTable

IntArray = npt.NDArray[np.int64]
MOST_BOXES = 2
"""Statements over margins that still take less time than one over the file."""


GroupedAxis = tuple[int, IntArray]
"""The groups of an axis before any filter: their number, and that of each leaf, -1 where it has none."""


class MarginPlan(NamedTuple):
    """A margin that answers a shape.

    Args:
        table: its name.
        axes: positions of its axes in the view.
        grouped: those with groups.
        statistics: what it holds, in order.
        prepared: by how leaves are taken of each axis, the statement that adds up.
    """

    table: str
    axes: tuple[int, ...]
    grouped: Mapping[int, GroupedAxis]
    statistics: tuple[int, ...]
    prepared: dict[tuple[str, ...], duckdb.Statement]

    def statement(self, forms: tuple[str, ...], release: Release) -> duckdb.Statement:
        """The statement that adds up what is taken of its axes in some forms."""
        if forms not in self.prepared:
            keys = [f"g{k}" for k, position in enumerate(self.axes) if position in self.grouped]
            sums = [f"SUM(e{k})" for k in range(len(self.statistics))]
            tests = [form.format(f"l{k}") for k, form in enumerate(forms) if form]
            sql = f"SELECT {', '.join([*keys, *sums])} FROM {self.table}"
            sql += f" WHERE {' AND '.join(tests)}" if tests else ""
            sql += f" GROUP BY {', '.join(keys)}" if keys else ""
            self.prepared[forms] = release.margins.prepared(sql)
        return self.prepared[forms]


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

    Raises:
        DataError: a sum leaves the range of int64.
    """
    by_box: dict[Box, list[int]] = {}
    for statistic, boxes in wanted.items():
        for box in boxes:
            by_box.setdefault(box, []).append(statistic)
    if not 0 < len(by_box) <= MOST_BOXES:
        return None
    sums: dict[int, dict[Box, IntArray]] = {statistic: {} for statistic in wanted}
    for number, (box, statistics) in enumerate(by_box.items()):
        question = ("margin", plan.view.name, plan.view.axes, number, *statistics)
        margin = plans.once(question, release, None, partial(_margin, plan, statistics, release))
        totals = None if margin is None else _added(plan, box, margin, release)
        if totals is None:
            return None
        for statistic, total in zip(statistics, totals, strict=True):
            sums[statistic][box] = total
    return sums


def _margin(plan: ViewPlan, statistics: Sequence[int], release: Release) -> MarginPlan | None:
    """The margin of the axes that a plan asks; None where there is none, or its sums are none of leaves."""
    axes = tuple(position for position, query in enumerate(plan.questions) if not query.whole)
    if any(query.factors for query in plan.questions):
        return None
    if not axes or not all(_adds_leaves(plan, statistic, release) for statistic in statistics):
        return None
    trees = [release.tree(plan.view.axes[position]) for position in axes]
    grouped, labels = {}, {}
    for k, position in enumerate(axes):
        if not plan.questions[position].groups:
            continue
        groups = _groups(plan, position, release)
        if groups is None:
            return None
        grouped[position] = groups
        shape = [tree.n if i == k else 1 for i, tree in enumerate(trees)]
        labels[f"g{k}"] = np.broadcast_to(groups[1].reshape(shape), [tree.n for tree in trees]).ravel()
    sources = [
        NodeTable(f"node_combination_{s}", release.estimate(s), axes, len(plan.view.axes)) for s in statistics
    ]

    def fetch(sql: str) -> Mapping[str, Any]:
        return release.read(sql, (), lambda cursor: cursor.fetchnumpy())

    table = release.margins.copy(sources, trees, labels, fetch)
    return None if table is None else MarginPlan(table, axes, grouped, tuple(statistics), {})


def _adds_leaves(plan: ViewPlan, statistic: int, release: Release) -> bool:
    """True if a statistic's answers are sums of its own node combinations under the masks that are asked."""
    masks = [np.ones((1, release.axes[axis].leaves)) for axis in plan.view.axes]
    reading = release.reading(statistic)
    if reading.listed or release.fitted(statistic) is not None:
        return False
    terms = reading.terms(masks)
    return (
        len(terms) == 1
        and (terms[0].table, terms[0].weight, len(terms[0].listed)) == ("node_combination", 1, 0)
        and all(mask is given for mask, given in zip(terms[0].masks, masks, strict=True))
    )


def _groups(plan: ViewPlan, position: int, release: Release) -> GroupedAxis | None:
    """The groups of an axis whose leaves each lie in one of them; None where a leaf lies in several."""
    query = plan.questions[position]
    try:
        cells = ask_axis(release, replace(query, filters=(), classes=()))
    except DataError:  # a filter keeps values away that the expression does not take
        return None
    if cells.uncertain:
        return None
    label = np.full(cells.leaves, -1, np.int64)
    label[cells.leaf] = cells.group
    return len(cells.keys), label


RANGE, SET = "{0} BETWEEN ? AND ?", "list_contains(?::INTEGER[], {0})"


def _added(plan: ViewPlan, box: Box, margin: MarginPlan, release: Release) -> list[IntArray] | None:
    """The sums of one box for each statistic of a margin; None where it is not made of whole leaves."""
    forms, values, places = [], [], []
    for position in margin.axes:
        cells = plan.cells[position]
        keep = classes_taken(cells, box[position])
        leaves = cells.leaf[keep]
        if not len(leaves) or np.any(cells.coverage[keep] != 1.0):
            return None
        form, ends = _taken(leaves, cells.leaves)
        forms.append(form)
        values += ends
        if position in margin.grouped:
            groups, label = margin.grouped[position]
            place = np.zeros(groups, np.int64)  # the plan's number of each group
            place[label[leaves]] = cells.group[keep]
            places.append(place)
    rows = release.margins.rows(margin.statement(tuple(forms), release), values)
    columns = list(zip(*rows, strict=True))
    index: list[Any] = [0] * len(plan.shape)
    grouped = [position for position in margin.axes if position in margin.grouped]
    for position, place, labels in zip(grouped, places, columns, strict=False):
        index[position] = place[list(labels)]
    sums = []
    try:
        for column in columns[len(grouped) :]:
            total = np.zeros(plan.shape, np.int64)
            total[tuple(index)] = np.array(column if grouped else column[0], np.int64)
            sums.append(total)
    except OverflowError as error:
        raise DataError(
            "a sum exceeds the range of 64-bit integers", hint="ask for a smaller part"
        ) from error
    return sums


def _taken(leaves: IntArray, number: int) -> tuple[str, list[Any]]:
    """SQL and parameters that select the leaves of one axis."""
    if len(leaves) == number:
        return "", []
    first, last = int(leaves.min()), int(leaves.max())
    if last - first + 1 == len(leaves):
        return RANGE, [first, last]
    return SET, [leaves.tolist()]
