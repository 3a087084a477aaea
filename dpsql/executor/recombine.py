"""A plan's terms -> their values: leaf coverage to tree nodes, nodes to one DuckDB statement, sums to terms.

Each statistic is asked once, and with others of which the same is wanted: a statement sums the chosen node
combinations. The node lists of an axis go in as parallel arrays (`unnest(?)`), which DuckDB joins to the stored tables;
lists of literals are several times slower.
An axis of which every box takes the same single node (an unused axis: its root) becomes an equality, which prunes
the scan.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.catalog.base import COUNT
from dpsql.errors import DataError
from dpsql.executor.margin_cache import margin_sums
from dpsql.executor.run import prepared, rows_of
from dpsql.intervals.reads import CutMass, PlanVariances, cut_mass
from dpsql.matrices.max_entropy import EntropyReading
from dpsql.matrices.model import Masks
from dpsql.planner.axis_query import (
    AxisCells,
    FloatArray,
    IntArray,
    RowContribution,
    WeightedValues,
    masks,
    reach,
)
from dpsql.planner.block import Linear, ShapePlans
from dpsql.planner.plan import Box, ViewPlan, presence
from dpsql.planner.schema import Term
from dpsql.release import Release
from dpsql.release.format import UNIT
from dpsql.tree import Tree, cover


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
    reach: RowContribution | None = None

    @property
    def whole(self) -> bool:
        """True if no leaf is cut, and none is weighed."""
        return bool(np.all(self.weight == 1.0)) and self.reach is None

    @property
    def ends(self) -> RowContribution:
        """Between which values one row's weight lies: a row of a cut leaf counts or does not."""
        return self.reach or RowContribution(np.where(self.weight < 1.0, 0.0, 1.0), np.ones(len(self.weight)))


def runs(mask: npt.NDArray[np.bool_]) -> tuple[IntArray, IntArray, IntArray]:
    """Maximal runs of True in the rows of a mask of shape (groups, leaves): rows and half-open ends, shape (m,).

    >>> [a.tolist() for a in runs(np.array([[True, True, False, True]]))]
    [[0, 0], [0, 3], [2, 4]]
    """
    padded = np.zeros((mask.shape[0], mask.shape[1] + 2), np.bool_)
    padded[:, 1:-1] = mask
    # in one line: `nonzero` of two axes takes ten times as long
    borders = np.flatnonzero(padded[:, 1:] != padded[:, :-1])
    row, start = np.divmod(borders[::2], mask.shape[1] + 1)
    return row, start, borders[1::2] % (mask.shape[1] + 1)


def node_list(mask: FloatArray, tree: Tree, cells: AxisCells) -> NodeList:
    """The least nodes for each group.

    Args:
        mask: coverage of runs of leaves, shape (groups, runs).
        tree: the axis's look-up tree.
        cells: what says which leaves a run has.
    """
    row, start, stop = runs(mask == 1.0)
    run, node = cover(tree, cells.place(start), cells.place(stop))
    part_row, part_run = np.divmod(np.flatnonzero((mask > 0.0) & (mask < 1.0)), mask.shape[1])
    part_leaf = cells.place(part_run)
    return NodeList(
        np.concatenate([row[run], part_row]),
        np.concatenate([node, tree.leaves[part_leaf]]),
        np.concatenate([np.ones(len(node)), mask[part_row, part_run]]),
    )


def picked(mask: FloatArray) -> NodeList:
    """The stored numbers that a mask picks one by one.

    Args:
        mask: their weights, shape (groups, numbers).
    """
    group, node = np.nonzero(mask)
    return NodeList(group, node, mask[group, node])


NumberArray = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Lookup:
    """One statement over the file, and its values.

    Args:
        statistics: ids of the statistics, of which the same is added up.
        sql: DuckDB text; yields [box,] group on each grouped axis, the total of each statistic[, both masses where not
            whole].
        values: what its placeholders are bound to.
        nodes: number of nodes on each axis.
        grouped: axis positions that it yields a group for.
        many: whether it yields the box.
        whole: whether totals are exact integers.
    """

    statistics: tuple[int, ...]
    sql: str
    values: tuple[Any, ...]
    nodes: tuple[int, ...]
    grouped: tuple[int, ...]
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
        """True if it is one whole node, and the axis has no groups to tell apart."""
        return self.groups == 1 and len(self.nodes.node) == 1 and self.nodes.whole


