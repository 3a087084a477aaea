"""MEDIAN and QUANTILE of an axis column, from counts along the axis.

The block is asked once more, grouped along the column too. Running sums of those counts are prefix answers: they are
exact sums of leaves, so no node is counted twice. The quantile is the first value of the domain at which the running
count reaches its share; its interval inverts the interval of "count up to here minus share of all" along the column.
Where one person owns many rows that interval holds the share of all rows, those beyond the bound too.

| the column | is counted along | |
|---|---|---|
| rises from leaf to leaf | leaves | a leaf's rows lie evenly on its values, which are looked up in one leaf alone |
| anything else | its values | |

Both give the same value. An axis of prices holds a million values in a thousand leaves.

**Privacy**: post-processing of released counts.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from dpsql.catalog.base import COUNT
from dpsql.errors import NotSupportedError
from dpsql.executor.recombine import TermEstimates
from dpsql.executor.run import run
from dpsql.intervals.errorfunctions import LAPLACE_KURTOSIS, quantile
from dpsql.intervals.linear import LinearNumbers, MeasuredTerm, Weights
from dpsql.intervals.scale import beyond_noise
from dpsql.planner.axis_query import FloatArray
from dpsql.planner.block import ROWS, Block, CatalogValue
from dpsql.planner.leaf_values import leaf_values
from dpsql.planner.plan import Box
from dpsql.planner.schema import TRUE, Expression, Predicate, Schema, Term, every, of_leaves
from dpsql.release import ColumnMeta, Release
from dpsql.release.format import OTHER
from dpsql.row_expressions import identifier as quoted

NORMAL = 1.959964


Steps = tuple[Callable[[int, float], Any], Callable[[int], tuple[Any, Any]]]
"""Ordered steps along which counts are accumulated: the first value of a step at which so much of its count is reached,
and the least and the largest value that a row counted in a step may have."""


def leaf_steps(release: Release, source: str, leaves: Sequence[int]) -> Steps:
    """Each leaf is a step.

    Args:
        release: an open release.
        source: a SELECT of `v`, the column's values of the leaf that its placeholder takes.
        leaves: numbers of the leaves.
    """

    def value(step: int, part: float) -> Any:
        leaf, sql = leaves[step], f"SELECT COUNT(*) FROM ({source})"
        size = int(release.kept((sql, leaf), lambda: run(release, sql, (leaf,)).rows[0][0]))
        offset = min(max(math.ceil(part * size) - 1, 0), size - 1)
        return run(release, f"SELECT v FROM ({source}) ORDER BY v LIMIT 1 OFFSET {offset}", (leaf,)).rows[0][
            0
        ]

    return value, lambda step: (value(step, 0.0), value(step, 1.0))


def value_steps(values: Sequence[Any], first: Sequence[int], last: Sequence[int]) -> Steps:
    """Each value is a step.

    Args:
        values: in order.
        first, last: for each value those between which a row may lie: the ends of its leaf.
    """
    return lambda step, part: values[step], lambda step: (values[first[step]], values[last[step]])


@dataclass(frozen=True, eq=False)
class Prefix:
    """One group's counts along the column.

    Args:
        counts: of each step, in the order of the column.
        steps: what they count.
        at: the share.
        error: standard error of "count up to and with a step, minus share of all".
        cut: by how much rows in cut bins of conditions may make that number too large, and too small.
        z: standard errors on each side of an interval of a level.
        beyond: the rows beyond the column's bounds, as far as they are seen in the noise or may be meant.
        view: what the counts come from.
    """

    counts: FloatArray
    steps: Steps
    at: float
    error: Callable[[int], float]
    cut: Callable[[int], tuple[float, float]]
    z: Callable[[float], float]
    beyond: float
    view: str = ""

    @cached_property
    def sums(self) -> FloatArray:
        """Counts up to and with each step, as noise leaves them."""
        return np.cumsum(self.counts)

    @cached_property
    def running(self) -> FloatArray:
        """The same made monotone: none is below a sum before it."""
        return np.maximum.accumulate(self.sums)

    @property
    def empty(self) -> bool:
        """True if nobody is in the group."""
        return not len(self.running) or bool(self.running[-1] <= 0)

    def value(self) -> Any:
        """The value at which the running count reaches its share; None of a group of nobody, or where it may lie beyond
        either bound."""
        if self.empty or not any(self._inside):
            return None
        wanted = self.at * max(float(self.sums[-1]), 0.0)
        wanted -= 1e-9 * max(1.0, abs(wanted))
        step = int(np.searchsorted(self.running, wanted))
        count = self.counts[step]
        share = 1.0 - (self.sums[step] - wanted) / count if count > 0 else 0.0
        return self.steps[0](step, float(min(max(share, 0.0), 1.0)))

    def ends(self, level: float) -> tuple[Any, Any]:
        """The interval of the value; None of a group of nobody, and where nothing bounds the counts' error.

        It begins with the first value at which the upper end of the running count's interval reaches the share, and
        ends with the first from which on the lower end does. The share is one of the last sum: of the largest it would
        be too many rows wherever there is more noise than rows. Inside of a leaf rows may lie anywhere. An end is open
        where so many rows may lie beyond the column's bounds that the value itself may.
        """
        if self.empty:
            return None, None
        z = self.z(level)
        low, high = (self._first(sign * z) for sign in (1.0, -1.0))
        if low is None or high is None:
            return None, None
        bounds = self.steps[1]
        return bounds(low)[0] if self._inside[0] else None, bounds(high)[1] if self._inside[1] else None

    @property
    def _inside(self) -> tuple[bool, bool]:
        """Whether the value is surely not below the column's lower bound, and not above its upper one."""
        rows = max(float(self.sums[-1]), 0.0)
        return (1 - self.at) * self.beyond <= self.at * rows, self.at * self.beyond <= (1 - self.at) * rows

    def _first(self, errors: float) -> int | None:
        """The first step at which the running count, moved by so many standard errors, reaches the share."""
        steps = len(self.running)
        if any(math.isnan(self.error(step)) for step in (0, steps - 1)):
            return None
        # the value's own step has reached its share, and none before it: monotone towards the side of the end
        sums = self.running if errors > 0 else np.minimum.accumulate(self.sums[::-1])[::-1]
        above = sums - self.at * self.sums[-1] + 1e-9 * max(1.0, abs(float(self.sums[-1])))

        def reached(step: int) -> bool:
            large, small = self.cut(step)
            return bool(above[step] + errors * self.error(step) + (small if errors > 0 else -large) >= 0)

        return min(bisect_left(range(steps), True, key=reached), steps - 1)


