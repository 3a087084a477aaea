"""Plans of a block on one view: the axes that hold its columns, and the selected leaves.

A view over the block's root table can answer if it has an axis for each column used. An inner join is a condition like
any other: that a row has the partner.

A condition over several axes falls into disjoint boxes. A box takes on each axis some truth patterns of that axis's
predicates. An axis is split by its patterns, the rest of the condition is simplified under each, and patterns that
leave the same rest are put together; so boxes never overlap and their sums add up.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, NamedTuple

import numpy as np

from dpsql.catalog import Catalog
from dpsql.catalog.base import COUNT, MeasureName
from dpsql.catalog.graph import place_name, reachable
from dpsql.errors import NotSupportedError, NoViewError
from dpsql.executor.run import run
from dpsql.matrices.kronecker import ProductReading, on_runs
from dpsql.matrices.model import Edges
from dpsql.planner import axis_query
from dpsql.planner.block import Block
from dpsql.planner.leaf_values import AxisQuery
from dpsql.planner.schema import (
    FALSE,
    TRUE,
    Always,
    ColumnRef,
    Condition,
    Expression,
    Predicate,
    Schema,
    Term,
    conjuncts,
    every,
    predicates,
    some,
)
from dpsql.release import AxisMeta, Release, StatisticMeta
from dpsql.row_expressions import identifier as quoted

MAX_BOXES = 64
"""Each box is one more join; 64 keep the slowest statement under a second."""

Box = tuple[axis_query.Taken, ...]
"""For each axis of the view what is taken of it."""


def disjoint_boxes(
    condition: Condition,
    classes: Sequence[Sequence[Predicate]],
    patterns: Sequence[Sequence[tuple[bool, ...]]],
) -> list[Box]:
    """Boxes that together are the rows where the condition is true.

    Args:
        condition: over the predicates in `classes`.
        classes: for each axis its predicates.
        patterns: for each axis the truths that occur on it.

    Returns:
        Disjoint boxes.

    Raises:
        NotSupportedError: more than MAX_BOXES of them.
    """
    boxes = _split(condition, classes, patterns, 0)
    if len(boxes) > MAX_BOXES:
        raise NotSupportedError(
            f"the condition falls into {len(boxes)} boxes over several axes, the limit is {MAX_BOXES}",
            hint="use fewer OR between different columns",
        )
    return boxes


def _split(
    condition: Condition,
    classes: Sequence[Sequence[Predicate]],
    patterns: Sequence[Sequence[tuple[bool, ...]]],
    axis: int,
) -> list[Box]:
    if condition == FALSE:
        return []
    if axis == len(classes):
        return [()] if condition == TRUE else []
    used = set(predicates(condition)) & set(classes[axis])
    if not used:
        return [(None, *box) for box in _split(condition, classes, patterns, axis + 1)]
    rests: dict[Condition, set[int]] = {}
    for number, truths in enumerate(patterns[axis]):
        assignment = dict(zip(classes[axis], truths, strict=True))
        rests.setdefault(_assign(condition, assignment), set()).add(number)
    boxes: list[Box] = []
    for remaining, numbers in rests.items():
        boxes += [(frozenset(numbers), *box) for box in _split(remaining, classes, patterns, axis + 1)]
        if len(boxes) > 4 * MAX_BOXES:
            break
    return boxes


def _assign(condition: Condition, assignment: Mapping[Predicate, bool]) -> Condition:
    """The condition once some predicates are known."""
    if isinstance(condition, Predicate):
        return Always(assignment[condition]) if condition in assignment else condition
    if isinstance(condition, Always):
        return condition
    operands = [_assign(operand, assignment) for operand in condition.parts]
    return every(operands) if type(condition).__name__ == "Every" else some(operands)


MAX_GROUPS = 1_000_000
SAMPLE = 8
"""Groups whose variance is compared between views."""


@dataclass(frozen=True)
class ReleaseView:
    """The statistics of one view: measure -> statistic."""

    name: str
    of: str
    axes: tuple[int, ...]
    statistics: Mapping[MeasureName, StatisticMeta]
    cells: int


@dataclass(frozen=True, eq=False)
class ViewPlan:
    """Plan of a block on one view.

    Args:
        view: the view.
        questions: what each of its axes is asked, in the view's order.
        cells: the answers.
        order: axis positions in the order in which groups vary, slowest first.
        where: what is left of WHERE after each axis's own part.
        classes: predicates told apart on each axis.
        settled: predicates that are the same for every row of the release.
        boxes: term condition -> its disjoint boxes.
        coarse: groups that also count others, on each axis where bins hold several (`partial_bins.with_coarse_bins`).
    """

    view: ReleaseView
    questions: tuple[AxisQuery, ...]
    cells: tuple[axis_query.AxisCells, ...]
    where: Condition
    classes: tuple[tuple[Predicate, ...], ...]
    settled: Mapping[Predicate, bool] = field(default_factory=dict)
    boxes: dict[Condition, list[Box]] = field(default_factory=dict)
    coarse: Mapping[int, Mapping[Any, tuple[Any, ...]]] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of groups on each axis."""
        return tuple(len(cells.keys) for cells in self.cells)

    def boxes_of(self, condition: Condition) -> list[Box]:
        """Disjoint boxes of a term's condition, WHERE included."""
        if condition not in self.boxes:
            combined = every([self.where, _assign(condition, self.settled)])
            self.boxes[condition] = disjoint_boxes(
                combined, self.classes, [cells.patterns for cells in self.cells]
            )
        return self.boxes[condition]

    def boxes_for(self, term: Term) -> list[Box]:
        """The boxes of a term's condition, weighed by its factor."""
        boxes, factor = self.boxes_of(term.condition), term.factor
        if factor is None:
            return boxes
        at, number = next(
            (i, q.factors.index(factor)) for i, q in enumerate(self.questions) if factor in q.factors
        )
        return [(*box[:at], axis_query.WeightedValues(box[at], number), *box[at + 1 :]) for box in boxes]  # type: ignore[arg-type]

    @property
    def edges(self) -> Edges:
        """Runs of leaves of each axis, the columns of its masks."""
        return tuple(cells.edges for cells in self.cells)

    @property
    def by_leaf(self) -> ViewPlan:
        """The same with masks of leaves on every axis."""
        return replace(self, cells=tuple(cells.by_leaf for cells in self.cells))

    def box_masks(self, box: Box) -> list[axis_query.FloatArray]:
        """Masks of a box, one array (groups on the axis, runs of leaves) for each axis."""
        return [axis_query.masks(cells, truths) for cells, truths in zip(self.cells, box, strict=True)]


