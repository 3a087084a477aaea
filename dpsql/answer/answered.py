"""A plan's terms -> their values: leaf coverage to tree nodes, nodes to one DuckDB statement, sums to terms.

Each statistic is asked once: its statement sums the chosen node combinations. The node lists of an axis go in as
parallel arrays (`unnest(?)`), which DuckDB joins to the stored table; lists of literals are several times slower.
An axis of which every box takes the same single node (an unused axis: its root) becomes an equality, which prunes
the scan.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.answer.block import Linear, Noisy, Term
from dpsql.answer.cuts import most_moved
from dpsql.answer.errorbars import LAPLACE_KURTOSIS, Errors, quantile
from dpsql.answer.leafsets import FloatArray, IntArray, Reach, Weighed, masks, reach
from dpsql.answer.plan import Box, Plan, presence
from dpsql.answer.run import prepared, run
from dpsql.errors import DataError
from dpsql.release import Release
from dpsql.release.format import UNIT
from dpsql.tree import Tree, cover
from dpsql.variance.model import Sum


@dataclass(frozen=True, eq=False)
class NodeList:
    """Nodes that add up to each group's leaves.

    Args:
        group, node: indices, shape (m,).
        weight: 1 for whole nodes, the coverage for a cut leaf, a factor's mean where one weighs it, shape (m,).
        reach: between which values one row's weight lies, where a factor weighs it; arrays of shape (m,).
    """

    group: IntArray
    node: IntArray
    weight: FloatArray
    reach: Reach | None = None

    @property
    def whole(self) -> bool:
        """Whether no leaf is cut, and none is weighed."""
        return bool(np.all(self.weight == 1.0)) and self.reach is None

    @property
    def ends(self) -> Reach:
        """Between which values one row's weight lies: a row of a cut leaf counts or does not."""
        return self.reach or Reach(np.where(self.weight < 1.0, 0.0, 1.0), np.ones(len(self.weight)))


class Runs(NamedTuple):
    """Rows and half-open ends of runs, each of shape (m,)."""

    row: IntArray
    start: IntArray
    stop: IntArray


def runs(mask: npt.NDArray[np.bool_]) -> Runs:
    """Maximal runs of True in each row of a mask of shape (groups, leaves).

    >>> [a.tolist() for a in runs(np.array([[True, True, False, True]]))]
    [[0, 0], [0, 3], [2, 4]]
    """
    padded = np.zeros((mask.shape[0], mask.shape[1] + 2), np.int8)
    padded[:, 1:-1] = mask
    change = np.diff(padded, axis=1)
    row, start = np.nonzero(change == 1)
    stop = np.nonzero(change == -1)[1]
    return Runs(row.astype(np.int64), start.astype(np.int64), stop.astype(np.int64))


def node_list(mask: FloatArray, tree: Tree) -> NodeList:
    """The least nodes for each group.

    Args:
        mask: coverage of leaves, shape (groups, leaves).
        tree: the axis's look-up tree.
    """
    row, start, stop = runs(mask == 1.0)
    which, node = cover(tree, start, stop)
    part_row, part_leaf = np.nonzero((mask > 0.0) & (mask < 1.0))
    return NodeList(
        np.concatenate([row[which], part_row]),
        np.concatenate([node, tree.leaves[part_leaf]]),
        np.concatenate([np.ones(len(node)), mask[part_row, part_leaf]]),
    )


def weighed_list(mask: FloatArray, reach: Reach, tree: Tree) -> NodeList:
    """Leaves with their weights; those that may only count for 0 are left out.

    Args:
        mask: weights, shape (groups, leaves).
        reach: between which values they may lie.
        tree: the axis's look-up tree.
    """
    group, leaf = np.nonzero((mask != 0) | (reach.low < 0) | (reach.high > 0))
    ends = Reach(reach.low[group, leaf], reach.high[group, leaf])
    return NodeList(group, tree.leaves[leaf], mask[group, leaf], ends)


def picked(mask: FloatArray) -> NodeList:
    """The stored numbers that a mask picks one by one.

    Args:
        mask: shape (groups, numbers), 0 or 1.
    """
    group, node = np.nonzero(mask)
    return NodeList(group, node, np.ones(len(node)))


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