Ask = Callable[[Block, Expression], tuple[Sequence[list[Any]], Sequence[str], TermEstimates]]
"""Answers a block along an expression: columns of its relation, their types, and the answers."""


def quantiles(
    known: CatalogValue,
    block: Block,
    keys: Sequence[tuple[Any, ...]],
    ask: Ask,
    release: Release,
    schema: Schema,
) -> tuple[str, list[Prefix]]:
    """The type of a quantile, and each group's counts along its column.

    Args:
        known: the column and the share.
        block: its block.
        keys: group keys of the block, in order.
        ask: answers other blocks.
        release: an open release.
        schema: its star.

    Raises:
        NotSupportedError: the column is grouped by already.
    """
    column = known.expression
    if column in block.groups:
        raise NotSupportedError(
            "a quantile of a grouped column is the column itself", hint="select the column"
        )
    outside = _outside(column, block, ask, release, schema)
    rising = _rising(column, block, release, schema)
    if rising is not None:
        leaf = replace(column, sql="leaf", comparisons=(), starts=(), exchanged=None)
        columns, _, answered = ask(_along(column, leaf, block), leaf)
        question = next(question for question in answered.plan.questions if leaf in question.groups)
        if question.groups == (leaf,) and not question.classes:
            # values of one leaf that meet the axis's conditions
            values = leaf_values(release, question)
            fields = ["leaf", "kind AS dp_kind", *question.fields, *values.fields]
            rows = f"(SELECT {', '.join(fields)} FROM {values.source})"
            wanted = [values.truth(predicate) for predicate in question.filters]
            source = f"SELECT {column.sql} AS v FROM {rows} WHERE {' AND '.join(['leaf = ?', *wanted])}"
            return rising.type, _prefixes(
                known,
                keys,
                columns,
                answered,
                outside,
                lambda leaves, *_: leaf_steps(release, source, leaves),
            )
    columns, types, answered = ask(_along(column, column, block), column)
    return types[-2], _prefixes(known, keys, columns, answered, outside, _values(column))


