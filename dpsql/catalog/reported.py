"""Columns that only devices know (`reported:`): where they may stand, and the catalog of what the curator counts.

The curator counts items, not values: in her rows `age` is the number of the item that the person's device reported, or
NULL where it did not. `inner_catalog` says so in the words of any other catalog; all else about her release follows.

**Privacy**: functions of the catalog alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import NamedTuple, TypeVar

from dpsql.catalog.base import Problem
from dpsql.catalog.columns import Column, Reported
from dpsql.catalog.graph import view_axes
from dpsql.catalog.model import CatalogFields
from dpsql.errors import InternalError
from dpsql.row_expressions.expression import row_expression

C = TypeVar("C", bound=CatalogFields)


class ReportedColumn(NamedTuple):
    """A reported column by its table and name."""

    table: str
    column: str
    spec: Column

    @property
    def told(self) -> Reported:
        """Catalog entry of its reports."""
        if self.spec.reported is None:
            raise InternalError(f"{self} is not reported")
        return self.spec.reported

    @property
    def asked(self) -> tuple[int, bool, Fraction, str]:
        """Parameters of its channel: leaves, order, epsilon of one report, and its word."""
        return self.spec.leaves, self.spec.ordered, self.told.epsilon, self.told.mechanism

    def __str__(self) -> str:
        """As catalogs and ledgers name it."""
        return f"{self.table}.{self.column}"


def reported_columns(catalog: CatalogFields) -> list[ReportedColumn]:
    """Every reported column of a catalog."""
    return [
        ReportedColumn(table, column, spec)
        for table, table_spec in catalog.tables.items()
        for column, spec in table_spec.columns.items()
        if spec.reported is not None
    ]


def inner_catalog(catalog: C, items: Callable[[ReportedColumn], int]) -> C:
    """The catalog with the items of reported columns in the place of their values; itself without any.

    Args:
        catalog: a checked catalog.
        items: how many items a column has.
    """
    columns = reported_columns(catalog)
    if not columns:
        return catalog
    tables = dict(catalog.tables)
    for reported in columns:
        table, size = tables[reported.table], items(reported)
        ends = {"type": "int", "lower": "0", "upper": str(size - 1)}
        spec = reported.spec.model_copy(update={**ends, "nullable": True, "cuts": None, "categories": ()})
        derive = {name: text for name, text in table.derive.items() if not _reads(text, reported.column)}
        changed = {"written": {**table.written, reported.column: spec}, "derive": derive}
        tables[reported.table] = table.model_copy(update=changed)
    views = dict(catalog.views)
    for name, view in views.items():
        if reported_axes(catalog, name) and view.word == "auto":
            views[name] = view.model_copy(update={"mechanism": "identity"})
    return catalog.model_copy(update={"tables": tables, "views": views})


def _reads(expression: str, column: str) -> bool:
    return column.lower() in {used.lower() for used in row_expression(expression).columns}


def reported_axes(catalog: CatalogFields, view: str) -> list[ReportedColumn]:
    """The reported columns among a view's axes."""
    columns = {(reported.table, reported.column): reported for reported in reported_columns(catalog)}
    places = [(axis.table, str(axis.column)) for axis in view_axes(catalog, catalog.views[view])]
    return [columns[place] for place in places if place in columns]


def check_reported(catalog: CatalogFields) -> None:
    """Refuse a reported column where it cannot be joined, counted or undone.

    Raises:
        Problem: at a key path, with what to write instead.
    """
    columns = reported_columns(catalog)
    if not columns:
        return
    unit, reports = catalog.privacy.unit, catalog.source.reports if catalog.source is not None else {}
    for reported in columns:
        at = ("tables", reported.table, "columns", reported.column, "reported")
        _check_column(reported, at)
        if reported.table != unit.table:
            where = f"unit's table `{unit.table}`" if unit.table else "table that `unit: <table>.<key>` names"
            raise Problem(at, f"one report is one person's; only a column of the {where} has them")
        if catalog.source is not None and catalog.source.kind.is_server:
            raise Problem(
                ("source", "kind"),
                f"reports are joined to rows in files or in DuckDB, not in {catalog.source.kind.name}",
            )
        if catalog.source is not None and reported.table not in reports:
            raise Problem(
                ("source", "reports"),
                f"`{reported.table}` has none; write `{reported.table}: <file of reports>`",
            )
    if len({reported.table for reported in columns}) != len(columns):
        raise Problem(
            ("tables", columns[0].table, "columns"), "one report contains one column; mark one `reported`"
        )
    if catalog.collection is not None or catalog.stream is not None:
        raise Problem(
            ("tables", columns[0].table), "a reported column goes with neither `collection:` nor `stream:`"
        )
    for name, view in catalog.views.items():
        if reported_axes(catalog, name):
            _check_view(catalog, name)
        elif any(axis.cuts and axis.axis == str(reported) for axis in view.axes for reported in columns):
            raise Problem(("views", name, "axes"), "leaves of a reported column are those of its own `cuts`")
    for table in catalog.tables.values():
        for text in (measure.expr for measure in table.measures.values()):
            if any(_reads(text, reported.column) for reported in columns):
                raise Problem(("tables",), "a reported column cannot be a measure or part of one")


def _check_column(reported: ReportedColumn, at: tuple[str, ...]) -> None:
    spec = reported.spec
    wrong: Mapping[str, bool] = {
        "measure": spec.measure, "nullable": spec.nullable, "from": spec.from_ is not None,
        "out_of_domain: other": spec.out_of_domain.keeps,
    }  # fmt: skip
    for key, is_wrong in wrong.items():
        if is_wrong:
            hint = "write out_of_domain: drop" if key.startswith("out") else f"remove `{key}`"
            raise Problem(at, f"every device reports one leaf of the domain, so `{key}` cannot be; {hint}")
    if not spec.has_domain or not 2 <= spec.leaves <= 1024:
        raise Problem(
            at, "a reported column has 2 to 1024 leaves; write `lower`, `upper` and `cuts`, or `categories`"
        )


def _check_view(catalog: CatalogFields, name: str) -> None:
    view = catalog.views[name]
    columns = {(each.table, each.column) for each in reported_columns(catalog)}
    for axis, meant in zip(view.axes, view_axes(catalog, view), strict=True):
        if (meant.table, meant.column) in columns and (axis.cuts or axis.workload):
            raise Problem(("views", name, "axes"), "leaves of a reported column are those of its own `cuts`")
    if catalog.tables[view.of].chooses_rows:
        raise Problem(("views", name), "a reported column needs a declared `max_ids`")
    if view.word not in ("auto", "identity"):
        raise Problem(
            ("views", name, "mechanism"), "the items of a reported column have no order; write identity"
        )
