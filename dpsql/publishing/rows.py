"""From raw rows to bounded integers on axes: what one privacy unit may contribute.

For each table that views count (`of`), every row gets a leaf on every axis and a bounded integer for every
measure; of a unit that has more than tau rows, tau are sampled (`sampling`). Which ones depends on the unit's rows
and the release's secret alone, never on row order or on other people.

A foreign key leads to every row that has the key where those rows are a unit's own (`Hop.own`), and to one
row where nobody owns them. So a row whose key two units share counts for each of them, within each one's
bound.

A measure's values are clamped, scaled to the declared decimal places and cast to BIGINT before anything is
added up. NULL and NaN stay NULL; infinities and numbers too large for DECIMAL go to the bound on their side.
`least(greatest(x, lower), upper)` would have turned NaN and NULL into a bound.

**Privacy**: adding or removing one unit changes the counts by at most tau and the centred sums by at most tau
* reach, in L1. Every input has a leaf or is dropped by a rule that looks at its row alone.
**Source**: docs/method/rows.md, "At most tau rows of a unit", "Leaves and keys".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import NamedTuple

import duckdb

from dpsql.axis import Axis, KeyRule, leaf_sql, whole_units
from dpsql.engines import RawSide
from dpsql.engines.keys import derived_columns
from dpsql.errors import InternalError, SourceError
from dpsql.publishing.planned import Bounds, PlannedStatistic, ReleasePlan
from dpsql.publishing.sampling import Digit, coefficients, hash_sql, is_kept, pack, unpack, variable
from dpsql.release.write import registered
from dpsql.star import Catalog
from dpsql.star.base import nearest
from dpsql.star.derived import expressions
from dpsql.star.resolve import Hop
from dpsql.star.sql import identifier, literal

EXACT_DIGITS = 9
"""Decimal places kept of text and decimals before rounding; the catalog allows no finer scale."""


Path = tuple[str, ...]

ROW = "this row"


def measure_sql(value: str, bounds: Bounds, kind: str | None = None) -> str:
    """SQL for the clamped integer of a raw value, NULL where it is NULL or NaN.

    Args:
        value: SQL expression of any type.
        bounds: the measure's bounds.
        kind: DuckDB type of the raw value, where it is known: the same integers without casts that may fail.

    Returns:
        A BIGINT expression within the bounds.
    """
    scale = 10**bounds.scale
    low, high = f"{bounds.lower} / {scale}::DOUBLE", f"{bounds.upper} / {scale}::DOUBLE"
    if kind in ("DOUBLE", "FLOAT"):
        near = f"CAST({value} AS DOUBLE)"
        return (
            f"CASE WHEN {near} IS NULL OR isnan({near}) THEN NULL WHEN {near} <= {low} THEN {bounds.lower} "
            f"WHEN {near} >= {high} THEN {bounds.upper} ELSE CAST(ROUND({near} * {scale}) AS BIGINT) END"
        )
    units = None if kind is None else whole_units(value, kind, bounds.scale)
    if units is not None:
        least, most = (f"{Decimal(end).scaleb(-bounds.scale):f}" for end in (bounds.lower, bounds.upper))
        return (
            f"CASE WHEN {value} IS NULL THEN NULL WHEN {value} <= {least} THEN {bounds.lower} "
            f"WHEN {value} >= {most} THEN {bounds.upper} ELSE {units} END"
        )
    near = f"TRY_CAST({value} AS DOUBLE)"
    exact = f"TRY_CAST({value} AS DECIMAL(38, {EXACT_DIGITS}))"
    is_float = f"typeof({value}) IN ('DOUBLE', 'FLOAT')"
    # A float is rounded after scaling in floating point, since 4.35 is 4.3499.. in binary; others are exact.
    from_float = f"CAST(ROUND({near} * {scale}) AS BIGINT)"
    from_exact = f"CAST(ROUND({exact}, {bounds.scale}) * {scale} AS BIGINT)"
    return (
        f"CASE WHEN {near} IS NULL OR isnan({near}) THEN NULL "
        f"WHEN {near} <= {low} THEN {bounds.lower} WHEN {near} >= {high} THEN {bounds.upper} "
        f"WHEN {is_float} THEN {from_float} ELSE {from_exact} END"
    )


class Leaf(NamedTuple):
    """The leaf of a row on one axis.

    Args:
        sql: over the joined rows.
        column: what is selected on the rows at the end of the axis's path, or empty.
        join: the join that `column` needs there, or empty.
    """

    sql: str
    column: str = ""
    join: str = ""


@dataclass(frozen=True)
class RowPlan:
    """How the rows of one table become leaves and integers.

    Args:
        of: the table counted.
        joins: all hops taken, parents before children.
        axes: axis id -> SQL for the leaf (BIGINT; NULL drops the row), over `alias(path)`.
        measures: measure name -> SQL for the bounded integer or NULL.
        unit: SQL for the privacy unit, or None where every row is one.
        tau: rows kept of one unit; 1 where every row is a unit; 0 keeps all rows and their unit.
        placed: path -> leaves that are found on the rows at its end, before they are joined: a dimension has far fewer.
        keep_unit: keep the unit beside bounded rows too, for a cap that runs across batches.
        digits: how many values each of these columns has, axes first; none where that is not known.
        unit_kind: DuckDB type of the unit's key.
    """

    of: str
    joins: Sequence[Hop]
    axes: Mapping[int, str]
    measures: Mapping[str, str]
    unit: str | None
    tau: int
    placed: Mapping[Path, Sequence[Leaf]] = field(default_factory=dict)
    keep_unit: bool = False
    digits: Sequence[Digit] = ()
    unit_kind: str | None = None


def alias(path: Path) -> str:
    """The SQL alias of the table at the end of a foreign-key path; no column is called that.

    >>> alias(()), alias(("order_id", "customer_id"))
    ('"this row"', '"this row.order_id.customer_id"')
    """
    return identifier(".".join((ROW, *path)))


def checked(table: str) -> str:
    """Name of the checked copy of a dimension that rows are joined to."""
    return f"checked.{identifier(table)}"


def counted(table: str) -> str:
    """Name of a table that is counted or lies on the way to the unit: its raw rows with their derived columns.

    Such rows need no unique key, since each unit's rows are bounded after all joins; keeping one row of a key that
    two units share would give one unit's rows to the other when that one comes.
    """
    return f"counted.{identifier(table)}"


def prepare_counted(connection: duckdb.DuckDBPyConnection, table: str, derived: Mapping[str, str]) -> None:
    """Make `counted.<table>`."""
    connection.execute("CREATE SCHEMA IF NOT EXISTS counted")
    connection.execute(f"CREATE OR REPLACE VIEW {counted(table)} AS {_with_derived(table, derived)}")


def check_dimension(
    connection: duckdb.DuckDBPyConnection, table: str, key: str, derived: Mapping[str, str], *, public: bool
) -> None:
    """Make `checked.<table>`: keys unique and not NULL, so that a join multiplies nothing.

    In a public table a duplicate or NULL key is an error. In a private one an error would tell something
    about its rows, so the row with the least keyed hash of its content is kept.

    **Privacy**: only for rows that no unit owns, which are alike in neighbours; which of two units' rows is kept
    would be decided by both.

    Raises:
        SourceError: a public table's key is not unique or holds NULL.
    """
    connection.execute("CREATE SCHEMA IF NOT EXISTS checked")
    column, rows, row = identifier(key), _with_derived(table, derived), alias(())
    once = f"SELECT * FROM found AS {row}"
    if not public:  # hashes are dear, and few keys stand twice
        once += (
            f" WHERE {column} IS NOT NULL AND {column} NOT IN (FROM again) UNION ALL SELECT * FROM found AS {row} "
            f"WHERE {column} IN (FROM again) "
            f"QUALIFY row_number() OVER (PARTITION BY {column} ORDER BY {_keyed_hash(row)}, {row}) = 1"
        )
    connection.execute(
        f"CREATE OR REPLACE TABLE {checked(table)} AS WITH found AS ({rows}), again AS (SELECT {column} FROM found "
        f"WHERE {column} IS NOT NULL GROUP BY {column} HAVING count(*) > 1) {once}"
    )
    if not public:
        return
    total, distinct, present = _one_row(
        connection, f"SELECT count(*), count(DISTINCT {column}), count({column}) FROM {checked(table)}"
    )
    if total != present:
        raise SourceError(f"tables.{table}.key: {key} holds NULL", hint="a dimension's key names its rows")
    if total != distinct:
        raise SourceError(
            f"tables.{table}.key: {key} has duplicates, which would multiply facts",
            hint="remove them, or use a SELECT DISTINCT statement as the source of the table",
        )


def bounded_rows(connection: duckdb.DuckDBPyConnection, plan: RowPlan) -> str:
    """Place, rank and bound the rows of one table.

    Args:
        connection: raw side with `counted.*`, `checked.*` and the variable `contribution_key` set.
        plan: what to compute.

    Returns:
        Name of a temporary table with a column a<axis id> for each axis and m<i> for each measure, and
        with the column `unit` where tau is 0 or `keep_unit` says so.
    """
    table = identifier(f"bounded {plan.of}")
    columns = [f"{sql} AS a{axis}" for axis, sql in plan.axes.items()]
    columns += [f"{sql} AS m{i}" for i, sql in enumerate(plan.measures.values())]
    kept = [f"a{axis} IS NOT NULL" for axis in plan.axes]
    if plan.unit is not None:
        columns.append(f"{plan.unit} AS unit")
        kept.append("unit IS NOT NULL")
    dropped = [f"{alias(join.path)}.{identifier(join.key)} IS NOT NULL" for join in plan.joins if join.drops]
    placed = (
        f"SELECT * FROM (SELECT {', '.join(columns)} FROM {_join_sql(plan)} "
        f"{'WHERE ' + ' AND '.join(dropped) if dropped else ''}) WHERE {' AND '.join(kept) or 'true'}"
    )
    bounded = plan.unit is not None and plan.tau > 0
    connection.execute(
        f"CREATE OR REPLACE TEMP TABLE {table} AS {_sampled(plan, placed) if bounded else placed}"
    )
    return table


def _sampled(plan: RowPlan, placed: str) -> str:
    """At most tau rows of each unit (`sampling`); sorted by one packed integer where a row fits into one."""
    names = [*(f"a{axis}" for axis in plan.axes), *(f"m{i}" for i in range(len(plan.measures)))]
    packed = pack(plan.digits) if plan.digits else None
    sorted_by, columns = (", ".join(names), names) if packed is None else ("p", unpack(plan.digits))
    columns = ["unit", *columns] if plan.keep_unit else columns
    return (
        f"WITH placed AS MATERIALIZED (SELECT {'*' if packed is None else f'unit, {packed} AS p'} FROM ({placed})), "
        f"units AS (SELECT unit, count(*) AS n, {hash_sql('unit', plan.unit_kind)} AS h FROM placed GROUP BY unit), "
        f"numbered AS (SELECT *, row_number() OVER (PARTITION BY unit ORDER BY {sorted_by or '1'}) AS i FROM placed) "
        f"SELECT {', '.join(columns) or '1 AS one'} FROM numbered JOIN units USING (unit) WHERE {is_kept(plan.tau)}"
    )


def set_key(connection: duckdb.DuckDBPyConnection, key: bytes) -> None:
    """Give the connection the secret that picks rows. Drawn fresh for each release and kept nowhere."""
    connection.execute(f"SET VARIABLE contribution_key = {literal(key.hex())}")
    for i, coefficient in enumerate(coefficients(key)):
        connection.execute(f"SET VARIABLE {variable(i)} = {coefficient}::BIGINT")


def _keyed_hash(row: str) -> str:
    """SHA-256 over the secret and the row's content; identical rows tie and are interchangeable."""
    return f"sha256(getvariable('contribution_key') || CAST({row} AS VARCHAR))"