def axis_nodes(plan: ViewPlan, position: int, query: BoxQuery, release: Release) -> AxisNodes:
    """The nodes of one axis for the sum of every box, side by side; boxes that take the same of it share them."""
    tree, nodes_of = release.tree(plan.view.axes[position]), dict[Any, NodeList]()
    listed = position in release.reading(query.statistics[0]).listed
    for box, box_masks in zip(query.boxes, query.masks, strict=True):
        taken, mask = box[position], box_masks[position]
        if taken not in nodes_of and isinstance(taken, WeightedValues):
            low, high = reach(plan.cells[position], taken)
            group, leaf = np.nonzero((mask != 0) | (low < 0) | (high > 0))  # not those that only count for 0
            row_ends = RowContribution(low[group, leaf], high[group, leaf])
            nodes_of[taken] = NodeList(group, tree.leaves[leaf], mask[group, leaf], row_ends)
        elif taken not in nodes_of:
            nodes_of[taken] = picked(mask) if listed else node_list(mask, tree, plan.cells[position])
    node_lists = [nodes_of[box[position]] for box in query.boxes]
    groups = len(plan.cells[position].keys)
    if len(node_lists) == 1:
        return AxisNodes(np.zeros(len(node_lists[0].node), np.int64), node_lists[0], groups)
    ends = [np.concatenate(sides) for sides in zip(*(nodes.ends for nodes in node_lists), strict=True)]
    return AxisNodes(
        np.concatenate([np.full(len(nodes.node), b, np.int64) for b, nodes in enumerate(node_lists)]),
        NodeList(
            np.concatenate([nodes.group for nodes in node_lists]), np.concatenate([nodes.node for nodes in node_lists]),
            np.concatenate([nodes.weight for nodes in node_lists]),
            RowContribution(*ends) if any(nodes.reach is not None for nodes in node_lists) else None,
        ),
        groups,
    )  # fmt: skip


class BoxQuery(NamedTuple):
    """Statistics with the same covariance, summed over the same boxes.

    Args:
        statistics: their ids.
        boxes: the boxes wanted.
        masks: of what is stored, for each box.
    """

    statistics: list[int]
    boxes: Sequence[Box]
    masks: Sequence[Masks]


def lookups(plan: ViewPlan, asked: BoxQuery, release: Release) -> list[Lookup]:
    """The statements that answer all boxes and groups: one for all statistics where totals are integers, else one each.

    A statement's cost is mostly that DuckDB plans it anew. Sums of floats depend on the order in which rows come.

    Args:
        plan: the plan.
        asked: what is added up.
        release: for the look-up trees.
    """
    axes = [axis_nodes(plan, i, asked, release) for i in range(len(plan.cells))]
    if all(axis.nodes.whole for axis in axes):
        return [_lookup(axes, asked, asked.statistics, release)]
    return [_lookup(axes, asked, [statistic], release) for statistic in asked.statistics]


def _lookup(
    axes: Sequence[AxisNodes], query: BoxQuery, statistics: Sequence[int], release: Release
) -> Lookup:
    """One statement over the nodes of every axis."""
    many = len(query.boxes) > 1
    joined = tuple(i for i, axis in enumerate(axes) if many or not axis.constant)
    grouped = tuple(i for i in joined if axes[i].groups > 1)
    exact = all(axis.nodes.whole for axis in axes)
    sources, joins, values, nodes = [_cells(statistics, len(axes), release)], [], [], []
    for i, axis in enumerate(axes):
        if i not in joined:
            node = int(axis.nodes.node[0])
            # the root is most of them, and a statement of its own
            joins.append(f"c.n{i + 1} = {'?' if node else '0'}")
            nodes += [node] if node else []
            continue
        fields, arrays = _fields(axis, exact, many)
        sources.append(f"(SELECT {fields}) AS a{i + 1}")
        values += arrays
        joins.append(f"c.n{i + 1} = a{i + 1}.n")
        joins += [f"a{i + 1}.b = a{joined[0] + 1}.b"] if many and i != joined[0] else []
    estimates = [f"c.e{k}" for k in range(len(statistics))]
    if len(statistics) == 1:
        estimates = [f"c.{release.estimate(statistics[0])}"]
    keys = ([f"a{joined[0] + 1}.b"] if many and joined else []) + [f"a{i + 1}.g" for i in grouped]
    totals = (
        [f"SUM({estimate})" for estimate in estimates] if exact else _weighted(estimates[0], axes, joined)
    )
    sql = f"SELECT {', '.join([*keys, *totals])} FROM {', '.join(sources)}"
    sql += f" WHERE {' AND '.join(joins)}" if joins else ""
    sql += f" GROUP BY {', '.join(keys)}" if keys else ""
    counts = tuple(len(axis.nodes.node) for axis in axes)
    many = many and bool(joined)
    return Lookup(tuple(statistics), sql, (*values, *nodes), counts, grouped, many, exact)


