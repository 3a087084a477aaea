"""information_schema, as BI tools read it: the star's tables, the wide table, and their columns."""

from __future__ import annotations

from typing import Any

from dpsql.answer.schema import Schema

Listing = tuple[str, tuple[str, ...], tuple[str, ...], tuple[list[Any], ...]]
TYPES = {"int": "BIGINT", "decimal": "DOUBLE", "date": "DATE", "timestamp": "TIMESTAMP", "bool": "BOOLEAN"}


def information_tables(schema: Schema) -> list[Listing]:
    """The relations dp_tables, dp_columns and dp_schemata: name, columns, DuckDB types, values."""
    from dpsql.answer.sql.names import Rows, wide_source

    columns: list[tuple[str, str, str]] = []
    for table in schema.tables.values():
        columns += [
            (table.name, name, data_type(table.types.get(name, ""))) for name in table.columns.values()
        ]
    for wide, fact in schema.wide().items():
        root = schema.table(fact)
        if root is not None:
            source = wide_source(Rows(), schema, root, wide)
            kinds = {name: kind for _, name, kind in columns}
            columns += [(wide, name, kinds.get(name, "VARCHAR")) for name in source.names.values()]
    names = list(dict.fromkeys(name for name, _, _ in columns))
    tables = [
        (schema.name, "main", name, "VIEW" if name in schema.wide() else "BASE TABLE") for name in names
    ]
    position: dict[str, int] = {}
    rows = []
    for table_name, name, kind in columns:
        position[table_name] = position.get(table_name, 0) + 1
        rows.append((schema.name, "main", table_name, name, position[table_name], None, "YES", kind))
    text = "VARCHAR"
    return [
        ("dp_tables", ("table_catalog", "table_schema", "table_name", "table_type"), (text,) * 4, _turned(tables, 4)),
        ("dp_columns", ("table_catalog", "table_schema", "table_name", "column_name", "ordinal_position",
                        "column_default", "is_nullable", "data_type"),
         (text, text, text, text, "INTEGER", text, text, text), _turned(rows, 8)),
        ("dp_schemata", ("catalog_name", "schema_name"), (text, text), ([schema.name], ["main"])),
    ]  # fmt: skip


def data_type(kind: str) -> str:
    """The SQL type of a catalog type."""
    return TYPES.get(kind, "VARCHAR")


def _turned(rows: list[Any], width: int) -> tuple[list[Any], ...]:
    return tuple([row[i] for row in rows] for i in range(width))
