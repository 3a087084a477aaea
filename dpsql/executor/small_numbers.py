"""The rule of small numbers, `privacy: {min_people: k}`: no number, and no end of one, of fewer than k people.

| a number of | people, an estimate |
|---|---|
| a count or sum under a condition | the view's `people` under it, else its rows over `max_ids`, 1 of `unit: row` |
| rows that an expression weighs | the same, each row weighed by its part of the largest weight |
| a difference of overlapping counts or sums | the difference of theirs, over the largest weight |
| a quantile | its running count's total |
| an outer SUM | those of its groups together |

A block's hidden numbers are NULL in its relation, so that the outer statement, which DuckDB runs, cannot sort, compare
or join by them. Whatever the outer statement makes of one is NULL too; but a plain SUM of one column of one block is
added up here, from the block's estimates, if its people are k or more. Differences are followed as far as errors are
(`sql.carry`); what nobody can follow is NULL in rows with a hidden number. Whoever subtracts two shown numbers by hand,
or opens the file, sees more: no privacy claim rests on this rule.

**Privacy**: post-processing of released numbers. The estimates carry noise: a group of k people may be hidden, and one
of k - 1 shown.
**Source**: docs/small-numbers.md, "What the rule does, and what it does not".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from dpsql.catalog.graph import PEOPLE, is_count
from dpsql.errors import NotSupportedError
from dpsql.executor.recombine import TermEstimates, answer_terms
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, LOW
from dpsql.planner.axis_query import AtomFactor, AxisCells, FloatArray
from dpsql.planner.block import Block, Form, Linear, Value, one
from dpsql.planner.plan import ViewPlan
from dpsql.planner.terms import Term, every
from dpsql.release import Release
from dpsql.release.request import check
from dpsql.sql.carry import STEP, WHOLE, LineageColumns, place_of
from dpsql.sql.dependence import Unknown

BoolArray = npt.NDArray[np.bool_]
Row = tuple[Any, ...]
REASON = "<{0}: of fewer than {0} people by the noisy estimate; NULL wherever the statement sorts or compares"


class BlockNumbers(Protocol):
    """A block's answer: `executor.relation.Relation`, which documents each member."""

    @property
    def block(self) -> Block:
        """The block."""

    @property
    def min_people(self) -> int:
        """The rule's number."""

    @property
    def conceals(self) -> bool:
        """True if some number is hidden."""

    def answered_for(self, form: Value) -> TermEstimates | None:
        """The plan that holds all terms of a form."""

    def hidden(self, form: Form) -> BoolArray:
        """Groups whose number is hidden."""


def rows_of_a_person(release: Release, of: str) -> float:
    """Most rows of a table that count for one person; infinite where publishing chose it and no scale says."""
    bound = (release.meta.privacy.rows_per_unit or {}).get(of, 1)
    if isinstance(bound, int):
        return float(bound)
    return float(release.scales[of].tau) if of in release.scales else np.inf


class PeopleEstimate(NamedTuple):
    """The people behind a term, in each row of its answers, and the lower ends of their 95% intervals.

    NaN where the view counts neither people nor rows, and where an end is open.
    """

    people: FloatArray
    low: FloatArray


def people_of(term: Term, answered: TermEstimates) -> PeopleEstimate:
    """The people behind a term of some answers."""
    if term not in answered.people:
        answered.people[term] = _estimate(term, answered)
    estimate: PeopleEstimate = answered.people[term]
    return estimate


