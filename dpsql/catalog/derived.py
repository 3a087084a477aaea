"""Columns and measures made of others: `derive` and `expr`, checked and written again.

An expression sees columns that its table declares and those derived before it; text is read as the declared type, so
that a CSV file and a Parquet file mean the same.

**Privacy**: each is a function of one row that is NULL where it fails (`dpsql.sql.expression`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from dpsql.catalog.base import Problem, nearest
from dpsql.catalog.columns import Column
from dpsql.errors import CatalogError
from dpsql.sql.expression import RowExpression, row_expression

if TYPE_CHECKING:
    from dpsql.catalog.model import Catalog
    from dpsql.catalog.tables import Table

MOST_CHARACTERS = 64 * 1024
"""What an expression may become with those it is derived from put in."""


def sql_type(column: Column) -> str:
    """The engine's type of a declared column."""
    numeric = {
        "int": "BIGINT",
        "decimal": f"DECIMAL(18, {column.digits})",
        "string": "VARCHAR",
        "bool": "BOOLEAN",
    }
    return numeric.get(column.type) or column.type.upper()


def expressions(table: Table) -> dict[str, str]:
    """What the catalog writes: derived columns, then measures, by name."""
    return dict(table.derive) | {name: measure.expr for name, measure in table.measures.items()}


def derived_sql(table: Table, types: Mapping[str, str], row: str) -> dict[str, str]:
    """SQL of derived columns and measures over raw rows.

    Args:
        table: a table of a checked catalog.
        types: raw column -> DuckDB type.
        row: alias of the raw row, quoted.

    Returns:
        Name -> expression that is NULL where it fails.
    """
    declared = {name.lower(): spec for name, spec in table.columns.items()}
    columns: dict[str, str] = {}
    for name, kind in types.items():
        spec, plain = declared.get(name.lower()), f"{row}.{_quoted(name)}"
        text = kind == "VARCHAR" and spec is not None and spec.type != "string"
        columns[name.lower()] = (
            f"TRY_CAST({plain} AS {sql_type(spec)})" if text and spec is not None else plain
        )
    made: dict[str, str] = {}
    for name, text_ in expressions(table).items():
        made[name] = f"TRY({row_expression(text_).over(columns)})"
        columns[name.lower()] = made[name]
    return made


def check_derived(catalog: Catalog) -> None:
    """Check every `derive` and `expr`.

    Raises:
        Problem: at its key: more than a pure expression of one row, or a column that the table does not declare.
    """
    for name, table in catalog.tables.items():
        known = {column.lower() for column in table.columns} - {
            column.lower() for column in expressions(table)
        }
        sizes: dict[str, int] = {}
        for column, text in expressions(table).items():
            path = (
                "tables",
                name,
                *(("derive", column) if column in table.derive else ("measures", column, "expr")),
            )
            expression = _checked(path, text)
            for used in expression.columns:
                if used.lower() not in known and not table.is_public:
                    hint = nearest(used, tuple(table.columns))
                    raise Problem(
                        path,
                        f"`{used}` is no declared column of `{name}`; declare it under `columns`, {hint}",
                    )
            sizes[column.lower()] = len(expression.sql) + sum(
                sizes.get(c.lower(), 0) for c in expression.columns
            )
            if sizes[column.lower()] > MOST_CHARACTERS:
                raise Problem(
                    path, "is too long with the columns that it is derived from; write it from raw columns"
                )
            known.add(column.lower())


def _checked(path: tuple[str, ...], text: str) -> RowExpression:
    try:
        return row_expression(text)
    except CatalogError as error:
        raise Problem(path, str(error)) from None


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
