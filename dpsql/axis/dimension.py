"""A public dimension as an axis: leaves are the values of a grain, columns are all that the grain fixes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpsql.axis.model import Axis, AxisColumn, IntArray, KeyRule, PublicTable
from dpsql.axis.names import Names, derived_columns
from dpsql.catalog import Catalog, Member, ResolvedAxis, reachable
from dpsql.errors import SourceError

_NOT_A_NUMBER = object()


def sort_key(value: Any) -> tuple[int, Any]:
    """An order over one column's values in which NaN and NULL come last.

    >>> sorted([2.0, None, float("nan"), 1.0], key=sort_key)
    [1.0, 2.0, nan, None]
    """
    if value is None:
        return (2, 0)
    if isinstance(value, float) and math.isnan(value):
        return (1, 0)
    return (0, value)


def _token(value: object) -> object:
    """The value, with every NaN taken for the same one."""
    return _NOT_A_NUMBER if isinstance(value, float) and math.isnan(value) else value


def _row_of_key(table: PublicTable, key: str) -> dict[object, int]:
    """Row number by key.

    Raises:
        SourceError: NULL or repeated keys; a repeated key would multiply facts.
    """
    if key not in table.columns:
        raise SourceError(f"{table.name}: no key column `{key}`", hint="mend `key` in the catalog")
    found = {value: row for row, value in enumerate(table.columns[key])}
    if None in found or len(found) != table.size:
        raise SourceError(
            f"{table.name}.{key}: the key of a public dimension is NULL or stands twice",
            hint="make it unique, for instance by a SELECT DISTINCT source",
        )
    return found


Columns = dict[tuple[tuple[str, ...], str], tuple[str, str, Sequence[object]]]


def _gather(catalog: Catalog, axis: ResolvedAxis, tables: Mapping[str, PublicTable]) -> Columns:
    """Every column of the dimension and its public arms, one value per row of the dimension.

    Returns:
        (path from the view's table, column) to (table, DuckDB type, values).
    """
    places = reachable(catalog, axis.table)
    found: Columns = {}
    for path, name in places.items():
        if any(places[path[:hop]] not in tables for hop in range(len(path) + 1)):
            continue
        rows: Sequence[int | None] = range(tables[name].size)
        if path:
            key = str(catalog.tables[name].key)
            index = _row_of_key(tables[name], key)
            owner = (*axis.path, *path[:-1])
            if (owner, path[-1]) not in found:
                raise SourceError(
                    f"{places[path[:-1]]}: no column `{path[-1]}`", hint="mend `foreign_keys` in the catalog"
                )
            rows = [index.get(value) for value in found[owner, path[-1]][2]]
        for column, values in tables[name].columns.items():
            picked = [None if row is None else values[row] for row in rows]
            found[(*axis.path, *path), column] = (name, tables[name].types[column], picked)
    return found


def _leaf_of_rows(by: Sequence[Sequence[object]], size: int) -> tuple[IntArray, IntArray]:
    """Leaf of each row, and one row of each leaf; leaves are sorted by the grain."""
    grain = [tuple(_token(column[row]) for column in by) for row in range(size)]
    first: dict[tuple[object, ...], int] = {}
    for row, value in enumerate(grain):
        first.setdefault(value, row)
    ordered = sorted(first, key=lambda value: [sort_key(column[first[value]]) for column in by])
    leaf = {value: position for position, value in enumerate(ordered)}
    return (
        np.array([leaf[value] for value in grain], dtype=np.int64),
        np.array([first[value] for value in ordered], dtype=np.int64),
    )


def _fixed(values: Sequence[object], leaf: IntArray, first: IntArray) -> bool:
    """Whether a column has one value per leaf."""
    codes: dict[object, int] = {}
    coded = np.array([codes.setdefault(_token(value), len(codes)) for value in values], dtype=np.int64)
    return bool(np.array_equal(coded, coded[first][leaf]))


def _named(axis: ResolvedAxis, found: Columns, member: Member) -> Sequence[object]:
    if (member.path, member.column) not in found:
        known = ", ".join(f"`{column}`" for path, column in found if path == member.path)
        raise SourceError(
            f"axis {axis.name}: `{member.table}` has no column `{member.column}`", hint=f"it has {known}"
        )
    return found[member.path, member.column][2]


def _public_columns(
    catalog: Catalog, axis: ResolvedAxis, found: Columns, leaf: IntArray, first: IntArray, names: Names
) -> tuple[list[AxisColumn], dict[str, NDArray[np.generic]]]:
    """The columns that the grain fixes, with one value per leaf."""
    columns: list[AxisColumn] = []
    values: dict[str, NDArray[np.generic]] = {}
    key = str(catalog.tables[axis.table].key)
    for (path, column), (table, sql_type, cells) in found.items():
        if not _fixed(cells, leaf, first):
            continue
        name = names.take(path, table, column)
        columns.append(AxisColumn(path, table, column, name, sql_type, _description(catalog, table, column)))
        values[name] = np.empty(first.size, dtype=object)
        values[name][:] = [cells[row] for row in first]
    own = {column.column: column for column in columns if column.path == axis.path}
    if key in own and axis.path:
        # The foreign key that leads here has the same value wherever a row was found.
        owner, foreign = reachable(catalog, axis.of)[axis.path[:-1]], axis.path[-1]
        name = names.take(axis.path[:-1], owner, foreign)
        columns.append(AxisColumn(axis.path[:-1], owner, foreign, name, own[key].type))
        values[name] = values[own[key].sql_name]
    return columns, values


def dimension_axis(catalog: Catalog, axis: ResolvedAxis, tables: Mapping[str, PublicTable]) -> Axis:
    """The axis of a public dimension at a grain.

    Args:
        catalog: the catalog.
        axis: a resolved axis with `by`.
        tables: rows of the dimension and its public arms.

    Returns:
        The axis; NULLs inside public rows are values like any other, so MISSING is its only special leaf.

    Raises:
        SourceError: a key is NULL or repeated, a column is missing, or there are no rows.
    """
    home, key = tables[axis.table], str(catalog.tables[axis.table].key)
    index = _row_of_key(home, key)
    if not index:
        raise SourceError(f"{axis.table}: the public dimension has no rows", hint="mend source.tables")
    found = _gather(catalog, axis, tables)
    leaf, first = _leaf_of_rows([_named(axis, found, member) for member in axis.by], home.size)
    names = Names()
    columns, values = _public_columns(catalog, axis, found, leaf, first, names)
    own = frozenset(column.column for column in columns if column.path == axis.path)
    derived = derived_columns(catalog.tables[axis.table], axis.table, axis.path, own, names)
    missing = int(first.size) if axis.missing else None
    total = int(first.size) + (missing is not None)
    rule = KeyRule(key, tuple(home.columns[key]), leaf)
    atoms = np.arange(first.size, dtype=np.int64)
    return Axis(
        axis.name, axis, total, None, missing, None, tuple(columns), derived, rule, True, atoms, values
    )


def _description(catalog: Catalog, table: str, column: str) -> str:
    spec = catalog.tables[table].columns.get(column)
    return "" if spec is None else spec.description