def _estimate(term: Term, answered: TermEstimates) -> PeopleEstimate:
    plan, release, statistics = answered.plan, answered.errors.release, answered.plan.view.statistics
    of_values = term.measure if is_count(term.measure) else f"count({term.measure})"
    measure = next((name for name in (PEOPLE, of_values, "count") if name in statistics), None)
    if measure is None:
        return PeopleEstimate(*np.full((2, answered.errors.rows), np.nan))
    counting = replace(term, measure=measure)
    rows = 1.0 if measure == PEOPLE else rows_of_a_person(release, plan.view.of)
    if term.factor is not None or counting not in answered.totals:
        plan = replace(plan, cells=tuple(map(_by_largest_weight, plan.cells)))
        answered = answer_terms(plan, [counting], answered.errors.index, release)
    low = LOW.values(Composite.of_form(one(counting), answered), DEFAULT_LEVEL)
    return PeopleEstimate(answered.totals[counting] / rows, low / rows)


def _by_largest_weight(cells: AxisCells) -> AxisCells:
    """Cells whose factors are the size of each weight over the largest of the group: 1e6 on one leaf hides others."""
    factors = []
    for factor in cells.factors:
        size = np.maximum(np.abs(factor.low), np.abs(factor.high))
        largest = np.zeros(len(cells.keys))
        np.maximum.at(largest, cells.group, size)
        part = size / np.where(largest > 0, largest, 1.0)[cells.group]
        factors.append(AtomFactor(part * cells.coverage, part, part))
    return replace(cells, factors=tuple(factors))


def is_few(term: Term, answered: TermEstimates) -> BoolArray:
    """Rows of answers whose term is of fewer people than the rule lets be shown; NaN is."""
    k = answered.errors.release.min_people
    return ~(people_of(term, answered).people >= k) if k else np.zeros(answered.errors.rows, np.bool_)


def shown(answered: TermEstimates) -> TermEstimates:
    """The rows of which every term may be shown: of these alone notes and plans print numbers."""
    few = [is_few(term, answered) for term in list(answered.totals)]
    return answered.at(np.flatnonzero(~np.any(few, axis=0))) if np.any(few) else answered


def hidden_rows(form: Form, answered: TermEstimates | None, rows: int) -> BoolArray:
    """Rows of a block whose number is of fewer people than the rule lets be shown."""
    hidden = np.zeros(rows, np.bool_)
    if answered is None:  # NULL in every row
        return hidden
    k = answered.errors.release.min_people
    for term in form.terms if k else ():
        hidden = hidden | is_few(term, answered)
    for side in form.sides if k else ():
        weights = side.weights
        apart = all(
            a * b >= 0 or _apart(answered.plan, left, right) for left, a in weights for right, b in weights
        )
        if not apart:
            hidden = hidden | _few_left(
                ((term, w, people_of(term, answered).people) for term, w in weights), k
            )
    return hidden


def few_counted(counts: Sequence[Any], of: str, release: Release) -> BoolArray:
    """Groups whose counted rows, of a quantile, are of fewer people."""
    people = [float(np.sum(rows)) / rows_of_a_person(release, of) for rows in counts]
    return np.array([not each >= release.min_people for each in people], np.bool_)


def _few_left(weights: Iterable[tuple[Term, float, Any]], k: int) -> Any:
    """True where counts, or sums of one column, that are taken from each other leave fewer than k people.

    A difference of a sum of prices and one of costs is no difference of people.
    """
    kinds: dict[str, list[tuple[float, Any]]] = {}
    for term, weight, people in weights:
        kinds.setdefault("" if is_count(term.measure) else term.measure, []).append((weight, people))
    few = np.bool_(False)
    for kind in kinds.values():
        if min(weight for weight, _ in kind) < 0 < max(weight for weight, _ in kind):
            net = sum(weight * people for weight, people in kind)
            few = few | ~(np.abs(net) >= k * max(abs(weight) for weight, _ in kind))
    return few


def _apart(plan: ViewPlan, left: Term, right: Term) -> bool:
    """True if no row meets the conditions of both."""
    try:
        return not plan.boxes_of(every([left.condition, right.condition]))
    except NotSupportedError:  # too many boxes to say
        return False


