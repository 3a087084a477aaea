"""How a block would be answered on a view: which of its axes hold the columns used, and which leaves are taken.

A view over the block's root table can answer if it has an axis for each column used, and one for each inner join.

A condition over several axes falls into disjoint boxes. A box takes on each axis some truth patterns of that axis's
predicates. An axis is split by its patterns, the rest of the condition is simplified under each, and patterns that
leave the same rest are put together; so boxes never overlap and their sums add up.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpsql.answer.block import (
    FALSE,
    TRUE,
    Always,
    Block,
    Condition,
    Every,
    Predicate,
    Term,
    every,
    predicates,
    some,
)
from dpsql.answer.leafsets import AxisCells, AxisQuestion, FloatArray, Taken, Weighed, ask_axis, masks
from dpsql.answer.schema import Schema
from dpsql.errors import NotSupportedError, NoViewError
from dpsql.release import Release, StatisticMeta

MAX_BOXES = 64
"""Each box is one more join; 64 keep the slowest statement under a second."""

Box = tuple[Taken, ...]
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
        known = dict(zip(classes[axis], truths, strict=True))
        rests.setdefault(_assign(condition, known), set()).add(number)
    boxes: list[Box] = []
    for rest, numbers in rests.items():
        boxes += [(frozenset(numbers), *box) for box in _split(rest, classes, patterns, axis + 1)]
        if len(boxes) > 4 * MAX_BOXES:
            break
    return boxes


def _assign(condition: Condition, known: Mapping[Predicate, bool]) -> Condition:
    """The condition once some predicates are known."""
    if isinstance(condition, Predicate):
        return Always(known[condition]) if condition in known else condition
    if isinstance(condition, Always):
        return condition
    parts = [_assign(part, known) for part in condition.parts]
    return every(parts) if type(condition).__name__ == "Every" else some(parts)


MAX_GROUPS = 1_000_000
SAMPLE = 8
"""Groups whose variance is compared between views."""


@dataclass(frozen=True)
class View:
    """The statistics of one view: measure -> statistic."""

    name: str
    of: str
    axes: tuple[int, ...]
    statistics: Mapping[str, StatisticMeta]
    cells: int


@dataclass(frozen=True, eq=False)
class Plan:
    """How a block is answered on one view.

    Args:
        view: the view.
        questions: what each of its axes is asked, in the view's order.
        cells: the answers.
        order: axis positions in the order in which groups vary, slowest first.
        where: what is left of WHERE after each axis's own part.
        classes: predicates told apart on each axis.
        boxes: term condition -> its disjoint boxes.
    """

    view: View
    questions: tuple[AxisQuestion, ...]
    cells: tuple[AxisCells, ...]
    where: Condition
    classes: tuple[tuple[Predicate, ...], ...]
    boxes: dict[Condition, list[Box]] = field(default_factory=dict)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of groups on each axis."""
        return tuple(len(cells.keys) for cells in self.cells)

    def boxes_of(self, condition: Condition) -> list[Box]:
        """Disjoint boxes of a term's condition, WHERE included."""
        if condition not in self.boxes:
            whole = every([self.where, condition])
            self.boxes[condition] = disjoint_boxes(
                whole, self.classes, [cells.patterns for cells in self.cells]
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
        return [(*box[:at], Weighed(box[at], number), *box[at + 1 :]) for box in boxes]  # type: ignore[arg-type]

    def box_masks(self, box: Box) -> list[FloatArray]:
        """Leaf masks of a box, one array (groups on the axis, leaves) for each axis."""
        return [masks(cells, truths) for cells, truths in zip(self.cells, box, strict=True)]


def views_of(release: Release) -> list[View]:
    """The release's views, by name; statistics of a view on other axes than its rows stand apart."""
    found: dict[tuple[str, tuple[int, ...]], dict[str, StatisticMeta]] = {}
    for statistic in release.statistics:  # people may be counted on axes of their own
        found.setdefault((statistic.view, statistic.axes), {})[statistic.measure] = statistic
    views = []
    for (name, axes), statistics in sorted(found.items()):
        first = next(iter(statistics.values()))
        views.append(View(name, first.of, axes, statistics, first.cells))
    return views


def needed_measures(terms: Sequence[Term], view: View) -> bool:
    """Whether a view has every statistic that the terms need."""
    return all(term.measure in view.statistics and presence(term.measure, view) is not None for term in terms)


def presence(measure: str, view: View) -> StatisticMeta | None:
    """The count that a measure's centre is multiplied by; any statistic where the centre is 0."""
    own = view.statistics.get(f"count({measure})")
    count = own or view.statistics.get("count")
    if count is None and view.statistics[measure].mid == 0:
        return view.statistics[measure]
    return count


def conditions(block: Block, terms: Sequence[Term]) -> Iterator[Condition]:
    """All conditions of a block."""
    yield block.where
    for term in terms:
        yield term.condition


def place(
    block: Block, terms: Sequence[Term], view: View, release: Release, schema: Schema
) -> dict[int, tuple[int, str]] | str:
    """Which axis position and column each placeholder has in a view; or the first column it lacks.

    Columns that only MIN, MAX or a quantile asks for may lie elsewhere.
    """
    placed: dict[int, tuple[int, str]] = {}
    used = {c for group in block.groups for c in group.columns}
    used |= {c for each in conditions(block, terms) for p in predicates(each) for c in p.expression.columns}
    used |= {c for term in terms if term.factor is not None for c in term.factor.columns}
    for number in sorted(used):
        ref = block.columns[number]
        found = [
            (view.axes.index(i), column.name) for i, column in schema.axis_columns(ref) if i in view.axes
        ]
        if not found:
            return str(ref)
        placed[number] = found[0]
    for join in block.joins:
        if join.inner and not _joined(join.path, view, release):
            return f"the join along {'.'.join(join.path)}"
    return placed


def _joined(path: tuple[str, ...], view: View, release: Release) -> bool:
    """Whether a view can leave out rows without a partner: an axis through the path, or none missing."""
    low = tuple(part.lower() for part in path)
    for i in view.axes:
        axis = release.axes[i]
        if any(tuple(p.lower() for p in column.path)[: len(low)] == low for column in axis.columns):
            return True
        if tuple(p.lower() for p in axis.path)[: len(low)] == low:
            return True
    return any(
        tuple(p.lower() for p in axis.path) == low and axis.missing_leaf is None for axis in release.axes
    )


def make_plan(
    block: Block, terms: Sequence[Term], view: View, placed: Mapping[int, tuple[int, str]], release: Release
) -> Plan:
    """Ask every axis of a view what the block asks of it."""
    own, rest = _by_axis(block.where, placed)
    others = {p for condition in [rest, *(term.condition for term in terms)] for p in predicates(condition)}
    questions = []
    for position, axis in enumerate(view.axes):
        mine = [p for p in sorted(others, key=repr) if _axis_of(p, placed) == position]
        groups = tuple(g for g in block.groups if _position(g.columns, placed) == position)
        filters = tuple(own.get(position, ()))
        weighing = dict.fromkeys(term.factor for term in terms if term.factor is not None)
        factors = tuple(each for each in weighing if _position(each.columns, placed) == position)
        tested = (p.expression for p in [*mine, *filters])
        used = {c for e in [*groups, *tested, *factors] for c in e.columns}
        meta = release.axes[axis]
        inner = meta.missing_leaf is not None and bool(meta.path) and block.inner(meta.path)
        columns = tuple((c, placed[c][1]) for c in sorted(used))
        questions.append(AxisQuestion(axis, columns, filters, groups, tuple(mine), inner, factors))
    cells = tuple(ask_axis(release, question) for question in questions)
    plan = Plan(view, tuple(questions), cells, rest, tuple(q.classes for q in questions))
    if int(np.prod([float(g) for g in plan.shape])) > MAX_GROUPS:
        raise NotSupportedError(
            f"the statement has more than {MAX_GROUPS} groups", hint="group more coarsely"
        )
    return plan


def _by_axis(
    where: Condition, placed: Mapping[int, tuple[int, str]]
) -> tuple[dict[int, list[Predicate]], Condition]:
    """Parts of an AND that are one predicate on one axis, by axis; and the rest."""
    parts = where.parts if isinstance(where, Every) else (where,)
    own: dict[int, list[Predicate]] = {}
    rest: list[Condition] = []
    for part in parts:
        if isinstance(part, Predicate):
            own.setdefault(_axis_of(part, placed), []).append(part)
        else:
            rest.append(part)
    return own, every(rest)


def _axis_of(predicate: Predicate, placed: Mapping[int, tuple[int, str]]) -> int:
    return _position(predicate.expression.columns, placed)


def _position(columns: frozenset[int], placed: Mapping[int, tuple[int, str]]) -> int:
    """The one axis of an expression; an expression without columns may stand on any."""
    positions = {placed[c][0] for c in columns}
    if len(positions) > 1:
        raise NotSupportedError(
            "an expression inside an aggregate ties two axes together",
            hint="put it into WHERE or GROUP BY, or compare each column with a constant",
        )
    return positions.pop() if positions else 0


def predicted(plan: Plan, terms: Sequence[Term], release: Release) -> float:
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
                found = release.reading(statistic.id).covariance(chosen)
                total += float(np.mean(found.noise + found.within_leaf))
    return total


def no_view(block: Block, said: Sequence[str], lacking: int | None = None, wanted: str = "") -> NoViewError:
    """The refusal that names what is lacking, view by view, and points at the expression that needs it.

    Args:
        block: the question.
        said: what each view lacks.
        lacking: the number of a column that the nearest view lacks.
        wanted: the view that would answer it, as YAML.
    """
    why = "; ".join(said) if said else f"no view counts rows of {block.root}"
    error = NoViewError(
        f"no view can answer: {why}"[:600],
        hint=f"leave out what is lacking, or ask the curator for the view `{wanted}`"
        if wanted
        else "leave out what is lacking, or ask the curator for a view with it",
    )
    nearest = f"SELECT COUNT(*) FROM {block.root}"
    asked = [p.expression for p in predicates(block.where)]
    places = [
        (clause, each.span)
        for clause, expressions in (("GROUP BY", block.groups), ("WHERE", asked))
        for each in expressions
        if lacking in each.columns and each.span is not None
    ]
    return error.at(*(places[-1] if places else ("FROM", block.span)), nearest)
