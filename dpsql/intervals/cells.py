"""Errors of an outer statement's columns: by the cells that a row follows, wider for rows chosen by their noise.

A column that one block's row decides has a form, and its numbers follow that row. For any other noisy column the
statement, run once more, lists the cells of each row with the derivative by each (`sql.carry`).

**Rows chosen by noise**, the ten largest, or those above a threshold.

The largest of many noisy numbers are those that noise made large, and their intervals cover less often than their
level says: .22 instead of .95 of the largest of 60 equal groups. False-coverage-adjusted intervals (Benjamini and
Yekutieli) have the level 1 - (1 - level) r / m where r of m candidates are shown; then at most 1 - level of the
intervals shown are expected to miss, whatever the rule of choice.

| here | there | unit |
|---|---|---|
| `kept` | r, rows that a clause keeps | rows |
| `candidates` | m: rows whose interval of level 1 - .05 r / k reaches the r-th largest value, or the threshold | rows |
| k | all rows that the clause chooses from | rows |
| `share` | r / m, of several clauses the product | 1 |

Rows whose intervals lie far below were never candidates: they count as little as rows that are not there. They are
known by intervals of the level that all k rows would need. Those of 95% are too short: a largest value that is large by
its noise would leave fewest candidates just when it needs the widest interval (of 60 equal groups the largest is then
covered in .87 under Gaussian and .77 under Laplace noise; with the level above in .95). Where no one value chooses, all
rows are candidates.

**Privacy**: post-processing of released numbers.
**Source**: docs/method/views.md, "Rows chosen by noise".
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dpsql.executor.relation import Relation
from dpsql.intervals import errorfunctions
from dpsql.intervals.composite import Composite, Denominators, Sides
from dpsql.intervals.errorfunctions import Curved, Interval, nullable, quantile
from dpsql.intervals.linear import LinearNumbers, MeasuredTerm, Weights, joined_lines
from dpsql.planner.axis_query import FloatArray, IntArray
from dpsql.planner.notes import Note
from dpsql.sql.carry import BELOW, STEP, LineageColumns, place_of
from dpsql.sql.dependence import NoisyLineage
from dpsql.sql.selection import PickQuery

Row = tuple[Any, ...]
CellLists = Sequence[Sequence[Any] | None]


def composite(column: LineageColumns, rows: Sequence[Row | None], relations: Sequence[Relation]) -> Composite:
    """A column's numbers with the cells that they follow.

    Args:
        column: where they are in each row.
        rows: rows of a carrying statement; None for one whose cells are not known.
        relations: the blocks' answers.
    """
    taken = iter(column.at)

    def values() -> list[Any]:
        place = next(taken)
        return [None if row is None else row[place] for row in rows]

    def followed() -> LinearNumbers:
        return _linear_numbers(values(), values(), relations)

    def made(follows: NoisyLineage, middle: FloatArray) -> Composite:
        slope = followed()
        quotient = near = curve = None
        if follows.quotient is not None:
            above, above_numbers = numbers_of(values()), followed()
            quotient = Sides(above, above_numbers, numbers_of(values()), followed())
        if follows.near:
            near = _denominators(values(), relations)
        if follows.curve is not None:
            argument = made(follows.curve.argument, numbers_of(values()))
            steps = follows.curve.steps
            curve = Curved(argument, steps, tuple(numbers_of(values()) for _ in steps))
        return Composite(middle, slope, follows.linear, quotient, near=near, curve=curve)

    return made(column.follows, numbers_of([None if row is None else row[column.value] for row in rows]))


@dataclass(frozen=True, eq=False)
class Extremes:
    """MIN or MAX over noisy values, row by row.

    The least true value is no less than the least low end, if the interval of that one value holds, and no more than
    any high end, if all of them hold at once (Bonferroni): each has the rest of a level over the number of values.

    Args:
        values: of all rows.
        row: which row each value is of.
        rows: how many rows there are.
        least: whether it is MIN.
    """

    values: Composite
    row: IntArray
    rows: int
    least: bool

    @np.errstate(invalid="ignore")  # a hidden value is NaN
    def column(self, error: errorfunctions.ErrorFunction, level: float) -> list[Any]:
        """One value of an error function for each row; the noise is the whole error, as of a quantile."""
        if error in (errorfunctions.LOW, errorfunctions.HIGH):
            return nullable(self._ends(level)[error is errorfunctions.HIGH])
        low, high = self._ends(errorfunctions.DEFAULT_LEVEL)
        whole = (high - low) / (2 * quantile(errorfunctions.DEFAULT_LEVEL))
        if error in (errorfunctions.STDERR, errorfunctions.PARTS["noise"]):
            return nullable(whole)
        if error is errorfunctions.MODEL_BOUND:
            moved = np.zeros(self.rows)
            np.maximum.at(moved, self.row, self.values.interpolation_bound())
            return nullable(moved)
        return nullable(
            np.where(np.isnan(whole), np.nan, 0.0)
            if error in errorfunctions.PARTS.values()
            else whole * np.nan
        )

    @np.errstate(invalid="ignore")  # an end that is not defined makes that of its row NaN
    def _ends(self, level: float) -> Interval:
        """Ends by row; a value without an end leaves the far side open, and says nothing of the near one."""
        most = int(np.bincount(self.row, minlength=1).max())
        far, near = (
            errorfunctions.interval(self.values, each) for each in (level, 1 - (1 - level) / max(1, most))
        )
        outer, inner = (far.low, near.high) if self.least else (-far.high, -near.low)
        low, high = np.full((2, self.rows), np.inf)
        np.minimum.at(low, self.row, outer)
        np.minimum.at(high, self.row, np.where(np.isnan(inner), np.inf, inner))
        low, high = np.where(np.bincount(self.row, minlength=self.rows) == 0, np.nan, (low, high))
        return Interval(low, high) if self.least else Interval(-high, -low)


def extremes(column: LineageColumns, rows: Sequence[Row | None], relations: Sequence[Relation]) -> Extremes:
    """MIN or MAX with the values that they are over; a value that no noise made NULL is none of them.

    Args:
        column: where they are in each row.
        rows, relations: as of `composite`.
    """
    assert column.extreme is not None
    pairs = [
        (r, tuple(value.values()))
        for r, row in enumerate(rows) if row is not None for value in row[column.at[0]] or ()
    ]  # fmt: skip
    pairs = [
        (r, value) for r, value in pairs if value[0] is not None or np.isnan(numbers_of(value[2] or ())).any()
    ]
    values = composite(column.member, [value for _, value in pairs], relations)
    return Extremes(values, np.array([r for r, _ in pairs], np.int64), len(rows), column.extreme.least)


BLOCK_ROWS, BLOCK_CELLS = 2**10, 2**14
"""Rows whose errors are worked out together, and cells that they follow: some tenths of a second."""
CELL = 100
"""Bytes that a row's cell takes in a `Composite`: number, cell and weight, as cells, as terms and as reads."""


