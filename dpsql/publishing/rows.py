"""From the catalog to the row plans: which joins, leaves, measures and units each counted table needs."""

from __future__ import annotations

from collections.abc import Mapping

from dpsql.catalog import Catalog, reachable, unit_path
from dpsql.catalog.base import nearest
from dpsql.catalog.derived import expressions
from dpsql.catalog.graph import KeyPath
from dpsql.catalog.owners import is_own, joined_paths
from dpsql.catalog.tables import ForeignKey
from dpsql.errors import InternalError, SourceError
from dpsql.publishing.axes import leaf_expression
from dpsql.publishing.contributions import (
    Join,
    RowPlan,
    alias,
    bounded_rows,
    check_dimension,
    prepare_counted,
)
from dpsql.publishing.measures import Bounds, measure_sql
from dpsql.publishing.planned import PlannedStatistic, ReleasePlan
from dpsql.sources import RawSide, identifier
from dpsql.sources.keys import derived_columns


def prepare_tables(catalog: Catalog, raw: RawSide, plan: ReleasePlan) -> None:
    """Make what rows are read from: counted tables and the way to their units as they are, the others checked.

    Raises:
        SourceError: a table or column of the catalog is not in the source, or a public key is not unique.
    """
    counted = {s.of for s in plan.statistics}
    reached = [(of, path, t) for of in sorted(counted) for path, t in reachable(catalog, of).items() if path]
    own = {table for of, path, table in reached if is_own(catalog, of, path)}
    checked = {table for of, path, table in reached if not is_own(catalog, of, path)}
    for name in sorted(counted | own | checked):
        if name not in raw.columns:
            raise SourceError(f"source.tables has no `{name}`", hint="name its file there")
        table, derived = catalog.tables[name], derived_columns(catalog, raw, name, alias(()))
        _require(raw, name, [*table.foreign_keys, *([table.key] if table.key else [])], derived)
        if name in counted | own:
            prepare_counted(raw.connection, name, derived)
        if name in checked:
            check_dimension(raw.connection, name, str(table.key), derived, public=table.is_public)


def place_rows(
    catalog: Catalog,
    raw: RawSide,
    plan: ReleasePlan,
    of: str,
    *,
    keep_unit: bool = False,
    tau: int | None = None,
) -> tuple[str, dict[str, str]]:
    """Bound the rows of one table and place them on all axes of its views.

    Args:
        catalog, raw, plan: the release being made; `prepare_tables` has run.
        of: the counted table.
        keep_unit: keep each row's privacy unit in the column `unit`.
        tau: rows kept of one unit, 0 for all of them with their unit; None for the plan's.

    Returns:
        (name of the table of bounded rows, measure column name by `table.column`).
    """
    statistics = [s for s in plan.statistics if s.of == of]
    axes = {i for statistic in statistics for i in statistic.axes}
    leaves, lookups = {}, []
    for i in sorted(axes):
        planned = plan.axes[i]
        if planned.resolved.column is not None:
            _require(
                raw,
                planned.resolved.table,
                [planned.resolved.column],
                expressions(catalog.tables[planned.resolved.table]),
            )
        leaves[i], join = leaf_expression(raw.connection, i, planned.axis, catalog)
        lookups += [join] if join else []
    measures = _measures(catalog, raw, statistics)
    owner = unit_path(catalog, of)
    paths = {plan.axes[i].axis.path for i in axes} | ({owner.path} if owner else set())
    joins = _joins(catalog, raw, of, paths)
    rows = RowPlan(
        of=of,
        joins=joins,
        axes=leaves,
        measures=measures,
        unit=f"{alias(owner.path)}.{identifier(owner.column)}" if owner else None,
        tau=statistics[0].tau if tau is None else tau,
        lookups=lookups,
        keep_unit=keep_unit,
    )
    table = bounded_rows(raw.connection, rows)
    return table, {name: f"m{i}" for i, name in enumerate(measures)}


def _measures(catalog: Catalog, raw: RawSide, statistics: list[PlannedStatistic]) -> dict[str, str]:
    """SQL of each bounded measure, by `table.column`; `count(m)` counts where m is not NULL."""
    found: dict[str, str] = {}
    for statistic in statistics:
        measure = statistic.measure
        if not measure.column:
            continue
        name = f"{measure.table}.{measure.column}"
        if name in found and statistic.bounds is None:
            continue
        _require(raw, measure.table, [measure.column], expressions(catalog.tables[measure.table]))
        bounds = statistic.bounds or Bounds(0, 0, measure.scale)
        found[name] = measure_sql(f"{alias(())}.{identifier(measure.column)}", bounds)
    return found


def _joins(catalog: Catalog, raw: RawSide, of: str, ends: set[KeyPath]) -> list[Join]:
    """The join of every hop, parents before children."""
    tables = reachable(catalog, of)
    joins = []
    for path in joined_paths(catalog, of, ends):
        table = tables[path]
        key = str(catalog.tables[table].key)
        _one_type(raw, (tables[path[:-1]], path[-1]), (table, key))
        joins.append(
            Join(path, table, key, _key(catalog, tables, path).on_missing, is_own(catalog, of, path))
        )
    return joins


def _one_type(raw: RawSide, *columns: tuple[str, str]) -> None:
    """Refuse to join columns of two types: a cast that fails on one row would tell of it."""
    known = [{name.lower(): kind for name, kind in raw.columns[table].items()} for table, _ in columns]
    kinds = {
        kinds[name.lower()] for kinds, (_, name) in zip(known, columns, strict=True) if name.lower() in kinds
    }
    if len(kinds) > 1:
        raise InternalError("keys were not carried into one type", hint="open the source with `open_star`")


def _key(catalog: Catalog, tables: Mapping[KeyPath, str], path: KeyPath) -> ForeignKey:
    return catalog.tables[tables[path[:-1]]].foreign_keys[path[-1]]


def _require(raw: RawSide, table: str, columns: list[str], derived: Mapping[str, str]) -> None:
    """Refuse a catalog that names columns the source does not have, or derives one that it has."""
    known = raw.columns[table]
    for name in derived:
        if name.lower() in {column.lower() for column in known}:
            raise SourceError(
                f"tables.{table}: `{name}` is derived and in the source", hint="rename the derived one"
            )
    lower = {name.lower() for name in known} | {name.lower() for name in derived}
    for column in columns:
        if column.lower() not in lower:
            raise SourceError(
                f"tables.{table}: the source has no column `{column}`", hint=nearest(column, tuple(known))
            )
