"""The axis: leaves, atoms and public columns of one published attribute, with the rule from value to leaf.

    atom    a value at the declared scale, or a row of a public dimension's grain
    leaf    what is counted: one atom or a run of them; fixed by the catalog and public rows alone
    kind    0 in the domain, 1 NULL, 2 MISSING (no dimension row), 3 OTHER (out of the domain)

Special leaves stand at the end, in the order NULL, MISSING, OTHER, where they can occur.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal

import numpy as np
from numpy.typing import NDArray

from dpsql.catalog import ResolvedAxis

IntArray = NDArray[np.int64]
IN_DOMAIN, NULL, MISSING, OTHER = 0, 1, 2, 3
ORDERED = (int, float, Decimal, date)
"""Types of values whose order says which ones are near each other."""
RESERVED = ("atom", "leaf", "kind", "weight")


@dataclass(frozen=True)
class AxisColumn:
    """A public column of an axis.

    Args:
        path: foreign keys from the view's table to `table`.
        table: the table that SQL names it under.
        column: its name there.
        sql_name: its name inside the axis table, unique there.
        type: DuckDB type; empty until a derived column was evaluated.
        description: for people.
        bound: empty for an exact value; ``lower`` or ``upper`` where an atom is a whole leaf.
    """

    path: tuple[str, ...]
    table: str
    column: str
    sql_name: str
    type: str
    description: str = ""
    bound: str = ""


@dataclass(frozen=True)
class OrderedRule:
    """Values counted in units: leaf l begins at ``starts[l]``; `upper` is inclusive."""

    type: str
    scale: int
    grain: str
    upper: int
    starts: IntArray = field(repr=False)


@dataclass(frozen=True)
class CategoryRule:
    """Leaf l is the value ``values[l]``; ``("false", "true")`` for a boolean column."""

    values: tuple[str, ...]
    boolean: bool = False

    @property
    def texts(self) -> bool:
        """True if values outside have a word of their own."""
        return not self.boolean


@dataclass(frozen=True)
class KeyListRule:
    """Leaf l is the key ``keys[l]`` of a list that was found when the release was made; found by value."""

    keys: tuple[str | int, ...] = field(repr=False)
    texts: bool


@dataclass(frozen=True)
class KeyRule:
    """A row of a public dimension, found by its key: row with ``keys[r]`` lies in leaf ``leaf[r]``."""

    key: str
    keys: tuple[object, ...] = field(repr=False)
    leaf: IntArray = field(repr=False)


Rule = OrderedRule | CategoryRule | KeyRule | KeyListRule


@dataclass(frozen=True)
class PublicTable:
    """The rows of a public table, handed in by whoever may read them.

    Args:
        name: the table.
        types: DuckDB type of each column.
        columns: values of each column, all of one length; None is NULL.
    """

    name: str
    types: Mapping[str, str]
    columns: Mapping[str, Sequence[object]]

    @property
    def size(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values()), ()))


@dataclass(frozen=True)
class Axis:
    """One axis of a view. Built from the catalog and public rows; never from private ones.

    Args:
        name: as errors and plans call it.
        resolved: what it means in the catalog (hashable: equal ones make equal axes).
        leaves: number of leaves, special ones included.
        null_leaf: the leaf of NULL, or None where it cannot occur; likewise `missing_leaf`, `other_leaf`.
        columns: public columns, in the order of the axis table.
        derived: further columns as (column, SQL expression); whoever has an engine evaluates them.
        rule: how a raw value becomes a leaf.
        atomic: whether each atom is one value; False past 2**20 values, where atoms are the leaves.
        atom_leaf: leaf of each atom of the domain, increasing.
        values: per ``sql_name`` the encoded value of each atom (int64 units, or objects).
    """

    name: str
    resolved: ResolvedAxis
    leaves: int
    null_leaf: int | None
    missing_leaf: int | None
    other_leaf: int | None
    columns: tuple[AxisColumn, ...]
    derived: tuple[tuple[AxisColumn, str], ...]
    rule: Rule
    atomic: bool
    atom_leaf: IntArray = field(repr=False)
    values: Mapping[str, NDArray[np.generic]] = field(repr=False)

    @property
    def path(self) -> tuple[str, ...]:
        """Foreign keys from the view's table to the axis's table."""
        return self.resolved.path

    @property
    def table(self) -> str:
        """The table that holds the axis."""
        return self.resolved.table

    @property
    def ordered(self) -> bool:
        """True if neighbouring leaves are near each other: leaves of numbers, dates and times, but not of names."""
        if isinstance(self.rule, OrderedRule):
            return True
        grain = {(*member.path, member.column) for member in self.resolved.by[:1]}
        first = (self.values[c.sql_name] for c in self.columns if (*c.path, c.column) in grain)
        return all(value is None or isinstance(value, ORDERED) for value in next(first, ("",)))

    @property
    def names(self) -> bool:
        """True if leaves are names without an order, so that a range of them means nothing: no levels, no second
        column of a grain that makes runs of leaves."""
        spec = self.resolved.spec
        levels = () if spec is None or spec.axis is None else spec.axis.levels
        return not self.ordered and len(levels) < 2 and len(self.resolved.by) < 2

    @property
    def special(self) -> tuple[tuple[int, int], ...]:
        """(leaf, kind) of the special leaves there are, in leaf order."""
        pairs = ((self.null_leaf, NULL), (self.missing_leaf, MISSING), (self.other_leaf, OTHER))
        return tuple((leaf, kind) for leaf, kind in pairs if leaf is not None)

    @property
    def outside(self) -> str | None:
        """Label of OTHER; None where such values are NULL, as those of numbers and times are."""
        spec = self.resolved.spec
        texts = (
            isinstance(self.rule, CategoryRule | KeyListRule)
            and self.rule.texts
            and self.other_leaf is not None
        )
        return spec.other if texts and spec is not None else None

    def arrays(self) -> dict[str, NDArray[np.generic]]:
        """The axis table as equal-length arrays: atom, leaf, kind, weight and the encoded columns.

        `dpsql.axis.table_sql` decodes them. Special leaves are rows of their own at the end; their column
        values are fillers that the decoding turns into NULL.

        Returns:
            Arrays of one length: atoms of the domain, then one row per special leaf.
        """
        extra = self.special
        leaf = np.concatenate([self.atom_leaf, np.array([pair[0] for pair in extra], np.int64)])
        kind = np.zeros(leaf.size, np.int64)
        kind[self.atom_leaf.size :] = [pair[1] for pair in extra]
        weight = 1.0 / np.bincount(leaf, minlength=self.leaves)[leaf]
        arrays: dict[str, NDArray[np.generic]] = {
            "atom": np.arange(leaf.size, dtype=np.int64),
            "leaf": leaf,
            "kind": kind,
            "weight": weight,
        }
        for column in self.columns:
            values = self.values[column.sql_name]
            filler = np.zeros(len(extra), values.dtype)
            if values.dtype == object:
                filler = np.full(len(extra), None, dtype=object)
            arrays[column.sql_name] = np.concatenate([values, filler])
        return arrays
