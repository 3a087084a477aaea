"""Lineage of an outer statement's column: cells that the statement carries along, as numbers of a `Composite`.

A column that one block's row decides has a form, and its numbers follow that row. For any other noisy column the
statement, run once more, lists the cells of each row with the derivative by each (`sql.carry`).

**Privacy**: post-processing of noisy groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpsql.executor.relation import Relation
from dpsql.intervals.composite import Composite, Denominators, Sides
from dpsql.intervals.errorfunctions import (
    DEFAULT_LEVEL,
    HIGH,
    LOW,
    MODEL_BOUND,
    PARTS,
    STDERR,
    ErrorFunction,
    interval,
)
from dpsql.intervals.estimated import Curved, Interval, nullable, quantile
from dpsql.intervals.linear import LinearNumbers, MeasuredTerm, Weights
from dpsql.planner.axis_query import FloatArray, IntArray
from dpsql.sql.carry import BELOW, STEP, LineageColumns, place_of
from dpsql.sql.dependence import NoisyLineage

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

    def column(self, error: ErrorFunction, level: float) -> list[Any]:
        """One value of an error function for each row; the noise is the whole error, as of a quantile."""
        if error in (LOW, HIGH):
            return nullable(self._ends(level)[error is HIGH])
        low, high = self._ends(DEFAULT_LEVEL)
        whole = (high - low) / (2 * quantile(DEFAULT_LEVEL))
        if error in (STDERR, PARTS["noise"]):
            return nullable(whole)
        if error is MODEL_BOUND:
            moved = np.zeros(self.rows)
            np.maximum.at(moved, self.row, self.values.interpolation_bound())
            return nullable(moved)
        return nullable(np.where(np.isnan(whole), np.nan, 0.0) if error in PARTS.values() else whole * np.nan)

    @np.errstate(invalid="ignore")  # an end that is not defined makes that of its row NaN
    def _ends(self, level: float) -> Interval:
        """Ends by row; a value without an end leaves the far side open, and says nothing of the near one."""
        most = int(np.bincount(self.row, minlength=1).max())
        far, near = (interval(self.values, each) for each in (level, 1 - (1 - level) / max(1, most)))
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
    return Denominators(np.array([r for r, _ in reached], np.int64), values, numbers)


def _linear_numbers(cells: CellLists, weights: CellLists, relations: Sequence[Relation]) -> LinearNumbers:
    """Numbers that follow lists of cells, None for one that has none."""
    lines = listed(cells, weights)
    terms: dict[MeasuredTerm, list[Weights]] = {}
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
            terms.setdefault(MeasuredTerm(block, answered, term), []).append(summand)
    return LinearNumbers(len(cells), {key: Weights.joined(summands) for key, summands in terms.items()})


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
