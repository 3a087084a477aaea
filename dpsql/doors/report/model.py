"""What the report page computes with: axes with labels, marginal counts, and variance tables.

| here | meaning |
|---|---|
| cut | a boundary between leaves; a range [a, b) of cuts holds the leaves a .. b-1 |
| rest, share | of a range on one axis: u'Cu - k(g.u)^2 and g.u, from which every view's variance is made |

A page cannot run the engine, so each axis's model is tabulated over pairs of cuts: all of them up to
MOST_CUTS, else an even choice and every cut that a coarser axis of the same name has. At these cuts the
page's prediction is exact. A view whose axes were measured together brings its model whole, a few thousand numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.answer.errorbars import weight_error, weight_of
from dpsql.answer.run import run
from dpsql.doors.describe import TableInfo, asked_name, describe, widest
from dpsql.release import ColumnMeta, Release, StatisticMeta
from dpsql.release.format import UNIT
from dpsql.star.graph import PEOPLE
from dpsql.variance.kronecker import AxisSplit

MOST_CUTS = 160
MOST_BARS = 400
FloatArray = npt.NDArray[np.float64]


def page_model(release: Release) -> dict[str, Any]:
    """Everything the page needs, as JSON values.

    Args:
        release: an open release.

    Returns:
        name, the relative errors of the weight of rows and of scales, axes
        and views.

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
            scale.of: {own.measure or "count": _short(own.error.noise, 2) for own in scale.measures}
            for scale in release.meta.scales
        },
        "axes": [_axis(release, i, labels, tables) for i in range(len(release.axes))],
        "views": [_view(release, name, tables) for name in dict.fromkeys(s.view for s in _of_rows(release))],
    }


def _of_rows(release: Release) -> list[StatisticMeta]:
    """What counts and sums rows: the page adds cells up, which people do not."""
    return [statistic for statistic in release.statistics if statistic.measure != PEOPLE]


class AxisLabels(NamedTuple):
    """How an axis's ordinary leaves are called.

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
    found = AxisLabels(None, False, [])
    for column in release.axes[axis].columns:
        name = column.name.replace('"', '""')
        text = f'SELECT min("{name}"), max("{name}"), count(DISTINCT "{name}") FROM axis_{axis}'
        rows = run(release, f"{text} WHERE kind = 0 GROUP BY leaf ORDER BY leaf").rows
        ends = [(str(low), str(high)) for low, high, _ in rows]
        if any(low is None for low, _, _ in rows):
            continue
        ordered = all(a[1] < b[0] for a, b in pairwise(rows))
        if ordered and column.type not in ("VARCHAR", "BOOLEAN"):
            return AxisLabels(column, True, ends)
        if all(count == 1 for _, _, count in rows) and len({low for low, _ in ends}) == len(ends):
            return AxisLabels(column, False, ends)
        found = found if found.ends else AxisLabels(None, False, ends)
    return found


def _axis(
    release: Release, number: int, labels: list[AxisLabels], tables: tuple[TableInfo, ...]
) -> dict[str, Any]:
    axis, own = release.axes[number], labels[number]
    twins = [
        labels[i].ends for i, other in enumerate(release.axes) if other.name == axis.name and i != number
    ]
    cuts = chosen_cuts(own.ends, twins)
    split = release.split(axis.model)
    kind = own.column.type if own.column else "VARCHAR"
    return {
        "name": axis.name,
        "of": axis.of,
        "leaves": axis.leaves,
        "strategy": axis.strategy,
        "column": asked_name(axis, own.column, tables) if own.column else "",
        "quoted": not any(word in kind for word in ("INT", "DOUBLE", "DECIMAL")),
        "ranges": own.ranges,
        "cuts": cuts,
        "first": [own.ends[cut][0] if cut < len(own.ends) else "" for cut in cuts],
        "last": [own.ends[cut - 1][1] if cut else "" for cut in cuts],
        "values": [first for first, _ in own.ends] if len(own.ends) <= MOST_CUTS else [],
        "total": float(split.total),
        **_tables(split, cuts),
    }


def chosen_cuts(own: list[tuple[str, str]], twins: list[list[tuple[str, str]]]) -> list[int]:
    """Which boundaries the page offers.

    >>> chosen_cuts([("1", "1"), ("2", "2")], [])
    [0, 1, 2]
    """
    n = len(own)
    if n <= MOST_CUTS:
        return list(range(n + 1))
    place = {first: i for i, (first, _) in enumerate(own)}
    shared = {
        place[first] for twin in twins for first, _ in twin if first in place and len(twin) <= MOST_CUTS
    }
    return sorted({*np.linspace(0, n, MOST_CUTS + 1).astype(int).tolist(), *shared})


def _tables(split: AxisSplit, cuts: list[int]) -> dict[str, Any]:
    """`rest` of every range of cuts (row by row, a < b) and `prefix`, the share of everything below a cut."""
    spread = np.concatenate([[0.0], np.cumsum(split.spread)])
    at = np.array(cuts, np.int64)
    low, high = np.triu_indices(len(at), 1)
    variance = split.model.ranges(at[low], at[high])
    share = spread[at[high]] - spread[at[low]]
    rest = np.maximum(np.asarray(variance, np.float64) - split.total * share**2, 0.0)
    return {
        "rest": [_short(value) for value in rest],
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
        "joint": _rounded(release.reading(statistics[0].id).page()),
        "statistics": [_statistic(s) for s in statistics],
        "histograms": [
            _histogram(release, s, position)
            for s in statistics
            if s.measure == "count"
            for position in range(len(s.axes))
        ],
    }


def _rounded(tables: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the page needs of a view's cells together; None where the axes' tables are enough."""
    return {name: _short_all(table) for name, table in tables.items()} or None