def _cells(statistics: Sequence[int], axes: int, release: Release) -> str:
    """Node combinations of statistics: of several one below the other, each with an estimate e0, e1, .. of its own."""
    if len(statistics) == 1:
        return f"node_combination_{statistics[0]} AS c"
    selects = []
    for k, statistic in enumerate(statistics):
        estimates = [
            f"{release.estimate(statistic) if k == j else 'NULL'} AS e{j}" for j in range(len(statistics))
        ]
        columns = ", ".join([*(f"n{i + 1}" for i in range(axes)), *estimates])
        selects.append(f"SELECT {columns} FROM node_combination_{statistic}")
    return f"({' UNION ALL '.join(selects)}) AS c"


def _weighted(value: str, axes: Sequence[AxisNodes], listed: Sequence[int]) -> list[str]:
    """The interpolated sum, what it has of cut cells and what it leaves of them: all of a cut cell's mass may lie
    on one side of the cut, or have one of the values that a factor has in it. Masses keep their sign, so that noise
    cancels over cells."""
    weight = " * ".join(f"a{i + 1}.w" for i in listed)
    weighed = [i for i in listed if axes[i].nodes.reach is not None]
    plain = " * ".join(f"a{i + 1}.w" for i in listed if i not in weighed)
    low, high = f"CASE WHEN {plain or '1'} < 1 THEN 0 ELSE 1 END", "1"
    for i in weighed:
        ends = ", ".join(f"{bound} * a{i + 1}.{two}" for bound in (f"({low})", high) for two in ("l", "h"))
        low, high = f"least({ends})", f"greatest({ends})"
    below, above = f"{weight} - {low}", f"{high} - {weight}"
    return [f"SUM({value} * {weight})", *(f"SUM({value} * ({side}))" for side in (below, above))]


def _fields(axis: AxisNodes, exact: bool, many: bool) -> tuple[str, list[Any]]:
    """Columns b (box, where there are several), g (group, likewise), n (node), w (weight), l and h (its reach, where a
    factor weighs it) of one axis, and their values."""
    wanted: list[tuple[str, str, Any]] = [("INTEGER", "b", axis.box)] if many else []
    wanted += [("INTEGER", "g", axis.nodes.group)] if axis.groups > 1 else []
    wanted += [("INTEGER", "n", axis.nodes.node)]
    wanted += [] if exact else [("DOUBLE", "w", axis.nodes.weight)]
    if axis.nodes.reach is not None:
        wanted += [("DOUBLE", name, ends) for name, ends in zip("lh", axis.nodes.reach, strict=True)]
    text = ", ".join(f"unnest(?::{kind}[]) AS {name}" for kind, name, _ in wanted)
    return text, [values.tolist() for _, _, values in wanted]


class Recombined(NamedTuple):
    """One statistic's answers.

    Args:
        totals: for each box an array of the plan's shape in units of 2^-20, int64 where every leaf is whole, float64
            where one is cut.
        below, above: for each box what it has of cut cells, and what it leaves of them.
    """

    totals: dict[Box, NumberArray]
    below: dict[Box, NumberArray]
    above: dict[Box, NumberArray]


