"""MEDIAN and QUANTILE of an axis column, from counts along the axis.

The block is asked once more, grouped by the column too. Running sums of those counts are prefix answers:
they are exact sums of leaves, so no node is counted twice. The quantile is the first value of the domain at
which the running count reaches its share; its interval inverts the error of "count up to here minus share
of all" at that value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dpsql.answer.answered import Answered
from dpsql.answer.block import TRUE, Block, Expression, Known, Predicate, Term, every
from dpsql.answer.forms import one
from dpsql.answer.leafsets import FloatArray
from dpsql.errors import NotSupportedError


@dataclass(frozen=True, eq=False)
class Prefix:
    """One group's running counts.

    Args:
        values: values of the column, rising.
        running: counts up to and with each value, made monotone.
        error: standard error of "running minus share of total" at the quantile.
        at: the share.
    """

    values: list[Any]
    running: FloatArray
    error: float
    at: float

    def value(self, errors: float = 0.0) -> Any:
        """The value at which the running count reaches its share plus so many standard errors."""
        if not self.values or self.running[-1] <= 0:
            return None
        wanted = self.at * self.running[-1] + errors * self.error
        place = int(np.searchsorted(self.running, wanted - 1e-9 * max(1.0, abs(wanted))))
        return self.values[min(place, len(self.values) - 1)]


def along(known: Known, block: Block) -> Block:
    """The block that counts rows for each group and each value of the column.

    Raises:
        NotSupportedError: the column is grouped by already.
    """
    column = known.expression
    if column in block.groups:
        raise NotSupportedError(
            "a quantile of a grouped column is the column itself", hint="select the column"
        )
    present = Expression(f"(({column.sql}) IS NOT NULL AND dp_kind = 0)", column.columns, True, column.span)
    where = every([block.where, Predicate(present)])
    return replace(
        block, where=where, groups=(*block.groups, column), values=(one(Term("count")),), listing=False
    )


def prefixes(
    known: Known, keys: Sequence[tuple[Any, ...]], columns: Sequence[list[Any]], answered: Answered
) -> list[Prefix]:
    """Running counts of each group.

    Args:
        known: the column and the share.
        keys: group keys of the block, in order.
        columns: of the relation of `along(known, block)`: dp_at, group keys, the column, the count.
        answered: its answer.

    Returns:
        One prefix for each key.
    """
    rows_of: dict[tuple[Any, ...], list[int]] = {}
    for row, key in enumerate(
        zip(*columns[1:-2], strict=True) if len(columns) > 3 else [()] * len(columns[0])
    ):
        rows_of.setdefault(key, []).append(row)
    values, counts = columns[-2], columns[-1]
    found = []
    for key in keys:
        rows = sorted(rows_of.get(key, []), key=lambda row: values[row])
        running = np.maximum.accumulate(np.cumsum([counts[row] for row in rows])) if rows else np.zeros(0)
        plain = Prefix([values[row] for row in rows], running, 0.0, known.at)
        reached = plain.value()
        if reached is not None:
            below = np.array([values[row] <= reached for row in rows])
            weights = np.where(below, 1.0 - known.at, -known.at)
            error = answered.errors.spread(np.array(rows), weights, answered.plan.boxes_of(TRUE))
            plain = replace(plain, error=error)
        found.append(plain)
    return found