def _with_derived(table: str, derived: Mapping[str, str]) -> str:
    """The raw rows with derived columns (`catalog.derived`), which are NULL where they fail."""
    columns = "".join(f", {expression} AS {identifier(name)}" for name, expression in derived.items())
    return f"SELECT *{columns} FROM raw.{identifier(table)} AS {alias(())}"


def _join_sql(plan: RowPlan) -> str:
    """The counted rows and LEFT JOINs along the foreign keys; `engines.keys` has given both sides one type."""
    parts = [_placed_sql(plan, (), counted(plan.of))]
    for join in plan.joins:
        own = f"{alias(join.path)}.{identifier(join.key)}"
        foreign = f"{alias(join.path[:-1])}.{identifier(join.path[-1])}"
        parts.append(f"LEFT JOIN {_placed_sql(plan, join.path, _rows_of(join))} ON {foreign} = {own}")
    return " ".join(parts)


def _rows_of(hop: Hop) -> str:
    """Name of the rows that a hop joins."""
    return counted(hop.table) if hop.own else checked(hop.table)


def _placed_sql(plan: RowPlan, path: Path, rows: str) -> str:
    """Rows under their alias, with the leaves that are found on them."""
    leaves, here = plan.placed.get(path, ()), alias(path)
    if not leaves:
        return f"{rows} AS {here}"
    columns, joins = ", ".join(leaf.column for leaf in leaves), " ".join(leaf.join for leaf in leaves)
    return f"(SELECT {here}.*, {columns} FROM {rows} AS {here} {joins}) AS {here}"