def _statements(plan: ViewPlan, wanted: Mapping[int, Sequence[Box]], release: Release) -> list[Lookup]:
    """The statements over the file that answer boxes on some statistics."""
    wanted = _without_fitted(plan, wanted, release)[1]
    taken = {
        (i, truths): masks(cells, truths)
        for i, cells in enumerate(plan.cells)
        for truths in {box[i] for boxes in wanted.values() for box in boxes}
    }
    queries: dict[Any, BoxQuery] = {}
    for statistic, boxes in wanted.items():
        reading = release.reading(statistic)
        stored = [reading.stored([taken[each] for each in enumerate(box)]) for box in boxes]
        # what is the same of several statistics stands together
        same = (*reading.listed, *(id(mask) for box_masks in stored for mask in box_masks))
        queries.setdefault((*boxes, same), BoxQuery([], boxes, stored)).statistics.append(statistic)
    return [lookup for query in queries.values() for lookup in lookups(plan, query, release)]


def recombine(
    plan: ViewPlan, wanted: Mapping[int, Sequence[Box]], release: Release, plans: ShapePlans | None = None
) -> dict[int, Recombined]:
    """Answer boxes on some statistics.

    Args:
        plan: the plan.
        wanted: id of a statistic -> the boxes wanted of it, distinct.
        release: an open release.
        plans: of a shape that comes again.

    Returns:
        Each statistic's answers.

    Raises:
        DataError: the sum leaves the range of int64.
    """
    fitted, wanted = _without_fitted(plan, wanted, release)
    if fitted:
        answers = recombine(plan, wanted, release)
        for statistic, boxes in fitted.items():
            answers.setdefault(statistic, Recombined({}, {}, {}))
            _fit(plan, boxes, answers[statistic], release.fitted(statistic))
        return answers
    sums = None if plans is None else margin_sums(plan, wanted, release, plans)
    if sums is not None:
        zeros = np.zeros(plan.shape, np.int64)
        none = {s: dict.fromkeys(totals, zeros) for s, totals in sums.items()}
        return {s: Recombined(totals, none[s], none[s]) for s, totals in sums.items()}
    ran = _statements(plan, wanted, release)
    cutting = {statistic for each in ran if not each.whole for statistic in each.statistics}
    out: dict[int, NumberArray] = {
        s: np.zeros((len(boxes), *plan.shape), np.float64 if s in cutting else np.int64)
        for s, boxes in wanted.items()
    }
    below, above = ({s: np.zeros_like(each) for s, each in out.items()} for _ in range(2))
    try:
        for each in ran:
            columns = list(zip(*rows_of(release, prepared(release, each.sql), each.values), strict=True))
            for k, statistic in enumerate(each.statistics if columns else ()):
                at, totals, masses = _found(each, columns, k, len(plan.shape))
                for side, found in zip((out, below, above), (totals, *masses), strict=True):
                    side[statistic][at] += np.array(found, out[statistic].dtype)
    except OverflowError as error:
        raise DataError(
            "a sum exceeds the range of 64-bit integers", hint="ask for a smaller part"
        ) from error
    return {
        s: Recombined(*(dict(zip(boxes, arrays[s], strict=True)) for arrays in (out, below, above)))
        for s, boxes in wanted.items()
    }


Boxes = Mapping[int, Sequence[Box]]
"""The boxes wanted of each statistic, by its id."""


def _without_fitted(plan: ViewPlan, wanted: Boxes, release: Release) -> tuple[Boxes, Boxes]:
    """Boxes apart: those that are no sums of what is stored, and all others."""
    readings = {statistic: release.fitted(statistic) for statistic in wanted}
    if not any(readings.values()):
        return {}, wanted
    fitted: dict[int, list[Box]] = {}
    sums: dict[int, list[Box]] = {}
    for statistic, boxes in wanted.items():
        reading = readings[statistic]
        for box in boxes:
            is_sum = reading is None or reading.takes([plan.box_masks(box)])
            (sums if is_sum else fitted).setdefault(statistic, []).append(box)
    return fitted, sums


def _fit(plan: ViewPlan, boxes: Sequence[Box], answers: Recombined, reading: EntropyReading | None) -> None:
    """Add the answers of boxes by maximum entropy; what pairs leave open about them stands as mass on both sides."""
    if reading is None:
        return
    at = np.indices(plan.shape).reshape(len(plan.shape), -1)
    for box in boxes:
        rows = [mask[places] for mask, places in zip(plan.box_masks(box), at, strict=True)]
        counts, bounds = (values.reshape(plan.shape) * UNIT for values in reading.answers(rows))
        answers.totals[box] = np.rint(counts).astype(np.int64)
        answers.below[box] = answers.above[box] = bounds
        # values outside of the domain: all, or none
        if any(cells.open_leaf is not None for cells in plan.cells):
            for side, rounded in ((answers.below, np.floor), (answers.above, np.ceil)):
                end = reading.answers([rounded(mask) for mask in rows])[0].reshape(plan.shape) * UNIT
                side[box] = bounds + np.abs(end - counts)


