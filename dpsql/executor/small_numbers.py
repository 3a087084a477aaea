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
**Source**: docs/privacy/small-numbers.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.catalog.graph import PEOPLE, is_count
from dpsql.errors import NotSupportedError
from dpsql.executor.recombine import TermEstimates, answer_terms
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, LOW
from dpsql.planner.axis_query import AtomFactor, AxisCells, FloatArray
from dpsql.planner.block import CatalogValue, Form, Linear, one
from dpsql.planner.plan import ViewPlan
from dpsql.planner.terms import Term, every
from dpsql.release import Release
from dpsql.release.request import check
from dpsql.sql.carry import STEP, WHOLE, LineageColumns, place_of
from dpsql.sql.dependence import Unknown

if TYPE_CHECKING:
    from dpsql.executor.relation import Relation

BoolArray = npt.NDArray[np.bool_]
Row = tuple[Any, ...]
REASON = "<{0}: of fewer than {0} people by the noisy estimate, and not shown"


def rows_of_a_person(release: Release, of: str) -> float:
    """Most rows of a table that count for one person; infinite where publishing chose it and no scale says."""
    bound = (release.meta.privacy.rows_per_unit or {}).get(of, 1)
    if isinstance(bound, int):
        return float(bound)
    return float(release.scales[of].tau) if of in release.scales else np.inf


class PeopleEstimate(NamedTuple):
    """The people behind a term, in each row of a block.

    Args:
        answered: answers that hold the term which counts them.
        term: that term.
        rows: rows of one person that it counts.
    """

    answered: TermEstimates
    term: Term
    rows: float

    @property
    def people(self) -> FloatArray:
        return self.answered.totals[self.term] / self.rows

    @property
    def low(self) -> FloatArray:
        """Lower ends of 95% intervals; NaN where open."""
        numbers = Composite.of_form(one(self.term), self.answered)
        return LOW.values(numbers, DEFAULT_LEVEL) / self.rows


def people_of(term: Term, answered: TermEstimates) -> PeopleEstimate | None:
    """The people behind a term; None where its view counts neither people nor rows."""
    if term not in answered.people:
        answered.people[term] = _estimate(term, answered)
    estimate: PeopleEstimate | None = answered.people[term]
    return estimate


def _estimate(term: Term, answered: TermEstimates) -> PeopleEstimate | None:
    plan, release = answered.plan, answered.errors.release
    statistics = plan.view.statistics
    of_values = term.measure if is_count(term.measure) else f"count({term.measure})"
    measure = next((name for name in (PEOPLE, of_values, "count") if name in statistics), None)
    if measure is None:
        return None
    counting = replace(term, measure=measure)
    rows = 1.0 if measure == PEOPLE else rows_of_a_person(release, plan.view.of)
    if term.factor is not None:
        plan = replace(plan, cells=tuple(map(_by_largest_weight, plan.cells)))
    elif counting in answered.totals:
        return PeopleEstimate(answered, counting, rows)
    return PeopleEstimate(answer_terms(plan, [counting], answered.errors.index, release), counting, rows)


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
    estimate = people_of(term, answered) if k else None
    if estimate is None:
        return np.full(answered.errors.rows, k > 0)
    return ~(estimate.people >= k)


def shown(answered: TermEstimates) -> TermEstimates:
    """The rows of which every term may be shown: of these alone notes and plans print numbers."""
    if not answered.errors.release.min_people:
        return answered
    few = [is_few(term, answered) for term in list(answered.totals)]
    return answered.at(np.flatnonzero(~np.any(few, axis=0))) if few else answered


def hidden_rows(form: Form, relation: Relation) -> BoolArray:
    """Rows of a block whose number is of fewer people than the rule lets be shown.

    Args:
        form: the number, a value of the block or one made of its values.
        relation: the block's answer.
    """
    k, hidden = relation.min_people, np.zeros(relation.answered[0].errors.rows, np.bool_)
    if isinstance(form, CatalogValue):
        prefixes = relation.prefixes.get(form, ("", []))[1]
        if not k or not prefixes:
            return hidden
        rows = rows_of_a_person(relation.answered[0].errors.release, relation.block.root)
        return np.array([not float(np.sum(prefix.counts)) / rows >= k for prefix in prefixes], np.bool_)
    answered = relation.answered_for(form)
    if not k or not form.terms or answered is None:
        return hidden
    for term in form.terms:
        hidden = hidden | is_few(term, answered)
    for side in form.sides:
        hidden |= _differences(side, answered, k)
    return hidden


