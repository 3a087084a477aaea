"""Exact integer cells, fetched when asked, cut where 64 bits end.

`CountedCells` are those of the engine that holds the rows, all views of a table by one statement. `placed_cells`
are those of rows that were stored because they are needed more than once: batches of a stream.

Rows are not bounded in number, so no plan can promise that a sum fits. A sum is taken in HUGEINT and cut to
[-LARGEST, LARGEST], so that no data can make a statement fail: cutting moves two sums no further apart, so a
statistic's sensitivity stands.

**Privacy**: |cut(a) - cut(b)| <= |a - b| for every cell. Cells are raw; nothing of them may be shown without noise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import duckdb
import numpy as np
import numpy.typing as npt

from dpsql.central.placed_rows import CountedRows
from dpsql.central.planned import PlannedStatistic, ReleasePlan
from dpsql.engines.counting import LARGEST, Bound, StatisticGroup, Value
from dpsql.engines.relations import Relations
from dpsql.tree import Exact

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CountedCells:
    """Cells of a table that its engine counts: of all its statistics at once, when the first is asked for.

    Args:
        relations: statements over its rows.
        plan: the release.
        of: the table.
        counted: its rows.
        bound: how many rows of a unit count.
    """

    relations: Relations
    plan: ReleasePlan
    of_table: str
    counted: CountedRows
    bound: Bound
    _sums: dict[tuple[tuple[int, ...], Value], tuple[IntArray, IntArray]] = field(
        default_factory=dict, repr=False
    )

    def of(self, *statistics: PlannedStatistic) -> list[Exact]:
        """Exact integers of statistics over the same axes, each of their shape; also after noise was seen.

        **Privacy**: raw; a unit changes a statistic by at most its `drawn_sensitivity`.
        """
        if any((s.axes, self._value(s)) not in self._sums for s in statistics):
            self._count([*self.plan.row_statistics(self.of_table).values(), *statistics])
        return [self._dense(s) for s in statistics]

    def _dense(self, statistic: PlannedStatistic) -> Exact:
        shape = self.plan.shape(statistic)
        cell, value = self._sums[statistic.axes, self._value(statistic)]
        cells = np.zeros(prod(shape), np.int64)
        cells[cell] = value
        return Exact(cells.reshape(shape))

    def _value(self, statistic: PlannedStatistic) -> Value:
        measure = statistic.measure
        if not measure.column:
            return Value()
        name = self.counted.measures[f"{measure.table}.{measure.column}"]
        return Value(name) if statistic.bounds is None else Value(name, statistic.mid, statistic.bounds.reach)

    def _count(self, statistics: Sequence[PlannedStatistic]) -> None:
        """Ask the engine for all of them by one statement."""
        values_by_axes: dict[tuple[int, ...], list[Value]] = {}
        for s in statistics:
            values_by_axes.setdefault(s.axes, []).append(self._value(s))
        groups = [
            StatisticGroup(tuple(f"a{axis}" for axis in axes), tuple(dict.fromkeys(values)))
            for axes, values in values_by_axes.items()
        ]
        statement = self.bound.statement(self.counted.rows, groups, self.relations.dialect)
        columns = self.relations.fetch(statement)
        order = np.argsort(columns["view"], kind="stable")
        ends = np.searchsorted(columns["view"][order], np.arange(len(groups) + 1))
        for k, (axes, group) in enumerate(zip(values_by_axes, groups, strict=True)):
            group_rows = order[ends[k] : ends[k + 1]]
            for i, value in enumerate(group.values):
                self._sums[axes, value] = columns["cell"][group_rows], columns[f"v{i}"][group_rows]


def placed_cells(
    connection: duckdb.DuckDBPyConnection, plan: ReleasePlan, of: str, rows: str, columns: Mapping[str, str]
) -> dict[int, Exact]:
    """Cells of a table's statistics from rows that are bounded and placed on axes, by position in the plan.

    Args:
        connection: where the rows are.
        plan: the release.
        of: the table.
        rows: the rows, as they stand after FROM.
        columns: SQL of each bounded measure, by `table.column`.
    """
    return {
        i: exact_sums(connection, rows, s.axes, plan.shape(s), [row_value(s, columns)])[0]
        for i, s in plan.row_statistics(of).items()
    }


def row_value(statistic: PlannedStatistic, columns: Mapping[str, str]) -> str:
    """SQL of what a row adds: 1, a centred measure, or 1 where the measure is not NULL."""
    measure = statistic.measure
    if not measure.column:
        return "1"
    column = columns[f"{measure.table}.{measure.column}"]
    if statistic.bounds is None:
        return f"CASE WHEN {column} IS NOT NULL THEN 1 END"
    return f"{column} - ({statistic.mid})"


def exact_sums(
    connection: duckdb.DuckDBPyConnection,
    rows: str,
    axes: Sequence[int],
    shape: Sequence[int],
    values: Sequence[str],
) -> list[Exact]:
    """Exact sums per cell.

    Args:
        connection: where the rows are.
        rows: the rows, as they stand after FROM.
        axes: axis ids of the view.
        shape: number of leaves of each axis.
        values: integer expressions summed per cell; NULL adds nothing.

    Returns:
        For each value an int64 array of the given shape; sums are cut at `LARGEST`.
    """
    keys = [f"a{axis}" for axis in axes]
    sums = [f"{cut_sum(value)} AS v{i}" for i, value in enumerate(values)]
    columns = connection.execute(
        f"SELECT {', '.join([*keys, *sums])} FROM {rows}" + (f" GROUP BY {', '.join(keys)}" if keys else "")
    ).fetchnumpy()
    where = tuple(np.asarray(columns[key], dtype=np.int64) for key in keys)
    cells = [Exact(np.zeros(tuple(shape), dtype=np.int64)) for _ in values]
    for i, array in enumerate(cells):
        column = np.asarray(columns[f"v{i}"], dtype=np.int64)
        array[where] = column if keys else column[0]
    return cells


def huge(value: int) -> str:
    """A HUGEINT literal.

    >>> huge(-3)
    '(-3)::HUGEINT'
    """
    return f"({value})::HUGEINT"


def cut_sum(value: str) -> str:
    """SQL of a BIGINT: the sum of an integer expression, cut; 0 where there is nothing to sum.

    >>> cut_sum("m0")[:24]
    'CAST(greatest(least(coal'
    """
    total = f"coalesce(sum({value}), 0)"  # DuckDB sums whole numbers of any width as HUGEINT
    return f"CAST(greatest(least({total}, {huge(LARGEST)}), {huge(-LARGEST)}) AS BIGINT)"
