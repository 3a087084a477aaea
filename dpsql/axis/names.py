"""Unique column names inside an axis table, and which derived columns an axis carries."""

from __future__ import annotations

import re
from collections.abc import Iterable

from dpsql.axis.model import RESERVED, AxisColumn
from dpsql.catalog import Table

_TOKEN = re.compile(r"'(?:[^']|'')*'|\"((?:[^\"]|\"\")+)\"|([A-Za-z_][A-Za-z0-9_]*)")


class Names:
    """Hands out names that are unique whatever their case, and not reserved."""

    def __init__(self) -> None:
        self._taken = {name.lower() for name in RESERVED}

    def take(self, path: tuple[str, ...], table: str, column: str) -> str:
        """The column's own name if free, else ``table_column``, else its path, else a number behind it."""
        wanted = [column, f"{table}_{column}", "_".join((*path, column))]
        numbered = (f"{table}_{column}_{i}" for i in range(2, 10_000))
        name = next(n for n in (*wanted, *numbered) if n.lower() not in self._taken)
        self._taken.add(name.lower())
        return name


def columns_in(expression: str, known: Iterable[str]) -> frozenset[str]:
    """The columns that a SQL expression mentions.

    Args:
        expression: a pure expression over one table.
        known: the table's columns; other words are taken for functions and keywords.

    Returns:
        The names as the catalog spells them.

    >>> sorted(columns_in("extract(hour FROM Sold_At) || 'age'", ["sold_at", "age"]))
    ['sold_at']
    """
    spelled = {name.lower(): name for name in known}
    words = (quoted or plain for quoted, plain in _TOKEN.findall(expression))
    return frozenset(spelled[word.lower()] for word in words if word.lower() in spelled)


def derived_columns(
    table: Table,
    name: str,
    path: tuple[str, ...],
    public: frozenset[str],
    known: frozenset[str],
    names: Names,
) -> tuple[tuple[AxisColumn, str], ...]:
    """Columns of `derive` that are functions of what the axis knows.

    Args:
        table: the axis's table in the catalog.
        name: its name.
        path: foreign keys to it.
        public: columns whose value each atom fixes.
        known: all columns of the table.
        names: hands out names.

    Returns:
        (column, expression) for each derived column whose inputs all lie in `public`, in catalog order.
    """
    found = []
    for column, expression in table.derive.items():
        inputs = columns_in(expression, known | public | frozenset(table.derive))
        if inputs and inputs <= public:
            found.append((AxisColumn(path, name, column, names.take(path, name, column), ""), expression))
    return tuple(found)