def _differences(side: Linear, answered: TermEstimates, k: int) -> BoolArray:
    """Rows where counts, or sums of one column, that overlap are taken from each other and leave fewer than k."""
    small = np.zeros(answered.errors.rows, np.bool_)
    for weights in _by_kind(side.weights):
        overlaps = any(
            a * b < 0 and not _apart(answered.plan, left, right)
            for left, a in weights for right, b in weights
        )  # fmt: skip
        if overlaps:
            total = np.zeros(answered.errors.rows)
            for term, weight in weights:
                estimate = people_of(term, answered)
                total = total + (np.nan if estimate is None else weight * estimate.people)
            small |= ~(np.abs(total) >= k * max(abs(weight) for _, weight in weights))
    return small


def _by_kind(weights: Iterable[tuple[Term, float]]) -> Iterator[list[tuple[Term, float]]]:
    """Terms that count or sum the same: a difference of a sum of prices and one of costs is no difference of people."""
    kinds: dict[str, list[tuple[Term, float]]] = {}
    for term, weight in weights:
        kinds.setdefault("" if is_count(term.measure) else term.measure, []).append((term, weight))
    yield from kinds.values()


def _apart(plan: ViewPlan, left: Term, right: Term) -> bool:
    """True if no row meets the conditions of both."""
    try:
        return not plan.boxes_of(every([left.condition, right.condition]))
    except NotSupportedError:  # too many boxes to say
        return False


def doubtful_rows(form: Form, relation: Relation) -> BoolArray:
    """Rows of which some lower end of people lies below the rule's number, and which are marked where shown."""
    k, doubtful = relation.min_people, np.zeros(relation.answered[0].errors.rows, np.bool_)
    answered = None if isinstance(form, CatalogValue) else relation.answered_for(form)
    if not k or answered is None:
        return doubtful
    for term in form.terms:
        estimate = people_of(term, answered)
        doubtful |= True if estimate is None else ~(estimate.low >= k)
    return doubtful


def conceal(relation: Relation) -> Relation:
    """A block's answer with its hidden numbers and their ends NULL."""
    if not relation.min_people:
        return relation
    columns, any_hidden = list(relation.columns), False
    for number, value in enumerate(relation.block.values):
        subject = value.subject
        if subject is None or not subject.is_noisy:
            continue
        hidden, place = relation.hidden(subject), relation.names.index(f"v{number}")
        columns[place] = [None if h else cell for h, cell in zip(hidden, columns[place], strict=True)]
        any_hidden |= bool(hidden.any())
    return replace(relation, columns=tuple(columns), conceals=any_hidden)


def marks(form: Form, relation: Relation) -> list[int]:
    """For each row the rule's number where it hides the number, the same negative where it may have to, else 0."""
    k = relation.min_people
    doubtful = doubtful_rows(form, relation)
    return [k * (int(h) or -int(d)) for h, d in zip(relation.hidden(form), doubtful, strict=True)]


class Verdict(NamedTuple):
    """A number of an outer statement: whether it is hidden; else its value where the groups' hidden ones are in it."""

    hidden: bool
    total: float | None = None


SHOWN, HIDDEN = Verdict(False), Verdict(True)


def verdict(column: LineageColumns, row: Row, relations: Sequence[Relation]) -> Verdict:
    """Judge one number of an outer statement by the cells that it follows.

    Args:
        column: where its cells are in the row.
        row: of a statement that carries cells, which saw no hidden number.
        relations: the blocks' answers.
    """
    if column.extreme is not None:
        members = [tuple(value.values()) for value in row[column.at[0]] or ()]
        return HIDDEN if any(verdict(column.member, m, relations).hidden for m in members) else SHOWN
    cells = row[column.at[0]] or []
    if any(_is_hidden(cell, relations) for cell in cells):
        return _sum_of_groups(cells, relations) if column.follows.plain else HIDDEN
    pairs = [(cells, row[column.at[1]] or [])]
    if column.follows.quotient is not None:
        # of a share both sides are judged: by its derivatives it is always a difference
        pairs = [(row[column.at[i]] or [], row[column.at[i + 1]] or []) for i in (3, 6)]
    elif column.follows.near:
        return SHOWN
    return HIDDEN if any(_leaves_few(*lists, relations) for lists in pairs) else SHOWN


def of_shown(
    errors: list[Any], column: LineageColumns, rows: Sequence[Row], relations: Sequence[Relation]
) -> list[Any]:
    """Errors of numbers inside of a statement, NULL of those that are hidden, or that hold hidden ones."""
    if not any(relation.min_people for relation in relations):
        return errors
    shown = [verdict(column, row, relations) == SHOWN for row in rows]
    return [error if is_shown else None for error, is_shown in zip(errors, shown, strict=True)]


def _is_hidden(cell: int, relations: Sequence[Relation]) -> bool:
    (block, value, _), row = place_of(cell % STEP), cell // STEP
    return bool(relations[block].hidden(relations[block].block.values[value].subject)[row])  # type: ignore[arg-type]


