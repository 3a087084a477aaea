"""How the leaves of axes are called, as columns that people can read.

| a column of the axis | is shown as |
|---|---|
| the first, if it is a number, a date or a time | its range in words, its least and its largest value |
| another such | its least and largest value; itself where these are one |
| text that each leaf has one of | itself |
| text that a leaf has several of | not at all |

The leaves for NULL, for rows without a partner and for values outside of the domain are named in brackets.

**Privacy**: axes follow from the catalog.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dpsql.answer.leafsets import bounds_of, quoted
from dpsql.answer.run import run
from dpsql.release import AxisMeta, ColumnMeta, Release

TEXTS = ("VARCHAR", "BOOLEAN")
SPECIAL = {"null_leaf": "(NULL)", "missing_leaf": "(MISSING)", "other_leaf": "(OTHER)"}
MEANS = {
    "null_leaf": "the value is NULL",
    "missing_leaf": "there is no row that the foreign key names",
    "other_leaf": "outside of the catalog's domain",
}


class LeafColumn(NamedTuple):
    """A column about the leaves of one axis.

    Args:
        name: unique within its view.
        type: DuckDB's.
        means: in words.
        values: one for each leaf.
    """

    name: str
    type: str
    means: str
    values: tuple[Any, ...]


class Leaves(NamedTuple):
    """What a column of an axis says of its ordinary leaves: least and largest value, and how many there are."""

    column: ColumnMeta
    ends: Mapping[int, tuple[Any, Any, int]]


def leaf_columns(release: Release, axes: Sequence[int]) -> tuple[tuple[LeafColumn, ...], ...]:
    """The columns of some axes.

    Args:
        release: an open release.
        axes: their ids, those of a view.

    Returns:
        For each axis its columns; names do not repeat, whatever their case.
    """
    leaves_by_axis = [_told(release, axis) for axis in axes]
    often = Counter(leaves.column.column.lower() for axis in leaves_by_axis for leaves in axis)
    seen = Counter[str]()
    columns_by_axis = []
    for number, axis in zip(axes, leaves_by_axis, strict=True):
        columns = []
        for place, leaves in enumerate(axis):
            name = leaves.column.column
            if often[name.lower()] > 1:  # one column by two foreign keys, or of two tables
                name = "_".join((*(leaves.column.path or (leaves.column.table,)), name))
            columns += _shown(release.axes[number], leaves, name, first=place == 0)
        columns_by_axis.append(tuple(_numbered(column, seen) for column in columns))
    return tuple(columns_by_axis)


def _numbered(column: LeafColumn, seen: Counter[str]) -> LeafColumn:
    """A column, with a number after its name where another has that."""
    name = column.name.lower()
    seen[name] += 1
    return column if seen[name] == 1 else column._replace(name=f"{column.name}_{seen[name]}")


def _told(release: Release, number: int) -> list[Leaves]:
    """The columns of an axis; a foreign key that repeats a key is left out."""
    axis, axis_leaves = release.axes[number], list[Leaves]()
    for column in axis.columns:
        bounds = bounds_of(axis, column.name)
        if bounds[0] != column:
            continue  # the upper end of an axis whose atoms are whole leaves
        low, high = (quoted(bound.name) for bound in bounds)
        text = f"SELECT leaf, min({low}), max({high}), count(DISTINCT {low}) FROM axis_{number}"
        rows = run(release, f"{text} WHERE kind = 0 GROUP BY leaf").rows
        leaves = Leaves(column, {leaf: (first, last, values) for leaf, first, last, values in rows})
        several = column.type in TEXTS and any(values > 1 for _, _, values in leaves.ends.values())
        twin = any(
            leaves.ends == earlier.ends and column.column == earlier.column.column for earlier in axis_leaves
        )
        axis_leaves += [] if several or twin else [leaves]
    return axis_leaves


def _shown(axis: AxisMeta, leaves: Leaves, name: str, *, first: bool) -> list[LeafColumn]:
    """What stands in a file: of the first column of an axis always words too, which tell special leaves apart."""
    column, ends = leaves
    means = f"{column.table}.{column.column}" + (f": {column.description}" if column.description else "")
    words = {leaf: _range(low, high) for leaf, (low, high, _) in ends.items()}
    label = LeafColumn(name, "VARCHAR", means + _specials(axis), _labels(axis, words))
    if column.type in TEXTS:
        return [label]
    low, high = (
        tuple(ends[leaf][end] if leaf in ends else None for leaf in range(axis.leaves)) for end in (0, 1)
    )
    if not first and low == high:
        return [LeafColumn(name, column.type, means, low)]
    return [
        *([label] if first else []),
        LeafColumn(f"{name}_low", column.type, f"least value of {name}, which belongs to it", low),
        LeafColumn(f"{name}_high", column.type, f"largest value of {name}, which belongs to it", high),
    ]


def _range(first: object, last: object) -> str:
    """A leaf in words.

    >>> _range(20, 24), _range(20, 20), _range(None, None)
    ('20 to 24', '20', '')
    """
    if first is None:
        return ""
    return str(first) if first == last else f"{first} to {last}"


def _labels(axis: AxisMeta, words: dict[int, str]) -> tuple[str, ...]:
    """A label for each leaf; a special one that an ordinary leaf has too gets more brackets."""
    ordinary = set(words.values())
    for place, label in SPECIAL.items():
        leaf = getattr(axis, place)
        if leaf is not None:
            words[leaf] = label
            while words[leaf] in ordinary:
                words[leaf] = f"({words[leaf]})"
    return tuple(words.get(leaf, "") for leaf in range(axis.leaves))


def _specials(axis: AxisMeta) -> str:
    meanings = [
        f"{SPECIAL[place]}: {means}" for place, means in MEANS.items() if getattr(axis, place) is not None
    ]
    return f" ({'; '.join(meanings)})" if meanings else ""