def blocks_of_rows(columns: Sequence[LineageColumns], rows: Sequence[Row | None]) -> Iterator[range]:
    """Rows one block after another."""
    start = cells = 0
    for r, row in enumerate(rows):
        row_cells = max((cell_count(column, row) for column in columns), default=0)
        if r > start and (r - start == BLOCK_ROWS or cells + row_cells > BLOCK_CELLS):
            yield range(start, r)
            start, cells = r, 0
        cells += row_cells
    if start < len(rows):
        yield range(start, len(rows))


def cell_count(column: LineageColumns, row: Row | None) -> int:
    """Cells that a row's value of a column follows."""
    if row is not None and column.extreme is not None:
        return sum(cell_count(column.member, tuple(value.values())) for value in row[column.at[0]] or ())
    return 0 if row is None else sum(len(row[at]) for at in column.at if isinstance(row[at], list))


def _denominators(lists: CellLists, relations: Sequence[Relation]) -> Denominators:
    """The denominators of each row; a `g` of None is that of a branch that was not taken."""
    reached = [
        (r, denominator) for r, row in enumerate(lists) for denominator in row or ()
        if denominator["g"] is not None
    ]  # fmt: skip
    cells = [[tuple(cell.values()) for cell in denominator["g"]] for _, denominator in reached]
    numbers = _linear_numbers(
        [[c for c, _ in pairs] for pairs in cells], [[w for _, w in pairs] for pairs in cells], relations
    )
    values = numbers_of([denominator["b"] for _, denominator in reached])
    return np.array([r for r, _ in reached], np.int64), values, numbers


