"""Two rules over the rows of an outer statement: both readings of numbers of groups, and the rule of small numbers.

A number that depends on how many groups there are is of all groups of the domain, or of those that are seen.

A release shows every group of a declared domain, also months in which nobody bought anything, and cannot tell an empty
group from a small one. DuckDB over the raw rows averages over the groups that have a row. So an average over groups, a
number of groups or a rank has two readings: over all groups of the domain, which is what is answered, and over those
whose interval, widened until it holds for all groups at once, leaves out 0. The interval holds both; where all groups
are seen they are one.

**Privacy**: post-processing of noisy groups.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.executor.relation import Relation
from dpsql.executor.small_numbers import few_left, people_of
from dpsql.intervals.errorfunctions import DEFAULT_LEVEL, HIGH, LOW, STDERR, quantile
from dpsql.planner.axis_query import key_list
from dpsql.planner.block import Form, Linear, is_form, one
from dpsql.planner.notes import Note
from dpsql.planner.schema import Term
from dpsql.release.request import check
from dpsql.sql.carry import STEP, WHOLE, LineageColumns, place_of
from dpsql.sql.dependence import Unknown

BoolArray = npt.NDArray[np.bool_]
Row = tuple[Any, ...]
MOST_GROUPS = 2**16
"""Groups whose intervals are worked out to see which leave out 0: a second or two."""
TOO_MANY_GROUPS = f"empty groups are not identified among more than {MOST_GROUPS}"
NONE_SEEN = "every group's interval includes 0, so the number of groups is unknown"
ROWS_DIFFER = "the rows, or their names, depend on which groups are empty"
INSIDE = "the statement uses the error of a number that depends on which groups are empty"


def unseen(relation: Relation) -> BoolArray:
    """The groups of the domain that may be empty: no count or sum of theirs has an interval that leaves out 0.

    The intervals hold for all groups at once (Bonferroni): of 1,000 empty groups 50 leave out 0 at 95% each. Counts and
    sums, not quotients of them: where a measure is at least 1, so is the interval of every average. False for leaves
    that the catalog adds, and where a block has no counts and sums.
    """
    terms = {
        term for value in relation.block.values if is_form(value) and value.is_noisy for term in value.terms
    }
    candidates = np.array(relation.added, object) == 0
    level = 1.0 - (1.0 - DEFAULT_LEVEL) / max(1, len(terms) * int(candidates.sum()))
    hidden = np.full(len(candidates), bool(terms))
    for form in map(one, terms):
        low, high = (
            relation.errors_of(error, form, level)[1] or [None] * len(hidden) for error in (LOW, HIGH)
        )
        for group, ends in enumerate(zip(low, high, strict=True)):
            if (ends[0] is not None and ends[0] > 0) or (ends[1] is not None and ends[1] < 0):
                hidden[group] = False
    return np.asarray(hidden & candidates, np.bool_)


def group_counts(relations: Sequence[Relation], hidden: Sequence[BoolArray]) -> list[tuple[int, int]]:
    """Of each block with groups that may be empty, how many groups there are and how many of these may be."""
    return [
        (sum(bits == 0 for bits in relation.added), int(mask.sum()))
        for relation, mask in zip(relations, hidden, strict=True) if mask.any()
    ]  # fmt: skip


def domain_note(relations: Sequence[Relation], hidden: Sequence[BoolArray]) -> Note:
    """Numbers of groups in the domain and of groups seen."""
    counts = group_counts(relations, hidden)
    groups = " and ".join(f"{every:,}" for every, _ in dict.fromkeys(counts))
    visible = " and ".join(f"{every - empty:,}" for every, empty in dict.fromkeys(counts))
    return Note(
        f"over all {groups} groups of the domain, empty or not; intervals also cover the answer over the {visible} "
        "groups whose simultaneous intervals exclude 0",
        flag=True,
    )


def left_out_notes(relations: Sequence[Relation]) -> Iterator[Note]:
    """The largest group of each block that the catalog adds, where it is more than its noise, or nothing bounds it."""
    for relation in relations:
        rows = [row for row, bits in enumerate(relation.added) if bits]
        forms = [
            value for value in relation.block.values if is_form(value) and value.is_noisy and value.sides
        ]
        forms.sort(key=lambda form: len(form.sides))  # an average says that there are rows, not how many
        if not rows or not forms or len(rows) > MOST_GROUPS:
            continue
        for question in relation.answered[0].plan.questions:
            listed = key_list(relation.answered[0].errors.release, question.axis)
            if question.groups and listed is not None:
                yield Note(listed.among, flag=True)
        place = relation.names.index(f"v{relation.block.values.index(forms[0])}")
        values = [relation.columns[place][row] for row in rows]
        added = relation.at(rows)
        lows, highs, errors = (
            added.errors_of(error, forms[0], DEFAULT_LEVEL)[1] or [None] * len(rows)
            for error in (LOW, HIGH, STDERR)
        )
        sizes = [
            (abs(value), row, value, error)
            for row, value, low, high, error in zip(rows, values, lows, highs, errors, strict=True)
            if value is not None and (error is None or low > 0 or high < 0)
        ]
        if sizes:
            _, row, value, error = max(sizes)
            keys = [
                f"{group.words()} = {'NULL' if relation.columns[1 + j][row] is None else relation.columns[1 + j][row]}"
                for j, group in enumerate(relation.block.groups) if relation.added[row] >> j & 1
            ]  # fmt: skip
            size = (
                f", of {value:,.6g} +- {error * quantile(DEFAULT_LEVEL):,.3g},"
                if len(forms[0].sides) == 1 and error is not None
                else ""
            )
            yield Note(
                f"{' and '.join(keys)}{size} contains rows outside the domain: it is excluded where groups are "
                "counted, averaged, ranked, limited or joined",
                flag=True,
            )


def matches(rows: Sequence[Row], others: Sequence[Row], shared: Sequence[int]) -> list[int | None]:
    """For each row of one reading the row of the other with the same labels; None where there is none, or several.

    >>> matches([("a", 1), ("b", 2)], [("b", 3), ("c", 4)], [0])
    [None, 0]
    """
    places: dict[tuple[str, ...], list[int]] = {}
    for r, row in enumerate(others):
        places.setdefault(_label(row, shared), []).append(r)
    labels = [_label(row, shared) for row in rows]
    rows_of = Counter(labels)
    return [
        places[label][0] if rows_of[label] == 1 and len(places.get(label, ())) == 1 else None
        for label in labels
    ]


def _label(row: Row, shared: Sequence[int]) -> tuple[str, ...]:
    """Sums of floats may differ in their last digits between two runs."""
    values = (row[c] for c in shared)
    return tuple(f"{value:.9g}" if isinstance(value, float) else repr(value) for value in values)


def widest(own: Any, other: Any, sign: int) -> Any:
    """The lower (sign -1) or upper (1) of two ends; None where the own end is open."""
    return None if own is None or other is None else max(own, other) if sign > 0 else min(own, other)


def combined_errors(
    rows: Sequence[Row], others: Sequence[Row], kinds: Sequence[str], at: Sequence[int | None]
) -> list[Row]:
    """Rows whose ends of intervals inside of the statement hold both readings; other errors are NULL."""
    signs: Mapping[str, int] = {"dp_interval_low": -1, "dp_interval_high": 1}
    errors = {c: signs.get(kind, 0) for c, kind in enumerate(kinds) if kind not in ("", "value")}
    out = []
    for row, place in zip(rows, at, strict=True):
        values = list(row)
        for c, sign in errors.items():
            values[c] = None if not sign or place is None else widest(row[c], others[place][c], sign)
        out.append(tuple(values))
    return out


class Verdict(NamedTuple):
    """A number of an outer statement: whether it is hidden; else its value where the groups' hidden ones are in it."""

    hidden: bool
    total: float | None = None


