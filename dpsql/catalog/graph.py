"""Meaning of a view's names: paths of foreign keys, the privacy unit, axes and measures.

A **path** is the tuple of foreign-key columns that leads from one table to another: ``()`` is the table
itself, ``("order_id", "customer_id")`` goes through the orders to the customer. Two paths may lead to one
table (pick-up and drop-off zone); then the path is the name. A key and all foreign keys that name it are one group.

**Privacy**: of the catalog alone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

from dpsql.catalog.base import MeasureName, nearest
from dpsql.catalog.collection import JointGrid
from dpsql.catalog.columns import Column, Cuts
from dpsql.catalog.model import AxisSpec, CatalogFields, View
from dpsql.errors import CatalogError

KeyPath = tuple[str, ...]


@dataclass(frozen=True)
class UnitPath:
    """Path from a row of a view's table to its unit.

    Args:
        path: foreign keys from the view's table to `table`.
        table: the table that holds the unit's key.
        column: its column there; its value is the privacy unit (NULL: no owner, the row is left out).
    """

    path: KeyPath
    table: str
    column: str


@dataclass(frozen=True)
class PublicColumn:
    """One column of a public dimension or of its snowflake arms, with the path from the view's table."""

    path: KeyPath
    table: str
    column: str


@dataclass(frozen=True)
class ResolvedAxis:
    """Meaning of a view's axis, from the catalog alone.

    Args:
        name: unique within the catalog for equal axes, such as ``customer.age``.
        of: the view's table.
        path: foreign keys from `of` to `table`.
        table: the table that holds the axis.
        column: the column of a plain axis; None for a public dimension at a grain.
        spec: that column's domain; None for a public dimension at a grain.
        cuts: coarser cuts for this view, if any.
        by: the grain of a public dimension; empty for a plain axis.
        missing: whether a row of `of` may find no row of `table` and is kept.
    """

    name: str
    of: str
    path: KeyPath
    table: str
    column: str | None
    spec: Column | None
    cuts: Cuts | None
    by: tuple[PublicColumn, ...]
    missing: bool


def reachable(catalog: CatalogFields, start: str) -> dict[KeyPath, str]:
    """Every table that foreign keys lead to from `start`, nearest first.

    Returns:
        Path to table name; ``()`` maps to `start`.

    Raises:
        CatalogError: foreign keys form a cycle, or name no table.
    """
    tables: dict[KeyPath, str] = {(): start}
    frontier: list[KeyPath] = [()]
    while frontier:
        path = frontier.pop(0)
        if len(path) > len(catalog.tables):
            raise CatalogError(f"tables.{start}: foreign keys form a cycle", hint="leave one of them out")
        for column, foreign_key in catalog.tables[tables[path]].foreign_keys.items():
            if foreign_key.references not in catalog.tables:
                raise CatalogError(
                    f"tables.{tables[path]}.foreign_keys.{column}: no table `{foreign_key.references}`",
                    hint=nearest(foreign_key.references, tuple(catalog.tables)),
                )
            tables[(*path, column)] = foreign_key.references
            frontier.append((*path, column))
    return tables


def paths_to(catalog: CatalogFields, start: str, table: str) -> tuple[KeyPath, ...]:
    """All paths from one table to another, nearest first (``()`` when they are the same)."""
    return tuple(path for path, name in reachable(catalog, start).items() if name == table)


def may_be_missing(catalog: CatalogFields, start: str, path: KeyPath) -> bool:
    """True if a kept row of `start` may find no row at the end of `path` (a NULL or dangling key)."""
    tables = reachable(catalog, start)
    hops = range(len(path))
    return any(not catalog.tables[tables[path[:hop]]].foreign_keys[path[hop]].drops for hop in hops)