def _linear_numbers(cells: CellLists, weights: CellLists, relations: Sequence[Relation]) -> LinearNumbers:
    """Numbers that follow lists of cells, None for one that has none."""
    lines = listed(cells, weights)
    terms: list[tuple[MeasuredTerm, Weights]] = []
    codes, back = np.unique(lines.cell % STEP, return_inverse=True)
    for i, code in enumerate(codes.tolist()):
        (block, value, side), at_place = place_of(code), back.reshape(-1) == i
        relation = relations[block]
        form = relation.block.values[value].sides[1 if side == BELOW else 0]
        answered = relation.answered_for(form)
        assert answered is not None
        followed = Weights(lines.number[at_place], lines.cell[at_place] // STEP, lines.weight[at_place])
        for term, weight in form.weights:
            summand = followed._replace(weight=followed.weight * weight)
            terms.append((MeasuredTerm(block, answered, term), summand))
    return LinearNumbers(len(cells), joined_lines(terms))


def listed(cells: CellLists, weights: CellLists) -> Weights:
    """Weights from a list of cells and of weights for each number, None for one that has none.

    >>> listed([[3, 5], None], [[1.0, 2.0], None]).cell.tolist()
    [3, 5]
    """
    lengths = [len(lines or ()) for lines in cells]
    flat = np.array([cell for lines in cells for cell in lines or ()], np.int64)
    derivatives = np.array([weight for lines in weights for weight in lines or ()], np.float64)
    return Weights.joined([Weights(np.repeat(np.arange(len(lengths)), lengths), flat, derivatives)])


def numbers_of(values: Sequence[Any]) -> FloatArray:
    """Numbers, NaN for what is none."""
    return np.array(
        [math.nan if value is None or isinstance(value, str) else float(value) for value in values]
    )


MOST_ASKED = 2048
"""Candidates whose intervals are worked out: a second or two."""
UNKNOWN = "chosen by noisy values: the candidates could not be counted, intervals are not widened and cover less often"


class NoisySelection(NamedTuple):
    """Rows selected by noisy values.

    Args:
        kept, candidates: rows, of the clause with the most candidates.
        share: factor on 1 - level.
        known: whether every clause's candidates could be counted.
    """

    kept: int
    candidates: int
    share: float = 1.0
    known: bool = True

    def level(self, level: float) -> float:
        """The level of an interval that covers so often among those shown."""
        return 1.0 - (1.0 - level) * self.share

    @property
    def notes(self) -> list[Note]:
        """Notes for the reader."""
        if not self.known:
            return [Note(UNKNOWN, flag=True)]
        if self.share == 1.0:
            return []
        return [
            Note(f"chosen by noisy values: intervals are widened for {self.candidates} candidates", flag=True)
        ]


NOTHING = NoisySelection(0, 0)
UNCOUNTED = NoisySelection(0, 0, known=False)


def together(choices: Sequence[NoisySelection]) -> NoisySelection:
    """Several clauses, one after the other."""
    share = float(np.prod([clause.share for clause in choices]))
    widest = max(choices, key=lambda clause: clause.candidates, default=NOTHING)
    return NoisySelection(widest.kept, widest.candidates, share, all(clause.known for clause in choices))


class Candidates(NamedTuple):
    """The candidates of a clause.

    Args:
        kept: whether the clause keeps each, shape (k,).
        value: their scores, NaN where one is NULL, shape (k,).
        intervals: of the scores of some of them, at a level; None where no one value chooses.
    """

    kept: npt.NDArray[np.bool_]
    value: FloatArray
    intervals: Callable[[IntArray, float], Interval] | None = None


def choice(query: PickQuery, found: Candidates) -> NoisySelection:
    """Number of rows that a clause keeps, and of its candidates.

    Args:
        query: the clause.
        found: its candidates.
    """
    shown = found.kept
    if query.limit is not None:
        shown = np.zeros(len(found.value), bool)
        shown[np.argsort(-found.value, kind="stable")[query.limit.start : query.limit.stop]] = True
    rows_kept = int(np.sum(shown))
    if not rows_kept or rows_kept == len(shown):
        return NoisySelection(rows_kept, rows_kept)
    candidates = len(shown)
    if found.intervals is not None:
        level = NoisySelection(rows_kept, candidates, rows_kept / candidates).level(
            errorfunctions.DEFAULT_LEVEL
        )
        lowest, highest = _chosen_between(query, found.value[shown])
        # rows whose interval overlaps that range may be meant too, and an end that is not defined may be anywhere;
        # the nearest are asked, and if the last of them reaches, all are taken to do so
        rows = np.flatnonzero(~shown)
        value = found.value[rows]
        apart = np.where(np.isnan(value), 0.0, np.maximum(lowest - value, value - highest))
        low, high = found.intervals(rows[np.argsort(apart, kind="stable")[:MOST_ASKED]], level)
        reaches = ~((high < lowest) | (low > highest))
        candidates = rows_kept + (
            len(rows) if len(rows) > len(reaches) and reaches[-1] else int(np.sum(reaches))
        )
    return NoisySelection(rows_kept, candidates, rows_kept / candidates)


def _chosen_between(query: PickQuery, shown: FloatArray) -> tuple[float, float]:
    """The values between which a clause shows rows."""
    values = shown[~np.isnan(shown)]
    if not query.ranked:
        return 0.0, np.inf
    if not len(values):  # NULLs alone are shown: any row may be chosen
        return -np.inf, np.inf
    offset = query.limit is not None and query.limit.start
    return float(values.min()), float(values.max()) if offset else np.inf
