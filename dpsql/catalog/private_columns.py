"""Columns whose keys nobody listed (`categories: private`) and columns that only devices know (`reported:`).

Of private columns: where they are used, what they may spend, what is refused.

One column has one list, in all views, by whichever foreign keys they reach it. A unit's keys are those of all her rows
that a view with the column counts, before bounding.

Of reported columns: where they may stand, and the catalog of what the curator counts.

The curator counts items, not values: in her rows `age` is the number of the item that the person's device reported, or
NULL where it did not. `inner_catalog` says so in the words of any other catalog; all else about her release follows.

**Privacy**: functions of the catalog alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import NamedTuple, TypeVar

from dpsql.catalog.base import Problem, refuse
from dpsql.catalog.columns import Column, PrivateKeys, Reported
from dpsql.catalog.graph import KeyPath, ResolvedAxis, own_path, unit_path, view_axes
from dpsql.catalog.model import CatalogFields
from dpsql.catalog.tables import Table
from dpsql.errors import InternalError
from dpsql.row_expressions.expression import row_expression

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


Fields = TypeVar("Fields", bound=CatalogFields)


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


def inner_catalog(catalog: Fields, items: Callable[[ReportedColumn], int]) -> Fields:
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