def views_of(release: Release) -> list[ReleaseView]:
    """The release's views, by name; statistics of a view on other axes than its rows stand apart."""
    by_view: dict[tuple[str, tuple[int, ...]], dict[MeasureName, StatisticMeta]] = {}
    for statistic in release.statistics:  # people may be counted on axes of their own
        answering = by_view.setdefault((statistic.view, statistic.axes), {})
        if not statistic.cut:
            answering[statistic.measure] = statistic
    views = []
    for (name, axes), statistics in sorted(by_view.items(), key=lambda item: item[0]):
        if not statistics:
            continue
        first = next(iter(statistics.values()))
        views.append(ReleaseView(name, first.of, axes, statistics, first.cells))
    return views


def plan_of_leaves(release: Release, view: ReleaseView, selections: Sequence[range]) -> ViewPlan:
    """The plan of one number: a view's own cells over some leaves of each of its axes."""
    cells = []
    for axis, leaves in zip(view.axes, selections, strict=True):
        zeros, whole = np.zeros(len(leaves), np.int64), np.ones(len(leaves))
        at, size = np.array(leaves, np.int64), release.axes[axis].leaves
        cells.append(axis_query.AxisCells(size, ((),), (), zeros, zeros, at, whole, ((),)))
    return ViewPlan(
        view, tuple(AxisQuery(axis, ()) for axis in view.axes), tuple(cells), TRUE, ((),) * len(cells)
    )


def one_group(view: ReleaseView) -> tuple[axis_query.IntArray, ...]:
    """The index of a single answer row: the only group of each axis."""
    return tuple(np.zeros(1, np.int64) for _ in view.axes)


def needed_measures(terms: Sequence[Term], view: ReleaseView) -> bool:
    """True if a view has every statistic that the terms need."""
    return all(term.measure in view.statistics and presence(term.measure, view) is not None for term in terms)


def presence(measure: MeasureName, view: ReleaseView) -> StatisticMeta | None:
    """The count that a measure's centre is multiplied by; any statistic where the centre is 0."""
    count = view.statistics.get(measure.counted) or view.statistics.get(COUNT)
    if count is None and view.statistics[measure].mid == 0:
        return view.statistics[measure]
    return count