def unit_path(catalog: CatalogFields, of: str) -> UnitPath | None:
    """Path from rows of a table to their unit.

    Args:
        catalog: any catalog.
        of: the view's table.

    Returns:
        The place of the unit's key, or None where each row is its own unit.

    Raises:
        CatalogError: no path leads to the unit, or several do and `unit_path` does not choose.
    """
    unit, key = catalog.privacy.unit
    if unit is None:
        return None
    if of == unit:
        return UnitPath((), of, key)
    paths = paths_to(catalog, of, unit)
    chosen = catalog.tables[of].unit_path
    if chosen:
        paths = tuple(path for path in paths if path == chosen)
    if len(paths) != 1:
        listed = ", ".join("[" + ", ".join(path) + "]" for path in paths_to(catalog, of, unit)) or "none"
        known = listed != "none"
        hint = f"write `unit_path: [foreign keys]` in tables.{of}" if known else "declare its foreign keys"
        reason = f"tables.{of}: {len(paths)} paths lead to the privacy unit `{unit}` ({listed})"
        raise CatalogError(reason, hint=hint)
    *hops, last = paths[0]
    return UnitPath(tuple(hops), reachable(catalog, of)[tuple(hops)], last)


def own_path(catalog: CatalogFields, of: str) -> KeyPath:
    """Foreign keys from a counted table to the unit's own table; () where its rows are units or name them.

    Args:
        catalog: a checked catalog.
        of: the counted table.
    """
    owner = unit_path(catalog, of)
    return () if owner is None or of == catalog.privacy.unit.table else (*owner.path, owner.column)


def is_own(catalog: CatalogFields, of: str, path: KeyPath) -> bool:
    """True if the private rows at the end of a path are the counted row's unit's own."""
    private = not catalog.tables[reachable(catalog, of)[path]].is_public
    return private and path == own_path(catalog, of)[: len(path)]


def of_other_units(catalog: CatalogFields, of: str, path: KeyPath) -> bool:
    """True if a path leads to private rows of units, and not by the counted row's own way to its unit."""
    table, unit = reachable(catalog, of)[path], catalog.privacy.unit.table
    belongs = not catalog.tables[table].is_public and unit in reachable(catalog, table).values()
    return belongs and path != own_path(catalog, of)[: len(path)]


def max_ids(catalog: CatalogFields, of: str) -> int | str:
    """Rows of a table that count for one privacy unit: 1, a number, or ``auto``."""
    if catalog.privacy.unit.table in (None, of):
        return 1
    declared = catalog.tables[of].max_ids
    if not isinstance(declared, int) and is_unique_per_unit(catalog, of):
        return 1
    if declared is None:
        raise CatalogError(
            f"tables.{of}.max_ids: the number of rows that one {catalog.privacy.unit.name} may own is missing",
            hint="write `max_ids: <number>` or `max_ids: auto`",
        )
    return declared


def is_unique_per_unit(catalog: CatalogFields, of: str) -> bool:
    """True if a unit owns at most one row by the catalog: each key on the way to the unit names a row of its
    table.

    Rows that repeat the key all the same are bounded to one a unit as rows beyond any `max_ids` are.
    """
    owner = unit_path(catalog, of)
    if owner is None:
        return True
    tables = reachable(catalog, of)
    hops = (*owner.path, owner.column)
    return all(catalog.tables[tables[hops[:at]]].key == hop for at, hop in enumerate(hops))


def ledger_path(catalog: CatalogFields) -> Path:
    """The ledger's file: the catalog's `ledger`, beside the catalog unless absolute."""
    base = Path.cwd() if catalog.file is None else catalog.file.parent
    return base / catalog.ledger


def locate(catalog: CatalogFields, of: str, prefix: tuple[str, ...]) -> KeyPath:
    """The path that a name's prefix means, seen from a table.

    Args:
        catalog: any catalog.
        of: the table to start from.
        prefix: nothing or `of` itself, foreign keys, or one table name.

    Raises:
        CatalogError: it leads nowhere, or a table name has several paths.
    """
    tables = reachable(catalog, of)
    if prefix in ((), (of,)):
        return ()
    if prefix in tables:
        return prefix
    name = ".".join(prefix)
    paths = paths_to(catalog, of, name)
    if len(paths) == 1:
        return paths[0]
    if paths:
        ways = " or ".join(f"`{'.'.join(path)}.<column>`" for path in paths)
        raise CatalogError(
            f"several foreign keys lead from `{of}` to `{name}`", hint=f"name the axis by its path: {ways}"
        )
    names = (*dict.fromkeys(tables.values()), *(".".join(path) for path in tables if path))
    raise CatalogError(f"`{name}` cannot be reached from `{of}`", hint=nearest(name, names))