def quantiles_of(block: Block) -> tuple[CatalogValue, ...]:
    """The different quantiles that a block asks for, or errors of."""
    subjects = dict.fromkeys(value.subject for value in block.values)
    return tuple(form for form in subjects if isinstance(form, CatalogValue) and form.is_noisy)


def known_rows(column: Expression, block: Block) -> Block:
    """The block that counts the rows of each of its groups whose value of a column is known."""
    return _counting(block, of_leaves(column, "({} IS NOT NULL AND dp_kind = 0)"))


def _counting(block: Block, test: Predicate) -> Block:
    """The block that counts the rows of its groups that lie in some leaves."""
    where = every([block.where, test])
    return replace(block, where=where, values=(ROWS,), listing=False, plans=None)


def _outside(
    column: Expression, block: Block, ask: Ask, release: Release, schema: Schema
) -> dict[tuple[Any, ...], tuple[float, float]]:
    """Rows of each group with a number or time beyond the column's bounds, on either side: at most about how many, and
    those that are seen."""
    offers = schema.axis_columns(block.columns[min(column.columns)]) if len(column.columns) == 1 else []
    if not any(release.axes[axis].other_leaf is not None and meta.type != "VARCHAR" for axis, meta in offers):
        return {}
    beyond = of_leaves(column, f"({{}} IS NULL AND dp_kind = {OTHER})")
    columns, _, answered = ask(_counting(block, beyond), beyond.expression)
    boxes, rows = answered.plan.boxes_of(TRUE), np.arange(len(columns[-1]))
    keys = zip(*columns[1:-1], strict=True) if len(columns) > 2 else ((),) * len(rows)
    errors = [answered.errors.spread(np.array([row]), np.ones(1), boxes) for row in rows]
    each_row = Weights(rows, rows, np.ones(len(rows)))
    _, above = LinearNumbers(
        len(rows), {MeasuredTerm(0, answered, Term(COUNT)): each_row}
    ).interpolation_bound
    return {
        key: (max(0.0, count) + perhaps + NORMAL * error, (count if count > 2 * error else 0.0) + perhaps)
        for key, count, perhaps, error in zip(keys, columns[-1], above.tolist(), errors, strict=True)
    }


def _along(column: Expression, group: Expression, block: Block) -> Block:
    """The block that counts rows for each of its groups and along a column."""
    return replace(known_rows(column, block), groups=(*block.groups, group))


def _rising(column: Expression, block: Block, release: Release, schema: Schema) -> ColumnMeta | None:
    """The column of an axis, where an expression is nothing more and its values rise from leaf to leaf."""
    if len(column.columns) != 1 or column.sql != f"dp_c{min(column.columns)}":
        return None
    offers = schema.axis_columns(block.columns[min(column.columns)])
    return offers[0][1] if offers and all(_rises(release, axis, meta) for axis, meta in offers) else None


def _rises(release: Release, axis: int, column: ColumnMeta) -> bool:
    """True if every value of a leaf is more than all of the leaf before."""
    if column.type == "VARCHAR":  # a collation is no order of leaves
        return False
    name = quoted(column.name)
    ends = (
        f"SELECT leaf, MIN({name}) AS low, MAX({name}) AS high FROM axis_{axis} WHERE kind = 0 GROUP BY leaf"
    )
    sql = f"SELECT bool_and(low > before) FROM (SELECT low, lag(high) OVER (ORDER BY leaf) AS before FROM ({ends}))"
    return bool(release.kept(sql, lambda: run(release, sql).rows[0][0] is not False))