def axis_nodes(
    plan: Plan, position: int, boxes: Sequence[Box], sums: Sequence[Sum], release: Release
) -> AxisNodes:
    """The nodes of one axis for the sum of every box, side by side; boxes that take the same of it share them."""
    tree, made = release.tree(plan.view.axes[position]), dict[Any, NodeList]()
    listed = position in sums[0].listed
    for box, each in zip(boxes, sums, strict=True):
        taken, mask = box[position], each.masks[position]
        if taken not in made and isinstance(taken, Weighed):
            made[taken] = weighed_list(mask, reach(plan.cells[position], taken), tree)
        elif taken not in made:
            made[taken] = picked(mask) if listed else node_list(mask, tree)
    parts = [made[box[position]] for box in boxes]
    ends = [np.concatenate(sides) for sides in zip(*(part.ends for part in parts), strict=True)]
    return AxisNodes(
        np.concatenate([np.full(len(part.node), b, np.int64) for b, part in enumerate(parts)]),
        NodeList(
            np.concatenate([part.group for part in parts]), np.concatenate([part.node for part in parts]),
            np.concatenate([part.weight for part in parts]),
            Reach(*ends) if any(part.reach is not None for part in parts) else None,
        ),
        len(plan.cells[position].keys),
    )  # fmt: skip


def lookup(plan: Plan, statistic: int, boxes: Sequence[Box], sums: Sequence[Sum], release: Release) -> Lookup:
    """The statement that answers all boxes and groups of a statistic, or one term of them.

    Args:
        plan: the plan.
        statistic: id of the statistic.
        boxes: the boxes wanted.
        sums: what is added up for each of them, of one table.
        release: for the look-up trees.

    Returns:
        The statement and its values.
    """
    parts = [axis_nodes(plan, i, boxes, sums, release) for i in range(len(plan.cells))]
    many = len(boxes) > 1
    listed = tuple(i for i, part in enumerate(parts) if many or not part.constant)
    whole = all(part.nodes.whole for part in parts)
    sources, joins, values, nodes = [f"{sums[0].table}_{statistic} AS c"], [], [], []
    for i, part in enumerate(parts):
        if i not in listed:
            node = int(part.nodes.node[0])
            joins.append(
                f"c.n{i + 1} = {'?' if node else '0'}"
            )  # the root is most of them, and a statement of its own
            nodes += [node] if node else []
            continue
        fields, arrays = _fields(part, whole, many)
        sources.append(f"(SELECT {fields}) AS a{i + 1}")
        values += arrays
        joins.append(f"c.n{i + 1} = a{i + 1}.n")
        joins += [f"a{i + 1}.b = a{listed[0] + 1}.b"] if many and i != listed[0] else []
    value = f"c.{release.estimate(statistic)}"
    keys = ([f"a{listed[0] + 1}.b"] if many and listed else []) + [f"a{i + 1}.g" for i in listed]
    totals = [f"SUM({value}) AS total"] if whole else _weighted(value, parts, listed)
    sql = f"SELECT {', '.join([*keys, *totals])} FROM {', '.join(sources)}"
    sql += f" WHERE {' AND '.join(joins)}" if joins else ""
    sql += f" GROUP BY {', '.join(keys)}" if keys else ""
    counts = tuple(len(part.nodes.node) for part in parts)
    return Lookup(statistic, sql, (*values, *nodes), counts, listed, many and bool(listed), whole)


def _weighted(value: str, parts: Sequence[AxisNodes], listed: Sequence[int]) -> list[str]:
    """The interpolated sum, and the mass that interpolation may have put on the wrong side: all of a cut cell's may lie
    on one side of the cut, or have one of the values that a factor has in it. Masses keep their sign, so that noise
    cancels over cells."""
    weight = " * ".join(f"a{i + 1}.w" for i in listed)
    weighed = [i for i in listed if parts[i].nodes.reach is not None]
    plain = " * ".join(f"a{i + 1}.w" for i in listed if i not in weighed)
    low, high = f"CASE WHEN {plain or '1'} < 1 THEN 0 ELSE 1 END", "1"
    for i in weighed:
        ends = ", ".join(f"{one} * a{i + 1}.{two}" for one in (f"({low})", high) for two in ("l", "h"))
        low, high = f"least({ends})", f"greatest({ends})"
    cut = f"{value} * greatest({high} - {weight}, {weight} - {low})"
    if not weighed:
        cut = f"CASE WHEN {weight} < 1 THEN {value} * greatest({weight}, 1 - {weight}) ELSE 0 END"
    return [f"SUM({value} * {weight}) AS total", f"SUM({cut}) AS cut"]