def _short_all(table: Any) -> Any:
    """A table's numbers with seven digits, row by row."""
    if isinstance(table, (float, int, np.generic)):
        return int(table) if isinstance(table, np.integer) else _short(float(table), 7)
    return [_short_all(part) for part in table]


def _statistic(statistic: StatisticMeta) -> dict[str, Any]:
    return {
        "measure": statistic.measure,
        "mid": statistic.mid,
        "scale": statistic.scale,
        "mechanism": statistic.mechanism,
        "budget": statistic.budget,
        "currency": statistic.currency,
        "components": [[list(subset), float(sigma2)] for subset, sigma2 in statistic.components],
    }


def _histogram(release: Release, statistic: StatisticMeta, position: int) -> dict[str, Any]:
    """Noisy marginal counts along one axis, leaves joined where there are too many to draw."""
    axis = statistic.axes[position]
    meta = release.axes[axis]
    step = -(-meta.leaves // MOST_BARS)
    starts = np.arange(0, meta.leaves, step)
    counts = np.add.reduceat(_marginal(release, statistic, position), starts)
    masks = [np.ones((len(starts), release.axes[a].leaves)) for a in statistic.axes]
    masks[position] = (np.arange(meta.leaves)[None, :] // step == np.arange(len(starts))[:, None]).astype(
        float
    )
    reading, whole = release.reading(statistic.id), [np.ones_like(mask) for mask in masks]
    variance, weight = reading.covariance(masks).noise, weight_of(release, statistic)
    if weight is not None:
        variance = variance + weight.added(counts, reading.covariance(masks, whole).noise)
    stderr = np.sqrt(np.maximum(variance, 0.0))
    names = [first for first, _ in axis_labels(release, axis).ends]
    special = {meta.null_leaf: "NULL", meta.missing_leaf: "MISSING", meta.other_leaf: "OTHER"}
    return {
        "axis": axis,
        "bars": [_short(float(value), 7) for value in counts],
        "stderr": [_short(float(value), 5) for value in stderr],
        "labels": [special.get(int(i)) or (names[i] if i < len(names) else "") for i in starts],
    }


def _marginal(release: Release, statistic: StatisticMeta, position: int) -> FloatArray:
    """Estimates of one axis's leaves over everything else, from the stored nodes."""
    tree = release.tree(statistic.axes[position])
    others = [f"n{i + 1} = 0" for i in range(len(statistic.axes)) if i != position]
    text = f"SELECT n{position + 1} AS node, estimate FROM node_combination_{statistic.id} WHERE "
    among = [f"n{position + 1} BETWEEN 0 AND {tree.size - 1}", "estimate IS NOT NULL"]
    rows = release.read(text + " AND ".join([*among, *others]), (), lambda result: result.fetchnumpy())
    by_node = np.zeros(tree.size)
    by_node[np.asarray(rows["node"], np.int64)] = np.asarray(rows["estimate"], np.float64) / UNIT
    return np.asarray(by_node[np.asarray(tree.leaves, np.int64)], np.float64)
