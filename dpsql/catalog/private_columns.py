"""Columns whose keys nobody listed (`categories: private`): where they are used, what they may spend, what is refused.

One column has one list, in all views, by whichever foreign keys they reach it. A unit's keys are those of all her rows
that a view with the column counts, before bounding.

**Privacy**: functions of the catalog alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple, TypeVar

from dpsql.catalog.base import Problem, refuse
from dpsql.catalog.columns import Column, PrivateKeys
from dpsql.catalog.graph import KeyPath, ResolvedAxis, own_path, unit_path, view_axes
from dpsql.catalog.model import CatalogFields
from dpsql.catalog.tables import Table
from dpsql.errors import InternalError

C = TypeVar("C", bound=Column)

PER_UNIT = 16  # shows most keys where people have 10 of them; 10 do at 3, 40 at 50
SHARE, OWN_SHARE = Fraction(1, 20), Fraction(1, 10)
LARGEST_SHARE = Fraction(1, 2)
"""Beyond it too little remains after the key rounds for their price to gain anything."""
FIRST_ROUND = Fraction(3, 10)
"""Part of what a column may spend that its first of two rounds has, for two fifths of the keys of a unit."""


class KeyUse(NamedTuple):
    """Counted rows that reach a column: their table, and the foreign keys to the column's."""

    of: str
    path: KeyPath


class PrivateColumn(NamedTuple):
    """A column whose keys are found.

    Args:
        table, column: where it lies.
        spec: as the catalog writes it.
        uses: the counted rows that reach it, one for each table and path.
        views: names of the views that have it.
        single: whether a unit has one key: an axis of her own, or rows that are units.
    """

    table: str
    column: str
    spec: Column
    uses: tuple[KeyUse, ...]
    views: tuple[str, ...]
    single: bool

    @property
    def name(self) -> str:
        """As catalogs, ledgers and lists of keys name it."""
        return f"{self.table}.{self.column}"

    @property
    def keys(self) -> PrivateKeys:
        """Catalog entry of its keys."""
        if self.spec.private_keys is None:
            raise InternalError(f"{self.name} lists its values")
        return self.spec.private_keys

    @property
    def per_unit(self) -> int:
        """Keys of one unit that count in all rounds together."""
        return 1 if self.single else self.keys.per_unit or PER_UNIT

    @property
    def share(self) -> Fraction:
        """Part of a release's budget that finds its keys."""
        return self.keys.share if self.keys.share is not None else OWN_SHARE if self.per_unit == 1 else SHARE

    @property
    def rounds(self) -> tuple[tuple[Fraction, int], ...]:
        """Part of the column's budget that each round has, and keys of a unit that count in it."""
        if not self.share:
            return ()
        if self.per_unit == 1:
            return ((Fraction(1), 1),)
        first = round(Fraction(2 * self.per_unit, 5))
        return (FIRST_ROUND, first), (1 - FIRST_ROUND, self.per_unit - first)


def has_private_keys(catalog: CatalogFields) -> bool:
    """True if a column of a catalog says `categories: private`, used by a view or not."""
    return any(
        spec.private_keys is not None for table in catalog.tables.values() for spec in table.columns.values()
    )


def private_columns(catalog: CatalogFields) -> tuple[PrivateColumn, ...]:
    """The columns with private keys that some view has, in the catalog's order."""
    if not has_private_keys(catalog):
        return ()
    uses: dict[tuple[str, str], dict[KeyUse, None]] = {}
    views: dict[tuple[str, str], dict[str, None]] = {}
    for name, view in catalog.views.items():
        for axis in view_axes(catalog, view):
            if axis.spec is not None and axis.spec.private_keys is not None:
                place = axis.table, str(axis.column)
                uses.setdefault(place, {})[KeyUse(view.of, axis.path)] = None
                views.setdefault(place, {})[name] = None
    return tuple(
        PrivateColumn(
            name, column, spec, tuple(uses[name, column]), tuple(views[name, column]),
            all(_is_single(catalog, use) for use in uses[name, column]),
        )
        for name, table in catalog.tables.items()
        for column, spec in table.columns.items()
        if (name, column) in uses
    )  # fmt: skip


def _is_single(catalog: CatalogFields, use: KeyUse) -> bool:
    """True if a unit has one row there: rows are units, or the path leads to the unit's own table."""
    if unit_path(catalog, use.of) is None:
        return True
    return use.path == own_path(catalog, use.of)


def with_keys(table: Table, keys: Mapping[str, PrivateKeys]) -> Table:
    """A table with other words about some of its private keys.

    Args:
        table: of a catalog.
        keys: by column.
    """

    def changed(columns: Mapping[str, C]) -> dict[str, C]:
        return {
            name: spec.model_copy(update={"categories": keys[name]}) if name in keys else spec
            for name, spec in columns.items()
        }

    return table.model_copy(update={"written": changed(table.written), "summaries": changed(table.summaries)})


def axis_column(catalog: CatalogFields, axis: ResolvedAxis) -> PrivateColumn:
    """The column with private keys that an axis is over."""
    return next(c for c in private_columns(catalog) if (c.table, c.column) == (axis.table, axis.column))


def keys_share(catalog: CatalogFields) -> Fraction:
    """The part of a release's budget that finds private keys; views share the rest."""
    return sum((column.share for column in private_columns(catalog)), Fraction(0))


def check_private_keys(catalog: CatalogFields) -> None:
    """Refuse private keys where they cannot be found or are not protected.

    Raises:
        Problem: at the column, with what to write instead.
    """
    unit = catalog.privacy.unit
    for name, table in catalog.tables.items():
        for column, spec in table.columns.items():
            if spec.private_keys is None:
                continue
            path = ("tables", name, "columns", column, "categories")
            target = table.foreign_keys.get(column)
            reasons = {
                "private keys need a delta: without one no rule shows keys that nobody listed; write privacy.delta, or "
                "list them by `from:`": not catalog.privacy.delta,
                "private keys need `key_delta` above 0; remove `key_delta: 0`": not catalog.privacy.key_delta,
                f"`{name}` is public; its values are read from its rows, remove `categories`": table.is_public,
                "it names the privacy unit; people are not shown by name": (name, column) == unit
                or (target is not None and target.references == unit.table),
                "a stream does not find private keys: list its values": catalog.stream is not None,
                "people who report for themselves report listed values: list them": catalog.collection is not None,
            }  # fmt: skip
            refuse(reasons, *path)
    for private in private_columns(catalog):
        tables = [use.of for use in private.uses]
        if unit.table is None and len(set(tables)) < len(tables):
            raise Problem(
                ("tables", private.table, "columns", private.column, "categories"),
                "under `unit: row` a row has one key: name the column by one foreign key in the views",
            )
    if keys_share(catalog) > LARGEST_SHARE:
        raise Problem(
            ("tables",),
            "private keys share more than half of a release's budget, whose price assumes that views have the other "
            "half; lower `share` of `categories`",
        )
