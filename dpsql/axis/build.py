"""Building an axis from the catalog and public rows.

An axis over one column has ordered values with cuts, categories, booleans or a hierarchy over a domain table. A public
dimension at a grain has the grain's distinct values as leaves and all that the grain fixes as columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpsql.axis.model import (
    RESERVED,
    Axis,
    AxisColumn,
    CategoryRule,
    IntArray,
    KeyListRule,
    KeyRule,
    OrderedRule,
    PublicTable,
    Rule,
)
from dpsql.catalog import Catalog
from dpsql.catalog.columns import Column, bin_starts
from dpsql.catalog.derived import sql_type
from dpsql.catalog.graph import PublicColumn, ResolvedAxis, reachable
from dpsql.catalog.tables import Table
from dpsql.errors import SourceError
from dpsql.row_expressions.expression import OF_TIMES, calendar_field, parse_one, row_expression


class UniqueNames:
    """Hands out names that are unique whatever their case, and not reserved."""

    def __init__(self) -> None:
        self._taken = {name.lower() for name in RESERVED}

    def take(self, path: tuple[str, ...], table: str, column: str) -> str:
        """The column's own name if free, else ``table_column``, else its path, else a number behind it."""
        wanted = [column, f"{table}_{column}", "_".join((*path, column))]
        numbered = (f"{table}_{column}_{i}" for i in count(2))
        name = next(n for n in chain(wanted, numbered) if n.lower() not in self._taken)
        self._taken.add(name.lower())
        return name


def derived_columns(
    table: Table,
    name: str,
    path: tuple[str, ...],
    public: frozenset[str],
    names: UniqueNames,
    spec: Column | None = None,
) -> tuple[tuple[AxisColumn, str], ...]:
    """Columns of `derive` that are functions of what the axis knows.

    Args:
        table: the axis's table in the catalog.
        name: its name.
        path: foreign keys to it.
        public: columns whose value each atom fixes.
        names: hands out names.
        spec: the column that the axis is over; None of a public table's rows, which are exact.

    Returns:
        (column, expression) for each derived column whose inputs all lie in `public`, in catalog order.
    """
    derived = []
    fixed = {column.lower() for column in public}
    for column, text in table.derive.items():
        expression = row_expression(text)
        known = {used.lower() for used in expression.columns} <= fixed
        if expression.columns and known and _is_fixed(text, spec):
            derived.append(
                (AxisColumn(path, name, column, names.take(path, name, column), ""), expression.sql)
            )
    return tuple(derived)


def _is_fixed(text: str, spec: Column | None) -> bool:
    """True if an expression has one value for all times that share an atom: hours have no minute."""
    if spec is None or spec.type not in ("date", "timestamp"):
        return True
    field = calendar_field(parse_one(text))
    if spec.type == "date":  # days of a source are days, but for those of its times
        return field is None or field.name not in OF_TIMES
    finer = OF_TIMES[: {"hour": 1, "day": 2}.get(spec.grain, 0)]
    return spec.grain == "second" or (field is not None and field.name not in finer)


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
        raise SourceError(f"{table.name}: no key column `{key}`", hint="correct `key` in the catalog")
    rows = {value: row for row, value in enumerate(table.columns[key])}
    if None in rows or len(rows) != table.size:
        raise SourceError(
            f"{table.name}.{key}: the key of a public dimension is NULL or repeated",
            hint="make it unique, for instance by a SELECT DISTINCT source",
        )
    return rows


Columns = dict[tuple[tuple[str, ...], str], tuple[str, str, Sequence[object]]]


def _gather(catalog: Catalog, axis: ResolvedAxis, tables: Mapping[str, PublicTable]) -> Columns:
    """Every column of the dimension and its public arms, one value per row of the dimension.

    Returns:
        (path from the view's table, column) to (table, DuckDB type, values).
    """
    places = reachable(catalog, axis.table)
    gathered: Columns = {}
    for path, name in places.items():
        if any(places[path[:hop]] not in tables for hop in range(len(path) + 1)):
            continue
        rows: Sequence[int | None] = range(tables[name].size)
        if path:
            key = str(catalog.tables[name].key)
            index = _row_of_key(tables[name], key)
            owner = (*axis.path, *path[:-1])
            if (owner, path[-1]) not in gathered:
                raise SourceError(
                    f"{places[path[:-1]]}: no column `{path[-1]}`",
                    hint="correct `foreign_keys` in the catalog",
                )
            rows = [index.get(value) for value in gathered[owner, path[-1]][2]]
        for column, values in tables[name].columns.items():
            picked = [None if row is None else values[row] for row in rows]
            gathered[(*axis.path, *path), column] = (name, tables[name].types[column], picked)
    return gathered


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