def _fields(part: AxisNodes, whole: bool, many: bool) -> tuple[str, list[Any]]:
    """Columns b (box, where there are several), g (group), n (node), w (weight), l and h (its reach, where a factor
    weighs it) of one axis, and their values."""
    wanted: list[tuple[str, str, Any]] = [("INTEGER", "b", part.box)] if many else []
    wanted += [("INTEGER", "g", part.nodes.group), ("INTEGER", "n", part.nodes.node)]
    wanted += [] if whole else [("DOUBLE", "w", part.nodes.weight)]
    if part.nodes.reach is not None:
        wanted += [("DOUBLE", name, ends) for name, ends in zip("lh", part.nodes.reach, strict=True)]
    text = ", ".join(f"unnest(?::{kind}[]) AS {name}" for kind, name, _ in wanted)
    return text, [values.tolist() for _, _, values in wanted]


class Recombined(NamedTuple):
    """One statistic's answers.

    Args:
        lookups: the statements that ran, one for each term of its reading.
        totals: for each box an array of the plan's shape in units of 2^-20, int64 where every leaf is whole, float64
            where one is cut.
        cuts: for each box the mass that cutting cells may have misplaced.
    """

    lookups: tuple[Lookup, ...]
    totals: dict[Box, NumberArray]
    cuts: dict[Box, NumberArray]


def recombine(plan: Plan, statistic: int, boxes: Sequence[Box], release: Release) -> Recombined:
    """Answer boxes on one statistic.

    Args:
        plan: the plan.
        statistic: id of the statistic.
        boxes: the boxes wanted, distinct.
        release: an open release.

    Raises:
        DataError: the sum leaves the range of int64.
    """
    reading = release.reading(statistic)
    taken = {
        (i, truths): masks(cells, truths)
        for i, cells in enumerate(plan.cells)
        for truths in {box[i] for box in boxes}
    }
    terms = zip(*(reading.terms([taken[each] for each in enumerate(box)]) for box in boxes), strict=True)
    parts = [(sums[0].weight, lookup(plan, statistic, boxes, sums, release)) for sums in terms]
    whole = all(part.whole for _, part in parts)
    out = np.zeros((len(boxes), *plan.shape), np.int64 if whole else np.float64)
    cut = np.zeros_like(out)
    try:
        for weight, part in parts:
            last = part.many + len(part.listed)
            rows = [
                row
                for row in run(release, prepared(release, part.sql), part.values).rows
                if row[last] is not None
            ]
            columns = list(zip(*rows, strict=True))
            if columns:
                zeros = np.zeros(len(columns[last]), np.int64)
                listed = [np.array(columns[part.listed.index(a) + part.many]) if a in part.listed else zeros
                          for a in range(len(plan.shape))]  # fmt: skip
                at = (np.array(columns[0]) if part.many else zeros, *listed)
                out[at] += weight * np.array(columns[last], out.dtype)
                cut[at] += 0 if part.whole else weight * np.array(columns[last + 1], out.dtype)
    except OverflowError as error:
        raise DataError("a sum leaves the range of 64-bit integers", hint="ask for a smaller part") from error
    return Recombined(
        tuple(part for _, part in parts),
        dict(zip(boxes, out, strict=True)),
        dict(zip(boxes, cut, strict=True)),
    )


NULL_LEVEL = 0.95
"""An AVG is NULL when its count's interval at this level holds 0."""


@dataclass(frozen=True, eq=False)
class Answered:
    """Terms of a block, answered on one plan.

    Args:
        plan: the plan.
        totals: term -> value for each group, flat.
        lookups: the statements that ran.
        errors: variances for the groups that are shown.
        cuts: term -> most that cutting a bin may add to it, for each group.
    """

    plan: Plan
    totals: dict[Term, FloatArray]
    lookups: tuple[Lookup, ...]
    errors: Errors
    cuts: dict[Term, FloatArray]

    def value(self, form: Linear) -> FloatArray:
        """A linear form for each group shown."""
        rows = len(self.errors.index[0]) if self.errors.index else 1
        total = np.full(rows, form.constant)
        for term, weight in form.weights:
            total = total + weight * self.totals[term]
        return total

    def parts(self, form: Noisy) -> tuple[FloatArray, FloatArray]:
        """(value, 1) of a linear form, (numerator, denominator) of a ratio."""
        if isinstance(form, Linear):
            return self.value(form), np.ones(1)
        return self.value(form.above), self.value(form.below)

    def cut(self, form: Linear) -> FloatArray:
        """The most that cutting bins may add to a linear form, for each group shown."""
        rows = len(self.errors.index[0]) if self.errors.index else 1
        return sum((abs(weight) * self.cuts[term] for term, weight in form.weights), np.zeros(rows))

    @cached_property
    def kurtosis(self) -> float:
        """Excess kurtosis to allow for: pure releases draw Laplace noise, one draw a node combination.

        What people report for themselves errs like a sum over all of them, which is normal.
        """
        meta = self.errors.release.meta
        pure = meta.local is None and not meta.privacy.mu2
        fewest = min((int(np.prod(each.nodes)) for each in self.lookups), default=1)
        rows = max(1, int(np.prod(self.plan.shape)))
        return LAPLACE_KURTOSIS / max(1.0, fewest / rows) if pure else 0.0

    def z(self, level: float) -> float:
        """Standard errors on each side of an answer."""
        return quantile(level, self.kurtosis)


