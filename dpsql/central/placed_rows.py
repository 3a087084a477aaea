"""The rows of a counted table in the template's words, and their exact integer cells.

Every row gets a leaf on every axis and a bounded integer for every measure of the table's views. The statement that
counts them is the engine's (`dpsql.engines.counting`); here the catalog and the plan become its digits.

A foreign key leads to every row that has the key where those rows are a unit's own (`Hop.own`), and to one
row where nobody owns them. So a row whose key two units share counts for each of them, within each one's
bound.

Cells are fetched when asked, and cut where 64 bits end.
`CountedCells` are those of the engine that holds the rows, all views of a table by one statement. `placed_cells`
are those of rows that were stored because they are needed more than once: batches of a stream.

Rows are not bounded in number, so no plan can promise that a sum fits. A sum is taken in HUGEINT and cut to
[-LARGEST, LARGEST], so that no data can make a statement fail: cutting moves two sums no further apart, so a
statistic's sensitivity stands.

**Privacy**: adding or removing one unit changes the counts by at most tau and the centred sums by at most tau * reach,
in L1. Every input has a leaf or is dropped by a rule that looks at its row alone. |cut(a) - cut(b)| <= |a - b| for
every cell. Cells are raw; nothing of them may be shown without noise.
**Source**: docs/method/rows.md, "At most tau rows of a unit", "Leaves and keys".
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

import duckdb
import numpy as np

from dpsql.axis.model import Axis, KeyListRule, KeyRule, OrderedRule
from dpsql.catalog import Catalog
from dpsql.catalog.catalog import Hop
from dpsql.catalog.derived import made_columns
from dpsql.catalog.graph import reachable
from dpsql.catalog.private_columns import PrivateColumn, axis_column
from dpsql.catalog.summaries import summaries_of, summary_inputs, tables_read
from dpsql.catalog.tables import Summary
from dpsql.central.planned import Bounds, PlannedAxis, PlannedStatistic, ReleasePlan
from dpsql.engines.counting import LARGEST, Bound, Sampled, StatisticGroup, Value, coefficients, stored_rows
from dpsql.engines.duck import RawSide, missing_column
from dpsql.engines.expressions import Ends, leaf, measure
from dpsql.engines.joined_rows import ROW, Digit, JoinSide, PlacedRows, UnitKey
from dpsql.engines.registry import Engine, Relations, kind_of
from dpsql.engines.summaries import key_sql
from dpsql.errors import InternalError, SourceError
from dpsql.row_expressions import identifier
from dpsql.tree import Exact, IntArray

Path = tuple[str, ...]


class Leaf(NamedTuple):
    """Expression for the leaf of a row at the end of an axis's path.

    Args:
        digit: for the template.
        lookup: the join that it needs there, or empty.
        text: SQL of the row's key where the axis is over private keys, or empty.
    """

    digit: Digit
    lookup: str = ""
    text: str = ""


class CountedRows(NamedTuple):
    """The rows of one table for the template.

    Args:
        rows: their digits.
        measures: `table.column` -> name of its digit.
    """

    rows: PlacedRows
    measures: Mapping[str, str]


def prepare_tables(catalog: Catalog, raw: Engine, plan: ReleasePlan) -> None:
    """Check that what is counted can be: its tables and columns are there, and public keys name one row each.

    In a public table a duplicate or NULL key is an error. In a private one an error would tell something about its
    rows, so one row of a key is kept, the one with the least leaves.

    Raises:
        SourceError: a table or column of the catalog is not in the source, or a public key is not unique.
    """
    counted = {s.of for s in plan.statistics}
    hops = [hop for of in counted for hop in catalog.star.tables[of].hops]
    names = counted | {hop.table for hop in hops} | tables_read(catalog).keys()
    for name in sorted(names):
        if name not in raw.columns:
            raise SourceError(f"source.tables has no `{name}`", hint="name its file there")
        table = catalog.tables[name]
        require_columns(
            raw, name, [*table.foreign_keys, *([table.key] if table.key else [])], made_columns(table)
        )
    for summary in summaries_of(catalog).values():
        tables = reachable(catalog, summary.of)
        for meant in summary_inputs(catalog, summary):
            if not meant.person:
                table = catalog.tables[tables[meant.path]]
                require_columns(raw, tables[meant.path], [meant.column], made_columns(table))
    for name in sorted(name for name in names if catalog.tables[name].is_public):
        check_public_key(raw, name, str(catalog.tables[name].key))


def check_public_key(raw: Engine, table: str, key: str) -> None:
    """Refuse a public table in which a key is NULL or stands twice: a join would lose or multiply facts.

    Raises:
        SourceError: it does.
    """
    null, repeated = raw.check_key(table, key)
    if null:
        raise SourceError(f"tables.{table}.key: {key} contains NULL", hint="a dimension's key names its rows")
    if repeated:
        raise SourceError(
            f"tables.{table}.key: {key} has duplicates, which would multiply facts",
            hint="remove them, or use a SELECT DISTINCT statement as the source of the table",
        )


def counted_rows(catalog: Catalog, raw: Engine, plan: ReleasePlan, of: str) -> CountedRows:
    """The rows of one table, placed on all axes of its views.

    Args:
        catalog, raw, plan: the release being made; `prepare_tables` has run.
        of: the counted table.
    """
    statistics = [s for s in plan.statistics if s.of == of]
    leaves = [leaf_of_row(catalog, raw, plan, i) for i in sorted({i for s in statistics for i in s.axes})]
    measures, star = measure_digits(catalog, raw, statistics), catalog.star.tables[of]
    owner, joins = star.unit, star.joined([row_leaf.digit.path for row_leaf in leaves])
    for hop in joins:
        _one_type(raw, (hop.parent, hop.path[-1]), (hop.table, hop.key))
    unit = None
    if owner is not None:
        unit = UnitKey(owner.path, owner.column, kind_of(raw, owner.table, owner.column))
    sides = [
        JoinSide(
            hop.path if hop else (),
            raw.rows(catalog, hop.table if hop else of),
            hop.key if hop else "",
            carried(hop.path if hop else (), joins, unit),
            tuple(
                row_leaf.lookup
                for row_leaf in leaves
                if row_leaf.digit.path == (hop.path if hop else ()) and row_leaf.lookup
            ),
            once=hop is not None and not hop.own and not catalog.tables[hop.table].is_public,
            drops=hop is not None and hop.drops,
            texts=tuple(
                leaf.text for leaf in leaves if leaf.text and leaf.digit.path == (hop.path if hop else ())
            ),
            unique=hop is not None and not hop.own,
        )
        for hop in (None, *joins)
    ]
    rows = PlacedRows(
        tuple(sides), tuple(row_leaf.digit for row_leaf in leaves), tuple(measures.values()), unit
    )
    return CountedRows(rows, {name: digit.name for name, digit in measures.items()})


def place_rows(
    catalog: Catalog, raw: RawSide, plan: ReleasePlan, of: str, key: bytes, *, tau: int | None = None
) -> tuple[str, Mapping[str, str]]:
    """Store the rows of one table that count, for what needs them more than once.

    Args:
        catalog, raw, plan: the release being made; `prepare_tables` has run.
        of: the counted table.
        key: the secret that picks rows.
        tau: rows kept of one unit, 0 for all of them; None for the plan's.

    Returns:
        (name of a temporary table with a column a<axis id> for each axis, m<i> for each measure, and `unit` where rows
        have one, measure column name by `table.column`).
    """
    counted = counted_rows(catalog, raw, plan, of)
    row_limit = next(s.tau for s in plan.statistics if s.of == of) if tau is None else tau
    if counted.rows.unit is None or not row_limit:
        query = stored_rows(counted.rows, raw.dialect)
    else:
        query = Sampled(row_limit, coefficients(key)).stored(counted.rows, raw.dialect)
    table = identifier(f"bounded {of}")
    raw.connection.execute(f"CREATE OR REPLACE TEMP TABLE {table} AS {query}")
    return table, counted.measures


def carried(path: Path, joins: Sequence[Hop], unit: UnitKey | None) -> tuple[str, ...]:
    """Columns of a table by which others are joined, or which name the unit."""
    keys = [hop.path[-1] for hop in joins if hop.path[:-1] == path]
    return tuple(dict.fromkeys([*keys, *([unit.column] if unit and unit.path == path else [])]))


def leaf_of_row(catalog: Catalog, raw: Engine, plan: ReleasePlan, axis_id: int) -> Leaf:
    """Find the leaf of a row on one axis of the release."""
    planned = plan.axes[axis_id]
    axis, meant = planned.axis, planned.resolved
    if meant.column is not None:
        require_columns(raw, meant.table, [meant.column], made_columns(catalog.tables[meant.table]))
    name, row = f"leaf of {axis_id}", raw.dialect.identifier(ROW)
    lookup = ""
    if isinstance(axis.rule, KeyListRule):
        return _listed_leaf(catalog, raw, planned, axis_id)
    if isinstance(axis.rule, KeyRule):
        place, key_sql = raw.dialect.identifier(name), f"{row}.{raw.dialect.identifier(axis.rule.key)}"
        relation = raw.lookup(name, kind_of(raw, axis.table, axis.rule.key), axis.rule.keys, axis.rule.leaf)
        lookup = f"LEFT JOIN {relation} AS {place} ON {key_sql} = {place}.key"
        sql = f"coalesce({place}.leaf, {'NULL' if axis.missing_leaf is None else axis.missing_leaf})"
    else:
        column = str(meant.column)
        summary, kind = catalog.tables[axis.table].summaries.get(column), kind_of(raw, axis.table, column)
        placed_axis, kind = (axis, kind) if summary is None else in_units(axis, summary)
        sql = leaf(placed_axis, f"{row}.{raw.dialect.identifier(column)}", kind, raw.dialect)
    total = axis.other_leaf is not None if not lookup else axis.missing_leaf is not None
    nearest = meant.spec is not None and meant.spec.out_of_domain.nearest  # NULL has a leaf, or cannot be
    total = total or nearest
    return Leaf(Digit(f"a{axis_id}", axis.path, sql, 0, axis.leaves, axis.missing_leaf, total=total), lookup)


def in_units(axis: Axis, summary: Summary) -> tuple[Axis, str]:
    """An axis over a summary as the engine hands it over: whole units of its type; and their type."""
    if isinstance(axis.rule, OrderedRule):
        return replace(axis, rule=replace(axis.rule, type="int", scale=0)), "BIGINT"
    return axis, "BOOLEAN" if summary.type == "bool" else "VARCHAR"


def key_kind(raw: Engine, column: PrivateColumn) -> str | None:
    """The type of the raw values of a column with private keys; a summary comes as text, or as whole units."""
    if isinstance(column.spec, Summary):
        return "VARCHAR" if column.spec.type == "string" else "BIGINT"
    return kind_of(raw, column.table, column.column)


def _listed_leaf(catalog: Catalog, raw: Engine, planned: PlannedAxis, axis_id: int) -> Leaf:
    """The leaf of a row on an axis of found keys: by value, from a list of them. No row is dropped."""
    axis, rule, column = planned.axis, planned.axis.rule, axis_column(catalog, planned.resolved)
    assert isinstance(rule, KeyListRule)
    dialect, name = raw.dialect, f"keys of {axis_id}"
    value = f"{dialect.identifier(ROW)}.{dialect.identifier(column.column)}"
    key = key_sql(column, value, key_kind(raw, column), dialect)
    kind = "VARCHAR" if rule.texts else "BIGINT"
    place = dialect.identifier(name)
    relation = raw.lookup(name, kind, rule.keys, np.arange(len(rule.keys), dtype=np.int64))
    lookup = f"LEFT JOIN {relation} AS {place} ON {key} = {place}.key"
    null = axis.other_leaf if axis.null_leaf is None else axis.null_leaf
    sql = f"CASE WHEN {value} IS NULL THEN {null} ELSE coalesce({place}.leaf, {axis.other_leaf}) END"
    digit = Digit(f"a{axis_id}", axis.path, sql, 0, axis.leaves, axis.missing_leaf, total=True, found=True)
    return Leaf(digit, lookup, key)


def measure_digits(
    catalog: Catalog, raw: Engine, statistics: Sequence[PlannedStatistic], margin: int = 0
) -> dict[str, Digit]:
    """Each bounded measure, by `table.column`; `count(m)` counts where m is not NULL.

    Args:
        catalog, raw: the release being made.
        statistics: of one table.
        margin: widths of the bounds by which values may lie beyond them, either way.
    """
    bounds: dict[str, tuple[PlannedStatistic, Bounds]] = {}
    for statistic in statistics:
        name = statistic.measure.name.summed
        if name and (name not in bounds or statistic.bounds is not None):
            bounds[name] = statistic, statistic.bounds or Bounds(0, 0, statistic.measure.scale)
    digits = {}
    for i, (name, (statistic, ends)) in enumerate(bounds.items()):
        table, column = statistic.measure.name.table, statistic.measure.name.column
        require_columns(raw, table, [column], made_columns(catalog.tables[table]))
        value = f"{raw.dialect.identifier(ROW)}.{raw.dialect.identifier(column)}"
        ends = ends.wider(margin)
        kind, scale = kind_of(raw, table, column), ends.scale
        if column in catalog.tables[table].summaries:
            kind, scale = "BIGINT", 0  # whole units already
        sql = measure(value, Ends(ends.lower, ends.upper, scale), kind, raw.dialect)
        digits[name] = Digit(f"m{i}", (), sql, ends.lower, ends.upper - ends.lower + 1, nullable=True)
    return digits


def _one_type(raw: Engine, *columns: tuple[str, str]) -> None:
    """Refuse to join columns of two types: a cast that fails on one row would tell of it."""
    types = [{name.lower(): kind for name, kind in raw.columns[table].items()} for table, _ in columns]
    kinds = {
        kinds[name.lower()] for kinds, (_, name) in zip(types, columns, strict=True) if name.lower() in kinds
    }
    if len(kinds) > 1:
        raise InternalError("keys were not carried into one type", hint="open the source with `open_star`")


def require_columns(raw: Engine, table: str, columns: list[str], derived: Collection[str]) -> None:
    """Refuse a catalog that names columns the source does not have, or derives one that it has."""
    present = raw.columns[table]
    for name in derived:
        if name.lower() in {column.lower() for column in present}:
            raise SourceError(
                f"tables.{table}: `{name}` is derived and in the source", hint="rename the derived one"
            )
    lower = {name.lower() for name in present} | {name.lower() for name in derived}
    for column in columns:
        if column.lower() not in lower:
            raise missing_column(table, column, len(present))


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
        summed = statistic.measure.name.summed
        if not summed:
            return Value()
        name = self.counted.measures[summed]
        return Value(name) if statistic.bounds is None else Value(name, statistic.mid, statistic.bounds.reach)

    def _count(self, statistics: Sequence[PlannedStatistic]) -> None:
        """Ask the engine for all of them, by one statement where their number allows."""
        values_by_axes: dict[tuple[int, ...], list[Value]] = {}
        for s in statistics:
            values_by_axes.setdefault(s.axes, []).append(self._value(s))
        groups = [
            StatisticGroup(tuple(f"a{axis}" for axis in axes), tuple(dict.fromkeys(values)))
            for axes, values in values_by_axes.items()
        ]
        most = self.relations.MOST_GROUPS or len(groups)
        for start in range(0, len(groups), most):
            taken = groups[start : start + most]
            columns = self.relations.fetch(
                self.bound.statement(self.counted.rows, taken, self.relations.dialect)
            )
            order = np.argsort(columns["view"], kind="stable")
            ends = np.searchsorted(columns["view"][order], np.arange(len(taken) + 1))
            for k, (axes, group) in enumerate(zip(list(values_by_axes)[start:], taken, strict=False)):
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
    summed = statistic.measure.name.summed
    if not summed:
        return "1"
    column = columns[summed]
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
