"""Unique column names inside an axis table, and which derived columns an axis carries."""

from __future__ import annotations

from dpsql.axis.model import RESERVED, AxisColumn
from dpsql.catalog import Table
from dpsql.sql.expression import row_expression


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


def derived_columns(
    table: Table,
    name: str,
    path: tuple[str, ...],
    public: frozenset[str],
    names: Names,
) -> tuple[tuple[AxisColumn, str], ...]:
    """Columns of `derive` that are functions of what the axis knows.

    Args:
        table: the axis's table in the catalog.
        name: its name.
        path: foreign keys to it.
        public: columns whose value each atom fixes.
        names: hands out names.

    Returns:
        (column, expression) for each derived column whose inputs all lie in `public`, in catalog order.
    """
    found = []
    fixed = {column.lower() for column in public}
    for column, text in table.derive.items():
        expression = row_expression(text)
        if expression.columns and {used.lower() for used in expression.columns} <= fixed:
            found.append((AxisColumn(path, name, column, names.take(path, name, column), ""), expression.sql))
    return tuple(found)
