"""Node lists -> answers: one DuckDB statement for each statistic sums the chosen node combinations.

The node lists of an axis go in as parallel arrays (`unnest(?)`), which DuckDB joins to the stored table;
lists of literals are several times slower. An axis of which every box takes the same single node (an
unused axis: its root) becomes an equality, which prunes the scan.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.answer.boxes import Box
from dpsql.answer.nodes import NodeList, node_list
from dpsql.answer.plan import Plan
from dpsql.answer.run import run
from dpsql.errors import DataError
from dpsql.release import Release

NumberArray = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Lookup:
    """One statement and its values, ready to run; kept for `explain`.

    Args:
        statistic: id of the statistic.
        sql: DuckDB text; yields [box,] group on each listed axis, total[, cut where not whole].
        values: what its placeholders are bound to.
        nodes: number of nodes on each axis.
        listed: axis positions that it yields a group for.
        many: whether it yields the box.
        whole: whether totals are exact integers.
    """

    statistic: int
    sql: str
    values: tuple[Any, ...]
    nodes: tuple[int, ...]
    listed: tuple[int, ...]
    many: bool
    whole: bool


@dataclass(frozen=True, eq=False)
class AxisNodes:
    """The node lists of one axis over all boxes, and how many groups the axis has."""

    box: npt.NDArray[np.int64]
    nodes: NodeList
    groups: int

    @property
    def constant(self) -> bool:
        """Whether it is one whole node, and the axis has no groups to tell apart."""
        return self.groups == 1 and len(self.nodes.node) == 1 and self.nodes.whole


def axis_nodes(plan: Plan, position: int, boxes: Sequence[Box], release: Release) -> AxisNodes:
    """The nodes of one axis for every box, side by side."""
    tree = release.tree(plan.view.axes[position])
    made = {
        truths: node_list(plan.cells[position], truths, tree) for truths in {box[position] for box in boxes}
    }
    parts = [made[box[position]] for box in boxes]
    return AxisNodes(
        np.concatenate([np.full(len(part.node), b, np.int64) for b, part in enumerate(parts)]),
        NodeList(
            np.concatenate([part.group for part in parts]), np.concatenate([part.node for part in parts]),
            np.concatenate([part.weight for part in parts]),
        ),
        len(plan.cells[position].keys),
    )  # fmt: skip


def lookup(plan: Plan, statistic: int, boxes: Sequence[Box], release: Release) -> Lookup:
    """The statement that answers all boxes and groups of a statistic.

    Args:
        plan: the plan.
        statistic: id of the statistic.
        boxes: the boxes wanted.
        release: for the look-up trees.

    Returns:
        The statement and its values.
    """
    parts = [axis_nodes(plan, i, boxes, release) for i in range(len(plan.cells))]
    many = len(boxes) > 1
    listed = tuple(i for i, part in enumerate(parts) if many or not part.constant)
    whole = all(part.nodes.whole for part in parts)
    sources, joins, values = [f"node_combination_{statistic} AS c"], [], []
    for i, part in enumerate(parts):
        if i not in listed:
            joins.append(f"c.n{i + 1} = {int(part.nodes.node[0])}")
            continue
        fields, arrays = _fields(part, whole, many)
        sources.append(f"(SELECT {fields}) AS a{i + 1}")
        values += arrays
        joins.append(f"c.n{i + 1} = a{i + 1}.n")
        joins += [f"a{i + 1}.b = a{listed[0] + 1}.b"] if many and i != listed[0] else []
    value = f"c.{release.estimate(statistic)}"
    weight = " * ".join(f"a{i + 1}.w" for i in listed)
    keys = ([f"a{listed[0] + 1}.b"] if many and listed else []) + [f"a{i + 1}.g" for i in listed]
    sums = [f"SUM({value}) AS total"] if whole else _weighted(value, weight)
    sql = f"SELECT {', '.join([*keys, *sums])} FROM {', '.join(sources)}"
    sql += f" WHERE {' AND '.join(joins)}" if joins else ""
    sql += f" GROUP BY {', '.join(keys)}" if keys else ""
    counts = tuple(len(part.nodes.node) for part in parts)
    return Lookup(statistic, sql, tuple(values), counts, listed, many and bool(listed), whole)


def _weighted(value: str, weight: str) -> list[str]:
    """The interpolated sum, and the mass that interpolation may have put on the wrong side: all of a cut cell's may lie
    on one side of the cut. Masses keep their sign, so that noise cancels over cells."""
    cut = f"CASE WHEN {weight} < 1 THEN {value} * greatest({weight}, 1 - {weight}) ELSE 0 END"
    return [f"SUM({value} * {weight}) AS total", f"SUM({cut}) AS cut"]


def _fields(part: AxisNodes, whole: bool, many: bool) -> tuple[str, list[Any]]:
    """Columns b (box, where there are several), g (group), n (node) and w (weight) of one axis, and their values."""
    wanted: list[tuple[str, str, Any]] = [("INTEGER", "b", part.box)] if many else []
    wanted += [("INTEGER", "g", part.nodes.group), ("INTEGER", "n", part.nodes.node)]
    wanted += [] if whole else [("DOUBLE", "w", part.nodes.weight)]
    text = ", ".join(f"unnest(?::{kind}[]) AS {name}" for kind, name, _ in wanted)
    return text, [values.tolist() for _, _, values in wanted]


def recombine(
    plan: Plan, statistic: int, boxes: Sequence[Box], release: Release
) -> tuple[Lookup, dict[Box, NumberArray], dict[Box, NumberArray]]:
    """Answer boxes on one statistic.

    Args:
        plan: the plan.
        statistic: id of the statistic.
        boxes: the boxes wanted, distinct.
        release: an open release.

    Returns:
        The statement that ran; for each box an array of the plan's shape in units of 2^-20, int64 where every
        leaf is whole, float64 where one is cut; and for each box the mass that cutting cells may have misplaced.

    Raises:
        DataError: the sum leaves the range of int64.
    """
    asked = lookup(plan, statistic, boxes, release)
    rows = run(release, asked.sql, asked.values).rows
    out = np.zeros((len(boxes), *plan.shape), np.int64 if asked.whole else np.float64)
    cut = np.zeros_like(out)
    last = asked.many + len(asked.listed)
    try:
        for row in rows:
            if row[last] is not None:
                index = [row[0] if asked.many else 0, *([0] * len(plan.shape))]
                for place, axis in enumerate(asked.listed):
                    index[1 + axis] = row[place + asked.many]
                out[tuple(index)] = row[last]
                cut[tuple(index)] = 0 if asked.whole else row[last + 1]
    except OverflowError as error:
        raise DataError("a sum leaves the range of 64-bit integers", hint="ask for a smaller part") from error
    return asked, {box: out[b] for b, box in enumerate(boxes)}, {box: cut[b] for b, box in enumerate(boxes)}
