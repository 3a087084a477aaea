"""Axes over one column: ordered values with cuts, categories, booleans, hierarchies over a domain table."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from dpsql.axis.dimension import dimension_axis, sort_key
from dpsql.axis.model import Axis, AxisColumn, CategoryRule, IntArray, OrderedRule, PublicTable, Rule
from dpsql.axis.names import Names, derived_columns
from dpsql.catalog import Catalog, Column, ResolvedAxis, public_tables, reachable
from dpsql.catalog.bins import bin_starts
from dpsql.errors import SourceError

LARGEST_ATOMS = 2**20


def needed_tables(catalog: Catalog, axis: ResolvedAxis) -> tuple[str, ...]:
    """The public tables whose rows `build_axis` wants.

    Args:
        catalog: any catalog.
        axis: one of its resolved axes.

    Returns:
        The dimension with its public snowflake arms, or the domain table, or nothing.
    """
    if axis.by:
        public = public_tables(catalog)
        arms = reachable(catalog, axis.table).values()
        return tuple(dict.fromkeys(name for name in arms if name in public))
    return () if axis.spec is None or axis.spec.from_ is None else (axis.spec.from_,)


def build_axis(catalog: Catalog, axis: ResolvedAxis, tables: Mapping[str, PublicTable]) -> Axis:
    """Leaves, atoms and columns of an axis.

    Args:
        catalog: the catalog.
        axis: a resolved axis of one of its views.
        tables: rows of the tables that `needed_tables` names.

    Returns:
        The axis.

    Raises:
        SourceError: a public table lacks a column, repeats a key or does not nest its levels.

    **Privacy**: a function of the catalog and of public rows.
    """
    if axis.by:
        return dimension_axis(catalog, axis, tables)
    column = axis.spec
    if column is None:
        raise SourceError(f"axis {axis.name}: names neither a column nor a grain", hint="use `resolve_axis`")
    if column.ordered:
        return _ordered(catalog, axis, column)
    if column.from_ is not None:
        return _from_domain(catalog, axis, column, tables[column.from_])
    values = ("false", "true") if column.type == "bool" else column.categories
    rule = CategoryRule(values, column.type == "bool")
    encoded = np.array([v == "true" for v in values] if rule.boolean else values, dtype=object)
    sql_type = "BOOLEAN" if rule.boolean else "VARCHAR"
    names = Names()
    public = _column(axis, column, names, str(axis.column), sql_type)
    leaf = np.arange(len(values), dtype=np.int64)
    return _finish(catalog, axis, column, names, (public,), rule, True, leaf, {public.sql_name: encoded})


def _column(
    axis: ResolvedAxis, spec: Column, names: Names, column: str, sql_type: str, bound: str = ""
) -> AxisColumn:
    wanted = f"{column}_upper" if bound == "upper" else column
    name = names.take(axis.path, axis.table, wanted)
    return AxisColumn(axis.path, axis.table, column, name, sql_type, spec.description, bound)


def _sql_type(column: Column) -> str:
    numeric = {"int": "BIGINT", "decimal": f"DECIMAL(18,{column.digits})"}
    return numeric.get(column.type) or column.type.upper()


def _ordered(catalog: Catalog, axis: ResolvedAxis, column: Column) -> Axis:
    starts = np.array(bin_starts(column, axis.cuts or column.cuts), dtype=np.int64)
    lower, upper = column.bounds
    rule = OrderedRule(column.type, column.digits, column.grain, upper, starts)
    names = Names()
    if upper - lower + 1 <= LARGEST_ATOMS:
        atoms = np.arange(lower, upper + 1, dtype=np.int64)
        leaf = np.searchsorted(starts, atoms, side="right").astype(np.int64) - 1
        public = _column(axis, column, names, str(axis.column), _sql_type(column))
        return _finish(catalog, axis, column, names, (public,), rule, True, leaf, {public.sql_name: atoms})
    low = _column(axis, column, names, str(axis.column), _sql_type(column), "lower")
    high = _column(axis, column, names, str(axis.column), _sql_type(column), "upper")
    ends = np.append(starts[1:] - 1, upper)
    leaf = np.arange(starts.size, dtype=np.int64)
    values = {low.sql_name: starts, high.sql_name: ends}
    return _finish(catalog, axis, column, names, (low, high), rule, False, leaf, values)


def _from_domain(catalog: Catalog, axis: ResolvedAxis, column: Column, domain: PublicTable) -> Axis:
    """Leaves are the distinct rows of the levels, sorted coarse to fine, so a coarse value is an interval."""
    levels = column.axis.levels if column.axis is not None else (str(axis.column),)
    for level in levels:
        if level not in domain.columns:
            raise SourceError(f"{domain.name}: no column `{level}`", hint="select it in source.tables")
    rows = set(zip(*(domain.columns[level] for level in levels), strict=True))
    ordered = sorted((row for row in rows if row[-1] is not None), key=lambda row: [sort_key(v) for v in row])
    finest = [str(row[-1]) for row in ordered]
    if len(set(finest)) != len(finest):
        raise SourceError(
            f"{domain.name}: a value of `{levels[-1]}` lies in two values of a coarser level",
            hint="make each level a function of the finer one",
        )
    names = Names()
    public = tuple(
        _column(axis, column, names, level, "VARCHAR" if level == levels[-1] else domain.types[level])
        for level in levels
    )
    encoded = {}
    for position, shown in enumerate(public):
        encoded[shown.sql_name] = np.empty(len(ordered), dtype=object)
        encoded[shown.sql_name][:] = [row[position] for row in ordered]
    leaf = np.arange(len(ordered), dtype=np.int64)
    return _finish(catalog, axis, column, names, public, CategoryRule(tuple(finest)), True, leaf, encoded)


def _finish(
    catalog: Catalog,
    axis: ResolvedAxis,
    column: Column,
    names: Names,
    columns: tuple[AxisColumn, ...],
    rule: Rule,
    atomic: bool,
    leaf: IntArray,
    values: Mapping[str, NDArray[np.generic]],
) -> Axis:
    """Add the special leaves that can occur and the derived columns."""
    size = int(leaf[-1]) + 1 if leaf.size else 0
    null = size if column.nullable else None
    missing = size + (null is not None) if axis.missing else None
    other = size + (null is not None) + (missing is not None) if column.out_of_domain == "other" else None
    total = size + sum(part is not None for part in (null, missing, other))
    table = catalog.tables[axis.table]
    public = frozenset(c.column for c in columns) if atomic else frozenset()
    derived = derived_columns(table, axis.table, axis.path, public, names)
    return Axis(axis.name, axis, total, null, missing, other, columns, derived, rule, atomic, leaf, values)