def marks(form: Form, hidden: BoolArray, answered: TermEstimates | None) -> list[int]:
    """For each row the rule's number where the number is hidden, the same negative where it may have to be, else 0."""
    k, doubtful = 0, np.zeros(len(hidden), np.bool_)
    if answered is not None:
        k = answered.errors.release.min_people
        for term in form.terms if k else ():
            doubtful = doubtful | ~(people_of(term, answered).low >= k)
    return np.where(hidden, k, np.where(doubtful, -k, 0)).tolist()  # type: ignore[no-any-return]


def without(values: list[Any], hidden: BoolArray) -> list[Any]:
    """Values, NULL where hidden."""
    return [None if is_hidden else value for is_hidden, value in zip(hidden, values, strict=True)]


class Verdict(NamedTuple):
    """A number of an outer statement: whether it is hidden; else its value where the groups' hidden ones are in it."""

    hidden: bool
    total: float | None = None


SHOWN, HIDDEN = Verdict(False), Verdict(True)


def verdict(column: LineageColumns, row: Row, blocks: Sequence[BlockNumbers]) -> Verdict:
    """Judge one number of an outer statement by the cells that it follows.

    Args:
        column: where its cells are in the row.
        row: of a statement that carries cells, which saw no hidden number.
        blocks: the blocks' answers.
    """
    if column.extreme is not None:
        members = [tuple(value.values()) for value in row[column.at[0]] or ()]
        return HIDDEN if any(verdict(column.member, m, blocks).hidden for m in members) else SHOWN
    cells = row[column.at[0]] or []
    if any(_is_hidden(cell, blocks) for cell in cells):
        return _sum_of_groups(cells, blocks) if column.follows.plain else HIDDEN
    if column.follows.near:
        return SHOWN
    # of a share both sides are judged: by its derivatives it is always a difference
    places = (0,) if column.follows.quotient is None else (3, 6)
    pairs = [(row[column.at[i]] or [], row[column.at[i + 1]] or []) for i in places]
    return HIDDEN if any(_leaves_few(*lists, blocks) for lists in pairs) else SHOWN


def of_shown(
    errors: list[Any], column: LineageColumns, rows: Sequence[Row], blocks: Sequence[BlockNumbers]
) -> list[Any]:
    """Errors of numbers inside of a statement, NULL of those that are hidden, or that hold hidden ones."""
    if not any(block.min_people for block in blocks):
        return errors
    verdicts = [verdict(column, row, blocks) for row in rows]
    return [error if judged == SHOWN else None for error, judged in zip(errors, verdicts, strict=True)]


def _is_hidden(cell: int, blocks: Sequence[BlockNumbers]) -> bool:
    (block, value, _), row = place_of(cell % STEP), cell // STEP
    subject = blocks[block].block.values[value].subject
    return subject is not None and bool(blocks[block].hidden(subject)[row])


