"""Common groups of two releases' leaves: what both tell of a column, however each of them cuts it.

Two releases seldom cut a column alike: ages by year in one, age groups in the other. Their cells are compared on
common groups of values, which are unions of leaves in both. Of ordered columns these are the runs between edges that
both have; of names the least sets that no leaf of either cuts. Values that one release alone can tell from "elsewhere"
are left out. Each column that either release holds is compared, or stands in the result with the reason why it cannot
be.

**Privacy**: post-processing; public facts of two releases.

**Source**: docs/method/local.md, "What a local release stands for".
"""

from __future__ import annotations

import math
from datetime import date, datetime
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np

from dpsql.federation.tables import ViewTable, read_table
from dpsql.planner.axis_query import FloatArray
from dpsql.planner.leaf_values import bounds_of
from dpsql.planner.plan import ReleaseView, views_of
from dpsql.release import Release
from dpsql.release.format import DOMAIN, AxisMeta, ColumnMeta

GROUPS = 64
"""Groups of one column: longer ones are joined in runs, which a selection by values moves nearly as much."""


class ColumnComparison(NamedTuple):
    """True if the test could use a column.

    Args:
        column: `table.column`.
        compared: whether both releases hold it in common groups.
        reason: why not; empty if it was compared.
    """

    column: str
    compared: bool
    reason: str = ""

    def words(self) -> str:
        """In a line of `explain`."""
        return f"{self.column} compared" if self.compared else f"{self.column} not comparable: {self.reason}"


class CommonAxis(NamedTuple):
    """One column in a view of each of two releases.

    Args:
        column: `table.column`.
        left, right: positions of the axes in their views.
        left_groups, right_groups: which leaves a common group adds up, shape (groups, leaves); rows of both are the
            same groups. Leaves in no row cannot be compared.
    """

    column: str
    left: int
    right: int
    left_groups: FloatArray
    right_groups: FloatArray


class Overlap(NamedTuple):
    """Columns that a view of one release has in common with a view of another."""

    left: ReleaseView
    right: ReleaseView
    axes: tuple[CommonAxis, ...]

    @property
    def cells(self) -> int:
        """Cells over all common columns."""
        return math.prod(len(axis.left_groups) for axis in self.axes)

    def tables(self, left: Release, right: Release) -> tuple[ViewTable | None, ViewTable | None]:
        """Both releases' numbers over the common groups."""
        return (
            read_table(left, self.left, [a.left for a in self.axes], [a.left_groups for a in self.axes]),
            read_table(right, self.right, [a.right for a in self.axes], [a.right_groups for a in self.axes]),
        )


def overlaps_of(left: Release, right: Release) -> tuple[list[Overlap], tuple[ColumnComparison, ...]]:
    """Every pair of views of two releases that count the same table, the most common cells first.

    Returns:
        The pairs, also those without a common column, and whether each column can be compared.
    """
    overlaps: list[Overlap] = []
    verdicts: dict[str, ColumnComparison] = {}
    for left_view in views_of(left):
        for right_view in views_of(right):
            if left_view.of.lower() == right_view.of.lower():
                axes, reasons = _common_axes(left, left_view, right, right_view)
                overlaps.append(Overlap(left_view, right_view, tuple(axes)))
                verdicts |= {axis.column: ColumnComparison(axis.column, True) for axis in axes}
                for column, reason in reasons.items():
                    verdicts.setdefault(column, ColumnComparison(column, False, reason))
    for release, counterpart in ((left, right), (right, left)):
        for axis in release.axes:
            reason = f"{counterpart.name} has no such column for rows of {axis.of}"
            verdicts.setdefault(_column(axis), ColumnComparison(_column(axis), False, reason))
    return sorted(overlaps, key=lambda overlap: -overlap.cells), tuple(verdicts.values())


def _column(axis: AxisMeta) -> str:
    return f"{axis.columns[0].table}.{axis.columns[0].column}"


def _identity(column: ColumnMeta) -> tuple[object, ...]:
    return tuple(step.lower() for step in (*column.path, column.table, column.column))