def resolve_axis(catalog: CatalogFields, view: View, axis: AxisSpec) -> ResolvedAxis:
    """Resolve an axis of a view.

    Args:
        catalog: any catalog.
        view: the view it stands in.
        axis: the axis as written.

    Raises:
        CatalogError: no such table or column, an ambiguous path, no public domain.
    """
    if axis.by:
        path = locate(catalog, view.of, tuple(axis.axis.split(".")))
        return _grain_axis(catalog, view, axis.axis, path, axis.by)
    *prefix, column = axis.axis.split(".")
    path = locate(catalog, view.of, tuple(prefix))
    table = reachable(catalog, view.of)[path]
    spec = catalog.tables[table].columns.get(column)
    if catalog.tables[table].is_public and (spec is None or not spec.has_domain):
        return _grain_axis(catalog, view, ".".join(prefix) or view.of, path, (column,))
    if spec is None:
        raise CatalogError(
            f"no column `{column}` in `{table}`", hint=nearest(column, tuple(catalog.tables[table].columns))
        )
    if not spec.has_domain:
        wanted = "categories" if spec.type == "string" else "lower and upper"
        raise CatalogError(
            f"`{axis.axis}` has no public domain", hint=f"write its {wanted} in tables.{table}"
        )
    cuts = axis.cuts
    if cuts is not None and not spec.ordered:
        raise CatalogError(f"`{axis.axis}` is not ordered and cannot be cut", hint="remove the cuts")
    name, missing = f"{place_name(catalog, view.of, path)}.{column}", may_be_missing(catalog, view.of, path)
    return ResolvedAxis(name, view.of, path, table, column, spec, cuts, (), missing)


def _grain_axis(
    catalog: CatalogFields, view: View, written: str, path: KeyPath, by: tuple[str, ...]
) -> ResolvedAxis:
    table = reachable(catalog, view.of)[path]
    if not catalog.tables[table].is_public:
        raise CatalogError(
            f"`{written}` is private; only a public dimension has `by`", hint="name one column"
        )
    members = tuple(_member(catalog, view.of, path, name) for name in by)
    place = place_name(catalog, view.of, path)
    name = f"{place}({', '.join(by)})"
    missing = may_be_missing(catalog, view.of, path)
    return ResolvedAxis(name, view.of, path, table, None, None, None, members, missing)


def place_name(catalog: CatalogFields, of: str, path: KeyPath) -> str:
    """The shortest name of a place: its table if only one path leads there, otherwise the path."""
    table = reachable(catalog, of)[path]
    return table if len(paths_to(catalog, of, table)) == 1 else ".".join(path)


def _member(catalog: CatalogFields, of: str, path: KeyPath, name: str) -> PublicColumn:
    """The column that a name in `by` means: the dimension's own, else the only arm that declares it."""
    tables = reachable(catalog, of)
    table = tables[path]
    *prefix, column = name.split(".")
    arms = {p: t for p, t in tables.items() if p[: len(path)] == path and catalog.tables[t].is_public}
    if prefix:
        inner = (*path, *locate(catalog, table, tuple(prefix)))
        if inner not in arms:
            raise CatalogError(
                f"`{name}` is not in a public table", hint="name columns of public tables in `by`"
            )
        return PublicColumn(inner, tables[inner], column)
    spec = catalog.tables[table]
    if column not in {*spec.columns, *spec.foreign_keys, spec.key}:
        holders = [(p, t) for p, t in arms.items() if column in catalog.tables[t].columns]
        if len(holders) == 1:
            return PublicColumn(*holders[0], column)
        if holders:
            raise CatalogError(f"several tables have `{column}`", hint=f"write `{holders[0][1]}.{column}`")
    return PublicColumn(path, table, column)


def view_axes(catalog: CatalogFields, view: View) -> tuple[ResolvedAxis, ...]:
    """The resolved axes of a view, in its order."""
    return tuple(resolve_axis(catalog, view, axis) for axis in view.axes)


