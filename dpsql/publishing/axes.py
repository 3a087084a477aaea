"""Build axes at publish time: public tables are read here, private ones never.

An axis over a private column follows from the catalog; an axis over a public dimension takes its leaves
from that dimension's rows. Either way the result is a public fact.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import duckdb

from dpsql.axis import Axis, AxisColumn, KeyRule, PublicTable, build_axis, leaf_sql, needed_tables, table_sql
from dpsql.catalog import Catalog, ResolvedAxis
from dpsql.errors import SourceError
from dpsql.publishing.contributions import alias
from dpsql.release.write import ARRAYS
from dpsql.sources import RawSide, identifier

AxisMaker = Callable[[ResolvedAxis], Axis]


def axis_maker(catalog: Catalog, raw: RawSide) -> AxisMaker:
    """A function that builds axes, reading each public table once.

    Args:
        catalog: the catalog.
        raw: the raw side; only tables that the catalog declares public are read.
    """
    known: dict[str, PublicTable] = {}

    def make(resolved: ResolvedAxis) -> Axis:
        for table in needed_tables(catalog, resolved):
            if table not in known:
                known[table] = _read_public(raw, table)
        return build_axis(catalog, resolved, known)

    return make


def _read_public(raw: RawSide, table: str) -> PublicTable:
    types = raw.columns.get(table)
    if types is None:
        raise SourceError(f"source.tables has no `{table}`", hint="name its file there")
    rows = raw.connection.execute(f"SELECT * FROM raw.{identifier(table)}").fetchall()
    columns: Mapping[str, Sequence[object]] = {name: [row[i] for row in rows] for i, name in enumerate(types)}
    return PublicTable(table, types, columns)


def typed_columns(connection: duckdb.DuckDBPyConnection, axis: Axis) -> tuple[AxisColumn, ...]:
    """All columns of the axis table, the derived ones with the type that DuckDB gives them."""
    import pandas as pd

    arrays = {name: pd.Series(values[:1]) for name, values in axis.arrays().items()}
    connection.register(ARRAYS, pd.DataFrame(arrays))
    described = connection.execute(f"DESCRIBE {table_sql(axis, ARRAYS)}").fetchall()
    connection.unregister(ARRAYS)
    types = {str(row[0]): str(row[1]) for row in described}
    columns = [*axis.columns, *(column for column, _ in axis.derived)]
    return tuple(replace(column, type=types[column.sql_name]) for column in columns)


def leaf_expression(
    connection: duckdb.DuckDBPyConnection, axis_id: int, axis: Axis, catalog: Catalog
) -> tuple[str, str]:
    """SQL for the leaf of a row, and the join that it needs (or an empty string).

    Args:
        connection: where `checked.*` is; receives the look-up table of a public dimension.
        axis_id: the axis's id in the release.
        axis: the axis.
        catalog: the catalog.

    Returns:
        (leaf expression over `alias(path)`, LEFT JOIN or "").
    """
    here = alias(axis.path)
    present = None
    if axis.path:
        present = f"{here}.{identifier(str(catalog.tables[axis.table].key))} IS NOT NULL"
    if not isinstance(axis.rule, KeyRule):
        return leaf_sql(axis, f"{here}.{identifier(str(axis.resolved.column))}", present), ""
    lookup, name = f'checked."leaf of {axis_id}"', identifier(f"leaf of {axis_id}")
    _store_lookup(connection, lookup, axis.rule)
    missing = "NULL" if axis.missing_leaf is None else str(axis.missing_leaf)
    join = f"LEFT JOIN {lookup} AS {name} ON {here}.{identifier(axis.rule.key)} = {name}.key"
    return f"CAST(coalesce({name}.leaf, {missing}) AS INTEGER)", join


def _store_lookup(connection: duckdb.DuckDBPyConnection, lookup: str, rule: KeyRule) -> None:
    import pandas as pd

    frame = pd.DataFrame({"key": pd.Series(list(rule.keys)), "leaf": pd.Series(rule.leaf)})
    connection.register("incoming_leaves", frame)
    connection.execute(f"CREATE OR REPLACE TABLE {lookup} AS SELECT * FROM incoming_leaves")
    connection.unregister("incoming_leaves")