def _named(axis: ResolvedAxis, gathered: Columns, member: PublicColumn) -> Sequence[object]:
    if (member.path, member.column) not in gathered:
        present = sum(path == member.path for path, _ in gathered)
        raise SourceError(
            f"axis {axis.name}: `{member.table}` has no column `{member.column}`",
            hint=f"it has {present} columns; if it is a CSV file, does it have a header?",
        )
    return gathered[member.path, member.column][2]


def _public_columns(
    catalog: Catalog,
    axis: ResolvedAxis,
    gathered: Columns,
    leaf: IntArray,
    first: IntArray,
    names: UniqueNames,
) -> tuple[list[AxisColumn], dict[str, NDArray[np.generic]]]:
    """The columns that the grain fixes, with one value per leaf."""
    columns: list[AxisColumn] = []
    values: dict[str, NDArray[np.generic]] = {}
    key = str(catalog.tables[axis.table].key)
    for (path, column), (table, kind, cells) in gathered.items():
        codes: dict[object, int] = {}
        coded = np.array([codes.setdefault(_token(cell), len(codes)) for cell in cells], dtype=np.int64)
        if not np.array_equal(coded, coded[first][leaf]):
            continue  # several values in one leaf
        name = names.take(path, table, column)
        spec = catalog.tables[table].columns.get(column)
        description = "" if spec is None else spec.description
        columns.append(AxisColumn(path, table, column, name, kind, description))
        values[name] = np.empty(first.size, dtype=object)
        values[name][:] = [cells[row] for row in first]
    dimension_columns = {column.column: column for column in columns if column.path == axis.path}
    if key in dimension_columns and axis.path:
        # The foreign key that leads here has the same value wherever a row was found.
        owner, foreign = reachable(catalog, axis.of)[axis.path[:-1]], axis.path[-1]
        name = names.take(axis.path[:-1], owner, foreign)
        columns.append(AxisColumn(axis.path[:-1], owner, foreign, name, dimension_columns[key].type))
        values[name] = values[dimension_columns[key].sql_name]
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
    gathered = _gather(catalog, axis, tables)
    leaf, first = _leaf_of_rows([_named(axis, gathered, member) for member in axis.by], home.size)
    names = UniqueNames()
    columns, values = _public_columns(catalog, axis, gathered, leaf, first, names)
    public = frozenset(column.column for column in columns if column.path == axis.path)
    derived = derived_columns(catalog.tables[axis.table], axis.table, axis.path, public, names)
    missing = int(first.size) if axis.missing else None
    total = int(first.size) + (missing is not None)
    rule = KeyRule(key, tuple(home.columns[key]), leaf)
    atoms = np.arange(first.size, dtype=np.int64)
    return Axis(
        axis.name, axis, total, None, missing, None, tuple(columns), derived, rule, True, atoms, values
    )


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
        arms = reachable(catalog, axis.table).values()
        return tuple(dict.fromkeys(name for name in arms if name in catalog.public_tables))
    if axis.spec is not None and axis.spec.private_keys is not None:
        return (list_name(axis),)
    return () if axis.spec is None or axis.spec.from_ is None else (axis.spec.from_,)


def list_name(axis: ResolvedAxis) -> str:
    """Name of the public table that lists a column's found keys; no table's name has a dot."""
    return f"{axis.table}.{axis.column}"


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
    names = UniqueNames()
    if column.ordered:
        leaves = _ordered(axis, column, names)
    elif column.private_keys is not None:
        leaves = _found(axis, column, names, tables[list_name(axis)])
    elif column.from_ is not None:
        leaves = _from_domain(axis, column, names, tables[column.from_])
    else:
        leaves = _listed(axis, column, names)
    return _finish(catalog, axis, column, names, leaves)


class _Leaves(NamedTuple):
    """The leaves of a column's domain: the fields of an `Axis` that the special leaves do not change."""

    columns: tuple[AxisColumn, ...]
    rule: Rule
    leaf: IntArray
    values: Mapping[str, NDArray[np.generic]]
    atomic: bool = True