def _common_axes(
    left: Release, left_view: ReleaseView, right: Release, right_view: ReleaseView
) -> tuple[list[CommonAxis], dict[str, str]]:
    """The columns that two views have in common, each once, and why others cannot be compared."""
    axes: list[CommonAxis] = []
    reasons: dict[str, str] = {}
    for i, left_axis in enumerate(left_view.axes):
        for j, right_axis in enumerate(right_view.axes):
            metas = left.axes[left_axis], right.axes[right_axis]
            if not _common_columns(*metas) or any(axis.left == i or axis.right == j for axis in axes):
                continue
            groups = left.kept(
                ("common", left_axis, right.meta.release_id, right_axis),
                partial(_common_groups, left, left_axis, right, right_axis),
            )
            if isinstance(groups, str):
                reasons[_column(metas[0])] = groups
            else:
                axes.append(CommonAxis(_column(metas[0]), i, j, *groups))
    return axes, reasons


def _common_columns(left: AxisMeta, right: AxisMeta) -> list[tuple[ColumnMeta, ColumnMeta]]:
    """Columns of two axes that are the same: the first one if it is, since the others follow from it."""
    named = {_identity(column): column for column in reversed(right.columns)}
    common = [(column, named[_identity(column)]) for column in left.columns if _identity(column) in named]
    first = [pair for pair in common if pair == (left.columns[0], right.columns[0])]
    return first or common


Groups = tuple[FloatArray, FloatArray]


def _common_groups(left: Release, left_axis: int, right: Release, right_axis: int) -> Groups | str:
    """Groups of leaves that stand for the same values in both axes, or why there are none."""
    metas = left.axes[left_axis], right.axes[right_axis]
    common = _common_columns(*metas)
    atoms = left.atoms(left_axis), right.atoms(right_axis)
    if common[0] == (metas[0].columns[0], metas[1].columns[0]):
        values = [_numbers(table, pair.name) for table, pair in zip(atoms, common[0], strict=True)]
        if values[0] is not None and values[1] is not None:
            return _between_edges(metas, atoms, (values[0], values[1]))
    if not all(meta.atomic for meta in metas):
        return "its values are not listed in one of the releases"
    names = [[pair[side].name for pair in common] for side in (0, 1)]
    texts = left.atoms_as_text(left_axis), right.atoms_as_text(right_axis)
    return _connected(metas, texts, (names[0], names[1]))


def _numbers(atoms: dict[str, Any], name: str) -> FloatArray | None:
    """Ordered values of the atoms in the domain as numbers, days or seconds; None for names."""
    values = np.ma.getdata(atoms[name])[atoms["kind"] == DOMAIN]
    if np.issubdtype(values.dtype, np.number):
        return np.asarray(values, np.float64)
    times = values.dtype == object and len(values) and all(isinstance(v, date | datetime) for v in values)
    if not times and not np.issubdtype(values.dtype, np.datetime64):
        return None
    return np.asarray(values.astype("datetime64[s]").astype(np.int64), np.float64)


def _between_edges(
    metas: tuple[AxisMeta, AxisMeta],
    atoms: tuple[dict[str, Any], dict[str, Any]],
    values: tuple[FloatArray, FloatArray],
) -> Groups | str:
    """Runs of leaves between edges that both axes have; an axis ends one step behind its last value."""
    starts, ends, leaves = [], [], []
    for meta, table, numbers in zip(metas, atoms, values, strict=True):
        leaf = np.asarray(table["leaf"])[table["kind"] == DOMAIN]
        present, first = np.unique(leaf, return_index=True)
        leaves.append(present)
        starts.append(numbers[first])
        ends.append(_end(meta, table, numbers))
    edges = [np.append(start, end) for start, end in zip(starts, ends, strict=True)]
    common = np.intersect1d(edges[0], edges[1])
    groups: tuple[list[FloatArray], list[FloatArray]] = ([], [])
    # at most GROUPS runs
    picked = np.unique(np.linspace(0, len(common) - 1, min(len(common), GROUPS + 1)).round().astype(int))
    for low, high in pairwise(common[picked].tolist()):
        for side in (0, 1):
            row = np.zeros(metas[side].leaves)
            row[leaves[side][(starts[side] >= low) & (starts[side] < high)]] = 1.0
            groups[side].append(row)
    covered = all(bool(len(common)) and common[0] == edge[0] and common[-1] == edge[-1] for edge in edges)
    return _stacked(metas, groups, same_domain=covered)


