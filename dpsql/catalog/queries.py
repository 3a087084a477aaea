"""What the tables of a source are made of: files, or SELECTs that were checked (`dpsql.sql.rowlocal`).

**Privacy**: a private table's SELECT is row-local, a public table's reads nothing that a private table reads, or the
curator vouches for it by `trusted: true`, which the release then says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpsql.catalog.base import Problem
from dpsql.errors import CatalogError
from dpsql.sql.rowlocal import Arm, Query, checked_select, is_select, normal, public_select, trusted_select

if TYPE_CHECKING:
    from dpsql.catalog.model import Catalog


def query_of(catalog: Catalog, table: str) -> Query | None:
    """The checked SELECT of a table, or None where its source is the name of a file or table.

    Args:
        catalog: a catalog with a source.
        table: one of its tables.

    Raises:
        Problem: it is more than this table may be made of, and nobody vouches for it.
    """
    text = "" if catalog.source is None else catalog.source.tables.get(table, "")
    if catalog.source is None or not is_select(text):
        return None
    try:
        return (
            public_select(text) if catalog.tables[table].is_public else checked_select(text, _arms(catalog))
        )
    except CatalogError as error:
        if catalog.source.trusted:
            return trusted_select(text)
        raise Problem(("source", "tables", table), str(error)) from None


def _arms(catalog: Catalog) -> dict[str, Arm]:
    """Public tables that a SELECT over private rows may join, by their files and by their names."""
    source = catalog.source
    keyed = {name: t.key for name, t in catalog.tables.items() if t.is_public and t.key is not None}
    if source is None:
        return {}
    arms = {name: Arm(name, key) for name, key in keyed.items() if name in source.tables}
    files = {
        normal(source.tables[name]): arm for name, arm in arms.items() if not is_select(source.tables[name])
    }
    return arms | files


def files_read(catalog: Catalog, table: str) -> tuple[str, ...]:
    """The files (or tables of a database) that a table is made of, as the catalog writes them, `./` left out.

    Args:
        catalog: a checked catalog with a source.
        table: one of its tables.

    Returns:
        One place, or those that its SELECT reads; public tables that it joins are named by their own entries. A
        trusted statement's are named as far as it parses.
    """
    query = query_of(catalog, table)
    if query is not None:
        return query.reads
    return () if catalog.source is None else (normal(catalog.source.tables[table]),)


def vouched_tables(catalog: Catalog) -> tuple[str, ...]:
    """Tables whose SQL nobody but the curator checked."""
    if catalog.source is None:
        return ()
    named = [name for name in catalog.tables if name in catalog.source.tables]
    if catalog.source.trusted and catalog.source.kind == "duckdb":
        return tuple(named)  # what a database calls a table may be a view, which nobody checks
    queries = {name: query_of(catalog, name) for name in named}
    return tuple(
        n for n, query in queries.items() if query is not None and (query.trusted or _shared(catalog, n))
    )


def check_queries(catalog: Catalog) -> None:
    """Check every SELECT of the source.

    Raises:
        Problem: at the table's key.
    """
    source = catalog.source
    for name in () if source is None else source.tables:
        if name not in catalog.tables:
            continue
        query = query_of(catalog, name)
        shared = _shared(catalog, name) if query is not None else ""
        if shared and source is not None and not source.trusted:
            raise Problem(
                ("source", "tables", name),
                f"`{name}` is public and reads `{shared}`, whose rows are private; write its values as "
                "`categories`, or in a file of their own",
            )
        if query is not None and query.columns is not None:
            _check_columns(catalog, name, query.columns)


def _shared(catalog: Catalog, table: str) -> str:
    """A file that a public table reads by a SELECT although a private table's rows are in it, or nothing."""
    if catalog.source is None or not catalog.tables[table].is_public:
        return ""
    private = {
        place
        for name, entry in catalog.tables.items()
        if not entry.is_public and name in catalog.source.tables
        for place in files_read(catalog, name)
    }
    return next((place for place in files_read(catalog, table) if place in private), "")


def _check_columns(catalog: Catalog, name: str, columns: tuple[str, ...]) -> None:
    """A SELECT without a star makes every column that the table declares."""
    table, known = catalog.tables[name], {column.lower() for column in columns}
    derived = {column.lower() for column in (*table.derive, *table.measures)}
    for column in (*table.columns, *table.foreign_keys, *([table.key] if table.key else [])):
        if column.lower() not in known | derived:
            raise Problem(
                ("source", "tables", name),
                f"the SELECT makes no column `{column}`; add it, or take it out of `tables`",
            )