def _listed(axis: ResolvedAxis, column: Column, names: UniqueNames) -> _Leaves:
    """Leaves are the categories, or false and true."""
    boolean = column.type == "bool"
    values = ("false", "true") if boolean else column.listed
    encoded = np.array([v == "true" for v in values] if boolean else values, dtype=object)
    public = _column(axis, column, names, str(axis.column), "BOOLEAN" if boolean else "VARCHAR")
    leaf = np.arange(len(values), dtype=np.int64)
    return _Leaves((public,), CategoryRule(values, boolean), leaf, {public.sql_name: encoded})


def _found(axis: ResolvedAxis, column: Column, names: UniqueNames, keys: PublicTable) -> _Leaves:
    """Leaves are the keys of a list, in its order."""
    values = tuple(keys.columns["key"])
    public = _column(axis, column, names, str(axis.column), keys.types["key"])
    encoded = np.array(values, dtype=object if column.type == "string" else np.int64)
    leaf = np.arange(len(values), dtype=np.int64)
    rule = KeyListRule(values, column.type == "string")  # type: ignore[arg-type]
    return _Leaves((public,), rule, leaf, {public.sql_name: encoded})


def _column(
    axis: ResolvedAxis, spec: Column, names: UniqueNames, column: str, kind: str, bound: str = ""
) -> AxisColumn:
    wanted = f"{column}_upper" if bound == "upper" else column
    name = names.take(axis.path, axis.table, wanted)
    return AxisColumn(axis.path, axis.table, column, name, kind, spec.description, bound)


def _ordered(axis: ResolvedAxis, column: Column, names: UniqueNames) -> _Leaves:
    """Leaves are runs of units; past `LARGEST_ATOMS` units each is one atom with two bounds."""
    starts = np.array(bin_starts(column, axis.cuts or column.cuts), dtype=np.int64)
    lower, upper = column.bounds
    rule = OrderedRule(column.type, column.digits, column.grain, upper, starts)
    if upper - lower + 1 <= LARGEST_ATOMS:
        atoms = np.arange(lower, upper + 1, dtype=np.int64)
        leaf = np.searchsorted(starts, atoms, side="right").astype(np.int64) - 1
        public = _column(axis, column, names, str(axis.column), sql_type(column))
        return _Leaves((public,), rule, leaf, {public.sql_name: atoms})
    low = _column(axis, column, names, str(axis.column), sql_type(column), "lower")
    high = _column(axis, column, names, str(axis.column), sql_type(column), "upper")
    ends = np.append(starts[1:] - 1, upper)
    leaf = np.arange(starts.size, dtype=np.int64)
    values = {low.sql_name: starts, high.sql_name: ends}
    return _Leaves((low, high), rule, leaf, values, atomic=False)


def _from_domain(axis: ResolvedAxis, column: Column, names: UniqueNames, domain: PublicTable) -> _Leaves:
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
            f"{domain.name}: a value of `{levels[-1]}` belongs to two values of a coarser level",
            hint="make each level a function of the finer one",
        )
    public = tuple(
        _column(axis, column, names, level, "VARCHAR" if level == levels[-1] else domain.types[level])
        for level in levels
    )
    if column.other in finest and column.out_of_domain.keeps:
        raise SourceError(
            f"{domain.name}: `{column.other}` is a value of `{levels[-1]}`",
            hint=f"write another word in `other` of {axis.table}.{axis.column}",
        )
    encoded = {}
    for position, shown in enumerate(public):
        encoded[shown.sql_name] = np.empty(len(ordered), dtype=object)
        encoded[shown.sql_name][:] = [row[position] for row in ordered]
    leaf = np.arange(len(ordered), dtype=np.int64)
    return _Leaves(public, CategoryRule(tuple(finest)), leaf, encoded)


def _finish(
    catalog: Catalog, axis: ResolvedAxis, column: Column, names: UniqueNames, leaves: _Leaves
) -> Axis:
    """Add the special leaves that can occur and the derived columns."""
    columns, rule, leaf, values, atomic = leaves
    size = int(leaf[-1]) + 1 if leaf.size else 0
    null = size if column.nullable else None
    missing = size + (null is not None) if axis.missing else None
    other_leaf = size + (null is not None) + (missing is not None) if column.out_of_domain.keeps else None
    total = size + sum(special is not None for special in (null, missing, other_leaf))
    public = frozenset(c.column for c in columns) if atomic else frozenset()
    derived = derived_columns(catalog.tables[axis.table], axis.table, axis.path, public, names, column)
    return Axis(
        axis.name, axis, total, null, missing, other_leaf, columns, derived, rule, atomic, leaf, values
    )
