"""MEDIAN and QUANTILE of an axis column, from counts along the axis.

The block is asked once more, grouped along the column too. Running sums of those counts are prefix answers: they are
exact sums of leaves, so no node is counted twice. The quantile is the first value of the domain at which the running
count reaches its share; its interval inverts the error of "count up to here minus share of all" at that value.

| the column | is counted along | |
|---|---|---|
| rises from leaf to leaf | leaves | a leaf's rows lie evenly on its values, which are looked up in one leaf alone |
| anything else | its values | |

Both give the same value. An axis of prices holds a million values in a thousand leaves.

**Privacy**: post-processing of released counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpsql.answer.answered import Answered
from dpsql.answer.block import TRUE, Block, Expression, Known, Predicate, Term, every, one
from dpsql.answer.leafsets import AxisQuestion, FloatArray, axis_source, quoted, truth_sql
from dpsql.answer.run import run
from dpsql.answer.schema import Schema
from dpsql.errors import NotSupportedError
from dpsql.release import ColumnMeta, Release


class Steps(Protocol):
    """What counts are added up along, from one step to the next."""

    def value(self, step: int, part: float) -> Any:
        """The first value of a step at which so much of its count is reached."""

    def below(self, step: int, part: float) -> float:
        """Which part of the step's values lies up to and with that one."""


class Values(NamedTuple):
    """Each value is a step."""

    values: Sequence[Any]

    def value(self, step: int, part: float) -> Any:
        """See `Steps`."""
        return self.values[step]

    def below(self, step: int, part: float) -> float:
        """See `Steps`."""
        return 1.0


class Leaves(NamedTuple):
    """Each leaf is a step.

    Args:
        release: an open release.
        source: a SELECT of `v`, the column's values of the leaf that its placeholder takes.
        leaves: numbers of the leaves.
    """

    release: Release
    source: str
    leaves: Sequence[int]

    def value(self, step: int, part: float) -> Any:
        """See `Steps`."""
        leaf, (before, _) = self.leaves[step], self._place(step, part)
        sql = f"SELECT v FROM ({self.source}) ORDER BY v LIMIT 1 OFFSET {before}"
        return run(self.release, sql, (leaf,)).rows[0][0]

    def below(self, step: int, part: float) -> float:
        """See `Steps`."""
        before, size = self._place(step, part)
        return (before + 1) / size

    def _place(self, step: int, part: float) -> tuple[int, int]:
        """How many values of the leaf stand before the one that is reached, and how many there are."""
        leaf = self.leaves[step]
        sql = f"SELECT COUNT(*) FROM ({self.source})"
        size = self.release.kept((sql, leaf), lambda: run(self.release, sql, (leaf,)).rows[0][0])
        return min(max(math.ceil(part * size) - 1, 0), size - 1), size


@dataclass(frozen=True, eq=False)
class Prefix:
    """One group's counts along the column.

    Args:
        counts: of each step, in the order of the column.
        steps: what they count.
        at: the share.
        error: standard error of "running minus share of total" at the quantile.
    """

    counts: FloatArray
    steps: Steps
    at: float
    error: float = 0.0

    def value(self, errors: float = 0.0) -> Any:
        """The value at which the running count, made monotone, reaches its share plus so many standard errors."""
        found = self.reached(errors)
        return None if found is None else self.steps.value(*found)

    def reached(self, errors: float = 0.0) -> tuple[int, float] | None:
        """The step in which it does so, and which part of the step's count that takes.

        None of a group of nobody, and of an end that nothing bounds.
        """
        sums = np.cumsum(self.counts)
        running = np.maximum.accumulate(sums)
        if not len(running) or running[-1] <= 0:
            return None
        wanted = self.at * running[-1] + (errors * self.error if errors else 0.0)
        if math.isnan(wanted):
            return None
        wanted -= 1e-9 * max(1.0, abs(wanted))
        if wanted > running[-1]:
            return len(running) - 1, 1.0  # never: all that there is
        step = int(np.searchsorted(running, wanted))
        count = self.counts[step]
        part = 1.0 - (sums[step] - wanted) / count if count > 0 else 0.0
        return step, float(min(max(part, 0.0), 1.0))


