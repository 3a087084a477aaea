"""Columns and measures made of others: `derive` and `expr`, checked, written again and bound to the declared types.

An expression sees columns that its table declares and those derived before it; text is read as the declared type, so
that a CSV file and a Parquet file mean the same. `check_binding` has the engine bind each to an empty table of the
declared types before any row is opened: what does not bind there could not be published, such as text plus a number.

**Privacy**: each is a function of one row that is NULL where it fails (`dpsql.row_expressions.expression`). Checking
them reads the catalog alone; the tables are empty.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import duckdb

from dpsql.catalog.base import Problem, nearest
from dpsql.catalog.columns import Column
from dpsql.catalog.tables import Table
from dpsql.errors import CatalogError
from dpsql.row_expressions import identifier
from dpsql.row_expressions.expression import instant, row_expression
from dpsql.row_expressions.total import total_expression
from dpsql.row_expressions.typed import TotalExpression
from dpsql.scratch import scratch

MOST_CHARACTERS = 64 * 1024
"""What an expression may become with those it is derived from put in."""


def sql_type(column: Column) -> str:
    """The engine's type of a declared column."""
    kinds = {
        "int": "BIGINT",
        "string": "VARCHAR",
        "bool": "BOOLEAN",
        "decimal": f"DECIMAL(18, {column.digits})",
    }
    return kinds.get(column.type) or column.type.upper()


def expressions(table: Table) -> dict[str, str]:
    """Expressions of the catalog: derived columns, then measures, by name."""
    return dict(table.derive) | {name: measure.expr for name, measure in table.measures.items()}


def _key(table: Table, column: str) -> tuple[str, ...]:
    """Where an expression stands in its table."""
    return ("derive", column) if column in table.derive else ("measures", column, "expr")


def made_columns(table: Table) -> tuple[str, ...]:
    """Columns that publishing makes: derived ones, measures and summaries; the source has none of them."""
    return (*expressions(table), *table.summaries)


def derived_sql(
    table: Table, types: Mapping[str, str], row: str, summaries: Mapping[str, str] | None = None
) -> dict[str, str]:
    """SQL of derived columns and measures over raw rows.

    Args:
        table: a table of a checked catalog.
        types: raw column -> DuckDB type.
        row: alias of the raw row, quoted.
        summaries: summary -> SQL of its exact value.

    Returns:
        Name -> expression that is NULL where it fails.
    """
    declared = {name.lower(): spec for name, spec in table.columns.items()}
    columns = {name.lower(): sql for name, sql in (summaries or {}).items()}
    for name, kind in types.items():
        spec, value = declared.get(name.lower()), f"{row}.{identifier(name)}"
        if kind == "VARCHAR" and spec is not None and spec.type != "string":
            timed = spec.type == "timestamp"
            value = instant(value) if timed else f"TRY_CAST({value} AS {sql_type(spec)})"
        columns[name.lower()] = value
    derived: dict[str, str] = {}
    for name, text_ in expressions(table).items():
        derived[name] = f"TRY({row_expression(text_).over(columns)})"
        columns[name.lower()] = derived[name]
    return derived


def total_columns(
    table: Table, types: Mapping[str, str], *, strict: bool = True
) -> dict[str, TotalExpression]:
    """Derived columns and measures whose expressions are total: all of them on a server, which has no TRY.

    Args:
        table: a table of a checked catalog.
        types: raw column -> type in DuckDB's words.
        strict: whether one that is not total is an error; else it is left out.

    Returns:
        Name -> expression over columns by their names in lower case, derived ones before it included.

    Raises:
        CatalogError: one is not total (`dpsql.row_expressions.total`); names it.
    """
    declared = {name.lower(): spec for name, spec in table.columns.items()}
    kinds = {
        name.lower(): kind
        for name, kind in types.items()
        if kind != "VARCHAR" or name.lower() not in declared or declared[name.lower()].type == "string"
    }
    columns = {}
    for name, text in expressions(table).items():
        try:
            columns[name] = total_expression(text, kinds)
        except CatalogError as error:
            if strict:
                raise CatalogError(f"{'.'.join(_key(table, name))}: {error}") from None
            continue
        kinds[name.lower()] = columns[name].sql_type
    return columns


def check_derived(tables: Mapping[str, Table]) -> None:
    """Check every `derive` and `expr`.

    Raises:
        Problem: at its key: more than a pure expression of one row, or a column that the table does not declare.
    """
    for name, table in tables.items():
        made = expressions(table)
        available = {column.lower() for column in table.columns} - {column.lower() for column in made}
        sizes: dict[str, int] = {}
        for column, text in made.items():
            path = ("tables", name, *_key(table, column))
            try:
                expression = row_expression(text)
            except CatalogError as error:
                raise Problem(path, str(error)) from None
            for used in expression.columns:
                if used.lower() not in available and not table.is_public:
                    hint = f"declare it under `columns`, {nearest(used, tuple(table.columns))}"
                    raise Problem(path, f"`{used}` is not a declared column of `{name}`; {hint}")
            put_in = sum(sizes.get(c.lower(), 0) for c in expression.columns)
            sizes[column.lower()] = len(expression.sql) + put_in
            if sizes[column.lower()] > MOST_CHARACTERS:
                raise Problem(
                    path, "is too long with the columns that it is derived from; write it from raw columns"
                )
            available.add(column.lower())


def check_binding(tables: Mapping[str, Table], *, on_server: bool = False) -> None:
    """Bind every `derive` and `expr` of private tables.

    Args:
        tables: those of a checked catalog.
        on_server: whether rows are on a server, where expressions must be total.

    Raises:
        Problem: at the key of one that does not bind.
    """
    private = {name: t for name, t in tables.items() if not t.is_public and (t.derive or t.measures)}
    if not private:
        return
    with scratch() as connection:
        for name, table in private.items():
            _bind(connection, name, table)
    for name, table in private.items() if on_server else ():
        try:
            total_columns(table, _types_but(table, made_columns(table)))
        except CatalogError as error:
            at, _, reason = str(error).partition(": ")
            raise Problem(("tables", name, *at.split(".")), reason) from None


def _types_but(table: Table, made: Iterable[str]) -> dict[str, str]:
    """Types of a table's other columns, as the catalog declares them."""
    left_out = {column.lower() for column in made}
    return {name: sql_type(spec) for name, spec in table.columns.items() if name.lower() not in left_out}


def _bind(connection: duckdb.DuckDBPyConnection, name: str, table: Table) -> None:
    types = _types_but(table, table.derive)
    columns = [f'CAST(NULL AS {kind}) AS "{column}"' for column, kind in types.items()]
    row = f"(SELECT {', '.join(columns) or '1'} WHERE false) AS row"
    for column, sql in derived_sql(table, types, "row").items():
        try:
            connection.execute(f"DESCRIBE SELECT {sql} AS made FROM {row}")
            if column in table.measures:
                connection.execute(f"DESCRIBE SELECT CAST({sql} AS DECIMAL(38, 9)) AS made FROM {row}")
        except duckdb.Error as error:
            reason = str(error).splitlines()[0].partition(": ")[2]
            raise Problem(
                ("tables", name, *_key(table, column)),
                f"does not fit the declared types ({reason}); correct it, or declare another type",
            ) from None
