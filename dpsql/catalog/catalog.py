"""The catalog, checked, and its star: what its names mean, resolved once, as frozen values.

`catalog.star` is made when it is first asked for. Whoever counts, plans, appends or collects reads paths, units, axes
and measures here, and resolves no name again.

    star.tables["sales"].hops      every foreign key on the way from a sale, nearest first
    star.tables["sales"].unit      where a sale says whose it is
    star.views["demand"].axes      the view's axes as they are written and as they are meant

**Privacy**: functions of the catalog alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, NamedTuple, Self

from pydantic import model_validator

from dpsql.catalog.checks import check_catalog
from dpsql.catalog.graph import (
    KeyPath,
    ResolvedAxis,
    ResolvedMeasure,
    UnitPath,
    is_own,
    is_unique_per_unit,
    max_ids,
    reachable,
    sums_rows,
    unit_path,
    view_axes,
    view_measures,
)
from dpsql.catalog.model import AxisSpec, CatalogFields, View
from dpsql.catalog.moments import spread_quantiles, spread_squares
from dpsql.catalog.private_columns import has_private_keys
from dpsql.catalog.reported import reported_axes
from dpsql.catalog.source import vouched_tables
from dpsql.catalog.tables import ExcessRowsRule

CLIPPED_SHARE, REPORTED_SHARE = Fraction(1, 100), Fraction(1, 10)
"""Part of a table's charges that measures the rows beyond a declared bound, unless the catalog writes another. Where
all views read reports of devices, their noise is most of an error and a larger part costs little: under `max_ids: 28` a
total of 77,000 of 20,000 people had +- 6,174, and has 1,116, of which 634 are noise."""


class Hop(NamedTuple):
    """One foreign key on the way from a counted table.

    Args:
        path: foreign-key columns from the counted table up to and including this one.
        table: the table that it leads to.
        key: that table's key column.
        drops: whether rows whose key finds no row are left out.
        own: whether the rows reached say whose the counted row is, so that all rows of a key are joined.
        parent: the table that holds the foreign key.
    """

    path: KeyPath
    table: str
    key: str
    drops: bool = False
    own: bool = False
    parent: str = ""


class BoundingRule(NamedTuple):
    """Contribution bound of a unit's rows in a table.

    Args:
        word: what becomes of its other rows.
        max_ids: rows of one unit that count; 0 where publishing chooses.
        clipped_share: part of the table's charges that measures the rows beyond `max_ids`; 0 for none.
    """

    word: ExcessRowsRule
    max_ids: int
    clipped_share: Fraction


@dataclass(frozen=True)
class StarTable:
    """A table whose rows views count.

    Args:
        name: the table.
        hops: every foreign key on the way from it, nearest first.
        unit: where a row says whose it is; None where each row is a unit.
        one_row: whether each row is a unit, or names the unit that it is.
        unique: whether a unit owns at most one row by the keys of the catalog.
        bounding: how many rows of one unit count.
    """

    name: str
    hops: tuple[Hop, ...]
    unit: UnitPath | None
    one_row: bool
    unique: bool
    bounding: BoundingRule

    @property
    def cuts(self) -> bool:
        """True if a declared number of rows counts of a unit that may own more."""
        return self.bounding.max_ids > 0 and not self.unique

    def is_own(self, path: KeyPath) -> bool:
        """True if all rows of a unit share what lies at the end of a path: it lies behind the unit's own key."""
        unit_key = None if self.unit is None else (*self.unit.path, self.unit.column)
        return unit_key is not None and path[: len(unit_key)] == unit_key

    def ways(self, ends: Iterable[KeyPath]) -> tuple[Hop, ...]:
        """Every hop on the ways to the unit and to some axes, parents before children.

        Args:
            ends: foreign-key paths of the axes.
        """
        unit = [self.unit.path] if self.unit else []
        taken = {path[:hop] for path in (*ends, *unit) for hop in range(1, len(path) + 1)}
        hops = [hop for hop in self.hops if hop.path in taken]
        return tuple(sorted(hops, key=lambda hop: (len(hop.path), hop.path)))

    def joined(self, ends: Iterable[KeyPath]) -> tuple[Hop, ...]:
        """Every hop that counting the rows takes: `ways`, and those that drop unmatched rows."""
        return self.ways([*ends, *(hop.path for hop in self.hops if hop.drops)])


