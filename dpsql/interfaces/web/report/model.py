"""Data of the report page: axes with labels, marginal counts, and variance tables.

| here | meaning |
|---|---|
| cut | a boundary between leaves; a range [a, b) of cuts holds the leaves a .. b-1 |
| rest, share | of a range on one axis: u'Cu - k(g.u)^2 and g.u, from which every view's variance is made |

A page cannot run the engine, so each axis's model is tabulated over pairs of cuts: all of them up to
MOST_CUTS, else an even choice and every cut that a coarser axis of the same name has. At these cuts the
page's prediction is exact. A view whose axes were measured together brings its model whole, a few thousand numbers.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.catalog.graph import sums_rows
from dpsql.executor.recombine import answer_terms
from dpsql.executor.run import run
from dpsql.executor.small_numbers import BoolArray, is_few
from dpsql.interfaces.python.describe import TableInfo, asked_name, describe, widest
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, interval, nullable
from dpsql.intervals.reads import cell_variance, weight_error
from dpsql.matrices.kronecker import AxisSplit
from dpsql.planner.axis_query import AxisCells
from dpsql.planner.block import one
from dpsql.planner.leaf_values import AxisQuery
from dpsql.planner.plan import ViewPlan, views_of
from dpsql.planner.terms import TRUE, Term
from dpsql.release import ColumnMeta, Release, StatisticMeta
from dpsql.release.format import RowsBeyondBound
from dpsql.row_expressions import identifier

MOST_CUTS = 160
MOST_BARS = 400
FloatArray = npt.NDArray[np.float64]


def page_model(release: Release) -> dict[str, Any]:
    """Everything the page needs, as JSON values.

    Args:
        release: an open release.

    Returns:
        name, the relative errors of the weight of rows and of scales, the bounds
        of tables whose rows beyond them are measured, axes and views.

    **Privacy**: published values and public facts alone.
    """
    tables = describe(release)
    labels = [axis_labels(release, i) for i in range(len(release.axes))]
    return {
        "name": release.name,
        "id": release.meta.release_id,
        "description": release.catalog.description,
        "weight_error": weight_error(release),
        "scales": {
            scale.of: {scaled.measure or "count": _short(scaled.error.noise, 2) for scaled in scale.measures}
            for scale in release.meta.scales
        },
        "beyond": {
            table.of: table.tau
            for table in release.meta.bounding
            if isinstance(table, RowsBeyondBound) and table.rows is not None
        },
        "axes": [_axis(release, i, labels, tables) for i in range(len(release.axes))],
        "views": [_view(release, name, tables) for name in dict.fromkeys(s.view for s in _of_rows(release))],
    }


def _of_rows(release: Release) -> list[StatisticMeta]:
    """Measures that count and sum rows: the page adds cells up, which people do not."""
    return [statistic for statistic in release.statistics if sums_rows(statistic.measure)]


class AxisLabels(NamedTuple):
    """Labels of an axis's ordinary leaves.

    Args:
        column: the column of the axis table that tells the leaves apart, or None where it takes several.
        ranges: whether leaves are consecutive ranges of that column, so that `>=` and `<=` select them.
        ends: first and last value of each leaf, as text.
    """

    column: ColumnMeta | None
    ranges: bool
    ends: list[tuple[str, str]]


def axis_labels(release: Release, axis: int) -> AxisLabels:
    """The first column of an axis that tells its leaves apart, and its values leaf by leaf."""
    labels = AxisLabels(None, False, [])
    for column in release.axes[axis].columns:
        name = identifier(column.name)
        text = f"SELECT min({name}), max({name}), count(DISTINCT {name}) FROM axis_{axis}"
        rows = run(release, f"{text} WHERE kind = 0 GROUP BY leaf ORDER BY leaf").rows
        ends = [(str(low), str(high)) for low, high, _ in rows]
        if any(low is None for low, _, _ in rows):
            continue
        ordered = all(a[1] < b[0] for a, b in pairwise(rows))
        if ordered and column.type not in ("VARCHAR", "BOOLEAN"):
            return AxisLabels(column, True, ends)
        if all(count == 1 for _, _, count in rows) and len({low for low, _ in ends}) == len(ends):
            return AxisLabels(column, False, ends)
        labels = labels if labels.ends else AxisLabels(None, False, ends)
    return labels


def _axis(
    release: Release, number: int, labels: list[AxisLabels], tables: tuple[TableInfo, ...]
) -> dict[str, Any]:
    axis, leaf_labels = release.axes[number], labels[number]
    twins = [labels[i].ends for i, twin in enumerate(release.axes) if twin.name == axis.name and i != number]
    cuts = chosen_cuts(leaf_labels.ends, twins)
    split = release.split(axis.model)
    kind = leaf_labels.column.type if leaf_labels.column else "VARCHAR"
    return {
        "name": axis.name,
        "of": axis.of,
        "leaves": axis.leaves,
        "strategy": axis.strategy,
        "column": asked_name(axis, leaf_labels.column, tables) if leaf_labels.column else "",
        "quoted": not any(word in kind for word in ("INT", "DOUBLE", "DECIMAL")),
        "ranges": leaf_labels.ranges,
        "cuts": cuts,
        "first": [leaf_labels.ends[cut][0] if cut < len(leaf_labels.ends) else "" for cut in cuts],
        "last": [leaf_labels.ends[cut - 1][1] if cut else "" for cut in cuts],
        "values": [first for first, _ in leaf_labels.ends] if len(leaf_labels.ends) <= MOST_CUTS else [],
        "total": float(split.total),
        **_tables(split, cuts),
    }


def chosen_cuts(own: list[tuple[str, str]], twins: list[list[tuple[str, str]]]) -> list[int]:
    """Boundaries that the page offers.

    >>> chosen_cuts([("1", "1"), ("2", "2")], [])
    [0, 1, 2]
    """
    n = len(own)
    if n <= MOST_CUTS:
        return list(range(n + 1))
    place = {first: i for i, (first, _) in enumerate(own)}
    few = [twin for twin in twins if len(twin) <= MOST_CUTS]
    shared = {place[first] for twin in few for first, _ in twin if first in place}
    return sorted({*np.linspace(0, n, MOST_CUTS + 1).astype(int).tolist(), *shared})


def _tables(split: AxisSplit, cuts: list[int]) -> dict[str, Any]:
    """`rest` of every range of cuts (row by row, a < b) and `prefix`, the share of everything below a cut."""
    spread = np.concatenate([[0.0], np.cumsum(split.spread)])
    at = np.array(cuts, np.int64)
    low, high = np.triu_indices(len(at), 1)
    variance = split.model.ranges(at[low], at[high])
    share = spread[at[high]] - spread[at[low]]
    remainder = np.maximum(np.asarray(variance, np.float64) - split.total * share**2, 0.0)
    return {
        "rest": [_short(value) for value in remainder],
        "prefix": [_short(float(value), 9) for value in spread[at]],
    }


def _short(value: float, digits: int = 6) -> float:
    return float(f"{value:.{digits}g}")


def _view(release: Release, name: str, tables: tuple[TableInfo, ...]) -> dict[str, Any]:
    statistics = [s for s in _of_rows(release) if s.view == name]
    of = statistics[0].of
    return {
        "name": name,
        "of": of,
        "table": widest(tables, of).name,
        "axes": list(statistics[0].axes),
        "cells": statistics[0].cells,
        "statistics": [_statistic(release, s) for s in statistics],
        "histograms": [
            _histogram(release, s, position)
            for s in statistics
            if s.measure == "count"
            for position in range(len(s.axes))
        ],
    }


def _statistic(release: Release, statistic: StatisticMeta) -> dict[str, Any]:
    local = release.meta.local is not None
    names = ("measure", "mid", "scale", "mechanism", "budget", "currency")
    return {
        **{name: getattr(statistic, name) for name in names},
        "components": [[list(subset), float(sigma2)] for subset, sigma2 in statistic.components],
        # noise variance of one cell, from which the page has the tails of Laplace noise; 0 for other noise
        "cell": 0.0 if local or release.meta.privacy.mu2 else cell_variance(release, statistic.id),
    }


def _histogram(release: Release, statistic: StatisticMeta, position: int) -> dict[str, Any]:
    """Noisy marginal counts along one axis, leaves joined where there are too many to draw."""
    axis = statistic.axes[position]
    meta = release.axes[axis]
    step = -(-meta.leaves // MOST_BARS)
    starts = np.arange(0, meta.leaves, step)
    # Estimates of one axis's leaves over everything else, from the stored nodes.
    tree = release.tree(statistic.axes[position])
    root_conditions = [f"n{i + 1} = 0" for i in range(len(statistic.axes)) if i != position]
    text = f"SELECT n{position + 1} AS node, estimate FROM node_combination_{statistic.id} WHERE "
    among = [f"n{position + 1} BETWEEN 0 AND {tree.size - 1}", "estimate IS NOT NULL"]
    rows = release.read(
        text + " AND ".join([*among, *root_conditions]), (), lambda cursor: cursor.fetchnumpy()
    )
    by_node = np.zeros(tree.size)
    by_node[np.asarray(rows["node"], np.int64)] = statistic.in_units(rows["estimate"])
    counts = np.add.reduceat(np.asarray(by_node[np.asarray(tree.leaves, np.int64)], np.float64), starts)
    few, low, high = _ends(release, statistic, position, np.arange(meta.leaves) // step)
    names = [first for first, _ in axis_labels(release, axis).ends]
    special = {meta.null_leaf: "NULL", meta.missing_leaf: "MISSING", meta.other_leaf: "OTHER"}
    return {
        "axis": axis,
        "bars": [
            None if hidden else _short(float(value), 7) for value, hidden in zip(counts, few, strict=True)
        ],
        "low": low,
        "high": high,
        "labels": [special.get(int(i)) or (names[i] if i < len(names) else "") for i in starts],
    }


def _ends(
    release: Release, statistic: StatisticMeta, position: int, group: npt.NDArray[np.int64]
) -> tuple[BoolArray, list[float | None], list[float | None]]:
    """Groups of one axis's leaves whose counts are hidden, and ends of 95% intervals of counts; None where open."""
    cells, index, groups = [], [], int(group[-1]) + 1
    for place, number in enumerate(statistic.axes):
        leaves = release.axes[number].leaves
        zeros, ones = np.zeros(leaves, np.int64), np.ones(leaves)
        shown = place == position
        keys = tuple((i,) for i in range(groups)) if shown else ((),)
        types, leaf_groups = (("BIGINT",), group) if shown else ((), zeros)
        cells.append(AxisCells(leaves, keys, types, leaf_groups, zeros, np.arange(leaves), ones, ((),)))
        index.append(np.arange(groups) if shown else np.zeros(groups, np.int64))
    view = next(v for v in views_of(release) if v.name == statistic.view and v.axes == statistic.axes)
    questions = tuple(AxisQuery(axis, ()) for axis in view.axes)
    plan = ViewPlan(view, questions, tuple(cells), TRUE, ((),) * len(cells))
    term = Term(statistic.measure)
    answered = answer_terms(plan, [term], tuple(index), release)
    ends = interval(Composite.of_form(one(term), answered), DEFAULT_LEVEL)
    few = is_few(term, answered)
    low, high = (
        [None if end is None else _short(end, 7) for end in nullable(np.where(few, np.nan, side))]
        for side in ends
    )
    return few, low, high