def _sum_of_groups(cells: Sequence[int], relations: Sequence[Relation]) -> Verdict:
    """A SUM over different groups of one column of one block, with its hidden ones, if their people are k or more."""
    (block, value, part), *others = {place_of(cell % STEP) for cell in cells}
    relation, rows = relations[block], [cell // STEP for cell in cells]
    form = relation.block.values[value]
    answered = relation.answered_for(form)
    if (
        others
        or part != WHOLE
        or len(set(rows)) < len(rows)
        or answered is None
        or not isinstance(form, Linear)
    ):
        return HIDDEN
    estimate = people_of(form.terms[0], answered) if len(form.terms) == 1 else None
    if estimate is None or not float(np.sum(estimate.people[rows])) >= relation.min_people:
        return HIDDEN
    return Verdict(False, float(np.sum(answered.value(form)[rows])))


def _leaves_few(cells: Sequence[int], weights: Sequence[float], relations: Sequence[Relation]) -> bool:
    """True if numbers of several blocks, or several values of one, are taken from each other and leave few people."""
    net: dict[int, float] = {}
    for cell, weight in zip(cells, weights, strict=True):
        net[cell] = net.get(cell, 0.0) + float("nan" if weight is None else weight)
    largest = max(map(abs, net.values()), default=0.0)
    net = {cell: weight for cell, weight in net.items() if not abs(weight) <= 1e-9 * largest}
    if len({cell % STEP for cell in net}) < 2 or min(net.values()) * max(net.values()) > 0:
        return False  # groups of one column are apart
    people: dict[str, list[tuple[float, float]]] = {}
    k = max(relation.min_people for relation in relations)
    for cell, weight in net.items():
        (block, value, part), row = place_of(cell % STEP), cell // STEP
        form = relations[block].block.values[value]
        answered = relations[block].answered_for(form)
        for term, factor in form.sides[max(0, part - 1)].weights:
            estimate = None if answered is None else people_of(term, answered)
            number = np.nan if estimate is None else float(estimate.people[row])
            kind = "" if is_count(term.measure) else term.measure
            people.setdefault(kind, []).append((weight * factor, number))
    return any(
        min(w for w, _ in of_kind) < 0 < max(w for w, _ in of_kind)
        and not abs(sum(w * n for w, n in of_kind)) >= k * max(abs(w) for w, _ in of_kind)
        for of_kind in people.values()
    )


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
    relations: Sequence[Relation],
) -> Judged:  # fmt: skip
    """Judge every number of an outer statement.

    Args:
        rows: the answer's, which no hidden number of a block was in; the blocks' row numbers follow the columns.
        lines: the same with their cells; empty where no column has any.
        columns: for each column what is known of it.
        carriers: the block of each of these row numbers.
        relations: the blocks' answers.
    """
    shown, followed = [list(row) for row in rows], [None if line is None else list(line) for line in lines]
    hidden: dict[int, list[bool]] = {}
    for c, column in enumerate(columns):
        if column is None:
            continue
        hidden[c] = [False] * len(rows)
        for r, row in enumerate(shown):
            check()
            groups = [(block, row[len(columns) + i]) for i, block in enumerate(carriers)]
            line = lines[r] if lines else None
            if not isinstance(column, LineageColumns):
                judged = _of_groups(column, groups, relations)
            else:
                judged = HIDDEN if line is None else verdict(column, line, relations)
            total, changed = judged.total, followed[r] if followed else None
            if not judged.hidden and total is None:
                continue
            row[c], hidden[c][r] = total, judged.hidden
            if isinstance(column, LineageColumns) and changed is not None:
                changed[c] = total
                if total is not None:  # hidden cells have no weight in what DuckDB saw
                    changed[column.at[1]] = [1.0] * len(changed[column.at[1]])
    return Judged(
        [tuple(row) for row in shown], [None if line is None else tuple(line) for line in followed], hidden
    )


def _of_groups(
    column: Mapping[int, Form] | Unknown,
    groups: Sequence[tuple[int, int | None]],
    relations: Sequence[Relation],
) -> Verdict:
    """A number of rows of blocks: by its form, else by all numbers of these rows, or of all where it is of no row."""
    if isinstance(column, Unknown) and not groups:
        return HIDDEN if any(relation.conceals for relation in relations) else SHOWN
    for block, row in groups:
        relation = relations[block]
        subjects = [value.subject for value in relation.block.values]
        forms = subjects if isinstance(column, Unknown) else [column.get(block)]
        if row is not None and any(form is not None and relation.hidden(form)[row] for form in forms):
            return HIDDEN
    return SHOWN