def conditions(block: Block, terms: Sequence[Term]) -> Iterator[Condition]:
    """All conditions of a block."""
    yield block.where
    for term in terms:
        yield term.condition


def used_columns(block: Block, terms: Sequence[Term]) -> set[int]:
    """Placeholders that a block's groups, conditions and factors read."""
    expressions = [*block.groups, *(term.factor for term in terms if term.factor is not None)]
    expressions += [p.expression for each in conditions(block, terms) for p in predicates(each)]
    return {column for expression in expressions for column in expression.columns}


class PlaceholderPosition(NamedTuple):
    """Position of a placeholder in a view: its axis and column.

    Args:
        axis: position of the axis in the view; None for a partner that every row of the release has.
        column: the column of the axis table; None where MISSING says whether a row has the partner.
    """

    axis: int | None
    column: str | None


Places = Mapping[int, PlaceholderPosition]
"""By number of the placeholder."""


def place(
    block: Block, terms: Sequence[Term], view: ReleaseView, release: Release, schema: Schema
) -> dict[int, PlaceholderPosition] | str:
    """The place of each placeholder in a view; or the first column that the view lacks.

    Columns that only MIN, MAX or a quantile asks for may lie elsewhere.
    """
    placed: dict[int, PlaceholderPosition] = {}
    for number in sorted(
        used_columns(block, terms), key=lambda number: (block.columns[number].partner, number)
    ):
        ref = block.columns[number]
        column_place = _partner(ref, view, release, schema) if ref.partner else _own_place(ref, view, schema)
        if column_place is None:
            return str(ref)
        placed[number] = column_place
    return placed


def _own_place(ref: ColumnRef, view: ReleaseView, schema: Schema) -> PlaceholderPosition | None:
    """Column of a view's axes that holds a column; None where there is none.

    An axis of times holds what is derived from them, too. Where the hour has an axis of its own, months would be cut.
    """
    held = [(view.axes.index(i), c) for i, c in schema.axis_columns(ref) if i in view.axes]
    if not held:
        return None
    position, column = min(held, key=lambda place: schema.axes[view.axes[place[0]]].columns.index(place[1]))
    return PlaceholderPosition(position, column.name)


def _partner(
    ref: ColumnRef, view: ReleaseView, release: Release, schema: Schema
) -> PlaceholderPosition | None:
    """Column of a view that indicates which rows have a partner; None where there is none.

    An axis of a table farther out does not: its MISSING holds rows that lack a partner at any hop.
    """
    path = ref.path
    if schema.complete(view.of, path):
        return PlaceholderPosition(None, None)
    columns = ((at, partner_column(path, ref.column, i, release)) for at, i in enumerate(view.axes))
    places = [PlaceholderPosition(at, column or None) for at, column in columns if column is not None]
    return min(places, key=lambda position: position.column is not None, default=None)


def partner_column(path: tuple[str, ...], key: str, number: int, release: Release) -> str | None:
    """Column of an axis that indicates which rows have a partner at the end of a path.

    Args:
        path: foreign keys from the axis's root.
        key: of the partner's table.
        number: the axis.
        release: an open release.

    Returns:
        A column of a public table's axis that is NULL exactly where a row of that table has no such partner: the
        partner's key, or a column of it whose values are never NULL. Empty where MISSING says it, None where
        nothing does.
    """
    axis = release.axes[number]
    if axis.path == path:
        return ""
    if not _leads(axis.path, path):
        return None
    columns = [column for column in axis.columns if _leads(path, column.path)]
    name = next((c.name for c in columns if c.path == path and c.column == key), None)
    if name is not None or not columns:
        return name
    filled = [f"bool_and({quoted(column.name)} IS NOT NULL)" for column in columns]
    sql = f"SELECT {', '.join(filled)} FROM axis_{number} WHERE kind = 0"
    never_null = release.kept(sql, lambda: run(release, sql).rows[0])
    return next((c.name for c, full in zip(columns, never_null, strict=True) if full), None)


def _leads(path: tuple[str, ...], beyond: tuple[str, ...]) -> bool:
    return beyond[: len(path)] == path


