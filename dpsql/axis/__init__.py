"""Axes: every published attribute as an ordered list of public leaves, its atoms and its columns.

`build_axis` makes one from the catalog (and public rows), `leaf_sql` maps raw values to leaves,
`table_sql` turns `Axis.arrays` into the axis table.
"""
