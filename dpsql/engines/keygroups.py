"""Which columns hold which table's keys: a key and all foreign keys that name it are one group.

**Privacy**: of the catalog alone.
"""

from __future__ import annotations

from dpsql.star import Catalog


def roots(catalog: Catalog) -> dict[tuple[str, str], str]:
    """(table, column in lower case) -> the table whose key it holds, for every key and foreign key.

    A key that is itself a foreign key belongs to the group of the key that it names.
    """
    named = {(name, key_of(catalog, name)): name for name, table in catalog.tables.items() if table.key}
    for name, table in catalog.tables.items():
        for column in table.foreign_keys:
            named[name, column.lower()] = _root(catalog, name, column)
    return named


def _root(catalog: Catalog, table: str, column: str) -> str:
    """The table at the end of a chain of keys that are foreign keys too."""
    for _ in catalog.tables:
        foreign = {
            name.lower(): foreign_key.references
            for name, foreign_key in catalog.tables[table].foreign_keys.items()
        }
        if column.lower() not in foreign:
            return table
        table = foreign[column.lower()]
        column = key_of(catalog, table)
    return table


def key_of(catalog: Catalog, table: str) -> str:
    """The key column of a table, in lower case."""
    return str(catalog.tables[table].key).lower()