def make_plan(
    block: Block, terms: Sequence[Term], view: ReleaseView, placed: Places, release: Release
) -> ViewPlan:
    """Ask every axis of a view what the block asks of it."""
    settled = {
        p: not p.negated
        for condition in conditions(block, terms)
        for p in predicates(condition)
        if any(placed[c].axis is None for c in p.expression.columns)
    }
    by_axis, remaining = _by_axis(_assign(block.where, settled), placed)
    measured = (_assign(term.condition, settled) for term in terms)
    in_conditions = {p for condition in [remaining, *measured] for p in predicates(condition)}
    class_predicates = sorted(in_conditions, key=repr) if in_conditions else []
    questions = []
    for position, axis in enumerate(view.axes):
        classes = [p for p in class_predicates if _position(p.expression.columns, placed) == position]
        groups = tuple(g for g in block.groups if _position(g.columns, placed) == position)
        # that a row has the partner of the axis, and so is not in MISSING, is `inner`
        of_partner = {
            c
            for c, column_place in placed.items()
            if block.columns[c].partner and column_place.column is None
        }
        filters = tuple(
            p for p in by_axis.get(position, ()) if p.negated or not p.expression.columns & of_partner
        )
        weighing = dict.fromkeys(term.factor for term in terms if term.factor is not None)
        factors = tuple(factor for factor in weighing if _position(factor.columns, placed) == position)
        tested = (p.expression for p in [*classes, *filters])
        used = {c for e in [*groups, *tested, *factors] for c in e.columns}
        stored = {c for c in used if not block.columns[c].partner}
        columns = tuple((c, str(placed[c].column)) for c in sorted(stored))
        partners = tuple((c, placed[c].column) for c in sorted(used - stored))
        inner = has_partner(block, release.axes[axis])
        if groups and axis_query.cannot_leave(release.axes[axis]):
            filters = (*filters, IN_DOMAIN)
        questions.append(AxisQuery(axis, columns, filters, groups, tuple(classes), inner, factors, partners))
    cells = tuple(axis_query.ask_axis(release, question) for question in questions)
    plan = ViewPlan(view, tuple(questions), cells, remaining, tuple(q.classes for q in questions), settled)
    if not all(isinstance(release.reading(s.id), ProductReading) for s in view.statistics.values()):
        plan = plan.by_leaf
    if prod(plan.shape) > MAX_GROUPS:
        raise NotSupportedError(
            f"the statement has more than {MAX_GROUPS} groups",
            hint="declare the truth of its comparison as a column" if block.ties else "group more coarsely",
        )
    return plan


IN_DOMAIN = Predicate(Expression("dp_kind <> 3", frozenset()))


def has_partner(block: Block, axis: AxisMeta) -> bool:
    """True if no row of a block lies in an axis's MISSING: its conditions say that a row has the partner."""
    return requires_partner(block, axis.path) and axis.missing_leaf is not None and bool(axis.path)


def requires_partner(block: Block, path: tuple[str, ...]) -> bool:
    """True if a block's conditions say that each row has a partner at the end of a path."""
    tests = [test for test in conjuncts(block.where) if isinstance(test, Predicate) and not test.negated]
    refs = [block.columns[c] for operand in tests for c in operand.expression.columns]
    return any(ref.partner and _leads(path, ref.path) for ref in refs)


def _by_axis(where: Condition, placed: Places) -> tuple[dict[int, list[Predicate]], Condition]:
    """Parts of an AND that are one predicate on one axis, by axis; and the rest."""
    by_axis: dict[int, list[Predicate]] = {}
    remaining: list[Condition] = []
    for operand in conjuncts(where):
        if isinstance(operand, Predicate):
            by_axis.setdefault(_position(operand.expression.columns, placed), []).append(operand)
        else:
            remaining.append(operand)
    return by_axis, every(remaining)


def _position(columns: frozenset[int], placed: Places) -> int:
    """The one axis of an expression; an expression without columns may stand on any."""
    positions = {axis for c in columns if (axis := placed[c].axis) is not None}
    if len(positions) > 1:
        raise NotSupportedError(
            "an expression inside an aggregate ties two axes together",
            hint="put it into WHERE or GROUP BY, or compare each column with a constant",
        )
    return positions.pop() if positions else 0


def predicted(plan: ViewPlan, terms: Sequence[Term], release: Release) -> float:
    """Mean predicted variance of the terms over a few groups; what views are compared by."""
    total = 0.0
    for term in terms:
        for box in plan.boxes_for(term):
            chosen = [
                mask[np.linspace(0, len(mask) - 1, SAMPLE).astype(int)]
                for mask in plan.box_masks(box)
                if len(mask)
            ]
            if len(chosen) == len(plan.cells):
                statistic = plan.view.statistics[term.measure]
                covariance = on_runs(release.reading(statistic.id), plan.edges).covariance(chosen)
                total += float(np.mean(covariance.noise + covariance.within_leaf))
    return total


