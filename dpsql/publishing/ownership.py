"""Whose rows a join may read: a unit's own and public ones, never another unit's.

On the way from a counted row to its unit all rows of a key are joined, since they belong to the units they lead to.
A sale may name its buyer and its seller, both customers. If the privacy unit is the buyer, an axis over the
seller's age would place the buyer's sale by somebody else's row: removing that other customer would move
sales of many people, and no bound on a person's own rows would hold. Such axes are refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from dpsql.catalog import Catalog, reachable, unit_path
from dpsql.catalog.graph import KeyPath
from dpsql.errors import CatalogError


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


def check_ownership(catalog: Catalog, of: str, ends: Iterable[KeyPath]) -> None:
    """Refuse joins to private rows that may belong to another unit than the counted row does.

    Args:
        catalog: a checked catalog.
        of: the counted table.
        ends: foreign-key paths that are joined.

    Raises:
        CatalogError: a path leads to a unit's rows by another way than the unit's own.

    **Privacy**: with it, a row's leaves are a function of rows that its own unit owns and of rows that no
    unit owns, which section 2 of docs/privacy.md needs.
    """
    own, unit = own_path(catalog, of), catalog.privacy.unit_table
    if unit is None:
        return
    tables = reachable(catalog, of)
    for path in {end[:hop] for end in ends for hop in range(1, len(end) + 1)}:
        table = tables[path]
        belongs = not catalog.tables[table].is_public and unit in reachable(catalog, table).values()
        if belongs and path != own[: len(path)]:
            raise CatalogError(
                f"tables.{of}: `{'.'.join(path)}` leads to rows of `{table}` that belong to other privacy units",
                hint=f"use columns reached through `{'.'.join(own) or of}`, or declare {table} public",
            )