class ViewAxis(NamedTuple):
    """An axis of a view: as the catalog writes it, and what that means."""

    written: AxisSpec
    meant: ResolvedAxis


@dataclass(frozen=True)
class StarView:
    """A view with its names resolved.

    Args:
        name, of: the view and the table that it counts.
        spec: what the catalog writes of it.
        axes: its axes, in its order.
        measures: its statistics of rows.
        unit_share: the part of its budget that counts different units; 0 where they are not counted. All shares add
            up to at most 1.
    """

    name: str
    of: str
    spec: View
    axes: tuple[ViewAxis, ...]
    measures: tuple[ResolvedMeasure, ...]
    unit_share: Fraction = Fraction(0)

    @property
    def meant(self) -> tuple[ResolvedAxis, ...]:
        return tuple(axis.meant for axis in self.axes)


@dataclass(frozen=True)
class Star:
    """All counted tables and all views of a catalog, by name."""

    tables: Mapping[str, StarTable]
    views: Mapping[str, StarView]

    def views_of(self, of: str) -> list[StarView]:
        """The views that count a table."""
        return [view for view in self.views.values() if view.of == of]


def resolve_star(catalog: CatalogFields) -> Star:
    """Resolve the names of a checked catalog.

    Raises:
        CatalogError: one means nothing, or more than one thing.
    """
    views = {}
    for name, view in catalog.views.items():
        axes = tuple(map(ViewAxis, view.axes, view_axes(catalog, view)))
        units = sum((share for each, share in view.measures.items() if not sums_rows(each)), Fraction(0))
        views[name] = StarView(name, view.of, view, axes, view_measures(catalog, view), units)
    return Star({of: _table(catalog, of) for of in dict.fromkeys(view.of for view in views.values())}, views)


def _table(catalog: CatalogFields, of: str) -> StarTable:
    tables, unit = reachable(catalog, of), catalog.privacy.unit
    hops = []
    for path, name in tables.items():
        if path:
            parent, key = tables[path[:-1]], str(catalog.tables[name].key)
            drops = catalog.tables[parent].foreign_keys[path[-1]].drops
            hops.append(Hop(path, name, key, drops, is_own(catalog, of, path), parent))
    limit = max_ids(catalog, of)
    rows = 0 if isinstance(limit, str) else limit
    spec, one_row = catalog.tables[of], unit.table in (None, of)
    reported = all(reported_axes(catalog, name) for name, view in catalog.views.items() if view.of == of)
    usual = REPORTED_SHARE if reported else CLIPPED_SHARE
    written = usual if spec.clipped_share is None else spec.clipped_share
    unique = one_row or is_unique_per_unit(catalog, of)
    measured = rows > 0 and not unique and catalog.stream is None
    rule = BoundingRule(spec.bounding, rows, written if measured else Fraction(0))
    return StarTable(of, tuple(hops), unit_path(catalog, of), one_row, unique, rule)


class Catalog(CatalogFields):
    """A whole catalog. Build it with `load_catalog` or `catalog_from_json`."""

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        spread_squares(self)
        spread_quantiles(self)
        if has_private_keys(self) and "key_delta" not in self.privacy.model_fields_set:
            tenth = self.privacy.model_copy(update={"key_delta": self.privacy.delta / 10})
            object.__setattr__(self, "privacy", tenth)
        check_catalog(self)
        if self.source is not None:
            object.__setattr__(self, "vouched", vouched_tables(self.source, self.tables))
        return self

    @cached_property
    def star(self) -> Star:
        """Paths, units, axes and measures: every name resolved, once."""
        return resolve_star(self)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """A copy, whose star is its own."""
        copy = super().model_copy(update=update, deep=deep)
        copy.__dict__.pop("star", None)
        return copy


def spec_hash(catalog: Catalog) -> str:
    """Identity of a publish: the public part and which tables are read, not where they lie.

    Args:
        catalog: any catalog.

    Returns:
        A SHA-256 in hex; the order of keys and the way numbers are written do not change it.

    **Privacy**: a function of the catalog alone, never of data.
    """
    tables = {} if catalog.source is None else dict(catalog.source.tables)
    text = json.dumps([json.loads(catalog.to_json()), tables], ensure_ascii=False, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