def _one_row(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[int, ...]:
    # fetchall: a result that is not read to its end blocks the connection.
    return tuple(int(value) for value in connection.execute(sql).fetchall()[0])


def leaf_expression(raw: RawSide, axis_id: int, axis: Axis, catalog: Catalog) -> Leaf:
    """How the leaf of a row is found.

    Args:
        raw: where `checked.*` is; receives the look-up table of a public dimension.
        axis_id: the axis's id in the release.
        axis: the axis.
        catalog: the catalog.
    """
    here, name = alias(axis.path), identifier(f"leaf of {axis_id}")
    missing = "NULL" if axis.missing_leaf is None else str(axis.missing_leaf)
    if isinstance(axis.rule, KeyRule):
        lookup = f"checked.{name}"
        _store_lookup(raw.connection, lookup, axis.rule)
        join = f"LEFT JOIN {lookup} AS {name} ON {here}.{identifier(axis.rule.key)} = {name}.key"
        return Leaf(f"CAST(coalesce({here}.{name}, {missing}) AS INTEGER)", f"{name}.leaf AS {name}", join)
    column = str(axis.resolved.column)
    leaf = leaf_sql(axis, f"{here}.{identifier(column)}", None, raw.kind_of(axis.table, column))
    if not axis.path:
        return Leaf(leaf)
    found = f"{here}.{identifier(str(catalog.tables[axis.table].key))} IS NOT NULL"
    return Leaf(f"CASE WHEN {found} THEN {here}.{name} ELSE {missing} END", f"{leaf} AS {name}")


def _store_lookup(connection: duckdb.DuckDBPyConnection, lookup: str, rule: KeyRule) -> None:
    with registered(connection, "incoming_leaves", {"key": rule.keys, "leaf": rule.leaf}):
        connection.execute(f"CREATE OR REPLACE TABLE {lookup} AS SELECT * FROM incoming_leaves")


def prepare_tables(catalog: Catalog, raw: RawSide, plan: ReleasePlan) -> None:
    """Make what rows are read from: counted tables and the way to their units as they are, the others checked.

    Raises:
        SourceError: a table or column of the catalog is not in the source, or a public key is not unique.
    """
    counted = {s.of for s in plan.statistics}
    hops = [hop for of in counted for hop in catalog.star.tables[of].hops]
    own, checked = {hop.table for hop in hops if hop.own}, {hop.table for hop in hops if not hop.own}
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
    leaves: dict[int, Leaf] = {}
    placed: dict[Path, list[Leaf]] = {}
    for i in sorted(axes):
        planned = plan.axes[i]
        if planned.resolved.column is not None:
            _require(
                raw,
                planned.resolved.table,
                [planned.resolved.column],
                expressions(catalog.tables[planned.resolved.table]),
            )
        leaves[i] = leaf_expression(raw, i, planned.axis, catalog)
        if leaves[i].column:
            placed.setdefault(planned.axis.path, []).append(leaves[i])
    measures, star = _measures(catalog, raw, statistics), catalog.star.tables[of]
    owner, joins = star.unit, star.joined([plan.axes[i].axis.path for i in axes])
    for hop in joins:
        _one_type(raw, (hop.parent, hop.path[-1]), (hop.table, hop.key))
    rows = RowPlan(
        of=of,
        joins=joins,
        axes={i: leaf.sql for i, leaf in leaves.items()},
        measures={name: measure.sql for name, measure in measures.items()},
        unit=f"{alias(owner.path)}.{identifier(owner.column)}" if owner else None,
        tau=statistics[0].tau if tau is None else tau,
        placed=placed,
        keep_unit=keep_unit,
        digits=[
            *(Digit(f"a{i}", 0, plan.axes[i].axis.leaves) for i in leaves),
            *(each.digit(i) for i, each in enumerate(measures.values())),
        ],
        unit_kind=raw.kind_of(owner.table, owner.column) if owner else None,
    )
    table = bounded_rows(raw.connection, rows)
    return table, {name: f"m{i}" for i, name in enumerate(measures)}


class _Measured(NamedTuple):
    sql: str
    bounds: Bounds

    def digit(self, i: int) -> Digit:
        """Its place in a packed row, as the table's i-th measure."""
        return Digit(f"m{i}", self.bounds.lower, self.bounds.upper - self.bounds.lower + 1)


def _measures(catalog: Catalog, raw: RawSide, statistics: list[PlannedStatistic]) -> dict[str, _Measured]:
    """Each bounded measure, by `table.column`; `count(m)` counts where m is not NULL."""
    found: dict[str, _Measured] = {}
    for statistic in statistics:
        measure = statistic.measure
        if not measure.column:
            continue
        name = f"{measure.table}.{measure.column}"
        if name in found and statistic.bounds is None:
            continue
        _require(raw, measure.table, [measure.column], expressions(catalog.tables[measure.table]))
        bounds = statistic.bounds or Bounds(0, 0, measure.scale)
        kind = raw.kind_of(measure.table, measure.column)
        sql = measure_sql(f"{alias(())}.{identifier(measure.column)}", bounds, kind)
        found[name] = _Measured(sql, bounds)
    return found


def _one_type(raw: RawSide, *columns: tuple[str, str]) -> None:
    """Refuse to join columns of two types: a cast that fails on one row would tell of it."""
    known = [{name.lower(): kind for name, kind in raw.columns[table].items()} for table, _ in columns]
    kinds = {
        kinds[name.lower()] for kinds, (_, name) in zip(known, columns, strict=True) if name.lower() in kinds
    }
    if len(kinds) > 1:
        raise InternalError("keys were not carried into one type", hint="open the source with `open_star`")


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