@dataclass(frozen=True)
class ResolvedMeasure:
    """One statistic of a view.

    Args:
        name: as releases have it.
        share: part of the view's epsilon.
        scale: digits after the point that are kept.
        bounds: smallest and largest value in units of 10**-scale, inclusive; (0, 0) for counts.
        nullable: whether NULL may occur; such a measure comes with its own ``count(...)``.
    """

    name: MeasureName
    share: Fraction
    scale: int = 0
    bounds: tuple[int, int] = (0, 0)
    nullable: bool = False


def view_measures(catalog: CatalogFields, view: View) -> tuple[ResolvedMeasure, ...]:
    """The statistics of a view's rows, in its order; what counts units is planned apart (`StarView.unit_share`).

    A nullable measure is followed by its own ``count(table.column)``, which AVG divides by; unless the view
    gives that one a share, the two halve the measure's share.

    Args:
        catalog: any catalog.
        view: one of its views.

    Returns:
        The statistics; their shares add up to at most 1.

    Raises:
        CatalogError: a name is not a measure of the view's table.
    """
    measures: dict[str, ResolvedMeasure] = {}
    for name, share in view.measures.items():
        if not name.sums_rows:
            continue
        measure = _measure(catalog, view.of, name, share)
        if measure.name in measures:
            raise CatalogError(f"measure `{name}` is listed twice", hint="list it once")
        measures[measure.name] = measure
    for measure in tuple(measures.values()):
        counted = measure.name.counted
        if measure.nullable and not measure.name.is_count and counted not in measures:
            halved = replace(measure, share=measure.share / 2)
            measures[measure.name] = halved
            measures[counted] = replace(halved, name=counted, bounds=(0, 0))
    return tuple(measures.values())


def _measure(catalog: CatalogFields, of: str, written: MeasureName, share: Fraction) -> ResolvedMeasure:
    if written.counts_rows:
        return ResolvedMeasure(written, share)
    if written.counts_values:
        inner = _measure(catalog, of, MeasureName(written.summed), share)
        if inner.name.is_count:
            raise CatalogError(f"`{written}` is not a measure", hint="write `count`")
        return replace(inner, name=inner.name.counted, bounds=(0, 0))
    table, column = catalog.tables[of], written.column
    summed = (*(n for n, c in table.columns.items() if c.measure), *table.measures)
    names = ("count", *(f"{of}.{n}" for n in summed))
    if written.table not in ("", of):
        raise CatalogError(f"measure `{written}` is not a column of `{of}`", hint=nearest(written, names))
    name = MeasureName(f"{of}.{column}")
    if column in table.measures:
        declared = table.measures[column]
        return ResolvedMeasure(name, share, declared.scale, declared.bounds, declared.nullable)
    spec = table.columns.get(column)
    if spec is None or not spec.measure:
        keys = "summaries" if column in table.summaries else "columns"
        hint = f"write `measure: true` in tables.{of}.{keys}.{column}" if spec else nearest(written, names)
        raise CatalogError(f"`{written}` is not a measure", hint=hint)
    return ResolvedMeasure(name, share, spec.digits, spec.bounds, spec.nullable)


def roots(catalog: CatalogFields) -> dict[tuple[str, str], str]:
    """(table, column in lower case) -> the table whose key it holds, for every key and foreign key.

    A key that is itself a foreign key belongs to the group of the key that it names.
    """
    named = {(name, key_of(catalog, name)): name for name, table in catalog.tables.items() if table.key}
    for name, table in catalog.tables.items():
        for column in table.foreign_keys:
            named[name, column.lower()] = _root(catalog, name, column)
    return named


def _root(catalog: CatalogFields, table: str, column: str) -> str:
    """The table at the end of a chain of keys that are foreign keys too."""
    for _ in catalog.tables:
        keys = catalog.tables[table].foreign_keys
        foreign = {name.lower(): foreign_key.references for name, foreign_key in keys.items()}
        if column.lower() not in foreign:
            return table
        table = foreign[column.lower()]
        column = key_of(catalog, table)
    return table


def key_of(catalog: CatalogFields, table: str) -> str:
    """The key column of a table, in lower case."""
    return str(catalog.tables[table].key).lower()


def joint_view(catalog: CatalogFields, grid: JointGrid) -> str | None:
    """The first view, by name, that has all axes of a joint grid."""
    for name, view in sorted(catalog.views.items()):
        if set(grid.axes) <= {axis.axis for axis in view.axes}:
            return name
    return None