def _prefixes(
    known: CatalogValue,
    keys: Sequence[tuple[Any, ...]],
    columns: Sequence[list[Any]],
    answered: TermEstimates,
    outside: Mapping[tuple[Any, ...], tuple[float, float]],
    steps: Callable[[list[Any], npt.NDArray[np.int64], TermEstimates], Steps],
) -> list[Prefix]:
    """Counts of each group.

    Args:
        known: the column and the share.
        keys: group keys of the block, in order.
        columns: of the relation along the column: dp_at, group keys, the step, the count.
        answered: its answer.
        outside: rows of each group beyond the column's bounds, as `_outside` gives them.
        steps: what steps in their order are.

    Returns:
        One prefix for each key.
    """
    rows_of: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(
        zip(*columns[1:-2], strict=True) if len(columns) > 3 else [()] * len(columns[0])
    ):
        rows_of.setdefault(key, []).append(row)
    step, counts = columns[-2], columns[-1]
    boxes = answered.plan.boxes_of(TRUE)
    # A running count may be one draw: its tails, which never make an interval too short.
    kurtosis = LAPLACE_KURTOSIS if answered.laplace else 0.0
    prefixes, cut = [], answered if conditions_cut(known.expression, answered) else None
    for key in keys:
        rows = np.array(sorted(rows_of.get(key, []), key=lambda row: step[row]), np.int64)
        number = np.array([counts[row] for row in rows])
        error, (most, seen) = _error(rows, number, known.at, boxes, answered), outside.get(key, (0.0, 0.0))
        prefixes.append(
            Prefix(
                number, steps([step[row] for row in rows], rows, answered), known.at, error,
                _cut(rows, known.at, most, cut), partial(quantile, kurtosis=kurtosis), seen, answered.plan.view.name,
            )
        )  # fmt: skip
    return prefixes


def conditions_cut(column: Expression, answered: TermEstimates) -> bool:
    """True if conditions cut bins of other axes alone: inside of a leaf of the column itself, steps know where rows
    lie."""
    plan = answered.plan
    cut = [query for query, cells in zip(plan.questions, plan.cells, strict=True) if cells.uncertain]
    return bool(cut) and not any(column.columns & dict(query.columns).keys() for query in cut)


def _cut(
    rows: npt.NDArray[np.int64], at: float, outside: float, answered: TermEstimates | None
) -> Callable[[int], tuple[float, float]]:
    """By how much rows in cut bins, and rows beyond the column's bounds, which all may lie above or below, may make the
    count up to a step, minus a share of all, too large and too small."""

    @cache
    def bound(step: int) -> tuple[float, float]:
        large, small = at * outside, (1.0 - at) * outside
        if answered is None:
            return large, small
        taken = (np.arange(len(rows)) <= step).astype(np.float64) - at
        weights = {
            MeasuredTerm(0, answered, Term(COUNT)): Weights(np.zeros(len(rows), np.int64), rows, taken)
        }
        below, above = LinearNumbers(1, weights).interpolation_bound
        return large + float(below[0]), small + float(above[0])

    return bound


def _error(
    rows: npt.NDArray[np.int64], counts: FloatArray, at: float, boxes: Sequence[Box], answered: TermEstimates
) -> Callable[[int], float]:
    """Standard error of the count up to and with a step, minus a share of all."""
    total = float(counts.sum())

    @cache
    def error(step: int) -> float:
        below = (np.arange(len(rows)) <= step).astype(np.float64)
        noise = answered.errors.spread(rows, below - at, boxes)
        # about the step's own share: what all rows have in common moves no share
        share = min(max(float(below @ counts) / total, 0.0), 1.0) if total > 0 else at
        # Standard error, beyond the noise, of a weighted sum of counts: groups and rows that bounding left out.
        term = MeasuredTerm(0, answered, Term(COUNT))
        moved = Weights(np.zeros(len(rows), np.int64), rows, below - share)
        beyond = beyond_noise(LinearNumbers(1, {term: moved})) if len(rows) else None
        return math.hypot(
            noise,
            0.0 if beyond is None else math.sqrt(float((beyond.scale + beyond.spread + beyond.tail)[0])),
        )

    return error


def _values(
    column: Expression,
) -> Callable[[Sequence[Any], npt.NDArray[np.int64], TermEstimates], Steps]:
    """Steps of single values, which know the ends of the leaf that they lie in."""

    def steps(values: Sequence[Any], rows: npt.NDArray[np.int64], answered: TermEstimates) -> Steps:
        plan = answered.plan
        position = next(i for i, question in enumerate(plan.questions) if column in question.groups)
        cells = plan.cells[position]
        leaf_of = dict(zip(cells.group.tolist(), cells.leaf.tolist(), strict=True))
        leaves = [leaf_of[group] for group in answered.errors.index[position][rows].tolist()]
        last = {leaf: place for place, leaf in enumerate(leaves)}
        first = {leaf: len(leaves) - 1 - place for place, leaf in enumerate(reversed(leaves))}
        return value_steps(values, [first[leaf] for leaf in leaves], [last[leaf] for leaf in leaves])

    return steps