def no_view(
    block: Block, said: Sequence[str], schema: Schema, lacking: int | None = None, wanted: str = ""
) -> NoViewError:
    """The refusal that names what is lacking, view by view, and points at the expression that needs it.

    Args:
        block: the question.
        said: what each view lacks.
        schema: the star.
        lacking: the number of a column that the nearest view lacks.
        wanted: the view that would answer it, as YAML; empty where none would.
    """
    why = "; ".join(said) if said else f"no view counts rows of {block.root}"
    people = () if schema.unit is None else schema.unit.columns.get(block.root.lower(), ())
    named = next((ref for ref in block.columns if ref in people), None)
    view = f"the view `{wanted}`" if wanted else "a view with it"
    hint = "" if said else schema.people_hint(block.root)
    hint = hint or f"drop what is missing, or ask the curator for {view}"
    if lacking is not None and block.columns[lacking].partner and not wanted:
        path = block.columns[lacking].path
        hop = next(hop for hop in range(len(path)) if not schema.complete(block.root, path[: hop + 1]))
        key = f"tables.{schema.end_of(block.root, path[:hop])}.foreign_keys.{path[hop]}"
        hint = f"count all rows without the join, or ask the curator for `on_missing: drop` at {key}"
    if named is not None:
        why = f"{named} identifies people, and no answer lists them"
        hint = (
            f"COUNT(DISTINCT {named.column}) counts each of them once, and takes the same WHERE and GROUP BY"
        )
    error = NoViewError(f"no view can answer: {why}"[:600], hint=hint)
    nearest = schema.example(block.root)
    where_expressions = [p.expression for p in predicates(block.where)]
    places = [
        (clause, each.span)
        for clause, expressions in (("GROUP BY", block.groups), ("WHERE", where_expressions))
        for each in expressions
        if lacking in each.columns and each.span is not None
    ]
    return error.at(*(places[-1] if places else ("FROM", block.span)), nearest)


def wanted_view(
    block: Block,
    terms: Sequence[Term],
    catalog: Catalog,
    widths: Callable[[str, str], str] = lambda table, column: "",
) -> str:
    """One line below `views:`; empty where no view would answer.

    Args:
        block: the question.
        terms: what it counts and sums.
        catalog: the release's catalog.
        widths: table and column -> the width of the leaves wanted; empty as the catalog cuts them.
    """
    of = next((name for name in catalog.tables if name.lower() == block.root.lower()), None)
    if of is None or catalog.tables[of].is_public:
        return ""
    refs = [block.columns[number] for number in sorted(used_columns(block, terms))]
    shown = [ref for ref in refs if not ref.partner]
    axes: dict[str, list[str]] = {}
    cuts: dict[str, str] = {}
    tables = reachable(catalog, of)
    joins = [ref for ref in refs if ref.partner and not any(_leads(ref.path, s.path) for s in shown)]
    for ref in (*shown, *joins):
        # the first public table on the way to the column
        hops = (ref.path[:n] for n in range(1, len(ref.path) + 1))
        path = next((hop for hop in hops if hop in tables and catalog.tables[tables[hop]].is_public), None)
        if path is None:
            columns = catalog.tables[ref.table].columns
            column = next((c for c in columns if columns[c].has_domain), "") if ref.partner else ref.column
            if not column:
                return ""  # no axis says which rows find a private row without columns
            name = f"{place_name(catalog, of, ref.path)}.{column}"
            axes[name], cuts[name] = [], widths(ref.table, column)
        else:
            axes.setdefault(place_name(catalog, of, path), []).append(ref.column)
    if not axes:
        return ""
    written = ", ".join(
        f"{{axis: {axis}, by: [{', '.join(by)}]}}" if by
        else f"{{axis: {axis}, cuts: {{width: {cuts[axis]}}}}}" if cuts[axis]
        else axis
        for axis, by in axes.items()
    )  # fmt: skip
    name = "_by_".join((by or [axis.rpartition(".")[2]])[-1] for axis, by in axes.items())
    measures = ", ".join(dict.fromkeys([COUNT, *(term.measure for term in terms)]))
    return f"{name}: {{of: {of}, axes: [{written}], measures: [{measures}]}}"
