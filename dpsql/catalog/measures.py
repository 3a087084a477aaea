"""What a view measures: counts and bounded sums, with the part of the view's share that each one gets."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from dpsql.catalog.base import nearest
from dpsql.catalog.tables import View
from dpsql.errors import CatalogError

if TYPE_CHECKING:
    from dpsql.catalog.model import Catalog


@dataclass(frozen=True)
class ResolvedMeasure:
    """One statistic of a view.

    Args:
        name: ``count``, ``table.column``, or ``count(table.column)`` for the rows where it is not NULL.
        share: part of the view's epsilon.
        table: the view's table.
        column: the column or declared measure; empty for ``count``.
        expr: SQL over the table's columns; empty for a plain column and for ``count``.
        scale: digits after the point that are kept.
        bounds: smallest and largest value in units of 10**-scale, inclusive; (0, 0) for counts.
        nullable: whether NULL may occur; such a measure comes with its own ``count(...)``.
    """

    name: str
    share: Fraction
    table: str
    column: str = ""
    expr: str = ""
    scale: int = 0
    bounds: tuple[int, int] = (0, 0)
    nullable: bool = False

    @property
    def is_count(self) -> bool:
        """Whether rows are counted, rather than values summed."""
        return not self.column or self.name.startswith("count(")


def view_measures(catalog: Catalog, view: View) -> tuple[ResolvedMeasure, ...]:
    """The statistics of a view, in its order.

    A nullable measure is followed by its own ``count(table.column)``, which AVG divides by; unless the view
    gives that one a share, the two halve the measure's share.

    Args:
        catalog: any catalog.
        view: one of its views.

    Returns:
        The statistics; their shares add up to at most 1.

    Raises:
        CatalogError: a name is no measure of the view's table.
    """
    found: dict[str, ResolvedMeasure] = {}
    for name, share in view.measures.items():
        measure = _measure(catalog, view.of, name, share)
        if measure.name in found:
            raise CatalogError(f"measure `{name}` stands twice", hint="list it once")
        found[measure.name] = measure
    for measure in tuple(found.values()):
        counted = f"count({measure.name})"
        if measure.nullable and not measure.is_count and counted not in found:
            half = measure.share / 2
            found[measure.name] = _with_share(measure, measure.name, half)
            found[counted] = _with_share(measure, counted, half)
    return tuple(found.values())


def _with_share(measure: ResolvedMeasure, name: str, share: Fraction) -> ResolvedMeasure:
    bounds = (0, 0) if name.startswith("count(") else measure.bounds
    return ResolvedMeasure(
        name, share, measure.table, measure.column, measure.expr, measure.scale, bounds, measure.nullable
    )


def _measure(catalog: Catalog, of: str, written: str, share: Fraction) -> ResolvedMeasure:
    if written == "count":
        return ResolvedMeasure("count", share, of)
    if written.startswith("count(") and written.endswith(")"):
        inner = _measure(catalog, of, written[6:-1], share)
        return _with_share(inner, f"count({inner.name})", share)
    table = catalog.tables[of]
    prefix, _, column = written.rpartition(".")
    known = (
        "count",
        *(f"{of}.{n}" for n, c in table.columns.items() if c.measure),
        *(f"{of}.{n}" for n in table.measures),
    )
    if prefix not in ("", of):
        raise CatalogError(f"measure `{written}` is not a column of `{of}`", hint=nearest(written, known))
    name = f"{of}.{column}"
    if column in table.measures:
        declared = table.measures[column]
        return ResolvedMeasure(
            name, share, of, column, declared.expr, declared.scale, declared.bounds, declared.nullable
        )
    spec = table.columns.get(column)
    if spec is None or not spec.measure:
        hint = f"write `measure: true` in tables.{of}.columns.{column}" if spec else nearest(written, known)
        raise CatalogError(f"`{written}` is no measure", hint=hint)
    return ResolvedMeasure(name, share, of, column, "", spec.digits, spec.bounds, spec.nullable)
