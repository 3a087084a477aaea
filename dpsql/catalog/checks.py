"""Checks across tables and views that no single part of the catalog can make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.catalog.base import Problem, nearest
from dpsql.catalog.bins import bin_starts
from dpsql.catalog.collection import check_collection
from dpsql.catalog.derived import check_derived
from dpsql.catalog.graph import max_ids, reachable, unit_path, view_axes
from dpsql.catalog.measures import view_measures
from dpsql.catalog.owners import check_owners
from dpsql.catalog.queries import check_queries
from dpsql.catalog.tables import Table, View
from dpsql.errors import CatalogError

if TYPE_CHECKING:
    from dpsql.catalog.model import Catalog

# Dots separate the parts of a path; quotes, brackets and control characters have no place in a name.
_NAME = re.compile(r"[^\x00-\x1f\"'.`()\[\]{},;]{1,200}")


@contextmanager
def _at(*path: str) -> Iterator[None]:
    """Give errors that are raised inside a key path."""
    try:
        yield
    except CatalogError as error:
        raise Problem(path, str(error)) from None
    except ValueError as error:
        raise (error if isinstance(error, Problem) else Problem(path, str(error))) from None


def check_catalog(catalog: Catalog) -> None:
    """Refuse a catalog whose parts do not fit each other.

    Args:
        catalog: a catalog whose parts are valid one by one.

    Raises:
        Problem: at a key path, with what to write instead.
    """
    _distinct(catalog.tables, "tables")
    for name, table in catalog.tables.items():
        _check_table(catalog, name, table)
    for name in catalog.tables:
        with _at("tables", name, "foreign_keys"):
            reachable(catalog, name)
    _check_unit(catalog)
    _distinct(catalog.views, "views")
    for name, view in catalog.views.items():
        _check_view(catalog, name, view)
    check_owners(catalog)
    _check_shares(catalog)
    check_collection(catalog)
    _check_source(catalog)
    check_queries(catalog)
    check_derived(catalog)
    _check_stream(catalog)


def _distinct(names: Iterable[str], *path: str) -> None:
    seen: dict[str, str] = {}
    for name in names:
        if not _NAME.fullmatch(name):
            raise Problem(
                (*path, name), "a name may not hold quotes, dots, brackets, commas or control characters"
            )
        if name.lower() in seen:
            raise Problem(
                (*path, name), f"`{seen[name.lower()]}` differs only in case; SQL cannot tell them apart"
            )
        seen[name.lower()] = name


def _check_table(catalog: Catalog, name: str, table: Table) -> None:
    _distinct(table.columns, "tables", name, "columns")
    _distinct((*table.measures, *table.derive), "tables", name, "measures")
    for column, foreign_key in table.foreign_keys.items():
        path = ("tables", name, "foreign_keys", column)
        target = catalog.tables.get(foreign_key.references)
        if target is None:
            hint = nearest(foreign_key.references, tuple(catalog.tables))
            raise Problem(path, f"no table `{foreign_key.references}`; {hint}")
        if target.key is None:
            raise Problem(path, f"`{foreign_key.references}` has no key; write `key:` in its table")
    for column, spec in table.columns.items():
        with _at("tables", name, "columns", column):
            if spec.from_ is not None:
                _check_domain_table(
                    catalog, column, spec.from_, () if spec.axis is None else spec.axis.levels
                )
            if spec.cuts is not None:
                bin_starts(spec, spec.cuts)


def _check_domain_table(catalog: Catalog, column: str, domain: str, levels: tuple[str, ...]) -> None:
    names = tuple(n for n, t in catalog.tables.items() if t.role == "domain")
    if domain not in names:
        raise CatalogError(f"`from: {domain}` names no table of role domain", hint=nearest(domain, names))
    if levels and levels[-1] != column:
        raise CatalogError(
            "`axis.levels` goes from coarse to fine", hint=f"write `{column}` as its last entry"
        )


def _check_unit(catalog: Catalog) -> None:
    unit = catalog.privacy.unit_table
    if unit is None:
        return
    path = ("privacy", "unit")
    if unit not in catalog.tables:
        raise Problem(path, f"no table `{unit}`; {nearest(unit, tuple(catalog.tables))}")
    table, key = catalog.tables[unit], catalog.privacy.unit.split(".")[1]
    if table.key != key:
        raise Problem(
            path, f"`{key}` is not the key of `{unit}`; write `{unit}.{table.key}` or set `key: {key}`"
        )
    if table.is_public:
        raise Problem(path, f"`{unit}` is public; the people's table must be private")


def _check_view(catalog: Catalog, name: str, view: View) -> None:
    if view.of not in catalog.tables:
        raise Problem(
            ("views", name, "of"), f"no table `{view.of}`; {nearest(view.of, tuple(catalog.tables))}"
        )
    if catalog.tables[view.of].is_public:
        raise Problem(("views", name, "of"), f"`{view.of}` is public; count a private table")
    with _at("views", name, "of"):
        unit_path(catalog, view.of)
        max_ids(catalog, view.of)
    with _at("views", name, "measures"):
        measures = view_measures(catalog, view)
        # Sums are published about the middle of their bounds, so they are read together with a count.
        if all(measure.name != "count" for measure in measures):
            raise CatalogError("sums need a count beside them", hint="add `count` to the measures")
    with _at("views", name, "axes"):
        axes = view_axes(catalog, view)
        if len({axis.name for axis in axes}) != len(axes):
            raise CatalogError("an axis stands twice", hint="list each axis once")
        for axis in axes:
            if axis.spec is not None and axis.spec.ordered:
                bin_starts(axis.spec, axis.cuts or axis.spec.cuts)
    written = tuple(axis.axis for axis in view.axes)
    for axis_name in view.coarsen:
        if axis_name not in written:
            raise Problem(
                ("views", name, "coarsen"), f"`{axis_name}` is no axis here; {nearest(axis_name, written)}"
            )


def _check_shares(catalog: Catalog) -> None:
    given = [view.share for view in catalog.views.values() if view.share is not None]
    total = sum(given, Fraction(0))
    if total > 1:
        raise Problem(("views",), f"the shares of the views add up to {total}; keep them at 1 or less")
    if total == 1 and len(given) < len(catalog.views):
        raise Problem(
            ("views",), "the given shares leave nothing for the other views; lower them or give each one"
        )


def _check_source(catalog: Catalog) -> None:
    if catalog.source is None:
        return
    for name, table in catalog.tables.items():
        kept = catalog.collection is not None and not table.is_public  # people keep these rows themselves
        if name not in catalog.source.tables and not kept:
            raise Problem(("source", "tables"), f"`{name}` has no file; write `{name}: <file>` or a SELECT")


def _check_stream(catalog: Catalog) -> None:
    if catalog.stream is None:
        return
    table, _, column = catalog.stream.column.rpartition(".")
    spec = catalog.tables[table].columns.get(column) if table in catalog.tables else None
    for name, each in catalog.tables.items():
        if each.bounding == "weight" or each.clipped_share is not None:
            raise Problem(("tables", name), "streams bound rows by `truncate` alone; remove the key")
    if spec is None or spec.type not in ("date", "timestamp"):
        raise Problem(("stream", "column"), "write table.column of a declared date or timestamp column")
