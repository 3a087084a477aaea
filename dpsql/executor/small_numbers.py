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
added up by `dpsql.executor.readings`, from the block's estimates, if its people are k or more. Differences are followed
as far as errors are (`sql.carry`); what nobody can follow is NULL in rows with a hidden number. Whoever subtracts two
shown numbers by hand, or opens the file, sees more: no privacy claim rests on this rule.

**Privacy**: post-processing of released numbers. The estimates carry noise: a group of k people may be hidden, and one
of k - 1 shown.
**Source**: docs/small-numbers.md, "What the rule does, and what it does not".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.catalog.base import COUNT, PEOPLE
from dpsql.errors import NotSupportedError
from dpsql.executor.recombine import TermEstimates, answer_terms
from dpsql.intervals.composite import Composite
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, LOW
from dpsql.planner.axis_query import AtomFactor, AxisCells, FloatArray
from dpsql.planner.block import Form, one
from dpsql.planner.plan import ViewPlan
from dpsql.planner.schema import Term, every
from dpsql.release import Release

BoolArray = npt.NDArray[np.bool_]
Row = tuple[Any, ...]
REASON = "<{0}: of fewer than {0} people by the noisy estimate; NULL wherever the statement sorts or compares"


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
    of_values = term.measure if term.measure.is_count else term.measure.counted
    measure = next((name for name in (PEOPLE, of_values, COUNT) if name in statistics), None)
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
            hidden = hidden | few_left(
                ((term, w, people_of(term, answered).people) for term, w in weights), k
            )
    return hidden


def few_counted(counts: Sequence[Any], of: str, release: Release) -> BoolArray:
    """Groups whose counted rows, of a quantile, are of fewer people."""
    people = [float(np.sum(rows)) / rows_of_a_person(release, of) for rows in counts]
    return np.array([not each >= release.min_people for each in people], np.bool_)


def few_left(weights: Iterable[tuple[Term, float, Any]], k: int) -> Any:
    """True where counts, or sums of one column, that are taken from each other leave fewer than k people.

    A difference of a sum of prices and one of costs is no difference of people.
    """
    kinds: dict[str, list[tuple[float, Any]]] = {}
    for term, weight, people in weights:
        kinds.setdefault("" if term.measure.is_count else term.measure, []).append((weight, people))
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