def _found(
    ran: Lookup, columns: Sequence[Sequence[Any]], place: int, axes: int
) -> tuple[tuple[IntArray, ...], Sequence[Any], tuple[Sequence[Any] | int, Sequence[Any] | int]]:
    """Places of one statistic's answers, their totals, and the masses on both sides."""
    first = ran.many + len(ran.grouped)
    totals = columns[first + place]
    rows = [r for r, total in enumerate(totals) if total is not None]
    zeros = np.zeros(len(rows), np.int64)

    def column(number: int) -> list[Any]:
        return [columns[number][r] for r in rows]

    grouped = {axis: np.array(column(ran.many + g), np.int64) for g, axis in enumerate(ran.grouped)}
    at = (np.array(column(0), np.int64) if ran.many else zeros, *(grouped.get(i, zeros) for i in range(axes)))
    return at, column(first + place), (0, 0) if ran.whole else (column(first + 1), column(first + 2))


@dataclass(frozen=True, eq=False)
class TermEstimates:
    """Terms of a block, answered on one plan.

    Args:
        plan: the plan.
        totals: term -> value for each group, flat.
        wanted: id of a statistic -> the boxes that were added up of it.
        errors: variances for the groups that are shown.
        cuts: term -> what of it lies in cut bins, for each group.
        people: estimates of the people behind terms (`small_numbers`), made when they are needed; of these groups.
    """

    plan: ViewPlan
    totals: dict[Term, FloatArray]
    wanted: Mapping[int, Sequence[Box]]
    errors: PlanVariances
    cuts: dict[Term, CutMass]
    people: dict[Term, Any] = field(default_factory=dict, init=False, repr=False)

    @cached_property
    def whole(self) -> TermEstimates:
        """The same with every cut bin taken whole: between that and nothing of it lie the rows that a cut takes."""
        return self._with_cuts(whole=True)

    @cached_property
    def without(self) -> TermEstimates:
        """The same with every cut bin left out."""
        return self._with_cuts(whole=False)

    def _with_cuts(self, whole: bool) -> TermEstimates:
        plan = replace(self.plan, cells=tuple(replace(cells, whole=whole) for cells in self.plan.cells))
        moved = {term: mass.above if whole else -mass.below for term, mass in self.cuts.items()}
        totals = {term: total + moved[term] for term, total in self.totals.items()}
        cuts = {term: mass.none for term, mass in self.cuts.items()}
        return replace(
            self, plan=plan, totals=totals, errors=replace(self.errors, plan=plan, _products={}), cuts=cuts
        )

    @cached_property
    def lookups(self) -> tuple[Lookup, ...]:
        """The statements over the file that give the totals; a shape that comes again adds up a margin of it."""
        return tuple(_statements(self.plan, self.wanted, self.errors.release))

    def at(self, groups: IntArray) -> TermEstimates:
        """The same for some of the groups, by their rows."""
        errors = replace(
            self.errors, index=tuple(axis_index[groups] for axis_index in self.errors.index), _products={}
        )
        totals = {term: values[groups] for term, values in self.totals.items()}
        cuts = {term: mass.at(groups) for term, mass in self.cuts.items()}
        return replace(self, totals=totals, errors=errors, cuts=cuts)

    def value(self, form: Linear) -> FloatArray:
        """A linear form for each group shown."""
        total = np.full(self.errors.rows, form.constant)
        for term, weight in form.weights:
            total = total + weight * self.totals[term]
        return total

    @property
    def laplace(self) -> bool:
        """True if the release drew Laplace noise.

        What people report for themselves errs like a sum over all of them, which is normal.
        """
        meta = self.errors.release.meta
        return meta.local is None and not meta.privacy.mu2