SHOWN, HIDDEN = Verdict(False), Verdict(True)


def verdict(column: LineageColumns, row: Row, blocks: Sequence[Relation]) -> Verdict:
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
    errors: list[Any], column: LineageColumns, rows: Sequence[Row], blocks: Sequence[Relation]
) -> list[Any]:
    """Errors of numbers inside of a statement, NULL of those that are hidden, or that hold hidden ones."""
    if not any(block.min_people for block in blocks):
        return errors
    verdicts = [verdict(column, row, blocks) for row in rows]
    return [error if judged == SHOWN else None for error, judged in zip(errors, verdicts, strict=True)]


def _is_hidden(cell: int, blocks: Sequence[Relation]) -> bool:
    (block, value, _), row = place_of(cell % STEP), cell // STEP
    subject = blocks[block].block.values[value].subject
    return subject is not None and bool(blocks[block].hidden(subject)[row])


def _sum_of_groups(cells: Sequence[int], blocks: Sequence[Relation]) -> Verdict:
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


def _leaves_few(cells: Sequence[int], weights: Sequence[float], blocks: Sequence[Relation]) -> bool:
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
    return bool(few_left(left, max(block.min_people for block in blocks)))


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
    blocks: Sequence[Relation],
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
    blocks: Sequence[Relation],
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
