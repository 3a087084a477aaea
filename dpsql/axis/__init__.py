"""Axes: every published attribute as an ordered list of public leaves, its atoms and its columns.

`build_axis` makes one from the catalog (and public rows), `leaf_sql` maps raw values to leaves,
`table_sql` turns `Axis.arrays` into the axis table.
"""

from dpsql.axis.build import LARGEST_ATOMS, build_axis, needed_tables
from dpsql.axis.model import (
    IN_DOMAIN,
    MISSING,
    NULL,
    OTHER,
    Axis,
    AxisColumn,
    CategoryRule,
    KeyListRule,
    KeyRule,
    OrderedRule,
    PublicTable,
    leaf_sql,
    table_sql,
)

__all__ = [
    "IN_DOMAIN",
    "LARGEST_ATOMS",
    "MISSING",
    "NULL",
    "OTHER",
    "Axis",
    "AxisColumn",
    "CategoryRule",
    "KeyListRule",
    "KeyRule",
    "OrderedRule",
    "PublicTable",
    "build_axis",
    "leaf_sql",
    "needed_tables",
    "table_sql",
]
