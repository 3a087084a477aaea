"""Whose rows a release reads: each private row moves its own unit's counted rows and nobody else's.

Three rules, all from the catalog alone and checked when it is loaded.

- **One way to the unit.** A sale may name its buyer and its seller, both customers. If the unit is the buyer, an axis
  over the seller's age would place the buyer's sale by somebody else's row: removing that other customer would move
  sales of many people, and no bound on a person's own rows would hold.
- **One owner.** Where one view finds the people of an order as its buyers and another as its sellers, an order row
  belongs to two units. One of them may have many orders and take away the sales of all who sold to her.
- **A row that is a unit is read for itself.** Under `unit: row` each row of a counted table is a unit. A customer row
  that is counted and also joined by the views of sales would move all sales of that customer at once.

On the way from a counted row to its unit all rows of a key are joined, since they belong to the units they lead to.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dpsql.catalog.base import Problem
from dpsql.catalog.graph import KeyPath, reachable, unit_path, view_axes
from dpsql.catalog.tables import View
from dpsql.errors import CatalogError

if TYPE_CHECKING:
    from dpsql.catalog.model import Catalog


def own_path(catalog: Catalog, of: str) -> KeyPath:
    """Foreign keys from a counted table to the unit's own table; () where its rows are units or name them.

    Args:
        catalog: a checked catalog.
        of: the counted table.
    """
    owner = unit_path(catalog, of)
    return () if owner is None or of == catalog.privacy.unit_table else (*owner.path, owner.column)


def is_own(catalog: Catalog, of: str, path: KeyPath) -> bool:
    """Whether the private rows at the end of a path are the counted row's unit's own."""
    private = not catalog.tables[reachable(catalog, of)[path]].is_public
    return private and path == own_path(catalog, of)[: len(path)]


def joined_paths(catalog: Catalog, of: str, ends: Iterable[KeyPath]) -> tuple[KeyPath, ...]:
    """Every hop that placing the rows of a table takes, parents before children.

    Args:
        catalog: a checked catalog.
        of: the counted table.
        ends: foreign-key paths of its axes and to its unit; hops that drop unmatched rows are always taken.
    """
    tables = reachable(catalog, of)
    dropping = {
        path
        for path in tables
        if path and catalog.tables[tables[path[:-1]]].foreign_keys[path[-1]].on_missing == "drop"
    }
    hops = {path[:hop] for path in {*ends, *dropping} for hop in range(1, len(path) + 1)}
    return tuple(sorted(hops, key=lambda path: (len(path), path)))


def check_owners(catalog: Catalog) -> None:
    """Refuse views that join private rows of other units than the counted row's.

    Args:
        catalog: a catalog whose views and unit are valid one by one.

    Raises:
        Problem: at the view, or at the table whose way to the unit does not fit.

    **Privacy**: with it, a counted row's leaves are a function of rows that its own unit owns and of rows that no unit
    owns, and each private row has one owner, which section 2 of docs/privacy.md needs.
    """
    if catalog.collection is not None and catalog.source is None:
        return  # nobody holds the rows: each device bounds and reports its own
    if catalog.privacy.unit_table is None:
        _check_rows_apart(catalog)
        return
    for name, view in catalog.views.items():
        try:
            _check_way(catalog, view)
        except CatalogError as error:
            raise Problem(("views", name, "axes"), str(error)) from None
    _check_one_owner(catalog)


def _check_way(catalog: Catalog, view: View) -> None:
    """Refuse joins that reach a unit's rows by another way than the counted row's own."""
    of, unit = view.of, catalog.privacy.unit_table
    own, tables = own_path(catalog, of), reachable(catalog, of)
    for path in _joins_of(catalog, view):
        table = tables[path]
        belongs = not catalog.tables[table].is_public and unit in reachable(catalog, table).values()
        if belongs and path != own[: len(path)]:
            raise CatalogError(
                f"tables.{of}: `{'.'.join(path)}` leads to rows of `{table}` that belong to other privacy units",
                hint=f"use columns reached through `{'.'.join(own) or of}`, or declare {table} public",
            )


def _check_one_owner(catalog: Catalog) -> None:
    """Refuse a private table whose rows belong to one unit in one view and to another in the next."""
    ways: dict[str, tuple[KeyPath, str]] = {}
    for of in dict.fromkeys(view.of for view in catalog.views.values()):
        own, tables = own_path(catalog, of), reachable(catalog, of)
        for hop in range(len(own) + 1):
            table, way = tables[own[:hop]], own[hop:]
            known, other = ways.setdefault(table, (way, of))
            if known != way and not catalog.tables[table].is_public:
                raise Problem(
                    ("tables", of, "unit_path"),
                    f"rows of `{table}` belong to `{'.'.join(way)}` here and to `{'.'.join(known)}` in the views of "
                    f"`{other}`, so that one of them would have two owners; give both tables one `unit_path` from "
                    f"`{table}` on, or leave out the views of one",
                )


def _check_rows_apart(catalog: Catalog) -> None:
    """Refuse, under `unit: row`, a counted table that the views of another one join."""
    counting = {view.of: name for name, view in reversed(catalog.views.items())}
    for name, view in catalog.views.items():
        tables = reachable(catalog, view.of)
        for table in (tables[path] for path in _joins_of(catalog, view)):
            if table in counting:
                key = catalog.tables[table].key
                raise Problem(
                    ("views", name),
                    f"it joins `{table}`, whose rows view `{counting[table]}` counts: under `unit: row` one row of "
                    f"`{table}` would move every row of `{view.of}` that names it; write `unit: {table}.{key}` and "
                    f"`max_ids` in tables.{view.of}, or leave out one of the two views",
                )


def _joins_of(catalog: Catalog, view: View) -> tuple[KeyPath, ...]:
    """What the rows of a view's table are joined to for this view."""
    own = own_path(catalog, view.of)
    return joined_paths(catalog, view.of, [own[:-1], *(axis.path for axis in view_axes(catalog, view))])