def answer_terms(
    plan: Plan, terms: Sequence[Term], index: tuple[np.ndarray, ...], release: Release
) -> Answered:
    """Recombine every statistic that the terms read, once, and add up."""
    wanted: dict[int, dict[Any, None]] = {}
    for term in terms:
        for statistic in _statistics(plan, term):
            wanted.setdefault(statistic, {}).update(dict.fromkeys(plan.boxes_for(term)))
    found = {s: recombine(plan, s, list(boxes), release) for s, boxes in wanted.items() if boxes}
    totals = {term: _total(plan, term, found, index) for term in [*terms, *_rows_of(plan, terms)]}
    cuts = {term: _cut(plan, term, found, index, release) for term in terms}
    lookups = tuple(lookup for each in found.values() for lookup in each.lookups)
    return Answered(plan, totals, lookups, Errors(plan, release, index), cuts)


def _rows_of(plan: Plan, terms: Sequence[Term]) -> Iterator[Term]:
    """The rows of scaled sums: what an average of theirs is over."""
    for term in terms:
        count = presence(term.measure, plan.view)
        if plan.view.statistics[term.measure].noise_mid is not None and count is not None:
            yield replace(term, measure=count.measure)


def _statistics(plan: Plan, term: Term) -> list[int]:
    statistic = plan.view.statistics[term.measure]
    if not statistic.mid and statistic.noise_mid is None and not any(cells.cut for cells in plan.cells):
        return [statistic.id]
    count = presence(term.measure, plan.view)
    return [statistic.id] + ([count.id] if count is not None else [])


def _total(plan: Plan, term: Term, found: dict[int, Recombined], index: tuple[np.ndarray, ...]) -> FloatArray:
    """(centred sum + mid * count) / 10^scale, added up in integers while they are whole."""
    statistic = plan.view.statistics[term.measure]
    used = _statistics(plan, term)
    units = np.zeros(len(index[0]) if index else 1, np.int64)
    for box in plan.boxes_for(term):
        for which, factor in zip(used, (1, statistic.mid), strict=False):
            part = found[which].totals[box]
            flat = part[index] if index else part.reshape(1)
            wide = (
                part.dtype == np.int64 and factor and np.max(np.abs(flat), initial=0) > 2**62 // abs(factor)
            )
            units = units + (flat.astype(np.float64) if wide else flat) * factor
    return np.asarray(units / UNIT / 10.0**statistic.scale, np.float64)


def _cut(
    plan: Plan, term: Term, found: dict[int, Recombined], index: tuple[np.ndarray, ...], release: Release
) -> FloatArray:
    """The most that cutting bins may add to a term, for each group; NaN where the view holds nothing to tell."""
    used = _statistics(plan, term)
    misplaced = {}
    for which in used:
        rows = np.zeros(len(index[0]) if index else 1)
        for box in plan.boxes_for(term):
            part = found[which].cuts[box]
            rows = rows + (part[index] if index else part.reshape(1)) / UNIT
        misplaced[release.statistics[which].measure] = rows
    return most_moved(plan.view.statistics[term.measure], misplaced, release)


@np.errstate(over="ignore", invalid="ignore")
def central(form: Noisy, answered: Answered) -> FloatArray:
    """The value of a form; NaN for an AVG whose count may be 0."""
    above, below = answered.parts(form)
    if isinstance(form, Linear):
        return above
    known = below != 0
    if form.mean:
        known &= np.abs(below) > answered.z(NULL_LEVEL) * np.sqrt(answered.errors.variance(form.below))
    found: FloatArray = np.divide(above, below, out=np.full(len(above), np.nan), where=known)
    return found


def nullable(values: FloatArray) -> list[float | None]:
    """NaN and infinity as None."""
    return [value if math.isfinite(value) else None for value in values.tolist()]