def _end(meta: AxisMeta, atoms: dict[str, Any], values: FloatArray) -> float:
    """End of the domain: the first value beyond the last one, one step after it."""
    last = values
    if not meta.atomic:  # atoms are leaves, with their first and their last value
        last = _numbers(atoms, bounds_of(meta, meta.columns[0].name)[1].name)  # type: ignore[assignment]
    step = float(values[1] - last[0]) if len(values) > 1 else 1.0
    return float(last[-1]) + step


def _connected(
    metas: tuple[AxisMeta, AxisMeta],
    texts: tuple[dict[str, Any], dict[str, Any]],
    names: tuple[list[str], list[str]],
) -> Groups | str:
    """The least sets of leaves that no leaf of either axis cuts: connected where both hold one value."""
    leaf_of: list[dict[tuple[object, ...], set[int]]] = []
    for side in (0, 1):
        table, columns = texts[side], names[side]
        inside = np.flatnonzero(np.asarray(table["kind"]) == DOMAIN)
        leaves_by_value: dict[tuple[object, ...], set[int]] = {}
        for row in inside:
            leaves_by_value.setdefault(tuple(table[c][row] for c in columns), set()).add(
                int(table["leaf"][row])
            )
        leaf_of.append(leaves_by_value)
    sizes = [meta.leaves for meta in metas]
    elsewhere = sum(sizes)
    parent = list(range(elsewhere + 1))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    outside = [
        elsewhere if meta.other_leaf is None else offset + meta.other_leaf
        for meta, offset in zip(metas, (0, sizes[0]), strict=True)
    ]
    for value in leaf_of[0].keys() | leaf_of[1].keys():
        nodes = list(leaf_of[0].get(value, ())) or [outside[0]]
        nodes += [sizes[0] + leaf for leaf in leaf_of[1].get(value, ())] or [outside[1]]
        for first, second in pairwise(nodes):
            parent[root(first)] = root(second)
    parent[root(outside[0])] = root(outside[1])  # values that neither lists
    groups: tuple[list[FloatArray], list[FloatArray]] = ([], [])
    absent = [{meta.null_leaf, meta.missing_leaf} for meta in metas]
    for component in dict.fromkeys(root(node) for node in range(elsewhere)):
        if component == root(elsewhere):
            continue
        rows = [np.zeros(size) for size in sizes]
        for side, offset in ((0, 0), (1, sizes[0])):
            for leaf in range(sizes[side]):
                if root(offset + leaf) == component and leaf not in absent[side]:
                    rows[side][leaf] = 1.0
        if rows[0].any() and rows[1].any():
            groups[0].append(rows[0])
            groups[1].append(rows[1])
    return _stacked(metas, groups, same_domain=False)


def _stacked(
    metas: tuple[AxisMeta, AxisMeta],
    groups: tuple[list[FloatArray], list[FloatArray]],
    *,
    same_domain: bool,
) -> Groups | str:
    """Groups with the special leaves that both axes have: NULL, MISSING, and OTHER where it means the same."""
    kinds = ["null_leaf", "missing_leaf", *(["other_leaf"] if same_domain else [])]
    for kind in kinds:
        leaves = [getattr(meta, kind) for meta in metas]
        if None not in leaves:
            for side in (0, 1):
                groups[side].append(np.eye(metas[side].leaves)[leaves[side]])
    if len(groups[0]) < 2:
        return "the releases cut it into groups without a common edge"
    left, right = (_joined_runs(np.array(rows)) for rows in groups)
    return left, right


def _joined_runs(rows: FloatArray) -> FloatArray:
    """At most GROUPS of them, neighbours added up."""
    if len(rows) <= GROUPS:
        return rows
    run = np.arange(len(rows)) * GROUPS // len(rows)
    joined = np.zeros((GROUPS, rows.shape[1]))
    np.add.at(joined, run, rows)
    return joined