def _sum_of_groups(cells: Sequence[int], blocks: Sequence[BlockNumbers]) -> Verdict:
    """A SUM over different groups of one column of one block, with its hidden ones, if their people are k or more."""
    (block, value, part), *others = {place_of(cell % STEP) for cell in cells}
    numbers, rows = blocks[block], [cell // STEP for cell in cells]
    form = numbers.block.values[value]
    answered = numbers.answered_for(form)
    same = others or part != WHOLE or len(set(rows)) < len(rows)  # two blocks may count the same people
    if same or answered is None or not isinstance(form, Linear) or len(form.terms) != 1:
        return HIDDEN
    people = float(np.sum(people_of(form.terms[0], answered).people[rows]))
    return (
        Verdict(False, float(np.sum(answered.value(form)[rows]))) if people >= numbers.min_people else HIDDEN
    )


def _leaves_few(cells: Sequence[int], weights: Sequence[float], blocks: Sequence[BlockNumbers]) -> bool:
    """True if numbers of several blocks, or several values of one, are taken from each other and leave few people."""
    net: dict[int, float] = {}
    for cell, weight in zip(cells, weights, strict=True):
        net[cell] = net.get(cell, 0.0) + float("nan" if weight is None else weight)
    largest = max(map(abs, net.values()), default=0.0)
    net = {cell: weight for cell, weight in net.items() if not abs(weight) <= ROUNDING * largest}
    if len({cell % STEP for cell in net}) < 2:
        return False  # groups of one column are apart
    left: list[tuple[Term, float, Any]] = []
    for cell, weight in net.items():
        (block, value, part), row = place_of(cell % STEP), cell // STEP
        form = blocks[block].block.values[value]
        answered = blocks[block].answered_for(form)
        for term, factor in form.sides[max(0, part - 1)].weights if answered is not None else ():
            left.append((term, weight * factor, people_of(term, answered).people[row]))  # type: ignore[arg-type]
    return bool(_few_left(left, max(block.min_people for block in blocks)))


ROUNDING = 1e-9
"""Part of the largest weight that is rounding of weights which cancel."""


class Judged(NamedTuple):
    """Rows of an outer statement by the rule.

    Args:
        rows: the answer's, with hidden numbers NULL, and sums of groups with their hidden ones.
        lines: the same with the cells that they follow; None where not known, empty where no column follows any.
        hidden: for each column that noise moves, which of its numbers are hidden.
    """

    rows: list[Row]
    lines: list[Row | None]
    hidden: dict[int, list[bool]]


Judgeable = Mapping[int, Form] | LineageColumns | Unknown | None
"""A column by the forms of its blocks, by its cells, by nothing that is known, or without noise."""


def judge(
    rows: Sequence[Row], lines: Sequence[Row | None], columns: Sequence[Judgeable], carriers: Sequence[int],
    blocks: Sequence[BlockNumbers],
) -> Judged:  # fmt: skip
    """Judge every number of an outer statement.

    Args:
        rows: the answer's, which no hidden number of a block was in; the blocks' row numbers follow the columns.
        lines: the same with their cells; empty where no column has any.
        columns: for each column what is known of it.
        carriers: the block of each of these row numbers.
        blocks: the blocks' answers.
    """
    values, followed = [list(row) for row in rows], [None if line is None else list(line) for line in lines]
    hidden = {c: [False] * len(rows) for c, column in enumerate(columns) if column is not None}
    for c, r in ((c, r) for c in hidden for r in range(len(rows))):
        check()
        column, line = columns[c], lines[r] if lines else None
        if isinstance(column, LineageColumns):
            judged = HIDDEN if line is None else verdict(column, line, blocks)
        else:
            judged = _of_groups(column or {}, zip(carriers, rows[r][len(columns) :], strict=False), blocks)
        if judged == SHOWN:
            continue
        values[r][c], hidden[c][r] = judged.total, judged.hidden
        changed = followed[r] if followed else None
        if isinstance(column, LineageColumns) and changed is not None:
            changed[c] = judged.total
            if judged.total is not None:  # hidden cells have no weight in what DuckDB saw
                changed[column.at[1]] = [1.0] * len(changed[column.at[1]])
    return Judged(
        list(map(tuple, values)), [None if line is None else tuple(line) for line in followed], hidden
    )


def _of_groups(
    column: Mapping[int, Form] | Unknown,
    groups: Iterable[tuple[int, int | None]],
    blocks: Sequence[BlockNumbers],
) -> Verdict:
    """A number of rows of blocks: by its form, else by all numbers of these rows, or of all where it is of no row."""
    places = [(blocks[block], block, row) for block, row in groups]
    if isinstance(column, Unknown) and not places:
        return HIDDEN if any(block.conceals for block in blocks) else SHOWN
    for numbers, block, row in places:
        subjects = [value.subject for value in numbers.block.values]
        forms = subjects if isinstance(column, Unknown) else [column.get(block)]
        if row is not None and any(form is not None and numbers.hidden(form)[row] for form in forms):
            return HIDDEN
    return SHOWN