def answer_terms(
    plan: ViewPlan,
    terms: Sequence[Term],
    index: tuple[np.ndarray, ...],
    release: Release,
    plans: ShapePlans | None = None,
) -> TermEstimates:
    """Recombine every statistic that the terms read, once, and add up.

    Args:
        plan: the plan.
        terms: what it answers.
        index: for each axis the group of each row.
        release: an open release.
        plans: of a shape that comes again.
    """
    summed = [*terms, *_rows_of(plan, terms, release)]
    asked: dict[int, dict[Any, None]] = {}
    for term in summed:
        for statistic in _statistics(plan, term):
            asked.setdefault(statistic, {}).update(dict.fromkeys(plan.boxes_for(term)))
    wanted = {s: list(boxes) for s, boxes in asked.items() if boxes}
    recombined = recombine(plan, wanted, release, plans)
    totals = {term: _total(plan, term, recombined, index) for term in summed}
    cuts = {term: _cut(plan, term, recombined, index, release) for term in summed}
    return TermEstimates(plan, totals, wanted, PlanVariances(plan, release, index), cuts)


def _rows_of(plan: ViewPlan, terms: Sequence[Term], release: Release) -> list[Term]:
    """The rows of scaled sums, what an average of theirs is over; all rows where those beyond bounds were measured."""
    counts: dict[Term, None] = {}
    beyond = release.meta.beyond(plan.view.of)
    bounded = release.meta.left_out(plan.view.of) or (beyond is not None and beyond.rows is not None)
    for term in terms:
        count = presence(term.measure, plan.view)
        if plan.view.statistics[term.measure].noise_mid is not None and count is not None:
            counts[replace(term, measure=count.measure)] = None
        counting = rows_term(plan, term)
        measured = release.meta.excess_of(plan.view.of, term.measure) is not None
        if (measured or bounded) and counting is not None:
            counts[counting] = None
    return [term for term in counts if term not in terms]


def rows_term(plan: ViewPlan, term: Term) -> Term | None:
    """The rows that a term counts or sums; None where its view counts none."""
    count = plan.view.statistics.get(COUNT) or plan.view.statistics.get(term.measure.counted)
    return None if count is None else replace(term, measure=count.measure, factor=None)


def _statistics(plan: ViewPlan, term: Term) -> list[int]:
    statistic = plan.view.statistics[term.measure]
    if not statistic.mid and not statistic.noise_mid and not any(cells.uncertain for cells in plan.cells):
        return [statistic.id]
    count = presence(term.measure, plan.view)
    return [statistic.id] + ([count.id] if count is not None else [])


def _total(
    plan: ViewPlan, term: Term, recombined: dict[int, Recombined], index: tuple[np.ndarray, ...]
) -> FloatArray:
    """(centred sum + mid * count) / 10^scale, added up in integers while they are whole and fit."""
    statistic = plan.view.statistics[term.measure]
    used, count = _statistics(plan, term), presence(term.measure, plan.view)
    factors = (statistic.step, statistic.mid * (count.step if count else 1))
    fits = statistic.step == 1
    units: npt.NDArray[Any] = np.zeros(len(index[0]) if index else 1, np.int64 if fits else np.float64)
    for box in plan.boxes_for(term):
        for statistic_id, factor in zip(used, factors, strict=False):
            totals = recombined[statistic_id].totals[box]
            flat = totals[index] if index else totals.reshape(1)
            wide = not fits or (
                totals.dtype == np.int64 and factor and np.max(np.abs(flat), initial=0) > 2**62 // abs(factor)
            )
            units = units + (flat.astype(np.float64) if wide else flat) * factor
    return np.asarray(units / UNIT / 10.0**statistic.scale, np.float64)


def _cut(
    plan: ViewPlan,
    term: Term,
    recombined: dict[int, Recombined],
    index: tuple[np.ndarray, ...],
    release: Release,
) -> CutMass:
    """A term's mass in cut bins, for each group."""
    masses = {}
    for statistic_id in _statistics(plan, term):
        meta = release.statistics[statistic_id]
        rows = np.zeros(len(index[0]) if index else 1)
        below, above = rows, rows
        for box in plan.boxes_for(term):
            sides = recombined[statistic_id].below[box], recombined[statistic_id].above[box]
            added = [meta.in_units(side[index] if index else side.reshape(1)) for side in sides]
            below, above = below + added[0], above + added[1]
        masses[meta.measure] = below, above
    return cut_mass(plan.view.statistics[term.measure], masses, release)
