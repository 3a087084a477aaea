"""Derived columns and measures bound by the engine to empty tables of the declared types, before any row is opened.

What does not bind there could not be published: a function with the wrong number of arguments, text plus a number.

**Privacy**: the catalog alone; the tables are empty.
"""

from __future__ import annotations

import duckdb

from dpsql.catalog.base import Problem
from dpsql.catalog.derived import derived_sql, sql_type
from dpsql.catalog.model import Catalog
from dpsql.catalog.tables import Table


def check_binding(catalog: Catalog) -> None:
    """Bind every `derive` and `expr` of private tables.

    Args:
        catalog: a checked catalog.

    Raises:
        Problem: at the key of one that does not bind.
    """
    tables = {name: t for name, t in catalog.tables.items() if not t.is_public and (t.derive or t.measures)}
    if not tables:
        return
    connection = duckdb.connect(":memory:", config={"python_enable_replacements": "false"})
    try:
        for name, table in tables.items():
            _bind(connection, name, table)
    finally:
        connection.close()


def _bind(connection: duckdb.DuckDBPyConnection, name: str, table: Table) -> None:
    derived = {column.lower() for column in table.derive}
    types = {
        column: sql_type(spec) for column, spec in table.columns.items() if column.lower() not in derived
    }
    columns = [f'CAST(NULL AS {kind}) AS "{column}"' for column, kind in types.items()]
    row = f"(SELECT {', '.join(columns) or '1'} WHERE false) AS row"
    for column, sql in derived_sql(table, types, "row").items():
        try:
            connection.execute(f"DESCRIBE SELECT {sql} AS made FROM {row}").fetchall()
            if column in table.measures:
                connection.execute(
                    f"DESCRIBE SELECT CAST({sql} AS DECIMAL(38, 9)) AS made FROM {row}"
                ).fetchall()
        except duckdb.Error as error:
            reason = str(error).splitlines()[0].partition(": ")[2]
            path = ("derive", column) if column in table.derive else ("measures", column, "expr")
            raise Problem(
                ("tables", name, *path),
                f"does not fit the declared types ({reason}); mend it, or declare another type",
            ) from None