Ask = Callable[[Block, Expression], tuple[Sequence[list[Any]], Sequence[str], Answered]]
"""Answers a block along an expression: columns of its relation, their types, and the answers."""


def quantiles(
    known: Known, block: Block, keys: Sequence[tuple[Any, ...]], ask: Ask, release: Release, schema: Schema
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
    rising = _rising(column, block, release, schema)
    if rising is not None:
        leaf = replace(column, sql="leaf", comparisons=(), constants=None)
        columns, _, answered = ask(_along(column, leaf, block), leaf)
        question = next(each for each in answered.plan.questions if leaf in each.groups)
        if question.groups == (leaf,) and not question.classes:
            steps = partial(Leaves, release, _values_of_a_leaf(column, question, release))
            return rising.type, _prefixes(known, keys, columns, answered, steps)
    columns, types, answered = ask(_along(column, column, block), column)
    return types[-2], _prefixes(known, keys, columns, answered, Values)


def _along(column: Expression, group: Expression, block: Block) -> Block:
    """The block that counts rows for each of its groups and along a column."""
    present = replace(
        column, sql=f"(({column.sql}) IS NOT NULL AND dp_kind = 0)", comparisons=(), constants=None
    )
    where = every([block.where, Predicate(present)])
    groups = (*block.groups, group)
    return replace(block, where=where, groups=groups, values=(one(Term("count")),), listing=False)


def _rising(column: Expression, block: Block, release: Release, schema: Schema) -> ColumnMeta | None:
    """The column of an axis, where an expression is nothing more and its values rise from leaf to leaf."""
    if len(column.columns) != 1 or column.sql != f"dp_c{min(column.columns)}":
        return None
    offers = schema.axis_columns(block.columns[min(column.columns)])
    return offers[0][1] if offers and all(_rises(release, axis, meta) for axis, meta in offers) else None


def _rises(release: Release, axis: int, column: ColumnMeta) -> bool:
    """Whether every value of a leaf is more than all of the leaf before."""
    if column.type == "VARCHAR":  # a collation is no order of leaves
        return False
    name = quoted(column.name)
    ends = (
        f"SELECT leaf, MIN({name}) AS low, MAX({name}) AS high FROM axis_{axis} WHERE kind = 0 GROUP BY leaf"
    )
    sql = f"SELECT bool_and(low > before) FROM (SELECT low, lag(high) OVER (ORDER BY leaf) AS before FROM ({ends}))"
    return bool(release.kept(sql, lambda: run(release, sql).rows[0][0] is not False))


def _values_of_a_leaf(column: Expression, question: AxisQuestion, release: Release) -> str:
    """The SELECT of the column's values of one leaf that meet the axis's conditions."""
    fields = [f"{quoted(name)} AS dp_c{i}" for i, name in question.columns]
    table = axis_source(question, release.axes[question.axis])
    source = f"(SELECT leaf, kind AS dp_kind, {', '.join(fields)} FROM {table})"
    wanted = [truth_sql(each) for each in question.filters]
    return f"SELECT {column.sql} AS v FROM {source} WHERE {' AND '.join(['leaf = ?', *wanted])}"


def _prefixes(
    known: Known,
    keys: Sequence[tuple[Any, ...]],
    columns: Sequence[list[Any]],
    answered: Answered,
    steps: Callable[[list[Any]], Steps],
) -> list[Prefix]:
    """Counts of each group.

    Args:
        known: the column and the share.
        keys: group keys of the block, in order.
        columns: of the relation along the column: dp_at, group keys, the step, the count.
        answered: its answer.
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
    found = []
    for key in keys:
        rows = sorted(rows_of.get(key, []), key=lambda row: step[row])
        plain = Prefix(np.array([counts[row] for row in rows]), steps([step[row] for row in rows]), known.at)
        reached = plain.reached()
        if reached is not None:
            below = np.zeros(len(rows))
            below[: reached[0]] = 1.0
            below[reached[0]] = plain.steps.below(*reached)
            error = answered.errors.spread(np.array(rows), below - known.at, answered.plan.boxes_of(TRUE))
            plain = replace(plain, error=error)
        found.append(plain)
    return found
